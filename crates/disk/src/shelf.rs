//! What is where at this moment: in the queue, on its way to the disk, or in a segment.
//!
//! One lock over all of it, held for a few hundred nanoseconds and never during a call to the
//! disk, so that a put, a removal and what the writer has done happen one after the other.
//!
//! Removals are never refused: an id whose older entry may still be on the disk is *owed* a
//! removal, which the writer appends before all pages of its next batch. A page of the same id in
//! that batch was put after it.
//!
//! Invariants: an id that is owed a removal is not in the index; what the index has, the segments
//! have; the segments' numbers have no gaps.

mod state;
mod writing;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_store::Clock;
use forebay_telemetry::disk::DiskMetrics;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::{
    index::{Hash, Place},
    page_store::{PageId, Put, Refusal, Stats, Unwritten},
    settings::DiskSettings,
};

pub(crate) use state::BATCH_BYTES_MAX;
use state::{Life, Queued, State, cost};

/// For how long a disk that was full takes no pages.
pub(crate) const NO_SPACE_PAUSE: Duration = Duration::from_secs(10);

/// The shelf.
#[derive(Debug)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    work: Condvar,
    pub(crate) settings: DiskSettings,
    pub(crate) clock: Clock,
    pub(crate) metrics: DiskMetrics,
}

/// Someone who waits until all that entered before is on stable storage.
#[derive(Debug)]
pub(crate) struct Flush {
    entered: u64,
    pub(crate) done: oneshot::Sender<Result<(), Unwritten>>,
}

/// Where a page is.
#[derive(Debug)]
pub(crate) enum Found {
    Nowhere,
    Memory(Bytes),
    Disk(OnDisk),
    /// There, but reads are not tried.
    Broken,
}

/// Where a page is on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnDisk {
    pub(crate) hash: Hash,
    pub(crate) place: Place,
    pub(crate) segment: u64,
}

/// What the writer does next.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Before anything else.
    pub(crate) all_owed: bool,
    /// Then these.
    pub(crate) removals: Vec<PageId>,
    pub(crate) pages: Vec<(PageId, Bytes)>,
    /// Then a sync, for these.
    pub(crate) flushes: Vec<Flush>,
    /// Nothing comes after.
    pub(crate) is_last: bool,
}

/// An entry that is in a segment by now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) id: PageId,
    pub(crate) place: Place,
    pub(crate) source: Source,
}

/// Where an entry came from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Queue,
    /// It was there, and is written once more.
    Segment(Place),
}

