//! The part of the cache that lies on disk: what of it is written there, and how it is found.
//!
//! Pages lie under their version's id, so what is stale there is found by nobody. A version record,
//! with the page of an object that has only one, lies under the hash of the object's name. It is
//! what coherence is about, and so:
//! - whoever stores a record that came from the origin, or removes one from memory for any reason
//!   but room, removes that on disk ([`Disk::forget`]), which counts at once;
//! - a record that leaves memory for room is written unless a write of its object has passed, which
//!   is looked at under the lock that the write's removal takes (`gone`);
//! - a record that is read answers nobody who came after a write that the reading does not know of
//!   (`load`);
//! - writes to a whole bucket move its counter on, which the record has as well (`record`);
//! - a record of an earlier run of the gateway answers nothing until the origin has vouched for it.
//!
//! Admission: what comes from the origin for the second time, and what leaves memory after it was
//! used there. Records of objects of many pages are always written, being small: without theirs,
//! pages would be of no use after a restart. Records of explicit versions are not: nothing could
//! find them to remove them when all of a key's versions are written to.
//!
//! Called by `layer`, `pump` and, through [`GoneSink`], by the index. A fault of it is a miss.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, OnceLock, Weak},
};

use bytes::Bytes;
use forebay_disk::{DiskPages, DiskSettings, OpenError, PageId, PageStore, Put, Refusal};
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use forebay_store::Clock;
use forebay_telemetry::{cache::CacheMetrics, disk::DiskMetrics};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::{
    epochs::Stamp,
    index::{Cause, Gone, GoneEntry, GoneSink, Index},
    operate::DiskStats,
    policy::{Place, Policies},
    purges::Generation,
    settings::{CacheSettings, Coherence, DiskChoice},
    sync::Mutex,
    version::{Version, Vid},
};

#[cfg(feature = "testing")]
mod promises;
mod record;
mod touches;

#[cfg(feature = "testing")]
pub use promises::check_record;

use record::Reading;
use record::RunId;
use touches::Touches;

/// The page number of records.
const RECORD: u64 = u64::MAX;
/// Touches that are remembered for each GiB of disk: of as many pages of 64 KiB as it holds.
const TOUCHES_PER_GIB: u64 = 16 * 1024;
const TOUCHES_MAX: u64 = 4 * 1024 * 1024;

const MIB: u64 = 1024 * 1024;
/// What a record takes besides its page: names of 1 KiB, and headers of which a gateway takes 16
/// KiB, with room to spare.
const RECORD_BYTES_MAX: u64 = 64 * 1024;
/// Entries for which the index has room: as many as fit the disk when one takes so many bytes.
const ENTRY_BYTES_USUAL: u64 = 16 * 1024;
const ENTRIES_MIN: u64 = 16 * 1024;
/// Memory of one entry in the index of the store, at most.
const INDEX_ENTRY_BYTES: u64 = 40;
/// That index takes a quarter of the layer's memory at most, as a divisor.
const INDEX_DIVISOR: u64 = 4;

/// Locks of records, so that those of different objects rarely meet.
const CHANGES_COUNT: usize = 16;

/// The part on disk of one layer.
#[derive(Debug)]
pub(crate) struct Disk {
    store: Arc<dyn PageStore>,
    capacity_bytes: u64,
    index_bytes_max: u64,
    run: RunId,
    touches: Touches,
    /// Whose entries go to disk; set once both are there.
    index: OnceLock<Weak<Index>>,
    loads: Mutex<HashMap<PageId, Arc<Load>>>,
    /// Held by who writes a record, and by a write that removes one.
    changes: [Mutex<()>; CHANGES_COUNT],
    metrics: CacheMetrics,
}

/// A record that is being read, for all who want it.
#[derive(Debug, Default)]
struct Load(OnceCell<Option<Arc<Version>>>);

/// What the disk part of a layer is made of.
#[derive(Debug, Clone)]
pub struct DiskPart {
    /// The store of pages.
    pub store: Arc<dyn PageStore>,
    /// Bytes that it holds at most.
    pub capacity_bytes: u64,
    /// Memory that its index takes at most: it counts as the layer's.
    pub index_bytes_max: u64,
    /// Another number at each start of the gateway.
    pub run: u64,
}

