//! Tells when the origin as a whole is in trouble, so that a second request would only add to it.
//!
//! A hedge helps against an endpoint, or a moment of one, that is slower than the others. When
//! requests fail, or all are slow, there is no better place to ask. Two signs, each a statistic
//! over the whole set of endpoints:
//! - [`Failures`]: the share of attempts that failed, over the last [`SHORT_SECONDS`] or the last
//!   [`LONG_SECONDS`]. The short time sees it soon; the long one is sure, and slow to forget.
//! - [`Slowdown`]: the median of a kind of read beside its baseline, which follows the median
//!   slowly upwards (a brown-out must not become the rule) and sooner downwards.
//!
//! Recording is a few atomic additions, asking one load.

use std::{
    array,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::histogram::Histogram;

/// 2 s: a first look.
const SHORT_SECONDS: u64 = 2;
/// 10 s: with 100 attempts in a second, a share of 5 % is then known to within 0.7 %.
const LONG_SECONDS: u64 = SLOTS as u64;
const SLOTS: usize = 10;
/// Fewer attempts tell nothing of a share of a few in a hundred.
const ATTEMPTS_MIN: u64 = 20;
/// Attempts between two looks at the share, at most: one that failed looks at once.
const LOOK_ATTEMPTS: u32 = 32;

/// The share of attempts that failed of late.
#[derive(Debug)]
pub(crate) struct Failures {
    share_max: f64,
    start: Instant,
    /// One for each of the last seconds, and the one that is being filled.
    seconds: [Second; SLOTS],
    is_above: AtomicBool,
}

#[derive(Debug)]
struct Second {
    /// Which one, counted from the start; plus one, so that 0 is none.
    number: AtomicU64,
    attempts: AtomicU32,
    failed: AtomicU32,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an answer that can be passed on.
    Answered,
    /// With a 5xx, or without an answer.
    Failed,
}

impl Failures {
    /// Tells when more than `share_max` of attempts failed.
    pub(crate) fn new(share_max: f64, now: Instant) -> Self {
        Self {
            share_max,
            start: now,
            seconds: array::from_fn(|_| Second {
                number: AtomicU64::new(0),
                attempts: AtomicU32::new(0),
                failed: AtomicU32::new(0),
            }),
            is_above: AtomicBool::new(false),
        }
    }

    /// Whether too many failed, as of the last look.
    pub(crate) fn is_above(&self) -> bool {
        self.is_above.load(Ordering::Relaxed)
    }

    /// Counts an attempt.
    pub(crate) fn record(&self, outcome: Outcome, now: Instant) {
        let number = now.saturating_duration_since(self.start).as_secs() + 1;
        let second = &self.seconds[self.index(number)];
        let before = second.number.load(Ordering::Relaxed);
        // Who comes first in a second begins it; a count that others add just then may be lost.
        let is_first = before != number
            && second
                .number
                .compare_exchange(before, number, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first {
            second.attempts.store(0, Ordering::Relaxed);
            second.failed.store(0, Ordering::Relaxed);
        }
        let attempts = second.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        if outcome == Outcome::Failed {
            second.failed.fetch_add(1, Ordering::Relaxed);
        }
        if is_first || outcome == Outcome::Failed || attempts.is_multiple_of(LOOK_ATTEMPTS) {
            let is_above = self.is_above_over(SHORT_SECONDS, number)
                || self.is_above_over(LONG_SECONDS, number);
            self.is_above.store(is_above, Ordering::Relaxed);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
    fn is_above_over(&self, seconds: u64, number: u64) -> bool {
        let (mut attempts, mut failed) = (0_u64, 0_u64);
        for number in number.saturating_sub(seconds - 1)..=number {
            let second = &self.seconds[self.index(number)];
            if second.number.load(Ordering::Relaxed) == number {
                attempts += u64::from(second.attempts.load(Ordering::Relaxed));
                failed += u64::from(second.failed.load(Ordering::Relaxed));
            }
        }
        attempts >= ATTEMPTS_MIN && failed as f64 > self.share_max * attempts as f64
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % LONG_SECONDS).unwrap_or(0) % self.seconds.len()
    }
}

/// Samples that a median is made of, at least. 64: it is then known to within 15 % of the spread.
const ROUND_SAMPLES: u32 = 64;
/// A round is not shorter. 250 ms: a hiccup of the machine is not a slowdown of the origin.
const ROUND_TIME: Duration = Duration::from_millis(250);
/// Time in which the baseline follows a median that is lower: half a minute.
const FALL_TIME: Duration = Duration::from_secs(30);
/// Time in which it follows one that is higher: a step to five times the median suppresses hedges
/// for 0.38 of it, about six minutes.
const RISE_TIME: Duration = Duration::from_mins(15);
/// However long ago the last round was, a new one tells of no longer than this.
const ROUND_WEIGHT_MAX: Duration = Duration::from_mins(1);

/// The median of one kind of read beside what it usually is.
#[derive(Debug)]
pub(crate) struct Slowdown {
    ratio_max: f64,
    /// A median below this is never slow.
    median_min: Duration,
    round: Histogram,
    samples: AtomicU32,
    is_slow: AtomicBool,
    history: Mutex<History>,
}

#[derive(Debug)]
struct History {
    round_began: Instant,
    /// In the logarithm, so that it rises and falls alike.
    baseline_ln: Option<f64>,
}

impl Slowdown {
    /// Tells when the median is more than `ratio_max` times its baseline, and `median_min`.
    pub(crate) fn new(ratio_max: f64, median_min: Duration, now: Instant) -> Self {
        Self {
            ratio_max,
            median_min,
            round: Histogram::new(),
            samples: AtomicU32::new(0),
            is_slow: AtomicBool::new(false),
            history: Mutex::new(History {
                round_began: now,
                baseline_ln: None,
            }),
        }
    }

    /// Whether it was slow in the last round.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Counts a read: the time to its first byte, or what had passed when it was given up.
    pub(crate) fn record(&self, time: Duration, now: Instant) {
        self.round.record(time);
        let samples = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        if samples.is_multiple_of(ROUND_SAMPLES)
            && let Some(mut history) = self.history.try_lock()
        {
            self.end_round(&mut history, now);
        }
    }

    fn end_round(&self, history: &mut History, now: Instant) {
        let took = now.saturating_duration_since(history.round_began);
        if took < ROUND_TIME {
            return;
        }
        let Some(median) = self.round.median() else {
            return;
        };
        self.round.clear();
        history.round_began = now;
        let median_ln = median.as_secs_f64().ln();
        let baseline_ln = *history.baseline_ln.get_or_insert(median_ln);
        let is_slow = median >= self.median_min && median_ln - baseline_ln > self.ratio_max.ln();
        self.is_slow.store(is_slow, Ordering::Relaxed);
        let follow_time = if median_ln > baseline_ln {
            RISE_TIME
        } else {
            FALL_TIME
        };
        let weight = took.min(ROUND_WEIGHT_MAX).div_duration_f64(follow_time);
        let followed = (median_ln - baseline_ln) * (1.0 - (-weight).exp());
        history.baseline_ln = Some(baseline_ln + followed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records `attempts` a second for `seconds` after `from`, of which one in `one_in` fails.
    fn attempts(failures: &Failures, from: Duration, seconds: u32, one_in: u32) {
        for attempt in 0..seconds * 100 {
            let outcome = if attempt.is_multiple_of(one_in) {
                Outcome::Failed
            } else {
                Outcome::Answered
            };
            let at = from + Duration::from_millis(10) * attempt;
            failures.record(outcome, failures.start + at);
        }
    }

    #[test]
    fn failures_above_the_share_are_seen_at_once_and_forgotten_in_ten_seconds() {
        let failures = Failures::new(0.05, Instant::now());
        attempts(&failures, Duration::ZERO, 30, 25);
        assert!(!failures.is_above(), "4 % may fail");
        attempts(&failures, Duration::from_secs(30), 1, 5);
        assert!(failures.is_above(), "a second of 20 %");
        attempts(&failures, Duration::from_secs(31), 20, u32::MAX);
        assert!(!failures.is_above(), "all is well again");
    }

    #[test]
    fn a_share_a_little_above_is_seen_over_ten_seconds() {
        let failures = Failures::new(0.05, Instant::now());
        attempts(&failures, Duration::ZERO, 10, 15);
        assert!(failures.is_above(), "one in 15 is 6.7 %");
    }

    #[test]
    fn a_few_attempts_tell_nothing() {
        let failures = Failures::new(0.05, Instant::now());
        for _ in 1..ATTEMPTS_MIN {
            failures.record(Outcome::Failed, failures.start);
            assert!(!failures.is_above());
        }
        failures.record(Outcome::Failed, failures.start);
        assert!(failures.is_above());
    }

    /// Records reads of `time`, 100 a second for `seconds` after `from`; the last one at which
    /// it was slow, if any.
    fn reads(slowdown: &Slowdown, start: Instant, from: u32, seconds: u32, time: Duration) -> u32 {
        let mut last_slow = 0;
        for read in 0..seconds * 100 {
            let second = from + read / 100;
            slowdown.record(
                time,
                start + Duration::from_millis(10) * (from * 100 + read),
            );
            if slowdown.is_slow() {
                last_slow = second;
            }
        }
        last_slow
    }

    fn slowdown(start: Instant) -> Slowdown {
        Slowdown::new(3.0, Duration::from_millis(1), start)
    }

    /// Goal: a brown-out is seen within a second or two, and does not become the baseline soon.
    /// Method: a minute of 10 ms, then an hour of 50 ms, then 10 ms again.
    #[test]
    fn a_step_to_five_times_the_median_is_slow_for_some_minutes() {
        let start = Instant::now();
        let slowdown = slowdown(start);
        assert_eq!(reads(&slowdown, start, 0, 60, Duration::from_millis(10)), 0);
        reads(&slowdown, start, 60, 2, Duration::from_millis(50));
        assert!(slowdown.is_slow(), "after two seconds");
        let last_slow = reads(&slowdown, start, 62, 3600, Duration::from_millis(50));
        let minutes = (last_slow - 60) / 60;
        assert!((4..=8).contains(&minutes), "{minutes} minutes");
        assert_eq!(
            reads(&slowdown, start, 4000, 60, Duration::from_millis(10)),
            0
        );
        reads(&slowdown, start, 4060, 300, Duration::from_millis(10));
        reads(&slowdown, start, 4400, 2, Duration::from_millis(50));
        assert!(slowdown.is_slow(), "the baseline has come down again");
    }

    #[test]
    fn twice_the_median_is_not_slow_nor_is_what_takes_less_than_a_hedge() {
        let start = Instant::now();
        let ordinary = slowdown(start);
        reads(&ordinary, start, 0, 10, Duration::from_millis(10));
        assert_eq!(
            reads(&ordinary, start, 10, 60, Duration::from_millis(20)),
            0
        );
        let quick = slowdown(start);
        reads(&quick, start, 0, 10, Duration::from_micros(50));
        assert_eq!(reads(&quick, start, 10, 60, Duration::from_micros(500)), 0);
    }
}
