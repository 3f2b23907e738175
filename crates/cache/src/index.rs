//! The index: version records and pages by name, in shards, within one capacity.
//!
//! Looked up by every read, filled by fills, emptied by writes. A lookup locks one shard for a
//! hash lookup and a few counters. What is removed is dropped after the lock is released, since
//! giving a page back to the system takes longer than all the rest.
//!
//! Invariant: `used_bytes` is the sum of all weights (`audit`), and above the capacity only while
//! an insertion makes room.
//! Not here: which entry makes room (`shard`), whether a record is fresh (`freshness`).

use std::{
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use forebay_telemetry::cache::CacheMetrics;
use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use crate::{
    epochs::{Epochs, Hashes, Stamp},
    settings::PageBytes,
    version::{Version, Vid},
};

mod ghosts;
mod shard;

use shard::{Entry, Shard};

/// Shards, a power of two: with so many, two cores rarely ask for the same one.
const SHARD_COUNT: usize = 64;
/// Pages of a forgotten version that are looked for and removed at once; those beyond are found
/// by nobody any more and make room when their turn comes.
const FORGOTTEN_PAGES_MAX: u64 = 4096;

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    epochs: Epochs,
    used_bytes: AtomicU64,
    capacity_bytes: u64,
    page_bytes: PageBytes,
    metrics: CacheMetrics,
}

/// What a write may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// An object, in any of its versions.
    Object(BucketName, ObjectKey),
    /// Anything in a bucket.
    Bucket(BucketName),
    /// Anything.
    All,
}

/// Whether an entry was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Yes,
    /// A write passed since the origin was asked.
    Outdated,
    /// It is larger than the cache.
    TooLarge,
}

