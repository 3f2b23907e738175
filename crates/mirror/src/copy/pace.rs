//! How fast repairs may read: one allowance that all of a mirror share.
//!
//! Bytes are booked as they pass, and each piece waits until those before it have had their time,
//! so the rate holds however many copies run, and a lone one has all of it. Nothing is saved up:
//! an idle second buys no burst.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An allowance of bytes in a second.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When all that was booked has had its time.
    booked_until: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many bytes in a second; `None` is without bound.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            booked_until: Mutex::new(None),
        }
    }

    /// Books bytes, and says until when whoever brings them has to wait.
    pub(crate) fn book(&self, bytes: usize) -> Option<Instant> {
        let rate = self.bytes_per_second?.max(1);
        let now = Instant::now();
        let nanos = (bytes as u128) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut booked_until = self.booked_until.lock();
        let begins = booked_until.map_or(now, |until| until.max(now));
        *booked_until = Some(begins + takes);
        Some(begins + takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_of_all_share_one_rate_and_nothing_is_saved_up() {
        let pace = Pace::new(Some(1000));
        let start = Instant::now();
        let after = |ms| Some(start + Duration::from_millis(ms));
        assert_eq!(pace.book(500), after(500));
        assert_eq!(pace.book(1500), after(2000));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(pace.book(1000), after(11_000));
        assert_eq!(Pace::new(None).book(usize::MAX), None);
    }
}
