//! What a tier counts: what is dirty, what became of moves, and where it had to give way.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_tier_dirty_bytes`, `forebay_tier_dirty_bytes_max` (gauges) | |
//! | `forebay_tier_dirty_objects`, `forebay_tier_tombstones`, `forebay_tier_conflicts` (gauges) | |
//! | `forebay_tier_oldest_dirty_seconds` (gauge): age of the oldest that the cold store lacks | |
//! | `forebay_tier_moves_total` | `outcome` |
//! | `forebay_tier_conflicts_found_total` | |
//! | `forebay_tier_degradations_total`: writes that went to the cold store instead | `cause` |
//! | `forebay_tier_saved_requests_total`: that the cold store did not get | `effect` |
//! | `forebay_tier_redirects_total` | |
//! | `forebay_tier_hot_errors_total`: requests that the hot store failed | |
//! | `forebay_tier_move_attempt_seconds` (histogram): time of one move | |

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Counters of one tier; clones count together.
#[derive(Debug, Clone)]
pub struct TierMetrics {
    /// Bytes that the cold store lacks.
    pub dirty_bytes: Gauge,
    /// Bytes that it may lack.
    pub dirty_bytes_max: Gauge,
    /// Objects that it lacks.
    pub dirty_objects: Gauge,
    /// Deletes that it has not had.
    pub tombstones: Gauge,
    /// Objects that can't be moved, as somebody else has written the key.
    pub conflicts: Gauge,
    /// Age of the oldest object or delete that the cold store lacks.
    pub oldest_dirty: Gauge,
    /// Conflicts found so far.
    pub conflicts_found: Counter,
    /// Reads that were answered with a redirect.
    pub redirects: Counter,
    /// Requests that the hot store failed.
    pub hot_errors: Counter,
    /// Time of a move, from its first look to its end.
    pub move_seconds: Histogram,
    moves: Family<[(&'static str, &'static str); 1], Counter>,
    degradations: Family<[(&'static str, &'static str); 1], Counter>,
    saved: Family<[(&'static str, &'static str); 1], Counter>,
}

/// What became of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MoveOutcome {
    /// The object was written.
    Written,
    /// It was there already: an attempt whose answer was lost.
    Already,
    /// The key was deleted.
    Deleted,
    /// The key has been written again meanwhile.
    Superseded,
    /// The deleted key has been written by somebody else since.
    Overtaken,
    /// Somebody else has written the key since.
    Conflict,
    /// The cold store refused it.
    Refused,
    /// The cold store could not be asked, or its answer was lost.
    Failed,
}

impl MoveOutcome {
    const ALL: [Self; 8] = [
        Self::Written,
        Self::Already,
        Self::Deleted,
        Self::Superseded,
        Self::Overtaken,
        Self::Conflict,
        Self::Refused,
        Self::Failed,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Already => "already",
            Self::Deleted => "deleted",
            Self::Superseded => "superseded",
            Self::Overtaken => "overtaken",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Why a write went to the cold store that belonged in the hot one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Degradation {
    /// The budget of dirty bytes is used up.
    Budget,
    /// The hot store did not take it.
    HotStore,
    /// The tier is being drained.
    Drain,
    /// The bucket keeps versions.
    Bucket,
}

impl Degradation {
    const ALL: [Self; 4] = [Self::Budget, Self::HotStore, Self::Drain, Self::Bucket];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::HotStore => "hot_store",
            Self::Drain => "drain",
            Self::Bucket => "bucket",
        }
    }
}

/// What the cold store was spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Saved {
    /// A read, answered by the hot store.
    Read,
    /// A write, replaced or deleted before it was moved.
    Write,
}

impl Saved {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl TierMetrics {
    /// Counters at zero, each of them there: an alert can't tell a series that is not from one that
    /// nobody reads.
    pub fn new() -> Self {
        let metrics = Self::without_series();
        for outcome in MoveOutcome::ALL {
            metrics.moves(outcome);
        }
        for cause in Degradation::ALL {
            metrics.degradations(cause);
        }
        for effect in Saved::ALL {
            metrics.saved_count(effect);
        }
        metrics
    }

