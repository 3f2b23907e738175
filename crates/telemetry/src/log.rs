//! What a log counts.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_log_entries` (gauge): entries of the index | |
//! | `forebay_log_index_bytes`, `forebay_log_live_bytes` (gauges) | |
//! | `forebay_log_segments_bytes`, `forebay_log_segments` (gauges): files, tables included | |
//! | `forebay_log_blobs_bytes` (gauge): payloads in files of their own | |
//! | `forebay_log_group_batches` (histogram): batches of one write and sync | |
//! | `forebay_log_sync_seconds` (histogram) | |
//! | `forebay_log_written_bytes_total`: records, those that moved included | |
//! | `forebay_log_writes_refused_total` | `cause`: see [`Refusals`] |
//! | `forebay_log_moved_entries_total`, `forebay_log_moved_bytes_total`: by compaction | |
//! | `forebay_log_compacted_segments_total` | |
//! | `forebay_log_quarantined_total`: entries found damaged | |
//! | `forebay_log_poisoned` (gauge): 1: no write is taken since the disk failed | |

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Counters of one log; clones count together.
#[derive(Debug, Clone)]
pub struct LogMetrics {
    /// Entries of the index.
    pub entries: Gauge,
    /// Memory that the index takes.
    pub index_bytes: Gauge,
    /// Bytes that entries point to.
    pub live_bytes: Gauge,
    /// Bytes of all segments and tables.
    pub segments_bytes: Gauge,
    /// The number of segments.
    pub segments: Gauge,
    /// Bytes of payloads in files of their own.
    pub blobs_bytes: Gauge,
    /// Batches of one write and sync.
    pub group_batches: Histogram,
    /// Time of syncs.
    pub sync_seconds: Histogram,
    /// Bytes of records.
    pub written_bytes: Counter,
    /// Writes that found no room.
    pub refused: Refusals,
    /// Entries that compaction moved.
    pub moved_entries: Counter,
    /// Bytes of them.
    pub moved_bytes: Counter,
    /// Segments that made room.
    pub compacted_segments: Counter,
    /// Entries found damaged.
    pub quarantined: Counter,
    /// 1 once the disk has failed.
    pub poisoned: Gauge,
    families: Families,
}

/// Why writes found no room.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// The disk, or what the log may take of it.
    pub disk: Counter,
    /// Memory for names.
    pub index: Counter,
    /// Too much waits to be written.
    pub queue: Counter,
}

#[derive(Debug, Clone, Default)]
struct Families {
    refused: Family<CauseLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

impl LogMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        let families = Families::default();
        let refused = |cause| families.refused.get_or_create_owned(&CauseLabel { cause });
        Self {
            entries: Gauge::default(),
            index_bytes: Gauge::default(),
            live_bytes: Gauge::default(),
            segments_bytes: Gauge::default(),
            segments: Gauge::default(),
            blobs_bytes: Gauge::default(),
            // One to all of a thousand clients.
            group_batches: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            // 50 µs, a fast device, to 1.6 s, a sick one.
            sync_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            written_bytes: Counter::default(),
            refused: Refusals {
                disk: refused("disk"),
                index: refused("index"),
                queue: refused("queue"),
            },
            moved_entries: Counter::default(),
            moved_bytes: Counter::default(),
            compacted_segments: Counter::default(),
            quarantined: Counter::default(),
            poisoned: Gauge::default(),
            families,
        }
    }

    /// Makes the counters part of what a scrape gives.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("forebay_log");
        for (name, help, gauge) in [
            ("index", "Memory that the index takes", &self.index_bytes),
            ("live", "Bytes that entries point to", &self.live_bytes),
            ("segments", "Bytes of segments", &self.segments_bytes),
            ("blobs", "Bytes of large payloads", &self.blobs_bytes),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
        for (name, help, gauge) in [
            ("entries", "Entries of the index", &self.entries),
            ("segments", "Segments", &self.segments),
            ("poisoned", "Whether the disk has failed", &self.poisoned),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("written", "Bytes of records", &self.written_bytes),
            ("moved", "Bytes moved by compaction", &self.moved_bytes),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        for (name, help, counter) in [
            ("moved_entries", "Entries moved", &self.moved_entries),
            (
                "compacted_segments",
                "Segments that made room",
                &self.compacted_segments,
            ),
            ("quarantined", "Entries found damaged", &self.quarantined),
        ] {
            registry.register(name, help, counter.clone());
        }
        let group_batches = self.group_batches.clone();
        registry.register("group_batches", "Batches of one sync", group_batches);
        let sync_seconds = self.sync_seconds.clone();
        registry.register_with_unit("sync", "Time of syncs", Unit::Seconds, sync_seconds);
        registry.register(
            "writes_refused",
            "Writes that found no room",
            self.families.refused.clone(),
        );
    }
}

impl Default for LogMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_of_the_table_above() {
        let metrics = LogMetrics::new();
        metrics.segments.set(3);
        metrics.segments_bytes.set(300);
        metrics.refused.index.inc();
        metrics.group_batches.observe(64.0);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_log_segments 3",
            "forebay_log_segments_bytes 300",
            "forebay_log_poisoned 0",
            "forebay_log_moved_bytes_total 0",
            "forebay_log_writes_refused_total{cause=\"index\"} 1",
            "forebay_log_group_batches_count 1",
            "forebay_log_sync_seconds_count 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
