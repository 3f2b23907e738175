//! What is told of tiers and logs.

use serde::{Deserialize, Serialize};

/// Every tier: `GET /admin/v1/tier/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TiersAnswer {
    /// In the order of the routes.
    pub tiers: Vec<TierStatus>,
}

/// How one tier stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// Its name: the index of its route.
    pub tier: String,
    /// Its hot store.
    pub hot: String,
    /// Where its records are there.
    pub space: String,
    /// Its cold store.
    pub cold: String,
    /// Patterns of buckets that lead to it.
    pub buckets: Vec<String>,
    /// Objects that the cold store lacks, those in conflict included.
    pub dirty_objects: u64,
    /// Their bytes.
    pub dirty_bytes: u64,
    /// Bytes that it may lack.
    pub dirty_bytes_max: u64,
    /// `low`; `half`: the mover does not wait for age; `full`: writes go to the cold store.
    pub level: String,
    /// Deletes that the cold store has not had.
    pub tombstones: u64,
    /// Objects that wait for `retry` or `discard`.
    pub conflicts: u64,
    /// Age of the oldest object or delete that the cold store lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_dirty_seconds: Option<f64>,
    /// Whether everything is moved and nothing new taken.
    pub is_draining: bool,
    /// What an acknowledged object survives: `volatile`, `hot-local` or `hot-replicated`.
    pub durability: String,
}

/// What cold stores lack: `GET /admin/v1/tier/list`, `…/conflicts`, 1,000 at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirtyAnswer {
    /// The oldest of each tier first, deletes before objects.
    pub objects: Vec<DirtyObject>,
}

/// Something that a cold store lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirtyObject {
    /// Its tier.
    pub tier: String,
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// `object`, `delete` or `conflict`.
    pub kind: String,
    /// Since it was acknowledged.
    pub age_seconds: f64,
    /// Its size; none of a delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Of a conflict: the tag of our object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Of a conflict: the tag of what somebody else wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// How conflicts are settled: the body of `POST /admin/v1/tier/{retry,discard}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settling {
    /// Objects in conflict, as `BUCKET/KEY`.
    pub objects: Vec<String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettledAnswer {
    /// Those that were in conflict, and are no more.
    pub settled: Vec<String>,
    /// Those that were not.
    pub not_in_conflict: Vec<String>,
}

/// Every log: `GET /admin/v1/log/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogsAnswer {
    /// By name.
    pub logs: Vec<LogStats>,
}

/// How one log stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogStats {
    /// Name of the store.
    pub store: String,
    /// Files of the log.
    pub segments: u64,
    /// Bytes of them.
    pub segments_bytes: u64,
    /// Bytes that entries point to.
    pub live_bytes: u64,
    /// Bytes that `compact` could give back.
    pub garbage_bytes: u64,
    /// Bytes of large payloads, in files of their own.
    pub blobs_bytes: u64,
    /// Entries of the index.
    pub entries: u64,
    /// Memory that the index takes.
    pub index_bytes: u64,
    /// Why no write is taken, if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poisoned: Option<String>,
    /// Entries found damaged, by printable name, and what was found; the first 10,000.
    pub damaged: Vec<(String, String)>,
    /// Those beyond.
    pub damaged_more: u64,
}
