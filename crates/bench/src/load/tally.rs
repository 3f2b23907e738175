//! Counts what comes of requests: each thread for itself, merged at the end.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{
    results::{Histogram, Second},
    workload::Operation,
};

/// What one thread counted.
#[derive(Debug)]
pub(crate) struct Tally {
    measure: Instant,
    operations: [Option<Box<Counts>>; Operation::COUNT],
    errors: BTreeMap<Box<str>, u64>,
    /// The seconds that are over, in order.
    seconds: Vec<SecondCounts>,
    /// Latencies of the last second in `seconds`.
    current: Histogram,
    last_done: Option<Instant>,
}

/// What one operation gave.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: BTreeMap<Box<str>, u64>,
    pub(crate) latency: Histogram,
    pub(crate) first_byte: Histogram,
}

/// One second of a thread: a histogram takes 36 KiB, its buckets in use a few.
#[derive(Debug, Default)]
struct SecondCounts {
    requests: u64,
    bytes: u64,
    errors: u64,
    latency_buckets: Vec<(u64, u64)>,
}

/// A request that succeeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Success {
    pub(crate) operation: Operation,
    /// When it started, or was due.
    pub(crate) started: Instant,
    pub(crate) first_byte: Instant,
    pub(crate) done: Instant,
    /// Bytes of objects in either direction.
    pub(crate) bytes: u64,
}

/// What all threads counted.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) operations: Vec<(Operation, Counts)>,
    pub(crate) series: Vec<Second>,
    /// Errors that belong to no operation.
    pub(crate) errors: BTreeMap<Box<str>, u64>,
}

impl Tally {
    pub(crate) fn new(measure: Instant) -> Self {
        Self {
            measure,
            operations: Default::default(),
            errors: BTreeMap::new(),
            seconds: Vec::new(),
            current: Histogram::new(),
            last_done: None,
        }
    }

    /// The tally so far; an empty one stays.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.measure))
    }

    /// When the last answer that counts was whole.
    pub(crate) fn last_done(&self) -> Option<Instant> {
        self.last_done
    }

    fn counts(&mut self, operation: Operation) -> &mut Counts {
        self.operations[operation as usize].get_or_insert_default()
    }

    /// Counts a success, unless it belongs to the warm-up; gives whether it counted.
    pub(crate) fn succeeded(&mut self, success: &Success) -> bool {
        if success.started < self.measure {
            return false;
        }
        let latency = success.done.saturating_duration_since(success.started);
        let counts = self.counts(success.operation);
        counts.requests += 1;
        counts.bytes += success.bytes;
        counts.latency.record(latency);
        let first_byte = success
            .first_byte
            .saturating_duration_since(success.started);
        counts.first_byte.record(first_byte);
        // What an operation consists of is counted, but only the whole is on the time line.
        if success.operation.is_whole() {
            let second = self.second(success.done);
            second.requests += 1;
            second.bytes += success.bytes;
            self.current.record(latency);
        }
        self.last_done = self.last_done.max(Some(success.done));
        true
    }

    /// Counts a failure, unless it belongs to the warm-up; gives whether it counted.
    pub(crate) fn failed(
        &mut self,
        operation: Operation,
        (started, done): (Instant, Instant),
        name: &str,
    ) -> bool {
        if started < self.measure {
            return false;
        }
        add(&mut self.counts(operation).errors, name, 1);
        if operation.is_whole() {
            self.second(done).errors += 1;
        }
        true
    }

    /// Counts errors of requests that never came to an end.
    pub(crate) fn add_errors(&mut self, name: &str, count: u64) {
        if count > 0 {
            add(&mut self.errors, name, count);
        }
    }

    /// The second of that moment. Time only goes on, so all before it are over.
    fn second(&mut self, at: Instant) -> &mut SecondCounts {
        let since = at.saturating_duration_since(self.measure);
        let index = usize::try_from(since.as_secs()).unwrap_or(usize::MAX);
        if index >= self.seconds.len() {
            self.end_second();
            self.seconds.resize_with(index + 1, SecondCounts::default);
        }
        // Two connections may have read the clock in another order than they count.
        &mut self.seconds[index]
    }

    fn end_second(&mut self) {
        if let Some(last) = self.seconds.last_mut()
            && !self.current.is_empty()
        {
            last.latency_buckets = self.current.buckets().collect();
            self.current.reset();
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, mut other: Self) {
        other.end_second();
        for (mine, theirs) in self.operations.iter_mut().zip(other.operations) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_default();
            mine.requests += theirs.requests;
            mine.bytes += theirs.bytes;
            mine.latency.merge(&theirs.latency);
            mine.first_byte.merge(&theirs.first_byte);
            for (name, count) in theirs.errors {
                add(&mut mine.errors, &name, count);
            }
        }
        for (name, count) in other.errors {
            add(&mut self.errors, &name, count);
        }
        if self.seconds.len() < other.seconds.len() {
            let count = other.seconds.len();
            self.seconds.resize_with(count, SecondCounts::default);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(other.seconds) {
            mine.requests += theirs.requests;
            mine.bytes += theirs.bytes;
            mine.errors += theirs.errors;
            mine.latency_buckets.extend(theirs.latency_buckets);
        }
        self.last_done = self.last_done.max(other.last_done);
    }

    /// The sums. For a tally that others were merged into, not one that counted itself.
    pub(crate) fn into_totals(self) -> Totals {
        let operations = Operation::ALL
            .into_iter()
            .zip(self.operations)
            .filter_map(|(operation, counts)| Some((operation, *counts?)));
        let mut scratch = Histogram::new();
        let mut series = Vec::new();
        for second in self.seconds {
            scratch.reset();
            for (ns, count) in second.latency_buckets {
                scratch.record_many_ns(ns, count);
            }
            series.push(Second {
                requests: second.requests,
                bytes: second.bytes,
                errors: second.errors,
                p50_ns: scratch.quantile_ns(0.5),
                p99_ns: scratch.quantile_ns(0.99),
                max_ns: scratch.max_ns(),
            });
        }
        Totals {
            operations: operations.collect(),
            series,
            errors: self.errors,
        }
    }
}

