//! What a Redis store counts.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_redis_command_seconds` (histogram): answered exchanges | `kind`: [`CommandSeconds`] |
//! | `forebay_redis_failures_total`: exchanges without a good answer | `cause`: see [`Failures`] |
//! | `forebay_redis_redirects_total`: commands sent on to another server | |
//! | `forebay_redis_connections` (gauge): open and checked | |
//! | `forebay_redis_connects_total`, `forebay_redis_connects_failed_total` | |
//! | `forebay_redis_connections_lost_total` | |
//! | `forebay_redis_servers_refused_total`: servers that would not keep what is promised | |
//! | `forebay_redis_payloads_reread_total`: payloads read again as their entry had changed | |
//! | `forebay_redis_blobs_swept_total`: blobs removed that nothing named | |
//! | `forebay_redis_changes_told_total`, `forebay_redis_changes_heard_total` | |
//! | `forebay_redis_changes_verified` (gauge): 1: every change is heard | |
//! | `forebay_redis_changes_unverified_total`: times that changes may have been missed | |

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Counters of one Redis store; clones count together.
#[derive(Debug, Clone)]
pub struct RedisMetrics {
    /// Time of exchanges that were answered.
    pub seconds: CommandSeconds,
    /// Exchanges without a good answer.
    pub failures: Failures,
    /// Commands sent on to another server.
    pub redirects: Counter,
    /// Connections open and checked.
    pub connections: Gauge,
    /// Connections made.
    pub connects: Counter,
    /// Attempts that made none.
    pub connects_failed: Counter,
    /// Connections that ended by themselves or were given up.
    pub connections_lost: Counter,
    /// Servers that would not keep what is promised.
    pub servers_refused: Counter,
    /// Payloads read again, as their entry had changed.
    pub payloads_reread: Counter,
    /// Blobs removed that nothing named.
    pub blobs_swept: Counter,
    /// Changes told to other gateways.
    pub changes_told: Counter,
    /// Changes heard from them.
    pub changes_heard: Counter,
    /// 1 while every change is heard.
    pub changes_verified: Gauge,
    /// Times that changes may have been missed.
    pub changes_unverified: Counter,
    families: Families,
}

/// Time of exchanges, by what they did.
#[derive(Debug, Clone)]
pub struct CommandSeconds {
    /// Entries, ranges and counters.
    pub read: Histogram,
    /// Batches.
    pub write: Histogram,
    /// Chunks of large payloads, either way.
    pub blob: Histogram,
    /// Leases.
    pub lease: Histogram,
    /// Messages to other gateways.
    pub tell: Histogram,
}

/// Why exchanges had no good answer.
#[derive(Debug, Clone)]
pub struct Failures {
    /// Nothing was sent, or the server said that nothing was done.
    pub unavailable: Counter,
    /// Sent, and no answer came.
    pub unanswered: Counter,
    /// Done, and too few replicas said that they have it.
    pub replicas: Counter,
    /// Too many commands waited.
    pub busy: Counter,
    /// The server has no room.
    pub full: Counter,
    /// The server denied it.
    pub denied: Counter,
    /// What was read is damaged.
    pub damaged: Counter,
    /// An answer that means a fault of the program.
    pub fault: Counter,
}

#[derive(Debug, Clone)]
struct Families {
    seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    failures: Family<CauseLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// 50 µs, an exchange on loopback, to 1.6 s, where timeouts begin.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 16))
}

impl RedisMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        let families = Families {
            seconds: Family::new_with_constructor(seconds),
            failures: Family::default(),
        };
        let of = |kind| families.seconds.get_or_create_owned(&KindLabel { kind });
        let failed = |cause| families.failures.get_or_create_owned(&CauseLabel { cause });
        Self {
            seconds: CommandSeconds {
                read: of("read"),
                write: of("write"),
                blob: of("blob"),
                lease: of("lease"),
                tell: of("tell"),
            },
            failures: Failures {
                unavailable: failed("unavailable"),
                unanswered: failed("unanswered"),
                replicas: failed("replicas"),
                busy: failed("busy"),
                full: failed("full"),
                denied: failed("denied"),
                damaged: failed("damaged"),
                fault: failed("fault"),
            },
            redirects: Counter::default(),
            connections: Gauge::default(),
            connects: Counter::default(),
            connects_failed: Counter::default(),
            connections_lost: Counter::default(),
            servers_refused: Counter::default(),
            payloads_reread: Counter::default(),
            blobs_swept: Counter::default(),
            changes_told: Counter::default(),
            changes_heard: Counter::default(),
            changes_verified: Gauge::default(),
            changes_unverified: Counter::default(),
            families,
        }
    }

    /// Makes the counters part of what a scrape gives.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("forebay_redis");
        for (name, help, counter) in [
            (
                "redirects",
                "Commands sent on to another server",
                &self.redirects,
            ),
            ("connects", "Connections made", &self.connects),
            (
                "connects_failed",
                "Attempts that made none",
                &self.connects_failed,
            ),
            (
                "connections_lost",
                "Connections that ended",
                &self.connections_lost,
            ),
            (
                "servers_refused",
                "Servers that break the promise",
                &self.servers_refused,
            ),
            (
                "payloads_reread",
                "Payloads read again",
                &self.payloads_reread,
            ),
            (
                "blobs_swept",
                "Blobs removed that nothing named",
                &self.blobs_swept,
            ),
            (
                "changes_told",
                "Changes told to other gateways",
                &self.changes_told,
            ),
            (
                "changes_heard",
                "Changes heard from them",
                &self.changes_heard,
            ),
            (
                "changes_unverified",
                "Times that changes may be missed",
                &self.changes_unverified,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        let verified = self.changes_verified.clone();
        registry.register("connections", "Connections open", self.connections.clone());
        registry.register(
            "changes_verified",
            "Whether every change is heard",
            verified,
        );
        let families = self.families.clone();
        let help = "Exchanges without a good answer";
        registry.register("failures", help, families.failures);
        let help = "Time of answered exchanges";
        registry.register_with_unit("command", help, Unit::Seconds, families.seconds);
    }
}

impl Default for RedisMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_of_the_table_above() {
        let metrics = RedisMetrics::new();
        metrics.failures.unanswered.inc();
        metrics.seconds.write.observe(0.25);
        metrics.changes_verified.set(1);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_redis_redirects_total 0",
            "forebay_redis_connections 0",
            "forebay_redis_connections_lost_total 0",
            "forebay_redis_changes_verified 1",
            "forebay_redis_failures_total{cause=\"unanswered\"} 1",
            "forebay_redis_command_seconds_count{kind=\"write\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
