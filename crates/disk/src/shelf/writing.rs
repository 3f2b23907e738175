//! What the writer does to the shelf, and opening, which does the same for segments that are there.

use super::{Batch, OnDisk, Shelf, Written};
use crate::{
    format,
    index::{Hash, Place, SHARD_COUNT},
    page_store::PageId,
};

/// Entries that are made known under one lock, so that nobody waits for many.
const LOCKED_ENTRIES_MAX: usize = 256;
impl Shelf {
    /// Waits for something to do.
    pub(crate) fn next_batch(&self) -> Batch {
        let mut state = self.state.lock();
        while state.is_idle() {
            self.work.wait(&mut state);
        }
        state.next_batch()
    }

    /// Entries are in their segments, and can be read from there.
    pub(crate) fn written(&self, entries: &[Written]) {
        for entries in entries.chunks(LOCKED_ENTRIES_MAX) {
            let mut state = self.state.lock();
            for entry in entries {
                state.written(entry);
            }
            self.measure(&state);
        }
    }

    /// A batch is written.
    pub(crate) fn batch_written(&self) {
        let mut state = self.state.lock();
        state.is_failing = false;
        state.writing.clear();
        state.writing_bytes = 0;
        self.measure(&state);
    }

    /// A batch has failed. These ids are not on the disk as they should be: forgotten, and owed.
    pub(crate) fn batch_failed(&self, batch: &Batch, unwritten: &[PageId]) {
        let mut state = self.state.lock();
        for id in unwritten {
            let hash = state.index.hash(*id);
            state.index.remove(hash);
            state.owe(*id);
        }
        state.all_owed |= batch.all_owed;
        state.is_failing = true;
        state.writing.clear();
        state.writing_bytes = 0;
        self.measure(&state);
    }

    /// A segment was made, the newest.
    pub(crate) fn segment_made(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.segments.bytes.push_back(bytes);
        state.segments.used_bytes += bytes;
        self.measure(&state);
    }

    /// The newest segment has this length now.
    pub(crate) fn segment_resized(&self, bytes: u64) {
        let mut state = self.state.lock();
        let Some(last) = state.segments.bytes.back_mut() else {
            return;
        };
        let before = std::mem::replace(last, bytes);
        state.segments.used_bytes = state.segments.used_bytes - before + bytes;
        self.measure(&state);
    }

    /// The number of the next segment.
    pub(crate) fn next_segment(&self) -> u64 {
        let state = self.state.lock();
        state.segments.oldest + state.segments.bytes.len() as u64
    }

    /// Whether so many pages more would be too many.
    pub(crate) fn is_crowded(&self, pages: usize) -> bool {
        let count = self.state.lock().index.count();
        count > 0 && count + pages as u64 > self.settings.entries_max
    }

    /// The oldest segment, when there would not be room for so many bytes more.
    pub(crate) fn oldest_without_room(&self, bytes: u64) -> Option<u64> {
        let state = self.state.lock();
        let has_room = state.segments.used_bytes + bytes <= self.settings.capacity_bytes
            && state.index.count() <= self.settings.entries_max;
        if has_room {
            None
        } else {
            state.segments.oldest()
        }
    }

    pub(crate) fn oldest(&self) -> Option<u64> {
        self.state.lock().segments.oldest()
    }

    /// Entries of a segment that were used since they were written.
    pub(crate) fn used_of(&self, segment: u64) -> Vec<OnDisk> {
        let mut used = Vec::new();
        for shard in 0..SHARD_COUNT {
            // The lock is taken for each, so that nobody waits for all of them.
            let found = self.state.lock().index.used_of(shard, segment);
            let found = found.into_iter();
            used.extend(found.map(|(hash, place)| OnDisk {
                hash,
                place,
                segment,
            }));
        }
        used
    }

    pub(crate) fn hash(&self, id: PageId) -> Hash {
        self.state.lock().index.hash(id)
    }

    /// Takes from the budget for an entry that is written once more.
    pub(crate) fn may_rewrite(&self, bytes: u64) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.budget.as_mut().is_none_or(|b| b.take(bytes, now))
    }

    /// Forgets the oldest segment and all that is in it.
    pub(crate) fn evict(&self, segment: u64) {
        for shard in 0..SHARD_COUNT {
            let gone = self.state.lock().index.remove_segment(shard, segment);
            self.metrics.evicted_entries.inc_by(gone);
        }
        let mut state = self.state.lock();
        debug_assert_eq!(state.segments.oldest(), Some(segment));
        if let Some(bytes) = state.segments.bytes.pop_front() {
            state.segments.oldest += 1;
            state.segments.used_bytes -= bytes;
        }
        self.measure(&state);
    }

    /// For opening: a segment that is there, after those before it.
    pub(crate) fn adopt(&self, segment: u64, bytes: u64, items: &[format::Item]) {
        let mut state = self.state.lock();
        if state.segments.bytes.is_empty() {
            state.segments.oldest = segment;
        }
        state.segments.bytes.push_back(bytes);
        state.segments.used_bytes += bytes;
        for item in items {
            let hash = state.index.hash(item.id);
            match item.kind {
                format::Kind::Page(_) => {
                    let place = Place::new(segment, item.offset, item.entry_bytes());
                    state.index.insert(hash, place);
                }
                format::Kind::Removal => drop(state.index.remove(hash)),
            }
        }
        self.measure(&state);
    }
}
