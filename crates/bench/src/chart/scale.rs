//! Where values lie on an axis, and which of them are named.

use crate::results::exact;

/// Maps values to 0–1 and names some of them.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    kind: Kind,
    /// Named values, ascending.
    pub(crate) ticks: Vec<Tick>,
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// The value.
    pub(crate) value: f64,
    /// Its name.
    pub(crate) label: String,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Linear { low: f64, high: f64 },
    Log { low: f64, high: f64 },
    Percentile { nines: f64 },
}

/// Beyond this ratio of most to least, steps of equal size hide what is small.
const LINEAR_RATIO_MAX: f64 = 20.0;

/// About this many ticks on a linear axis.
const LINEAR_TICKS: f64 = 6.0;

/// More would stand closer together than text is high.
const LOG_TICKS_MAX: usize = 13;

impl Scale {
    /// From 0 to a round value above all, when that shows them all; otherwise by ratio.
    pub(crate) fn fitting(values: &[f64], shown: fn(f64) -> String) -> Self {
        let (least, most) = bounds(values);
        if most > least * LINEAR_RATIO_MAX {
            Self::log(values, shown)
        } else {
            Self::from_zero(most, shown)
        }
    }

    /// Equal steps from 0 to a round value at or above `most`.
    pub(crate) fn from_zero(most: f64, shown: fn(f64) -> String) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let rough = most / LINEAR_TICKS;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|factor| factor * magnitude)
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(rough);
        let mut ticks = vec![0.0];
        while ticks.last().is_some_and(|last| *last < most * 0.999) {
            ticks.push(step * exact(ticks.len() as u64));
        }
        let high = ticks.last().copied().unwrap_or(most);
        Self {
            kind: Kind::Linear { low: 0.0, high },
            ticks: named(&ticks, shown),
        }
    }

    /// Steps of equal ratio, ticks at 1, 2 and 5 times powers of ten, or at these alone where the
    /// others had no room.
    pub(crate) fn log(values: &[f64], shown: fn(f64) -> String) -> Self {
        let with = |factors: &[f64]| -> Vec<f64> {
            let decades = (-12..=18).map(|power| 10_f64.powi(power));
            decades
                .flat_map(|decade| factors.iter().map(move |factor| decade * factor))
                .collect()
        };
        let range = widened(bounds(values), 10.0);
        let scale = Self::log_with(&with(&[1.0, 2.0, 5.0]), range, shown);
        if scale.ticks.len() <= LOG_TICKS_MAX {
            return scale;
        }
        Self::log_with(&with(&[1.0]), range, shown)
    }

    /// Steps of equal ratio, ticks at powers of two, for bytes.
    pub(crate) fn log_bytes(values: &[f64], shown: fn(f64) -> String) -> Self {
        let (least, most) = widened(bounds(values), 16.0);
        let powers: Vec<f64> = (-4..=60).map(|power| 2_f64.powi(power)).collect();
        let step = match (most / least).log2() {
            narrow if narrow <= 6.0 => 1,
            middle if middle <= 13.0 => 2,
            _ => 4,
        };
        let candidates: Vec<f64> = powers.iter().copied().step_by(step).collect();
        Self::log_with(&candidates, (least, most), shown)
    }

    /// From the candidate at or below the least to that at or above the most.
    fn log_with(candidates: &[f64], (least, most): (f64, f64), shown: fn(f64) -> String) -> Self {
        let below = |edge: &&f64| **edge <= least * 1.001;
        let low = candidates
            .iter()
            .rev()
            .find(below)
            .copied()
            .unwrap_or(least);
        let above = |edge: &&f64| **edge >= most * 0.999 && **edge > low;
        let high = candidates.iter().find(above).copied().unwrap_or(most * 2.0);
        let ticks: Vec<f64> = candidates
            .iter()
            .copied()
            .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
            .collect();
        Self {
            kind: Kind::Log { low, high },
            ticks: named(&ticks, shown),
        }
    }

    /// Steps of equal ratio between given places, each of which is named, with room at both ends.
    pub(crate) fn log_at(places: &[(f64, String)]) -> Self {
        let values: Vec<f64> = places.iter().map(|(value, _)| *value).collect();
        let (least, most) = bounds(&values);
        let room = (most / least).powf(0.04).max(1.05);
        Self {
            kind: Kind::Log {
                low: least / room,
                high: most * room,
            },
            ticks: places
                .iter()
                .map(|(value, label)| Tick {
                    value: *value,
                    label: label.clone(),
                })
                .collect(),
        }
    }

    /// Places 0, 1, 2, … with names, equally far from one another.
    pub(crate) fn categories(labels: &[String]) -> Self {
        let count = exact(labels.len() as u64);
        Self {
            kind: Kind::Linear {
                low: -0.5,
                high: count - 0.5,
            },
            ticks: labels
                .iter()
                .enumerate()
                .map(|(index, label)| Tick {
                    value: exact(index as u64),
                    label: label.clone(),
                })
                .collect(),
        }
    }

    /// From 0 to exactly `most` seconds, ticks at whole ones.
    pub(crate) fn seconds(most: f64) -> Self {
        let mut scale = Self::from_zero(most, shown_second);
        let high = most.max(1.0);
        scale.kind = Kind::Linear { low: 0.0, high };
        scale
            .ticks
            .retain(|tick| tick.value <= high && tick.value.fract() == 0.0);
        scale
    }

    /// Quantiles 0–1, each further nine as long as the one before, up to that of `count` values.
    pub(crate) fn percentiles(count: u64) -> Self {
        let nines = exact(count.max(10)).log10().ceil().min(7.0);
        let ticks = [0.5_f64, 0.9, 0.99, 0.999, 0.999_9, 0.999_99, 0.999_999]
            .into_iter()
            .filter(|quantile| -(1.0 - quantile).log10() <= nines + 0.01)
            .map(|quantile| Tick {
                value: quantile,
                label: format!("{} %", trimmed(quantile * 100.0)),
            })
            .collect();
        Self {
            kind: Kind::Percentile { nines },
            ticks,
        }
    }

    /// Where a value lies, 0–1; those beyond the ends lie at the ends.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = match self.kind {
            Kind::Linear { low, high } => (value - low) / (high - low),
            Kind::Log { low, .. } if value <= low => 0.0,
            Kind::Log { low, high } => (value / low).ln() / (high / low).ln(),
            Kind::Percentile { .. } if value >= 1.0 => 1.0,
            Kind::Percentile { nines } => -(1.0 - value).log10() / nines,
        };
        place.clamp(0.0, 1.0)
    }

    /// Whether equal distances are equal ratios.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log { .. })
    }
}

