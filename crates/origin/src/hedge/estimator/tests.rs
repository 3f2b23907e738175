//! Whether hedging moves what it is decided by.

use super::*;

const SHARE: f64 = 0.02;
const SAMPLES_MIN: u32 = 200;
/// One read in ten is never hedged.
const CONTROL_EVERY: u32 = 10;

/// Reads arrive this far apart: 5000 in a second.
const APART: Duration = Duration::from_micros(200);

/// What becomes of the arm of a hedged read that did not win.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Losers {
    /// It is counted as given up.
    Censored,
    /// It is dropped, as if it had never been sent.
    Dropped,
}

/// A heavy tail: the share of times beyond `t` is `(SCALE / t)^ALPHA`.
mod pareto {
    pub(super) const SCALE: f64 = 0.002;
    pub(super) const ALPHA: f64 = 1.2;

    pub(super) fn quantile(beyond: f64) -> f64 {
        SCALE * beyond.powf(-1.0 / ALPHA)
    }
}

/// Two shapes that origins have; each maps a share beyond, 0 to 1, to a time in seconds.
fn heavy_tail(beyond: f64) -> f64 {
    pareto::quantile(beyond)
}

/// One read in a hundred stalls for a second, the others take 4 ms to 24 ms.
fn stalls(beyond: f64) -> f64 {
    if beyond < 0.01 {
        1.0
    } else {
        0.004 + 0.02 * (1.0 - (beyond - 0.01) / 0.99).powi(3)
    }
}

/// Sends `reads` reads, each hedged at the estimator's own threshold if its control draw allows;
/// calls `look` with each estimate that is made.
fn simulate(
    reads: u32,
    times: fn(f64) -> f64,
    losers: Losers,
    mut look: impl FnMut(u32, Duration),
) {
    let start = Instant::now();
    let estimator = Estimator::new(SHARE, SAMPLES_MIN, start);
    let mut random = fastrand::Rng::with_seed(7);
    let mut draw = || Duration::from_secs_f64(times(1.0 - random.f64()));
    for read in 0..reads {
        let now = start + APART * read;
        let primary = draw();
        let is_control = read.is_multiple_of(CONTROL_EVERY);
        let delay = estimator.threshold().filter(|delay| *delay < primary);
        let made = match delay.filter(|_| !is_control) {
            None => estimator.answered(primary, now),
            Some(delay) => {
                let hedge = draw();
                let (won, lost) = if delay + hedge < primary {
                    (hedge, delay + hedge)
                } else {
                    (primary, primary.saturating_sub(delay))
                };
                let made = match losers {
                    Losers::Censored => estimator.given_up(lost, now),
                    Losers::Dropped => None,
                };
                estimator.answered(won, now).or(made)
            }
        };
        if let Some(threshold) = made {
            look(read, threshold);
        }
    }
}

/// How far from 1 the threshold came of `true_quantile`, both ways, after the first 100,000 reads.
fn drift(reads: u32, times: fn(f64) -> f64, losers: Losers) -> (f64, f64) {
    let true_quantile = times(SHARE);
    let (mut lowest, mut highest) = (f64::MAX, 0.0_f64);
    simulate(reads, times, losers, |read, threshold| {
        if read >= 100_000 {
            let ratio = threshold.as_secs_f64() / true_quantile;
            lowest = lowest.min(ratio);
            highest = highest.max(ratio);
        }
    });
    println!("{losers:?}: {lowest:.3} to {highest:.3} of the true quantile");
    (lowest, highest)
}

/// Goal: hedging at the estimator's own threshold does not move the threshold.
/// Method: a million reads with a known distribution, hedged, the losing arm counted as given up
/// when it lost; each of the estimates after the first windows is compared with the quantile.
#[test]
fn the_threshold_stays_within_a_tenth_over_a_million_hedged_reads() {
    for times in [heavy_tail, stalls] {
        let (lowest, highest) = drift(1_000_000, times, Losers::Censored);
        assert!(0.9 < lowest && highest < 1.1, "{lowest} to {highest}");
    }
}

/// Goal: the test above can fail: what it guards against does happen.
/// Method: the same reads; what lost is forgotten.
#[test]
fn without_the_losers_the_threshold_collapses() {
    let (lowest, _) = drift(1_000_000, heavy_tail, Losers::Dropped);
    assert!(lowest < 0.5, "{lowest}");
}

#[test]
fn nothing_is_said_before_enough_was_answered() {
    let now = Instant::now();
    let estimator = Estimator::new(SHARE, 100, now);
    for _ in 0..99 {
        assert_eq!(estimator.answered(Duration::from_millis(5), now), None);
        // What was given up does not make up for it.
        estimator.given_up(Duration::from_millis(1), now);
    }
    assert_eq!(estimator.threshold(), None);
    for _ in 0..RECOUNT_SAMPLES {
        estimator.answered(Duration::from_millis(5), now);
    }
    assert!(estimator.threshold().is_some());
}

/// The share of reads below a time is known; so is where the estimate must lie.
#[test]
fn what_was_given_up_early_is_spread_over_what_came_later() {
    let now = Instant::now();
    let estimator = Estimator::new(0.1, 10, now);
    // 40 are given up before any answer: the rest speaks for them.
    for _ in 0..40 {
        estimator.given_up(Duration::from_millis(1), now);
    }
    for _ in 0..85 {
        estimator.answered(Duration::from_millis(10), now);
    }
    for _ in 0..15 {
        estimator.answered(Duration::from_millis(100), now);
    }
    let threshold = estimator.quantile();
    assert!(threshold > Duration::from_millis(95), "{threshold:?}");
    // Of 100 that all tell, 15 are beyond 10 ms; counted as if the 40 had been quick, 11 % were.
    let mostly_given_up = Estimator::new(0.1, 10, now);
    for _ in 0..20 {
        mostly_given_up.answered(Duration::from_millis(10), now);
    }
    for _ in 0..80 {
        mostly_given_up.given_up(Duration::from_millis(50), now);
    }
    let threshold = mostly_given_up.quantile();
    assert!(
        threshold >= Duration::from_millis(50),
        "at least: {threshold:?}"
    );
}

#[test]
fn what_is_old_is_forgotten() {
    let start = Instant::now();
    let estimator = Estimator::new(SHARE, SAMPLES_MIN, start);
    let feed = |time, from: Duration, seconds: u32| {
        for read in 0..seconds * 100 {
            estimator.answered(time, start + from + Duration::from_millis(10) * read);
        }
    };
    feed(Duration::from_millis(80), Duration::ZERO, 60);
    feed(Duration::from_millis(5), Duration::from_mins(1), 60);
    let threshold = estimator.threshold().unwrap();
    assert!(threshold < Duration::from_millis(6), "{threshold:?}");
    // A day without a read: the first estimate after it is of the reads after it.
    feed(Duration::from_millis(30), Duration::from_hours(24), 1);
    feed(Duration::from_millis(30), Duration::from_secs(86_401), 10);
    let threshold = estimator.threshold().unwrap();
    assert!(threshold > Duration::from_millis(28), "{threshold:?}");
}
