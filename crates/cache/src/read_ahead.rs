//! Notices who reads an object from front to back in ranges, and says what to fetch before it is
//! asked for.
//!
//! Called for each ranged read of an object of more than one page, hits included; answers with
//! bytes to fetch, or with nothing. A *stream* is one such reader. From its third read on its
//! *window* is fetched ahead of it, in one request while the one before is being read; the window
//! doubles with each one used, up to an extent. A stream that ends with more than half of what was
//! fetched for it unread halves the largest window for all, and one that has used a window doubles
//! it again: so readers that only look sequential cost little, and less each time.
//!
//! Streams are few and forgotten in the order of their last use; one that is forgotten too early
//! only begins anew.
//! Not here: the fetching (`layer`), and the extents of one long answer (`reader`).

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use crate::{ask::EXTENT_BYTES_MAX, settings::PageBytes, version::Vid};

/// Sets of streams; a version's are in one. A power of two.
const SET_COUNT: usize = 256;
/// Streams of one set: readers of one object at different places, or of objects that share a set.
const STREAMS_MAX: usize = 8;
/// Reads in a row that make a stream: two can follow each other by chance, as the two halves of a
/// file's footer do.
const READS_MIN: u32 = 3;
/// Windows being fetched at once, all streams together. A guess: at 8 MiB each half a GiB.
const AHEAD_FILLS_MAX: usize = 64;

/// The streams of one layer.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    sets: Box<[Mutex<Set>]>,
    /// Largest window at present.
    window_bytes_max: AtomicU64,
    /// One count for each place that is taken, and one for the places.
    places: Arc<()>,
    wasted_bytes: Counter,
}

/// A place among the fills that nobody waits for; given back when dropped.
#[derive(Debug)]
pub(crate) struct AheadPlace {
    _counted: Arc<()>,
}

#[derive(Debug, Default)]
struct Set {
    streams: Vec<Stream>,
}

/// One reader of one version; the last used is the last of its set.
#[derive(Debug, Clone)]
struct Stream {
    vid: Vid,
    /// Where its next read begins.
    next: u64,
    /// Up to where it was fetched ahead.
    ahead_to: u64,
    /// What was fetched for it.
    fetched_bytes: u64,
    window_bytes: u64,
    reads: u32,
}

/// A read, as far as it counts here.
#[derive(Debug, Clone)]
pub(crate) struct RangeRead {
    pub vid: Vid,
    pub page_bytes: PageBytes,
    /// Size of the object.
    pub size_bytes: u64,
    pub range: Range<u64>,
}

impl ReadAhead {
    /// No streams yet; what is fetched in vain is counted in `wasted_bytes`.
    pub(crate) fn new(wasted_bytes: Counter) -> Self {
        Self {
            sets: (0..SET_COUNT).map(|_| Mutex::default()).collect(),
            window_bytes_max: EXTENT_BYTES_MAX.into(),
            places: Arc::default(),
            wasted_bytes,
        }
    }

    /// A place for one more fill that nobody waits for, if there is one.
    pub(crate) fn place(&self) -> Option<AheadPlace> {
        // Two that come at once may both find the last place: the bound is no exact one.
        (Arc::strong_count(&self.places) <= AHEAD_FILLS_MAX).then(|| AheadPlace {
            _counted: Arc::clone(&self.places),
        })
    }

    /// Takes note of a read; returns the bytes to fetch now, if any.
    pub(crate) fn note(&self, read: &RangeRead) -> Option<Range<u64>> {
        let mut set = self.sets[read.vid.0 as usize & (SET_COUNT - 1)].lock();
        let at = set.streams.iter().position(|stream| stream.goes_on(read));
        let mut stream = at.map_or_else(|| Stream::of(read), |at| set.streams.remove(at));
        stream.next = read.range.end.max(stream.next);
        stream.reads += 1;
        let ends = stream.next >= read.size_bytes;
        let ahead = (!ends && stream.reads >= READS_MIN)
            .then(|| self.window(&mut stream, read))
            .flatten();
        if ends {
            return None;
        }
        if set.streams.len() == STREAMS_MAX {
            let forgotten = set.streams.remove(0);
            self.judge(&forgotten);
        }
        set.streams.push(stream);
        ahead
    }

    /// The next window of a stream, once it has read half of the last.
    fn window(&self, stream: &mut Stream, read: &RangeRead) -> Option<Range<u64>> {
        let left = stream.ahead_to.saturating_sub(stream.next);
        if left > stream.window_bytes / 2 {
            return None;
        }
        let is_used = stream.fetched_bytes > 0;
        if is_used {
            self.grow();
        }
        let page_bytes = read.page_bytes.get();
        let max = self
            .window_bytes_max
            .load(Ordering::Relaxed)
            .max(page_bytes);
        let wanted = if is_used {
            stream.window_bytes.saturating_mul(2)
        } else {
            (read.range.end - read.range.start).saturating_mul(2)
        };
        stream.window_bytes = wanted.clamp(page_bytes, max);
        let start = stream.ahead_to.max(stream.next);
        let end = read
            .page_bytes
            .ceil(start + stream.window_bytes)
            .min(read.size_bytes);
        if start >= end {
            return None;
        }
        stream.ahead_to = end;
        stream.fetched_bytes += end - start;
        Some(start..end)
    }