fn shown_second(second: f64) -> String {
    format!("{} s", trimmed(second))
}

fn named(values: &[f64], shown: fn(f64) -> String) -> Vec<Tick> {
    values
        .iter()
        .map(|value| Tick {
            value: *value,
            label: shown(*value),
        })
        .collect()
}

/// Least and most of the values above 0, 1 and 1 of none.
fn bounds(values: &[f64]) -> (f64, f64) {
    let positive = || {
        values
            .iter()
            .copied()
            .filter(|value| *value > 0.0 && value.is_finite())
    };
    let least = positive().fold(f64::INFINITY, f64::min);
    let most = positive().fold(0.0, f64::max);
    if least.is_finite() {
        (least, most)
    } else {
        (1.0, 1.0)
    }
}

/// A range of at least this ratio, about the same middle: a log scale of less makes much of little.
fn widened((least, most): (f64, f64), ratio: f64) -> (f64, f64) {
    let missing = (ratio / (most / least)).max(1.0).sqrt();
    (least / missing, most * missing)
}

/// A percentage without what floats leave at its end.
fn trimmed(percent: f64) -> String {
    let text = format!("{percent:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        trimmed(value)
    }

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        for (scale, expected) in [
            (
                Scale::from_zero(9.3, plain),
                vec!["0", "2", "4", "6", "8", "10"],
            ),
            (
                Scale::from_zero(0.0, plain),
                vec!["0", "0.2", "0.4", "0.6", "0.8", "1"],
            ),
            (
                Scale::fitting(&[3.0, 10.0], plain),
                vec!["0", "2", "4", "6", "8", "10"],
            ),
            (
                Scale::fitting(&[1.5, 80.0], plain),
                vec!["1", "2", "5", "10", "20", "50", "100"],
            ),
            (
                Scale::log(&[0.0, 3.0, 9000.0], plain),
                vec![
                    "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000", "5000",
                    "10000",
                ],
            ),
            (Scale::log(&[7.0], plain), vec!["2", "5", "10", "20", "50"]),
            (
                Scale::log_bytes(&[300.0, 900.0], plain),
                vec!["128", "256", "512", "1024", "2048", "4096"],
            ),
            (
                Scale::percentiles(1500),
                vec!["50 %", "90 %", "99 %", "99.9 %", "99.99 %"],
            ),
        ] {
            assert_eq!(labels(&scale), expected);
        }
    }

    #[test]
    fn places_go_from_end_to_end() {
        let scale = Scale::log(&[1.0, 100.0], plain);
        for (value, place) in [
            (0.0, 0.0),
            (1.0, 0.0),
            (10.0, 0.5),
            (100.0, 1.0),
            (1e9, 1.0),
        ] {
            assert!((scale.place(value) - place).abs() < 1e-9, "{value}");
        }
        let scale = Scale::percentiles(1000);
        for (value, place) in [(0.0, 0.0), (0.9, 1.0 / 3.0), (0.999, 1.0), (1.0, 1.0)] {
            assert!((scale.place(value) - place).abs() < 1e-9, "{value}");
        }
        let scale = Scale::categories(&["a".to_owned(), "b".to_owned()]);
        assert!((scale.place(0.0) - 0.25).abs() < 1e-9);
    }
}
