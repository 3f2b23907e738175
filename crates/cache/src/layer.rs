//! What all parts of one cache layer share.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use forebay_pages::Arena;
use forebay_s3::operation::ObjectId;
use forebay_store::{Body, Budget, Clock, Error, Request, Response, Store};
use forebay_telemetry::cache::CacheMetrics;

use crate::{
    disk::{Disk, DiskPart},
    doubts::Doubts,
    epochs::Stamp,
    fill::Attachment,
    fills::Fills,
    freshness::Moment,
    index::{GoneSink, Index, Limits, Nobody, Written},
    kept::{self, table::Table},
    negative::{self, Negatives},
    others::Others,
    policy::{Keep, Place, Policies},
    pump,
    purges::Purges,
    read_ahead::ReadAhead,
    revalidate::Revalidations,
    settings::CacheSettings,
    shadow::Shadows,
    version::{self, Asked, Told, Version},
};

/// Pages that one answer holds on to while it is sent: more would keep memory from the cache for
/// as long as a slow client likes. Larger bodies look their pages up as they go.
const HELD_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Pages that have made room but are still being sent may take this share of the capacity, as a
/// divisor, on top of it: an eighth. When slow clients hold more, new pages are not stored.
const STILL_SENT_DIVISOR: u64 = 8;

/// What is pinned may take this share of the capacity, as a divisor: a quarter, so that most of
/// the cache follows what is read.
const PIN_DIVISOR: u64 = 4;
/// Names that an operator may pin: at some hundred bytes each, a megabyte.
const PINS_MAX: usize = 10_000;

/// The shared parts.
pub(crate) struct Layer {
    pub inner: Arc<dyn Store>,
    pub settings: CacheSettings,
    pub policies: Policies,
    pub purges: Purges,
    pub index: Arc<Index>,
    pub disk: Option<Arc<Disk>>,
    pub fills: Fills,
    pub revalidations: Revalidations,
    pub read_ahead: ReadAhead,
    pub shadows: Shadows,
    pub disk_shadows: Option<Shadows>,
    pub doubts: Doubts,
    pub others: Others,
    pub kept: Table,
    pub negatives: Negatives,
    pub arena: Arena,
    pub budget: Budget,
    pub metrics: CacheMetrics,
    clock: Clock,
    start: Instant,
}

