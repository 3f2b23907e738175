//! What a store of pages on disk counts.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_disk_used_bytes`, `forebay_disk_capacity_bytes` (gauges): files of the folder | |
//! | `forebay_disk_index_bytes` (gauge): memory that the index takes | |
//! | `forebay_disk_entries` (gauge): pages that can be found | |
//! | `forebay_disk_hits_total`, `forebay_disk_misses_total`: reads; failed ones are misses | |
//! | `forebay_disk_reads_failed_total` | `cause`: see [`ReadFailures`] |
//! | `forebay_disk_read_seconds` (histogram): reads that were answered | |
//! | `forebay_disk_writes_refused_total` | `cause`: see [`WriteRefusals`] |
//! | `forebay_disk_writes_failed_total`: calls to the disk that write, and failed | |
//! | `forebay_disk_written_bytes_total`: entries, those written once more included | |
//! | `forebay_disk_rewritten_bytes_total`: entries written once more, as they were used | |
//! | `forebay_disk_evicted_entries_total`: pages that made room | |
//! | `forebay_disk_breaker_open` (gauge): 1: the disk is left alone | `of`: `reads`, `writes` |

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

/// Counters of one store of pages on disk; clones count together.
#[derive(Debug, Clone)]
pub struct DiskMetrics {
    /// Bytes of all files.
    pub used: Gauge,
    /// Bytes that they may have.
    pub capacity: Gauge,
    /// Bytes of memory that the index takes.
    pub index: Gauge,
    /// Pages that can be found.
    pub entries: Gauge,
    /// Reads that found their page.
    pub hits: Counter,
    /// Reads that did not.
    pub misses: Counter,
    /// Reads of pages that should have been there.
    pub reads_failed: ReadFailures,
    /// Time of reads that were answered.
    pub read_seconds: Histogram,
    /// Pages that were not taken.
    pub writes_refused: WriteRefusals,
    /// Calls to the disk that write, and failed.
    pub writes_failed: Counter,
    /// Bytes of entries written.
    pub written_bytes: Counter,
    /// Bytes of entries written once more.
    pub rewritten_bytes: Counter,
    /// Pages that made room.
    pub evicted_entries: Counter,
    /// 1 while reads are not tried.
    pub reads_broken: Gauge,
    /// 1 while writes are not tried.
    pub writes_broken: Gauge,
    families: Families,
}

/// Why reads failed.
#[derive(Debug, Clone)]
pub struct ReadFailures {
    /// The entry was damaged.
    pub corrupt: Counter,
    /// The disk said so.
    pub error: Counter,
    /// The disk did not answer in time.
    pub timeout: Counter,
    /// As many reads as may be were under way.
    pub busy: Counter,
    /// The disk is left alone for a while.
    pub breaker: Counter,
}

/// Why pages were not taken.
#[derive(Debug, Clone)]
pub struct WriteRefusals {
    /// Too many bytes wait to be written.
    pub queue_full: Counter,
    /// Too many bytes were written.
    pub budget: Counter,
    /// The disk is left alone for a while.
    pub breaker: Counter,
    /// The disk was full a moment ago.
    pub no_space: Counter,
}

#[derive(Debug, Clone, Default)]
struct Families {
    reads_failed: Family<CauseLabel, Counter>,
    writes_refused: Family<CauseLabel, Counter>,
    breaker: Family<OfLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLabel {
    of: &'static str,
}

impl DiskMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        let families = Families::default();
        let failed = |cause| {
            families
                .reads_failed
                .get_or_create_owned(&CauseLabel { cause })
        };
        let refused = |cause| {
            families
                .writes_refused
                .get_or_create_owned(&CauseLabel { cause })
        };
        let broken = |of| families.breaker.get_or_create_owned(&OfLabel { of });
        Self {
            used: Gauge::default(),
            capacity: Gauge::default(),
            index: Gauge::default(),
            entries: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            reads_failed: ReadFailures {
                corrupt: failed("corrupt"),
                error: failed("error"),
                timeout: failed("timeout"),
                busy: failed("busy"),
                breaker: failed("breaker"),
            },
            // 50 µs, a fast device, to 1.6 s, beyond any timeout.
            read_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            writes_refused: WriteRefusals {
                queue_full: refused("queue_full"),
                budget: refused("budget"),
                breaker: refused("breaker"),
                no_space: refused("no_space"),
            },
            writes_failed: Counter::default(),
            written_bytes: Counter::default(),
            rewritten_bytes: Counter::default(),
            evicted_entries: Counter::default(),
            reads_broken: broken("reads"),
            writes_broken: broken("writes"),
            families,
        }
    }

    /// Makes the counters part of what a scrape gives.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("forebay_disk");
        for (name, help, gauge) in [
            ("used", "Bytes of all files", &self.used),
            ("capacity", "Bytes that they may have", &self.capacity),
            ("index", "Memory that the index takes", &self.index),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
        registry.register("entries", "Pages that can be found", self.entries.clone());
        for (name, help, counter) in [
            ("written", "Bytes of entries written", &self.written_bytes),
            (
                "rewritten",
                "Bytes of entries written once more",
                &self.rewritten_bytes,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        for (name, help, counter) in [
            ("hits", "Reads that found their page", &self.hits),
            ("misses", "Reads that did not", &self.misses),
            ("writes_failed", "Failed writes", &self.writes_failed),
            (
                "evicted_entries",
                "Pages that made room",
                &self.evicted_entries,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        let read_seconds = self.read_seconds.clone();
        registry.register_with_unit("read", "Time of reads", Unit::Seconds, read_seconds);
        let families = self.families.clone();
        registry.register(
            "reads_failed",
            "Reads of pages that should have been there",
            families.reads_failed,
        );
        registry.register(
            "writes_refused",
            "Pages that were not taken",
            families.writes_refused,
        );
        registry.register(
            "breaker_open",
            "Whether the disk is left alone",
            families.breaker,
        );
    }
}

impl Default for DiskMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_of_the_table_above() {
        let metrics = DiskMetrics::new();
        metrics.used.set(7);
        metrics.reads_failed.busy.inc();
        metrics.read_seconds.observe(0.25);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_disk_used_bytes 7",
            "forebay_disk_index_bytes 0",
            "forebay_disk_rewritten_bytes_total 0",
            "forebay_disk_reads_failed_total{cause=\"busy\"} 1",
            "forebay_disk_writes_refused_total{cause=\"no_space\"} 0",
            "forebay_disk_breaker_open{of=\"writes\"} 0",
            "forebay_disk_read_seconds_count 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
