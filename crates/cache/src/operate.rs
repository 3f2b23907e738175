//! What an operator asks of a cache and does to it, beside its clients: counts, what it holds, what
//! it knows of one object; purge and warm.
//!
//! Called by the admin API. Looking is no use of what is looked at, so it keeps nothing in the
//! cache. A purge goes the way of a write (`epochs`): once it returns, no read is answered from
//! what was stored before without the origin being asked, and no fill that began before is stored.
//!
//! The sweeps block for a few milliseconds for each 100,000 entries, one shard locked at a time:
//! call them where that harms nobody.

mod warm;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};

pub use warm::{WarmCounts, WarmEnd, WarmOrder, WarmProgress};

use crate::{
    freshness::{Against, Freshness, Moment},
    index::{Pinned, Present, Purged, Written},
    layer::Layer,
    policy::Policy,
    settings::Coherence,
    shadow::ShadowReport,
    version::{Version, Vid},
};

/// Most objects of a `top`.
pub const TOP_MAX: usize = 1000;

/// A handle on one cache, for its operator; cheap to clone.
#[derive(Clone)]
pub struct Operator {
    pub(crate) layer: Arc<Layer>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

/// What an operation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// An object, in all its versions.
    Object(BucketName, ObjectKey),
    /// The objects of a bucket whose keys begin so.
    Prefix(BucketName, String),
    /// The objects of a bucket.
    Bucket(BucketName),
    /// All objects.
    All,
}

/// Counts of one cache; those of requests and bytes since the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Memory that records, pages and their index take.
    pub used_bytes: u64,
    /// What they may take.
    pub capacity_bytes: u64,
    /// Size of a page, where no rule says otherwise.
    pub page_bytes: u64,
    /// Records and pages.
    pub entries_count: u64,
    /// How stale an answer may be, where no rule says otherwise.
    pub coherence: Coherence,
    /// Bytes of bodies answered from pages alone.
    pub hit_bytes: u64,
    /// Bytes that fills read from the origin.
    pub fill_bytes: u64,
    /// Origin requests whose answer may be kept.
    pub fills_count: u64,
    /// Requests that joined a fill under way.
    pub collapsed_count: u64,
    /// Stale records that the origin called unchanged.
    pub validated_count: u64,
    /// Entries that made room.
    pub evicted_count: u64,
    /// Writes that passed.
    pub invalidations_count: u64,
    /// Records and pages that were purged.
    pub purged_count: u64,
    /// Memory of what is pinned.
    pub pinned_bytes: u64,
    /// Objects that an operator pinned.
    pub pinned_count: u64,
    /// The part on disk, if there is one.
    pub disk: Option<DiskStats>,
}

/// Counts of the part on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskStats {
    /// Bytes of its files.
    pub used_bytes: u64,
    /// Bytes that they may have.
    pub capacity_bytes: u64,
    /// Records and pages.
    pub entries_count: u64,
    /// Bytes that were read from it.
    pub hit_bytes: u64,
}

/// What a `top` is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// How often an object has answered; answers within a second count once.
    Hits,
    /// The memory it takes.
    Bytes,
}

/// One object of a `top`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// The object.
    pub object: ObjectId,
    /// Its whole size.
    pub size_bytes: u64,
    /// Memory that its record and pages take.
    pub bytes: u64,
    /// How often it has answered; answers within a second count once.
    pub hits_count: u64,
}

/// What a cache knows of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its tag, quotes included.
    pub etag: String,
    /// Its whole size.
    pub size_bytes: u64,
    /// `Last-Modified`, Unix seconds.
    pub modified: i64,
    /// May it be served.
    pub standing: FoundStanding,
    /// Since the origin vouched for it.
    pub age: Duration,
    /// Since it last answered.
    pub idle: Duration,
    /// Pages that are here.
    pub pages_count: u64,
    /// Pages that the object has.
    pub pages_total: u64,
    /// Bytes of the object in those that are here.
    pub cached_bytes: u64,
    /// How often it has answered; answers within a second count once.
    pub hits_count: u64,
    /// The queue of the index that its record is in: `small`, `main` or `pinned`; `None` when it is
    /// on disk alone.
    pub queue: Option<&'static str>,
    /// Pages of it that are on disk, those of a record included that has its only page.
    pub disk_pages_count: u64,
    /// What rules and settings say of it.
    pub policy: Policy,
}

/// Whether what is stored may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundStanding {
    /// It may, for so long; `None` is for ever.
    Fresh(Option<Duration>),
    /// The origin has to be asked first.
    Stale(StaleReason),
}