impl Layer {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        settings: CacheSettings,
        clock: Clock,
        budget: Budget,
        metrics: CacheMetrics,
        disk: Option<DiskPart>,
    ) -> Self {
        let disk = disk.map(|part| Arc::new(Disk::new(part, metrics.clone())));
        let on_disk_bytes = disk.as_ref().map_or(0, |disk| disk.footprint_bytes());
        let capacity_bytes = settings.capacity_bytes.saturating_sub(on_disk_bytes);
        let arena_bytes = capacity_bytes + capacity_bytes / STILL_SENT_DIVISOR;
        let arena = Arena::new(arena_bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "page memory lies on the heap: no file for it");
            Arena::on_heap(arena_bytes)
        });
        let kept_bytes = kept::share_bytes(&settings);
        let kept = Table::new(kept_bytes, metrics.kept.clone());
        let negative_bytes = negative::share_bytes(&settings);
        let negatives = Negatives::new(negative_bytes, metrics.kept.clone());
        let index_bytes = capacity_bytes.saturating_sub(kept_bytes + negative_bytes);
        let limits = Limits {
            capacity_bytes: index_bytes,
            pin_bytes_max: index_bytes / PIN_DIVISOR,
            pins_max: PINS_MAX,
        };
        let page_bytes = settings.page_bytes;
        let sink: Arc<dyn GoneSink> = match &disk {
            Some(disk) => Arc::clone(disk) as Arc<dyn GoneSink>,
            None => Arc::new(Nobody),
        };
        let index = Arc::new(Index::new(limits, page_bytes, sink, metrics.clone()));
        if let Some(disk) = &disk {
            disk.connect(&index);
        }
        let policies = Policies::new(&settings);
        let disk_shadows = disk.as_ref().map(|disk| {
            let metrics = metrics.disk_shadow.clone();
            Shadows::of_disk(capacity_bytes, disk.capacity_bytes(), metrics)
        });
        let start = clock.now();
        let fills = Fills::default();
        Self {
            inner,
            settings,
            policies,
            purges: Purges::default(),
            index,
            disk,
            fills,
            revalidations: Revalidations::default(),
            read_ahead: ReadAhead::new(metrics.read_ahead_wasted_bytes.clone()),
            shadows: Shadows::of_memory(capacity_bytes, metrics.shadow.clone()),
            disk_shadows,
            doubts: Doubts::default(),
            others: Others::default(),
            kept,
            negatives,
            arena,
            budget,
            metrics,
            clock,
            start,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Milliseconds since the layer began.
    pub(crate) fn now_ms(&self) -> i64 {
        let elapsed = self.now().saturating_duration_since(self.start);
        i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }

    /// The moment at which to judge records.
    pub(crate) fn moment(&self) -> Moment {
        let heard_since_ms = self.others.heard_since_ms();
        Moment {
            now_ms: self.now_ms(),
            heard_since_ms,
        }
    }

    /// Stores a record that has no page and came from the origin, if its policy lets it be kept.
    pub(crate) fn keep_record(&self, version: &Arc<Version>) {
        if version.policy.keep == Keep::No {
            return;
        }
        self.index.put_version(Arc::clone(version), self.now_ms());
        if let Some(disk) = &self.disk {
            disk.learned(version);
        }
    }

    /// The record of an object from the disk, if there is one; it is in memory afterwards.
    pub(crate) async fn load(&self, object: &ObjectId) -> Option<Arc<Version>> {
        let disk = self.disk.as_ref()?;
        let stamp = || (self.index.stamp(object), self.purges.generation(object));
        let keep = |version| self.keep_loaded(version);
        disk.load(object, stamp, &self.policies, keep).await
    }

    /// The record of an object from the disk, which stays there alone.
    pub(crate) async fn peek(&self, object: &ObjectId) -> Option<Arc<Version>> {
        let disk = self.disk.as_ref()?;
        let stands = || (self.index.stamp(object), self.purges.generation(object));
        disk.load(object, stands, &self.policies, Arc::new).await
    }

    /// How many pages of a version are on disk.
    pub(crate) fn pages_on_disk(&self, version: &Version) -> u64 {
        let Some(disk) = &self.disk else { return 0 };
        match version.size_bytes.div_ceil(version.policy.page_bytes.get()) {
            0 | 1 => u64::from(disk.has_record(&version.object)),
            count => (0..count)
                .filter(|page_index| disk.has_page(version.vid, *page_index))
                .count() as u64,
        }
    }

    /// Stores a record that came from the disk.
    fn keep_loaded(&self, version: Version) -> Arc<Version> {
        let (now_ms, page) = (self.now_ms(), version.page.clone());
        let version = Arc::new(version);
        let length = page.as_ref().map_or(0, |page| page.len() as u64);
        if page.is_some() && version.policy.place == Place::Disk {
            return version;
        }
        let Some(room) = self.index.room_for_version(&version, length) else {
            return version;
        };
        let kept = match page.map(|page| self.arena.store(&[page])) {
            None => version,
            Some(None) => return version,
            Some(Some(page)) => Arc::new(version.with_page(page)),
        };
        self.index.put_version_in(room, Arc::clone(&kept), now_ms);
        kept
    }

    /// Writes what was used to the disk, and closes that.
    pub(crate) async fn close(&self) {
        let Some(disk) = &self.disk else { return };
        for version in self.used_versions() {
            self.keep_on_disk(&version).await;
        }
        disk.close().await;
    }

    /// Records in memory that were used, and that may lie on disk.
    pub(crate) fn used_versions(&self) -> Vec<Arc<Version>> {
        let mut used = Vec::new();
        self.index.visit(&mut |version, standing| {
            if standing.hit && version.policy.place != Place::Memory {
                used.push(Arc::clone(version));
            }
        });
        used
    }

    /// Writes a record and the pages of it that are in memory to the disk.
    pub(crate) async fn keep_on_disk(&self, version: &Version) {
        let Some(disk) = &self.disk else { return };
        disk.keep_record(version).await;
        if version.page.is_some() {
            return;
        }
        for page_index in 0..version.size_bytes.div_ceil(version.policy.page_bytes.get()) {
            if let Some(page) = self.index.page(version.vid, page_index, self.now_ms()) {
                disk.keep_page(version.vid, page_index, page).await;
            }
        }
    }

    /// Tells the shadow caches of a read.
    pub(crate) fn shadow_read(&self, version: &Version, range: &Range<u64>, now_ms: i64) {
        self.shadows.read(version, range, now_ms);
        if let Some(shadows) = &self.disk_shadows {
            shadows.read(version, range, now_ms);
        }
    }

    /// Makes everything that a write may have changed unknown, in memory and on disk.
    pub(crate) fn invalidate(&self, written: &Written) {
        // Between two moves of the counter: after the first no older record is written to disk, and
        // one that was read there before the removal is unfit for memory after the second. The
        // counters of buckets are on disk as well.
        if let (Some(disk), Written::Object(bucket, key)) = (&self.disk, written) {
            self.index.note_written(bucket, key);
            disk.forget_name(bucket, key);
        }
        self.index.invalidate(written);
        self.kept.invalidate(written);
    }

    /// From now on all that other gateways write is heard of. What is kept was validated before,
    /// and so was what is on its way.
    pub(crate) fn heard_again(&self) {
        if self.policies.has_exclusive() {
            self.index.note_all_written();
            self.kept.invalidate(&Written::All);
        }
        // Moments are told apart by the millisecond: what was asked in this one counts as before.
        self.others.heard_since(self.now_ms() + 1);
    }

    /// Removes a record that is no longer the current one.
    pub(crate) fn forget(&self, version: &Arc<Version>) {
        self.index.forget(version);
        if let Some(disk) = &self.disk {
            disk.forget(&version.object);
        }
    }

    /// What to note before the origin is asked; `stamp` was taken before.
    pub(crate) fn asked(&self, object: &ObjectId, stamp: Stamp) -> Asked {
        let doubt_until_ms = if self.policies.has_exclusive() {
            self.doubts.until_ms(object)
        } else {
            i64::MIN
        };
        Asked {
            generation: self.purges.generation(object),
            stamp,
            at_ms: self.now_ms(),
            doubt_until_ms,
        }
    }

    /// Takes note of what an answer tells of a stored version.
    pub(crate) fn validate(
        &self,
        stored: &Arc<Version>,
        asked: Asked,
        answer: &Result<Response, Error>,
        found: Option<&Version>,
    ) -> Told {
        let told = version::validate(stored, asked, answer, found);
        match told {
            Told::Unchanged => {
                self.metrics.validated.inc();
                if let Some(disk) = &self.disk {
                    disk.vouched(stored);
                }
            }
            Told::Superseded => self.forget(stored),
            Told::Refused => {
                // The one on disk does not know of it.
                if let Some(disk) = &self.disk {
                    disk.forget(&stored.object);
                }
            }
            Told::Failed | Told::Nothing => {}
        }
        told
    }

    /// The bytes of a page from `position` on, up to `end` or the end of the page.
    pub(crate) fn page_from(
        &self,
        version: &Version,
        position: u64,
        end: u64,
        now_ms: i64,
    ) -> Option<Bytes> {
        let page_bytes = version.policy.page_bytes;
        let page = version.page.clone().or_else(|| {
            if version.size_bytes <= page_bytes.get() {
                // The only page is part of the record: of one that a fill has stored since.
                let stored = self.index.version(&version.object, now_ms)?;
                return stored.page.clone().filter(|_| stored.vid == version.vid);
            }
            self.index
                .page(version.vid, page_bytes.index_of(position), now_ms)
        })?;
        let start = page_bytes.floor(position);
        let from = usize::try_from(position - start).ok()?;
        let to = usize::try_from((end - start).min(page.len() as u64)).ok()?;
        (from < to).then(|| page.slice(from..to))
    }

    /// The body of an answer, when all its pages are here and holding them is allowed.
    pub(crate) fn body_from_pages(
        &self,
        version: &Version,
        range: Range<u64>,
        now_ms: i64,
    ) -> Option<Body> {
        if range.is_empty() {
            return Some(Body::empty());
        }
        if let Some(page) = &version.page {
            let (from, to) = (
                usize::try_from(range.start).ok()?,
                usize::try_from(range.end).ok()?,
            );
            return Some(page.slice(from..to).into());
        }
        if range.end - range.start > HELD_BYTES_MAX {
            return None;
        }
        let first = self.page_from(version, range.start, range.end, now_ms)?;
        let mut position = range.start + first.len() as u64;
        if position == range.end {
            return Some(first.into());
        }
        let mut pieces = VecDeque::from([first]);
        while position < range.end {
            let piece = self.page_from(version, position, range.end, now_ms)?;
            position += piece.len() as u64;
            pieces.push_back(piece);
        }
        Some(Body::pieces(pieces))
    }

    /// Whether all pages of a range are here, in memory or, most likely, on disk.
    pub(crate) fn has_pages(&self, version: &Version, range: &Range<u64>) -> bool {
        let page = |offset| version.policy.page_bytes.index_of(offset);
        version.page.is_some()
            || range.is_empty()
            || (page(range.start)..=page(range.end - 1))
                .all(|page_index| self.has_page(version, page_index))
    }

    pub(crate) fn has_page(&self, version: &Version, page_index: u64) -> bool {
        self.index.has_page(version.vid, page_index) || self.is_on_disk(version, page_index)
    }

    pub(crate) fn is_on_disk(&self, version: &Version, page_index: u64) -> bool {
        let disk = self.disk.as_ref();
        disk.is_some_and(|disk| disk.has_page(version.vid, page_index))
    }

    /// Starts the filler of a fill, for which it asks `request`.
    pub(crate) fn start(self: &Arc<Self>, attachment: &Attachment, request: Request) {
        let fill = attachment.fill();
        let filler = pump::run(Arc::clone(self), Arc::clone(fill), request);
        fill.set_task(tokio::spawn(filler).abort_handle());
    }
}
