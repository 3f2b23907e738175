//! What a mirror is told to do: plain data.

use std::time::Duration;

/// Settings of one mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSettings {
    /// Members that must have a write before it is acknowledged; `None` is more than half.
    pub writes_min: Option<usize>,
    /// Keys that one member may be behind by; beyond it the journal forgets which, and the member
    /// is compared with the others as a whole before it is read again.
    pub behind_max: u64,
    /// Repairs under way at once.
    pub repairs_max: usize,
    /// Bytes that repairs read in a second; `None` is without bound.
    pub repair_bytes_per_second_max: Option<u64>,
    /// Time limit of one request of a repair.
    pub attempt_timeout: Duration,
    /// Time between two tries of a member that does not answer.
    pub retry_interval: Duration,
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self {
            writes_min: None,
            behind_max: 1_000_000,
            repairs_max: 8,
            repair_bytes_per_second_max: None,
            attempt_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_secs(1),
        }
    }
}
