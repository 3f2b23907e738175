//! What a fill and its readers share, behind its lock.

use std::{
    collections::VecDeque,
    ops::Range,
    task::{Context, Waker},
};

use bytes::Bytes;
use forebay_store::{Error, Response};
use tokio::task::AbortHandle;

use super::{End, Flow, Head, PagePieces, Step};

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    pub head: Head,
    /// The request is on its way to the origin, or was.
    pub has_asked: bool,
    /// The answer that is for nobody but the leader.
    pub own_answer: Option<Result<Response, Error>>,
    pub flow: Flow,
    /// Bytes of the object that the body has.
    pub covers: Range<u64>,
    /// Offset of the next byte to arrive.
    pub next: u64,
    /// Pages up to here are in the cache, or never will be.
    pub settled: u64,
    pub pieces: VecDeque<Piece>,
    pub end: Option<End>,
    pub readers: Vec<Option<ReaderState>>,
    pub reader_count: usize,
    /// The filler, while it waits for bytes or for readers.
    pub filler: Option<Waker>,
    /// It waits for readers.
    pub paused: bool,
    pub task: Option<AbortHandle>,
}

/// Bytes that are kept, and where they begin.
#[derive(Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub bytes: Bytes,
}

/// A reader, as the filler sees it.
#[derive(Debug)]
pub(super) struct ReaderState {
    pub position: u64,
    /// Where it goes on without this fill.
    pub leaves_at: u64,
    pub waker: Option<Waker>,
}

impl State {
    /// A fill that has asked, for these bytes if it is known for which.
    pub(super) fn new(covers: Range<u64>) -> Self {
        Self {
            head: Head::Awaited,
            has_asked: false,
            own_answer: None,
            flow: Flow {
                ahead_bytes_max: 0,
                page_bytes: None,
            },
            next: covers.start,
            settled: covers.start,
            covers,
            pieces: VecDeque::new(),
            end: None,
            readers: Vec::new(),
            reader_count: 0,
            filler: None,
            paused: false,
            task: None,
        }
    }

    /// End of the page that holds the byte at `offset`, or of the body.
    pub(super) fn page_end(&self, offset: u64) -> u64 {
        let end = self
            .flow
            .page_bytes
            .map_or(u64::MAX, |page| page.ceil(offset + 1));
        end.min(self.covers.end)
    }

    /// The page that ends at `end`, when all of it has come through this fill.
    pub(super) fn page_before(&self, end: u64) -> Option<PagePieces> {
        let start = self.flow.page_bytes?.floor(end.checked_sub(1)?);
        if start < self.covers.start {
            return None;
        }
        let pieces = self
            .pieces
            .iter()
            .filter(|piece| (start..end).contains(&piece.start));
        Some(PagePieces {
            start,
            end,
            pieces: pieces.map(|piece| piece.bytes.clone()).collect(),
        })
    }

    /// The furthest position of a reader; with none there is nothing to wait for.
    pub(super) fn fastest(&self) -> u64 {
        let positions = self.readers.iter().flatten().map(|reader| reader.position);
        positions.max().unwrap_or(self.next)
    }

    pub(super) fn must_pause(&self) -> bool {
        let readers = self.readers.iter().flatten();
        let wanted_to = |reader: &ReaderState| {
            let ahead = reader.position.saturating_add(self.flow.ahead_bytes_max);
            ahead.min(reader.leaves_at)
        };
        let wanted_to = readers.map(wanted_to).max().unwrap_or(u64::MAX);
        self.next >= wanted_to && self.next < self.covers.end
    }

    /// The filler, when it waits for readers and need not any longer.
    pub(super) fn resume(&mut self) -> Option<Waker> {
        if !self.paused || self.must_pause() {
            return None;
        }
        self.paused = false;
        self.filler.take()
    }

    /// Lets go what the fastest reader has passed, but for pages that are not settled and the last
    /// one: readers that come later have no other place for them.
    pub(super) fn prune(&mut self) {
        let passed = self.fastest();
        let keep_from = match self.flow.page_bytes {
            None => passed,
            Some(page) => passed
                .min(self.settled)
                .min(page.floor(self.covers.end.saturating_sub(1))),
        };
        while self
            .pieces
            .front()
            .is_some_and(|piece| piece.end() <= keep_from)
        {
            self.pieces.pop_front();
        }
    }

    /// Wakes this reader at the next change.
    pub(super) fn wait(&mut self, slot: usize, cx: &Context<'_>) {
        if let Some(reader) = &mut self.readers[slot] {
            reader.waker = Some(cx.waker().clone());
        }
    }

    /// What a reader finds at `position`, when it wants no more than up to `end`.
    pub(super) fn step(&self, position: u64, end: u64) -> Option<Step> {
        match self.head {
            Head::Changed => return Some(Step::Changed),
            Head::Declined | Head::Failed | Head::Unchanged(_) => return Some(Step::Broken),
            Head::Awaited | Head::Version(_) => {}
        }
        let at = self.pieces.partition_point(|piece| piece.end() <= position);
        if let Some(piece) = self.pieces.get(at).filter(|piece| piece.start <= position) {
            let from = usize::try_from(position - piece.start).unwrap_or(usize::MAX);
            let to = usize::try_from(end - piece.start).unwrap_or(usize::MAX);
            return Some(Step::Bytes(
                piece.bytes.slice(from..to.min(piece.bytes.len())),
            ));
        }
        if position < self.next {
            return Some(Step::Behind);
        }
        if position >= self.covers.end && !matches!(self.head, Head::Awaited) {
            return Some(Step::Past);
        }
        match self.end {
            Some(End::Broken) => Some(Step::Broken),
            Some(End::Whole) => Some(Step::Past),
            None => None,
        }
    }
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}
