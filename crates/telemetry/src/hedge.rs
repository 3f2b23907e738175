//! What the origin store counts of hedged reads and resumed bodies.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_origin_hedges_issued_total` | second requests sent while the first was waited for |
//! | `forebay_origin_hedges_total` | `result`: whether it `won`, was `wasted`, or `failed` |
//! | `forebay_origin_hedges_suppressed_total` | `reason`: why a read could not be hedged |
//! | `forebay_origin_hedged_first_byte_seconds` (histogram) | `arm`: `hedged` or `control` |
//! | `forebay_origin_hedge_delay_seconds` (gauge) | `kind` of read; the last estimate |
//! | `forebay_origin_hedge_budget` (gauge) | hedges that may be sent at once |
//! | `forebay_origin_resumes_total` | `result`: what came of continuing a body elsewhere |
//!
//! The two arms are drawn at random from the same reads, so that what is between their histograms
//! is what hedging gains.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::origin::FloatGauge;

/// Counters of hedged reads and resumed bodies of one origin; clones count together.
#[derive(Debug, Clone)]
pub struct HedgeMetrics {
    /// Second requests sent while the first was waited for.
    pub issued: Counter,
    /// What came of them.
    pub results: HedgeResults,
    /// Reads that could not be hedged, by reason.
    pub suppressed: Suppressed,
    /// First bytes of the reads that may be hedged, and of those that are kept from it.
    pub first_byte: Arms,
    /// How long a read of each kind waits for its hedge.
    pub delay: Delays,
    /// Hedges that may be sent at once.
    pub budget: FloatGauge,
    /// Bodies continued elsewhere, by result.
    pub resumes: ResumeResults,
    families: Families,
}

/// What came of hedges; those whose client left meanwhile are in none of them.
#[derive(Debug, Clone)]
pub struct HedgeResults {
    /// It answered first.
    pub won: Counter,
    /// The first request answered first.
    pub wasted: Counter,
    /// It failed, whatever became of the first.
    pub failed: Counter,
}

/// Why a read could not be hedged.
#[derive(Debug, Clone)]
pub struct Suppressed {
    /// It was drawn to be kept from it, so that the gain is measured.
    pub control: Counter,
    /// Too few reads of its kind have been seen.
    pub samples: Counter,
    /// The budget was empty as long as the read was waited for.
    pub budget: Counter,
    /// Too many requests fail.
    pub failures: Counter,
    /// All reads of its kind are slow.
    pub slowdown: Counter,
    /// No endpoint could be asked.
    pub no_other: Counter,
}

/// Time to first byte of reads while hedging is on.
#[derive(Debug, Clone)]
pub struct Arms {
    /// Of reads that are hedged when they are slow.
    pub hedged: Histogram,
    /// Of reads that never are.
    pub control: Histogram,
}

/// How long a read waits for its hedge, by its kind; the last estimate of any endpoint.
#[derive(Debug, Clone)]
pub struct Delays {
    /// HEAD of an object.
    pub head: FloatGauge,
    /// GET of a range of at most 64 KiB.
    pub get_small: FloatGauge,
    /// GET of a range of at most 1 MiB.
    pub get_medium: FloatGauge,
    /// GET of a longer range.
    pub get_large: FloatGauge,
    /// GET of a length that is not known beforehand.
    pub get_whole: FloatGauge,
}

/// What came of continuing a body elsewhere.
#[derive(Debug, Clone)]
pub struct ResumeResults {
    /// The rest follows.
    pub resumed: Counter,
    /// The object is another by now: the body was cut.
    pub changed: Counter,
    /// No answer that could be used.
    pub failed: Counter,
    /// The budget of retries was empty.
    pub budget: Counter,
}

