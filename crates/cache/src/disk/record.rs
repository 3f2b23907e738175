//! How a version record lies on disk.
//!
//! As the head of the origin's answer, so that it is read by the rules for such answers
//! (`version::learn`), with what the layer knew of it, and the page of an object that has only one.
//! The store of pages has a checksum over all of it. Bytes: docs/formats.md.
//!
//! What a record says of time and of writes counts within the run of the gateway that wrote it: its
//! clock and its counters end with it. A record of an earlier run is one that the origin has to
//! vouch for before it answers anything, whatever the mode.

use bytes::{BufMut, Bytes, BytesMut};
use forebay_s3::operation::ObjectId;
use forebay_store::{Body, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{
    epochs::Stamp,
    plan::Method,
    policy::Policies,
    purges::Generation,
    version::{self, Asked, Checksums, Version},
};

/// Version of the format.
const FORMAT: u32 = 1;
/// Bytes before the texts.
const FIXED_BYTES: usize = 4 + 8 + 8 + 12 + 8 + 8 + 8 + 4 + 4 + 4 + 4;
/// The record knows the object's checksums.
const CHECKSUMS_KNOWN: u32 = 1;
/// The object's only page follows.
const HAS_PAGE: u32 = 2;

/// One run of a gateway: its clock, its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunId(pub u64);

/// What is in the layer for a record that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    pub object: &'a ObjectId,
    pub run: RunId,
    /// Where the write counters stood before it was read.
    pub stamp: Stamp,
    /// Where the counts of purges stand.
    pub generation: Generation,
    pub policies: &'a Policies,
}

/// Writes a record, with its page if it has one.
pub(super) fn encode(version: &Version, run: RunId) -> Bytes {
    let (bucket, key) = (version.object.bucket.as_str(), version.object.key.as_str());
    let mut head = Vec::new();
    for (name, value) in &version.headers {
        put_line(&mut head, name, value);
    }
    let mut flags = 0;
    if let Checksums::Known(checksums) = &version.checksums {
        flags |= CHECKSUMS_KNOWN;
        for (name, value) in checksums {
            put_line(&mut head, name, value);
        }
    }
    if version.page.is_some() {
        flags |= HAS_PAGE;
    }
    let page = version.page.clone().unwrap_or_default();
    let moments = version.noted();
    let length = FIXED_BYTES + bucket.len() + key.len() + head.len() + page.len();
    let mut bytes = BytesMut::with_capacity(length);
    bytes.put_u32_le(FORMAT);
    bytes.put_u64_le(run.0);
    bytes.put_u64_le(version.stamp.bucket_epoch());
    let Generation {
        all,
        bucket: of_bucket,
        key: of_key,
    } = version.generation;
    for count in [all, of_bucket, of_key] {
        bytes.put_u32_le(count);
    }
    bytes.put_i64_le(moments.validated_ms);
    bytes.put_i64_le(moments.used_ms);
    bytes.put_i64_le(moments.doubt_until_ms);
    bytes.put_u32_le(flags);
    for text in [bucket.len(), key.len(), head.len()] {
        bytes.put_u32_le(u32::try_from(text).expect("names and heads are far below 4 GiB"));
    }
    bytes.put_slice(bucket.as_bytes());
    bytes.put_slice(key.as_bytes());
    bytes.put_slice(&head);
    bytes.put_slice(&page);
    bytes.freeze()
}

fn put_line(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.push(b':');
    head.extend_from_slice(value.as_bytes());
    head.push(b'\n');
}

/// Reads a record; `None` when it is of another format, another object, or of a bucket that was
/// written as a whole since.
pub(super) fn decode(mut bytes: Bytes, reading: Reading<'_>) -> Option<Version> {
    let mut fields = Fields(&mut bytes);
    if fields.u32()? != FORMAT {
        return None;
    }
    let run = RunId(fields.u64()?);
    let bucket_epoch = fields.u64()?;
    let generation = Generation {
        all: fields.u32()?,
        bucket: fields.u32()?,
        key: fields.u32()?,
    };
    let noted = version::Noted {
        validated_ms: fields.i64()?,
        used_ms: fields.i64()?,
        doubt_until_ms: fields.i64()?,
    };
    let flags = fields.u32()?;
    let lengths = [fields.u32()?, fields.u32()?, fields.u32()?];
    let [bucket, key, head] = lengths.map(|length| fields.text(length));
    let object = reading.object;
    let is_it = bucket? == object.bucket.as_str() && key? == object.key.as_str();
    let is_of_this_run = run == reading.run;
    let is_outdated = is_of_this_run && bucket_epoch != reading.stamp.bucket_epoch();
    // Counts of an earlier run are those of another beginning, but a purge counts here as well.
    let is_purged = if is_of_this_run {
        generation != reading.generation
    } else {
        reading.generation != Generation::default()
    };
    if !is_it || is_outdated || is_purged {
        return None;
    }
    let asked = Asked {
        stamp: reading.stamp,
        generation,
        at_ms: noted.validated_ms,
        doubt_until_ms: noted.doubt_until_ms,
    };
    let mut answer = Response::new(StatusCode::OK);
    answer.headers = headers(&head?)?;
    answer.body = Body::empty();
    let learned = version::learn(Method::Head, object, asked, &answer, reading.policies)?;
    let mut version = learned.version;
    if flags & CHECKSUMS_KNOWN == 0 {
        version.checksums = Checksums::Unknown;
    }
    version.note(if is_of_this_run {
        noted
    } else {
        version::Noted::NEVER_VALIDATED
    });
    let has_page = flags & HAS_PAGE != 0;
    if has_page && bytes.len() as u64 != version.size_bytes {
        return None;
    }
    // Rules may have changed between two runs: then it is not one page any more.
    let is_one_page = version.size_bytes <= version.policy.page_bytes.get();
    Some(if has_page && is_one_page {
        version.with_page(bytes)
    } else {
        version
    })
}

