//! What is told of mirrors.

use serde::{Deserialize, Serialize};

/// Every mirror: `GET /admin/v1/mirror/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MirrorsAnswer {
    /// By name.
    pub mirrors: Vec<MirrorStatus>,
}

/// How one mirror stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MirrorStatus {
    /// Name of the store.
    pub store: String,
    /// The store that keeps its journal.
    pub journal: String,
    /// Where that is there.
    pub space: String,
    /// Members that must have a write before it is acknowledged.
    pub writes_min: u64,
    /// Keys and buckets that some member is behind by.
    pub journal_keys: u64,
    /// In the order of the config.
    pub members: Vec<MemberStatus>,
}

/// How one member stands; counts since the program began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Name of the store.
    pub store: String,
    /// `up`; `behind`: it lacks some keys, which are read elsewhere; `comparing`: nothing is read
    /// from it before it was compared as a whole; `down`: it does not answer.
    pub state: String,
    /// Keys and buckets that it is behind by.
    pub pending_keys: u64,
    /// Age of the oldest of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending_seconds: Option<f64>,
    /// Requests sent to it.
    pub requests: u64,
    /// Those that it did not answer, or with a fault of its own.
    pub failures: u64,
}

/// What is compared: the body of `POST /admin/v1/mirror/{verify,repair}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Comparing {
    /// Name of a mirror; all of them without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// A bucket; all of them without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// What its keys begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Compares all that is known of each key, and not only what listings tell.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// For `repair`: deletes what more than half of the members lack, in place of restoring it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delete: bool,
}

/// What a comparison of members has found, as a part of its job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Buckets looked at.
    pub buckets: u64,
    /// Keys that differ as the journal knows: they are repaired in order, by themselves.
    pub pending: u64,
    /// Keys and buckets that some members lack.
    pub missing: u64,
    /// Keys that differ.
    pub differing: u64,
    /// Keys of which it can't be told without reading them.
    pub undecided: u64,
    /// Of those that differ: with no version that more than half have. The last modified counts.
    pub conflicts: u64,
    /// Keys and buckets that were made equal.
    pub repaired: u64,
    /// Of those: where something was deleted.
    pub deleted: u64,
    /// The first differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// A difference between members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The bucket.
    pub bucket: String,
    /// The key; empty for the bucket itself.
    pub key: String,
    /// `bucket` (some lack it), `missing` (some lack the object), `differing` or `undecided`.
    pub kind: String,
    /// What each member has.
    pub members: Vec<DifferingMember>,
}

/// What a member has of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DifferingMember {
    /// Name of the store.
    pub store: String,
    /// Tag of its object; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Size of its object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}