/// Why what is stored may not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleReason {
    /// In `strict` every read is validated.
    Strict,
    /// The time to live has passed.
    Ttl,
    /// The time to idle has passed.
    Tti,
    /// A write of unknown outcome may still come.
    Doubt,
    /// The origin has refused to say whether it is current.
    Refused,
    /// Other gateways may have written what was not heard of.
    Unheard,
    /// It is of an earlier run, and the origin has not vouched for it in this one.
    Restored,
}

impl StaleReason {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "every read is validated (strict)",
            Self::Ttl => "its time to live has passed",
            Self::Tti => "its time to idle has passed",
            Self::Doubt => "a write of unknown outcome may still come",
            Self::Refused => "the origin has refused to say whether it is current",
            Self::Unheard => "other gateways may have written to it unheard",
            Self::Restored => "the origin has not vouched for it since the start",
        }
    }
}

impl Operator {
    /// Writes what is read often to the disk, so that a restart finds it there, and closes that;
    /// for the end of the program. It takes as long as the disk does: a limit is the caller's.
    ///
    /// # Cancel safety
    /// A dropped future leaves unwritten what it had not come to.
    pub async fn close(&self) {
        self.layer.close().await;
    }

    /// Counts of the cache.
    pub fn stats(&self) -> Stats {
        let (layer, metrics) = (&self.layer, &self.layer.metrics);
        Stats {
            used_bytes: layer.index.used_bytes(),
            capacity_bytes: layer.settings.capacity_bytes,
            page_bytes: layer.settings.page_bytes.get(),
            entries_count: u64::try_from(metrics.entries.get()).unwrap_or(0),
            coherence: layer.settings.coherence,
            hit_bytes: metrics.hit_bytes.get(),
            fill_bytes: metrics.fill_bytes.get(),
            fills_count: metrics.fills.get(),
            collapsed_count: metrics.collapsed.get(),
            validated_count: metrics.validated.get(),
            evicted_count: metrics.evictions.get(),
            invalidations_count: metrics.invalidations.get(),
            purged_count: metrics.gone.purged.get(),
            pinned_bytes: layer.index.pinned_bytes(),
            pinned_count: layer.index.pinned_names().len() as u64,
            disk: layer.disk.as_ref().map(|disk| disk.stats()),
        }
    }

    /// The `count` objects that lead by `rank`, [`TOP_MAX`] at most.
    pub fn top(&self, count: usize, rank: Rank) -> Vec<Ranked> {
        let mut page_bytes: HashMap<Vid, u64> = HashMap::new();
        let index = &self.layer.index;
        index.visit_pages(&mut |vid, standing| {
            *page_bytes.entry(vid).or_default() += standing.weight_bytes;
        });
        let count = count.min(TOP_MAX);
        let mut leading = BinaryHeap::with_capacity(count + 1);
        index.visit(&mut |version, standing| {
            let of_pages = page_bytes.get(&version.vid).copied().unwrap_or(0);
            let (bytes, hits) = (standing.weight_bytes + of_pages, u64::from(version.hits()));
            let ranks = match rank {
                Rank::Hits => (hits, bytes),
                Rank::Bytes => (bytes, hits),
            };
            leading.push(Reverse(Leading {
                ranks,
                version: Arc::clone(version),
            }));
            if leading.len() > count {
                leading.pop();
            }
        });
        // Sorted by what is reversed, so the greatest stands first.
        let leading = leading.into_sorted_vec().into_iter();
        let ranked = leading.map(|Reverse(Leading { ranks, version })| {
            let (bytes, hits_count) = match rank {
                Rank::Hits => (ranks.1, ranks.0),
                Rank::Bytes => ranks,
            };
            Ranked {
                object: version.object.clone(),
                size_bytes: version.size_bytes,
                bytes,
                hits_count,
            }
        });
        ranked.collect()
    }

