//! Reads from a GET or HEAD of an object what it asks of the cache, or why the cache is not for it.
//!
//! Called for every such request, before anything is looked up; pure, and without an allocation
//! for a plain request.
//!
//! What goes past the cache, and why:
//! - `partNumber`: its answer has another length than the object. HEAD with a range: services
//!   differ in what they answer.
//! - Any query parameter but `versionId`, `x-id` and `response-*`, and any `x-amz-*` header but
//!   those that change nothing of the answer: SSE-C, `x-amz-expected-bucket-owner`,
//!   `x-amz-request-payer` and whatever S3 adds one day.
//! - `Origin`: the answer has CORS headers that depend on it.

use std::borrow::Cow;

use forebay_s3::{condition::Conditions, operation::ReadObject, range::RangeHeader, uri};
use forebay_store::Query;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    headers,
    settings::{CacheSettings, Directives},
};

/// The header that asks for checksums, with the value `ENABLED` in any case.
pub(crate) const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// `x-amz-*` headers of reads that change nothing of the answer but, for the first, its checksums.
const KNOWN_HEADERS: [&str; 2] = ["x-amz-checksum-mode", "x-amz-user-agent"];

/// Query parameters that set a header of the answer (Amazon S3 API Reference, `GetObject`).
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", header::CACHE_CONTROL),
    ("response-content-disposition", header::CONTENT_DISPOSITION),
    ("response-content-encoding", header::CONTENT_ENCODING),
    ("response-content-language", header::CONTENT_LANGUAGE),
    ("response-content-type", header::CONTENT_TYPE),
    ("response-expires", header::EXPIRES),
];

/// What a read asks of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub part: Part,
    pub conditions: Option<Box<Conditions>>,
    pub checksums: ChecksumMode,
    /// Headers that the query sets.
    pub overrides: Vec<(HeaderName, HeaderValue)>,
    pub directive: Directive,
}

/// What of the object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its headers (HEAD).
    Head,
    /// All of it.
    Whole,
    /// Some bytes.
    Range(RangeHeader),
}

/// Whether the client asked for checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChecksumMode {
    /// It did.
    Enabled,
    /// It did not.
    Off,
}

/// What the client's `Cache-Control` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    /// Nothing.
    None,
    /// `no-cache`, `max-age=0`: ask the origin before answering.
    Validate,
    /// `no-store`: keep nothing of this exchange.
    NoStore,
}

/// The method, of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
}

/// The request goes past the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bypass;

impl Plan {
    /// Reads the plan of a request.
    ///
    /// # Errors
    /// [`Bypass`] when the cache is not for it.
    pub(crate) fn of(
        method: Method,
        read: &ReadObject,
        request_headers: &HeaderMap,
        query: &Query,
        settings: &CacheSettings,
    ) -> Result<Self, Bypass> {
        let part = match (method, read.range) {
            (Method::Head, None) => Part::Head,
            (Method::Head, Some(_)) => return Err(Bypass),
            (Method::Get, None) => Part::Whole,
            (Method::Get, Some(range)) => Part::Range(range),
        };
        if read.part_number.is_some() {
            return Err(Bypass);
        }
        let mut plan = Self {
            part,
            conditions: None,
            checksums: ChecksumMode::Off,
            overrides: overrides(query)?,
            directive: Directive::None,
        };
        let mut conditional = false;
        for (name, value) in request_headers {
            if let Some(rest) = name.as_str().strip_prefix("x-amz-") {
                plan.read_amz(rest, value)?;
            } else if *name == header::ORIGIN {
                return Err(Bypass);
            } else if *name == header::CACHE_CONTROL {
                if settings.client_directives == Directives::Honour {
                    plan.directive = Directive::read(value);
                }
            } else if is_condition(name) {
                conditional = true;
            }
        }
        if conditional {
            plan.conditions = Some(Box::new(Conditions::from_headers(request_headers)));
        }
        Ok(plan)
    }

    fn read_amz(&mut self, rest: &str, value: &HeaderValue) -> Result<(), Bypass> {
        if !KNOWN_HEADERS
            .iter()
            .any(|known| known.strip_prefix("x-amz-") == Some(rest))
        {
            return Err(Bypass);
        }
        if rest == "checksum-mode" && value.as_bytes().eq_ignore_ascii_case(b"ENABLED") {
            self.checksums = ChecksumMode::Enabled;
        }
        Ok(())
    }
}

impl Directive {
    /// What the headers of a request ask for.
    pub(crate) fn of(request_headers: &HeaderMap) -> Self {
        let value = request_headers.get(header::CACHE_CONTROL);
        value.map_or(Self::None, Self::read)
    }

