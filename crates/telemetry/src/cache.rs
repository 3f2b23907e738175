//! What the cache layer counts, besides the outcomes of requests, which the edge counts.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_cache_used_bytes`, `forebay_cache_capacity_bytes` (gauges) | |
//! | `forebay_cache_entries` (gauge): version records and pages | |
//! | `forebay_cache_hit_bytes_total`: bytes of bodies answered from pages alone | |
//! | `forebay_cache_fill_bytes_total`: bytes of bodies that fills read from the origin | |
//! | `forebay_cache_fills_total`: origin requests whose answer may be kept | |
//! | `forebay_cache_fills_failed_total`: those that broke off, or found another version | |
//! | `forebay_cache_fills_unbudgeted_total`: those not kept, as memory in flight was used up | |
//! | `forebay_cache_collapsed_total`: requests that joined a fill under way | |
//! | `forebay_cache_read_ahead_bytes_total`, `forebay_cache_read_ahead_wasted_bytes_total` | |
//! | `forebay_cache_disk_hit_bytes_total`: bytes read from the disk | |
//! | `forebay_cache_disk_stored_total`, `forebay_cache_disk_not_stored_total` | |
//! | `forebay_cache_validated_total`: stale records the origin called unchanged | |
//! | `forebay_cache_stale_while_revalidate_total`, `forebay_cache_stale_if_error_total` | |
//! | `forebay_cache_revalidations_refused_total`: for which there was no place | |
//! | `forebay_cache_staleness_seconds` (histogram): age of what answers were made of | `mode` |
//! | `forebay_cache_stored_total`, `forebay_cache_not_stored_total`: pages | |
//! | `forebay_cache_page_bytes` (histogram): sizes of pages stored | |
//! | `forebay_cache_extent_bytes`, `forebay_cache_disk_extent_bytes` (histograms): of fills | |
//! | `forebay_cache_lock_waits_total`: waits for a part of the index | |
//! | `forebay_cache_evictions_total`: records and pages that made room | |
//! | `forebay_cache_replaced_total`, `forebay_cache_superseded_total`, | |
//! | `forebay_cache_invalidated_total`, `forebay_cache_purged_total`: those that left else | |
//! | `forebay_cache_pinned_bytes` (gauge), `forebay_cache_pins_refused_total`: no quota left | |
//! | `forebay_cache_invalidations_total`: writes that passed | |
//! | `forebay_cache_answers_…`: answers kept whole, see `kept` | `operation` |
//! | `forebay_cache_changes_…`: what gateways tell each other, see `changes` | `cause`, `of` |
//! | `forebay_cache_warmed_total`: objects that an operator had read | `outcome` |
//!
//! And those of [`ShadowMetrics`].

mod changes;
mod kept;
mod shadow;
mod staleness;

pub use changes::{ChangeMetrics, Heard, Telling, Untold};
pub use kept::{KeptEvent, KeptMetrics};
pub use shadow::ShadowMetrics;
pub use staleness::{Mode, Staleness};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Counters of one cache layer; clones count together.
#[derive(Debug, Clone, Default)]
pub struct CacheMetrics {
    /// Bytes that records, pages and their index take.
    pub used: Gauge,
    /// Bytes that they may take.
    pub capacity: Gauge,
    /// Version records and pages.
    pub entries: Gauge,
    /// Bytes of bodies answered from pages alone.
    pub hit_bytes: Counter,
    /// Bytes of bodies that fills read from the origin.
    pub fill_bytes: Counter,
    /// Origin requests whose answer may be kept.
    pub fills: Counter,
    /// Fills that broke off, or found another version.
    pub fills_failed: Counter,
    /// Fills not kept, as memory in flight was used up.
    pub fills_unbudgeted: Counter,
    /// Requests that joined a fill under way.
    pub collapsed: Counter,
    /// Bytes asked for before a reader of ranges in a row asked for them.
    pub read_ahead_bytes: Counter,
    /// Those of them that were not read.
    pub read_ahead_wasted_bytes: Counter,
    /// Bytes of pages and small objects read from the disk.
    pub disk_hit_bytes: Counter,
    /// Pages and records given to the disk.
    pub disk_stored: Counter,
    /// Those that it refused.
    pub disk_not_stored: Counter,
    /// Stale records that the origin called unchanged.
    pub validated: Counter,
    /// Stale answers while the origin was asked.
    pub stale_while_revalidate: Counter,
    /// Stale answers in the place of an error of the origin.
    pub stale_if_error: Counter,
    /// Validations that found no place in the background.
    pub revalidations_refused: Counter,
    /// Age of what answers were made of.
    pub staleness: Staleness,
    /// Pages stored.
    pub stored: Counter,
    /// Their sizes, those of objects of one page included.
    pub page_bytes: Sizes,
    /// Bytes of the object that a fill from the origin was for.
    pub extent_bytes: Sizes,
    /// The same of fills from the disk.
    pub disk_extent_bytes: Sizes,
    /// Times that a thread had to wait for a part of the index.
    pub lock_waits: Counter,
    /// Pages for which there was no room.
    pub not_stored: Counter,
    /// Records and pages that made room.
    pub evictions: Counter,
    /// Records and pages that left for another reason.
    pub gone: Gone,
    /// What shadow caches came to.
    pub shadow: ShadowMetrics,
    /// What shadow caches of the disk count.
    pub disk_shadow: ShadowMetrics,
    /// Bytes of what is pinned.
    pub pinned: Gauge,
    /// Pins for which there was no quota left.
    pub pins_refused: Counter,
    /// Writes that invalidated something, or might have; those of other gateways included.
    pub invalidations: Counter,
    /// Answers kept whole.
    pub kept: KeptMetrics,
    /// What gateways tell each other.
    pub changes: ChangeMetrics,
    /// Objects that an operator had read, by what came of it.
    warmed: Family<[(&'static str, &'static str); 1], Counter>,
}

