//! Names of a mirror's entries in an index (docs/formats.md).
//!
//! All begin with `mirror/`, the space and a NUL. A bucket's name has no NUL, so one ends it; a
//! key is never empty, so an empty one stands for the bucket itself.

use std::ops::Range;

use bytes::Bytes;
use forebay_native::{
    hot::{HotKey, Space},
    index::Route,
};
use forebay_s3::{bucket::BucketName, key::ObjectKey};

use super::{Due, Subject};

const FIRST: &[u8] = b"mirror/";
const ENTRY: u8 = b'e';
const QUEUE: u8 = b'q';
const COUNTER: u8 = b'c';
const MEMBER: u8 = b'm';
const KEYS: u8 = b'k';
const LEASE: u8 = b'l';
const WORK: u8 = b'w';

/// Makes the names of one space.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    space: Space,
}

impl Names {
    pub(crate) fn new(space: Space) -> Self {
        Self { space }
    }

    /// A name of this kind. This module has `c`, `e`, `k`, `l`, `m`, `q` and `w`.
    pub(crate) fn join(&self, kind: u8, parts: &[&[u8]]) -> Bytes {
        let mut name = [FIRST, self.space.as_str().as_bytes(), &[0, kind]].concat();
        for part in parts {
            name.extend_from_slice(part);
        }
        name.into()
    }

    /// All names of this kind.
    pub(crate) fn all(&self, kind: u8) -> Range<Bytes> {
        self.join(kind, &[])..self.join(kind + 1, &[])
    }

    /// The entry of a subject.
    pub(super) fn entry(&self, subject: &Subject) -> Bytes {
        self.entry_at(subject.bucket(), subject.key_bytes())
    }

    /// The first name of entries of a bucket whose keys are not less than these bytes.
    pub(super) fn entry_at(&self, bucket: &BucketName, key: &[u8]) -> Bytes {
        self.join(ENTRY, &[bucket.as_str().as_bytes(), &[0], key])
    }

    /// The first name after all entries of a bucket.
    pub(super) fn entries_end(&self, bucket: &BucketName) -> Bytes {
        self.join(ENTRY, &[bucket.as_str().as_bytes(), &[1]])
    }

    /// All entries.
    pub(super) fn entries(&self) -> Range<Bytes> {
        self.all(ENTRY)
    }

    /// A place in the queue; times before 1970 count as then.
    pub(super) fn place(&self, at_ms: i64, subject: &Subject) -> Bytes {
        let at = u64::try_from(at_ms).unwrap_or(0).to_be_bytes();
        let bucket = subject.bucket().as_str().as_bytes();
        self.join(QUEUE, &[&at, bucket, &[0], subject.key_bytes()])
    }

    /// The queue.
    pub(super) fn places(&self) -> Range<Bytes> {
        self.all(QUEUE)
    }

    /// The counter of what a member is behind by.
    pub(super) fn counter(&self, member: &str) -> Bytes {
        self.join(COUNTER, &[member.as_bytes()])
    }

    /// The counter of entries by which any member is behind.
    pub(super) fn keys(&self) -> Bytes {
        self.join(KEYS, &[])
    }

    /// What is kept of a member.
    pub(super) fn member(&self, name: &str) -> Bytes {
        self.join(MEMBER, &[name.as_bytes()])
    }

    /// All that is kept of members.
    pub(super) fn members(&self) -> Range<Bytes> {
        self.all(MEMBER)
    }

    /// The lease of a subject.
    pub(crate) fn lease(&self, subject: &Subject) -> Route {
        let bucket = subject.bucket().as_str().as_bytes();
        Route::One(self.join(LEASE, &[bucket, &[0], subject.key_bytes()]))
    }

    /// The lease of a work that one gateway does for all.
    pub(crate) fn work_lease(&self, work: &str) -> Route {
        Route::One(self.join(WORK, &[work.as_bytes()]))
    }
}

/// Entries of a subject lie together.
pub(super) fn route(subject: &Subject) -> Route {
    let bucket = subject.bucket().as_str().as_bytes();
    Route::One([bucket, &[0], subject.key_bytes()].concat().into())
}

/// What is kept of members lies together.
pub(super) fn members_route() -> Route {
    Route::One(Bytes::from_static(b"members\0"))
}

/// All names of all spaces.
pub(super) fn all_spaces() -> Range<Bytes> {
    Bytes::from_static(FIRST)..Bytes::from_static(b"mirror0")
}

/// The space that a name is of, and the first name after that space.
pub(super) fn space_of(name: &[u8]) -> Option<(Space, Bytes)> {
    let rest = name.strip_prefix(FIRST)?;
    let end = nul_in(rest)?;
    let space = Space::parse(std::str::from_utf8(&rest[..end]).ok()?).ok()?;
    let after = [FIRST, &rest[..end], &[1]].concat();
    Some((space, after.into()))
}

fn nul_in(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == 0)
}

/// The rest of a name behind its kind.
fn rest(name: &[u8]) -> Option<&[u8]> {
    name.get(nul_in(name)? + 2..)
}

/// The subject of a name that [`Names::entry`] made.
pub(super) fn subject_of_entry(name: &[u8]) -> Option<Subject> {
    subject_of(rest(name)?)
}

/// What a name says that [`Names::place`] made.
pub(super) fn due_of_place(name: &[u8]) -> Option<Due> {
    let rest = rest(name)?;
    let at = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
    Some(Due {
        at_ms: i64::try_from(at).ok()?,
        subject: subject_of(&rest[8..])?,
    })
}

/// The member of a name that [`Names::member`] made.
pub(super) fn member_of(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(rest(name)?).ok()
}

fn subject_of(bytes: &[u8]) -> Option<Subject> {
    let end = nul_in(bytes)?;
    let bucket = BucketName::parse(std::str::from_utf8(&bytes[..end]).ok()?).ok()?;
    let key = std::str::from_utf8(&bytes[end + 1..]).ok()?;
    if key.is_empty() {
        return Some(Subject::Bucket(bucket));
    }
    let key = ObjectKey::parse(key).ok()?;
    Some(Subject::Object(HotKey { bucket, key }))
}