#[derive(Debug, Clone)]
struct Families {
    results: Family<ResultLabel, Counter>,
    suppressed: Family<ReasonLabel, Counter>,
    first_byte: Family<ArmLabel, Histogram, fn() -> Histogram>,
    delay: Family<KindLabel, FloatGauge>,
    resumes: Family<ResultLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmLabel {
    arm: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl HedgeMetrics {
    /// Counters at zero.
    pub fn new() -> Self {
        let families = Families {
            results: Family::default(),
            suppressed: Family::default(),
            first_byte: Family::new_with_constructor(first_byte_histogram),
            delay: Family::default(),
            resumes: Family::default(),
        };
        let result = |result| {
            families
                .results
                .get_or_create_owned(&ResultLabel { result })
        };
        let reason = |reason| {
            families
                .suppressed
                .get_or_create_owned(&ReasonLabel { reason })
        };
        let arm = |arm| families.first_byte.get_or_create_owned(&ArmLabel { arm });
        let kind = |kind| families.delay.get_or_create_owned(&KindLabel { kind });
        let resume = |result| {
            families
                .resumes
                .get_or_create_owned(&ResultLabel { result })
        };
        Self {
            issued: Counter::default(),
            results: HedgeResults {
                won: result("won"),
                wasted: result("wasted"),
                failed: result("failed"),
            },
            suppressed: Suppressed {
                control: reason("control"),
                samples: reason("samples"),
                budget: reason("budget"),
                failures: reason("failures"),
                slowdown: reason("slowdown"),
                no_other: reason("no_other"),
            },
            first_byte: Arms {
                hedged: arm("hedged"),
                control: arm("control"),
            },
            delay: Delays {
                head: kind("head"),
                get_small: kind("get_small"),
                get_medium: kind("get_medium"),
                get_large: kind("get_large"),
                get_whole: kind("get_whole"),
            },
            budget: FloatGauge::default(),
            resumes: ResumeResults {
                resumed: resume("resumed"),
                changed: resume("changed"),
                failed: resume("failed"),
                budget: resume("budget"),
            },
            families,
        }
    }

    /// Names the counters in the origin's `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Families {
            results,
            suppressed,
            first_byte,
            delay,
            resumes,
        } = self.families.clone();
        let issued = self.issued.clone();
        registry.register("hedges_issued", "Second requests of slow reads", issued);
        registry.register("hedges", "Second requests by what came of them", results);
        let help = "Reads that could not be hedged, by reason";
        registry.register("hedges_suppressed", help, suppressed);
        let help = "First bytes of reads with hedging, and of those kept from it";
        registry.register("hedged_first_byte_seconds", help, first_byte);
        registry.register("hedge_delay_seconds", "Wait of a read for its hedge", delay);
        let budget = self.budget.clone();
        registry.register("hedge_budget", "Hedges that may be sent at once", budget);
        registry.register("resumes", "Bodies continued elsewhere, by result", resumes);
    }
}

impl Default for HedgeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Twice as fine as that of all requests, since tails are compared: from 0.25 ms to 131 s.
fn first_byte_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, std::f64::consts::SQRT_2, 39))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_printed_under_its_name() {
        let mut registry = Registry::with_prefix("forebay");
        let metrics = HedgeMetrics::default();
        metrics.register(registry.sub_registry_with_prefix("origin"));
        metrics.issued.inc_by(3);
        metrics.results.won.inc();
        metrics.suppressed.no_other.inc();
        metrics.first_byte.control.observe(0.001);
        metrics.delay.get_small.set(0.025);
        metrics.budget.set(1.5);
        metrics.resumes.changed.inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_origin_hedges_issued_total 3",
            "forebay_origin_hedges_total{result=\"won\"} 1",
            "forebay_origin_hedges_suppressed_total{reason=\"no_other\"} 1",
            "forebay_origin_hedged_first_byte_seconds_count{arm=\"control\"} 1",
            "forebay_origin_hedge_delay_seconds{kind=\"get_small\"} 0.025",
            "forebay_origin_hedge_budget 1.5",
            "forebay_origin_resumes_total{result=\"changed\"} 1",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
