//! Builds the requests that the cache sends to the store below.
//!
//! They carry the client's headers, so that what an origin makes of them (logs, policies) stays
//! the same, but for those the cache answers itself: range, conditions, coding, directives. They
//! always ask for checksums, so that the record knows them. A client that wants to know what the
//! origin has now must get past the caches behind this one too: questions on its behalf say so.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_s3::{
    operation::{ObjectId, Operation, ReadObject},
    range::RangeHeader,
    uri,
};
use forebay_store::{Body, Caller, PayloadProof, Query, Request};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    plan::{self, Directive, Part},
    settings::PageBytes,
    version::Version,
};

/// Most bytes of one ranged fill (design.md §5): long enough to hide a round trip of 20 ms at
/// 400 MB/s, short enough that readers far apart do not wait for one another.
pub(crate) const EXTENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A fill serves clients that come later than the one it began for, so it has a deadline of its
/// own. A silent origin is noticed long before by the origin store; this only bounds a fill whose
/// readers are slow. A guess.
const FILL_TIME_MAX: Duration = Duration::from_hours(1);

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const ENABLED: HeaderValue = HeaderValue::from_static("ENABLED");

/// What all requests for one object on behalf of one client have in common; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Template(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    object: ObjectId,
    headers: HeaderMap,
    conditions: Vec<(HeaderName, HeaderValue)>,
    directive: Directive,
    caller: Caller,
}

/// Conditions of a request for a version.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask<'a> {
    /// Those of the client.
    AsTheClient,
    /// Anything but this version.
    Unless(&'a Version),
    /// Without any.
    Anyway,
}

impl Template {
    /// Takes over a client's request.
    pub(crate) fn of(
        object: &ObjectId,
        headers: &HeaderMap,
        directive: Directive,
        caller: &Caller,
    ) -> Self {
        let mut kept = headers.clone();
        let mut conditions = Vec::new();
        for (name, value) in headers {
            if plan::is_condition(name) {
                conditions.push((name.clone(), value.clone()));
                kept.remove(name);
            }
        }
        for name in [
            header::RANGE,
            header::ACCEPT_ENCODING,
            header::CACHE_CONTROL,
            header::PRAGMA,
        ] {
            kept.remove(name);
        }
        kept.insert(plan::CHECKSUM_MODE, ENABLED);
        let (object, caller) = (object.clone(), caller.clone());
        Self(Arc::new(Inner {
            object,
            headers: kept,
            conditions,
            directive,
            caller,
        }))
    }

    /// What the client's `Cache-Control` asks for.
    pub(crate) fn directive(&self) -> Directive {
        self.0.directive
    }

    /// The object.
    pub(crate) fn object(&self) -> &ObjectId {
        &self.0.object
    }

    /// A HEAD.
    pub(crate) fn head(&self, ask: Ask<'_>) -> Request {
        let read = ReadObject {
            object: self.0.object.clone(),
            range: None,
            part_number: None,
        };
        let deadline = self.0.caller.deadline;
        let mut request = self.request(http::Method::HEAD, Operation::HeadObject(read), deadline);
        self.set_conditions(&mut request, ask);
        request
    }

    /// A GET that tells what version there is and, with it, the bytes that `part` is about.
    pub(crate) fn learn(
        &self,
        part: Part,
        ask: Ask<'_>,
        page_bytes: PageBytes,
        now: Instant,
    ) -> Request {
        let mut request = self.get(widened(part, page_bytes), now);
        self.set_conditions(&mut request, ask);
        request
    }

    /// A GET of some bytes, one at least, of this version and no other.
    pub(crate) fn extent(&self, version: &Version, range: Range<u64>, now: Instant) -> Request {
        let range = RangeHeader::FromTo {
            first: range.start,
            last: range.end - 1,
        };
        let mut request = self.get(Some(range), now);
        request.headers.insert(header::IF_MATCH, tag(version));
        request
    }