fn add(errors: &mut BTreeMap<Box<str>, u64>, name: &str, count: u64) {
    match errors.get_mut(name) {
        Some(sum) => *sum += count,
        None => {
            errors.insert(name.into(), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn get(measure: Instant, from_ms: u64, to_ms: u64) -> Success {
        Success {
            operation: Operation::Get,
            started: measure + ms(from_ms),
            first_byte: measure + ms(to_ms),
            done: measure + ms(to_ms),
            bytes: 100,
        }
    }

    #[test]
    fn threads_are_merged_without_loss() {
        let measure = Instant::now();
        let (mut one, mut two) = (Tally::new(measure), Tally::new(measure));
        for at in 0..90 {
            assert!(one.succeeded(&get(measure, at * 10, at * 10 + 4)));
        }
        for at in 0..10 {
            two.succeeded(&get(measure, at * 200, at * 200 + 400));
        }
        two.failed(Operation::Get, (measure, measure + ms(2_500)), "SlowDown");
        let mut all = Tally::new(measure);
        all.merge(one);
        all.merge(two);
        assert_eq!(all.last_done(), Some(measure + ms(2_200)));
        let totals = all.into_totals();
        let (operation, counts) = &totals.operations[0];
        assert_eq!(*operation, Operation::Get);
        assert_eq!((counts.requests, counts.bytes), (100, 10_000));
        assert_eq!(counts.errors.get("SlowDown"), Some(&1));
        let near = |quantile: f64, expected_ms: f64| {
            let found = counts.latency.quantile_ns(quantile).unwrap();
            let ratio = crate::results::exact(found) / (expected_ms * 1e6);
            assert!((0.99..1.01).contains(&ratio), "{quantile}: {found} ns");
        };
        near(0.5, 4.0);
        near(0.89, 4.0);
        near(0.95, 400.0);
        let requests: Vec<_> = totals.series.iter().map(|second| second.requests).collect();
        assert_eq!(requests, [93, 5, 2]);
        assert_eq!(totals.series[2].errors, 1);
        assert!(totals.series[1].p50_ns.is_some_and(|ns| ns > 390_000_000));
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let measure = Instant::now() + ms(100);
        let mut tally = Tally::new(measure);
        let early = Success {
            started: measure - ms(1),
            ..get(measure, 0, 5)
        };
        assert!(!tally.succeeded(&early));
        assert!(!tally.failed(Operation::Get, (measure - ms(1), measure), "SlowDown"));
        assert!(tally.into_totals().operations.is_empty());
    }
}
