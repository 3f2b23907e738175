//! The thread that has the next segment ready, and makes the tables of those that were left.
//!
//! It never waits for the committer. Where the disk has no room it says so ([`Stock::is_full`]) and
//! tries again when it is asked to: after a write was refused, and when room was made.

use std::{collections::VecDeque, io, num::NonZeroU32, sync::Arc};

use parking_lot::{Condvar, Mutex};

use crate::{
    committer::{is_full, signed},
    format::{SegmentHead, SegmentNumber},
    log::Log,
    map::State as SegmentState,
    reads,
    scan::{self, Damage},
    table::Table,
};

/// Zeros are written in pieces of this, each synced, so that a sync of the log finds little of them
/// before it.
const ZEROS_BYTES: u64 = 1 << 20;

/// What the keeper has, and what it is asked for.
#[derive(Debug)]
pub(crate) struct Stock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The number of the next segment to be made.
    next: SegmentNumber,
    /// A segment that is ready.
    ready: Option<SegmentNumber>,
    /// Why a segment could not be made, or a table; nothing is tried until somebody asks.
    failed: Option<Failure>,
    /// Somebody waits for one: it need not be filled.
    is_wanted: bool,
    /// To be sealed, and where their records end.
    left: VecDeque<(SegmentNumber, u32)>,
    /// Blobs that nobody needs.
    blobs: Vec<u64>,
    /// Segments that were never written to.
    discarded: Vec<SegmentNumber>,
    is_sealing: bool,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    kind: io::ErrorKind,
    is_full: bool,
    /// Somebody has asked for another try.
    must_retry: bool,
}

/// What the keeper does next.
enum Task {
    Make(SegmentNumber),
    Seal(SegmentNumber, u32),
    Discard(SegmentNumber),
    RemoveBlobs(Vec<u64>),
    End,
}

