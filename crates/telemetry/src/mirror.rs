//! What a mirror counts: what became of writes, how its members stand, and what repair does.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_mirror_writes_total` | `result` |
//! | `forebay_mirror_partial_writes_total`: acknowledged before all members had them | |
//! | `forebay_mirror_fallbacks_total`: reads that went on to another member | `reason` |
//! | `forebay_mirror_repairs_total` | `result` |
//! | `forebay_mirror_repaired_bytes_total` | |
//! | `forebay_mirror_journal_errors_total`: changes that the journal failed | |
//! | `forebay_mirror_member_state` (gauge): 0 up, 1 behind, 2 comparing, 3 down | `member` |
//! | `forebay_mirror_pending_keys` (gauge) | `member` |
//! | `forebay_mirror_oldest_pending_seconds` (gauge) | |

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

type Labelled<M> = Family<[(&'static str, &'static str); 1], M>;

/// Counters of one mirror; clones count together.
#[derive(Debug, Clone, Default)]
pub struct MirrorMetrics {
    /// Writes that were acknowledged before all members had them.
    pub partial_writes: Counter,
    /// Bytes that repairs have written.
    pub repaired_bytes: Counter,
    /// Changes that the journal failed.
    pub journal_errors: Counter,
    /// Age of the oldest key that a member is behind by.
    pub oldest_pending: Gauge,
    writes: Labelled<Counter>,
    fallbacks: Labelled<Counter>,
    repairs: Labelled<Counter>,
    states: Family<[(&'static str, String); 1], Gauge>,
    pending: Family<[(&'static str, String); 1], Gauge>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// It was acknowledged.
    Acknowledged,
    /// It was refused, and changed nothing.
    Refused,
    /// Too few members have it; repair decides what stays.
    TooFew,
    /// Nothing was sent: the journal, or too many members, could not be reached.
    NotSent,
}

impl WriteResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Refused => "refused",
            Self::TooFew => "too_few",
            Self::NotSent => "not_sent",
        }
    }
}

/// Why a read went on to another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// The member answered with a fault of its own.
    ServerError,
    /// It could not be asked, or its answer was lost.
    Failed,
    /// It did not answer in time.
    Timeout,
    /// It has no such object, and another does.
    NotFound,
    /// It does not let the gateway in: its credentials there are wrong, or the clocks.
    Denied,
}

impl Fallback {
    fn as_str(self) -> &'static str {
        match self {
            Self::ServerError => "server_error",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
        }
    }
}

/// What became of the repair of a key at one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RepairResult {
    /// The object was copied.
    Copied,
    /// The key was deleted.
    Deleted,
    /// It was equal already.
    Equal,
    /// A write of the key came first.
    Superseded,
    /// A member could not be asked, or refused.
    Failed,
}

impl RepairResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Deleted => "deleted",
            Self::Equal => "equal",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
        }
    }
}

impl MirrorMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a write.
    pub fn wrote(&self, result: WriteResult) {
        let label = [("result", result.as_str())];
        self.writes.get_or_create(&label).inc();
    }

    /// Writes that ended so.
    pub fn writes(&self, result: WriteResult) -> u64 {
        let label = [("result", result.as_str())];
        self.writes.get_or_create(&label).get()
    }

    /// Counts a read that went on to another member.
    pub fn fell_back(&self, reason: Fallback) {
        let label = [("reason", reason.as_str())];
        self.fallbacks.get_or_create(&label).inc();
    }

    /// Reads that went on to another member for this reason.
    pub fn fallbacks(&self, reason: Fallback) -> u64 {
        let label = [("reason", reason.as_str())];
        self.fallbacks.get_or_create(&label).get()
    }

    /// Counts a repair.
    pub fn repaired(&self, result: RepairResult) {
        let label = [("result", result.as_str())];
        self.repairs.get_or_create(&label).inc();
    }

    /// Repairs that ended so.
    pub fn repairs(&self, result: RepairResult) -> u64 {
        let label = [("result", result.as_str())];
        self.repairs.get_or_create(&label).get()
    }

    /// Says how a member stands: 0 up, 1 behind, 2 comparing, 3 down.
    pub fn set_state(&self, member: &str, state: i64) {
        let label = [("member", member.to_owned())];
        self.states.get_or_create(&label).set(state);
    }

    /// Says by how many keys a member is behind.
    pub fn set_pending(&self, member: &str, keys: i64) {
        let label = [("member", member.to_owned())];
        self.pending.get_or_create(&label).set(keys);
    }

    /// Registers everything; the registry adds the prefix `forebay`.
    pub fn register(&self, registry: &mut Registry) {
        let mirror = registry.sub_registry_with_prefix("mirror");
        mirror.register("writes", "Writes by their end", self.writes.clone());
        mirror.register(
            "partial_writes",
            "Writes acknowledged before all members had them",
            self.partial_writes.clone(),
        );
        mirror.register(
            "fallbacks",
            "Reads that went on to another member",
            self.fallbacks.clone(),
        );
        mirror.register("repairs", "Repairs by their end", self.repairs.clone());
        mirror.register_with_unit(
            "repaired",
            "Bytes that repairs have written",
            Unit::Bytes,
            self.repaired_bytes.clone(),
        );
        mirror.register(
            "journal_errors",
            "Changes that the journal failed",
            self.journal_errors.clone(),
        );
        mirror.register(
            "member_state",
            "0 up, 1 behind, 2 comparing, 3 down",
            self.states.clone(),
        );
        mirror.register(
            "pending_keys",
            "Keys that a member is behind by",
            self.pending.clone(),
        );
        mirror.register_with_unit(
            "oldest_pending",
            "Age of the oldest key that a member is behind by",
            Unit::Seconds,
            self.oldest_pending.clone(),
        );
    }
}
