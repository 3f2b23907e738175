//! What makes one steady origin of several shaky endpoints: choice, health, limits, hedging.

use std::time::Duration;

use super::SettingsError;

/// How an endpoint is chosen and its addresses are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceSettings {
    /// Time over which an endpoint that is new or back takes its full share again.
    ///
    /// 2 s: long enough to open connections, and short beside an outage.
    pub slow_start: Duration,
    /// Time between two looks at the addresses of a name.
    ///
    /// 5 s: what Amazon's names may be kept for.
    pub resolve_interval: Duration,
    /// Addresses of one name that are used; further ones are left out.
    ///
    /// 16: twice what Amazon's names give at once.
    pub addresses_max: usize,
}

/// When an endpoint is left out, and how it comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthSettings {
    /// Failures in a row, none of them a 4xx, after which an endpoint is left out.
    ///
    /// 5: as Envoy does.
    pub failures_max: u32,
    /// Time without any request after the first time; doubled each time that a probe fails.
    ///
    /// 1 s: an endpoint that restarts is back within a few.
    pub ejection: Duration,
    /// Longest time between two probes.
    ///
    /// 4 s: who recovers is used again within five.
    pub ejection_max: Duration,
    /// Longest wait for a probe's answer.
    ///
    /// 1 s.
    pub probe_timeout: Duration,
}

/// What one endpoint is asked at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Requests in flight; below it the number adapts to the endpoint's `503 SlowDown`.
    ///
    /// 1024: as many as there may be connections.
    pub requests_max: usize,
    /// Bytes of bodies in both directions in a second; `None` is without bound.
    pub bytes_per_second_max: Option<u64>,
}

/// When a read is sent a second time, to another endpoint or on another connection.
#[derive(Debug, Clone, PartialEq)]
pub struct HedgeSettings {
    /// Share of reads that may be hedged: the delay is the quantile of time to first byte beyond
    /// which this share of them is, and the token bucket is filled at this rate. Above 0, below
    /// 0.5.
    ///
    /// 0.02: "The Tail at Scale" (Dean and Barroso, 2013) needed 2 % more requests.
    pub share: f64,
    /// Share of reads that is never hedged, so that the gain is measured. 0 to 0.5. A tail that is
    /// rarer than this share of the stalls stays: with 1 % of stalls and 0.1, the last thousandth.
    ///
    /// 0.1.
    pub control_share: f64,
    /// No hedge is sent earlier.
    ///
    /// 1 ms: below it the second request costs more than it can win.
    pub delay_min: Duration,
    /// Reads of one kind that must have been seen before one is hedged.
    ///
    /// 200: four beyond the 98th percentile.
    pub samples_min: u32,
    /// Share of failed requests above which nothing is hedged. Above 0, at most 1.
    ///
    /// 0.05.
    pub failures_share_max: f64,
    /// Nothing is hedged while the median is more than this many times its baseline.
    ///
    /// 3.
    pub slowdown_max: f64,
    /// A body without a byte for this long is resumed elsewhere; never later than `timeouts.idle`.
    ///
    /// 2 s.
    pub stall: Duration,
}

impl HedgeSettings {
    /// Every number outside its range.
    pub(super) fn faults(&self) -> Vec<SettingsError> {
        let Self {
            share,
            control_share,
            delay_min,
            samples_min,
            failures_share_max,
            slowdown_max,
            stall,
        } = self;
        let is_share = |share: f64| 0.0 < share && share <= 1.0;
        let rows = [
            (
                "hedge.share",
                0.0 < *share && *share < 0.5,
                share.to_string(),
                "above 0 and below 0.5",
            ),
            (
                "hedge.control_share",
                (0.0..=0.5).contains(control_share),
                control_share.to_string(),
                "0 to 0.5",
            ),
            (
                "hedge.delay_min",
                !delay_min.is_zero(),
                format!("{delay_min:?}"),
                "more than 0",
            ),
            (
                "hedge.samples_min",
                (1..=SAMPLES_LIMIT).contains(samples_min),
                samples_min.to_string(),
                "1 to 1000000",
            ),
            (
                "hedge.failures_share_max",
                is_share(*failures_share_max),
                failures_share_max.to_string(),
                "above 0, at most 1",
            ),
            (
                "hedge.slowdown_max",
                *slowdown_max > 1.0 && slowdown_max.is_finite(),
                slowdown_max.to_string(),
                "more than 1",
            ),
            (
                "hedge.stall",
                !stall.is_zero(),
                format!("{stall:?}"),
                "more than 0",
            ),
        ];
        rows.into_iter()
            .filter(|(_, is_allowed, ..)| !is_allowed)
            .map(|(key, _, value, allowed)| SettingsError::OutOfRange {
                key,
                value,
                allowed,
            })
            .collect()
    }
}

/// More would never be seen of most kinds of reads.
const SAMPLES_LIMIT: u32 = 1_000_000;

impl Default for BalanceSettings {
    fn default() -> Self {
        Self {
            slow_start: Duration::from_secs(2),
            resolve_interval: Duration::from_secs(5),
            addresses_max: 16,
        }
    }
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            failures_max: 5,
            ejection: Duration::from_secs(1),
            ejection_max: Duration::from_secs(4),
            probe_timeout: Duration::from_secs(1),
        }
    }
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            requests_max: 1024,
            bytes_per_second_max: None,
        }
    }
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self {
            share: 0.02,
            control_share: 0.1,
            delay_min: Duration::from_millis(1),
            samples_min: 200,
            failures_share_max: 0.05,
            slowdown_max: 3.0,
            stall: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_hedging_outside_its_range_is_told() {
        assert!(HedgeSettings::default().faults().is_empty());
        let wrong = HedgeSettings {
            share: 0.5,
            control_share: -0.1,
            delay_min: Duration::ZERO,
            samples_min: 0,
            failures_share_max: f64::NAN,
            slowdown_max: 1.0,
            stall: Duration::ZERO,
        };
        assert_eq!(wrong.faults().len(), 7);
    }
}
