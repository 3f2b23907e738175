//! Which charts some runs give, and what is in them.
//!
//! For each panel: requests and bytes per second along its axis, box plots of latency and of the
//! time to the first byte, bytes from the origin per object. For each case: percentile curves and
//! what each second gave.

mod cases;

use crate::{
    arrange::{self, Axis as PanelAxis, Panel, Summary},
    chart::{
        Axis, BoxSeries, Boxes, Chart, Labels, Lines, Marks, Point, Quartiles, Scale, Series,
        Style, Theme,
    },
    results::{Histogram, exact},
    shown,
};

use self::cases::{PerSecond, over_time, percentiles};
use super::Named;

/// One chart and its name.
#[derive(Debug, Clone)]
pub struct Figure {
    name: String,
    panel: String,
    scope: Scope,
    chart: Chart,
}

/// What a chart is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Panel,
    Case,
}

impl Figure {
    /// Its name, fit for a file: lower case, digits and dashes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The title of the panel that it belongs to.
    pub(super) fn panel(&self) -> &str {
        &self.panel
    }

    /// Whether it is of one case of its panel, not of all.
    pub(super) fn is_of_case(&self) -> bool {
        self.scope == Scope::Case
    }

    /// The chart as SVG.
    pub fn svg(&self, theme: Theme) -> String {
        self.chart.svg(theme)
    }
}

/// An endpoint of one of the runs.
struct Source<'a> {
    of: Named<'a>,
    endpoint: usize,
    label: String,
    style: Style,
}

/// Every chart of some runs.
pub fn figures(runs: &[Named<'_>]) -> Vec<Figure> {
    let sources = sources(runs);
    let all: Vec<_> = runs.iter().map(|of| of.run).collect();
    let mut figures = Vec::new();
    for panel in arrange::panels(&all) {
        let charts = [
            ("requests-per-second", request_rates(&panel, &sources)),
            ("bytes-per-second", byte_rates(&panel, &sources)),
            ("latency", latency_boxes(&panel, &sources, Timing::Latency)),
            (
                "first-byte",
                latency_boxes(&panel, &sources, Timing::FirstByte),
            ),
            ("origin-bytes", origin_bytes(&panel, &sources)),
        ];
        let mut add = |scope: Scope, kind: &str, chart| {
            figures.push(Figure {
                name: slug(&format!("{} {kind}", panel.title)),
                panel: panel.title.clone(),
                scope,
                chart,
            });
        };
        for (kind, chart) in charts {
            if let Some(chart) = chart {
                add(Scope::Panel, kind, chart);
            }
        }
        for case in &panel.cases {
            let place = panel.axis.label(case);
            let title = join(&panel.title, &panel.axis.phrase(case));
            let charts = [
                ("percentiles", percentiles(&title, case, &sources)),
                (
                    "requests-over-time",
                    over_time(&title, case, &sources, PerSecond::Requests),
                ),
                (
                    "p99-over-time",
                    over_time(&title, case, &sources, PerSecond::P99),
                ),
            ];
            for (kind, chart) in charts {
                if let Some(chart) = chart {
                    add(Scope::Case, &format!("{place} {kind}"), chart);
                }
            }
        }
    }
    figures
}

/// The endpoints of all runs. One label has one colour and marker in every run; within one run each
/// has a dash of its own as well, between runs the dash tells the runs apart.
fn sources<'a>(runs: &[Named<'a>]) -> Vec<Source<'a>> {
    let mut labels: Vec<&str> = Vec::new();
    let mut sources = Vec::new();
    for (run_index, of) in runs.iter().enumerate() {
        for (endpoint, description) in of.run.endpoints.iter().enumerate() {
            let label = description.label.as_str();
            let hue = labels
                .iter()
                .position(|known| *known == label)
                .unwrap_or_else(|| {
                    labels.push(label);
                    labels.len() - 1
                });
            let (label, dash) = if runs.len() > 1 {
                (format!("{label} ({})", of.name), run_index)
            } else {
                // Beyond six, colours and markers come again, with another dash.
                (label.to_owned(), hue + hue / 6)
            };
            sources.push(Source {
                of: *of,
                endpoint,
                label,
                style: Style {
                    hue,
                    dash,
                    is_hollow: run_index > 0,
                },
            });
        }
    }
    // Side by side what is to be compared: one endpoint in all runs.
    sources.sort_by_key(|source| source.style.hue);
    sources
}

