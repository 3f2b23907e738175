//! The index: version records and pages by name, in shards, within one capacity.
//!
//! Looked up by every read, filled by fills, emptied by writes and operators (`admin`). A lookup
//! locks one shard for a hash lookup and a few counters. What leaves is told to a [`GoneSink`], and
//! dropped, after the lock is released, since giving a page back to the system takes longer than
//! all the rest.
//!
//! Room is taken before anything is stored in it, so that memory never exceeds the capacity.
//!
//! Order of locks: a shard's, then those of `pins`; never two shards.
//! Invariant: `used_bytes` is the sum of all weights and of the room taken ([`Room`]; `audit`).
//! Not here: which entry makes room (`queues`), whether a record is fresh (`freshness`).

use std::{
    hash::BuildHasher,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use forebay_pages::PageBuf;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use forebay_telemetry::cache::CacheMetrics;
use hashbrown::DefaultHashBuilder;

use crate::{
    epochs::{Epochs, Hashes, Stamp},
    settings::PageBytes,
    sync::{AtomicU64, AtomicUsize},
    version::{Version, Vid},
};

mod admin;
pub(crate) mod ghosts;
mod gone;
mod pins;
pub(crate) mod queues;
mod shard;
mod slots;
mod watched;

pub use admin::Purged;
pub(crate) use admin::{Present, Standing};
pub(crate) use gone::{Cause, Gone, GoneEntry, GoneSink, Nobody};
pub use pins::Pinned;
use pins::Pins;
use queues::Place;
use shard::{Removed, Shard, Target};
use slots::{Entry, PageName};
pub(crate) use slots::{page_weight_bytes, record_weight_bytes};
use watched::Watched;

/// Most shards: with so many, two cores rarely ask for the same one.
const SHARD_COUNT_MAX: u64 = 64;
/// A shard has room for so many pages at least: which entry makes room is decided within one, and
/// among few there is not much to decide.
const SHARD_PAGES_MIN: u64 = 64;
/// Pages of a forgotten version that are looked for and removed at once; those beyond are found
/// by nobody any more and make room when their turn comes.
const FORGOTTEN_PAGES_MAX: u64 = 4096;

/// What an index may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of all entries.
    pub capacity_bytes: u64,
    /// Those of them that may be pinned.
    pub pin_bytes_max: u64,
    /// Names that an operator may pin.
    pub pins_max: usize,
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Watched<Shard>]>,
    hasher: DefaultHashBuilder,
    epochs: Epochs,
    pins: Pins,
    used_bytes: AtomicU64,
    /// Shards make room in turns.
    next_to_evict: AtomicUsize,
    capacity_bytes: u64,
    sink: Arc<dyn GoneSink>,
    metrics: CacheMetrics,
}