    /// What half, once, twice and four times the memory would have brought.
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let reads_count = self.layer.metrics.staleness.count_all();
        self.layer.shadows.report(reads_count)
    }

    /// The same of the disk; nothing without one.
    pub fn disk_shadows(&self) -> Vec<ShadowReport> {
        let reads_count = self.layer.metrics.staleness.count_all();
        let shadows = self.layer.disk_shadows.as_ref();
        shadows.map_or_else(Vec::new, |shadows| shadows.report(reads_count))
    }

    /// What is known of an object; `None` when nothing is stored.
    ///
    /// # Cancel safety
    /// A dropped future changes nothing.
    pub async fn lookup(&self, object: &ObjectId) -> Option<Found> {
        let layer = &self.layer;
        let (version, queue) = match layer.index.standing_of(object) {
            Some((version, standing)) => (version, Some(standing.place.name())),
            None => (layer.peek(object).await?, None),
        };
        let moment = layer.moment();
        let ages = version.ages(moment);
        let Present { pages, bytes } = layer.index.present(&version);
        let milliseconds = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Some(Found {
            etag: version.etag.to_string(),
            size_bytes: version.size_bytes,
            modified: version.modified,
            standing: judged(&version, moment),
            age: milliseconds(ages.validated_ms),
            idle: milliseconds(ages.used_ms),
            pages_count: pages,
            pages_total: pages_total(&version),
            cached_bytes: bytes,
            hits_count: version.hits().into(),
            queue,
            disk_pages_count: layer.pages_on_disk(&version),
            policy: *version.policy,
        })
    }

    /// Removes what is selected, and lets no fill under way bring it back. On disk a prefix counts
    /// for its bucket (`purges`).
    pub fn purge(&self, selection: &Selection) -> Purged {
        let (index, kept, purges) = (&self.layer.index, &self.layer.kept, &self.layer.purges);
        match selection {
            Selection::Object(bucket, key) => {
                purges.key(bucket, key);
                kept.invalidate(&Written::Object(bucket.clone(), key.clone()));
                if let Some(disk) = &self.layer.disk {
                    disk.forget_name(bucket, key);
                }
                index.purge_object(bucket, key)
            }
            Selection::Prefix(bucket, _) | Selection::Bucket(bucket) => {
                purges.bucket(bucket);
                kept.invalidate(&Written::Bucket(bucket.clone()));
                index
                    .purge(&mut |object: &ObjectId| selection.includes(&object.bucket, &object.key))
            }
            Selection::All => {
                purges.all();
                kept.invalidate(&Written::All);
                index.purge_all()
            }
        }
    }

    /// Keeps an object even when others need the room, within the quota of pins; what of it is
    /// stored later as well.
    pub fn pin(&self, bucket: &BucketName, key: &ObjectKey) -> Pinned {
        self.layer.index.pin(&current(bucket, key))
    }

    /// Ends what [`Operator::pin`] began.
    pub fn unpin(&self, bucket: &BucketName, key: &ObjectKey) {
        self.layer.index.unpin(&current(bucket, key));
    }

    /// The objects that an operator pinned.
    pub fn pinned(&self) -> Vec<ObjectId> {
        self.layer.index.pinned_names()
    }
}

fn current(bucket: &BucketName, key: &ObjectKey) -> ObjectId {
    ObjectId {
        bucket: bucket.clone(),
        key: key.clone(),
        version: None,
    }
}

fn pages_total(version: &Version) -> u64 {
    version.size_bytes.div_ceil(version.policy.page_bytes.get())
}

fn judged(version: &Version, moment: Moment) -> FoundStanding {
    if let Freshness::Fresh { left_seconds } = version.freshness(moment) {
        let left = left_seconds.map(|left| u64::try_from(left).unwrap_or(0));
        return FoundStanding::Fresh(left.map(Duration::from_secs));
    }
    let ages = version.ages(moment);
    if ages.against == Against::Restored {
        return FoundStanding::Stale(StaleReason::Restored);
    }
    FoundStanding::Stale(match version.policy.coherence {
        Coherence::Strict => StaleReason::Strict,
        Coherence::Bounded { ttl, .. } => {
            if u128::try_from(ages.validated_ms).unwrap_or(0) >= ttl.as_millis() {
                StaleReason::Ttl
            } else {
                StaleReason::Tti
            }
        }
        Coherence::Exclusive | Coherence::Immutable => match ages.against {
            Against::Refused => StaleReason::Refused,
            Against::Unheard => StaleReason::Unheard,
            Against::Nothing | Against::Doubt | Against::Restored => StaleReason::Doubt,
        },
    })
}

/// A record with what it is ranked by.
struct Leading {
    ranks: (u64, u64),
    version: Arc<Version>,
}

impl Leading {
    fn name(&self) -> (&str, &str) {
        let object = &self.version.object;
        (object.bucket.as_str(), object.key.as_str())
    }
}

impl PartialEq for Leading {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Leading {}

impl PartialOrd for Leading {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Leading {
    /// Of equals the one whose key comes first leads, so that a list does not change by itself.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_rank = self.ranks.cmp(&other.ranks);
        by_rank.then_with(|| other.name().cmp(&self.name()))
    }
}

impl Selection {
    /// Whether an object is one of these.
    pub fn includes(&self, bucket: &BucketName, key: &ObjectKey) -> bool {
        match self {
            Self::Object(of, one) => of == bucket && one == key,
            Self::Prefix(of, prefix) => of == bucket && key.as_str().starts_with(prefix),
            Self::Bucket(of) => of == bucket,
            Self::All => true,
        }
    }

    /// The bucket it lies in; `None` for all.
    pub fn bucket(&self) -> Option<&BucketName> {
        match self {
            Self::Object(bucket, _) | Self::Prefix(bucket, _) | Self::Bucket(bucket) => {
                Some(bucket)
            }
            Self::All => None,
        }
    }
}
