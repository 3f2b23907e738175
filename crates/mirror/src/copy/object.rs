//! What a HEAD tells of an object, and what of it a copy has to have: pure.

use forebay_s3::{
    checksum::{Algorithm, Checksum, Kind, ObjectChecksum},
    time,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::ask::text_of;

/// Headers of an object that a copy has as well. How a member encrypts and what it locks are its
/// own affair, so those headers are not among them.
const CARRIED: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];
const USER_PREFIX: &str = "x-amz-meta-";
const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// An object, as a HEAD of it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    /// Its tag, quotes included; empty where the member tells none.
    pub(crate) etag: String,
    /// Its size.
    pub(crate) size_bytes: u64,
    /// When it was written, Unix seconds; `None` where the member does not tell.
    pub(crate) modified_s: Option<i64>,
    /// System headers and user metadata that a copy has as well.
    pub(crate) carried: HeaderMap,
    /// Its checksum, if the member keeps one.
    pub(crate) checksum: Option<ObjectChecksum>,
    /// How the checksum came to be.
    pub(crate) checksum_kind: Option<Kind>,
    /// Number of its tags.
    pub(crate) tag_count: u32,
}

impl Described {
    /// Reads the headers of an answer.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let number = |name| text_of(headers, name).and_then(|text| text.trim().parse().ok());
        let mut carried = HeaderMap::new();
        for (name, value) in headers {
            let is_carried = CARRIED.contains(&name.as_str());
            if is_carried || name.as_str().starts_with(USER_PREFIX) {
                carried.append(name.clone(), value.clone());
            }
        }
        let kind = text_of(headers, "x-amz-checksum-type").and_then(Kind::from_name);
        let checksum = checksum_in(headers);
        Some(Self {
            etag: text_of(headers, "etag").unwrap_or_default().to_owned(),
            size_bytes: number("content-length")?,
            modified_s: text_of(headers, "last-modified").and_then(time::parse_http_date),
            carried,
            checksum,
            checksum_kind: kind.or_else(|| checksum.map(|sum| sum.kind())),
            tag_count: text_of(headers, "x-amz-tagging-count")
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
        })
    }

    /// Whether the bytes are certainly those of another: same tag, or same checksum, and size.
    pub(crate) fn has_bytes_of(&self, other: &Self) -> bool {
        let same_etag = !self.etag.is_empty() && self.etag == other.etag;
        let same_sum = self.checksum.is_some() && self.checksum == other.checksum;
        self.size_bytes == other.size_bytes && (same_etag || same_sum)
    }

    /// Whether what is kept beside the bytes is the same, as far as a HEAD tells: of tags, their
    /// number.
    pub(crate) fn is_described_like(&self, other: &Self) -> bool {
        same_headers(&self.carried, &other.carried) && self.tag_count == other.tag_count
    }

    /// Whether all that a HEAD tells and a copy has is the same; tags do not come with it.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && self.etag == other.etag
            && !self.etag.is_empty()
            && self.is_described_like(other)
    }

    /// Number of the parts it was uploaded in, if its tag says so.
    pub(crate) fn part_count(&self) -> Option<u16> {
        let (digest, count) = self.etag.trim_matches('"').split_once('-')?;
        let is_digest = digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        let count = count.parse().ok().filter(|count| *count > 0)?;
        is_digest.then_some(count)
    }

    /// The checksum of its bytes as a whole.
    pub(crate) fn whole_checksum(&self) -> Option<Checksum> {
        let sum = self.checksum.filter(|sum| sum.part_count.is_none())?;
        (self.checksum_kind == Some(Kind::FullObject)).then_some(sum.checksum)
    }
}

/// The one checksum that an answer carries.
pub(crate) fn checksum_in(headers: &HeaderMap) -> Option<ObjectChecksum> {
    headers.iter().find_map(|(name, value)| {
        if !name.as_str().starts_with(CHECKSUM_PREFIX) {
            return None;
        }
        let algorithm = Algorithm::from_header(name.as_str())?;
        ObjectChecksum::parse(algorithm, value.to_str().ok()?)
    })
}

/// Puts a checksum among the headers of a write.
pub(crate) fn set_checksum(headers: &mut HeaderMap, sum: &Checksum) {
    let name = HeaderName::from_static(sum.algorithm().header());
    if let Ok(value) = HeaderValue::try_from(sum.to_base64()) {
        headers.insert(name, value);
    }
}

/// Whether two sets of headers say the same. A class that is the usual one may be named or not.
fn same_headers(a: &HeaderMap, b: &HeaderMap) -> bool {
    let told = |headers: &HeaderMap| {
        let mut told: Vec<(String, Vec<u8>)> = headers
            .iter()
            .filter(|(name, value)| {
                *name != "x-amz-storage-class" || value.as_bytes() != b"STANDARD"
            })
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect();
        told.sort();
        told
    };
    told(a) == told(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.map(pair).collect()
    }

    #[test]
    fn the_tag_tells_how_many_parts_there_were() {
        for (etag, count) in [
            ("\"900150983cd24fb0d6963f7d28e17f72-12\"", Some(12)),
            ("\"900150983cd24fb0d6963f7d28e17f72\"", None),
            ("\"900150983cd24fb0d6963f7d28e17f72-0\"", None),
            ("\"abc-2\"", None),
            ("", None),
        ] {
            let all = headers(&[("content-length", "1"), ("etag", etag)]);
            assert_eq!(Described::read(&all).unwrap().part_count(), count, "{etag}");
        }
    }

    #[test]
    fn objects_are_alike_in_all_that_a_copy_has_and_in_nothing_else() {
        let base: &[_] = &[
            ("content-length", "3"),
            ("etag", "\"a\""),
            ("x-amz-meta-k", "v"),
        ];
        let described = |more: &[(&'static str, &'static str)]| {
            Described::read(&headers(&[base, more].concat())).unwrap()
        };
        let plain = described(&[]);
        for same in [
            ("date", "x"),
            ("last-modified", "Thu, 01 Jan 1970 00:00:01 GMT"),
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-storage-class", "STANDARD"),
        ] {
            assert!(described(&[same]).is_like(&plain), "{same:?}");
        }
        for other in [
            ("content-type", "text/plain"),
            ("x-amz-meta-l", ""),
            ("x-amz-tagging-count", "1"),
            ("x-amz-storage-class", "GLACIER_IR"),
        ] {
            let other = described(&[other]);
            assert!(
                !other.is_like(&plain) && other.has_bytes_of(&plain),
                "{other:?}"
            );
        }
    }
}