/// What a write may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// The room is that of an entry of this weight from now on: what was taken too much is given
    /// back.
    fn keep(mut self, weight_bytes: u64) {
        debug_assert!(weight_bytes <= self.bytes, "room was taken for the entry");
        self.bytes = self.bytes.saturating_sub(weight_bytes);
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
    pub(crate) fn new(
        limits: Limits,
        page_bytes: PageBytes,
        sink: Arc<dyn GoneSink>,
        metrics: CacheMetrics,
    ) -> Self {
        let capacity_bytes = limits.capacity_bytes;
        metrics.capacity.set(signed(capacity_bytes));
        let shard_count = (capacity_bytes / page_bytes.get() / SHARD_PAGES_MIN)
            .clamp(1, SHARD_COUNT_MAX)
            .next_power_of_two();
        let hasher = DefaultHashBuilder::default();
        let shard = |_| Watched::new(Shard::new(hasher.clone()), metrics.lock_waits.clone());
        Self {
            shards: (0..shard_count).map(shard).collect(),
            hasher,
            epochs: Epochs::new(),
            pins: Pins::new(limits),
            used_bytes: AtomicU64::new(0),
            next_to_evict: AtomicUsize::new(0),
            capacity_bytes,
            sink,
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
        let name = PageName::new(vid, page_index)?;
        let hash = name.hash(&self.hasher);
        self.shard(hash).lock().page(hash, name, now_ms)
    }

    /// Whether there is such a page; no use of it.
    pub(crate) fn has_page(&self, vid: Vid, page_index: u64) -> bool {
        PageName::new(vid, page_index).is_some_and(|name| self.page_length(name).is_some())
    }

    fn page_length(&self, name: PageName) -> Option<u64> {
        let hash = name.hash(&self.hasher);
        self.shard(hash).lock().page_length(hash, name)
    }

    /// Takes room for a record, its page included, by evicting others; `None` when it is larger
    /// than the cache, or others have taken all the room for what they are about to store.
    pub(crate) fn room_for_version(&self, version: &Version, page_length: u64) -> Option<Room<'_>> {
        self.room(record_weight_bytes(version, page_length))
    }

    /// The same for a page of so many bytes.
    pub(crate) fn room_for_page(&self, page_length: u64) -> Option<Room<'_>> {
        self.room(page_weight_bytes(page_length))
    }

    fn room(&self, bytes: u64) -> Option<Room<'_>> {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.used.inc_by(signed(bytes));
        let room = Room { index: self, bytes };
        let mut empty_count = 0;
        while self.used_bytes() > self.capacity_bytes {
            let next = self.next_to_evict.fetch_add(1, Ordering::Relaxed);
            let evicted = self.shards[next & (self.shards.len() - 1)].lock().evict();
            if let Some(removed) = evicted {
                empty_count = 0;
                self.gone(removed, Cause::Room);
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
    /// It is pinned, if the quota allows it, when its policy says so or an operator pinned it.
    pub(crate) fn put_version_in(
        &self,
        room: Room<'_>,
        version: Arc<Version>,
        now_ms: i64,
    ) -> Stored {
        let (stamp, hash) = (version.stamp, version.stamp.key_hash());
        let is_current = || self.epochs.is_current(&stamp);
        self.put((hash, Entry::Version(version)), room, now_ms, is_current)
    }

    /// Stores a page; it is pinned, if the quota allows it, while its record is. It can't be
    /// outdated: it belongs to its version for ever.
    pub(crate) fn put_page_in(
        &self,
        room: Room<'_>,
        vid: Vid,
        page_index: u64,
        page: impl Into<PageBuf>,
        now_ms: i64,
    ) -> Stored {
        let Some(name) = PageName::new(vid, page_index) else {
            return Stored::NoRoom;
        };
        let hash = name.hash(&self.hasher);
        let page = page.into();
        let entry = Entry::Page { name, page };
        self.put((hash, entry), room, now_ms, || true)
    }

    fn put(
        &self,
        (hash, entry): (u64, Entry),
        room: Room<'_>,
        now_ms: i64,
        is_current: impl Fn() -> bool,
    ) -> Stored {
        let weight = entry.weight_bytes();
        let mut shard = self.shard(hash).lock();
        // Under the lock: a writer moves the counter on before it locks the shard to remove.
        if !is_current() {
            return Stored::Outdated;
        }
        let replaced = shard.remove_like(hash, &entry);
        self.unaccount(replaced.as_ref());
        let target = if self.may_pin(&entry, weight) {
            Target::Pinned
        } else {
            Target::Ordinary(replaced.as_ref().map(|removed| removed.links))
        };
        let pinned_vid = self.note_pinned(&entry, target);
        shard.insert(hash, entry, weight, target, now_ms);
        drop(shard);
        room.keep(weight);
        self.metrics.entries.inc();
        if let Some(removed) = replaced {
            self.tell(removed, Cause::Replaced, pinned_vid);
        }
        Stored::Yes
    }

    /// Makes fills of an object that are under way unfit to store, and records on their way to disk
    /// unfit to stay: the first half of `invalidate`.
    pub(crate) fn note_written(&self, bucket: &BucketName, key: &ObjectKey) {
        self.epochs.key_written(self.hashes(bucket, key));
    }

    /// Makes all fills under way unfit to store and to join, and missing objects unknown.
    pub(crate) fn note_all_written(&self) {
        self.epochs.every_key_written();
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
                    .remove_versions(hashes.key, bucket, key);
                for removed in removed {
                    self.forget_removed(removed, Cause::Invalidated);
                }
            }
            Written::Bucket(bucket) => {
                self.epochs.bucket_written(self.bucket_hash(bucket));
                self.forget_outdated_pins();
            }
            Written::All => {
                self.epochs.all_written();
                self.forget_outdated_pins();
            }
        }
    }

    /// Removes a record, if it is still there, and its pages.
    pub(crate) fn forget(&self, version: &Arc<Version>) {
        self.forget_for(version, Cause::Superseded);
    }

    fn forget_for(&self, version: &Arc<Version>, cause: Cause) {
        let hash = version.stamp.key_hash();
        let removed = self.shard(hash).lock().remove_version(hash, version);
        match removed {
            Some(removed) => self.forget_removed(removed, cause),
            None => self.forget_pages(version, cause),
        }
    }

    /// The same for a record that was removed already.
    fn forget_removed(&self, removed: Removed, cause: Cause) {
        let version = match &removed.entry {
            Entry::Version(version) => Some(Arc::clone(version)),
            Entry::Page { .. } => None,
        };
        self.gone(removed, cause);
        if let Some(version) = version {
            self.forget_pages(&version, cause);
        }
    }

    fn forget_pages(&self, version: &Version, cause: Cause) {
        for page_index in 0..Self::page_count(version).min(FORGOTTEN_PAGES_MAX) {
            if let Some(name) = PageName::new(version.vid, page_index) {
                self.forget_page(name, cause);
            }
        }
    }

    /// Removes a page; returns what it took.
    fn forget_page(&self, name: PageName, cause: Cause) -> Option<u64> {
        let hash = name.hash(&self.hasher);
        let removed = self.shard(hash).lock().remove_page(hash, name)?;
        let weight = removed.weight_bytes;
        self.gone(removed, cause);
        Some(weight)
    }

    /// Pages of a version that have entries of their own: none when it has only one.
    fn page_count(version: &Version) -> u64 {
        match version.size_bytes.div_ceil(version.policy.page_bytes.get()) {
            0 | 1 => 0,
            count => count,
        }
    }

    /// To be called once for each entry that left, with no lock held.
    fn gone(&self, removed: Removed, cause: Cause) {
        self.unaccount(Some(&removed));
        self.tell(removed, cause, None);
    }

    /// Takes an entry out of the account of pins.
    fn unaccount(&self, removed: Option<&Removed>) {
        if let Some(removed) = removed
            && removed.links.place() == Place::Pinned
        {
            self.give_back_pin(removed.weight_bytes);
        }
    }

    /// Takes an entry out of all other accounts, and tells of it. Its pinned pages leave with it,
    /// unless they are those of `pinned_vid`, whose record is another by now.
    fn tell(&self, removed: Removed, cause: Cause, pinned_vid: Option<Vid>) {
        self.used_bytes
            .fetch_sub(removed.weight_bytes, Ordering::Relaxed);
        self.metrics.used.dec_by(signed(removed.weight_bytes));
        self.metrics.entries.dec();
        cause.count(&self.metrics);
        self.release_pages(&removed, cause, pinned_vid);
        self.sink.gone(Gone {
            was_hit: removed.links.was_hit(),
            entry: removed.entry.into(),
            cause,
        });
    }

    /// Bytes that records, pages and their index take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn hashes(&self, bucket: &BucketName, key: &ObjectKey) -> Hashes {
        Hashes {
            key: self.name_hash(bucket, key),
            bucket: self.bucket_hash(bucket),
        }
    }

    fn bucket_hash(&self, bucket: &BucketName) -> u64 {
        self.hasher.hash_one(bucket.as_str())
    }

    /// Bits that neither the tables (the lowest and the highest seven) nor the epochs use.
    fn shard(&self, hash: u64) -> &Watched<Shard> {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }

    /// Checks that the accounts are right, for tests.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        let (mut sum, mut pinned, mut entries) = (0, 0, 0);
        for shard in &self.shards {
            for (place, (weight, count)) in shard.lock().audit().into_iter().enumerate() {
                sum += weight;
                entries += i64::try_from(count).unwrap();
                pinned += if place == 2 { weight } else { 0 };
            }
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
        assert_eq!(pinned, self.pins.bytes(), "what is pinned is the account");
        assert_eq!(self.metrics.entries.get(), entries);
        assert_eq!(u64::try_from(self.metrics.used.get()).unwrap(), sum);
        assert_eq!(u64::try_from(self.metrics.pinned.get()).unwrap(), pinned);
    }
}

#[cfg(test)]
pub(crate) mod tests;
