//! One byte budget for everything in flight.
//!
//! Whoever is about to hold payload bytes reserves room for them first and gives it back by
//! dropping the [`Reservation`]. When the budget is used up the reservation waits, so reading
//! from sockets waits, and after a bounded time the client is told to slow down.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;

/// Bytes a permit stands for: the semaphore counts at most 2^29 permits on 32-bit machines, so it
/// counts KiB.
const UNIT_BYTES: u64 = 1024;

/// A limit in bytes, shared by cloning.
#[derive(Debug, Clone)]
pub struct Budget {
    units: Arc<Semaphore>,
    bytes_max: u64,
    wait_max: Duration,
}

/// Room taken from a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    /// A budget of `bytes_max` bytes, for which a reservation waits `wait_max` at most.
    pub fn new(bytes_max: u64, wait_max: Duration) -> Self {
        let units = usize::try_from(bytes_max / UNIT_BYTES).unwrap_or(usize::MAX);
        Self {
            units: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            bytes_max,
            wait_max,
        }
    }

    /// Reserves `bytes`, rounded up to KiB; more than the whole budget counts as the whole.
    ///
    /// # Errors
    /// [`Error::SlowDown`] when there is still no room after the budget's waiting time.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Error> {
        if let Some(reservation) = self.try_reserve(bytes) {
            return Ok(reservation);
        }
        let acquire = Arc::clone(&self.units).acquire_many_owned(self.units_for(bytes));
        match tokio::time::timeout(self.wait_max, acquire).await {
            Ok(Ok(permit)) => Ok(Reservation { _permit: permit }),
            Ok(Err(_)) | Err(_) => Err(Error::SlowDown {
                retry_after: Some(self.wait_max),
            }),
        }
    }

    /// Reserves `bytes` if there is room now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        let permit = Arc::clone(&self.units)
            .try_acquire_many_owned(self.units_for(bytes))
            .ok()?;
        Some(Reservation { _permit: permit })
    }

    /// Bytes reserved at this moment.
    pub fn used_bytes(&self) -> u64 {
        self.bytes_max
            .saturating_sub(self.units.available_permits() as u64 * UNIT_BYTES)
    }

    /// The limit.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn units_for(&self, bytes: u64) -> u32 {
        let units = bytes.min(self.bytes_max).div_ceil(UNIT_BYTES);
        u32::try_from(units.min(self.bytes_max / UNIT_BYTES)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_budget_waits_then_says_slow_down() {
        let budget = Budget::new(64 * 1024, Duration::from_secs(5));
        let first = budget.reserve(60 * 1024).await.unwrap();
        assert_eq!(budget.used_bytes(), 60 * 1024);
        let refused = budget.reserve(8 * 1024).await;
        assert!(matches!(
            refused,
            Err(Error::SlowDown {
                retry_after: Some(_)
            })
        ));
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(8 * 1024).await.is_ok() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_everything_counts_as_everything() {
        let budget = Budget::new(10 * 1024, Duration::from_secs(1));
        let all = budget.reserve(u64::MAX).await.unwrap();
        assert_eq!(budget.used_bytes(), 10 * 1024);
        assert!(budget.try_reserve(1).is_none());
        drop(all);
        assert_eq!(budget.used_bytes(), 0);
    }
}
