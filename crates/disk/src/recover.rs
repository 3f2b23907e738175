//! What an earlier process left: which segments there are, and what is in them.
//!
//! A sealed segment says so at its end. Another one is scanned, from head to head, up to the first
//! that is none, and sealed. Pages are not read: a torn one is found when it is asked for.
//!
//! Segments make room in the order of their numbers, so those before a gap had made room already
//! and were brought back by a crash. They may hold what was removed since, and go. So do those
//! before a segment that can't be read: it may have said what of theirs was replaced.

use std::{io, thread};

use crate::{
    device::Device,
    folder::OpenError,
    format::{
        self, BadHead, ENTRY_HEAD_BYTES, Item, SEGMENT_HEAD_BYTES, TRAILER_BYTES, UNIT_BYTES,
    },
    index::SEGMENTS_MAX,
    shelf::Shelf,
    store::PURPOSE,
    writer,
};

/// Readers at once: a disk answers them faster than one after the other.
const THREADS: usize = 8;
/// Segments whose contents are in memory at once, besides the index.
const CHUNK_SEGMENTS: usize = 64;
/// What is read at once when a segment's entries, or its footer, are looked at.
const WINDOW_BYTES: u64 = 64 * 1024;

/// What was found in a segment.
#[derive(Debug)]
struct Contents {
    segment: u64,
    bytes: u64,
    items: Vec<Item>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// All that it says is known.
    Whole,
    /// It may say more.
    Unreadable,
}

/// Fills the shelf.
pub(crate) fn recover(shelf: &Shelf, device: &dyn Device) -> Result<(), OpenError> {
    let unusable = |source: io::Error| OpenError::Unusable {
        path: shelf.settings.folder.clone(),
        source,
    };
    let segments = present(device).map_err(unusable)?;
    let newest = segments.last().map(|(segment, _)| *segment);
    for chunk in segments.chunks(CHUNK_SEGMENTS) {
        let per_thread = chunk.len().div_ceil(THREADS);
        let contents = thread::scope(|scope| {
            let readers: Vec<_> = chunk
                .chunks(per_thread)
                .map(|part| {
                    let read = |found: &(u64, u64)| contents_of(device, *found);
                    scope.spawn(move || part.iter().map(read).collect::<Result<Vec<_>, _>>())
                })
                .collect();
            let join = |reader: thread::ScopedJoinHandle<'_, _>| match reader.join() {
                Ok(contents) => contents,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            readers.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        });
        let contents = contents.map_err(|version| OpenError::UnknownVersion {
            path: shelf.settings.folder.clone(),
            known: PURPOSE.version,
            remedy: PURPOSE.remedy,
            found: version.to_string(),
        })?;
        for contents in contents.into_iter().flatten() {
            let segment = contents.segment;
            shelf.adopt(segment, contents.bytes, &contents.items);
            // Of the newest, a crash may have left anything.
            let hides = contents.state == State::Unreadable && Some(segment) != newest;
            while let Some(oldest) = shelf.oldest().filter(|oldest| hides && *oldest < segment) {
                device.remove(oldest).map_err(unusable)?;
                shelf.evict(oldest);
            }
            // The capacity may be smaller than it was.
            while let Some(oldest) = shelf.oldest_without_room(0) {
                device.remove(oldest).map_err(unusable)?;
                shelf.evict(oldest);
            }
        }
    }
    Ok(())
}

/// The segments after the last gap, in order; others are removed.
fn present(device: &dyn Device) -> io::Result<Vec<(u64, u64)>> {
    let mut segments = device.list()?;
    segments.sort_unstable();
    let has_gap = |pair: &[(u64, u64)]| pair[0].0 + 1 != pair[1].0;
    let after_gap = segments
        .windows(2)
        .rposition(has_gap)
        .map_or(0, |at| at + 1);
    let beyond_max = segments
        .len()
        .saturating_sub(format::size(SEGMENTS_MAX - 2));
    let kept = segments.split_off(after_gap.max(beyond_max));
    for (segment, _) in segments {
        device.remove(segment)?;
    }
    Ok(kept)
}

/// What is in a segment. `Err` is a version that is not ours.
fn contents_of(device: &dyn Device, (segment, bytes): (u64, u64)) -> Result<Contents, u32> {
    let contents = |items, bytes, state| Contents {
        segment,
        bytes,
        items,
        state,
    };
    if let Some(items) = sealed_items(device, segment, bytes) {
        return Ok(contents(items, bytes, State::Whole));
    }
    let Ok(head) = device.read(segment, 0, SEGMENT_HEAD_BYTES.min(bytes)) else {
        return Ok(contents(Vec::new(), bytes, State::Unreadable));
    };
    match format::check_segment_head(&head, segment) {
        Ok(()) => {}
        Err(BadHead::Version(version)) => return Err(version),
        // A segment whose first write has failed is empty.
        Err(BadHead::Damaged) if bytes == 0 => {
            return Ok(contents(Vec::new(), bytes, State::Whole));
        }
        Err(BadHead::Damaged) => return Ok(contents(Vec::new(), bytes, State::Unreadable)),
    }
    let (items, end, state) = scan(device, segment, bytes);
    // What can't be sealed is scanned again the next time.
    let bytes = match state {
        State::Whole => writer::seal(device, segment, end, &items).unwrap_or(bytes),
        State::Unreadable => bytes,
    };
    Ok(contents(items, bytes, state))
}

/// The items of a segment's footer, if it has a whole one.
fn sealed_items(device: &dyn Device, segment: u64, bytes: u64) -> Option<Vec<Item>> {
    let window = WINDOW_BYTES.min(bytes);
    let end = device.read(segment, bytes - window, window).ok()?;
    let trailer = end.len().checked_sub(format::size(TRAILER_BYTES))?;
    let length = format::footer_length(&end[trailer..], segment)?;
    if length <= window {
        return format::items(&end[format::size(window - length)..]);
    }
    let start = bytes.checked_sub(length)?;
    format::items(&device.read(segment, start, length).ok()?)
}

/// The entries of a segment up to where they stop making sense, and where that is.
fn scan(device: &dyn Device, segment: u64, bytes: u64) -> (Vec<Item>, u64, State) {
    let (mut items, mut at) = (Vec::new(), SEGMENT_HEAD_BYTES);
    let (mut window, mut window_at) = (Vec::new(), 0);
    while at + ENTRY_HEAD_BYTES <= bytes {
        let window_end = window_at + window.len() as u64;
        if at + ENTRY_HEAD_BYTES > window_end {
            let length = WINDOW_BYTES.min(bytes - at);
            match device.read(segment, at, length) {
                Ok(read) => (window, window_at) = (read, at),
                Err(_) => return (items, at, State::Unreadable),
            }
        }
        let head = &window[format::size(at - window_at)..];
        let Some(item) = format::entry_head(head, segment, at) else {
            break;
        };
        if at + item.entry_bytes() > bytes {
            break;
        }
        at += item.entry_bytes();
        items.push(item);
    }
    debug_assert_eq!(at % UNIT_BYTES, 0);
    (items, at, State::Whole)
}
