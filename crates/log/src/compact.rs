//! Makes room: moves what lives in the oldest segment to the end of the log, and removes it.
//!
//! Always the oldest, as then a delete may be forgotten together with its segment: whatever it
//! deleted lay before it, and is gone. What is moved goes through the committer, in steps of
//! [`STEP_BYTES_MAX`], each of which joins a group; so a writer waits for one step at most.

use std::{collections::BTreeSet, io, sync::Arc};

use forebay_store::Error;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::{
    committer::signed,
    format::{SegmentHead, SegmentNumber},
    group::{Moved, Room},
    log::{Job, Log},
    map::{Map, Slot, State as SegmentState, Usage},
    reads::{self, Fault},
    scan::{self, Item},
    table::Table,
};

/// Bytes that join one group: half a millisecond of a disk that writes 500 MB/s. One entry goes
/// alone if it is larger.
pub(crate) const STEP_BYTES_MAX: usize = 256 << 10;
/// Entries that join one group: half a millisecond of the committer's time at 2 µs each.
pub(crate) const STEP_ENTRIES_MAX: usize = 256;
/// Garbage is left until it is this part of the log: what lives is then written twice at most, on
/// average, and the log takes twice its room.
const GARBAGE_SHARE: u64 = 2;
/// The same when there is no room for writes.
const GARBAGE_SHARE_PRESSED: u64 = 16;

/// Passes over a segment: an entry needs another when its value is written while it is read.
const PASSES_MAX: usize = 100;

/// What the compacting thread is asked for.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody found that there is something to do.
    is_poked: bool,
    /// An operator wants all segments compacted up to this one.
    through: Option<SegmentNumber>,
    is_busy: bool,
    is_closed: bool,
    /// Why the last segment could not be compacted.
    failed: Option<String>,
}

/// The oldest segment, if it should be compacted now.
pub(crate) fn due(map: &Map, room: Room, segment_bytes: u64) -> Option<SegmentNumber> {
    let (oldest, usage) = map.segments().next()?;
    if usage.state != SegmentState::Sealed {
        return None;
    }
    if usage.live_bytes == 0 {
        return Some(oldest);
    }
    let sealed = |(_, usage): &(SegmentNumber, Usage)| usage.state == SegmentState::Sealed;
    let (mut file_bytes, mut live_bytes) = (0, 0);
    for (_, usage) in map.segments().filter(sealed) {
        file_bytes += usage.file_bytes;
        live_bytes += usage.live_bytes;
    }
    let garbage_bytes = file_bytes.saturating_sub(live_bytes);
    let is_due = match room {
        Room::Enough => garbage_bytes > segment_bytes && garbage_bytes > file_bytes / GARBAGE_SHARE,
        Room::None => {
            garbage_bytes > segment_bytes && garbage_bytes > file_bytes / GARBAGE_SHARE_PRESSED
        }
    };
    is_due.then_some(oldest)
}

impl Compaction {
    /// Wakes the thread if there is something to do.
    pub(crate) fn poke(&self, log: &Log) {
        let room = log.room();
        if due(&log.map.read(), room, log.settings.segment_bytes).is_some() {
            self.state.lock().is_poked = true;
            self.changed.notify_all();
        }
    }

    /// Has all segments compacted up to that one, and waits until they are.
    pub(crate) fn run_through(&self, segment: SegmentNumber) -> Result<(), String> {
        let mut state = self.state.lock();
        state.failed = None;
        state.through = state.through.max(Some(segment));
        self.changed.notify_all();
        while state.through.is_some() && state.failed.is_none() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        state.through = None;
        state.failed.take().map_or(Ok(()), Err)
    }

