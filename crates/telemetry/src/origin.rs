//! What the origin store counts: requests, attempts, bytes and connections.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_origin_requests_total` | `outcome`: class of the answer, or why there was none |
//! | `forebay_origin_first_byte_seconds` (histogram) | `effect`: `read` or `write`; last attempt |
//! | `forebay_origin_retries_total` | `reason` |
//! | `forebay_origin_sent_bytes_total`, `forebay_origin_received_bytes_total` | bodies, as coded |
//! | `forebay_origin_bodies_cut_total` | answers whose body broke off |
//! | `forebay_origin_in_flight` (gauge) | requests whose answer is not finished |
//! | `forebay_origin_connections` (gauge), `forebay_origin_connections_opened_total` | |
//! | `forebay_origin_connect_errors_total` | |
//! | `forebay_origin_pool_waits_total` | requests that waited because all connections were in use |
//! | `forebay_origin_credential_errors_total` | refreshes of credentials that failed |
//! | `forebay_origin_retry_budget` (gauge) | retries that may be paid for at this moment |
//! | `forebay_origin_read_backs_total` | `result`: what became of writes of unknown outcome |
//! | `forebay_origin_lookup_errors_total` | names that could not be resolved |
//! | `forebay_origin_endpoint_attempts_total` | `endpoint`, `outcome` |
//! | `forebay_origin_endpoint_ejections_total` | `endpoint` |
//! | `forebay_origin_endpoint_up`, `forebay_origin_endpoint_in_flight` (gauges) | `endpoint` |
//! | `forebay_origin_endpoint_requests_max` (gauge) | `endpoint`; adapts to 503 |
//! | `forebay_origin_endpoint_first_byte_average_seconds` (gauge) | `endpoint` |
//!
//! Those of hedged reads and resumed bodies are in [`crate::hedge`].
//!
//! Every counter is found when the struct is made, so none is looked up on a request's way.

mod endpoints;

use std::sync::atomic::AtomicU64;

pub use endpoints::{EndpointFamilies, EndpointMetrics};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::hedge::HedgeMetrics;

/// A gauge of a number that is not whole.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// Counters of one origin; clones count together.
#[derive(Debug, Clone)]
pub struct OriginMetrics {
    /// Requests by how they ended.
    pub requests: Outcomes,
    /// Time from the start of an attempt to the answer's headers, of requests that change nothing.
    pub first_byte_read: Histogram,
    /// The same of requests that may change something.
    pub first_byte_write: Histogram,
    /// Attempts after the first.
    pub retries: RetryReasons,
    /// Payload sent, trailers and chunk framing included.
    pub sent_bytes: Counter,
    /// Payload received.
    pub received_bytes: Counter,
    /// Answers whose body broke off.
    pub bodies_cut: Counter,
    /// Requests whose answer is not finished.
    pub in_flight: Gauge,
    /// Connections open.
    pub connections: Gauge,
    /// Connections opened so far.
    pub connections_opened: Counter,
    /// Connections that could not be opened.
    pub connect_errors: Counter,
    /// Requests that waited because all connections were in use.
    pub pool_waits: Counter,
    /// Refreshes of credentials that failed.
    pub credential_errors: Counter,
    /// Retries that may be paid for at this moment.
    pub retry_budget: FloatGauge,
    /// Writes of unknown outcome that were read back.
    pub read_backs: ReadBacks,
    /// Names that could not be resolved.
    pub lookup_errors: Counter,
    /// Counters of each endpoint.
    pub endpoints: EndpointFamilies,
    /// Hedged reads and resumed bodies.
    pub hedge: HedgeMetrics,
    families: Families,
}

/// Requests by how they ended.
#[derive(Debug, Clone)]
pub struct Outcomes {
    /// Answered with 1xx to 3xx.
    pub success: Counter,
    /// Answered with 4xx.
    pub client_error: Counter,
    /// Answered with 5xx.
    pub server_error: Counter,
    /// The origin was not reached or did not answer, and nothing changed.
    pub unavailable: Counter,
    /// A write may or may not have happened.
    pub indeterminate: Counter,
    /// All connections stayed in use.
    pub busy: Counter,
    /// The client's body ended in an error, or the request could not be sent as it was.
    pub refused: Counter,
}

/// Attempts after the first, by what was wrong with the one before.
#[derive(Debug, Clone)]
pub struct RetryReasons {
    /// A pooled connection turned out to be closed.
    pub stale: Counter,
    /// No connection, or it closed before the answer.
    pub unreachable: Counter,
    /// 503: refused without effect.
    pub slow_down: Counter,
    /// 500, 502 or 504, and another endpoint to ask.
    pub server_error: Counter,
}

/// Writes of unknown outcome, by what reading back told.
#[derive(Debug, Clone)]
pub struct ReadBacks {
    /// They had happened.
    pub happened: Counter,
    /// They had not, and were sent again.
    pub repeated: Counter,
    /// It could not be told.
    pub unknown: Counter,
}

