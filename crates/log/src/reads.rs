//! Reads of entries, each checked before it is given to anyone.
//!
//! What the kernel has in memory is read at once, on the caller's thread: such a read is asked not
//! to wait for the disk. All others are made on a blocking thread. Compaction may take an entry
//! away between the look at the index and the read; then the index says where it is now.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_native::index::{Entry, Sequence, Want};
use forebay_store::Error;

use crate::{
    format::{self, At, ItemHead, Kind, PAYLOAD_TAIL_BYTES, Place},
    log::Log,
    map::{Slot, together},
};

/// Times that an entry may move while it is read; it moves once in a cycle of all segments.
const ATTEMPTS_MAX: usize = 5;

/// Why an entry could not be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It is not as it was written.
    Damaged(&'static str),
    /// The disk did not say.
    Io(io::Error),
}

/// Value and payload.
pub(crate) type Content = (Bytes, Option<Bytes>);

/// How a read is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// From memory, or not at all.
    Cached,
    Waiting,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Damaged("its segment is gone"),
            io::ErrorKind::UnexpectedEof => Self::Damaged("its segment is cut"),
            _ => Self::Io(error),
        }
    }
}

/// An entry by name.
pub(crate) async fn get(log: &Arc<Log>, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(slot) = log.map.read().get(name) else {
            return Ok(None);
        };
        let found = match content(log, name, &slot, want, How::Cached) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => {
                let (log, name) = (Arc::clone(log), Box::<[u8]>::from(name));
                let read = move || content(&log, &name, &slot, want, How::Waiting);
                let read = tokio::task::spawn_blocking(read).await;
                let read = read.map_err(|error| Error::internal("read an entry", error))?;
                read.map(|found| found.expect("a read that waits has an answer"))
            }
            Err(fault) => Err(fault),
        };
        match found {
            Ok(content) => return Ok(Some(entry(name, &slot, content))),
            Err(fault) if log.map.read().get(name) == Some(slot) => {
                return Err(told(log, name, slot, fault));
            }
            Err(_) => {}
        }
    }
    Err(Error::internal(
        "read an entry",
        "it moved at every attempt",
    ))
}

/// Entries that are looked up under one lock.
const RANGE_ENTRIES_MAX: usize = 1000;
/// Entries of a range that are read from memory on the caller's thread: 2 µs each.
const CACHED_ENTRIES_MAX: usize = 64;

/// The first entries of a range, without payloads; damaged ones are left out.
pub(crate) async fn range(
    log: &Arc<Log>,
    names: Range<Bytes>,
    entries_max: usize,
) -> Result<Vec<Entry>, Error> {
    let slots = slots(log, &names, entries_max.min(CACHED_ENTRIES_MAX + 1));
    if slots.is_empty() {
        return Ok(Vec::new());
    }
    if slots.len() <= CACHED_ENTRIES_MAX
        && let Some(entries) = values_cached(log, &slots)
    {
        return Ok(entries);
    }
    let log = Arc::clone(log);
    tokio::task::spawn_blocking(move || range_now(&log, names, entries_max))
        .await
        .map_err(|error| Error::internal("read entries", error))?
}

/// The same, on a thread that may block.
pub(crate) fn range_now(
    log: &Log,
    names: Range<Bytes>,
    entries_max: usize,
) -> Result<Vec<Entry>, Error> {
    let mut names = names;
    loop {
        let slots = slots(log, &names, entries_max.min(RANGE_ENTRIES_MAX));
        let Some((last, _)) = slots.last() else {
            return Ok(Vec::new());
        };
        // What comes right behind a name is the name and a zero.
        names.start = [last, &[0][..]].concat().into();
        let mut entries = Vec::with_capacity(slots.len());
        for (name, slot) in &slots {
            entries.extend(value_now(log, name, *slot)?);
        }
        if !entries.is_empty() {
            return Ok(entries);
        }
    }
}

fn slots(log: &Log, names: &Range<Bytes>, count_max: usize) -> Vec<(Box<[u8]>, Slot)> {
    let map = log.map.read();
    let owned = |(name, slot): (&[u8], Slot)| (Box::from(name), slot);
    map.range(&names.start[..]..&names.end[..])
        .take(count_max)
        .map(owned)
        .collect()
}

/// Entries that are in memory; `None` when some are not.
fn values_cached(log: &Log, slots: &[(Box<[u8]>, Slot)]) -> Option<Vec<Entry>> {
    let cached = |(name, slot): &(Box<[u8]>, Slot)| {
        let found = content(log, name, slot, Want::Value, How::Cached).ok()??;
        Some(entry(name, slot, found))
    };
    slots.iter().map(cached).collect()
}

