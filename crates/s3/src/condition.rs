//! Conditional requests: what the preconditions of a request say of one object.
//!
//! Source: RFC 9110 §13.2.2 (order of evaluation); S3 follows it, with `If-Match` and
//! `If-None-Match: *` on writes as well (Amazon S3 User Guide, "Conditional writes").

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    etag::{ETAGS_IN_LIST_MAX, ETag, ETagList},
    time,
};

/// The preconditions of a request. A header that can't be read is left out, as RFC 9110 asks for
/// dates, and for tags answers as one that no object has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `If-Match`.
    pub if_match: Option<ETagList>,
    /// `If-None-Match`.
    pub if_none_match: Option<ETagList>,
    /// `If-Modified-Since`, Unix seconds.
    pub if_modified_since: Option<i64>,
    /// `If-Unmodified-Since`, Unix seconds.
    pub if_unmodified_since: Option<i64>,
    /// `If-Range`.
    pub if_range: Option<IfRange>,
}

/// The validator in an `If-Range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfRange {
    /// Strong comparison with the object's tag.
    Tag(ETag),
    /// The object's exact modification time, Unix seconds.
    Date(i64),
    /// Unreadable, so it matches nothing and the whole object is the answer.
    Never,
}

/// How a read goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as without conditions.
    Proceed,
    /// Answer `304 Not Modified`.
    NotModified,
    /// Answer `412 Precondition Failed`; the header that failed.
    Failed(&'static str),
}

/// Whether a `Range` header counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeUse {
    /// Answer the range.
    Apply,
    /// Answer the whole object.
    Ignore,
}

impl Conditions {
    /// Reads the five conditional headers.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let text = |name| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap_or("\""))
        };
        let list = |name| read_list(headers, name);
        let date = |name| text(name).and_then(time::parse_http_date);
        Self {
            if_match: list(header::IF_MATCH),
            if_none_match: list(header::IF_NONE_MATCH),
            if_modified_since: date(header::IF_MODIFIED_SINCE),
            if_unmodified_since: date(header::IF_UNMODIFIED_SINCE),
            if_range: text(header::IF_RANGE).map(IfRange::parse),
        }
    }

    /// Whether there is none but, perhaps, `If-Range`.
    pub fn is_empty(&self) -> bool {
        let Self {
            if_match,
            if_none_match,
            if_modified_since,
            if_unmodified_since,
            if_range: _,
        } = self;
        if_match.is_none()
            && if_none_match.is_none()
            && if_modified_since.is_none()
            && if_unmodified_since.is_none()
    }

    /// Judges a GET or HEAD of an object with this tag and modification time (Unix seconds).
    pub fn evaluate_read(&self, etag: &ETag, modified: i64) -> Outcome {
        if let Some(tags) = &self.if_match {
            if !tags.matches_strongly(etag) {
                return Outcome::Failed("If-Match");
            }
        } else if self
            .if_unmodified_since
            .is_some_and(|since| modified > since)
        {
            return Outcome::Failed("If-Unmodified-Since");
        }
        if let Some(tags) = &self.if_none_match {
            if tags.matches_weakly(etag) {
                return Outcome::NotModified;
            }
        } else if self
            .if_modified_since
            .is_some_and(|since| modified <= since)
        {
            return Outcome::NotModified;
        }
        Outcome::Proceed
    }

    /// Whether the `Range` of a GET counts for an object with this tag and modification time.
    pub fn range_use(&self, etag: &ETag, modified: i64) -> RangeUse {
        let holds = match &self.if_range {
            None => true,
            Some(IfRange::Tag(tag)) => tag.matches_strongly(etag),
            Some(IfRange::Date(date)) => *date == modified,
            Some(IfRange::Never) => false,
        };
        if holds {
            RangeUse::Apply
        } else {
            RangeUse::Ignore
        }
    }
}

/// Reads a list of tags, which may come in several lines (RFC 9110 §5.3), each a list itself.
fn read_list(headers: &HeaderMap, name: HeaderName) -> Option<ETagList> {
    let read = |line: &HeaderValue| ETagList::parse(line.to_str().ok()?).ok();
    let mut lines = headers.get_all(name).iter().map(read);
    let first = lines.next()?;
    let list = lines.fold(first, |list, line| match (list?, line?) {
        (ETagList::Tags(mut tags), ETagList::Tags(more)) => {
            tags.extend(more);
            (tags.len() <= ETAGS_IN_LIST_MAX).then_some(ETagList::Tags(tags))
        }
        (ETagList::Any, _) | (_, ETagList::Any) => None,
    });
    Some(list.unwrap_or(ETagList::Tags(Vec::new())))
}

