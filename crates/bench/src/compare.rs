//! Says how many times one thing is another, and whether the rounds allow saying so.
//!
//! Pure: values in, a judgement out. Two kinds of comparison:
//!
//! - [`paired`]: two endpoints of one run, which took turns. Round i of one is set against round i
//!   of the other, so that what slowed both (a busy machine, a warm cache) cancels out.
//! - [`between`]: two runs, made at different times. Nothing pairs their rounds, so every round of
//!   one is set against every round of the other.
//!
//! Both give the median of the ratios, their least and most, and an interval that holds the true
//! median ratio with a stated probability. The intervals assume nothing about how figures are
//! distributed, which five rounds could never show:
//!
//! - paired: the interval of the sign test, between two order statistics of the ratios (B. C.
//!   Arnold, N. Balakrishnan, H. N. Nagaraja, A First Course in Order Statistics, §7.1). Five
//!   rounds: least to most, 93.75 %; six: 96.9 %.
//! - between: the Hodges–Lehmann interval, between two order statistics of all ratios (J. L.
//!   Hodges, E. L. Lehmann, Estimates of Location Based on Rank Tests, Ann. Math. Statist. 34,
//!   1963).
//!
//! A bootstrap of five values, the usual alternative, draws from 126 different samples, and its
//! intervals are known to be too narrow for so few.
//!
//! A verdict needs an interval of [`CONFIDENCE_MIN`] that lies to one side of 1 by more than
//! [`RESOLUTION`], and next to no failed requests. Everything else is "no difference shown".

mod metric;
mod rank;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::{
    results::{Case, Measurement, Run, exact},
    shown,
};

pub use metric::{Better, Metric};

/// What five rounds that all agree give; fewer rounds show figures and no verdict.
pub const CONFIDENCE_MIN: f64 = 0.937;

/// The probability asked of an interval where there are rounds enough to choose.
const CONFIDENCE_WANTED: f64 = 0.95;

/// Ratios this close to 1 differ by less than the buckets of a histogram are wide (0.8 %).
const RESOLUTION: f64 = 0.01;

/// With more failures than this, what succeeded is no fair picture of what was asked.
const FAILED_SHARE_MAX: f64 = 0.01;

/// How one figure of A compares with the same figure of B.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Which figure.
    pub metric: Metric,
    /// Median of A's rounds.
    pub a: f64,
    /// Median of B's rounds.
    pub b: f64,
    /// Median ratio of A to B.
    pub ratio: f64,
    /// Least and most of the ratios.
    pub spread: (f64, f64),
    /// Holds the true median ratio with the probability `confidence`.
    pub interval: (f64, f64),
    /// Probability of the interval, 0–1.
    pub confidence: f64,
    /// Rounds of A and of B that were compared; equal when paired.
    pub rounds: (usize, usize),
    /// What may be said.
    pub verdict: Verdict,
}

/// What may be said of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// A's figure is higher.
    Higher,
    /// A's figure is lower.
    Lower,
    /// The rounds do not tell them apart.
    NoDifference,
    /// Too few rounds to tell, whatever they show.
    TooFewRounds,
    /// More requests failed than a fair comparison allows: the greater share of the two, 0–1.
    Failures(f64),
}

/// What one round gave to a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The figure, above 0.
    pub value: f64,
    /// Share of requests that failed, 0–1.
    pub failed_share: f64,
}

impl Sample {
    /// The figure of a measurement; `None` when it has none, such as a latency of no requests.
    pub fn of(measurement: &Measurement, metric: Metric) -> Option<Self> {
        let value = metric.value(measurement)?;
        let errors = exact(measurement.error_count());
        let failed_share = if errors > 0.0 {
            errors / (errors + exact(measurement.requests))
        } else {
            0.0
        };
        (value.is_finite() && value > 0.0).then_some(Self {
            value,
            failed_share,
        })
    }
}

/// Compares two endpoints of one run in one case, round by round. `None` when no round has both.
pub fn paired(run: &Run, case: &Case, metric: Metric, a: usize, b: usize) -> Option<Comparison> {
    let sample = |endpoint: usize, round: u32| {
        run.measurements
            .iter()
            .find(|m| m.endpoint == endpoint && m.round == round && m.case == *case)
            .and_then(|m| Sample::of(m, metric))
    };
    let rounds = run
        .measurements
        .iter()
        .filter(|m| m.endpoint == a && m.case == *case)
        .map(|m| m.round);
    let pairs: Vec<_> = rounds
        .filter_map(|round| Some((sample(a, round)?, sample(b, round)?)))
        .collect();
    compare_pairs(metric, &pairs)
}