    /// A stream is over: was what was fetched for it read?
    fn judge(&self, stream: &Stream) {
        let wasted_bytes = stream.ahead_to.saturating_sub(stream.next);
        self.wasted_bytes.inc_by(wasted_bytes);
        if wasted_bytes > stream.fetched_bytes / 2 {
            self.change_max(|max| max / 2);
        }
    }

    fn grow(&self) {
        self.change_max(|max| max * 2);
    }

    fn change_max(&self, change: impl Fn(u64) -> u64) {
        let max = self.window_bytes_max.load(Ordering::Relaxed);
        let changed = change(max).clamp(PageBytes::MIN.get(), EXTENT_BYTES_MAX);
        if changed != max {
            self.window_bytes_max.store(changed, Ordering::Relaxed);
        }
    }
}

impl Stream {
    fn of(read: &RangeRead) -> Self {
        Self {
            vid: read.vid,
            next: read.range.end,
            ahead_to: 0,
            fetched_bytes: 0,
            window_bytes: 0,
            reads: 0,
        }
    }

    /// Whether a read follows the last one: right behind it, or less than a page further, as some
    /// readers skip headers, or overlapping its end.
    fn goes_on(&self, read: &RangeRead) -> bool {
        let page_bytes = read.page_bytes.get();
        self.vid == read.vid
            && read.range.start < self.next.saturating_add(page_bytes)
            && read.range.end > self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;

    fn read(vid: u128, range: Range<u64>) -> RangeRead {
        RangeRead {
            vid: Vid(vid),
            page_bytes: PageBytes::new(64 * KIB).unwrap(),
            size_bytes: 64 * MIB,
            range,
        }
    }

    /// Reads so many ranges of 128 KiB in a row; returns what was to be fetched ahead.
    fn stream(ahead: &ReadAhead, vid: u128, from: u64, count: u64) -> Vec<Range<u64>> {
        let starts = (0..count).map(|n| from + n * 128 * KIB);
        starts
            .filter_map(|start| ahead.note(&read(vid, start..start + 128 * KIB)))
            .collect()
    }

    #[test]
    fn the_third_read_in_a_row_begins_a_window_that_doubles_while_it_is_used() {
        let ahead = ReadAhead::new(Counter::default());
        assert!(stream(&ahead, 1, 0, 2).is_empty());
        let windows = stream(&ahead, 1, 256 * KIB, 250);
        assert_eq!(windows[0], 384 * KIB..640 * KIB);
        assert!(windows.windows(2).all(|pair| pair[0].end == pair[1].start));
        let lengths: Vec<_> = windows.iter().map(|w| (w.end - w.start) / KIB).collect();
        assert_eq!(lengths[..7], [256, 512, 1024, 2048, 4096, 8192, 8192]);
        let last = windows.last().unwrap();
        assert!(last.end <= 64 * MIB);
    }

    #[test]
    fn a_window_is_asked_for_while_half_of_the_last_one_is_unread() {
        let ahead = ReadAhead::new(Counter::default());
        let mut reached = 0;
        for start in (0..64 * MIB).step_by(128 * 1024) {
            if reached > 0 && start + 128 * KIB < 60 * MIB {
                assert!(start < reached, "a read at {start} finds nothing");
            }
            let next = ahead.note(&read(1, start..start + 128 * KIB));
            reached = next.map_or(reached, |range| range.end);
        }
        assert_eq!(reached, 64 * MIB);
    }

    #[test]
    fn random_reads_fetch_nothing_ahead() {
        let ahead = ReadAhead::new(Counter::default());
        for n in 0..10_000_u64 {
            // A stride that has no factor in common with the number of blocks.
            let start = n * 7_919 % (16 * KIB - 1) * 4 * KIB;
            assert_eq!(ahead.note(&read(1, start..start + 4 * KIB)), None);
        }
    }

    #[test]
    fn readers_at_different_places_of_one_object_are_streams_of_their_own() {
        let ahead = ReadAhead::new(Counter::default());
        let mut fetched = [0, 0];
        for n in 0..40 {
            for (reader, from) in [(0, 0), (1, 32 * MIB)] {
                let start = from + n * 128 * KIB;
                let window = ahead.note(&read(1, start..start + 128 * KIB));
                fetched[reader] += window.map_or(0, |window| window.end - window.start);
            }
        }
        assert!(fetched.iter().all(|bytes| *bytes > 4 * MIB), "{fetched:?}");
    }

    #[test]
    fn windows_shrink_when_they_are_wasted_and_grow_again_when_used() {
        let ahead = ReadAhead::new(Counter::default());
        let max = || ahead.window_bytes_max.load(Ordering::Relaxed);
        for vid in 0..10_000 {
            stream(&ahead, vid, 0, 3);
        }
        assert_eq!(max(), PageBytes::MIN.get());
        let first = stream(&ahead, 20_000, 0, 3);
        assert_eq!(first[0].end - first[0].start, 64 * KIB, "a page, no more");
        stream(&ahead, 20_001, 0, 400);
        assert_eq!(max(), EXTENT_BYTES_MAX);
    }

    #[test]
    fn streams_are_bounded_in_number() {
        let ahead = ReadAhead::new(Counter::default());
        for vid in 0..100_000 {
            stream(&ahead, vid, 0, 1);
        }
        let count: usize = ahead.sets.iter().map(|set| set.lock().streams.len()).sum();
        assert_eq!(count, SET_COUNT * STREAMS_MAX);
    }
}
