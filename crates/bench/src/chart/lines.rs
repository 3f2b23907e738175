//! Lines over a scale, with a marker for each value or for some, and the spread of rounds as bars.

use crate::results::exact;

use super::{
    frame::{Axis, Frame, Labels, Parts},
    svg::{At, Stroke},
    theme::{Ink, Style, Theme},
};

/// Pixels between the bars of two series, and between the first and the last at most.
const ASIDE: f64 = 6.0;
const ASIDE_MAX: f64 = 24.0;

/// A chart of lines.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    /// Its words.
    pub(crate) labels: Labels,
    /// To the right.
    pub(crate) x: Axis,
    /// Upwards.
    pub(crate) y: Axis,
    /// In the order of the legend.
    pub(crate) series: Vec<Series>,
    /// Places on the x axis that have a name of their own.
    pub(crate) rules: Vec<Rule>,
}

/// A named place on the x axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// Where.
    pub(crate) x: f64,
    /// Its name.
    pub(crate) label: String,
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Its look.
    pub(crate) style: Style,
    /// Its values; `None` interrupts the line.
    pub(crate) points: Vec<Option<Point>>,
    /// Which of them have a marker.
    pub(crate) marks: Marks,
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// To the right.
    pub(crate) x: f64,
    /// Upwards.
    pub(crate) y: f64,
    /// Least and most of the rounds.
    pub(crate) spread: Option<(f64, f64)>,
}

/// Which values of a line have a marker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Marks {
    /// All.
    Each,
    /// One of so many, series beginning apart from one another.
    Every(usize),
    /// Where the line crosses the ticks of the x axis.
    AtTicks,
}

impl Lines {
    pub(super) fn svg(&self, theme: Theme) -> String {
        let parts = Parts {
            labels: &self.labels,
            x: &self.x,
            y: &self.y,
            legend: self
                .series
                .iter()
                .map(|s| (s.label.as_str(), s.style))
                .collect(),
            has_lines: true,
            has_rules: !self.rules.is_empty(),
        };
        let mut frame = Frame::draw(&parts, theme);
        for rule in &self.rules {
            frame.rule(rule.x, &rule.label);
        }
        // Later series are drawn first: the first one, mostly the baseline, stays on top.
        for (index, series) in self.series.iter().enumerate().rev() {
            let aside = self.aside(index);
            draw_bars(&mut frame, series, aside);
            for line in series.points.split(Option::is_none) {
                let points = line.iter().flatten().map(|point| {
                    let (x, y) = frame.at(point.x, point.y);
                    (x + aside, y)
                });
                let points = thinned(points);
                let stroke = Stroke {
                    ink: Ink::Hue(series.style.hue),
                    width: 2.0,
                    dash: series.style.dasharray(),
                };
                frame.svg.polyline(&points, stroke);
            }
        }
        // Hollow markers last: they are wider, so that one on top of a filled one leaves it seen.
        let markers: Vec<(At, Style)> = self
            .series
            .iter()
            .enumerate()
            .rev()
            .flat_map(|(index, series)| self.marked(&frame, series, index))
            .collect();
        for is_hollow in [false, true] {
            for (at, style) in markers
                .iter()
                .filter(|(_, style)| style.is_hollow == is_hollow)
            {
                frame.svg.marker(*at, style.hue, is_hollow);
            }
        }
        frame.svg.finish()
    }

    /// How many pixels a series is moved to the right, so that the bars of all stand side by side.
    fn aside(&self, index: usize) -> f64 {
        let has_bars = |series: &Series| series.points.iter().flatten().any(|p| p.spread.is_some());
        if !self.series.iter().any(has_bars) {
            return 0.0;
        }
        let last = exact(self.series.len().saturating_sub(1) as u64);
        let step = ASIDE.min(ASIDE_MAX / last.max(1.0));
        (exact(index as u64) - last / 2.0) * step
    }

    /// Where a series has markers, and how they look: on a log scale nothing is nowhere, and a
    /// hollow marker at the lower edge stands for it.
    fn marked(&self, frame: &Frame<'_>, series: &Series, index: usize) -> Vec<(At, Style)> {
        let all = || series.points.iter().flatten();
        let aside = self.aside(index);
        let looks = |y: f64| Style {
            is_hollow: series.style.is_hollow || (self.y.scale.is_log() && y <= 0.0),
            ..series.style
        };
        let placed = |point: &Point| {
            let (x, y) = frame.at(point.x, point.y);
            ((x + aside, y), looks(point.y))
        };
        match series.marks {
            Marks::Each => all().map(placed).collect(),
            Marks::Every(step) => {
                let first = (index * step / self.series.len().max(1)) % step.max(1);
                all().skip(first).step_by(step.max(1)).map(placed).collect()
            }
            Marks::AtTicks => {
                let ticks = self.x.scale.ticks.iter();
                let crossing = |value: f64| {
                    let before = all().take_while(|point| point.x <= value).last()?;
                    let after = all().find(|point| point.x >= value)?;
                    let (from, to) = (frame.at(before.x, before.y), frame.at(after.x, after.y));
                    let (x, _) = frame.at(value, before.y);
                    let width = to.0 - from.0;
                    let part = if width > 0.0 {
                        (x - from.0) / width
                    } else {
                        0.0
                    };
                    Some(((x, from.1 + (to.1 - from.1) * part), looks(before.y)))
                };
                ticks.filter_map(|tick| crossing(tick.value)).collect()
            }
        }
    }
}

/// Points that the eye can tell apart, the last one always: a curve of a thousand buckets has few.
fn thinned(points: impl Iterator<Item = At>) -> Vec<At> {
    let is_near = |a: At, b: At| (a.0 - b.0).abs() < 0.8 && (a.1 - b.1).abs() < 0.8;
    let mut kept: Vec<At> = Vec::new();
    let mut last = None;
    for point in points {
        if kept
            .last()
            .is_none_or(|previous| !is_near(*previous, point))
        {
            kept.push(point);
        }
        last = Some(point);
    }
    kept.extend(last.filter(|last| kept.last() != Some(last)));
    kept
}

/// The spread of the rounds as bars with caps.
fn draw_bars(frame: &mut Frame<'_>, series: &Series, aside: f64) {
    let stroke = Stroke {
        ink: Ink::Hue(series.style.hue),
        width: 1.2,
        dash: "",
    };
    for point in series.points.iter().flatten() {
        let Some((least, most)) = point.spread else {
            continue;
        };
        let (x, low) = frame.at(point.x, least);
        let x = x + aside;
        let (_, high) = frame.at(point.x, most);
        frame.svg.line((x, low), (x, high), stroke);
        for y in [low, high] {
            frame.svg.line((x - 4.0, y), (x + 4.0, y), stroke);
        }
    }
}