    /// Waits until there is nothing to do.
    #[cfg(test)]
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        while state.is_busy || state.is_poked {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Waits for something to do; `None` at the end.
    fn next(&self, log: &Log) -> Option<SegmentNumber> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                state.through = None;
                self.changed.notify_all();
                return None;
            }
            state.is_poked = false;
            state.is_busy = true;
            let through = state.through;
            drop(state);
            let found = log.compactable(through);
            state = self.state.lock();
            if found.is_some() {
                return found;
            }
            state.is_busy = false;
            if state.through == through {
                state.through = None;
            }
            self.changed.notify_all();
            while !state.is_poked && state.through.is_none() && !state.is_closed {
                self.changed.wait(&mut state);
            }
        }
    }

    fn ended(&self, failed: Option<String>) {
        let mut state = self.state.lock();
        state.is_busy = false;
        if failed.is_some() {
            // It is tried again when somebody finds that there is something to do.
            (state.failed, state.through) = (failed, None);
        }
        self.changed.notify_all();
    }
}

impl Log {
    fn compactable(&self, through: Option<SegmentNumber>) -> Option<SegmentNumber> {
        let room = self.room();
        let map = self.map.read();
        let (oldest, usage) = map.segments().next()?;
        let is_asked = Some(oldest) <= through && usage.state == SegmentState::Sealed;
        if is_asked {
            return Some(oldest);
        }
        due(&map, room, self.settings.segment_bytes)
    }
}

/// What the thread does until the log is closed.
pub(crate) fn run(log: &Arc<Log>) {
    while let Some(segment) = log.compaction.next(log) {
        let failed = compact(log, segment).err();
        if let Some(reason) = &failed {
            tracing::warn!(%segment, %reason, "a segment can't be compacted");
        }
        let must_pause = failed.is_some();
        log.compaction.ended(failed);
        if must_pause {
            log.compaction.pause();
        }
    }
}

impl Compaction {
    /// Waits for the next poke, so that a failure is not repeated in a loop.
    fn pause(&self) {
        let mut state = self.state.lock();
        state.is_poked = false;
        while !state.is_poked && state.through.is_none() && !state.is_closed {
            self.changed.wait(&mut state);
        }
    }
}

/// Moves what lives in a segment, the oldest, and removes it.
fn compact(log: &Arc<Log>, segment: SegmentNumber) -> Result<(), String> {
    log.check_poison().map_err(|error| error.to_string())?;
    let items = items_of(log, segment).map_err(|error| error.to_string())?;
    let counters: BTreeSet<Box<[u8]>> = items
        .iter()
        .filter(|item| item.kind.is_counter())
        .map(|item| item.name.clone())
        .collect();
    submit(log, Vec::new(), counters.into_iter().collect())?;
    for _ in 0..PASSES_MAX {
        move_all(log, segment, &items)?;
        if log.compaction.is_closed() {
            return Ok(());
        }
        if log.map.write().usage(segment).live_bytes == 0 {
            return remove(log, segment);
        }
    }
    Err("its entries were written again at each pass".to_owned())
}

/// Moves what lives of these items of a segment. Entries whose value is written meanwhile, and
/// whose payload stays, are left for another pass.
fn move_all(log: &Arc<Log>, segment: SegmentNumber, items: &[Item]) -> Result<(), String> {
    let (mut step, mut step_bytes) = (Vec::new(), 0);
    let mut last: Option<&[u8]> = None;
    for item in items.iter().filter(|item| !item.kind.is_counter()) {
        // Items of a name stand together.
        if last.replace(&item.name) == Some(&*item.name) {
            continue;
        }
        let slot = log.map.read().get(&item.name);
        let Some(slot) = slot.filter(|slot| slot.is_in(segment)) else {
            continue;
        };
        let Some(moved) = read(log, &item.name, slot).map_err(|error| error.to_string())? else {
            continue;
        };
        let bytes = moved.bytes_max();
        if !step.is_empty()
            && (step_bytes + bytes > STEP_BYTES_MAX || step.len() >= STEP_ENTRIES_MAX)
        {
            submit(log, std::mem::take(&mut step), Vec::new())?;
            step_bytes = 0;
        }
        step_bytes += bytes;
        step.push(moved);
        if log.compaction.is_closed() {
            return Ok(());
        }
    }
    submit(log, step, Vec::new())
}

