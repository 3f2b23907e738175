//! What a tier is told to do: plain data.

use std::time::Duration;

use crate::ledger::Conditions;

/// Settings of one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSettings {
    /// Objects of up to so many bytes go to the hot store; zero is write-through.
    pub object_bytes_max: u64,
    /// Age at which an object is moved; zero is write-back.
    pub demote_after: Duration,
    /// Bytes that may be dirty. From half of them on the mover does not wait for age, from nine
    /// tenths on writes go to the cold store.
    pub dirty_bytes_max: u64,
    /// Age of the oldest dirty object from which on the gateway is not ready.
    pub oldest_dirty_max: Duration,
    /// Moves under way at once.
    pub moves_max: usize,
    /// Moves begun per second; `None` for no limit but `moves_max`.
    pub moves_per_second_max: Option<u32>,
    /// Which objects are for the tier; the first that matches counts, and without one all are.
    pub rules: Vec<Rule>,
    /// What happens to dirty data when the gateway stops.
    pub on_stop: OnStop,
    /// Whether the cold store judges conditions of writes.
    pub conditions: Conditions,
    /// Objects of at least so many bytes may be answered with a redirect to a client that says it
    /// follows one; `None` for never.
    pub redirect_bytes_min: Option<u64>,
    /// Time limit of one request of the mover.
    pub attempt_timeout: Duration,
    /// Time for which a write that was not answered may still arrive at the cold store.
    pub settle: Duration,
    /// Time for which what is known of a bucket counts.
    pub bucket_ttl: Duration,
}

impl Default for TierSettings {
    fn default() -> Self {
        Self {
            object_bytes_max: 1 << 20,
            demote_after: Duration::from_hours(1),
            dirty_bytes_max: 1 << 30,
            oldest_dirty_max: Duration::from_hours(24),
            moves_max: 16,
            moves_per_second_max: None,
            rules: Vec::new(),
            on_stop: OnStop::Leave,
            conditions: Conditions::Honoured,
            redirect_bytes_min: None,
            attempt_timeout: Duration::from_secs(30),
            // Twice the time limit of an attempt; what an origin does still later with a request
            // whose connection is gone has not been seen. A guess.
            settle: Duration::from_mins(1),
            bucket_ttl: Duration::from_mins(1),
        }
    }
}

/// What is done with some objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `bucket/key` with `*` and `?`.
    pub pattern: String,
    /// Where they go.
    pub place: RulePlace,
}

/// Where a rule sends objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulePlace {
    /// To the hot store, up to so many bytes.
    Hot {
        /// In the place of [`TierSettings::object_bytes_max`].
        object_bytes_max: u64,
    },
    /// To the cold store.
    Cold,
}

/// What happens to dirty data when the gateway stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// It is moved first, for as long as the stop may take.
    Drain,
    /// It stays in the hot store, for the next start or another gateway.
    Leave,
}
