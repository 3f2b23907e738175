//! Locks within the process: per key, and per bucket for the structure of its directories.
//!
//! Order: a key's lock first, then the structure's. Both are held on blocking threads only.

use std::hash::{BuildHasher, RandomState};

use forebay_s3::operation::ObjectId;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Keys share this many locks; a guess well above the blocking threads that could wait at once.
const KEY_LOCKS: usize = 1024;
/// Buckets share this many.
const BUCKET_LOCKS: usize = 64;

/// All locks of a store.
#[derive(Debug)]
pub(crate) struct Locks {
    hasher: RandomState,
    keys: Vec<Mutex<()>>,
    buckets: Vec<RwLock<()>>,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            keys: std::iter::repeat_with(Mutex::default)
                .take(KEY_LOCKS)
                .collect(),
            buckets: std::iter::repeat_with(RwLock::default)
                .take(BUCKET_LOCKS)
                .collect(),
        }
    }

    /// Held while an object is judged and replaced.
    pub(crate) fn key(&self, object: &ObjectId) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one((&object.bucket, &object.key));
        self.keys[index(hash, KEY_LOCKS)].lock()
    }

    /// Held while a file is renamed or removed: directories stay, and each directory that is there
    /// is on stable storage.
    pub(crate) fn structure_kept(&self, bucket: &str) -> RwLockReadGuard<'_, ()> {
        self.buckets[index(self.hasher.hash_one(bucket), BUCKET_LOCKS)].read()
    }

    /// Held while directories are made or removed.
    pub(crate) fn structure_changed(&self, bucket: &str) -> RwLockWriteGuard<'_, ()> {
        self.buckets[index(self.hasher.hash_one(bucket), BUCKET_LOCKS)].write()
    }
}

fn index(hash: u64, count: usize) -> usize {
    usize::try_from(hash % count as u64).expect("less than a usize")
}
