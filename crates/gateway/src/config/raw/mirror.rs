//! A store of type `mirror` as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Several stores that share nothing, kept equal.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawMirror {
    /// Names of its members.
    #[schemars(example = ["berlin", "paris", "rome"])]
    pub stores: Option<Vec<String>>,
    /// Name of the store that keeps what a member has missed: of type `log` (one gateway) or
    /// `redis` (many).
    #[schemars(example = &"journal")]
    pub journal: Option<String>,
    /// What this mirror is called in the journal; `mirror-` and its name unless given. Gateways
    /// that share it say the same.
    #[schemars(example = &"mirror-everywhere")]
    pub space: Option<String>,
    /// Members that must have a write before it is acknowledged; more than half unless given.
    #[schemars(example = 2)]
    pub writes_min: Option<i64>,
    /// Keys that one member may be behind by; beyond it the member is compared as a whole.
    #[schemars(example = 1_000_000)]
    pub behind_max: Option<i64>,
    /// Repairs under way at once.
    #[schemars(example = 8)]
    pub repairs_max: Option<i64>,
    /// Bytes that repairs read in a second; without bound unless given.
    #[schemars(example = &"100MiB")]
    pub repair_bytes_per_second_max: Option<String>,
    /// Time between two tries of a member that does not answer.
    #[schemars(example = &"1s")]
    pub retry_interval: Option<String>,
    /// Time limit of one request of a repair.
    #[schemars(example = &"30s")]
    pub attempt_timeout: Option<String>,
}