/// An entry, or `None` when it has gone, or is damaged.
fn value_now(log: &Log, name: &[u8], first: Slot) -> Result<Option<Entry>, Error> {
    let mut slot = first;
    for _ in 0..ATTEMPTS_MAX {
        let fault = match content(log, name, &slot, Want::Value, How::Waiting) {
            Ok(Some(found)) => return Ok(Some(entry(name, &slot, found))),
            Ok(None) => return Ok(None),
            Err(fault) => fault,
        };
        match log.map.read().get(name) {
            None => return Ok(None),
            Some(now) if now != slot => slot = now,
            Some(_) => {
                return match fault {
                    // One bad entry must not hide the others of a listing.
                    Fault::Damaged(found) => {
                        log.quarantine(name, slot.sequence, found);
                        Ok(None)
                    }
                    Fault::Io(error) => Err(Error::internal("read an entry", error)),
                };
            }
        }
    }
    Err(Error::internal(
        "read an entry",
        "it moved at every attempt",
    ))
}

/// Value and payload of an entry that stands there, on a thread that may block.
pub(crate) fn entry_now(log: &Log, name: &[u8], slot: &Slot) -> Result<Content, Fault> {
    let found = content(log, name, slot, Want::Payload, How::Waiting)?;
    Ok(found.expect("a read that waits has an answer"))
}

/// Reads an entry, and quarantines it if it is damaged.
pub(crate) fn check_now(log: &Log, name: &[u8]) {
    let slot = log.map.read().get(name);
    if let Some(slot) = slot
        && let Err(Fault::Damaged(found)) = entry_now(log, name, &slot)
        && log.map.read().get(name) == Some(slot)
    {
        log.quarantine(name, slot.sequence, found);
    }
}

fn entry(name: &[u8], slot: &Slot, (value, payload): Content) -> Entry {
    Entry {
        name: Bytes::copy_from_slice(name),
        sequence: Sequence(slot.sequence),
        value,
        payload,
    }
}

/// Quarantines an entry that is damaged, and says what a client is told.
fn told(log: &Log, name: &[u8], slot: Slot, fault: Fault) -> Error {
    match fault {
        Fault::Damaged(found) => {
            log.quarantine(name, slot.sequence, found);
            let context = format!("read entry {}", name.escape_ascii());
            Error::internal(context, format!("it is damaged: {found}"))
        }
        Fault::Io(error) => Error::internal("read an entry", error),
    }
}

/// Reads an entry; `None` when that would have to wait.
fn content(
    log: &Log,
    name: &[u8],
    slot: &Slot,
    want: Want,
    how: How,
) -> Result<Option<Content>, Fault> {
    let payload = slot.payload.filter(|_| want == Want::Payload);
    let in_one = payload.and_then(|_| together(slot));
    let first = Place {
        bytes: in_one.unwrap_or(slot.item.bytes),
        ..slot.item
    };
    let Some(bytes) = read(log, first, how)? else {
        return Ok(None);
    };
    let at = At {
        segment: slot.item.segment,
        offset: slot.item.offset,
    };
    let head = ItemHead::read(&bytes, at).ok_or(Fault::Damaged("its record is damaged"))?;
    let is_it = bytes[head.name()] == *name && head.sequence == slot.sequence;
    match head.kind {
        Kind::Put if is_it => {}
        Kind::Lost if is_it => return Err(Fault::Damaged("it was damaged when it was moved")),
        Kind::Put | Kind::Lost | Kind::Delete | Kind::Add | Kind::Total => {
            return Err(Fault::Damaged("its place is another's"));
        }
    }
    let item_end = head.item_bytes();
    let bytes = Bytes::from(bytes);
    let value = bytes.slice(head.value());
    let payload = match (payload, in_one) {
        (None, _) => None,
        (Some(place), Some(_)) => Some(checked(&bytes.slice(item_end..), place)?),
        (Some(place), None) => {
            let with_tail = Place {
                bytes: place.bytes + u32::try_from(PAYLOAD_TAIL_BYTES).expect("it is 8"),
                ..place
            };
            match read(log, with_tail, how)? {
                Some(bytes) => Some(checked(&bytes.into(), place)?),
                None => return Ok(None),
            }
        }
    };
    Ok(Some((value, payload)))
}

/// A payload, without what stands behind it.
fn checked(bytes: &Bytes, place: Place) -> Result<Bytes, Fault> {
    let payload = format::payload_in(bytes, place.segment, place.offset);
    let length = payload.map(<[u8]>::len);
    let length = length.ok_or(Fault::Damaged("its payload is damaged"))?;
    Ok(bytes.slice(..length))
}

fn read(log: &Log, place: Place, how: How) -> io::Result<Option<Vec<u8>>> {
    let device = &log.devices.segments;
    let (segment, offset) = (place.segment.get().into(), place.offset.into());
    let bytes = place.bytes.into();
    match how {
        How::Cached => device.read_cached(segment, offset, bytes),
        How::Waiting => device.read(segment, offset, bytes).map(Some),
    }
}
