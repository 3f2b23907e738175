//! What makes one steady origin of several endpoints, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// How an endpoint is chosen.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBalance {
    /// Time over which an endpoint that is new or back takes its full share again.
    #[schemars(example = &"2s")]
    pub slow_start: Option<String>,
    /// Time between two looks at the addresses of a name.
    #[schemars(example = &"5s")]
    pub resolve_interval: Option<String>,
    /// Addresses of one name that are used.
    #[schemars(example = 16)]
    pub addresses_max: Option<i64>,
}

/// When an endpoint is left out, and how it comes back.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawHealth {
    /// Failures in a row after which an endpoint is left out.
    #[schemars(example = 5)]
    pub failures_max: Option<i64>,
    /// Time until it is probed; doubled each time that the probe fails.
    #[schemars(example = &"1s")]
    pub ejection: Option<String>,
    /// Longest time between two probes.
    #[schemars(example = &"4s")]
    pub ejection_max: Option<String>,
    /// Longest wait for a probe's answer.
    #[schemars(example = &"1s")]
    pub probe_timeout: Option<String>,
}

/// What one endpoint is asked at most.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawEndpointLimits {
    /// Requests in flight; below it their number adapts to what the endpoint refuses.
    #[schemars(example = 1024)]
    pub requests_max: Option<i64>,
    /// Bytes of bodies in both directions in a second; without bound unless given.
    #[schemars(example = &"100MiB")]
    pub bytes_per_second_max: Option<String>,
}

/// When a read is sent a second time, to another endpoint or on another connection.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawHedge {
    /// Whether it is at all; where there are several `endpoints` unless given.
    #[schemars(example = true)]
    pub enabled: Option<bool>,
    /// Share of reads that may be sent twice: the slowest ones.
    #[schemars(example = &"2%")]
    pub share: Option<String>,
    /// Share of reads that never is, so that the gain is measured.
    #[schemars(example = &"10%")]
    pub control_share: Option<String>,
    /// No read is sent twice earlier.
    #[schemars(example = &"1ms")]
    pub delay_min: Option<String>,
    /// Reads of one kind that must have been seen before.
    #[schemars(example = 200)]
    pub samples_min: Option<i64>,
    /// Share of failed requests above which no read is sent twice.
    #[schemars(example = &"5%")]
    pub failures_share_max: Option<String>,
    /// Times its usual that the median may be; above it no read is sent twice.
    #[schemars(example = 3)]
    pub slowdown_max: Option<i64>,
    /// Time without a byte in a body, after which the rest is asked for elsewhere.
    #[schemars(example = &"2s")]
    pub stall: Option<String>,
}
