//! What shadow caches count: hits that less or more memory would have brought.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_cache_shadow_lookups_total`, `forebay_cache_shadow_lookup_bytes_total` | |
//! | `forebay_cache_shadow_hits_total`, `forebay_cache_shadow_hit_bytes_total` | `size` |
//!
//! And the same with `disk_shadow` for shadows of the disk. All of them of the sampled objects
//! alone. `size` is a factor of the cache's own.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::{Registry, Unit},
};

type BySize = Family<[(&'static str, &'static str); 1], Counter>;

/// Counters of one cache's shadows; clones count together.
#[derive(Debug, Clone, Default)]
pub struct ShadowMetrics {
    /// Reads of sampled objects.
    pub lookups: Counter,
    /// Bytes that they asked for.
    pub lookup_bytes: Counter,
    hits: BySize,
    hit_bytes: BySize,
}

impl ShadowMetrics {
    /// Reads that a cache of this size would have answered.
    pub fn hits(&self, size: &'static str) -> Counter {
        self.hits.get_or_create_owned(&[("size", size)])
    }

    /// Bytes that a cache of this size would have had.
    pub fn hit_bytes(&self, size: &'static str) -> Counter {
        self.hit_bytes.get_or_create_owned(&[("size", size)])
    }

    pub(super) fn register(&self, registry: &mut Registry, name: &str) {
        registry.register(
            format!("{name}_lookups"),
            "Reads of the objects that shadow caches follow",
            self.lookups.clone(),
        );
        registry.register(
            format!("{name}_hits"),
            "Those that a cache of this size would have answered",
            self.hits.clone(),
        );
        registry.register_with_unit(
            format!("{name}_lookup"),
            "Bytes read of the objects that shadow caches follow",
            Unit::Bytes,
            self.lookup_bytes.clone(),
        );
        registry.register_with_unit(
            format!("{name}_hit"),
            "Those that a cache of this size would have had",
            Unit::Bytes,
            self.hit_bytes.clone(),
        );
    }
}
