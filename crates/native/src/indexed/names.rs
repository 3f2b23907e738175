//! Names of entries, and the route of each; the layout is a format (docs/formats.md).
//!
//! Names of another shape in the same index are somebody else's: a tier's begin with `hot/`. An
//! object's name orders as its key does within the bucket, which listings need. Older versions of
//! an object will have names of a kind of their own, so that what is here stays the current ones.

use std::ops::Range;

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, operation::ObjectId};

use crate::{index::Route, listing::Bound};

/// A bucket: what is known of it.
const BUCKETS: &[u8] = b"b/";
/// What every write into a bucket expects, in every place.
const MARKS: &[u8] = b"m/";
/// An object.
const OBJECTS: &[u8] = b"o/";
/// Beside an object whose bytes are blobs.
const LARGE: &[u8] = b"l/";
/// A multipart upload.
const UPLOADS: &[u8] = b"u/";
/// A part of an upload, or of an object that was one.
const PARTS: &[u8] = b"p/";
/// Longest id of an upload; ours have 48.
const UPLOAD_ID_BYTES_MAX: usize = 64;

/// Where an object is.
#[derive(Debug)]
pub(super) struct Place {
    /// All that belongs to the object lies here.
    pub(super) route: Route,
    /// Its entry.
    pub(super) name: Bytes,
}

impl Place {
    pub(super) fn of(object: &ObjectId) -> Self {
        Self::at(&object.bucket, object.key.as_str())
    }

    pub(super) fn at(bucket: &BucketName, key: &str) -> Self {
        let name = joined(OBJECTS, &[bucket.as_str().as_bytes(), &[0], key.as_bytes()]);
        Self {
            route: Route::One(name.slice(OBJECTS.len()..)),
            name,
        }
    }

    /// The entry that is there when its bytes are blobs.
    pub(super) fn large(&self) -> Bytes {
        joined(LARGE, &[&self.name[OBJECTS.len()..]])
    }
}

pub(super) fn bucket(name: &BucketName) -> Bytes {
    joined(BUCKETS, &[name.as_str().as_bytes()])
}

pub(super) fn bucket_route(name: &BucketName) -> Route {
    Route::One(Bytes::copy_from_slice(name.as_str().as_bytes()))
}

pub(super) fn buckets() -> Range<Bytes> {
    all(BUCKETS)
}

pub(super) fn mark(bucket: &BucketName, mark: &str) -> Bytes {
    joined(MARKS, &[bucket.as_str().as_bytes(), &[0], mark.as_bytes()])
}

/// All objects of a bucket.
pub(super) fn objects(bucket: &BucketName) -> Range<Bytes> {
    of_bucket(OBJECTS, bucket)
}

/// Objects of a bucket from `from` whose keys begin with `prefix`.
pub(super) fn objects_from(bucket: &BucketName, from: &Bound, prefix: &str) -> Range<Bytes> {
    let at = |bound: &Bound| {
        let bucket = bucket.as_str().as_bytes();
        joined(OBJECTS, &[bucket, &[0], bound.as_bytes()])
    };
    at(from)..at(&Bound::past_prefix(prefix))
}

/// The key in the name of an object of this bucket.
pub(super) fn key_of(bucket: &BucketName, name: &[u8]) -> Option<String> {
    let key = name.get(OBJECTS.len() + bucket.as_str().len() + 1..)?;
    String::from_utf8(key.to_vec()).ok()
}

pub(super) fn upload(bucket: &BucketName, id: &str) -> Bytes {
    joined(UPLOADS, &[bucket.as_str().as_bytes(), &[0], id.as_bytes()])
}

/// Whether an upload may have this id, which a client named.
pub(super) fn is_upload_id(id: &str) -> bool {
    (1..=UPLOAD_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

pub(super) fn uploads(bucket: &BucketName) -> Range<Bytes> {
    of_bucket(UPLOADS, bucket)
}

pub(super) fn part(bucket: &BucketName, id: &str, number: u16) -> Bytes {
    let bucket = bucket.as_str().as_bytes();
    joined(
        PARTS,
        &[bucket, &[0], id.as_bytes(), &[0], &number.to_be_bytes()],
    )
}

/// Parts of one upload, by number.
pub(super) fn parts(bucket: &BucketName, id: &str) -> Range<Bytes> {
    let bucket = bucket.as_str().as_bytes();
    let bound = |end: u8| joined(PARTS, &[bucket, &[0], id.as_bytes(), &[end]]);
    bound(0)..bound(1)
}

/// All entries beside objects whose bytes are blobs.
pub(super) fn all_large() -> Range<Bytes> {
    all(LARGE)
}

/// All parts.
pub(super) fn all_parts() -> Range<Bytes> {
    all(PARTS)
}

/// The first name after this one.
pub(super) fn after(name: &[u8]) -> Bytes {
    joined(name, &[&[0]])
}

fn of_bucket(kind: &[u8], bucket: &BucketName) -> Range<Bytes> {
    let bound = |end: u8| joined(kind, &[bucket.as_str().as_bytes(), &[end]]);
    bound(0)..bound(1)
}

fn all(kind: &'static [u8]) -> Range<Bytes> {
    // `0` is the byte after `/`.
    Bytes::from_static(kind)..joined(&kind[..kind.len() - 1], &[b"0"])
}

fn joined(kind: &[u8], parts: &[&[u8]]) -> Bytes {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut name = Vec::with_capacity(kind.len() + length);
    name.extend_from_slice(kind);
    for part in parts {
        name.extend_from_slice(part);
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_order_as_their_keys_and_stay_in_their_bucket() {
        let bucket = |name| BucketName::parse(name).unwrap();
        let (one, longer) = (bucket("abc"), bucket("abc-d"));
        let mut last = objects(&one).start;
        for key in ["\0", "\0\0", "a", "a\0", "a/", "a0", "b", "\u{10ffff}"] {
            let place = Place::at(&one, key);
            assert!(place.name > last, "{key:?}");
            assert!(objects(&one).contains(&place.name), "{key:?}");
            assert!(!objects(&longer).contains(&place.name), "{key:?}");
            assert_eq!(key_of(&one, &place.name).as_deref(), Some(key));
            let all = objects_from(&one, &Bound::default(), "");
            assert!(all.contains(&place.name), "{key:?}");
            last = place.name;
        }
        assert!(!objects(&one).contains(&Place::at(&longer, "a").name));
        assert!(parts(&one, "i").contains(&part(&one, "i", 10_000)));
        assert!(!parts(&one, "i").contains(&part(&one, "ij", 1)));
        assert!(part(&one, "i", 256) > part(&one, "i", 255));
    }

    #[test]
    fn the_longest_names_fit_an_index() {
        let bucket = BucketName::parse(&"b".repeat(63)).unwrap();
        let place = Place::at(&bucket, &"k".repeat(1024));
        let id = "i".repeat(UPLOAD_ID_BYTES_MAX);
        for name in [&place.name, &place.large(), &part(&bucket, &id, 1)] {
            assert!(name.len() <= crate::index::NAME_BYTES_MAX);
        }
    }
}
