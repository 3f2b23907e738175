//! A fill: one origin request whose bytes serve any number of readers while they arrive.
//!
//! The *filler* (a task, `pump`) reads the origin's answer and adds its bytes; *readers* attach at
//! an offset and take bytes as they come. The bytes of the page under way and of the window before
//! the fastest reader are kept here; what is behind is in the cache, or gone.
//!
//! The filler stays at most a window before the fastest reader, so a slow client does not pull a
//! large object into memory. When all readers have left it goes on if little is missing, else it
//! stops. A reader that leaves disturbs nobody; a filler that ends before the end, for whatever
//! reason, wakes all readers.
//!
//! All state is behind one lock, held for a few operations, never across an await.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use forebay_s3::operation::ObjectId;
use forebay_store::{Error, Response};
use tokio::task::AbortHandle;

use crate::{
    epochs::Stamp,
    headers::Behind,
    plan::Directive,
    read_ahead::AheadPlace,
    settings::PageBytes,
    sync::Mutex,
    version::{Version, Vid},
};

mod attachment;
mod state;

pub(crate) use attachment::{Attachment, Role};
use state::{Piece, ReaderState, State};

/// Bytes that a fill without readers still fetches: an extent.
const FINISH_BYTES_MAX: u64 = crate::ask::EXTENT_BYTES_MAX;

/// One origin request and those who wait for its bytes.
#[derive(Debug)]
pub(crate) struct Fill {
    pub object: ObjectId,
    pub purpose: Purpose,
    /// Where the write counters stood when it began.
    pub stamp: Stamp,
    /// Its place among those that nobody waited for when they began.
    place: OnceLock<AheadPlace>,
    behind: OnceLock<Behind>,
    state: Mutex<State>,
}

/// What a fill is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// To learn what version there is; the stored one, if any, is stale.
    Learn {
        stale: Option<Arc<Version>>,
        /// Of the client whose question it is: whether caches behind are got past.
        directive: Directive,
    },
    /// To get these bytes of this version.
    Extent {
        version: Arc<Version>,
        range: Range<u64>,
        source: Source,
    },
}

/// Where a fill's bytes come from at first: what the disk turns out not to have comes from the
/// origin after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Origin,
    Disk,
}

/// How far a fill goes before its readers, and whether pages are made of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    /// Bytes before the fastest reader.
    pub ahead_bytes_max: u64,
    /// Size of the pages to keep whole until they are stored; `None` stores nothing.
    pub page_bytes: Option<PageBytes>,
}

/// What the origin's answer was, as far as all readers are concerned.
#[derive(Debug, Clone)]
pub(crate) enum Head {
    /// It is not there yet.
    Awaited,
    /// Bytes of this version follow.
    Version(Arc<Version>),
    /// The stale version is still the current one.
    Unchanged(Arc<Version>),
    /// The version asked for is no longer there.
    Changed,
    /// Something that can't be shared; the reader that began the fill has it.
    Declined,
    /// The same, and it says that the origin is in trouble.
    Failed,
}

/// How a fill ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All bytes have arrived.
    Whole,
    /// No more will come.
    Broken,
}

/// What a reader finds at its position.
#[derive(Debug)]
pub(crate) enum Step {
    /// These bytes.
    Bytes(Bytes),
    /// They arrived earlier and are no longer here: look in the cache.
    Behind,
    /// The fill has none beyond this position.
    Past,
    /// The fill broke off.
    Broken,
    /// The version asked for is no longer there.
    Changed,
}

/// A page that has arrived whole.
#[derive(Debug)]
pub(crate) struct PagePieces {
    pub start: u64,
    pub end: u64,
    pub pieces: Vec<Bytes>,
}

/// More bytes came than were announced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooLong;