    fn get(&self, range: Option<RangeHeader>, now: Instant) -> Request {
        let read = ReadObject {
            object: self.0.object.clone(),
            range,
            part_number: None,
        };
        let deadline = self.0.caller.deadline.max(now + FILL_TIME_MAX);
        let mut request = self.request(http::Method::GET, Operation::GetObject(read), deadline);
        if let Some(range) = range {
            let value = HeaderValue::try_from(range.to_string());
            request
                .headers
                .insert(header::RANGE, value.expect("a range is ASCII"));
        }
        request
    }

    fn request(&self, method: http::Method, operation: Operation, deadline: Instant) -> Request {
        let inner = &self.0;
        let query = inner
            .object
            .version
            .as_ref()
            .map_or_else(Query::default, |id| {
                Query::new(format!("versionId={}", uri::encode_query(id.as_str())))
            });
        Request {
            operation,
            method,
            headers: inner.headers.clone(),
            query,
            body: Body::empty(),
            payload_proof: PayloadProof::None,
            caller: Caller {
                deadline,
                ..inner.caller.clone()
            },
        }
    }

    /// What a question says beside what it is about: conditions, and how fresh an answer must be.
    fn set_conditions(&self, request: &mut Request, ask: Ask<'_>) {
        match ask {
            Ask::AsTheClient => request.headers.extend(self.0.conditions.iter().cloned()),
            Ask::Unless(version) => {
                request.headers.insert(header::IF_NONE_MATCH, tag(version));
            }
            Ask::Anyway => {}
        }
        match self.0.directive {
            Directive::Validate => {
                request.headers.insert(header::CACHE_CONTROL, NO_CACHE);
            }
            Directive::None | Directive::NoStore => {}
        }
    }
}

fn tag(version: &Version) -> HeaderValue {
    HeaderValue::try_from(version.etag.to_string()).expect("a tag was read from a header")
}

/// What to ask an origin for, whole pages where that can be told before the size is known; `None`
/// is the whole object.
fn widened(part: Part, page_bytes: PageBytes) -> Option<RangeHeader> {
    let from = |first: u64, end: u64| {
        let start = page_bytes.floor(first);
        let end = page_bytes
            .ceil(end)
            .min(start.saturating_add(EXTENT_BYTES_MAX.max(page_bytes.get())));
        RangeHeader::FromTo {
            first: start,
            last: end - 1,
        }
    };
    match part {
        Part::Head | Part::Whole | Part::Range(RangeHeader::From { first: 0 }) => None,
        Part::Range(RangeHeader::From { first }) => Some(from(first, u64::MAX)),
        Part::Range(RangeHeader::FromTo { first, last }) => {
            Some(from(first, last.saturating_add(1)))
        }
        // A page's length from the end has the last page whole.
        Part::Range(RangeHeader::Suffix { count: 0 }) => Some(RangeHeader::Suffix { count: 0 }),
        Part::Range(RangeHeader::Suffix { count }) => Some(RangeHeader::Suffix {
            count: count.max(page_bytes.get()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_widened_to_pages_and_cut_to_extents() {
        let page_bytes = PageBytes::OF_TESTS;
        for (text, expected) in [
            ("bytes=0-", None),
            ("bytes=0-0", Some("bytes=0-65535")),
            ("bytes=65535-65536", Some("bytes=0-131071")),
            ("bytes=70000-80000", Some("bytes=65536-131071")),
            ("bytes=70000-99999999", Some("bytes=65536-8454143")),
            ("bytes=70000-", Some("bytes=65536-8454143")),
            (
                "bytes=18446744073709551615-18446744073709551615",
                Some("bytes=18446744073709486080-18446744073709551614"),
            ),
            ("bytes=-10", Some("bytes=-65536")),
            ("bytes=-100000", Some("bytes=-100000")),
            ("bytes=-0", Some("bytes=-0")),
        ] {
            let range = RangeHeader::parse(text).unwrap();
            let widened = widened(Part::Range(range), page_bytes).map(|range| range.to_string());
            assert_eq!(widened.as_deref(), expected, "{text}");
        }
        let large = widened(
            Part::Range(RangeHeader::From { first: 1 << 24 }),
            PageBytes::MAX,
        );
        assert_eq!(
            large,
            Some(RangeHeader::FromTo {
                first: 1 << 24,
                last: (1 << 25) - 1
            })
        );
    }
}