/// The x axis of a panel, and where its cases lie on it.
fn x_axis(panel: &Panel) -> (Axis, Vec<f64>) {
    let places: Vec<(f64, String)> = panel
        .cases
        .iter()
        .map(|case| panel.axis.place(case).unwrap_or((0.0, String::new())))
        .collect();
    let is_number = !matches!(panel.axis, PanelAxis::Parameter(_))
        && places.len() > 1
        && places.iter().all(|(value, _)| *value > 0.0);
    let (scale, xs) = if is_number {
        let xs = places.iter().map(|(value, _)| *value).collect();
        (Scale::log_at(&places), xs)
    } else {
        categories(panel)
    };
    let log = if is_number { ", log scale" } else { "" };
    let title = format!("{}{log}", panel.axis.name());
    (Axis { title, scale }, xs)
}

fn categories(panel: &Panel) -> (Scale, Vec<f64>) {
    let labels: Vec<String> = panel
        .cases
        .iter()
        .map(|case| panel.axis.label(case))
        .map(|label| {
            if label.is_empty() {
                "all".to_owned()
            } else {
                label
            }
        })
        .collect();
    let xs = (0..labels.len()).map(|index| exact(index as u64)).collect();
    (Scale::categories(&labels), xs)
}

fn request_rates(panel: &Panel, sources: &[Source<'_>]) -> Option<Chart> {
    let of = |summary: &Summary| Some(summary.request_rate);
    along(
        panel,
        sources,
        ("Requests per second", "requests/s"),
        of,
        |values| Scale::fitting(values, shown::count_tick),
    )
}

fn byte_rates(panel: &Panel, sources: &[Source<'_>]) -> Option<Chart> {
    const MIB: f64 = 1024.0 * 1024.0;
    let of = |summary: &Summary| {
        let (least, median, most) = summary.byte_rate;
        (median > 0.0).then_some((least / MIB, median / MIB, most / MIB))
    };
    along(panel, sources, ("Throughput", "MiB/s"), of, |values| {
        Scale::fitting(values, shown::number_tick)
    })
}

fn origin_bytes(panel: &Panel, sources: &[Source<'_>]) -> Option<Chart> {
    let of = |summary: &Summary| summary.origin_bytes;
    let words = ("Bytes from the origin for each object", "bytes per object");
    along(panel, sources, words, of, |values| {
        Scale::log_bytes(values, shown::bytes_tick)
    })
}

/// A figure of each endpoint along the axis of a panel.
fn along(
    panel: &Panel,
    sources: &[Source<'_>],
    (title, unit): (&str, &str),
    figure: impl Fn(&Summary) -> Option<(f64, f64, f64)>,
    scale: impl Fn(&[f64]) -> Scale,
) -> Option<Chart> {
    let (x, xs) = x_axis(panel);
    let mut values = Vec::new();
    let mut rounds_max = 0;
    let mut series = Vec::new();
    for source in sources {
        let mut points = Vec::new();
        for (case, x) in panel.cases.iter().zip(&xs) {
            let summary = Summary::of(source.of.run, source.endpoint, case);
            let point = summary.as_ref().and_then(&figure).map(|(least, y, most)| {
                values.extend([least, y, most]);
                let spread = (least < most).then_some((least, most));
                Point { x: *x, y, spread }
            });
            rounds_max = rounds_max.max(summary.map_or(0, |summary| summary.rounds));
            points.push(point);
        }
        if points.iter().any(Option::is_some) {
            series.push(Series {
                label: source.label.clone(),
                style: source.style,
                points,
                marks: Marks::Each,
            });
        }
    }
    let y = Axis {
        title: unit.to_owned(),
        scale: scale(&values),
    };
    let mut notes = vec![format!("{}. {}", panel.title, rounds_note(rounds_max))];
    if y.scale.is_log() && values.iter().any(|value| *value <= 0.0) {
        notes.push("Hollow markers at the lower edge: nothing at all.".to_owned());
    }
    (!series.is_empty()).then(|| {
        Chart::Lines(Lines {
            labels: Labels {
                title: title.to_owned(),
                notes,
            },
            x,
            y,
            series,
            rules: Vec::new(),
        })
    })
}

fn rounds_note(rounds: usize) -> String {
    match rounds {
        0 | 1 => "One round.".to_owned(),
        more => format!(
            "Median of {more} rounds; bars, side by side, reach from the least to the most."
        ),
    }
}

/// What box plots are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    Latency,
    FirstByte,
}

fn latency_boxes(panel: &Panel, sources: &[Source<'_>], timing: Timing) -> Option<Chart> {
    let (scale, _) = categories(panel);
    let mut values = Vec::new();
    let mut series = Vec::new();
    for source in sources {
        let boxes: Vec<Option<Quartiles>> = panel
            .cases
            .iter()
            .map(|case| {
                let summary = Summary::of(source.of.run, source.endpoint, case)?;
                quartiles(match timing {
                    Timing::Latency => &summary.latency_ns,
                    Timing::FirstByte => &summary.first_byte_ns,
                })
            })
            .collect();
        for of in boxes.iter().flatten() {
            values.extend([of.whiskers.0, of.extreme]);
        }
        if boxes.iter().any(Option::is_some) {
            series.push(BoxSeries {
                label: source.label.clone(),
                style: source.style,
                boxes,
            });
        }
    }
    let (title, timing_name) = match timing {
        Timing::Latency => ("Latency", "latency"),
        Timing::FirstByte => ("Time to the first byte", "first byte"),
    };
    (!series.is_empty()).then(|| {
        Chart::Boxes(Boxes {
            labels: Labels {
                title: title.to_owned(),
                notes: vec![
                    format!("{}. All rounds together.", panel.title),
                    "Box: p25 to p75, line: median, whiskers: p1 and p99, marker: p99.9."
                        .to_owned(),
                ],
            },
            x: Axis {
                title: panel.axis.name(),
                scale,
            },
            y: Axis {
                title: timing_name.to_owned(),
                scale: Scale::log(&values, shown::duration_tick),
            },
            series,
        })
    })
}

fn quartiles(of: &Histogram) -> Option<Quartiles> {
    let at = |quantile| of.quantile_ns(quantile).map(exact);
    Some(Quartiles {
        whiskers: (at(0.01)?, at(0.99)?),
        middle_half: (at(0.25)?, at(0.75)?),
        median: at(0.5)?,
        extreme: at(0.999)?,
    })
}

fn join(title: &str, place: &str) -> String {
    if place.is_empty() {
        title.to_owned()
    } else {
        format!("{title}, {place}")
    }
}

/// A text as a file's name: lower case, digits, single dashes.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use crate::results::{Endpoint, Machine, Run, Workload};

    use super::*;

    #[test]
    fn no_two_series_look_alike() {
        let endpoints = (0..12).map(|index| Endpoint::new(&index.to_string(), "http://a/"));
        let workload = Workload {
            name: "get".to_owned(),
            parameters: std::collections::BTreeMap::new(),
        };
        let machine = Machine::default();
        let run = Run::new(String::new(), 0, machine, workload, endpoints.collect());
        let one = [Named {
            name: "a",
            run: &run,
        }];
        let two = [
            one[0],
            Named {
                name: "b",
                run: &run,
            },
        ];
        for (runs, count) in [(&one[..], 12), (&two[..], 12)] {
            let mut looks: Vec<_> = sources(runs)
                .iter()
                .take(count)
                .map(|of| (of.style.hue % 6, of.style.dasharray(), of.style.is_hollow))
                .collect();
            looks.sort_unstable();
            looks.dedup();
            assert_eq!(looks.len(), count, "{} runs", runs.len());
        }
    }
}