impl Fill {
    pub(crate) fn new(object: ObjectId, purpose: Purpose, stamp: Stamp) -> Arc<Self> {
        let covers = match &purpose {
            Purpose::Learn { .. } => 0..0,
            Purpose::Extent { range, .. } => range.clone(),
        };
        let state = State::new(covers);
        Arc::new(Self {
            object,
            purpose,
            stamp,
            place: OnceLock::new(),
            behind: OnceLock::new(),
            state: Mutex::new(state),
        })
    }

    /// Attaches a reader that wants the byte at `position` first.
    pub(crate) fn attach(self: &Arc<Self>, position: u64, role: Role) -> Attachment {
        let mut state = self.state.lock();
        let reader = Some(ReaderState {
            position,
            leaves_at: u64::MAX,
            waker: None,
        });
        let free = state.readers.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            state.readers.push(None);
            state.readers.len() - 1
        });
        state.readers[slot] = reader;
        state.reader_count += 1;
        drop(state);
        Attachment::new(Arc::clone(self), slot, role)
    }

    /// Whether a reader that knows no version may wait for what this fill learns.
    pub(crate) fn may_teach(&self) -> bool {
        let state = self.state.lock();
        matches!(self.purpose, Purpose::Learn { .. })
            && state.end.is_none()
            && matches!(state.head, Head::Awaited | Head::Version(_))
    }

    /// Whether it brings the byte at `position` of a version, and so many before it at most.
    pub(crate) fn may_serve(&self, vid: Vid, position: u64, before_bytes_max: u64) -> bool {
        let state = self.state.lock();
        let same_version = match (&state.head, &self.purpose) {
            (Head::Version(version), _) | (Head::Awaited, Purpose::Extent { version, .. }) => {
                version.vid == vid
            }
            _ => false,
        };
        let kept_from = state.pieces.front().map_or(state.next, |piece| piece.start);
        same_version
            && state.end != Some(End::Broken)
            && state.covers.contains(&position)
            && position >= kept_from
            && position <= state.next.saturating_add(before_bytes_max)
    }

    /// Where the bytes of an extent come from at first.
    pub(crate) fn source(&self) -> Option<Source> {
        match &self.purpose {
            Purpose::Extent { source, .. } => Some(*source),
            Purpose::Learn { .. } => None,
        }
    }

    /// Bytes of the object that it brings; known once its head is.
    pub(crate) fn covers(&self) -> Range<u64> {
        self.state.lock().covers.clone()
    }

    /// Keeps a place for as long as it lasts.
    pub(crate) fn hold(&self, place: AheadPlace) {
        // It began with this place, so it has no other.
        let _ = self.place.set(place);
    }

    /// The filler asks the origin now.
    pub(crate) fn asks(&self) {
        self.state.lock().has_asked = true;
    }

    /// Whether the origin was asked already: what it answers may then be older than who comes now.
    pub(crate) fn has_asked(&self) -> bool {
        self.state.lock().has_asked
    }

    /// Whether its question asks for no less than a client with this directive would.
    pub(crate) fn gets_past(&self, wanted: Directive) -> bool {
        match &self.purpose {
            Purpose::Learn { directive, .. } => wanted == Directive::None || *directive == wanted,
            Purpose::Extent { .. } => false,
        }
    }

    /// Notes what caches behind this one say of the answer; before readers are told of it.
    pub(crate) fn note_behind(&self, behind: Behind) {
        // There is one answer, so there is nothing to replace.
        let _ = self.behind.set(behind);
    }

    /// What caches behind this one said of the answer.
    pub(crate) fn behind(&self) -> Behind {
        self.behind.get().cloned().unwrap_or_default()
    }

    pub(crate) fn set_task(&self, task: AbortHandle) {
        self.state.lock().task = Some(task);
    }

    /// Stops the filler if nobody reads.
    pub(crate) fn abort_unread(&self) {
        let task = {
            let mut state = self.state.lock();
            if state.reader_count == 0 {
                state.task.take()
            } else {
                None
            }
        };
        if let Some(task) = task {
            task.abort();
        }
    }

    /// The version whose bytes it brings, once it is known.
    pub(crate) fn version(&self) -> Option<Arc<Version>> {
        match &self.state.lock().head {
            Head::Version(version) => Some(Arc::clone(version)),
            Head::Awaited | Head::Unchanged(_) | Head::Changed | Head::Declined | Head::Failed => {
                None
            }
        }
    }

    /// The filler has the origin's answer: bytes of `version` follow.
    pub(crate) fn begin(&self, version: Arc<Version>, covers: Range<u64>, flow: Flow) {
        self.change(|state| {
            state.head = Head::Version(version);
            state.next = covers.start;
            // A page of which only the end comes is never stored.
            let first_page = flow.page_bytes.map_or(0, |page| page.ceil(covers.start));
            state.settled = first_page.min(covers.end);
            state.covers = covers;
            state.flow = flow;
        });
    }

    /// The filler has the origin's answer, and no bytes follow.
    pub(crate) fn conclude(&self, head: Head, own_answer: Option<Result<Response, Error>>) {
        self.change(|state| {
            state.head = head;
            state.own_answer = own_answer;
            state.end = Some(End::Whole);
        });
    }

    /// The filler ends, unless it has ended already.
    pub(crate) fn end(&self, end: End) {
        self.change(|state| {
            if state.end.is_none() {
                state.end = Some(end);
                if matches!(state.head, Head::Awaited) {
                    state.head = Head::Declined;
                }
            }
        });
    }

    /// Adds bytes that have arrived; returns the pages that are whole with them, but for the last
    /// of the body, which is whole only when the body has ended without an error.
    pub(crate) fn push(&self, bytes: Bytes) -> Result<Vec<PagePieces>, TooLong> {
        let mut whole = Vec::new();
        let mut bytes = bytes;
        let mut too_long = false;
        self.change(|state| {
            if bytes.len() as u64 > state.covers.end - state.next {
                too_long = true;
                return;
            }
            while !bytes.is_empty() {
                let page_end = state.page_end(state.next);
                let length = usize::try_from(page_end - state.next).unwrap_or(usize::MAX);
                let piece = bytes.split_to(length.min(bytes.len()));
                let start = state.next;
                state.next += piece.len() as u64;
                state.pieces.push_back(Piece {
                    start,
                    bytes: piece,
                });
                if state.next == page_end && state.next < state.covers.end {
                    whole.extend(state.page_before(page_end));
                }
            }
            state.prune();
        });
        if too_long { Err(TooLong) } else { Ok(whole) }
    }

    /// The last page, once the body has ended; `Err` when bytes are missing.
    pub(crate) fn last_page(&self) -> Result<Option<PagePieces>, End> {
        let state = self.state.lock();
        if state.next != state.covers.end {
            return Err(End::Broken);
        }
        Ok(state.page_before(state.covers.end))
    }

    /// The pages up to `end` are in the cache, or never will be: what readers have passed of them
    /// need not be kept.
    pub(crate) fn settle(&self, end: u64) {
        let mut state = self.state.lock();
        state.settled = end;
        state.prune();
    }

    /// Asks for the filler to be woken when something changes; ready when it may read on: `false`
    /// when there is nobody left to read for.
    pub(crate) fn poll_read_on(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if state.reader_count == 0 && state.covers.end - state.next > FINISH_BYTES_MAX {
            return Poll::Ready(false);
        }
        if !state
            .filler
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            state.filler = Some(cx.waker().clone());
        }
        state.paused = state.must_pause();
        if state.paused {
            Poll::Pending
        } else {
            Poll::Ready(true)
        }
    }

    /// Changes the state, then wakes all readers.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers: Vec<_> = {
            let mut state = self.state.lock();
            change(&mut state);
            state
                .readers
                .iter_mut()
                .flatten()
                .filter_map(|reader| reader.waker.take())
                .collect()
        };
        for waker in wakers {
            waker.wake();
        }
    }
}
