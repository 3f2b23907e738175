//! Tells whether anything was written since a moment.
//!
//! A fill reads the origin while writes pass by. What it read before a write must not be stored
//! after it. So each write moves a counter on, a fill notes the counters when it begins (a
//! [`Stamp`]), and its records are stored only while they stand where they stood. Keys share
//! counters by hash: a collision costs one fill's record, never a wrong answer.
//!
//! Stored versions are also judged by the counter of their bucket, which lets one addition
//! invalidate a bucket of any size. Not by that of their key: there a collision would throw out
//! what is good, again and again; the writer removes them itself.

use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

/// Counters of keys. A fill is thrown away for nothing if another key of its counter is written
/// meanwhile: at 1000 writes a second and fills of 20 ms, one in 200.
const KEY_COUNTERS: usize = 4096;
/// Counters of buckets: an operation on a bucket invalidates one bucket in so many besides it.
const BUCKET_COUNTERS: usize = 1024;

/// The counters.
#[derive(Debug)]
pub(crate) struct Epochs {
    keys: Box<[AtomicU64]>,
    buckets: Box<[AtomicU64]>,
    /// Moved on by what may have changed anything.
    all: AtomicU64,
}

/// What the counters of an object stood at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    hashes: Hashes,
    key: u64,
    bucket: u64,
}

impl Stamp {
    /// Where the counters of the object's bucket stood.
    pub(crate) fn bucket_epoch(&self) -> u64 {
        self.bucket
    }

    /// Hash of the object's bucket and key together.
    pub(crate) fn key_hash(&self) -> u64 {
        self.hashes.key
    }
}

/// Hashes of an object's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// Of bucket and key together.
    pub key: u64,
    /// Of the bucket.
    pub bucket: u64,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        let counters = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            keys: counters(KEY_COUNTERS),
            buckets: counters(BUCKET_COUNTERS),
            all: 0.into(),
        }
    }

    /// Where the counters of an object stand.
    pub(crate) fn stamp(&self, hashes: Hashes) -> Stamp {
        let key = self.key(hashes).load(Ordering::Acquire);
        Stamp {
            hashes,
            key,
            bucket: self.bucket_epoch(hashes),
        }
    }

    /// Whether neither the key nor its bucket was written since.
    pub(crate) fn is_current(&self, stamp: &Stamp) -> bool {
        *stamp == self.stamp(stamp.hashes)
    }

    /// Whether the bucket was not written as a whole since.
    pub(crate) fn is_bucket_current(&self, stamp: &Stamp) -> bool {
        stamp.bucket == self.bucket_epoch(stamp.hashes)
    }

    /// Notes a write of an object; its records have to be removed after this.
    pub(crate) fn key_written(&self, hashes: Hashes) {
        self.key(hashes).fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a write that may concern any key: no fill under way may be stored. What is stored
    /// already is not judged by these counters.
    pub(crate) fn every_key_written(&self) {
        for counter in &self.keys {
            counter.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes a write that may concern all of a bucket.
    pub(crate) fn bucket_written(&self, bucket_hash: u64) {
        self.bucket(bucket_hash).fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a write that may concern anything.
    pub(crate) fn all_written(&self) {
        self.all.fetch_add(1, Ordering::AcqRel);
    }

    fn key(&self, hashes: Hashes) -> &AtomicU64 {
        &self.keys[slot(hashes.key, KEY_COUNTERS)]
    }

    fn bucket(&self, hash: u64) -> &AtomicU64 {
        &self.buckets[slot(hash, BUCKET_COUNTERS)]
    }

    /// The sum moves on whenever one of the two does.
    fn bucket_epoch(&self, hashes: Hashes) -> u64 {
        let bucket = self.bucket(hashes.bucket).load(Ordering::Acquire);
        bucket.wrapping_add(self.all.load(Ordering::Acquire))
    }
}

/// Some bits of a hash as an index below `count`, a power of two.
fn slot(hash: u64, count: usize) -> usize {
    (hash >> 40) as usize & (count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_makes_the_stamps_it_concerns_old() {
        let epochs = Epochs::new();
        let names = |key: u64, bucket: u64| Hashes {
            key: key << 40,
            bucket: bucket << 40,
        };
        let [here, same_bucket, elsewhere] = [names(1, 1), names(2, 1), names(3, 2)];
        let current = |stamps: &[Stamp; 3]| stamps.map(|stamp| epochs.is_current(&stamp));
        let take = || [here, same_bucket, elsewhere].map(|hashes| epochs.stamp(hashes));
        let stamps = take();
        assert_eq!(current(&stamps), [true; 3]);
        epochs.key_written(here);
        assert_eq!(current(&stamps), [false, true, true]);
        assert!(epochs.is_bucket_current(&stamps[0]));
        let stamps = take();
        epochs.every_key_written();
        assert_eq!(current(&stamps), [false; 3]);
        assert!(epochs.is_bucket_current(&stamps[0]));
        let stamps = take();
        epochs.bucket_written(here.bucket);
        assert_eq!(current(&stamps), [false, false, true]);
        assert!(!epochs.is_bucket_current(&stamps[1]));
        let stamps = take();
        epochs.all_written();
        assert_eq!(current(&stamps), [false; 3]);
    }
}