impl Shelf {
    pub(crate) fn new(settings: DiskSettings, clock: Clock, metrics: DiskMetrics) -> Self {
        let state = State::new(&settings, clock.now());
        metrics.capacity.set(signed(settings.capacity_bytes));
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            settings,
            clock,
            metrics,
        }
    }

    pub(crate) fn put(&self, id: PageId, page: Bytes) -> Put {
        let now = self.clock.now();
        let mut state = self.state.lock();
        // Whatever becomes of this page, an older one must not be shown any more.
        let hides_older = state.forget(id);
        let admitted = state.admit(&self.settings, page.len(), now);
        let put = match admitted {
            Ok(()) => {
                state.queued_bytes += cost(&page);
                state.entered += 1;
                state.queue.push_back(id);
                state.queued.insert(id, Queued { page, hides_older });
                Put::Taken
            }
            Err(refusal) => {
                if hides_older {
                    state.owe(id);
                }
                self.count_refusal(refusal);
                Put::Refused(refusal)
            }
        };
        self.measure(&state);
        drop(state);
        self.work.notify_one();
        put
    }

    fn count_refusal(&self, refusal: Refusal) {
        let refused = &self.metrics.writes_refused;
        let counter = match refusal {
            Refusal::QueueFull => &refused.queue_full,
            Refusal::Budget => &refused.budget,
            Refusal::Breaker => &refused.breaker,
            Refusal::NoSpace => &refused.no_space,
            Refusal::TooLarge | Refusal::Closed => return,
        };
        counter.inc();
    }

    pub(crate) fn remove(&self, id: PageId) {
        let mut state = self.state.lock();
        if state.forget(id) {
            state.owe(id);
            self.measure(&state);
            drop(state);
            self.work.notify_one();
        }
    }

    pub(crate) fn contains(&self, id: PageId) -> bool {
        let state = self.state.lock();
        state.queued.contains_key(&id)
            || state.writing.contains_key(&id)
            || state.index.contains(state.index.hash(id))
    }

    /// Where a page is; counts as a use of it.
    pub(crate) fn find(&self, id: PageId) -> Found {
        let mut state = self.state.lock();
        if state.life == Life::Closing {
            return Found::Nowhere;
        }
        let queued = state.queued.get(&id).map(|queued| &queued.page);
        if let Some(page) = queued.or_else(|| state.writing.get(&id)) {
            return Found::Memory(page.clone());
        }
        let hash = state.index.hash(id);
        let Some(place) = state.index.find(hash) else {
            return Found::Nowhere;
        };
        if !state.reads.admits(self.clock.now()) {
            return Found::Broken;
        }
        let segment = state.segments.number(place);
        Found::Disk(OnDisk {
            hash,
            place,
            segment,
        })
    }

    /// Forgets an entry that can't be read, unless it is not there any more; whether it was.
    pub(crate) fn drop_unreadable(&self, entry: OnDisk) -> bool {
        let mut state = self.state.lock();
        let was_there = state.index.remove_from(entry.hash, entry.place);
        self.measure(&state);
        was_there
    }

    pub(crate) fn is_there(&self, entry: OnDisk) -> bool {
        let mut state = self.state.lock();
        let found = state.index.find(entry.hash);
        found.is_some_and(|place| place.is_same(entry.place))
    }

    pub(crate) fn read_succeeded(&self) {
        let mut state = self.state.lock();
        if state.reads.is_open() {
            tracing::info!(folder = %self.settings.folder.display(), "the disk reads again");
        }
        state.reads.succeeded();
        self.metrics.reads_broken.set(0);
    }

    pub(crate) fn read_failed(&self) {
        let mut state = self.state.lock();
        let was_open = state.reads.is_open();
        state.reads.failed(self.clock.now());
        if state.reads.is_open() && !was_open {
            tracing::warn!(folder = %self.settings.folder.display(), "the disk does not read");
        }
        self.metrics
            .reads_broken
            .set(i64::from(state.reads.is_open()));
    }

    pub(crate) fn write_succeeded(&self) {
        let mut state = self.state.lock();
        if state.writes.is_open() {
            tracing::info!(folder = %self.settings.folder.display(), "the disk writes again");
        }
        state.writes.succeeded();
        self.metrics.writes_broken.set(0);
    }

    pub(crate) fn write_failed(&self) {
        self.metrics.writes_failed.inc();
        let mut state = self.state.lock();
        let was_open = state.writes.is_open();
        state.writes.failed(self.clock.now());
        if state.writes.is_open() && !was_open {
            tracing::warn!(folder = %self.settings.folder.display(), "the disk does not write");
        }
        self.metrics
            .writes_broken
            .set(i64::from(state.writes.is_open()));
    }

    /// Takes no pages for a while, as the disk is full.
    pub(crate) fn pause(&self) {
        let until = self.clock.now() + NO_SPACE_PAUSE;
        self.state.lock().no_space_until = Some(until);
    }

    pub(crate) fn flush(&self) -> oneshot::Receiver<Result<(), Unwritten>> {
        let (done, flushed) = oneshot::channel();
        let mut state = self.state.lock();
        if state.life == Life::Closing {
            return flushed;
        }
        let entered = state.entered;
        state.flushes.push(Flush { entered, done });
        drop(state);
        self.work.notify_one();
        flushed
    }

    /// Nothing is taken from now on; the writer ends once all is written.
    pub(crate) fn close(&self) {
        self.state.lock().life = Life::Closing;
        self.work.notify_one();
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            entries: state.entries(),
            used_bytes: state.segments.used_bytes,
            index_bytes: state.index.bytes(),
        }
    }

    fn measure(&self, state: &MutexGuard<'_, State>) {
        self.metrics.entries.set(signed(state.entries()));
        self.metrics.index.set(signed(state.index.bytes()));
        self.metrics.used.set(signed(state.segments.used_bytes));
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Shared by the store and its threads.
pub(crate) type SharedShelf = Arc<Shelf>;
