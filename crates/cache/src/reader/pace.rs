//! Measures whether one connection to the origin is what a reader waits for.
//!
//! Object stores give a connection a share of what they have: Amazon S3 some 100 MB/s, whatever
//! the line could carry. A reader that takes bytes faster is served by several ranged requests
//! side by side. One that does not, as its client is slow or the origin near, never is: more
//! requests would cost money and memory and bring nothing.
//!
//! Pure but for the moments it is told.

use std::time::{Duration, Instant};

/// Bytes between two judgements: an object, or a range, that is shorter is one request. At
/// 100 MB/s a tenth of a second, so what several requests can save is worth their round trips.
const PROBE_BYTES: u64 = 8 * 1024 * 1024;
/// Requests side by side for one reader.
const WIDTH_MAX: usize = 4;
/// A connection that brings as much in a second is not what limits a reader: twice what S3 gives,
/// a quarter of what loopback does (`bench client`).
const CONNECTION_BYTES_PER_SECOND: u64 = 256 * 1024 * 1024;

/// What was measured of one reader.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    bytes: u64,
    waited: Duration,
    waits_since: Option<Instant>,
    width: usize,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            waited: Duration::ZERO,
            waits_since: None,
            width: 1,
        }
    }

    /// The reader waits for the origin from now on.
    pub(super) fn waits(&mut self, now: impl FnOnce() -> Instant) {
        self.waits_since.get_or_insert_with(now);
    }

    /// It got bytes.
    pub(super) fn took(&mut self, bytes: u64, now: impl Fn() -> Instant) {
        if let Some(since) = self.waits_since.take() {
            self.waited += now().saturating_duration_since(since);
        }
        self.bytes += bytes;
        if self.bytes >= PROBE_BYTES {
            let now = now();
            let elapsed = now.saturating_duration_since(self.since);
            self.width = width(self.width, self.bytes, elapsed, self.waited);
            (self.since, self.bytes, self.waited) = (now, 0, Duration::ZERO);
        }
    }

    /// How many requests side by side are worth it: the width of the reader's fetching.
    pub(super) fn width(&self) -> usize {
        self.width
    }
}

/// Judges so many bytes, brought by `width` connections.
fn width(width: usize, bytes: u64, elapsed: Duration, waited: Duration) -> usize {
    let waits_for_origin = waited > elapsed / 2;
    let connection_bytes = u128::from(bytes) / width as u128;
    let enough_bytes = u128::from(CONNECTION_BYTES_PER_SECOND) * elapsed.as_micros() / 1_000_000;
    if waits_for_origin && connection_bytes < enough_bytes {
        WIDTH_MAX
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::Clock;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn more_connections_are_worth_it_where_one_is_slow_and_the_reader_is_not() {
        let ms = Duration::from_millis;
        for (before, bytes, elapsed, waited, expected) in [
            // S3, and a client that takes it as it comes.
            (1, 8 * MIB, ms(80), ms(70), WIDTH_MAX),
            // The same, with a slow client.
            (1, 8 * MIB, ms(800), ms(70), 1),
            // An origin next door.
            (1, 8 * MIB, ms(8), ms(7), 1),
            // Four connections at 100 MB/s are still worth it, four at 400 are not.
            (4, 8 * MIB, ms(21), ms(20), WIDTH_MAX),
            (4, 8 * MIB, ms(5), ms(4), 1),
            (1, 8 * MIB, ms(0), ms(0), 1),
        ] {
            let found = width(before, bytes, elapsed, waited);
            assert_eq!(found, expected, "{before} {bytes} {elapsed:?} {waited:?}");
        }
    }

    #[test]
    fn time_without_a_wait_does_not_count_as_one() {
        let start = Clock::system().now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(start);
        for (waits_ms, took_ms) in [(0, 40), (50, 100)] {
            pace.waits(|| at(waits_ms));
            pace.took(PROBE_BYTES / 2, || at(took_ms));
        }
        assert_eq!(pace.width(), WIDTH_MAX, "90 of 100 ms were spent waiting");
        pace.waits(|| at(100));
        pace.took(PROBE_BYTES / 2, || at(110));
        pace.took(PROBE_BYTES / 2, || at(1000));
        assert_eq!(pace.width(), 1, "the client took its time");
    }
}