    fn read(value: &HeaderValue) -> Self {
        let Ok(value) = value.to_str() else {
            return Self::None;
        };
        if headers::has_directive(value, "no-store") {
            Self::NoStore
        } else if ["no-cache", "max-age=0"]
            .iter()
            .any(|d| headers::has_directive(value, d))
        {
            Self::Validate
        } else {
            Self::None
        }
    }
}

/// Whether an `x-amz-*` header changes nothing of any answer.
pub(crate) fn is_of_no_effect(name: &HeaderName) -> bool {
    KNOWN_HEADERS.contains(&name.as_str())
}

/// Whether a header is one of the five conditions.
pub(crate) fn is_condition(name: &HeaderName) -> bool {
    const CONDITIONS: [HeaderName; 5] = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
    ];
    CONDITIONS.contains(name)
}

fn overrides(query: &Query) -> Result<Vec<(HeaderName, HeaderValue)>, Bypass> {
    let mut overrides = Vec::new();
    if query.is_empty() {
        return Ok(overrides);
    }
    for (name, value) in uri::query_pairs(query.as_str()) {
        match name {
            Cow::Borrowed("versionId" | "x-id") => {}
            name => {
                let (_, header) = OVERRIDES
                    .iter()
                    .find(|(known, _)| *known == name)
                    .ok_or(Bypass)?;
                let value = HeaderValue::from_str(&value).map_err(|_| Bypass)?;
                overrides.push((header.clone(), value));
            }
        }
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};

    use super::*;

    fn plan(
        method: Method,
        range: Option<&'static str>,
        query: &str,
        header: (&'static str, &'static str),
    ) -> Result<Plan, Bypass> {
        let object = ObjectId {
            bucket: BucketName::parse("bucket").unwrap(),
            key: ObjectKey::parse("key").unwrap(),
            version: None,
        };
        let range = range.and_then(RangeHeader::parse);
        let read = ReadObject {
            object,
            range,
            part_number: None,
        };
        let mut headers = HeaderMap::new();
        headers.insert(header.0, HeaderValue::from_static(header.1));
        Plan::of(
            method,
            &read,
            &headers,
            &Query::new(query),
            &CacheSettings::default(),
        )
    }

    #[test]
    fn what_changes_the_answer_in_unknown_ways_goes_past() {
        for (query, header, goes_past) in [
            ("", ("user-agent", "x"), false),
            (
                "x-id=GetObject&versionId=3",
                ("amz-sdk-request", "attempt=1"),
                false,
            ),
            (
                "response-content-type=a%2Fb",
                ("x-amz-checksum-mode", "ENABLED"),
                false,
            ),
            ("response-content-type=%00", ("user-agent", "x"), true),
            ("response-unknown=1", ("user-agent", "x"), true),
            ("torrent", ("user-agent", "x"), true),
            ("", ("origin", "https://example.com"), true),
            ("", ("x-amz-request-payer", "requester"), true),
            ("", ("x-amz-expected-bucket-owner", "1"), true),
            (
                "",
                ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
                true,
            ),
            ("", ("x-amz-of-the-future", "1"), true),
        ] {
            let plan = plan(Method::Get, None, query, header);
            assert_eq!(plan.is_err(), goes_past, "{query} {header:?}");
        }
        assert!(plan(Method::Head, Some("bytes=0-1"), "", ("accept", "*/*")).is_err());
    }

    #[test]
    fn a_plan_holds_what_was_asked_for() {
        let range = plan(Method::Get, Some("bytes=0-1"), "", ("accept", "*/*")).unwrap();
        assert_eq!(
            range.part,
            Part::Range(RangeHeader::FromTo { first: 0, last: 1 })
        );
        let head = plan(Method::Head, None, "", ("x-amz-checksum-mode", "enabled")).unwrap();
        assert_eq!(
            (head.part, head.checksums),
            (Part::Head, ChecksumMode::Enabled)
        );
        let query = "response-content-type=a%2Fb";
        let overriding = plan(Method::Get, None, query, ("if-match", "\"a\"")).unwrap();
        let expected = (header::CONTENT_TYPE, HeaderValue::from_static("a/b"));
        assert_eq!(overriding.overrides, [expected]);
        assert!(overriding.conditions.is_some());
        for (value, expected) in [
            ("max-age=60", Directive::None),
            ("no-cache", Directive::Validate),
            ("max-age=0", Directive::Validate),
            ("no-cache, no-store", Directive::NoStore),
        ] {
            let plan = plan(Method::Get, None, "", ("cache-control", value)).unwrap();
            assert_eq!(plan.directive, expected, "{value}");
        }
    }
}
