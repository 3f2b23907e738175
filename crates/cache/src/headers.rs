//! Which headers of an origin's answer are kept, and how they lie in memory.
//!
//! A value that hyper has read is a slice of the connection's read buffer, up to hundreds of KiB:
//! keeping it would keep the buffer. So the values kept are copied into one allocation of their
//! own. Names and values that nearly every object has are turned into static ones, which cost
//! nothing to clone: a hit clones them all.
//!
//! Sources: RFC 9111 §3.1 (what may not be stored), RFC 9211 (`Cache-Status` is per answer), the
//! Amazon S3 API Reference, "Common Response Headers".

use bytes::{Bytes, BytesMut};
use forebay_store::{Error, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};

pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Most bytes of `Cache-Status` that are taken over from caches behind this one.
const BEHIND_BYTES_MAX: usize = 1024;

/// Headers that belong to one answer, and those made anew for each.
const PER_ANSWER: [&str; 13] = [
    "age",
    "cache-status",
    "connection",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "x-amz-id-2",
    "x-amz-mp-parts-count",
    "x-amz-request-id",
    "x-forebay-request-id",
];

/// Names of S3 that `http` does not know as standard ones.
const KNOWN_NAMES: [&str; 20] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-type",
    "x-amz-expiration",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-replication-status",
    "x-amz-restore",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-storage-class",
    "x-amz-tagging-count",
    "x-amz-version-id",
    "x-amz-website-redirect-location",
    "x-xss-protection",
];

const KNOWN_VALUES: [&str; 12] = [
    "AES256",
    "AmazonS3",
    "COMPOSITE",
    "FULL_OBJECT",
    "MinIO",
    "Origin",
    "STANDARD",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "binary/octet-stream",
    "bytes",
    "text/plain",
];

const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// Memory of one entry of a `HeaderMap`, and of its share of the table: http 1 keeps a name of 32
/// bytes, a value of 40 and links beside them.
const ENTRY_BYTES: usize = 120;

/// Headers that an answer may get beside those of the origin: length, age, range, request id,
/// `Cache-Status`. The table of a map has room for them, so that no answer has to build a larger
/// one, which took a twentieth of a hit's instructions.
const ADDED_COUNT_MAX: usize = 5;

/// The headers to keep, with the length of the whole object; `Age` is among them with any value,
/// so that setting it later moves nothing.
pub(crate) fn kept(answer: &HeaderMap, size_bytes: u64) -> HeaderMap {
    let keeps = |name: &HeaderName| {
        let name = name.as_str();
        !PER_ANSWER.contains(&name) && !name.starts_with(CHECKSUM_PREFIX)
    };
    let mut kept = owned(answer, keeps);
    kept.insert(header::CONTENT_LENGTH, size_bytes.into());
    kept.insert(header::AGE, HeaderValue::from_static("0"));
    // A copy has the table of the whole capacity and entries for what is there.
    kept.clone()
}

/// The headers to keep of an answer to a HEAD that is kept whole: with the length it has, or none.
pub(crate) fn kept_of_head(answer: &HeaderMap) -> HeaderMap {
    let mut kept = kept(answer, 0);
    match answer.get(header::CONTENT_LENGTH) {
        Some(length) => {
            let own = HeaderValue::from_bytes(length.as_bytes());
            kept.insert(header::CONTENT_LENGTH, own.expect("it was a header value"));
        }
        None => {
            kept.remove(header::CONTENT_LENGTH);
        }
    }
    kept
}

/// The checksums of the whole object.
pub(crate) fn checksums(answer: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    owned(answer, is_checksum)
        .into_iter()
        .filter_map(|(n, value)| Some((n?, value)))
        .collect()
}

/// Whether a header carries a checksum or its type.
pub(crate) fn is_checksum(name: &HeaderName) -> bool {
    name.as_str().starts_with(CHECKSUM_PREFIX)
}

