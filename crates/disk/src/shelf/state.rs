//! What the lock of the shelf guards, and every change that is one step.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

use bytes::Bytes;

use super::{Batch, Flush, Source, Written};
use crate::{
    breaker::Breaker,
    budget::WriteBudget,
    format::{self, ENTRY_HEAD_BYTES},
    index::{Index, Place, SEGMENTS_MAX},
    page_store::{PageId, Refusal},
    settings::DiskSettings,
};

/// What the writer takes at once: large enough for the speed of any disk.
pub(crate) const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Removals that may be owed, 24 bytes each; beyond that all that is on the disk is given up.
const OWED_MAX: usize = 256 * 1024;
/// What a queued page takes besides its bytes, roughly; bounds how many small ones may wait.
const QUEUED_OVERHEAD_BYTES: u64 = 256;
#[derive(Debug)]
pub(super) struct State {
    pub(super) index: Index,
    pub(super) segments: Segments,
    /// Ids in the order in which they are written; those no longer in `queued` are passed over.
    pub(super) queue: VecDeque<PageId>,
    pub(super) queued: HashMap<PageId, Queued>,
    pub(super) queued_bytes: u64,
    /// What the writer has taken and not yet told the end of.
    pub(super) writing: HashMap<PageId, Bytes>,
    pub(super) writing_bytes: u64,
    pub(super) owed: Vec<PageId>,
    pub(super) all_owed: bool,
    /// The last batch has failed: what is owed waits for the next.
    pub(super) is_failing: bool,
    /// Puts that entered the queue, and that left it.
    pub(super) entered: u64,
    pub(super) left: u64,
    pub(super) flushes: Vec<Flush>,
    pub(super) life: Life,
    pub(super) budget: Option<WriteBudget>,
    pub(super) reads: Breaker,
    pub(super) writes: Breaker,
    pub(super) no_space_until: Option<Instant>,
}

/// A page that waits to be written.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) page: Bytes,
    /// An older entry of its id may be on the disk: whoever removes the page owes a removal.
    pub(super) hides_older: bool,
}

/// Segments by number, without gaps; the last may be the one that is written.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub(super) oldest: u64,
    pub(super) bytes: VecDeque<u64>,
    pub(super) used_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    /// Nothing is taken any more; what waits is written.
    Closing,
}

impl State {
    pub(super) fn new(settings: &DiskSettings, now: Instant) -> Self {
        let breaker = || Breaker::new(settings.failures_max, settings.retry_after);
        let (reads, writes) = (breaker(), breaker());
        let budget = settings.written_bytes_per_day_max;
        let budget = budget.map(|bytes| WriteBudget::new(bytes, now));
        Self {
            index: Index::new(),
            segments: Segments::default(),
            queue: VecDeque::new(),
            queued: HashMap::new(),
            queued_bytes: 0,
            writing: HashMap::new(),
            writing_bytes: 0,
            owed: Vec::new(),
            all_owed: false,
            is_failing: false,
            entered: 0,
            left: 0,
            flushes: Vec::new(),
            life: Life::Open,
            budget,
            reads,
            writes,
            no_space_until: None,
        }
    }

    /// Pages that can be found, give or take those that are written at this moment.
    pub(super) fn entries(&self) -> u64 {
        self.index.count() + (self.queued.len() + self.writing.len()) as u64
    }

    /// Makes an id unknown; whether an entry of it is or may come to be on the disk.
    pub(super) fn forget(&mut self, id: PageId) -> bool {
        let mut has_older = false;
        if let Some(Queued { page, hides_older }) = self.queued.remove(&id) {
            self.queued_bytes -= cost(&page);
            has_older = hides_older;
        }
        let was_writing = self.writing.remove(&id).is_some();
        let hash = self.index.hash(id);
        self.index.remove(hash) || was_writing || has_older
    }

    pub(super) fn written(&mut self, entry: &Written) {
        let hash = self.index.hash(entry.id);
        match entry.source {
            Source::Queue => {
                // Otherwise it was removed meanwhile, or put again.
                if self.writing.remove(&entry.id).is_some() {
                    self.index.insert(hash, entry.place);
                }
            }
            Source::Segment(from) => {
                self.index.relocate(hash, from, entry.place);
            }
        }
    }

    pub(super) fn owe(&mut self, id: PageId) {
        if self.owed.len() < OWED_MAX {
            self.owed.push(id);
        } else {
            self.owed.clear();
            self.all_owed = true;
        }
    }

    pub(super) fn admit(
        &mut self,
        settings: &DiskSettings,
        page_bytes: usize,
        now: Instant,
    ) -> Result<(), Refusal> {
        let page_bytes = page_bytes as u64;
        if self.life == Life::Closing {
            return Err(Refusal::Closed);
        }
        if page_bytes > settings.page_bytes_max {
            return Err(Refusal::TooLarge);
        }
        if self.no_space_until.is_some_and(|until| now < until) {
            return Err(Refusal::NoSpace);
        }
        let bytes = self.queued_bytes + self.writing_bytes + page_bytes + QUEUED_OVERHEAD_BYTES;
        let queue_max = settings.queue_bytes_max / QUEUED_OVERHEAD_BYTES;
        if bytes > settings.queue_bytes_max || self.queue.len() as u64 >= queue_max {
            return Err(Refusal::QueueFull);
        }
        // A page that could not be read again is not worth its write. Once reads may be tried there
        // must be pages that can be.
        if self.reads.refuses(now) || !self.writes.admits(now) {
            return Err(Refusal::Breaker);
        }
        let entry_bytes = format::padded(ENTRY_HEAD_BYTES + page_bytes);
        let budget = self.budget.as_mut();
        if budget.is_some_and(|budget| !budget.take(entry_bytes, now)) {
            return Err(Refusal::Budget);
        }
        Ok(())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && (self.is_failing || (self.owed.is_empty() && !self.all_owed))
            && self.flushes.is_empty()
            && self.life == Life::Open
    }

    pub(super) fn next_batch(&mut self) -> Batch {
        let mut pages = Vec::new();
        while self.writing_bytes < BATCH_BYTES_MAX
            && let Some(id) = self.queue.pop_front()
        {
            self.left += 1;
            if let Some(Queued { page, .. }) = self.queued.remove(&id) {
                self.queued_bytes -= cost(&page);
                self.writing_bytes += cost(&page);
                self.writing.insert(id, page.clone());
                pages.push((id, page));
            }
        }
        let left = self.left;
        let flushes = self.flushes.extract_if(.., |flush| flush.entered <= left);
        Batch {
            all_owed: std::mem::take(&mut self.all_owed),
            removals: std::mem::take(&mut self.owed),
            pages,
            flushes: flushes.collect(),
            is_last: self.life == Life::Closing && self.queue.is_empty(),
        }
    }
}

impl Segments {
    pub(super) fn oldest(&self) -> Option<u64> {
        (!self.bytes.is_empty()).then_some(self.oldest)
    }

    /// The number of a place's segment.
    pub(super) fn number(&self, place: Place) -> u64 {
        let of_oldest = Place::new(self.oldest, 0, 0).segment();
        let ahead = place.segment().wrapping_sub(of_oldest) % SEGMENTS_MAX;
        self.oldest + ahead
    }
}

pub(super) fn cost(page: &Bytes) -> u64 {
    page.len() as u64 + QUEUED_OVERHEAD_BYTES
}
