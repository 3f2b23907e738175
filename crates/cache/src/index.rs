//! The index: version records and pages by name, in shards, within one capacity.
//!
//! Looked up by every read, filled by fills, emptied by writes. A lookup locks one shard for a
//! hash lookup and a few counters. What is removed is dropped after the lock is released, since
//! giving a page back to the system takes longer than all the rest.
//!
//! Room is taken before anything is stored in it, so that memory never exceeds the capacity.
//!
//! Invariant: `used_bytes` is the sum of all weights and of the room taken ([`Room`]; `audit`).
//! Not here: which entry makes room (`shard`), whether a record is fresh (`freshness`).

use std::{
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use forebay_pages::Arena;
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

/// Most shards: with so many, two cores rarely ask for the same one.
const SHARD_COUNT_MAX: u64 = 64;
/// A shard has room for so many pages at least: which entry makes room is decided within one, and
/// among few there is not much to decide.
const SHARD_PAGES_MIN: u64 = 64;
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
    /// Shards make room in turns.
    next_to_evict: AtomicUsize,
    capacity_bytes: u64,
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
    /// It is larger than the cache, or others have taken the room.
    NoRoom,
}

/// Room taken in the index; given back when dropped, unless something was stored in it.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    index: &'a Index,
    bytes: u64,
}

impl Room<'_> {
    /// The room is that of an entry from now on.
    fn keep(self) -> u64 {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.index
            .used_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.index.metrics.used.dec_by(signed(self.bytes));
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Index {
    pub(crate) fn new(capacity_bytes: u64, page_bytes: PageBytes, metrics: CacheMetrics) -> Self {
        metrics.capacity.set(signed(capacity_bytes));
        let shard_count = (capacity_bytes / page_bytes.get() / SHARD_PAGES_MIN)
            .clamp(1, SHARD_COUNT_MAX)
            .next_power_of_two();
        Self {
            shards: (0..shard_count).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            epochs: Epochs::new(),
            used_bytes: AtomicU64::new(0),
            next_to_evict: AtomicUsize::new(0),
            capacity_bytes,
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

    /// Takes room for a record, its page included, by evicting others; `None` when it is larger
    /// than the cache, or others have taken all the room for what they are about to store.
    pub(crate) fn room_for_version(&self, version: &Version, page_length: u64) -> Option<Room<'_>> {
        let page = Arena::footprint_bytes(page_length);
        self.room(shard::OVERHEAD_BYTES + version.footprint_bytes() + page)
    }

    /// The same for a page of so many bytes.
    pub(crate) fn room_for_page(&self, page_length: u64) -> Option<Room<'_>> {
        let page = Arena::footprint_bytes(page_length);
        self.room(shard::OVERHEAD_BYTES + shard::PAGE_OWNER_BYTES + page)
    }

    fn room(&self, bytes: u64) -> Option<Room<'_>> {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.used.inc_by(signed(bytes));
        let room = Room { index: self, bytes };
        let mut empty_count = 0;
        while self.used_bytes() > self.capacity_bytes {
            let next = self.next_to_evict.fetch_add(1, Ordering::Relaxed);
            let evicted = self.shards[next & (self.shards.len() - 1)].lock().evict();
            if let Some((entry, weight)) = evicted {
                empty_count = 0;
                self.gone(weight);
                self.metrics.evictions.inc();
                drop(entry);
            } else {
                empty_count += 1;
                if empty_count > self.shards.len() {
                    return None;
                }
            }
        }
        Some(room)
    }

    /// Stores a record that has no page in the place of any other of its object.
    pub(crate) fn put_version(&self, version: Arc<Version>, now_ms: i64) -> Stored {
        match self.room_for_version(&version, 0) {
            Some(room) => self.put_version_in(room, version, now_ms),
            None => Stored::NoRoom,
        }
    }

    /// Stores a record in the place of any other of its object, unless a write passed meanwhile.
    pub(crate) fn put_version_in(
        &self,
        room: Room<'_>,
        version: Arc<Version>,
        now_ms: i64,
    ) -> Stored {
        let stamp = version.stamp;
        let is_current = || self.epochs.is_current(&stamp);
        self.put(
            stamp.key_hash(),
            Entry::Version(version),
            room,
            now_ms,
            is_current,
        )
    }

    /// Stores a page. It can't be outdated: it belongs to its version for ever.
    pub(crate) fn put_page_in(
        &self,
        room: Room<'_>,
        vid: Vid,
        page_index: u64,
        page: Bytes,
        now_ms: i64,
    ) -> Stored {
        let hash = self.page_hash(vid, page_index);
        self.put(
            hash,
            Entry::Page {
                vid,
                page_index,
                page,
            },
            room,
            now_ms,
            || true,
        )
    }

    fn put(
        &self,
        hash: u64,
        entry: Entry,
        room: Room<'_>,
        now_ms: i64,
        is_current: impl Fn() -> bool,
    ) -> Stored {
        let mut shard = self.shard(hash).lock();
        // Under the lock: a writer moves the counter on before it locks the shard to remove.
        if !is_current() {
            return Stored::Outdated;
        }
        let replaced = shard.insert(hash, entry, room.keep(), now_ms);
        drop(shard);
        self.metrics.entries.inc();
        if let Some((_, weight)) = &replaced {
            self.gone(*weight);
        }
        Stored::Yes
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
        let page_bytes = version.policy.page_bytes.get();
        if version.size_bytes <= page_bytes {
            return;
        }
        let page_count = version.size_bytes.div_ceil(page_bytes);
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

    fn gone(&self, weight: u64) {
        self.used_bytes.fetch_sub(weight, Ordering::Relaxed);
        self.metrics.used.dec_by(signed(weight));
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
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
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