impl DiskPart {
    /// Smallest capacity for a layer with these settings: room for four of its largest pages.
    pub fn capacity_bytes_min(settings: &CacheSettings) -> u64 {
        // A segment is a little larger than a page.
        (page_bytes_max(settings) + RECORD_BYTES_MAX).next_multiple_of(MIB) * 5
    }

    /// Opens the disk that a layer's settings choose; blocks while it reads what is there.
    ///
    /// # Errors
    /// When the folder can't be used, or must not be.
    pub fn open(
        settings: &CacheSettings,
        choice: &DiskChoice,
        clock: Clock,
        metrics: DiskMetrics,
    ) -> Result<Self, OpenError> {
        let entries_max = (choice.capacity_bytes / ENTRY_BYTES_USUAL).max(ENTRIES_MIN);
        let index_bytes_max = settings.capacity_bytes / INDEX_DIVISOR;
        let entries_max = entries_max.min(index_bytes_max / INDEX_ENTRY_BYTES);
        let disk = DiskSettings {
            page_bytes_max: page_bytes_max(settings) + RECORD_BYTES_MAX,
            entries_max,
            written_bytes_per_day_max: choice.written_bytes_per_day_max,
            ..DiskSettings::new(&choice.folder, choice.capacity_bytes)
        };
        Ok(Self {
            store: Arc::new(DiskPages::open(disk, clock, metrics)?),
            capacity_bytes: choice.capacity_bytes,
            index_bytes_max: entries_max * INDEX_ENTRY_BYTES,
            run: RandomState::new().hash_one(()),
        })
    }
}

/// Size of the largest page that a layer may write.
fn page_bytes_max(settings: &CacheSettings) -> u64 {
    let of_rules = settings
        .rules
        .iter()
        .map(|rule| rule.policy.page_bytes.get());
    of_rules.fold(settings.page_bytes.get(), u64::max)
}

impl Disk {
    pub(crate) fn new(part: DiskPart, metrics: CacheMetrics) -> Self {
        let DiskPart {
            store,
            capacity_bytes,
            index_bytes_max,
            run,
        } = part;
        let touches = (capacity_bytes >> 30).saturating_add(1) * TOUCHES_PER_GIB;
        let touches = usize::try_from(touches.min(TOUCHES_MAX)).unwrap_or(usize::MAX);
        Self {
            store,
            capacity_bytes,
            index_bytes_max,
            run: RunId(run),
            touches: Touches::new(touches),
            index: OnceLock::new(),
            loads: Mutex::default(),
            changes: Default::default(),
            metrics,
        }
    }

    /// From now on what leaves `index` for room may be written.
    pub(crate) fn connect(&self, index: &Arc<Index>) {
        let connected = self.index.set(Arc::downgrade(index));
        assert!(connected.is_ok(), "a disk belongs to one index");
    }

