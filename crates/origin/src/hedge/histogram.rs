//! Counts of times in buckets whose width grows with the time: 1/32 of it at most.
//!
//! Recording is one atomic addition, so that every thread may do it at once. Who reads meanwhile
//! sees some of what is being recorded, which is all that a statistic needs.
//!
//! Buckets: 32 of one unit each, then 32 in every octave up to [`TIME_MAX`]; the last one takes
//! what is longer. The form is `HdrHistogram`'s (Gil Tene), with a fixed size.

use std::{
    array,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// One unit is 2^10 ns, about a microsecond: no origin answers in less.
const UNIT_BITS: u32 = 10;
const SUB_BITS: u32 = 5;
const SUB_COUNT: usize = 1 << SUB_BITS;
/// Octaves above the first 32 units: 2^27 units are 137 s, beyond every default timeout.
const OCTAVES: usize = 22;

/// Buckets of every histogram.
pub(crate) const BUCKETS: usize = SUB_COUNT * (OCTAVES + 1);

/// Longer times count as this one.
#[cfg(test)]
pub(crate) const TIME_MAX: Duration =
    Duration::from_nanos(1 << (OCTAVES as u64 + SUB_BITS as u64 + UNIT_BITS as u64));

/// Counts of times.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU32; BUCKETS],
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    pub(crate) fn record(&self, time: Duration) {
        self.counts[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, bucket: usize) -> u64 {
        self.counts[bucket].load(Ordering::Relaxed).into()
    }

    pub(crate) fn clear(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The time that half of what was counted is not beyond; `None` of nothing.
    pub(crate) fn median(&self) -> Option<Duration> {
        let total: u64 = (0..BUCKETS).map(|bucket| self.count(bucket)).sum();
        let (mut below, half) = (0, total.div_ceil(2));
        (0..BUCKETS).find_map(|bucket| {
            below += self.count(bucket);
            (total > 0 && below >= half).then(|| within(bucket, 0.5))
        })
    }
}

/// The bucket of a time.
fn bucket(time: Duration) -> usize {
    let units = u64::try_from(time.as_nanos() >> UNIT_BITS).unwrap_or(u64::MAX);
    if units < SUB_COUNT as u64 {
        return usize::try_from(units).unwrap_or(0);
    }
    let octave = units.ilog2() - SUB_BITS;
    let sub = usize::try_from(units >> octave).unwrap_or(SUB_COUNT) - SUB_COUNT;
    (SUB_COUNT * (octave as usize + 1) + sub).min(BUCKETS - 1)
}

/// The time at `share` (0 to 1) of the way through a bucket.
pub(crate) fn within(bucket: usize, share: f64) -> Duration {
    let (low, width) = if bucket < SUB_COUNT {
        (bucket as u64, 1)
    } else {
        let octave = bucket / SUB_COUNT - 1;
        let sub = bucket % SUB_COUNT + SUB_COUNT;
        ((sub as u64) << octave, 1 << octave)
    };
    let low = Duration::from_nanos(low << UNIT_BITS);
    low + Duration::from_nanos(width << UNIT_BITS).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_the_times_within_its_bounds_and_is_narrow() {
        let mut time = Duration::from_nanos(1);
        while time < TIME_MAX {
            let bucket = bucket(time);
            let (low, high) = (within(bucket, 0.0), within(bucket, 1.0));
            assert!(low <= time && time < high, "{time:?} in {low:?}..{high:?}");
            let unit = Duration::from_nanos(1 << UNIT_BITS);
            assert!(
                high.saturating_sub(low) <= unit.max(low / 32),
                "{low:?}..{high:?}"
            );
            time = time.mul_f64(1.01) + Duration::from_nanos(1);
        }
    }

    #[test]
    fn what_is_too_long_counts_as_the_longest() {
        for time in [TIME_MAX, Duration::MAX] {
            assert_eq!(bucket(time), BUCKETS - 1);
        }
        assert_eq!(within(BUCKETS - 1, 1.0), TIME_MAX);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let histogram = Histogram::new();
        assert_eq!(histogram.median(), None);
        for milliseconds in [1, 2, 10, 500, 900] {
            histogram.record(Duration::from_millis(milliseconds));
        }
        let median = histogram.median().unwrap().as_secs_f64();
        assert!((median / 0.010 - 1.0).abs() < 0.03, "{median}");
        histogram.clear();
        assert_eq!(histogram.median(), None);
    }
}
