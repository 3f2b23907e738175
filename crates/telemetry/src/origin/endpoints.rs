//! What is counted of each endpoint of an origin.
//!
//! The label `endpoint` is the endpoint's name as operators see it. An endpoint whose address its
//! name no longer has is taken out of the families with [`EndpointFamilies::forget`], so there are
//! never more than the settings allow.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::FloatGauge;

/// Counters of one endpoint; clones count together.
#[derive(Debug, Clone)]
pub struct EndpointMetrics {
    /// Attempts with an answer below 500, or 501.
    pub answered: Counter,
    /// Attempts answered with 503.
    pub slow_down: Counter,
    /// Attempts answered with another 5xx.
    pub server_error: Counter,
    /// Attempts without an answer, and answers that broke off.
    pub unreachable: Counter,
    /// Attempts given up here, such as the slower one of a hedged pair.
    pub cancelled: Counter,
    /// Times that it was left out.
    pub ejections: Counter,
    /// 1 while it takes requests, else 0.
    pub up: Gauge,
    /// Attempts whose answer is not finished.
    pub in_flight: Gauge,
    /// Attempts that may be in flight at this moment.
    pub requests_max: Gauge,
    /// Moving average of the time to first byte.
    pub first_byte_seconds: FloatGauge,
}

/// The counters of all endpoints.
#[derive(Debug, Clone, Default)]
pub struct EndpointFamilies {
    attempts: Family<AttemptLabel, Counter>,
    ejections: Family<EndpointLabel, Counter>,
    up: Family<EndpointLabel, Gauge>,
    in_flight: Family<EndpointLabel, Gauge>,
    requests_max: Family<EndpointLabel, Gauge>,
    first_byte: Family<EndpointLabel, FloatGauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabel {
    endpoint: String,
    outcome: &'static str,
}

const OUTCOMES: [&str; 5] = [
    "answered",
    "slow_down",
    "server_error",
    "unreachable",
    "cancelled",
];

impl EndpointFamilies {
    /// The counters of the endpoint called `name`.
    pub fn endpoint(&self, name: &str) -> EndpointMetrics {
        let label = EndpointLabel {
            endpoint: name.to_owned(),
        };
        let [answered, slow_down, server_error, unreachable, cancelled] = OUTCOMES.map(|outcome| {
            let endpoint = name.to_owned();
            self.attempts
                .get_or_create_owned(&AttemptLabel { endpoint, outcome })
        });
        EndpointMetrics {
            answered,
            slow_down,
            server_error,
            unreachable,
            cancelled,
            ejections: self.ejections.get_or_create_owned(&label),
            up: self.up.get_or_create_owned(&label),
            in_flight: self.in_flight.get_or_create_owned(&label),
            requests_max: self.requests_max.get_or_create_owned(&label),
            first_byte_seconds: self.first_byte.get_or_create_owned(&label),
        }
    }

    /// Prints the endpoint called `name` no more.
    pub fn forget(&self, name: &str) {
        for outcome in OUTCOMES {
            let endpoint = name.to_owned();
            self.attempts.remove(&AttemptLabel { endpoint, outcome });
        }
        let label = EndpointLabel {
            endpoint: name.to_owned(),
        };
        self.ejections.remove(&label);
        self.up.remove(&label);
        self.in_flight.remove(&label);
        self.requests_max.remove(&label);
        self.first_byte.remove(&label);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let Self {
            attempts,
            ejections,
            up,
            in_flight,
            requests_max,
            first_byte,
        } = self.clone();
        registry.register(
            "endpoint_attempts",
            "Attempts at an endpoint by how they ended",
            attempts,
        );
        registry.register(
            "endpoint_ejections",
            "Times that an endpoint was left out",
            ejections,
        );
        registry.register("endpoint_up", "Whether an endpoint takes requests", up);
        registry.register(
            "endpoint_in_flight",
            "Attempts not finished at an endpoint",
            in_flight,
        );
        registry.register(
            "endpoint_requests_max",
            "Attempts that may be in flight at an endpoint",
            requests_max,
        );
        registry.register(
            "endpoint_first_byte_average_seconds",
            "Moving average of an endpoint's time to first byte",
            first_byte,
        );
    }
}