    fn without_series() -> Self {
        Self {
            dirty_bytes: Gauge::default(),
            dirty_bytes_max: Gauge::default(),
            dirty_objects: Gauge::default(),
            tombstones: Gauge::default(),
            conflicts: Gauge::default(),
            oldest_dirty: Gauge::default(),
            conflicts_found: Counter::default(),
            redirects: Counter::default(),
            hot_errors: Counter::default(),
            // 1 ms to 65 s: a fast origin nearby, up to the time limit of an attempt.
            move_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            moves: Family::default(),
            degradations: Family::default(),
            saved: Family::default(),
        }
    }

    /// Counts a move.
    pub fn moved(&self, outcome: MoveOutcome) {
        self.moves
            .get_or_create(&[("outcome", outcome.as_str())])
            .inc();
    }

    /// Moves that ended so.
    pub fn moves(&self, outcome: MoveOutcome) -> u64 {
        self.moves
            .get_or_create(&[("outcome", outcome.as_str())])
            .get()
    }

    /// Counts a write that went to the cold store.
    pub fn degraded(&self, cause: Degradation) {
        self.degradations
            .get_or_create(&[("cause", cause.as_str())])
            .inc();
    }

    /// Writes that went to the cold store for this cause.
    pub fn degradations(&self, cause: Degradation) -> u64 {
        self.degradations
            .get_or_create(&[("cause", cause.as_str())])
            .get()
    }

    /// Counts a request that the cold store did not get.
    pub fn saved(&self, effect: Saved) {
        self.saved
            .get_or_create(&[("effect", effect.as_str())])
            .inc();
    }

    /// Requests that the cold store did not get.
    pub fn saved_count(&self, effect: Saved) -> u64 {
        self.saved
            .get_or_create(&[("effect", effect.as_str())])
            .get()
    }

    /// Registers everything; the registry adds the prefix `forebay`.
    pub fn register(&self, registry: &mut Registry) {
        let tier = registry.sub_registry_with_prefix("tier");
        let gauge = |tier: &mut Registry, name, help, gauge: &Gauge| {
            tier.register(name, help, gauge.clone());
        };
        tier.register_with_unit(
            "dirty",
            "Bytes that the cold store lacks",
            Unit::Bytes,
            self.dirty_bytes.clone(),
        );
        gauge(
            tier,
            "dirty_bytes_max",
            "Bytes that the cold store may lack",
            &self.dirty_bytes_max,
        );
        gauge(
            tier,
            "dirty_objects",
            "Objects that the cold store lacks",
            &self.dirty_objects,
        );
        gauge(
            tier,
            "tombstones",
            "Deletes that the cold store has not had",
            &self.tombstones,
        );
        gauge(
            tier,
            "conflicts",
            "Objects that wait for an operator",
            &self.conflicts,
        );
        tier.register_with_unit(
            "oldest_dirty",
            "Age of the oldest that the cold store lacks",
            Unit::Seconds,
            self.oldest_dirty.clone(),
        );
        let counter = |tier: &mut Registry, name, help, counter: &Counter| {
            tier.register(name, help, counter.clone());
        };
        counter(
            tier,
            "conflicts_found",
            "Conflicts found",
            &self.conflicts_found,
        );
        counter(
            tier,
            "redirects",
            "Reads answered with a redirect",
            &self.redirects,
        );
        counter(
            tier,
            "hot_errors",
            "Requests that the hot store failed",
            &self.hot_errors,
        );
        tier.register("moves", "Moves by what became of them", self.moves.clone());
        tier.register(
            "degradations",
            "Writes that went to the cold store instead",
            self.degradations.clone(),
        );
        tier.register(
            "saved_requests",
            "Requests that the cold store did not get",
            self.saved.clone(),
        );
        tier.register_with_unit(
            "move_attempt",
            "Time of one move",
            Unit::Seconds,
            self.move_seconds.clone(),
        );
    }
}

impl Default for TierMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happened_is_told_as_none() {
        let mut registry = Registry::with_prefix("forebay");
        TierMetrics::new().register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_tier_moves_total{outcome=\"conflict\"} 0",
            "forebay_tier_degradations_total{cause=\"budget\"} 0",
            "forebay_tier_saved_requests_total{effect=\"read\"} 0",
            "forebay_tier_saved_requests_total{effect=\"write\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