/// Removes a segment that nothing points to.
fn remove(log: &Log, segment: SegmentNumber) -> Result<(), String> {
    let mut map = log.map.write();
    map.forget(segment);
    let (bytes, count) = (map.file_bytes(), map.segments().count());
    let next = map.segments().next();
    drop(map);
    log.metrics.segments_bytes.set(signed(bytes));
    log.metrics.segments.set(signed(count as u64));
    let devices = &log.devices;
    let number = segment.get().into();
    let removed = devices.segments.remove(number).and_then(|()| {
        // Deletes in the next one are needed until this one is gone for good.
        let next = next.map_or(number, |(next, _)| next.get().into());
        devices.segments.sync(next)
    });
    if let Err(error) = removed {
        log.set_poison("remove a segment", &error);
        return Err(error.to_string());
    }
    let _ = devices.tables.remove(number);
    log.metrics.compacted_segments.inc();
    log.stock.retry();
    Ok(())
}

/// The items of a sealed segment: from its table, or from itself where that is damaged.
pub(crate) fn items_of(log: &Log, segment: SegmentNumber) -> io::Result<Vec<Item>> {
    let number: u64 = segment.get().into();
    if let Ok(Some(table)) = crate::recover::read_table(&log.devices, segment) {
        return Ok(table.items);
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "segment and table are damaged");
    let all = log.devices.segments.list()?;
    let found = all.into_iter().find(|(found, _)| *found == number);
    let (_, length) = found.ok_or(io::ErrorKind::NotFound)?;
    let bytes = log.devices.segments.read(number, 0, length)?;
    let head = SegmentHead::read(&bytes, segment).map_err(|_| damaged())?;
    let scan = scan::scan(&bytes, &head, length);
    let is_unnamed = |damage: &scan::Damage| matches!(damage, scan::Damage::Unnamed(_));
    if scan.damage.iter().any(is_unnamed) {
        return Err(damaged());
    }
    let mut table = Table {
        segment,
        previous: head.previous,
        end: length,
        chain: scan.chain,
        sequence_next: scan.sequence_next,
        items: scan.items,
    };
    table.sort();
    Ok(table.items)
}

/// Reads an entry that is to move; `None` when it has gone meanwhile.
fn read(log: &Log, name: &[u8], slot: Slot) -> io::Result<Option<Moved>> {
    let found = match reads::entry_now(log, name, &slot) {
        Ok(entry) => Some(entry),
        Err(Fault::Damaged(found)) => {
            if log.map.read().get(name) != Some(slot) {
                return Ok(None);
            }
            log.quarantine(name, slot.sequence, found);
            None
        }
        Err(Fault::Io(error)) => return Err(error),
    };
    Ok(Some(Moved {
        name: name.into(),
        from: slot,
        found,
    }))
}

/// Has the committer take a step, and waits until it is durable.
fn submit(log: &Log, moved: Vec<Moved>, counters: Vec<Box<[u8]>>) -> Result<(), String> {
    if moved.is_empty() && counters.is_empty() {
        return Ok(());
    }
    let bytes: usize = moved.iter().map(Moved::bytes_max).sum();
    let (reply, answer) = oneshot::channel();
    let job = Job::Move {
        moved,
        counters,
        reply,
    };
    if log.queue.push(job).is_err() {
        return Err("too much waits to be written".to_owned());
    }
    match answer.blocking_recv() {
        Ok(Ok(count)) => {
            log.metrics.moved_entries.inc_by(count as u64);
            log.metrics.moved_bytes.inc_by(bytes as u64);
            Ok(())
        }
        Ok(Err(error)) => Err(told(&error)),
        Err(_) => Err("the log is closed".to_owned()),
    }
}

fn told(error: &Error) -> String {
    error.to_string()
}