impl IfRange {
    fn parse(text: &str) -> Self {
        if let Some(date) = time::parse_http_date(text) {
            return Self::Date(date);
        }
        ETag::parse(text).map_or(Self::Never, Self::Tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(headers: &[(&'static str, &str)]) -> Conditions {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Conditions::from_headers(&map)
    }

    /// 1994-11-06T08:49:37Z, the date that RFC 9110 uses.
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const MODIFIED: i64 = 784_111_777;

    #[test]
    fn preconditions_follow_the_order_of_rfc_9110() {
        let failed = Outcome::Failed;
        for (headers, modified, expected) in [
            (&[][..], MODIFIED, Outcome::Proceed),
            (&[("if-match", "\"a\"")], MODIFIED, Outcome::Proceed),
            (&[("if-match", "\"b\"")], MODIFIED, failed("If-Match")),
            (
                &[("if-match", "\"unreadable")],
                MODIFIED,
                failed("If-Match"),
            ),
            (&[("if-none-match", "a")], MODIFIED, Outcome::NotModified),
            (&[("if-none-match", "*")], MODIFIED, Outcome::NotModified),
            (&[("if-none-match", "b")], MODIFIED, Outcome::Proceed),
            (
                &[("if-modified-since", DATE)],
                MODIFIED,
                Outcome::NotModified,
            ),
            (
                &[("if-modified-since", DATE)],
                MODIFIED + 1,
                Outcome::Proceed,
            ),
            (
                &[("if-modified-since", "yesterday")],
                MODIFIED,
                Outcome::Proceed,
            ),
            (&[("if-unmodified-since", DATE)], MODIFIED, Outcome::Proceed),
            (
                &[("if-unmodified-since", DATE)],
                MODIFIED + 1,
                failed("If-Unmodified-Since"),
            ),
            // A tag outranks the date of its kind.
            (
                &[("if-match", "a"), ("if-unmodified-since", DATE)],
                MODIFIED + 1,
                Outcome::Proceed,
            ),
            (
                &[("if-none-match", "b"), ("if-modified-since", DATE)],
                MODIFIED,
                Outcome::Proceed,
            ),
            (
                &[("if-match", "a"), ("if-none-match", "a")],
                MODIFIED,
                Outcome::NotModified,
            ),
        ] {
            let etag = ETag::strong("a").unwrap();
            let outcome = conditions(headers).evaluate_read(&etag, modified);
            assert_eq!(outcome, expected, "{headers:?} at {modified}");
        }
    }

    #[test]
    fn a_list_in_several_lines_is_one_list() {
        for (name, matches) in [
            ("if-match", Outcome::Proceed),
            ("if-none-match", Outcome::NotModified),
        ] {
            let split = conditions(&[(name, "\"b\""), (name, "\"c\", \"a\"")]);
            assert_eq!(split, conditions(&[(name, "\"b\", \"c\", \"a\"")]));
            let etag = ETag::strong("a").unwrap();
            assert_eq!(split.evaluate_read(&etag, MODIFIED), matches, "{name}");
            // Halves of a tag are none, and nothing stands beside `*`.
            for broken in [["\"a", "b\""], ["*", "\"a\""], ["\"a\"", "*"], ["\"", "a"]] {
                let broken = conditions(&broken.map(|line| (name, line)));
                assert_eq!(broken, conditions(&[(name, "\"")]));
            }
        }
    }

    #[test]
    fn a_range_counts_only_while_if_range_holds() {
        let etag = ETag::strong("a").unwrap();
        for (value, expected) in [
            ("\"a\"", RangeUse::Apply),
            ("\"b\"", RangeUse::Ignore),
            ("W/\"a\"", RangeUse::Ignore),
            (DATE, RangeUse::Apply),
            ("\"", RangeUse::Ignore),
        ] {
            let range_use = conditions(&[("if-range", value)]).range_use(&etag, MODIFIED);
            assert_eq!(range_use, expected, "{value}");
        }
        assert_eq!(
            Conditions::default().range_use(&etag, MODIFIED),
            RangeUse::Apply
        );
    }
}
