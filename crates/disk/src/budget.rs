//! How many bytes may be written, so that a device lasts. Pure: takes `now`.

use std::time::Instant;

const DAY_MS: i128 = 24 * 60 * 60 * 1000;
/// An hour's share may be written at once: a cache that starts empty is of use soon.
const BURSTS_PER_DAY: u64 = 24;

/// A bucket of bytes that fills evenly.
#[derive(Debug)]
pub(crate) struct WriteBudget {
    per_day: u64,
    /// What may be written now, in bytes times [`DAY_MS`], so that nothing is lost in rounding;
    /// below zero after a page larger than what was left.
    left: i128,
    at: Instant,
}

impl WriteBudget {
    /// A full bucket.
    pub(crate) fn new(per_day: u64, now: Instant) -> Self {
        Self {
            per_day,
            left: Self::burst(per_day),
            at: now,
        }
    }

    fn burst(per_day: u64) -> i128 {
        i128::from(per_day / BURSTS_PER_DAY) * DAY_MS
    }

    /// Takes so many bytes while anything is left.
    pub(crate) fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let elapsed_ms = now.saturating_duration_since(self.at).as_millis();
        if elapsed_ms > 0 {
            self.at = now;
            let came = i128::try_from(elapsed_ms).unwrap_or(DAY_MS).min(DAY_MS);
            let full = Self::burst(self.per_day);
            self.left = full.min(self.left + came * i128::from(self.per_day));
        }
        if self.left <= 0 {
            return false;
        }
        self.left -= i128::from(bytes) * DAY_MS;
        true
    }
}
