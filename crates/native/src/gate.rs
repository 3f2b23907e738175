//! Conditions of writes: what must hold of the current object for a write to happen.
//!
//! An engine checks a gate under the key's lock, so that check and write are one step.
//! Source: Amazon S3 User Guide, "How to prevent object overwrites with conditional writes" and
//! "How to perform conditional deletes".

use forebay_s3::{
    code::Code,
    etag::{ETag, ETagList},
    key::ObjectKey,
};
use forebay_store::Error;
use http::{HeaderMap, header};

use crate::refuse;

/// What must hold of the object that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// `If-Match`.
    pub if_match: Option<ETagList>,
    /// `If-None-Match: *`.
    pub absent: Absent,
}

/// Whether there may be an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Absent {
    /// Either way.
    #[default]
    NotRequired,
    /// There must be none.
    Required,
}

/// What a gate lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A write.
    Write,
    /// A delete.
    Delete,
}

impl Gate {
    /// Reads the conditional headers of a write.
    ///
    /// # Errors
    /// `NotImplemented` for an `If-None-Match` that is not `*`, as S3 answers; `InvalidArgument`
    /// for an `If-Match` that is no tag.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, Error> {
        let absent = match headers
            .get(header::IF_NONE_MATCH)
            .map(http::HeaderValue::as_bytes)
        {
            None => Absent::NotRequired,
            Some(b"*") => Absent::Required,
            Some(_) => return Err(Error::refused(Code::NotImplemented)),
        };
        let if_match = headers.get(header::IF_MATCH).map(|value| {
            let text = value.to_str().unwrap_or_default();
            ETagList::parse(text).map_err(|_| {
                refuse::invalid_argument("If-Match", text, "The If-Match header is not a tag.")
            })
        });
        Ok(Self {
            if_match: if_match.transpose()?,
            absent,
        })
    }

    /// Whether there is nothing to check, so that the current object need not be looked at.
    pub fn is_open(&self) -> bool {
        self.if_match.is_none() && self.absent == Absent::NotRequired
    }

    /// Judges the current object, by its tag.
    ///
    /// # Errors
    /// `PreconditionFailed`; `NoSuchKey` for a write over an object that must match and is gone.
    pub fn check(&self, act: Act, key: &ObjectKey, current: Option<&ETag>) -> Result<(), Error> {
        if self.absent == Absent::Required && current.is_some() {
            return Err(refuse::precondition_failed("If-None-Match"));
        }
        match (&self.if_match, current, act) {
            (None, _, _) => Ok(()),
            (Some(tags), Some(etag), _) if tags.matches_strongly(etag) => Ok(()),
            (Some(_), Some(_), _) | (Some(_), None, Act::Delete) => {
                Err(refuse::precondition_failed("If-Match"))
            }
            (Some(_), None, Act::Write) => Err(refuse::no_such_key(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_open_and_close_as_s3_says() {
        use Act::{Delete, Write};
        let key = ObjectKey::parse("k").unwrap();
        let etag = ETag::strong("a").unwrap();
        for (name, value, act, there, refusal) in [
            ("if-match", "\"a\"", Write, true, None),
            ("if-match", "a", Delete, true, None),
            ("if-match", "*", Delete, true, None),
            (
                "if-match",
                "\"b\"",
                Write,
                true,
                Some(Code::PreconditionFailed),
            ),
            ("if-match", "\"a\"", Write, false, Some(Code::NoSuchKey)),
            (
                "if-match",
                "*",
                Delete,
                false,
                Some(Code::PreconditionFailed),
            ),
            (
                "if-none-match",
                "*",
                Write,
                true,
                Some(Code::PreconditionFailed),
            ),
            ("if-none-match", "*", Write, false, None),
            (
                "if-none-match",
                "\"a\"",
                Write,
                false,
                Some(Code::NotImplemented),
            ),
            ("if-match", "\"", Write, true, Some(Code::InvalidArgument)),
        ] {
            let headers = [(name.parse().unwrap(), value.parse().unwrap())]
                .into_iter()
                .collect();
            let current = there.then_some(&etag);
            let checked = Gate::from_headers(&headers).and_then(|g| g.check(act, &key, current));
            let code = checked.err().map(|error| match error {
                Error::Refused(refusal) => refusal.code,
                other => panic!("{other}"),
            });
            assert_eq!(code, refusal, "{name}: {value}, {act:?}, there: {there}");
        }
    }
}