fn headers(head: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(&line[colon + 1..]).ok()?;
        headers.append(name, value);
    }
    Some(headers)
}

/// Takes fields off the front.
struct Fields<'a>(&'a mut Bytes);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.text(u32::try_from(N).ok()?)?;
        bytes[..].try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn text(&mut self, length: u32) -> Option<Bytes> {
        let length = usize::try_from(length).ok()?;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::contract::requests::object;
    use http::header;

    use super::*;
    use crate::{
        CacheSettings,
        freshness::{Against, Moment},
        index::tests::stamp_of,
    };

    fn version(headers: &[(&'static str, &'static str)], page: Option<&'static [u8]>) -> Version {
        let object = object("bucket", "a key");
        let mut answer = Response::new(StatusCode::OK);
        for (name, value) in headers {
            answer
                .headers
                .append(*name, HeaderValue::from_static(value));
        }
        let asked = Asked {
            stamp: stamp_of(&object),
            generation: Generation::default(),
            at_ms: 1000,
            doubt_until_ms: 7,
        };
        let policies = Policies::new(&CacheSettings::default());
        let learned = version::learn(Method::Head, &object, asked, &answer, &policies);
        let version = learned.unwrap().version;
        match page {
            Some(page) => version.with_page(Bytes::from_static(page)),
            None => version,
        }
    }

    const HEADERS: [(&str, &str); 7] = [
        ("etag", "\"abc\""),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("content-length", "5"),
        ("content-type", "text/plain"),
        ("x-amz-meta-odd", " a: b "),
        ("x-amz-version-id", "v1"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
    ];

    fn read(bytes: Bytes, run: u64) -> Option<Version> {
        let object = object("bucket", "a key");
        let policies = Policies::new(&CacheSettings::default());
        let reading = Reading {
            object: &object,
            run: RunId(run),
            stamp: stamp_of(&object),
            generation: Generation::default(),
            policies: &policies,
        };
        decode(bytes, reading)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let written = version(&HEADERS, Some(b"12345"));
        written.used(9000);
        let read = read(encode(&written, RunId(3)), 3).unwrap();
        assert_eq!(read.vid, written.vid);
        assert_eq!((&read.etag, read.size_bytes), (&written.etag, 5));
        assert_eq!(read.headers, written.headers);
        assert_eq!(read.headers[header::CONTENT_TYPE], "text/plain");
        assert_eq!(read.page.as_deref(), Some(&b"12345"[..]));
        let Checksums::Known(checksums) = &read.checksums else {
            panic!("they were known");
        };
        assert_eq!(checksums[0].1, "AAAAAA==");
        assert_eq!(read.noted(), written.noted());
        assert_eq!(read.noted().used_ms, 9000);
    }

    /// As docs/formats.md has it; of run 3.
    const V1: &[u8] = include_bytes!("../../tests/fixtures/v1/record");

    #[test]
    fn the_record_of_format_1_is_read_and_written_alike() {
        let found = read(Bytes::from_static(V1), 3).unwrap();
        assert_eq!(found.headers[header::CONTENT_TYPE], "text/plain");
        assert_eq!(found.page.as_deref(), Some(&b"12345"[..]));
        assert_eq!(found.noted().used_ms, 9000);
        let written = version(&HEADERS, Some(b"12345"));
        written.used(9000);
        assert_eq!(encode(&written, RunId(3)), V1);
    }

    #[test]
    fn a_record_of_another_run_has_to_be_vouched_for() {
        let written = version(&HEADERS, None);
        let read = read(encode(&written, RunId(3)), 4).unwrap();
        let moment = Moment {
            now_ms: 2000,
            heard_since_ms: i64::MIN,
        };
        assert_eq!(read.ages(moment).against, Against::Restored);
    }

    #[test]
    fn what_is_no_record_of_this_object_is_none() {
        let bytes = encode(&version(&HEADERS, Some(b"12345")), RunId(3));
        for length in 0..bytes.len() {
            assert!(read(bytes.slice(..length), 3).is_none(), "{length} bytes");
        }
        for at in [0, 1, 72, 78] {
            let mut other = bytes.to_vec();
            other[at] ^= 0x20;
            assert!(read(other.into(), 3).is_none(), "another byte at {at}");
        }
        let outdated = {
            let mut other = bytes.to_vec();
            other[12] ^= 1;
            Bytes::from(other)
        };
        assert!(
            read(outdated.clone(), 3).is_none(),
            "the bucket was written"
        );
        assert!(read(outdated, 4).is_some(), "counters of another run");
    }
}
