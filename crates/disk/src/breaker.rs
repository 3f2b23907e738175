//! When a disk that keeps failing is left alone. Pure: takes `now`.

use std::time::{Duration, Instant};

/// Closed lets all pass. After `failures_max` failures in a row it is open and lets one attempt
/// pass in each `retry_after`; a success closes it.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures: u32,
    failures_max: u32,
    retry_after: Duration,
    /// When the next attempt may be made; `None` while it is closed.
    retry_at: Option<Instant>,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, retry_after: Duration) -> Self {
        Self {
            failures: 0,
            failures_max,
            retry_after,
            retry_at: None,
        }
    }

    /// Whether an attempt may be made now.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        match self.retry_at {
            None => true,
            Some(at) if now < at => false,
            Some(_) => {
                // Were this attempt never to end, another one would follow.
                self.retry_at = Some(now + self.retry_after);
                true
            }
        }
    }

    /// Whether no attempt may be made now; looking is none.
    pub(crate) fn refuses(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| now < at)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.retry_at.is_some()
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = None;
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.failures_max {
            self.retry_at = Some(now + self.retry_after);
        }
    }
}