    /// Memory that it takes: what it remembers, and the index of the store.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.touches.footprint_bytes() + self.index_bytes_max
    }

    /// Whether the page is here, most likely.
    pub(crate) fn has_page(&self, vid: Vid, page_index: u64) -> bool {
        self.store.contains(page_id(vid, page_index))
    }

    /// Whether there is a record of an object, most likely.
    pub(crate) fn has_record(&self, object: &ObjectId) -> bool {
        record_id(object).is_some_and(|id| self.store.contains(id))
    }

    /// Bytes that the store holds at most.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Records that are being read.
    #[cfg(test)]
    pub(crate) fn loads_count(&self) -> usize {
        self.loads.lock().len()
    }

    /// Counts, for an operator.
    pub(crate) fn stats(&self) -> DiskStats {
        let stats = self.store.stats();
        DiskStats {
            used_bytes: stats.used_bytes,
            capacity_bytes: self.capacity_bytes,
            entries_count: stats.entries,
            hit_bytes: self.metrics.disk_hit_bytes.get(),
        }
    }

    /// Reads a page.
    pub(crate) async fn page(&self, vid: Vid, page_index: u64) -> Option<Bytes> {
        let page = self.store.get(page_id(vid, page_index)).await?;
        self.metrics.disk_hit_bytes.inc_by(page.len() as u64);
        Some(page)
    }

    /// Reads the record of an object, once for all who come meanwhile, and stores it in memory. Who
    /// came after a write that the reading does not know of gets nothing.
    pub(crate) async fn load(
        &self,
        object: &ObjectId,
        stands: impl Fn() -> (Stamp, Generation),
        policies: &Policies,
        keep: impl Fn(Version) -> Arc<Version>,
    ) -> Option<Arc<Version>> {
        let id = record_id(object).filter(|id| self.store.contains(*id))?;
        let (came, _) = stands();
        let place = PlaceAtLoad {
            disk: self,
            id,
            load: Some(Arc::clone(self.loads.lock().entry(id).or_default())),
        };
        let load = place.load.as_ref()?;
        let loaded = load.0.get_or_init(async || {
            let (stamp, generation) = stands();
            let bytes = self.store.get(id).await?;
            let reading = Reading {
                object,
                run: self.run,
                stamp,
                generation,
                policies,
            };
            let Some(version) = record::decode(bytes, reading) else {
                self.store.remove(id);
                return None;
            };
            let page_bytes = version.page.as_ref().map_or(0, Bytes::len);
            self.metrics.disk_hit_bytes.inc_by(page_bytes as u64);
            Some(keep(version))
        });
        let loaded = loaded.await.clone();
        loaded.filter(|version| version.stamp == came)
    }

    /// Takes a record that came from the origin for the first time since it left memory, or never:
    /// the one on disk is outdated. Of an object of many pages it is written at once.
    pub(crate) fn learned(&self, version: &Version) {
        if version.size_bytes <= version.policy.page_bytes.get() {
            self.forget(&version.object);
            if version.page.is_some() {
                self.offer_record(version);
            }
        } else if version.policy.place != Place::Memory {
            self.put_record(version);
        }
    }

    /// The origin has vouched for a version. Where its record lies on disk alone, that is noted
    /// there, or each read of it would ask again; not in a mode in which each does anyway.
    pub(crate) fn vouched(&self, version: &Version) {
        let lies_here_alone = version.policy.place == Place::Disk && version.page.is_some();
        if lies_here_alone && version.policy.coherence != Coherence::Strict {
            self.put_record(version);
        }
    }

    /// Takes the one page of an object, in its record, that came from the origin.
    pub(crate) fn offer_record(&self, version: &Version) {
        let is_wanted = match version.policy.place {
            Place::Disk => true,
            Place::Everywhere => self.touches.note(version.vid.0),
            Place::Memory => false,
        };
        if is_wanted {
            self.put_record(version);
        }
    }

    /// Takes a page that came from the origin.
    pub(crate) fn offer_page(&self, version: &Version, page_index: u64, page: &Bytes) {
        let hash = version
            .vid
            .0
            .rotate_left(64)
            .wrapping_add(u128::from(page_index) << 7);
        let is_second = || self.touches.note(hash ^ (hash >> 71));
        let id = page_id(version.vid, page_index);
        let is_wanted = match version.policy.place {
            Place::Disk => true,
            Place::Everywhere => is_second(),
            Place::Memory => false,
        };
        if is_wanted && !self.store.contains(id) {
            self.put(id, page.clone());
        }
    }

    /// Writes a record, unless a write of its object has passed: one that passes meanwhile finds
    /// the record here, or is seen here. Nobody may find it before that is known.
    fn put_record(&self, version: &Version) {
        let Some(id) = record_id(&version.object) else {
            return;
        };
        let record = record::encode(version, self.run);
        let index = self.index.get().and_then(Weak::upgrade);
        let _change = self.changes(id).lock();
        if index.is_some_and(|index| index.is_current(&version.stamp)) {
            self.put(id, record);
        } else {
            self.store.remove(id);
        }
    }

    fn changes(&self, id: PageId) -> &Mutex<()> {
        &self.changes[usize::from(id.content[0]) % CHANGES_COUNT]
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        let put = self.store.put(id, page);
        match put {
            Put::Taken => self.metrics.disk_stored.inc(),
            Put::Refused(_) => self.metrics.disk_not_stored.inc(),
        };
        put
    }

    /// Writes a record at the end of a run, as fast as the disk takes it.
    pub(crate) async fn keep_record(&self, version: &Version) {
        if let Some(id) = record_id(&version.object) {
            self.put_patiently(id, record::encode(version, self.run))
                .await;
        }
    }

    /// Writes a page at the end of a run.
    pub(crate) async fn keep_page(&self, vid: Vid, page_index: u64, page: Bytes) {
        let id = page_id(vid, page_index);
        if !self.store.contains(id) {
            self.put_patiently(id, page).await;
        }
    }

    async fn put_patiently(&self, id: PageId, page: Bytes) {
        let put = self.put(id, page.clone());
        if put == Put::Refused(Refusal::QueueFull) && self.store.flush().await.is_ok() {
            self.put(id, page);
        }
    }

    /// Closes the store, all of whose pages are found again at the next start.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.store.close().await {
            tracing::warn!(%error, "closing the disk part of a cache failed");
        }
    }

    /// Removes the record of an object.
    pub(crate) fn forget(&self, object: &ObjectId) {
        if let Some(id) = record_id(object) {
            self.store.remove(id);
        }
    }

    /// The same for an object that was written, whose counter has moved on.
    pub(crate) fn forget_name(&self, bucket: &BucketName, key: &ObjectKey) {
        let id = name_id(bucket, key);
        let _change = self.changes(id).lock();
        self.store.remove(id);
    }

    /// Removes a version's pages that the store may have.
    fn forget_pages(&self, version: &Version) {
        let page_count = version.size_bytes.div_ceil(version.policy.page_bytes.get());
        for page_index in 0..page_count {
            self.store.remove(page_id(version.vid, page_index));
        }
    }
}