impl Stock {
    /// None is ready; the last segment that there is has number `last`.
    pub(crate) fn new(last: SegmentNumber) -> Self {
        Self {
            state: Mutex::new(State {
                next: successor(last),
                ready: None,
                failed: None,
                is_wanted: false,
                left: VecDeque::new(),
                blobs: Vec::new(),
                discarded: Vec::new(),
                is_sealing: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next segment; waits until it is there, or can't be made.
    pub(crate) fn take(&self) -> io::Result<SegmentNumber> {
        let mut state = self.state.lock();
        loop {
            if let Some(ready) = state.ready.take() {
                state.is_wanted = false;
                self.changed.notify_all();
                return Ok(ready);
            }
            if let Some(failure) = state.failed {
                return Err(failure.kind.into());
            }
            if state.is_closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            state.is_wanted = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
    }

    /// Leaves a segment to be sealed.
    pub(crate) fn seal(&self, segment: SegmentNumber, end: u32) {
        self.state.lock().left.push_back((segment, end));
        self.changed.notify_all();
    }

    /// Leaves a segment to be removed that has nothing in it.
    pub(crate) fn discard(&self, segment: SegmentNumber) {
        self.state.lock().discarded.push(segment);
        self.changed.notify_all();
    }

    /// Leaves a blob to be removed.
    pub(crate) fn remove_blob(&self, blob: u64) {
        self.state.lock().blobs.push(blob);
        self.changed.notify_all();
    }

    /// Whether the disk had no room when last asked.
    pub(crate) fn is_full(&self) -> bool {
        self.state
            .lock()
            .failed
            .is_some_and(|failure| failure.is_full)
    }

    /// Tries again what failed.
    pub(crate) fn retry(&self) {
        let mut state = self.state.lock();
        if let Some(failure) = &mut state.failed {
            failure.must_retry = true;
            self.changed.notify_all();
        }
    }

    /// Waits until all segments that were left are sealed, or can't be.
    pub(crate) fn wait_for_seals(&self) {
        let mut state = self.state.lock();
        while (state.is_sealing || !state.left.is_empty()) && state.failed.is_none() {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until the next segment is there, or can't be made.
    #[cfg(test)]
    pub(crate) fn wait_until_ready(&self) {
        let mut state = self.state.lock();
        while state.ready.is_none() && state.failed.is_none() {
            self.changed.wait(&mut state);
        }
    }

    /// Lets the thread end, once what was left is sealed.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether somebody waits for a segment, or for the end.
    fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        state.is_wanted || state.is_closed
    }

    /// The next task; waits for one.
    fn next(&self) -> Task {
        let mut state = self.state.lock();
        loop {
            let can_try = state.failed.is_none_or(|failure| failure.must_retry);
            if can_try && state.ready.is_none() && !state.is_closed {
                state.begin_try();
                let made = state.next;
                state.next = successor(made);
                return Task::Make(made);
            }
            if let Some(segment) = state.discarded.pop() {
                return Task::Discard(segment);
            }
            if can_try && let Some((segment, end)) = state.left.pop_front() {
                state.begin_try();
                state.is_sealing = true;
                return Task::Seal(segment, end);
            }
            if !state.blobs.is_empty() {
                return Task::RemoveBlobs(std::mem::take(&mut state.blobs));
            }
            if state.is_closed {
                return Task::End;
            }
            self.changed.wait(&mut state);
        }
    }

    fn made(&self, segment: SegmentNumber, made: &io::Result<()>) {
        let mut state = self.state.lock();
        match made {
            Ok(()) => (state.ready, state.failed) = (Some(segment), None),
            Err(error) => {
                // There is none of it, so the next try may have the number.
                state.next = segment;
                state.failed = Some(Failure::of(error));
            }
        }
        self.changed.notify_all();
    }

    fn sealed(&self, segment: SegmentNumber, end: u32, sealed: &io::Result<()>) {
        let mut state = self.state.lock();
        state.is_sealing = false;
        if sealed.is_ok() && state.ready.is_some() {
            state.failed = None;
        }
        if let Err(error) = sealed {
            // Nothing depends on a table but a quick start, and room.
            state.failed = Some(Failure::of(error));
            if !state.is_closed {
                state.left.push_back((segment, end));
            }
        }
        self.changed.notify_all();
    }
}

impl State {
    fn begin_try(&mut self) {
        if let Some(failure) = &mut self.failed {
            failure.must_retry = false;
        }
    }
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            is_full: is_full(error),
            must_retry: false,
        }
    }
}

/// The number after it.
pub(crate) fn successor(segment: SegmentNumber) -> SegmentNumber {
    segment
        .checked_add(1)
        .unwrap_or_else(|| panic!("{} segments were made", NonZeroU32::MAX))
}

/// What the thread does until the log is closed.
pub(crate) fn run(log: &Arc<Log>) {
    loop {
        match log.stock.next() {
            Task::Make(segment) => {
                let made = make(log, segment);
                if let Err(error) = &made {
                    tracing::warn!(%segment, %error, "the next segment of a log can't be made");
                }
                log.stock.made(segment, &made);
            }
            Task::Seal(segment, end) => {
                let sealed = seal(log, segment, end);
                if let Err(error) = &sealed {
                    tracing::warn!(%segment, %error, "the table of a segment can't be made");
                }
                log.compaction.poke(log);
                log.stock.sealed(segment, end, &sealed);
            }
            Task::Discard(segment) => {
                if let Err(error) = log.devices.segments.remove(segment.get().into()) {
                    tracing::warn!(%segment, %error, "an unused segment can't be removed");
                }
            }
            Task::RemoveBlobs(blobs) => {
                for blob in blobs {
                    if let Err(error) = log.devices.blobs.remove(blob) {
                        tracing::warn!(blob, %error, "a blob can't be removed");
                    }
                }
                log.stock.retry();
            }
            Task::End => return,
        }
    }
}

/// Makes a segment and writes zeros to it, so that a sync later need not tell the file system of
/// more than bytes: by a third quicker on ext4.
fn make(log: &Log, segment: SegmentNumber) -> io::Result<()> {
    let device = &log.devices.segments;
    let (number, bytes) = (segment.get().into(), log.settings.segment_bytes);
    let made = device
        .make(number, bytes)
        .and_then(|()| device.sync(number));
    if let Err(error) = made {
        let _ = device.remove(number);
        return Err(error);
    }
    let piece_bytes = ZEROS_BYTES.min(bytes);
    let zeros = vec![0; usize::try_from(piece_bytes).expect("it is a mebibyte at most")];
    let mut offset = 0;
    while offset < bytes && !log.stock.is_wanted() {
        let length = (bytes - offset).min(piece_bytes);
        let piece = &zeros[..usize::try_from(length).expect("a piece at most")];
        let filled = device.write(number, offset, piece);
        if filled.and_then(|()| device.sync(number)).is_err() {
            // It has its room, which is what counts; of a disk that fails, a group will tell.
            break;
        }
        offset += length;
    }
    Ok(())
}

/// Makes the table of a segment from what is in it.
fn seal(log: &Log, segment: SegmentNumber, end: u32) -> io::Result<()> {
    let devices = &log.devices;
    let number = segment.get().into();
    let bytes = devices.segments.read(number, 0, end.into())?;
    let Ok(head) = SegmentHead::read(&bytes, segment) else {
        tracing::error!(%segment, "the head of a segment reads back damaged");
        return Ok(());
    };
    let scan = scan::scan(&bytes, &head, end.into());
    if !note_damage(log, segment, &scan.damage) {
        return Ok(());
    }
    drop(bytes);
    let mut table = Table {
        segment,
        previous: head.previous,
        end: end.into(),
        chain: scan.chain,
        sequence_next: scan.sequence_next,
        items: scan.items,
    };
    table.sort();
    let table = table.write();
    write_table(devices.tables.as_ref(), segment, &table)?;
    devices.segments.resize(number, end.into())?;
    let mut map = log.map.write();
    let usage = map.usage(segment);
    usage.state = SegmentState::Sealed;
    usage.file_bytes = u64::from(end) + table.len() as u64;
    let (bytes, count) = (map.file_bytes(), map.segments().count());
    log.metrics.segments_bytes.set(signed(bytes));
    log.metrics.segments.set(signed(count as u64));
    Ok(())
}

/// Writes a table over whatever is there.
pub(crate) fn write_table(
    device: &dyn forebay_disk::device::Device,
    segment: SegmentNumber,
    table: &[u8],
) -> io::Result<()> {
    let number = segment.get().into();
    device.remove(number)?;
    let written = device
        .make(number, 0)
        .and_then(|()| device.write(number, 0, table))
        .and_then(|()| device.sync(number));
    if written.is_err() {
        let _ = device.remove(number);
    }
    written
}

/// Quarantines what a scan found; `false` when names are hidden, so that no table can be made.
fn note_damage(log: &Log, segment: SegmentNumber, damage: &[Damage]) -> bool {
    let mut is_named = true;
    for damage in damage {
        match damage {
            Damage::Payload { name } => reads::check_now(log, name),
            Damage::Unnamed(span) => {
                is_named = false;
                tracing::error!(%segment, ?span, "a segment reads back damaged");
            }
            Damage::Head { offset } => {
                tracing::error!(%segment, offset, "the head of a record reads back damaged");
            }
        }
    }
    is_named
}