/// A histogram of sizes, from 4 KiB to 16 MiB and beyond.
#[derive(Debug, Clone)]
pub struct Sizes(Histogram);

impl Sizes {
    /// Counts something of so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    pub fn observe(&self, bytes: u64) {
        self.0.observe(bytes as f64);
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(4096.0, 4.0, 7)))
    }
}

/// Records and pages that left though nobody needed their room.
#[derive(Debug, Clone, Default)]
pub struct Gone {
    /// Others of their name took their place.
    pub replaced: Counter,
    /// The origin has another version by now, or none.
    pub superseded: Counter,
    /// A write passed.
    pub invalidated: Counter,
    /// An operator said so.
    pub purged: Counter,
}

impl Gone {
    fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            (
                "replaced",
                "Records and pages whose place others of their name took",
                &self.replaced,
            ),
            (
                "superseded",
                "Records and pages of versions that the origin no longer has",
                &self.superseded,
            ),
            (
                "invalidated",
                "Records and pages that a write made unknown",
                &self.invalidated,
            ),
            (
                "purged",
                "Records and pages that an operator purged",
                &self.purged,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

impl CacheMetrics {
    /// Counts an object that an operator had read; `outcome` is one of the words in
    /// docs/metrics.md.
    pub fn warmed(&self, outcome: &'static str) {
        self.warmed.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Makes the counters part of what a scrape gives.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("forebay_cache");
        for (name, help, gauge) in [
            (
                "used",
                "Bytes that records, pages and their index take",
                &self.used,
            ),
            ("capacity", "Bytes that they may take", &self.capacity),
            ("pinned", "Bytes of what is pinned", &self.pinned),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
        registry.register("entries", "Version records and pages", self.entries.clone());
        for (name, help, counter) in [
            (
                "hit",
                "Bytes of bodies answered from pages alone",
                &self.hit_bytes,
            ),
            (
                "fill",
                "Bytes of bodies that fills read from the origin",
                &self.fill_bytes,
            ),
            (
                "disk_hit",
                "Bytes of pages and small objects read from the disk",
                &self.disk_hit_bytes,
            ),
            (
                "read_ahead",
                "Bytes asked for before a reader of ranges in a row asked for them",
                &self.read_ahead_bytes,
            ),
            (
                "read_ahead_wasted",
                "Bytes asked for ahead of readers that did not read them",
                &self.read_ahead_wasted_bytes,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        for (name, help, counter) in [
            (
                "fills",
                "Origin requests whose answer may be kept",
                &self.fills,
            ),
            (
                "fills_failed",
                "Fills that broke off or found another version",
                &self.fills_failed,
            ),
            (
                "fills_unbudgeted",
                "Fills not kept, as memory in flight was used up",
                &self.fills_unbudgeted,
            ),
            (
                "collapsed",
                "Requests that joined a fill under way",
                &self.collapsed,
            ),
            (
                "disk_stored",
                "Pages and records given to the disk",
                &self.disk_stored,
            ),
            (
                "disk_not_stored",
                "Pages and records that the disk refused",
                &self.disk_not_stored,
            ),
            (
                "validated",
                "Stale records that the origin called unchanged",
                &self.validated,
            ),
            (
                "stale_while_revalidate",
                "Stale answers while the origin was asked",
                &self.stale_while_revalidate,
            ),
            (
                "stale_if_error",
                "Stale answers in the place of an error of the origin",
                &self.stale_if_error,
            ),
            (
                "revalidations_refused",
                "Validations that found no place in the background",
                &self.revalidations_refused,
            ),
            ("stored", "Pages stored", &self.stored),
            (
                "lock_waits",
                "Times that a thread had to wait for a part of the index",
                &self.lock_waits,
            ),
            (
                "not_stored",
                "Pages for which there was no room",
                &self.not_stored,
            ),
            (
                "evictions",
                "Records and pages that made room",
                &self.evictions,
            ),
            (
                "pins_refused",
                "Pins for which there was no quota left",
                &self.pins_refused,
            ),
            ("invalidations", "Writes that passed", &self.invalidations),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, sizes) in [
            ("page", "Sizes of pages stored", &self.page_bytes),
            (
                "extent",
                "Sizes of fills from the origin",
                &self.extent_bytes,
            ),
            (
                "disk_extent",
                "Sizes of fills from the disk",
                &self.disk_extent_bytes,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, sizes.0.clone());
        }
        self.gone.register(registry);
        self.shadow.register(registry, "shadow");
        self.disk_shadow.register(registry, "disk_shadow");
        let help = "Objects that an operator had read, by what came of it";
        registry.register("warmed", help, self.warmed.clone());
        registry.register_collector(Box::new(self.staleness.clone()));
        self.kept.register(registry);
        self.changes.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_of_the_table_above() {
        let metrics = CacheMetrics::default();
        metrics.used.set(7);
        metrics.hit_bytes.inc_by(5);
        metrics.fills.inc();
        metrics.shadow.hits("0.5").inc_by(3);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_cache_used_bytes 7",
            "forebay_cache_hit_bytes_total 5",
            "forebay_cache_fills_total 1",
            "forebay_cache_not_stored_total 0",
            "forebay_cache_purged_total 0",
            "forebay_cache_pinned_bytes 0",
            "forebay_cache_shadow_lookup_bytes_total 0",
            "forebay_cache_shadow_hits_total{size=\"0.5\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
