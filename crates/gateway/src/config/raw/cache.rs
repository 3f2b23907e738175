//! Keys of a cache layer.

use schemars::JsonSchema;
use serde::Deserialize;

use super::RawNoSettings;

/// Keeps pages of objects in memory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCache {
    /// Size in bytes, index included, or a share of the machine's memory.
    #[schemars(example = &"25%")]
    pub memory: Option<String>,
    /// Piece in which objects are kept: a power of two.
    #[schemars(example = &"1MiB")]
    pub page: Option<String>,
    /// Pages on disk as well; none unless given.
    pub disk: Option<RawDisk>,
    /// How old an answer may be.
    pub coherence: Option<RawCoherence>,
    /// `honour` or `ignore`: `Cache-Control: no-cache`, `no-store`, `max-age=0` of requests.
    #[schemars(example = &"honour")]
    pub client_directives: Option<String>,
    /// `honour` or `ignore`: `Cache-Control: no-store` of objects; nothing else there counts.
    #[schemars(example = &"honour")]
    pub origin_directives: Option<String>,
    /// How long answers to `ListObjects` (version 1) are kept: `usual`, `off`, or a table.
    pub list_objects: Option<RawLasting>,
    /// How long answers to `ListObjectsV2` are kept.
    pub list_objects_v2: Option<RawLasting>,
    /// How long answers to `ListObjectVersions` are kept.
    pub list_object_versions: Option<RawLasting>,
    /// How long answers to `HeadBucket` are kept.
    pub head_bucket: Option<RawLasting>,
    /// How long answers to `ListBuckets` are kept.
    pub list_buckets: Option<RawLasting>,
    /// How long the origin's 404 for an object is remembered; 0s is not at all.
    #[schemars(example = &"1s")]
    pub negative_ttl: Option<String>,
    /// What is different for some objects; the first rule that matches counts, alone.
    pub rules: Option<Vec<RawCacheRule>>,
}

/// Pages on disk.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawDisk {
    /// A folder of this cache alone; made when it is not there.
    #[schemars(example = &"/var/cache/forebay")]
    pub path: Option<String>,
    /// Size in bytes of all files in it.
    #[schemars(example = &"200GiB")]
    pub size: Option<String>,
    /// Bytes that may be written in a day; no limit unless given.
    #[schemars(example = &"2TiB")]
    pub written_per_day_max: Option<String>,
}

/// What is different for some objects. What is not said of them matches all; what is not said of
/// what is done with them is as the layer says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCacheRule {
    /// Buckets, or patterns with `*` and `?`.
    #[schemars(example = ["logs-*"])]
    pub buckets: Option<Vec<String>>,
    /// What the key begins with.
    #[schemars(example = &"tmp/")]
    pub prefix: Option<String>,
    /// Keys, or patterns with `*` and `?`.
    #[schemars(example = ["*.parquet"])]
    pub keys: Option<Vec<String>>,
    /// Size of the object, at least.
    #[schemars(example = &"0B")]
    pub size_min: Option<String>,
    /// Size of the object, at most.
    #[schemars(example = &"1GiB")]
    pub size_max: Option<String>,
    /// Types, or patterns with `*` and `?`, without parameters.
    #[schemars(example = ["video/*"])]
    pub content_types: Option<Vec<String>>,
    /// `yes`; `no`: reads pass; `pinned`: never makes room for others.
    #[schemars(example = &"yes")]
    pub keep: Option<String>,
    /// Piece in which these objects are kept.
    #[schemars(example = &"64KiB")]
    pub page: Option<String>,
    /// `everywhere`, or in `memory` or on `disk` alone.
    #[schemars(example = &"memory")]
    pub place: Option<String>,
    /// How old an answer may be.
    pub coherence: Option<RawCoherence>,
}

/// How old an answer from the cache may be.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum RawCoherence {
    /// Not at all: the origin is asked at each read whether it is still so.
    Strict(RawNoSettings),
    /// As old as `ttl`: then the origin is asked whether it is still so.
    Bounded(RawBounded),
    /// Not at all, as long as nobody writes but through this one gateway.
    Exclusive(RawNoSettings),
    /// Objects never change once written.
    Immutable(RawNoSettings),
}

/// As old as `ttl`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBounded {
    /// Time since the origin was last asked.
    #[schemars(example = &"60s")]
    pub ttl: Option<String>,
    /// Time since the last use; no such limit unless given.
    #[schemars(example = &"10m")]
    pub tti: Option<String>,
    /// How long after that an answer may still be given while the origin is asked.
    #[schemars(example = &"10s")]
    pub stale_while_revalidate: Option<String>,
    /// How long after that an answer may still be given when the origin fails.
    #[schemars(example = &"5m")]
    pub stale_if_error: Option<String>,
}

/// How long answers to an operation are kept.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawLasting {
    /// `usual`: with `exclusive` until a write, else not at all (`list_buckets` never); or `off`.
    Word(String),
    /// For a while.
    For(RawKeptFor),
}

/// How long an answer is kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawKeptFor {
    /// Time since the origin was asked.
    #[schemars(example = &"10s")]
    pub ttl: Option<String>,
    /// Time since the last use; no such limit unless given.
    #[schemars(example = &"5s")]
    pub tti: Option<String>,
}
