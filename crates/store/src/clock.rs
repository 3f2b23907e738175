//! The only place that reads the time; everything else takes a [`Clock`] or an argument `now`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Tells the time; cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    System,
    /// For tests: stands still until told to go on.
    Manual {
        start: Instant,
        wall: SystemTime,
        elapsed_ns: Arc<AtomicU64>,
    },
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self {
            source: Source::System,
        }
    }

    /// A clock that starts at `wall` and moves only by [`Clock::advance`].
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn manual(wall: SystemTime) -> Self {
        let source = Source::Manual {
            start: Instant::now(),
            wall,
            elapsed_ns: Arc::new(AtomicU64::new(0)),
        };
        Self { source }
    }

    /// A point of time for measuring how long something took.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now(&self) -> Instant {
        match &self.source {
            Source::System => Instant::now(),
            Source::Manual {
                start, elapsed_ns, ..
            } => *start + elapsed(elapsed_ns),
        }
    }

    /// The time of day.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn wall(&self) -> SystemTime {
        match &self.source {
            Source::System => SystemTime::now(),
            Source::Manual {
                wall, elapsed_ns, ..
            } => *wall + elapsed(elapsed_ns),
        }
    }

    /// The time of day in whole Unix seconds.
    pub fn unix_seconds(&self) -> i64 {
        let since = self.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    /// Moves a manual clock on, in all its clones; the system's clock does not obey.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual { elapsed_ns, .. } = &self.source {
            let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            elapsed_ns.fetch_add(by_ns, Ordering::SeqCst);
        }
    }
}

fn elapsed(elapsed_ns: &AtomicU64) -> Duration {
    Duration::from_nanos(elapsed_ns.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(100));
        let (other, before) = (clock.clone(), clock.now());
        assert_eq!(clock.unix_seconds(), 100);
        other.advance(Duration::from_secs(5));
        assert_eq!(clock.unix_seconds(), 105);
        assert_eq!(clock.now() - before, Duration::from_secs(5));
    }
}
