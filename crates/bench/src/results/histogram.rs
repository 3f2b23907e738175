//! How long requests took, counted in buckets of a known width.
//!
//! Nanoseconds from 1 to an hour in HDR buckets of two significant digits: a bucket is at most
//! 1/128 of its value wide, so a percentile read here is within 0.4 % of the true one. Finer
//! buckets would multiply the size of run files for nothing, as rounds differ by more than that.
//!
//! In a run file a histogram is the list of its buckets that are not empty, each as [lowest
//! nanoseconds, count], ascending. As all histograms have the same buckets, what is read is what
//! was written, and merging loses nothing.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Half a bucket is 1/256 of the value at most.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Longer is counted as this long. Every timeout of the load generator is far below.
const LATENCY_NS_MAX: u64 = 3_600 * 1_000_000_000;

/// Counted durations.
#[derive(Clone, JsonSchema)]
#[schemars(transparent)]
pub struct Histogram {
    #[schemars(with = "Vec<(u64, u64)>")]
    counts: hdrhistogram::Histogram<u64>,
}

impl Histogram {
    /// A histogram without any durations; 36 KiB.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the library takes these constants"
    )]
    pub fn new() -> Self {
        let counts =
            hdrhistogram::Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
                .expect("the bounds are constants that the library takes");
        Self { counts }
    }

    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one duration in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        self.record_many_ns(ns, 1);
    }

    /// Counts a duration as often as `count` says.
    pub fn record_many_ns(&mut self, ns: u64, count: u64) {
        self.counts.saturating_record_n(ns.max(1), count);
    }

    /// Adds all that another one counted; exact.
    pub fn merge(&mut self, other: &Self) {
        // It could fail only between different bounds.
        let merged = self.counts.add(&other.counts);
        debug_assert!(merged.is_ok(), "all histograms have the same bounds");
    }

    /// Empties it and keeps its memory.
    pub fn reset(&mut self) {
        self.counts.reset();
    }

    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The duration, in nanoseconds, that `quantile` (0–1) of all did not exceed: the middle of its
    /// bucket. `None` when nothing was counted.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.middle_ns(self.counts.value_at_quantile(quantile)))
    }

    /// The mean in nanoseconds, or `None` when nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.mean())
    }

    /// The shortest in nanoseconds, to a bucket, or `None` when nothing was counted.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.middle_ns(self.counts.min_nz()))
    }

    /// The longest in nanoseconds, to a bucket, or `None` when nothing was counted.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.middle_ns(self.counts.max()))
    }

    /// The buckets that are not empty, ascending: (lowest nanoseconds, count).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter_recorded().map(|bucket| {
            let lowest = self.counts.lowest_equivalent(bucket.value_iterated_to());
            (lowest, bucket.count_at_value())
        })
    }

    fn middle_ns(&self, ns: u64) -> u64 {
        self.counts.median_equivalent(ns)
    }

    /// The histogram whose buckets were printed.
    fn from_buckets(buckets: &[(u64, u64)]) -> Result<Self, String> {
        let mut histogram = Self::new();
        let mut last_ns = None;
        let mut total = 0_u64;
        for &(ns, count) in buckets {
            if last_ns.is_some_and(|last| last >= ns) {
                return Err(format!("bucket {ns} ns is out of order"));
            }
            if ns > LATENCY_NS_MAX || histogram.counts.lowest_equivalent(ns) != ns {
                return Err(format!("{ns} ns is where no bucket begins"));
            }
            total = total
                .checked_add(count)
                .ok_or("more durations than can be counted")?;
            last_ns = Some(ns);
            histogram.record_many_ns(ns, count);
        }
        Ok(histogram)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.buckets().eq(other.buckets())
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.buckets()).finish()
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let buckets = Vec::<(u64, u64)>::deserialize(deserializer)?;
        Self::from_buckets(&buckets).map_err(de::Error::custom)
    }
}
