//! One measurement: one case, on one endpoint, in one round.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Histogram;

/// What one case on one endpoint gave in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The endpoint's place in the run's list, from 0.
    pub endpoint: usize,
    /// The round, from 0. Measurements of one case and round are compared with each other.
    pub round: u32,
    /// What was asked.
    pub case: Case,
    /// Time measured, warm-up not included.
    pub seconds: f64,
    /// Requests that succeeded.
    pub requests: u64,
    /// Bytes of objects that these carried, in either direction.
    pub bytes: u64,
    /// Requests that did not succeed, by S3 error code, or by what happened where there was no
    /// answer (`Timeout`, `ConnectionReset`, `ShortBody`, `WrongBytes`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// From the start of a request (in an open loop: its scheduled start) to the last byte of its
    /// answer; of requests that succeeded.
    pub latency_ns: Histogram,
    /// From the same start to the first byte of the answer.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub first_byte_ns: Histogram,
    /// What each second of the measured time gave, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Second>,
    /// What measuring cost the load generator.
    pub client: ClientCost,
    /// What reached the origin meanwhile, where a relay counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginTraffic>,
}

/// What was asked of an endpoint. Measurements with equal cases are of the same thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// `get`, `head`, `put`, `delete`, `list`, `mixed`, `multipart`, …
    pub operation: String,
    /// Size of each object, where the case has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_bytes: Option<u64>,
    /// Connections that requests were sent on.
    pub clients: u32,
    /// How requests followed one another.
    pub load: Load,
    /// What else tells this case from the others of the run: `{"working_set": "4x"}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// How requests followed one another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum Load {
    /// Each of `concurrency` waits for its answer before it sends again.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
    /// Requests start on schedule even while earlier ones are slow.
    Open {
        /// Requests per second asked for.
        rate: f64,
    },
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { concurrency } => write!(f, "{concurrency} at once"),
            Self::Open { rate } => write!(f, "{rate}/s asked"),
        }
    }
}

/// What one second gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Requests that succeeded.
    pub requests: u64,
    /// Bytes of objects that these carried.
    pub bytes: u64,
    /// Requests that did not.
    #[serde(default)]
    pub errors: u64,
    /// Median latency; absent when nothing succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// What measuring cost the load generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientCost {
    /// Processor time of the load generator during the measured time, all its threads.
    pub cpu_seconds: f64,
    /// Threads that sent requests.
    pub threads: u32,
    /// Set when the figures are the load generator's limit and not the endpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<Warning>,
}

/// Something to know before a figure is believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// What was seen.
    pub fact: String,
    /// What most likely made it so.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.fact, self.cause, self.remedy)
    }
}

/// What a relay between an endpoint and its origin counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginTraffic {
    /// Requests that reached the origin.
    pub requests: u64,
    /// Bytes that came back from it, heads included.
    pub bytes: u64,
}

impl Measurement {
    /// A measurement that has counted nothing yet.
    pub fn new(endpoint: usize, round: u32, case: Case) -> Self {
        Self {
            endpoint,
            round,
            case,
            seconds: 0.0,
            requests: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            latency_ns: Histogram::new(),
            first_byte_ns: Histogram::new(),
            series: Vec::new(),
            client: ClientCost::default(),
            origin: None,
        }
    }

    /// Requests that did not succeed.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Requests that succeeded, per second.
    pub fn requests_per_second(&self) -> f64 {
        self.per_second(self.requests)
    }

    /// Bytes of objects per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.bytes)
    }

    /// Processor time of the load generator for each request that succeeded.
    pub fn client_cpu_seconds_per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.client.cpu_seconds / exact(self.requests))
    }

    /// Bytes that came from the origin for each request that succeeded, where a relay counted.
    pub fn origin_bytes_per_request(&self) -> Option<f64> {
        let origin = self.origin.filter(|_| self.requests > 0)?;
        Some(exact(origin.bytes) / exact(self.requests))
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 {
            exact(count) / self.seconds
        } else {
            0.0
        }
    }

    /// What must hold between the fields and no type says.
    pub(super) fn check(&self, endpoints: usize) -> Result<(), String> {
        if self.endpoint >= endpoints {
            return Err(format!("there is no endpoint {}", self.endpoint));
        }
        let limits = [
            ("seconds", self.seconds),
            ("client.cpu_seconds", self.client.cpu_seconds),
        ];
        for (name, value) in limits {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("{name} is {value}"));
            }
        }
        if let Load::Open { rate } = self.case.load
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(format!("case.load.rate is {rate}"));
        }
        Ok(())
    }
}

/// A count as a number to divide; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no run counts 2^53 of anything")]
pub(crate) fn exact(count: u64) -> f64 {
    count as f64
}
