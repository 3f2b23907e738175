//! What the edge counts: requests, latencies, bytes, connections.
//!
//! Each serving thread writes its own [`Shard`], found once, so that counting is an uncontended
//! add at a known place: no label is looked up and no cache line moves between cores. A scrape
//! adds the shards up.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_requests_total` | `operation`, `status` (`2xx` …; `cut`: no answer was finished) |
//! | `forebay_request_seconds` (histogram) | `operation`: from headers to the answer's last byte |
//! | `forebay_cache_outcomes_total` | `outcome`: `hit` or the reason of RFC 9211 |
//! | `forebay_request_body_bytes_total`, `forebay_response_body_bytes_total` | |
//! | `forebay_requests_in_flight`, `forebay_connections` (gauges) | |
//! | `forebay_connections_accepted_total`, `forebay_connections_cut_total` | |
//! | `forebay_access_log_dropped_total` | |

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder},
    metrics::MetricType,
    registry::{Registry, Unit},
};

/// Classes of status: `1xx` to `5xx`, and answers that were cut.
const STATUS_CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "cut"];
const CUT_CLASS: usize = 5;

/// Bucket bounds are powers of two microseconds: 64 µs, the least a hit takes, to 67 s.
const BUCKET_LOG2_MIN: u32 = 6;
const BUCKET_COUNT: usize = 21;

/// All counts of the edge.
#[derive(Debug)]
pub struct GatewayMetrics {
    operations: Box<[&'static str]>,
    outcomes: Box<[&'static str]>,
    shards: Box<[Arc<Shard>]>,
}

/// The counts of one serving thread.
#[derive(Debug)]
pub struct Shard {
    operations: Box<[OperationCounts]>,
    outcomes: Box<[AtomicU64]>,
    /// Bytes of request bodies as they came in, coding included.
    pub request_body_bytes: AtomicU64,
    /// Bytes of response bodies handed to connections.
    pub response_body_bytes: AtomicU64,
    /// Requests begun; those finished are in the operations' counts.
    pub requests_begun: AtomicU64,
    /// Requests finished.
    pub requests_finished: AtomicU64,
    /// Connections accepted.
    pub connections_accepted: AtomicU64,
    /// Connections closed, for whatever reason.
    pub connections_closed: AtomicU64,
    /// Connections cut because the client was too slow or silent.
    pub connections_cut: AtomicU64,
    /// Lines of the access log that found no room.
    pub access_log_dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct OperationCounts {
    by_class: [AtomicU64; STATUS_CLASSES.len()],
    /// One more than the bounds: what took longer than all of them.
    buckets: [AtomicU64; BUCKET_COUNT + 1],
    elapsed_ns: AtomicU64,
}

/// How a request ended, for counting.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// With this status, sent to the end.
    Finished(u16),
    /// Cut before the end of its answer.
    Cut,
}

impl GatewayMetrics {
    /// Counts for operations and cache outcomes, known by their place in these lists, on
    /// `thread_count` threads.
    pub fn new(
        operations: impl IntoIterator<Item = &'static str>,
        outcomes: impl IntoIterator<Item = &'static str>,
        thread_count: usize,
    ) -> Self {
        let (operations, outcomes): (Box<[_]>, Box<[_]>) = (
            operations.into_iter().collect(),
            outcomes.into_iter().collect(),
        );
        let shard = || Arc::new(Shard::new(operations.len(), outcomes.len()));
        let shards = (0..thread_count.max(1)).map(|_| shard()).collect();
        Self {
            operations,
            outcomes,
            shards,
        }
    }

    /// The shard of a thread; numbers beyond the last share it.
    pub fn shard(&self, thread_index: usize) -> &Arc<Shard> {
        &self.shards[thread_index.min(self.shards.len() - 1)]
    }

    /// Makes the counts part of what a scrape gives.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(Arc::clone(self)));
    }

    /// Requests that have begun and not ended.
    pub fn requests_in_flight(&self) -> u64 {
        self.difference(
            |shard| &shard.requests_begun,
            |shard| &shard.requests_finished,
        )
    }

    /// Connections open now.
    pub fn connections(&self) -> u64 {
        self.difference(
            |shard| &shard.connections_accepted,
            |shard| &shard.connections_closed,
        )
    }

    fn sum(&self, count: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards
            .iter()
            .map(|shard| count(shard).load(Relaxed))
            .sum()
    }

    fn difference(
        &self,
        begun: impl Fn(&Shard) -> &AtomicU64,
        ended: impl Fn(&Shard) -> &AtomicU64,
    ) -> u64 {
        // The end is read first, so that what ends meanwhile never makes the difference negative.
        let ended = self.sum(ended);
        self.sum(begun).saturating_sub(ended)
    }
}

impl Shard {
    fn new(operation_count: usize, outcome_count: usize) -> Self {
        Self {
            operations: (0..operation_count)
                .map(|_| OperationCounts::default())
                .collect(),
            outcomes: (0..outcome_count).map(|_| AtomicU64::new(0)).collect(),
            request_body_bytes: AtomicU64::new(0),
            response_body_bytes: AtomicU64::new(0),
            requests_begun: AtomicU64::new(0),
            requests_finished: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            connections_closed: AtomicU64::new(0),
            connections_cut: AtomicU64::new(0),
            access_log_dropped: AtomicU64::new(0),
        }
    }

