//! Names of a tier's entries in an index, and the values beside them (docs/formats.md).
//!
//! All begin with `hot/`, the space and a NUL. A bucket's name has no NUL, so one ends it.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey};
use forebay_store::Error;
use serde::{Deserialize, Serialize};

use super::{HotKey, HotRecord, Queue, Queued};
use crate::{blobs::BlobId, index::Route};

const FIRST: &[u8] = b"hot/";
/// Most bytes of a space's name, so that its longest name fits an index.
const SPACE_BYTES_MAX: usize = 128;

/// Where one tier's records are, apart from those of other tiers in the same engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Space(Arc<str>);

/// The text can't name a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a space has 1 to 128 letters, digits, `-`, `_` and `.`")]
pub struct InvalidSpace;

impl Space {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidSpace`].
    pub fn parse(name: &str) -> Result<Self, InvalidSpace> {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if (1..=SPACE_BYTES_MAX).contains(&name.len()) && name.bytes().all(known) {
            Ok(Self(name.into()))
        } else {
            Err(InvalidSpace)
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn join(&self, kind: u8, parts: &[&[u8]]) -> Bytes {
        let mut name = [FIRST, self.0.as_bytes(), &[0, kind]].concat();
        for part in parts {
            name.extend_from_slice(part);
        }
        name.into()
    }

    /// Where the record of a key is.
    pub(super) fn record(&self, key: &HotKey) -> Bytes {
        self.record_at(&key.bucket, key.key.as_str().as_bytes())
    }

    /// The first name of records whose keys are not less than these bytes.
    pub(super) fn record_at(&self, bucket: &BucketName, key: &[u8]) -> Bytes {
        self.join(b'o', &[bucket.as_str().as_bytes(), &[0], key])
    }

    /// The first name after all records of a bucket.
    pub(super) fn records_end(&self, bucket: &BucketName) -> Bytes {
        self.join(b'o', &[bucket.as_str().as_bytes(), &[1]])
    }

    /// A place in a queue; times before 1970 count as then.
    pub(super) fn place(&self, queue: Queue, at_ms: i64, key: &HotKey) -> Bytes {
        let at = u64::try_from(at_ms).unwrap_or(0).to_be_bytes();
        let (bucket, key) = (key.bucket.as_str().as_bytes(), key.key.as_str().as_bytes());
        self.join(b'q', &[&[queue_byte(queue)], &at, bucket, &[0], key])
    }

    /// The names of a queue.
    pub(super) fn places(&self, queue: Queue) -> Range<Bytes> {
        let byte = queue_byte(queue);
        self.join(b'q', &[&[byte]])..self.join(b'q', &[&[byte + 1]])
    }

    /// A counter.
    pub(super) fn counter(&self, name: &str) -> Bytes {
        self.join(b'c', &[name.as_bytes()])
    }

    /// Where a lease is.
    pub(super) fn lease(&self, name: &str) -> Route {
        Route::One(self.join(b'l', &[name.as_bytes()]))
    }

    /// Says whose the space is.
    pub(super) fn home(&self) -> Bytes {
        self.join(b'h', &[])
    }

    /// Where [`Space::home`] is.
    pub(super) fn home_route(&self) -> Route {
        Route::One(self.home())
    }

    /// The space that an entry is of, and the first name after that space.
    pub(super) fn of_name(name: &[u8]) -> Option<(Self, Bytes)> {
        let rest = name.strip_prefix(FIRST)?;
        let end = nul_in(rest)?;
        let space = Self::parse(std::str::from_utf8(&rest[..end]).ok()?).ok()?;
        let after = [FIRST, &rest[..end], &[1]].concat();
        Some((space, after.into()))
    }

    /// All names of all spaces.
    pub(super) fn all() -> Range<Bytes> {
        Bytes::from_static(FIRST)..Bytes::from_static(b"hot0")
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Entries of a key lie together.
pub(super) fn route(key: &HotKey) -> Route {
    let (bucket, key) = (key.bucket.as_str().as_bytes(), key.key.as_str().as_bytes());
    Route::One([bucket, &[0], key].concat().into())
}

fn queue_byte(queue: Queue) -> u8 {
    match queue {
        Queue::Prompt => b'0',
        Queue::Aging => b'1',
        Queue::Settling => b'2',
        Queue::Conflicts => b'3',
    }
}

fn nul_in(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == 0)
}

/// The key of a name that [`Space::record`] made.
pub(super) fn key_of_record(name: &[u8]) -> Option<ObjectKey> {
    let kind = nul_in(name)? + 1;
    let bucket_end = kind + nul_in(&name[kind..])?;
    text_key(&name[bucket_end + 1..])
}

/// What a name says that [`Space::place`] made.
pub(super) fn queued_of_place(name: &[u8]) -> Option<Queued> {
    // The kind and the queue are one byte each.
    let time = nul_in(name)? + 3;
    let at = u64::from_be_bytes(name.get(time..time + 8)?.try_into().ok()?);
    let bucket = name.get(time + 8..)?;
    let end = nul_in(bucket)?;
    Some(Queued {
        at_ms: i64::try_from(at).ok()?,
        key: HotKey {
            bucket: BucketName::parse(std::str::from_utf8(&bucket[..end]).ok()?).ok()?,
            key: text_key(&bucket[end + 1..])?,
        },
    })
}

fn text_key(bytes: &[u8]) -> Option<ObjectKey> {
    ObjectKey::parse(std::str::from_utf8(bytes).ok()?).ok()
}

/// The value of a record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Value {
    pub(super) record: HotRecord,
    /// Where its bytes are when they do not lie beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blob: Option<String>,
}

/// The names of all entries of tiers.
pub(crate) fn all() -> Range<Bytes> {
    Space::all()
}

/// The blob that an entry of a tier names.
///
/// # Errors
/// `Internal` when the entry can't be read.
pub(crate) fn blob_named_by(name: &[u8], value: &[u8]) -> Result<Option<BlobId>, Error> {
    let rest = name.strip_prefix(FIRST).unwrap_or_default();
    let kind = nul_in(rest).and_then(|end| rest.get(end + 1));
    if kind != Some(&b'o') {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(value)
        .map_err(|error| Error::internal("read a hot record", error))?;
    Ok(value.blob.map(BlobId))
}