impl Index {
    pub(crate) fn new(capacity_bytes: u64, page_bytes: PageBytes, metrics: CacheMetrics) -> Self {
        metrics
            .capacity
            .set(i64::try_from(capacity_bytes).unwrap_or(i64::MAX));
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            epochs: Epochs::new(),
            used_bytes: AtomicU64::new(0),
            capacity_bytes,
            page_bytes,
            metrics,
        }
    }

    /// Where the write counters of an object stand: to be taken before the origin is asked.
    pub(crate) fn stamp(&self, object: &ObjectId) -> Stamp {
        self.epochs.stamp(self.hashes(&object.bucket, &object.key))
    }

    /// Whether nothing was written to the object since.
    pub(crate) fn is_current(&self, stamp: &Stamp) -> bool {
        self.epochs.is_current(stamp)
    }

    /// Hash of an object's name, without its version.
    pub(crate) fn name_hash(&self, bucket: &BucketName, key: &ObjectKey) -> u64 {
        self.hasher.hash_one((bucket.as_str(), key.as_str()))
    }

    /// The record of an object; counts as a use of it.
    pub(crate) fn version(&self, object: &ObjectId, now_ms: i64) -> Option<Arc<Version>> {
        let hash = self.name_hash(&object.bucket, &object.key);
        let version = self.shard(hash).lock().version(hash, object, now_ms)?;
        if self.epochs.is_bucket_current(&version.stamp) {
            return Some(version);
        }
        self.forget(&version);
        None
    }

    /// A page; counts as a use of it.
    pub(crate) fn page(&self, vid: Vid, page_index: u64, now_ms: i64) -> Option<Bytes> {
        let hash = self.page_hash(vid, page_index);
        self.shard(hash).lock().page(hash, vid, page_index, now_ms)
    }

    /// Whether there is such a page; no use of it.
    pub(crate) fn has_page(&self, vid: Vid, page_index: u64) -> bool {
        let hash = self.page_hash(vid, page_index);
        self.shard(hash).lock().has_page(hash, vid, page_index)
    }

    /// Stores a record in the place of any other of its object, unless a write passed meanwhile.
    pub(crate) fn put_version(&self, version: Arc<Version>, now_ms: i64) -> Stored {
        let stamp = version.stamp;
        let hash = stamp.key_hash();
        let weight = shard::OVERHEAD_BYTES + version.footprint_bytes();
        self.put(hash, Entry::Version(version), weight, now_ms, || {
            self.epochs.is_current(&stamp)
        })
    }

    /// Stores a page. It can't be outdated: it belongs to its version for ever.
    pub(crate) fn put_page(&self, vid: Vid, page_index: u64, page: Bytes, now_ms: i64) -> Stored {
        let footprint = forebay_pages::Arena::footprint_bytes(page.len() as u64);
        let weight = shard::OVERHEAD_BYTES + shard::PAGE_OWNER_BYTES + footprint;
        let hash = self.page_hash(vid, page_index);
        let entry = Entry::Page {
            vid,
            page_index,
            page,
        };
        self.put(hash, entry, weight, now_ms, || true)
    }

    fn put(
        &self,
        hash: u64,
        entry: Entry,
        weight: u64,
        now_ms: i64,
        is_current: impl Fn() -> bool,
    ) -> Stored {
        if weight > self.capacity_bytes {
            return Stored::TooLarge;
        }
        let mut removed = Vec::new();
        {
            let mut shard = self.shard(hash).lock();
            // Under the lock: a writer moves the counter on before it locks the shard to remove.
            if !is_current() {
                return Stored::Outdated;
            }
            self.come(weight);
            if let Some((entry, weight)) = shard.insert(hash, entry, weight, now_ms) {
                self.gone(weight);
                removed.push(entry);
            }
            self.make_room(&mut shard, &mut removed);
        }
        // A shard that has nothing left to give: the next ones have.
        for shard in &self.shards {
            if self.used_bytes() <= self.capacity_bytes {
                break;
            }
            self.make_room(&mut shard.lock(), &mut removed);
        }
        Stored::Yes
    }

    fn make_room(&self, shard: &mut Shard, removed: &mut Vec<Entry>) {
        while self.used_bytes() > self.capacity_bytes {
            let Some((entry, weight)) = shard.evict() else {
                break;
            };
            self.gone(weight);
            self.metrics.evictions.inc();
            removed.push(entry);
        }
    }

    /// Makes everything that a write may have changed unknown, and fills under way unfit to store.
    pub(crate) fn invalidate(&self, written: &Written) {
        self.metrics.invalidations.inc();
        match written {
            Written::Object(bucket, key) => {
                let hashes = self.hashes(bucket, key);
                self.epochs.key_written(hashes);
                let removed = self
                    .shard(hashes.key)
                    .lock()
                    .remove_object(hashes.key, bucket, key);
                for (version, weight) in removed {
                    self.gone(weight);
                    self.forget_pages(&version);
                }
            }
            Written::Bucket(bucket) => {
                self.epochs
                    .bucket_written(self.hasher.hash_one(bucket.as_str()));
            }
            Written::All => self.epochs.all_written(),
        }
    }

    /// Removes a record, if it is still there, and its pages.
    pub(crate) fn forget(&self, version: &Arc<Version>) {
        let hash = version.stamp.key_hash();
        let removed = self.shard(hash).lock().remove_version(hash, version);
        if let Some((_, weight)) = &removed {
            self.gone(*weight);
        }
        self.forget_pages(version);
    }

    fn forget_pages(&self, version: &Version) {
        if version.size_bytes <= self.page_bytes.get() {
            return;
        }
        let page_count = version.size_bytes.div_ceil(self.page_bytes.get());
        for page_index in 0..page_count.min(FORGOTTEN_PAGES_MAX) {
            let hash = self.page_hash(version.vid, page_index);
            let removed = self
                .shard(hash)
                .lock()
                .remove_page(hash, version.vid, page_index);
            if let Some((_, weight)) = &removed {
                self.gone(*weight);
            }
        }
    }

    fn come(&self, weight: u64) {
        self.used_bytes.fetch_add(weight, Ordering::Relaxed);
        self.metrics
            .used
            .inc_by(i64::try_from(weight).unwrap_or(i64::MAX));
        self.metrics.entries.inc();
    }

    fn gone(&self, weight: u64) {
        self.used_bytes.fetch_sub(weight, Ordering::Relaxed);
        self.metrics
            .used
            .dec_by(i64::try_from(weight).unwrap_or(i64::MAX));
        self.metrics.entries.dec();
    }

    /// Bytes that records, pages and their index take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn hashes(&self, bucket: &BucketName, key: &ObjectKey) -> Hashes {
        let bucket_hash = self.hasher.hash_one(bucket.as_str());
        Hashes {
            key: self.name_hash(bucket, key),
            bucket: bucket_hash,
        }
    }

    fn page_hash(&self, vid: Vid, page_index: u64) -> u64 {
        self.hasher.hash_one((vid, page_index))
    }

    /// Bits that neither the tables (the lowest and the highest seven) nor the epochs use.
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 32) as usize & (SHARD_COUNT - 1)]
    }

    /// Checks that the accounts are right, for tests.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        let (mut sum, mut entries) = (0, 0);
        for shard in &self.shards {
            let (weight, count) = shard.lock().audit();
            sum += weight;
            entries += count;
        }
        assert_eq!(
            sum,
            self.used_bytes(),
            "the sum of all weights is the account"
        );
        assert!(
            sum <= self.capacity_bytes,
            "{sum} bytes are more than the capacity"
        );
        assert_eq!(self.metrics.entries.get(), entries);
        assert_eq!(u64::try_from(self.metrics.used.get()).unwrap(), sum);
    }
}
