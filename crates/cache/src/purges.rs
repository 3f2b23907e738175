//! Counts the purges of operators, so that what was stored before one is not found after it.
//!
//! In memory a purge removes what it names. On disk it can't: pages there are found by their
//! version's id alone, and records by a hash of the name. So the counts are part of a version's id
//! and of a record on disk: after a purge the same bytes of the same object are another version,
//! and what was written before is found by nobody and makes room in its turn. That lasts as long as
//! the gateway runs; later the origin has to vouch for what an earlier run wrote in any case.
//!
//! A purge of a prefix counts for its bucket, which costs the other objects there their pages on
//! disk, once they have left memory. Counts of keys are few: when there are more, one purge of all
//! takes their place.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use parking_lot::Mutex;

/// Purged keys and buckets that are told apart: at 24 bytes each 1.5 MiB.
const NAMES_MAX: usize = 64 * 1024;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    hasher: RandomState,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    /// By hash: two names that share one are purged together.
    names: HashMap<u64, u32>,
}

/// Where the counts of an object stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Generation {
    pub all: u32,
    pub bucket: u32,
    pub key: u32,
}

impl Purges {
    /// Where the counts of an object stand.
    pub(crate) fn generation(&self, object: &ObjectId) -> Generation {
        let counts = self.counts.lock();
        if counts.names.is_empty() {
            return Generation {
                all: counts.all,
                ..Generation::default()
            };
        }
        let of = |hash| counts.names.get(&hash).copied().unwrap_or(0);
        Generation {
            all: counts.all,
            bucket: of(self.of_bucket(&object.bucket)),
            key: of(self.of_key(&object.bucket, &object.key)),
        }
    }

    /// An object was purged.
    pub(crate) fn key(&self, bucket: &BucketName, key: &ObjectKey) {
        self.count(self.of_key(bucket, key));
    }

    /// Objects of a bucket were purged.
    pub(crate) fn bucket(&self, bucket: &BucketName) {
        self.count(self.of_bucket(bucket));
    }

    /// Everything was purged.
    pub(crate) fn all(&self) {
        let mut counts = self.counts.lock();
        counts.all = counts.all.wrapping_add(1);
        counts.names.clear();
    }

    fn count(&self, hash: u64) {
        let mut counts = self.counts.lock();
        if counts.names.len() >= NAMES_MAX && !counts.names.contains_key(&hash) {
            counts.all = counts.all.wrapping_add(1);
            counts.names.clear();
            return;
        }
        let count = counts.names.entry(hash).or_default();
        *count = count.wrapping_add(1);
    }

    fn of_bucket(&self, bucket: &BucketName) -> u64 {
        self.hasher.hash_one(bucket.as_str())
    }

    fn of_key(&self, bucket: &BucketName, key: &ObjectKey) -> u64 {
        self.hasher.hash_one((bucket.as_str(), key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::contract::requests::{bucket_name, object, object_key};

    use super::*;

    #[test]
    fn each_purge_makes_another_generation_of_what_it_names() {
        let purges = Purges::default();
        let names = [("bucket", "a"), ("bucket", "b"), ("other", "a")];
        let now = || names.map(|(bucket, key)| purges.generation(&object(bucket, key)));
        let first = now();
        purges.key(&bucket_name("bucket"), &object_key("a"));
        let second = now();
        assert_eq!(changed(first, second), [true, false, false]);
        purges.bucket(&bucket_name("bucket"));
        let third = now();
        assert_eq!(changed(second, third), [true, true, false]);
        purges.all();
        assert_eq!(changed(third, now()), [true; 3]);
    }

    #[test]
    fn too_many_purges_are_one_of_all() {
        let purges = Purges::default();
        let kept = object("bucket", "kept");
        let before = purges.generation(&kept);
        for n in 0..=NAMES_MAX {
            purges.key(&bucket_name("bucket"), &object_key(&n.to_string()));
        }
        assert_ne!(purges.generation(&kept), before);
        assert!(purges.counts.lock().names.len() <= NAMES_MAX);
    }

    fn changed(before: [Generation; 3], after: [Generation; 3]) -> [bool; 3] {
        std::array::from_fn(|at| before[at] != after[at])
    }
}