    /// Counts the end of a request of the operation at this place of the list.
    pub fn request_ended(&self, operation_index: usize, outcome: Outcome, elapsed: Duration) {
        self.requests_finished.fetch_add(1, Relaxed);
        let Some(counts) = self.operations.get(operation_index) else {
            return;
        };
        let class = match outcome {
            Outcome::Finished(status) => usize::from(status / 100).clamp(1, 5) - 1,
            Outcome::Cut => CUT_CLASS,
        };
        counts.by_class[class].fetch_add(1, Relaxed);
        counts.buckets[bucket_of(elapsed)].fetch_add(1, Relaxed);
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        counts.elapsed_ns.fetch_add(elapsed_ns, Relaxed);
    }

    /// Counts what a cache did, by its place in the list.
    pub fn cache_outcome(&self, outcome_index: usize) {
        if let Some(count) = self.outcomes.get(outcome_index) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// The first bucket whose bound is not below `elapsed`.
fn bucket_of(elapsed: Duration) -> usize {
    let elapsed_us = elapsed.as_nanos().div_ceil(1000);
    let log2_ceil = elapsed_us.max(1).next_power_of_two().trailing_zeros();
    (log2_ceil.saturating_sub(BUCKET_LOG2_MIN) as usize).min(BUCKET_COUNT)
}

/// Upper bound of a bucket in seconds.
fn bound_seconds(bucket_index: usize) -> f64 {
    if bucket_index == BUCKET_COUNT {
        return f64::INFINITY;
    }
    Duration::from_micros(1 << (bucket_index + BUCKET_LOG2_MIN as usize)).as_secs_f64()
}

impl Collector for GatewayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_operations(&mut encoder)?;
        let mut outcomes = encoder.encode_descriptor(
            "forebay_cache_outcomes",
            "What caches did with requests",
            None,
            MetricType::Counter,
        )?;
        for (index, name) in self.outcomes.iter().enumerate() {
            let count = self.sum(|shard| &shard.outcomes[index]);
            encode_count(&mut outcomes.encode_family(&[("outcome", *name)])?, count)?;
        }
        self.encode_totals(&mut encoder)?;
        for (name, help, value) in [
            (
                "forebay_requests_in_flight",
                "Requests under way",
                self.requests_in_flight(),
            ),
            (
                "forebay_connections",
                "Open client connections",
                self.connections(),
            ),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl GatewayMetrics {
    /// Only operations that have been asked for: most of S3's hundred never are.
    fn encode_operations(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut requests = encoder.encode_descriptor(
            "forebay_requests",
            "Requests answered, by operation and class of status",
            None,
            MetricType::Counter,
        )?;
        for (index, operation) in self.operations.iter().enumerate() {
            for (class, status) in STATUS_CLASSES.iter().enumerate() {
                let count = self.sum(|shard| &shard.operations[index].by_class[class]);
                if count > 0 {
                    let labels = [("operation", *operation), ("status", *status)];
                    encode_count(&mut requests.encode_family(&labels)?, count)?;
                }
            }
        }
        let mut seconds = encoder.encode_descriptor(
            "forebay_request",
            "Time from a request's headers to the last byte of its answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (index, operation) in self.operations.iter().enumerate() {
            let counts = |bucket: usize| self.sum(|s| &s.operations[index].buckets[bucket]);
            let buckets: Vec<_> = (0..=BUCKET_COUNT)
                .map(|bucket| (bound_seconds(bucket), counts(bucket)))
                .collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            if count > 0 {
                let elapsed_ns = self.sum(|shard| &shard.operations[index].elapsed_ns);
                let sum_seconds = Duration::from_nanos(elapsed_ns).as_secs_f64();
                seconds
                    .encode_family(&[("operation", *operation)])?
                    .encode_histogram::<[(&str, &str); 0]>(sum_seconds, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn encode_totals(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        type Count = fn(&Shard) -> &AtomicU64;
        let totals: [(&str, &str, Option<&Unit>, Count); 5] = [
            (
                "forebay_request_body",
                "Bytes of request bodies received",
                Some(&Unit::Bytes),
                |shard| &shard.request_body_bytes,
            ),
            (
                "forebay_response_body",
                "Bytes of response bodies handed to connections",
                Some(&Unit::Bytes),
                |shard| &shard.response_body_bytes,
            ),
            (
                "forebay_connections_accepted",
                "Client connections accepted",
                None,
                |shard| &shard.connections_accepted,
            ),
            (
                "forebay_connections_cut",
                "Connections cut because the client was too slow or silent",
                None,
                |shard| &shard.connections_cut,
            ),
            (
                "forebay_access_log_dropped",
                "Lines of the access log that found no room",
                None,
                |shard| &shard.access_log_dropped,
            ),
        ];
        for (name, help, unit, count) in totals {
            let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
            encode_count(&mut metric, self.sum(count))?;
        }
        Ok(())
    }
}

fn encode_count(encoder: &mut MetricEncoder, count: u64) -> fmt::Result {
    encoder.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        for (elapsed_us, bound_us) in [
            (0, 64),
            (1, 64),
            (64, 64),
            (65, 128),
            (128, 128),
            (1000, 1024),
            (60_000_000, 1 << 26),
        ] {
            let bucket = bucket_of(Duration::from_micros(elapsed_us));
            let bound = Duration::from_secs_f64(bound_seconds(bucket));
            assert_eq!(bound, Duration::from_micros(bound_us), "{elapsed_us} µs");
        }
        assert_eq!(bucket_of(Duration::from_secs(100)), BUCKET_COUNT);
    }

    #[test]
    fn a_scrape_adds_up_the_shards() {
        let metrics = Arc::new(GatewayMetrics::new(["GetObject", "PutObject"], ["hit"], 2));
        for (thread, elapsed_ms) in [(0, 1), (1, 3), (7, 4)] {
            let shard = metrics.shard(thread);
            shard.requests_begun.fetch_add(1, Relaxed);
            let elapsed = Duration::from_millis(elapsed_ms);
            shard.request_ended(0, Outcome::Finished(206), elapsed);
            shard.cache_outcome(0);
        }
        metrics.shard(0).requests_begun.fetch_add(1, Relaxed);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_requests_total{operation=\"GetObject\",status=\"2xx\"} 3",
            "forebay_request_seconds_count{operation=\"GetObject\"} 3",
            "forebay_request_seconds_sum{operation=\"GetObject\"} 0.008",
            "forebay_request_seconds_bucket{le=\"+Inf\",operation=\"GetObject\"} 3",
            "forebay_cache_outcomes_total{outcome=\"hit\"} 3",
            "forebay_requests_in_flight 1",
            "forebay_response_body_bytes_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("PutObject"), "{text}");
    }
}