/// Compares rounds that took turns: pair i holds round i of A and round i of B.
pub fn compare_pairs(metric: Metric, pairs: &[(Sample, Sample)]) -> Option<Comparison> {
    let (a, b): (Vec<Sample>, Vec<Sample>) = pairs.iter().copied().unzip();
    let ratios = pairs.iter().map(|(a, b)| a.value / b.value).collect();
    judge(
        metric,
        &a,
        &b,
        ratios,
        rank::sign_test(pairs.len(), CONFIDENCE_WANTED),
    )
}

/// Compares rounds of A with rounds of B that were measured at another time.
pub fn between(metric: Metric, a: &[Sample], b: &[Sample]) -> Option<Comparison> {
    let ratios = a
        .iter()
        .flat_map(|a| b.iter().map(|b| a.value / b.value))
        .collect();
    let place = rank::rank_sum(a.len(), b.len(), CONFIDENCE_WANTED);
    judge(metric, a, b, ratios, place)
}

fn judge(
    metric: Metric,
    a: &[Sample],
    b: &[Sample],
    mut ratios: Vec<f64>,
    place: rank::Place,
) -> Option<Comparison> {
    ratios.sort_by(f64::total_cmp);
    let (&least, &most) = (ratios.first()?, ratios.last()?);
    let interval = (
        ratios[place.from_end],
        ratios[ratios.len() - 1 - place.from_end],
    );
    let failed = mean_failed(a).max(mean_failed(b));
    let verdict = if failed > FAILED_SHARE_MAX {
        Verdict::Failures(failed)
    } else if place.confidence < CONFIDENCE_MIN {
        Verdict::TooFewRounds
    } else if interval.0 > 1.0 + RESOLUTION {
        Verdict::Higher
    } else if interval.1 < 1.0 - RESOLUTION {
        Verdict::Lower
    } else {
        Verdict::NoDifference
    };
    Some(Comparison {
        metric,
        a: median(a.iter().map(|sample| sample.value))?,
        b: median(b.iter().map(|sample| sample.value))?,
        ratio: median(ratios.iter().copied())?,
        spread: (least, most),
        interval,
        confidence: place.confidence,
        rounds: (a.len(), b.len()),
        verdict,
    })
}

fn mean_failed(samples: &[Sample]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.failed_share).sum();
    sum / exact(samples.len().max(1) as u64)
}

/// The middle of some values, or the mean of the two in the middle; `None` of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], upper)
    } else {
        upper
    })
}

impl Comparison {
    /// The ratio with its spread: `2.13 (1.94–2.30)`.
    pub fn figures(&self) -> String {
        let (least, most) = self.spread;
        let ratio = shown::ratio(self.ratio);
        if self.rounds == (1, 1) {
            return ratio;
        }
        format!("{ratio} ({}–{})", shown::ratio(least), shown::ratio(most))
    }

    /// Whether A is better than B, `None` when that isn't shown.
    pub fn is_better(&self) -> Option<bool> {
        match (self.verdict, self.metric.better()) {
            (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => Some(true),
            (Verdict::Higher, Better::Lower) | (Verdict::Lower, Better::Higher) => Some(false),
            (Verdict::NoDifference | Verdict::TooFewRounds | Verdict::Failures(_), _) => None,
        }
    }

    /// What may be said, in a sentence about A and B.
    pub fn sentence(&self, a: &str, b: &str) -> String {
        let figures = self.figures();
        let ratio = shown::ratio(self.ratio);
        let (least, most) = self.spread;
        let spread = format!("({}–{})", shown::ratio(least), shown::ratio(most));
        match self.verdict {
            Verdict::Higher | Verdict::Lower => format!("{a} is {ratio}x {b} {spread}"),
            Verdict::NoDifference => format!("no difference shown, {figures}"),
            Verdict::TooFewRounds => format!("{figures}, too few rounds for a verdict"),
            Verdict::Failures(share) => {
                format!("not compared: {} of requests failed", shown::percent(share))
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Higher => f.write_str("higher"),
            Self::Lower => f.write_str("lower"),
            Self::NoDifference => f.write_str("no difference shown"),
            Self::TooFewRounds => f.write_str("too few rounds"),
            Self::Failures(share) => write!(f, "{} failed", shown::percent(*share)),
        }
    }
}
