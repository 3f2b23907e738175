//! From when on a read is slow: a quantile of the time to first byte, kept up with every read.
//!
//! One [`Estimator`] is for one endpoint and one kind of read. A read that was given up, because
//! another was quicker or its client left, has not told its time; only that it is *at least* what
//! had passed. Such a **censored** sample must not be dropped: those are the slow reads, and
//! without them the quantile would sink, more reads be hedged and given up, and it sink further.
//! They are counted apart, and the quantile is the product-limit estimate over both (Kaplan and
//! Meier, "Nonparametric Estimation from Incomplete Observations", 1958), in the actuarial form
//! for times in buckets: who is given up in a bucket counts half in it.
//!
//! What is old is forgotten by windows: each is closed after [`WINDOW_TIME`], or later, when there
//! were few reads; the oldest is emptied and is the next.
//!
//! Recording is two atomic additions. Each [`RECOUNT_SAMPLES`]th sample pays for a new estimate;
//! reading it is one atomic load.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::histogram::{BUCKETS, Histogram, within};

/// Windows; one is being filled, and the quantile is that of all.
const WINDOWS: usize = 3;
/// A window is not closed earlier. 10 s: three hold what the origin was like for half a minute.
pub(crate) const WINDOW_TIME: Duration = Duration::from_secs(10);
/// A window is closed however few samples it has. 5 min: a rare read is judged by the last
/// quarter of an hour.
const WINDOW_TIME_MAX: Duration = Duration::from_mins(5);
/// Samples between two estimates. 64: the walk over the buckets takes some microseconds.
pub(crate) const RECOUNT_SAMPLES: u32 = 64;

/// The time that a share of reads is beyond.
#[derive(Debug)]
pub(crate) struct Estimator {
    share: f64,
    samples_min: u32,
    windows: Box<[Window]>,
    /// The window being filled.
    current: AtomicUsize,
    samples: AtomicU32,
    /// 0 while too little is known.
    threshold_ns: AtomicU64,
    /// When the current window was begun; held by who makes an estimate.
    begun: Mutex<Instant>,
}

#[derive(Debug)]
struct Window {
    answered: Histogram,
    given_up: Histogram,
}

impl Estimator {
    /// An estimator of the time that `share` of reads are beyond, which says nothing before
    /// `samples_min` of them were answered.
    pub(crate) fn new(share: f64, samples_min: u32, now: Instant) -> Self {
        let window = |_| Window {
            answered: Histogram::new(),
            given_up: Histogram::new(),
        };
        Self {
            share,
            samples_min,
            windows: (0..WINDOWS).map(window).collect(),
            current: AtomicUsize::new(0),
            samples: AtomicU32::new(0),
            threshold_ns: AtomicU64::new(0),
            begun: Mutex::new(now),
        }
    }

    /// Counts a read whose first byte came after `time`. Tells whether there is a new estimate.
    pub(crate) fn answered(&self, time: Duration, now: Instant) -> Option<Duration> {
        self.window().answered.record(time);
        self.counted(now)
    }

    /// Counts a read that was given up after `time` without an answer.
    pub(crate) fn given_up(&self, time: Duration, now: Instant) -> Option<Duration> {
        self.window().given_up.record(time);
        self.counted(now)
    }

    /// The last estimate; `None` while too little is known.
    pub(crate) fn threshold(&self) -> Option<Duration> {
        let nanoseconds = self.threshold_ns.load(Ordering::Relaxed);
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }

    fn window(&self) -> &Window {
        &self.windows[self.current.load(Ordering::Relaxed) % WINDOWS]
    }

    fn counted(&self, now: Instant) -> Option<Duration> {
        let samples = self.samples.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // The first estimate comes as soon as it may; 64 is no divisor of every `samples_min`.
        if samples.is_multiple_of(RECOUNT_SAMPLES) || samples == self.samples_min {
            self.estimate(now)
        } else {
            None
        }
    }

    /// Makes an estimate, unless somebody else is about to.
    fn estimate(&self, now: Instant) -> Option<Duration> {
        let mut begun = self.begun.try_lock()?;
        self.rotate(&mut begun, now);
        let answered: u64 = (0..BUCKETS).map(|bucket| self.counts(bucket).0).sum();
        if answered < self.samples_min.into() {
            self.threshold_ns.store(0, Ordering::Relaxed);
            return None;
        }
        let threshold = self.quantile();
        let nanoseconds = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        self.threshold_ns.store(nanoseconds, Ordering::Relaxed);
        Some(threshold)
    }

    /// Begins the next window, if this one is full; all of them, if they are of another time.
    fn rotate(&self, begun: &mut Instant, now: Instant) {
        let age = now.saturating_duration_since(*begun);
        let current = self.current.load(Ordering::Relaxed);
        let in_window: u64 = (0..BUCKETS)
            .map(|bucket| self.windows[current % WINDOWS].answered.count(bucket))
            .sum();
        let is_full = age >= WINDOW_TIME && in_window >= self.samples_min.into();
        if !is_full && age < WINDOW_TIME_MAX {
            return;
        }
        let forgotten = if age >= WINDOW_TIME_MAX * 2 {
            WINDOWS
        } else {
            1
        };
        for later in 1..=forgotten {
            let window = &self.windows[(current + later) % WINDOWS];
            window.answered.clear();
            window.given_up.clear();
        }
        self.current
            .store((current + 1) % WINDOWS, Ordering::Relaxed);
        *begun = now;
    }

    /// Reads of all windows whose time is in `bucket`: answered, and given up.
    fn counts(&self, bucket: usize) -> (u64, u64) {
        self.windows.iter().fold((0, 0), |(answered, given_up), w| {
            (
                answered + w.answered.count(bucket),
                given_up + w.given_up.count(bucket),
            )
        })
    }

    /// The time at which the product-limit estimate of "still unanswered" falls to the share. If
    /// it never does, since all that is left was given up, the longest time seen.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of samples, far below 2^52"
    )]
    fn quantile(&self) -> Duration {
        let mut at_risk: u64 = (0..BUCKETS)
            .map(|bucket| self.counts(bucket))
            .map(|(answered, given_up)| answered + given_up)
            .sum();
        let (mut unanswered, mut longest) = (1.0, Duration::ZERO);
        for bucket in 0..BUCKETS {
            let (answered, given_up) = self.counts(bucket);
            if answered + given_up == 0 {
                continue;
            }
            longest = within(bucket, 1.0);
            if answered > 0 {
                // Reads are recorded meanwhile; so what was counted first may be less.
                let exposed = (at_risk as f64 - given_up as f64 / 2.0).max(answered as f64);
                let after = unanswered * (1.0 - answered as f64 / exposed);
                if after <= self.share {
                    return within(bucket, (unanswered - self.share) / (unanswered - after));
                }
                unanswered = after;
            }
            at_risk = at_risk.saturating_sub(answered + given_up);
        }
        longest
    }
}

#[cfg(test)]
mod tests;