/// A place among those who wait for a load, which ends when it is done or the last of them leaves.
struct PlaceAtLoad<'a> {
    disk: &'a Disk,
    id: PageId,
    /// There until the place is left.
    load: Option<Arc<Load>>,
}

impl Drop for PlaceAtLoad<'_> {
    fn drop(&mut self) {
        let mut loads = self.disk.loads.lock();
        // Left under the lock, so that one of those who leave at once sees that it is the last.
        let left = self.load.take().map(|load| Arc::downgrade(&load));
        let is_over = |load: &Arc<Load>| {
            let is_mine = left
                .as_ref()
                .is_some_and(|mine| mine.as_ptr() == Arc::as_ptr(load));
            is_mine && (load.0.initialized() || Arc::strong_count(load) == 1)
        };
        if loads.get(&self.id).is_some_and(is_over) {
            loads.remove(&self.id);
        }
    }
}

impl GoneSink for Disk {
    fn gone(&self, gone: Gone) {
        match (gone.cause, gone.entry) {
            (Cause::Room, GoneEntry::Version(version)) => {
                if gone.was_hit && version.policy.place != Place::Memory {
                    self.put_record(&version);
                }
            }
            (
                Cause::Room,
                GoneEntry::Page {
                    vid,
                    page_index,
                    page,
                },
            ) => {
                let id = page_id(vid, page_index);
                if gone.was_hit && vid.may_lie_on_disk() && !self.store.contains(id) {
                    self.put(id, page);
                }
            }
            (Cause::Replaced, _) | (_, GoneEntry::Page { .. }) => {}
            (Cause::Superseded | Cause::Invalidated, GoneEntry::Version(version)) => {
                self.forget(&version.object);
            }
            (Cause::Purged, GoneEntry::Version(version)) => {
                self.forget(&version.object);
                self.forget_pages(&version);
            }
        }
    }
}

fn page_id(vid: Vid, page_index: u64) -> PageId {
    PageId {
        content: vid.0.to_le_bytes(),
        index: page_index,
    }
}

/// Where the record of an object lies; `None` for an explicit version.
fn record_id(object: &ObjectId) -> Option<PageId> {
    let is_current = object.version.is_none();
    is_current.then(|| name_id(&object.bucket, &object.key))
}

fn name_id(bucket: &BucketName, key: &ObjectKey) -> PageId {
    let mut hash = Sha256::new();
    hash.update((bucket.as_str().len() as u64).to_le_bytes());
    hash.update(bucket.as_str());
    hash.update(key.as_str());
    let digest: [u8; 32] = hash.finalize().into();
    PageId {
        content: std::array::from_fn(|i| digest[i]),
        index: RECORD,
    }
}
