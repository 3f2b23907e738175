//! How old what a cache answers with is: seconds since the origin vouched for it.
//!
//! Counted on every hit, by all threads: each counts in a stripe of its own, on cache lines of its
//! own, with two additions; a scrape sums them up. Sums are exact to the millisecond.

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Unit,
};

/// Upper bounds of the buckets: 0 is what was validated for the answer itself; the others are times
/// that people choose as a ttl.
const BOUNDS_MS: [u64; 12] = [
    0, 100, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
    86_400_000,
];

/// Stripes: as many threads count without meeting. A gateway has a thread per core.
const STRIPE_COUNT: usize = 16;

/// What a cache promises of the age of its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The origin is asked for each.
    Strict,
    /// Asked within a bound.
    Bounded,
    /// Current, as all writes pass the cache.
    Exclusive,
    /// Of objects that never change.
    Immutable,
}

const MODES: [Mode; 4] = [
    Mode::Strict,
    Mode::Bounded,
    Mode::Exclusive,
    Mode::Immutable,
];

impl Mode {
    /// The word of labels and of the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Bounded => "bounded",
            Self::Exclusive => "exclusive",
            Self::Immutable => "immutable",
        }
    }
}

/// A histogram of ages for each mode; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Staleness(Arc<[Stripe; STRIPE_COUNT]>);

/// On lines that no other stripe shares: 128 bytes, as processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([Ages; MODES.len()]);

/// Of one mode.
#[derive(Debug, Default)]
struct Ages {
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_ms: AtomicU64,
}

/// The stripe of this thread.
fn stripe_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPE_COUNT);
        }
        index.get()
    })
}

impl Staleness {
    /// Counts an answer with something of this age; a negative age counts as 0.
    pub fn observe(&self, mode: Mode, age_ms: i64) {
        let age_ms = u64::try_from(age_ms).unwrap_or(0);
        let bucket = BOUNDS_MS.partition_point(|bound_ms| *bound_ms < age_ms);
        let ages = &self.0[stripe_index()].0[mode as usize];
        ages.counts[bucket].fetch_add(1, Ordering::Relaxed);
        ages.sum_ms.fetch_add(age_ms, Ordering::Relaxed);
    }

    /// Answers counted, in any mode, whose age was `bound_ms` at most.
    pub fn count_within(&self, bound_ms: u64) -> u64 {
        let end = BOUNDS_MS.partition_point(|bound| *bound <= bound_ms);
        let within = |mode| (0..end).map(|bucket| self.count(mode, bucket)).sum::<u64>();
        MODES.into_iter().map(within).sum()
    }

    /// All answers counted.
    pub fn count_all(&self) -> u64 {
        let of_mode = |mode| (0..=BOUNDS_MS.len()).map(move |bucket| self.count(mode, bucket));
        MODES.into_iter().flat_map(of_mode).sum()
    }

    fn count(&self, mode: Mode, bucket: usize) -> u64 {
        let count = |ages: &Ages| ages.counts[bucket].load(Ordering::Relaxed);
        self.of(mode).map(count).sum()
    }

    fn of(&self, mode: Mode) -> impl Iterator<Item = &Ages> {
        self.0.iter().map(move |stripe| &stripe.0[mode as usize])
    }
}

impl Collector for Staleness {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "staleness",
            "Age of what an answer was made of, since the origin vouched for it",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for mode in MODES {
            let buckets: Vec<(f64, u64)> = (0..=BOUNDS_MS.len())
                .map(|bucket| {
                    let bound_ms = BOUNDS_MS.get(bucket);
                    let seconds = bound_ms.map_or(f64::INFINITY, |ms| seconds(*ms));
                    (seconds, self.count(mode, bucket))
                })
                .collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            if count == 0 {
                continue;
            }
            let sum_ms = self
                .of(mode)
                .map(|ages| ages.sum_ms.load(Ordering::Relaxed))
                .sum();
            family
                .encode_family(&[("mode", mode.name())])?
                .encode_histogram::<[(&str, &str); 0]>(seconds(sum_ms), count, &buckets, None)?;
        }
        Ok(())
    }
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn ages_are_counted_by_all_threads_and_printed_with_their_mode() {
        let staleness = Staleness::default();
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    [0, -7, 1, 60_000, 86_400_001].map(|age| staleness.observe(Mode::Strict, age))
                });
            }
        });
        assert_eq!(staleness.count_within(0), 6);
        assert_eq!(staleness.count_within(60_000), 12);
        staleness.observe(Mode::Immutable, 60_001);
        assert_eq!(staleness.count_within(60_000), 12);
        let mut registry = Registry::default();
        let labelled = registry.sub_registry_with_label(("route".into(), "0".into()));
        let prefixed = labelled.sub_registry_with_prefix("forebay_cache");
        prefixed.register_collector(Box::new(staleness));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let name = "forebay_cache_staleness_seconds";
        assert!(text.contains("mode=\"immutable\""), "{text}");
        assert!(!text.contains("mode=\"bounded\""), "{text}");
        for (line, value) in [
            (format!("{name}_count{{"), "15"),
            (format!("{name}_sum{{"), "259380.006"),
            ("le=\"0.0\",".to_owned(), "6"),
            ("le=\"0.1\",".to_owned(), "9"),
            ("le=\"86400.0\",".to_owned(), "12"),
            ("le=\"+Inf\",".to_owned(), "15"),
        ] {
            let found = text.lines().find(|l| l.contains(&line));
            let found = found.unwrap_or_else(|| panic!("{line} in\n{text}"));
            assert!(found.ends_with(&format!(" {value}")), "{found}");
            assert!(found.contains("mode=\"strict\"") && found.contains("route=\"0\""));
        }
    }
}
