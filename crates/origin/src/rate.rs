//! Bytes of bodies in a second, to and from one endpoint: who sends or reads more waits.
//!
//! A token bucket that may go into debt: a piece passes whole, and the next waits until it is paid
//! for. So no piece is ever split, and pieces larger than the bucket pass too.
//!
//! [`Bucket`] is pure; [`Throttle`] is a body's own wait for it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// What may pass at once after a quiet time: a tenth of a second's worth.
const BURST: Duration = Duration::from_millis(100);

/// Bytes that may pass.
#[derive(Debug)]
pub(crate) struct Bucket {
    bytes_per_second: u64,
    /// When all that has passed is paid for; in the past by [`BURST`] at most.
    paid: Instant,
}

impl Bucket {
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self {
            bytes_per_second,
            paid: now,
        }
    }

    /// Counts bytes that have passed.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a piece and a rate are far below 2^52"
    )]
    pub(crate) fn pass(&mut self, bytes: usize, now: Instant) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.paid = self.paid.max(now.checked_sub(BURST).unwrap_or(now)) + cost;
    }

    /// When the next piece may pass; in the past if at once.
    pub(crate) fn next(&self) -> Instant {
        self.paid
    }
}

/// A body's wait for its endpoint's bucket.
#[derive(Debug)]
pub(crate) struct Throttle {
    bucket: Arc<Mutex<Bucket>>,
    sleep: Pin<Box<Sleep>>,
}

impl Throttle {
    pub(crate) fn new(bucket: Arc<Mutex<Bucket>>) -> Self {
        let sleep = Box::pin(tokio::time::sleep_until(bucket.lock().next()));
        Self { bucket, sleep }
    }

    /// Ready when a piece may pass.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = self.bucket.lock().next();
            if next <= Instant::now() {
                return Poll::Ready(());
            }
            if self.sleep.deadline() != next {
                self.sleep.as_mut().reset(next);
            }
            ready!(self.sleep.as_mut().poll(cx));
        }
    }

    /// Counts a piece that has passed.
    pub(crate) fn pass(&self, bytes: usize) {
        self.bucket.lock().pass(bytes, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_bodies_share_the_bytes_of_a_second() {
        let bucket = Arc::new(Mutex::new(Bucket::new(1000, Instant::now())));
        let started = Instant::now();
        let body = || {
            let mut throttle = Throttle::new(Arc::clone(&bucket));
            async move {
                for _ in 0..50 {
                    std::future::poll_fn(|cx| throttle.poll_ready(cx)).await;
                    throttle.pass(100);
                }
            }
        };
        tokio::join!(body(), body());
        // 10,000 bytes; what is at the end of the line is not paid for yet.
        let took = started.elapsed();
        assert!(
            (Duration::from_millis(9700)..Duration::from_secs(10)).contains(&took),
            "{took:?}"
        );
    }

    #[test]
    fn a_quiet_time_saves_up_no_more_than_a_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000, start);
        let later = start + Duration::from_mins(1);
        bucket.pass(100, later);
        assert!(bucket.next() <= later);
        bucket.pass(100, later);
        assert_eq!(bucket.next(), later + BURST);
    }
}
