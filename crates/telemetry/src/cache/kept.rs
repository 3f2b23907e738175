//! What a cache counts of the answers that it keeps whole: listings, what is said of buckets, and
//! that an object is missing.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// What happened to kept answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptEvent {
    /// One answered a request.
    Hit,
    /// A request found none that may answer it.
    Miss,
    /// One was stored.
    Stored,
    /// A write made one unknown.
    Invalidated,
    /// One made room for others.
    Evicted,
}

/// Counters of the kept answers of one cache layer; clones count together.
#[derive(Debug, Clone, Default)]
pub struct KeptMetrics {
    hits: Family<OperationLabel, Counter>,
    misses: Family<OperationLabel, Counter>,
    stored: Family<OperationLabel, Counter>,
    invalidated: Family<OperationLabel, Counter>,
    evicted: Family<OperationLabel, Counter>,
    /// Bytes that kept answers and their index take.
    pub used: Gauge,
    /// Bytes that they may take.
    pub capacity: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

impl KeptMetrics {
    /// Counts an event of an answer to this operation of the S3 API.
    pub fn count(&self, event: KeptEvent, operation: &'static str) {
        self.of(event)
            .get_or_create(&OperationLabel { operation })
            .inc();
    }

    /// How often it happened to answers to this operation.
    pub fn total(&self, event: KeptEvent, operation: &'static str) -> u64 {
        self.of(event)
            .get_or_create(&OperationLabel { operation })
            .get()
    }

    fn of(&self, event: KeptEvent) -> &Family<OperationLabel, Counter> {
        match event {
            KeptEvent::Hit => &self.hits,
            KeptEvent::Miss => &self.misses,
            KeptEvent::Stored => &self.stored,
            KeptEvent::Invalidated => &self.invalidated,
            KeptEvent::Evicted => &self.evicted,
        }
    }

    /// Makes the counters part of what a scrape gives.
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            (
                "answers_hits",
                "Requests answered by a kept answer",
                &self.hits,
            ),
            (
                "answers_misses",
                "Requests that found no kept answer",
                &self.misses,
            ),
            ("answers_stored", "Answers kept", &self.stored),
            (
                "answers_invalidated",
                "Kept answers that a write made unknown",
                &self.invalidated,
            ),
            (
                "answers_evictions",
                "Kept answers that made room",
                &self.evicted,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        for (name, help, gauge) in [
            (
                "answers_used",
                "Bytes that kept answers and their index take",
                &self.used,
            ),
            (
                "answers_capacity",
                "Bytes that kept answers may take",
                &self.capacity,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_counted_by_itself() {
        let metrics = KeptMetrics::default();
        metrics.count(KeptEvent::Hit, "ListObjectsV2");
        metrics.count(KeptEvent::Hit, "ListObjectsV2");
        metrics.count(KeptEvent::Miss, "HeadBucket");
        assert_eq!(metrics.total(KeptEvent::Hit, "HeadBucket"), 0);
        metrics.used.set(3);
        let mut registry = Registry::default();
        metrics.register(registry.sub_registry_with_prefix("forebay_cache"));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_cache_answers_hits_total{operation=\"ListObjectsV2\"} 2",
            "forebay_cache_answers_misses_total{operation=\"HeadBucket\"} 1",
            "forebay_cache_answers_used_bytes 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
