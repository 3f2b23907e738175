//! Charts of one case: its latency by percentile, and what each second gave.

use crate::{
    arrange::{self, Summary},
    chart::{Axis, Chart, Labels, Lines, Marks, Point, Rule, Scale, Series},
    results::{Case, Histogram, Measurement, Second, exact},
    shown,
};

use super::Source;

/// Latency over percentiles, the tail as wide as the rest.
pub(super) fn percentiles(title: &str, case: &Case, sources: &[Source<'_>]) -> Option<Chart> {
    let mut values = Vec::new();
    let mut count_max = 0;
    let mut series = Vec::new();
    for source in sources {
        let Some(summary) = Summary::of(source.of.run, source.endpoint, case) else {
            continue;
        };
        let points = curve(&summary.latency_ns);
        values.extend(points.iter().flatten().map(|point| point.y));
        count_max = count_max.max(summary.latency_ns.count());
        if !points.is_empty() {
            series.push(Series {
                label: source.label.clone(),
                style: source.style,
                points,
                marks: Marks::AtTicks,
            });
        }
    }
    (!series.is_empty()).then(|| {
        Chart::Lines(Lines {
            labels: Labels {
                title: "Latency by percentile".to_owned(),
                notes: vec![format!(
                    "{title}. All rounds together; each curve ends with its slowest request."
                )],
            },
            x: Axis {
                title: "percentile of requests, log scale".to_owned(),
                scale: Scale::percentiles(count_max),
            },
            y: Axis {
                title: "latency".to_owned(),
                scale: Scale::log(&values, shown::duration_tick),
            },
            series,
            rules: Vec::new(),
        })
    })
}

/// The quantile that each bucket begins with, and the bucket's latency.
fn curve(of: &Histogram) -> Vec<Option<Point>> {
    let count = exact(of.count());
    let mut below = 0;
    let mut points: Vec<Option<Point>> = of
        .buckets()
        .map(|(ns, in_bucket)| {
            let x = exact(below) / count;
            below += in_bucket;
            let y = exact(ns);
            Some(Point { x, y, spread: None })
        })
        .collect();
    // The slowest request stands for the last 1/count of all.
    if let Some(Some(last)) = points.last().copied() {
        let x = (1.0 - 1.0 / count).max(last.x);
        points.push(Some(Point { x, ..last }));
    }
    points
}

/// What is drawn for each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PerSecond {
    Requests,
    P99,
}

impl PerSecond {
    fn title(self) -> &'static str {
        match self {
            Self::Requests => "Requests in each second",
            Self::P99 => "p99 latency in each second",
        }
    }

    fn axis(self, values: &[f64]) -> Axis {
        let (title, scale) = match self {
            Self::Requests => ("requests/s", Scale::fitting(values, shown::count_tick)),
            Self::P99 => ("p99 latency", Scale::log(values, shown::duration_tick)),
        };
        Axis {
            title: title.to_owned(),
            scale,
        }
    }

    fn of(self, second: &Second) -> Option<f64> {
        match self {
            Self::Requests => Some(exact(second.requests)),
            Self::P99 => second.p99_ns.map(exact),
        }
    }
}

/// What each second of every round gave.
pub(super) fn over_time(
    title: &str,
    case: &Case,
    sources: &[Source<'_>],
    what: PerSecond,
) -> Option<Chart> {
    let rounds = |source: &Source<'_>| -> Vec<(u32, Vec<Second>)> {
        let rounds = arrange::rounds(source.of.run, source.endpoint, case);
        rounds.map(|m| (m.round, whole_seconds(m))).collect()
    };
    let all: Vec<Vec<(u32, Vec<Second>)>> = sources.iter().map(rounds).collect();
    let flat = || all.iter().flatten();
    let seconds_max = flat()
        .map(|(_, series)| series.len())
        .max()
        .filter(|most| *most > 1)?;
    let round_last = flat().map(|(round, _)| *round).max()?;
    // Rounds stand one after the other with a second between them.
    let start = |round: u32| f64::from(round) * exact(seconds_max as u64 + 1);
    let mut values = Vec::new();
    let mut series = Vec::new();
    for (source, rounds) in sources.iter().zip(&all) {
        let mut points = Vec::new();
        for (round, seconds) in rounds {
            for (index, second) in seconds.iter().enumerate() {
                let x = start(*round) + exact(index as u64);
                let point = what.of(second).map(|y| Point { x, y, spread: None });
                values.extend(point.map(|point| point.y));
                points.push(point);
            }
            points.push(None);
        }
        if points.iter().any(Option::is_some) {
            series.push(Series {
                label: source.label.clone(),
                style: source.style,
                points,
                marks: Marks::Every((seconds_max / 2).max(2)),
            });
        }
    }
    let rules = (0..=round_last)
        .map(|round| Rule {
            x: start(round),
            label: format!("round {}", round + 1),
        })
        .collect();
    let x = Axis {
        title: "seconds measured, rounds one after another".to_owned(),
        scale: Scale::seconds(start(round_last + 1) - 1.0),
    };
    (!series.is_empty()).then(|| {
        Chart::Lines(Lines {
            labels: Labels {
                title: what.title().to_owned(),
                notes: vec![format!("{title}. Endpoints took turns in each round.")],
            },
            x,
            y: what.axis(&values),
            series,
            rules,
        })
    })
}

/// The seconds that were measured to their end: what the last answers make of one more would look
/// like a collapse.
fn whole_seconds(measurement: &Measurement) -> Vec<Second> {
    let seconds = measurement.series.iter().enumerate();
    seconds
        .take_while(|(index, _)| exact(*index as u64 + 1) <= measurement.seconds + 0.01)
        .map(|(_, second)| *second)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::results::Load;

    use super::*;

    #[test]
    fn a_second_that_was_not_measured_to_its_end_is_left_out() {
        let case = Case {
            operation: "get".to_owned(),
            object_bytes: None,
            clients: 1,
            load: Load::Closed { concurrency: 1 },
            parameters: std::collections::BTreeMap::new(),
        };
        let mut measurement = Measurement::new(0, 0, case);
        measurement.series = vec![Second::default(); 3];
        for (seconds, count) in [(2.003, 2), (1.995, 2), (3.0, 3), (0.5, 0)] {
            measurement.seconds = seconds;
            assert_eq!(whole_seconds(&measurement).len(), count, "{seconds}");
        }
    }
}
