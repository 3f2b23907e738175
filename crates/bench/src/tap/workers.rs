//! A server that has few workers: who waits for one, and for how long.
//!
//! Called by the tap when an answer has come; pure, the caller passes the time. A request is given
//! to the worker that is free first, in the order of the answers, and keeps it also when its client
//! has gone, as in a server that does not notice.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use tokio::time::Instant;

/// The workers by when they are free.
#[derive(Debug)]
pub(super) struct Workers {
    free: BinaryHeap<Reverse<Instant>>,
}

impl Workers {
    /// So many workers, at least one, all free from `now` on.
    pub(super) fn new(count: usize, now: Instant) -> Self {
        Self {
            free: std::iter::repeat_n(Reverse(now), count).collect(),
        }
    }

    /// Takes a worker for so long as soon as there is one; when it is free again.
    pub(super) fn take(&mut self, now: Instant, time: Duration) -> Instant {
        let Some(mut first) = self.free.peek_mut() else {
            return now + time;
        };
        first.0 = first.0.max(now) + time;
        first.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn requests_beyond_the_workers_wait_in_line() {
        let now = Instant::now();
        let mut workers = Workers::new(2, now);
        let ends: Vec<_> = (0..5).map(|_| workers.take(now, ms(10)) - now).collect();
        assert_eq!(ends, [ms(10), ms(10), ms(20), ms(20), ms(30)]);
        // A worker that was free meanwhile is not ahead of its time.
        let later = now + ms(100);
        assert_eq!(workers.take(later, ms(10)), later + ms(10));
    }

    #[test]
    fn a_long_request_holds_up_its_own_worker_alone() {
        let now = Instant::now();
        let mut workers = Workers::new(2, now);
        assert_eq!(workers.take(now, ms(1000)), now + ms(1000));
        let ends: Vec<_> = (0..3).map(|_| workers.take(now, ms(10)) - now).collect();
        assert_eq!(ends, [ms(10), ms(20), ms(30)]);
    }
}
