//! What is told of S3 services and their endpoints.

use serde::{Deserialize, Serialize};

/// S3 services: `GET /admin/v1/origin/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginsAnswer {
    /// By name.
    pub origins: Vec<OriginStatus>,
}

/// How one S3 service stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginStatus {
    /// Name of the store.
    pub store: String,
    /// In the order of the config, each address behind a name by itself.
    pub endpoints: Vec<EndpointStatus>,
}

/// How one endpoint stands; counts since the program began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// Scheme, host and port; with `@` and the address where a name has several.
    pub endpoint: String,
    /// `up`; `slow-start`: it is new or back, and its share grows; `ejected`: it failed too often;
    /// `probing`: it is asked whether it is back; `held-out`, `draining`: an operator took it out.
    pub state: String,
    /// Time until it is probed, of one that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_seconds: Option<f64>,
    /// Requests whose answers are not finished.
    pub in_flight: u64,
    /// Requests that may be in flight at this moment.
    pub requests_max_now: u64,
    /// Moving average of the time to first byte; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<f64>,
    /// Attempts made.
    pub requests: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Failures since the last success.
    pub failures_in_row: u32,
}

/// Which endpoint: the body of `POST /admin/v1/origin/{eject,restore,drain}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndpointChoice {
    /// Name of the store.
    pub store: String,
    /// The endpoint, as `status` names it.
    pub endpoint: String,
}