/// Copies the headers that are to be kept, their values into one allocation.
fn owned(answer: &HeaderMap, keeps: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let headers = || answer.iter().filter(|(name, _)| keeps(name));
    let mut texts = BytesMut::new();
    for (_, value) in headers() {
        if known(&KNOWN_VALUES, value.as_bytes()).is_none() {
            texts.extend_from_slice(value.as_bytes());
        }
    }
    let mut texts = texts.freeze();
    let mut own = HeaderMap::with_capacity(headers().count() + ADDED_COUNT_MAX);
    for (name, value) in headers() {
        let name = known(&KNOWN_NAMES, name.as_str().as_bytes())
            .map_or_else(|| name.clone(), HeaderName::from_static);
        let value = known(&KNOWN_VALUES, value.as_bytes())
            .map_or_else(|| copied(value, &mut texts), HeaderValue::from_static);
        own.append(name, value);
    }
    own
}

fn copied(value: &HeaderValue, texts: &mut Bytes) -> HeaderValue {
    let own = texts.split_to(value.len());
    HeaderValue::from_maybe_shared(own).expect("it was a header value before it was copied")
}

fn known(list: &[&'static str], text: &[u8]) -> Option<&'static str> {
    list.iter().find(|known| known.as_bytes() == text).copied()
}

/// Memory that a map takes.
pub(crate) fn footprint_bytes(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| ENTRY_BYTES + name.as_str().len() + value.len())
        .sum()
}

/// `Cache-Status` of the caches behind this one, in their order; it goes with one answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behind(Option<HeaderValue>);

impl Behind {
    /// What an answer says; nothing when that is longer than anybody needs.
    pub(crate) fn of(answer: &Result<Response, Error>) -> Self {
        let Ok(response) = answer else {
            return Self::default();
        };
        let mut values = response.headers.get_all(CACHE_STATUS).iter();
        let Some(first) = values.next() else {
            return Self::default();
        };
        let mut joined = first.as_bytes().to_vec();
        for value in values {
            joined.extend_from_slice(b", ");
            joined.extend_from_slice(value.as_bytes());
        }
        if joined.len() > BEHIND_BYTES_MAX {
            return Self::default();
        }
        Self(HeaderValue::from_maybe_shared(Bytes::from(joined)).ok())
    }

    /// Says the same in another answer.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(value) = &self.0 {
            headers.insert(CACHE_STATUS, value.clone());
        }
    }
}

/// Whether a `Cache-Control` has this directive.
pub(crate) fn has_directive(value: &str, directive: &str) -> bool {
    value
        .split(',')
        .any(|part| part.trim().eq_ignore_ascii_case(directive))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)))
            .collect()
    }

    #[test]
    fn what_belongs_to_one_answer_is_left_out() {
        let answer = map(&[
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("x-amz-request-id", "1"),
            ("content-length", "3"),
            ("content-range", "bytes 0-2/5"),
            ("content-type", "text/x"),
            ("x-amz-meta-a", "b"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("accept-ranges", "bytes"),
        ]);
        let expected = map(&[
            ("content-type", "text/x"),
            ("x-amz-meta-a", "b"),
            ("accept-ranges", "bytes"),
            ("content-length", "5"),
            ("age", "0"),
        ]);
        assert_eq!(kept(&answer, 5), expected);
        let names: Vec<_> = checksums(&answer)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["x-amz-checksum-crc32", "x-amz-checksum-type"]);
    }

    #[test]
    fn kept_values_hold_on_to_no_read_buffer() {
        let buffer = Bytes::from(vec![b'a'; 100_000]);
        let mut answer = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(buffer.slice(..10)).unwrap();
        answer.insert("x-amz-meta-a", value);
        let kept = kept(&answer, 0);
        drop(answer);
        assert!(buffer.is_unique());
        assert_eq!(kept["x-amz-meta-a"], "aaaaaaaaaa");
    }

    #[test]
    fn directives_are_found_whole_and_in_any_case() {
        for (value, expected) in [
            ("no-store", true),
            ("max-age=5, No-Store", true),
            ("no-store-ever", false),
            ("", false),
        ] {
            assert_eq!(has_directive(value, "no-store"), expected, "{value}");
        }
    }
}