#[derive(Debug, Clone)]
struct Families {
    read_backs: Family<ResultLabel, Counter>,
    requests: Family<OutcomeLabel, Counter>,
    first_byte: Family<EffectLabel, Histogram, fn() -> Histogram>,
    retries: Family<ReasonLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabel {
    effect: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl OriginMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        let families = Families {
            requests: Family::default(),
            first_byte: Family::new_with_constructor(first_byte_histogram),
            retries: Family::default(),
            read_backs: Family::default(),
        };
        let read_back = |result| {
            families
                .read_backs
                .get_or_create_owned(&ResultLabel { result })
        };
        let outcome = |outcome| {
            families
                .requests
                .get_or_create_owned(&OutcomeLabel { outcome })
        };
        let first_byte = |effect| {
            families
                .first_byte
                .get_or_create_owned(&EffectLabel { effect })
        };
        let reason = |reason| {
            families
                .retries
                .get_or_create_owned(&ReasonLabel { reason })
        };
        Self {
            requests: Outcomes {
                success: outcome("success"),
                client_error: outcome("client_error"),
                server_error: outcome("server_error"),
                unavailable: outcome("unavailable"),
                indeterminate: outcome("indeterminate"),
                busy: outcome("busy"),
                refused: outcome("refused"),
            },
            first_byte_read: first_byte("read"),
            first_byte_write: first_byte("write"),
            retries: RetryReasons {
                stale: reason("stale"),
                unreachable: reason("unreachable"),
                slow_down: reason("slow_down"),
                server_error: reason("server_error"),
            },
            sent_bytes: Counter::default(),
            received_bytes: Counter::default(),
            bodies_cut: Counter::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            connections_opened: Counter::default(),
            connect_errors: Counter::default(),
            pool_waits: Counter::default(),
            credential_errors: Counter::default(),
            retry_budget: Gauge::default(),
            read_backs: ReadBacks {
                happened: read_back("happened"),
                repeated: read_back("repeated"),
                unknown: read_back("unknown"),
            },
            lookup_errors: Counter::default(),
            endpoints: EndpointFamilies::default(),
            hedge: HedgeMetrics::new(),
            families,
        }
    }

    /// Names the counters in `registry`, which prefixes them with `forebay_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("origin");
        let Families {
            requests,
            first_byte,
            retries,
            read_backs,
        } = self.families.clone();
        registry.register("requests", "Requests by how they ended", requests);
        registry.register(
            "first_byte_seconds",
            "Time to the answer's headers",
            first_byte,
        );
        registry.register("retries", "Attempts after the first", retries);
        registry.register(
            "sent_bytes",
            "Payload sent to the origin",
            self.sent_bytes.clone(),
        );
        registry.register(
            "received_bytes",
            "Payload received from the origin",
            self.received_bytes.clone(),
        );
        registry.register(
            "bodies_cut",
            "Answers that broke off",
            self.bodies_cut.clone(),
        );
        registry.register("in_flight", "Requests not finished", self.in_flight.clone());
        registry.register("connections", "Connections open", self.connections.clone());
        registry.register(
            "connections_opened",
            "Connections opened",
            self.connections_opened.clone(),
        );
        registry.register(
            "connect_errors",
            "Connections refused",
            self.connect_errors.clone(),
        );
        registry.register(
            "pool_waits",
            "Waits for a connection",
            self.pool_waits.clone(),
        );
        registry.register(
            "credential_errors",
            "Refreshes of credentials that failed",
            self.credential_errors.clone(),
        );
        registry.register(
            "retry_budget",
            "Retries that may be paid for at this moment",
            self.retry_budget.clone(),
        );
        registry.register(
            "read_backs",
            "Writes of unknown outcome by what reading back told",
            read_backs,
        );
        registry.register(
            "lookup_errors",
            "Names that could not be resolved",
            self.lookup_errors.clone(),
        );
        self.endpoints.register(registry);
        self.hedge.register(registry);
    }
}

impl Default for OriginMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Bounds from 0.25 ms, an answer on the same machine, to 131 s, beyond every timeout's default.
fn first_byte_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_printed_under_its_name() {
        let mut registry = Registry::with_prefix("forebay");
        let metrics = OriginMetrics::default();
        metrics.register(&mut registry);
        metrics.requests.busy.inc();
        metrics.retries.stale.inc_by(2);
        metrics.endpoints.endpoint("http://a").unreachable.inc();
        metrics.endpoints.endpoint("http://b").answered.inc();
        metrics.endpoints.forget("http://b");
        metrics.first_byte_write.observe(0.001);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_origin_requests_total{outcome=\"busy\"} 1",
            "forebay_origin_retries_total{reason=\"stale\"} 2",
            "forebay_origin_first_byte_seconds_count{effect=\"write\"} 1",
            "forebay_origin_sent_bytes_total 0",
            "forebay_origin_read_backs_total{result=\"unknown\"} 0",
            "forebay_origin_endpoint_attempts_total{endpoint=\"http://a\",outcome=\"unreachable\"} 1",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
        assert!(!text.contains("http://b"), "{text}");
    }
}
