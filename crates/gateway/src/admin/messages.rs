//! The JSON of the admin API, as it is sent and read: by `api` and by the command line.

mod mirror;
mod origin;
mod tier;

use serde::{Deserialize, Serialize};

pub use mirror::{
    Compared, Comparing, Difference, DifferingMember, MemberStatus, MirrorStatus, MirrorsAnswer,
};
pub use origin::{EndpointChoice, EndpointStatus, OriginStatus, OriginsAnswer};
pub use tier::{
    DirtyAnswer, DirtyObject, LogStats, LogsAnswer, SettledAnswer, Settling, TierStatus,
    TiersAnswer,
};

/// Where the API begins; a change that old clients can't read gets another.
pub const API: &str = "/admin/v1";

/// Every cache: `GET /admin/v1/cache/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatsAnswer {
    /// In the order of the routes.
    pub caches: Vec<CacheStats>,
}

/// Counts of one cache; those of requests and bytes since the program began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Its name: the index of its route.
    pub cache: String,
    /// The store behind it.
    pub store: String,
    /// Patterns of buckets that lead to it.
    pub buckets: Vec<String>,
    /// `strict`, `bounded`, `exclusive` or `immutable`, where no rule says otherwise.
    pub coherence: String,
    /// In `bounded`: how long after the origin was asked it need not be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<f64>,
    /// Memory in use.
    pub used_bytes: u64,
    /// Memory that may be used.
    pub capacity_bytes: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// Records and pages.
    pub entries: u64,
    /// Bytes of bodies answered from pages alone.
    pub hit_bytes: u64,
    /// Bytes that fills read from the origin.
    pub fill_bytes: u64,
    /// Origin requests whose answer may be kept.
    pub fills: u64,
    /// Requests that joined a fill under way.
    pub collapsed: u64,
    /// Stale records that the origin called unchanged.
    pub validated: u64,
    /// Records and pages that made room.
    pub evicted: u64,
    /// Writes that passed.
    pub invalidations: u64,
    /// Records and pages that were purged.
    pub purged: u64,
    /// Memory of what is pinned.
    pub pinned_bytes: u64,
    /// Objects that an operator pinned.
    pub pinned: u64,
    /// The part on disk, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStats>,
    /// What other sizes of the memory would have brought, from a sample of the reads.
    #[serde(default)]
    pub shadows: Vec<Shadow>,
    /// What other sizes of the disk would have brought, at best.
    #[serde(default)]
    pub disk_shadows: Vec<Shadow>,
}

/// Counts of the part of a cache that lies on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskStats {
    /// Bytes of its files.
    pub used_bytes: u64,
    /// Bytes that they may have.
    pub capacity_bytes: u64,
    /// Records and pages.
    pub entries: u64,
    /// Bytes that were read from it.
    pub hit_bytes: u64,
}

/// What a cache of another size would have brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shadow {
    /// Its size, as a multiple of the real one: `0.5`, `1`, `2`, `4`.
    pub size: String,
    /// Its size; of a disk that of the memory included.
    pub bytes: u64,
    /// Share of the reads that it would have answered; absent while there is no sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Share of their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_hit_ratio: Option<f64>,
}

/// The leading objects: `GET /admin/v1/cache/top?n=20&by=bytes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopAnswer {
    /// The first leads.
    pub objects: Vec<TopObject>,
}

/// One leading object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopObject {
    /// The cache that holds it.
    pub cache: String,
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its version, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// Its whole size.
    pub size_bytes: u64,
    /// Memory that it takes.
    pub bytes: u64,
    /// How often it has answered; answers within a second count once.
    pub hits: u64,
}

/// What is known of one object: `GET /admin/v1/cache/lookup?bucket=B&key=K`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LookupAnswer {
    /// The cache that would hold it.
    pub cache: String,
    /// The store behind that.
    pub store: String,
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// What is stored; nothing when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredObject>,
}

/// What is stored of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredObject {
    /// Its tag, quotes included.
    pub etag: String,
    /// Its whole size.
    pub size_bytes: u64,
    /// `Last-Modified`, Unix seconds.
    pub modified_unix_seconds: i64,
    /// Whether it may answer without the origin being asked.
    pub is_fresh: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_reason: Option<String>,
    /// For how long it is fresh; absent when that has no end, or when it is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_seconds: Option<u64>,
    /// Since the origin vouched for it.
    pub age_seconds: f64,
    /// Since it last answered.
    pub idle_seconds: f64,
    /// Pages that are here.
    pub pages: u64,
    /// Pages that it has.
    pub pages_total: u64,
    /// Bytes of it in those that are here.
    pub cached_bytes: u64,
    /// How often it has answered; answers within a second count once.
    pub hits: u64,
    /// The queue of the index that its record is in; absent when it is on disk alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Pages of it that are on disk.
    #[serde(default)]
    pub disk_pages: u64,
    /// What rules and settings say of it.
    pub policy: ObjectPolicy,
}

/// What rules and settings say of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectPolicy {
    /// `strict`, `bounded`, `exclusive` or `immutable`.
    pub coherence: String,
    /// `yes` or `pinned`; what is never kept is not stored.
    pub keep: String,
    /// `everywhere`, `memory` or `disk`.
    pub place: String,
    /// Size of its pages.
    pub page_bytes: u64,
}

/// What a change is about: the body of every `POST`. What is named in several ways adds up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// Objects, as `BUCKET/KEY`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Objects whose names begin so, as `BUCKET/PREFIX`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// Whole buckets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<String>,
    /// Everything; for `flush` it must be said.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// For `warm`: objects read at once, `1..=64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
}

/// All jobs that are known: `GET /admin/v1/jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsAnswer {
    /// The newest first.
    pub jobs: Vec<JobStatus>,
}

/// How far a change has come: the answer to every `POST`, and of `/admin/v1/jobs/ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its number.
    pub id: u64,
    /// What it does: `purge`, `flush`, `pin`, `unpin`, `warm`; `tier flush`, `tier drain`; `log
    /// verify`, `log compact`; `origin drain`; `mirror verify`, `mirror repair`.
    pub kind: String,
    /// To what.
    pub what: String,
    /// Where it stands.
    pub state: JobState,
    /// When it began, Unix seconds.
    pub started_unix_seconds: i64,
    /// How long it has taken.
    pub seconds: f64,
    /// Objects dealt with.
    pub done: u64,
    /// Objects to deal with, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Bytes read by a warm, of memory removed by a purge or pinned.
    pub bytes: u64,
    /// Of a warm: objects that were fresh already.
    pub fresh: u64,
    /// Of a warm: objects that a rule says are never kept.
    pub not_kept: u64,
    /// Of a warm: objects that are not there.
    pub missing: u64,
    /// Objects that failed.
    pub failed: u64,
    /// Of a comparison of a mirror's members: what it found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The first errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What to know of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It is under way.
    Running,
    /// It is done.
    Done,
    /// It could not be done to the end.
    Failed,
    /// It was stopped; what it had done stays.
    Cancelled,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    /// What is wrong, and what to do.
    pub error: String,
}
