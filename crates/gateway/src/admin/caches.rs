//! The caches of a gateway, by name, and what they know, as it is told.

use forebay_cache::{Coherence, FoundStanding, Keep, Operator, Place, Policy, Rank, ShadowReport};
use forebay_s3::{bucket::BucketName, operation::ObjectId};

use super::messages::{
    CacheStats, DiskStats, LookupAnswer, ObjectPolicy, Shadow, StoredObject, TopObject,
};
use crate::routes::Routes;

/// A cache of one route.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Its name: the index of its route, as in metrics.
    pub name: String,
    /// Index of the route.
    pub route_index: usize,
    /// Name of the store behind it.
    pub store: String,
    /// Patterns of buckets that lead to it.
    pub buckets: Vec<String>,
    /// What is done to it.
    pub operator: Operator,
}

/// All caches.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Which bucket leads to which route.
    pub routes: Routes,
    /// In the order of their routes.
    pub list: Vec<Cache>,
}

impl Caches {
    /// Lets all of them write to their disks what is read often, for the end of the program. It
    /// takes as long as the disks do: a limit is the caller's.
    ///
    /// # Cancel safety
    /// A dropped future leaves unwritten what it had not come to.
    pub async fn close(&self) {
        for cache in &self.list {
            cache.operator.close().await;
        }
    }

    /// The places in the list of the caches that requests for a bucket meet.
    pub(super) fn of_bucket(&self, bucket: &BucketName) -> impl Iterator<Item = usize> {
        let route = self.routes.index_for(bucket);
        let of_route = move |cache: &Cache| Some(cache.route_index) == route;
        let caches = self.list.iter().enumerate();
        caches.filter_map(move |(at, cache)| of_route(cache).then_some(at))
    }
}

impl Cache {
    /// Counts of the cache.
    pub(super) fn stats(&self) -> CacheStats {
        let stats = self.operator.stats();
        CacheStats {
            cache: self.name.clone(),
            store: self.store.clone(),
            buckets: self.buckets.clone(),
            coherence: stats.coherence.mode().name().to_owned(),
            ttl_seconds: match stats.coherence {
                Coherence::Bounded { ttl, .. } => Some(ttl.as_secs_f64()),
                Coherence::Strict | Coherence::Exclusive | Coherence::Immutable => None,
            },
            used_bytes: stats.used_bytes,
            capacity_bytes: stats.capacity_bytes,
            page_bytes: stats.page_bytes,
            entries: stats.entries_count,
            hit_bytes: stats.hit_bytes,
            fill_bytes: stats.fill_bytes,
            fills: stats.fills_count,
            collapsed: stats.collapsed_count,
            validated: stats.validated_count,
            evicted: stats.evicted_count,
            invalidations: stats.invalidations_count,
            purged: stats.purged_count,
            pinned_bytes: stats.pinned_bytes,
            pinned: stats.pinned_count,
            disk: stats.disk.map(|disk| DiskStats {
                used_bytes: disk.used_bytes,
                capacity_bytes: disk.capacity_bytes,
                entries: disk.entries_count,
                hit_bytes: disk.hit_bytes,
            }),
            shadows: self.operator.shadows().iter().map(shadow).collect(),
            disk_shadows: self.operator.disk_shadows().iter().map(shadow).collect(),
        }
    }
}

impl Cache {
    /// The leading objects.
    pub(super) fn top(&self, count: usize, rank: Rank) -> Vec<TopObject> {
        let ranked = self.operator.top(count, rank).into_iter();
        let shown = ranked.map(|ranked| TopObject {
            cache: self.name.clone(),
            bucket: ranked.object.bucket.as_str().to_owned(),
            key: ranked.object.key.as_str().to_owned(),
            version_id: ranked.object.version.map(|id| id.as_str().to_owned()),
            size_bytes: ranked.size_bytes,
            bytes: ranked.bytes,
            hits: ranked.hits_count,
        });
        shown.collect()
    }

    /// What is known of an object.
    pub(super) async fn lookup(&self, object: &ObjectId) -> LookupAnswer {
        let stored = self.operator.lookup(object).await.map(|found| {
            let (is_fresh, fresh_seconds, stale_reason) = match found.standing {
                FoundStanding::Fresh(left) => (true, left.map(|left| left.as_secs()), None),
                FoundStanding::Stale(why) => (false, None, Some(why.as_str().to_owned())),
            };
            StoredObject {
                etag: found.etag,
                size_bytes: found.size_bytes,
                modified_unix_seconds: found.modified,
                is_fresh,
                stale_reason,
                fresh_seconds,
                age_seconds: found.age.as_secs_f64(),
                idle_seconds: found.idle.as_secs_f64(),
                pages: found.pages_count,
                pages_total: found.pages_total,
                cached_bytes: found.cached_bytes,
                hits: found.hits_count,
                queue: found.queue.map(str::to_owned),
                disk_pages: found.disk_pages_count,
                policy: shown(found.policy),
            }
        });
        LookupAnswer {
            cache: self.name.clone(),
            store: self.store.clone(),
            bucket: object.bucket.as_str().to_owned(),
            key: object.key.as_str().to_owned(),
            stored,
        }
    }
}

fn shadow(report: &ShadowReport) -> Shadow {
    Shadow {
        size: report.size.to_owned(),
        bytes: report.capacity_bytes,
        hit_ratio: report.hit_ratio(),
        byte_hit_ratio: report.byte_hit_ratio(),
    }
}

fn shown(policy: Policy) -> ObjectPolicy {
    ObjectPolicy {
        coherence: policy.coherence.mode().name().to_owned(),
        keep: match policy.keep {
            Keep::No => "no",
            Keep::Yes => "yes",
            Keep::Pinned => "pinned",
        }
        .to_owned(),
        place: match policy.place {
            Place::Everywhere => "everywhere",
            Place::Memory => "memory",
            Place::Disk => "disk",
        }
        .to_owned(),
        page_bytes: policy.page_bytes.get(),
    }
}
