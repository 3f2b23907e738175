//! Box plots over categories: side by side in each, a box for every series.

use super::{
    frame::{Axis, Frame, Labels, Parts},
    svg::Stroke,
    theme::{Ink, Style, Theme},
};

/// A chart of boxes.
#[derive(Debug, Clone)]
pub(crate) struct Boxes {
    /// Its words; the notes say what the whiskers are.
    pub(crate) labels: Labels,
    /// Categories, 0, 1, 2, …
    pub(crate) x: Axis,
    /// Upwards.
    pub(crate) y: Axis,
    /// In the order of the legend.
    pub(crate) series: Vec<BoxSeries>,
}

/// The boxes of one series.
#[derive(Debug, Clone)]
pub(crate) struct BoxSeries {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Its look.
    pub(crate) style: Style,
    /// For each category, if it has values there.
    pub(crate) boxes: Vec<Option<Quartiles>>,
}

/// What a box shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quartiles {
    /// Ends of the whiskers.
    pub(crate) whiskers: (f64, f64),
    /// Ends of the box.
    pub(crate) middle_half: (f64, f64),
    /// The line in the box.
    pub(crate) median: f64,
    /// The marker beyond the upper whisker.
    pub(crate) extreme: f64,
}

/// Widest box.
const BOX_WIDTH_MAX: f64 = 46.0;

impl Boxes {
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
            has_lines: false,
            has_rules: false,
        };
        let mut frame = Frame::draw(&parts, theme);
        let count = crate::results::exact(self.series.len().max(1) as u64);
        // A third of each category stays empty, so that the eye keeps them apart.
        let step =
            (frame.distance(0.0, 1.0).abs().max(60.0) * 0.68 / count).min(BOX_WIDTH_MAX * 1.3);
        for (index, series) in self.series.iter().enumerate() {
            let shift = (crate::results::exact(index as u64) - (count - 1.0) / 2.0) * step;
            for (category, of) in series.boxes.iter().enumerate() {
                if let Some(of) = of {
                    let x = crate::results::exact(category as u64);
                    draw_box(&mut frame, x, shift, step, (of, series.style));
                }
            }
        }
        frame.svg.finish()
    }
}

fn draw_box(
    frame: &mut Frame<'_>,
    category: f64,
    shift: f64,
    step: f64,
    (of, style): (&Quartiles, Style),
) {
    let y = |frame: &Frame<'_>, value: f64| frame.at(category, value).1;
    let x = frame.at(category, 0.0).0 + shift;
    let half = (step * 0.38).min(BOX_WIDTH_MAX / 2.0);
    let thin = Stroke {
        ink: Ink::Hue(style.hue),
        width: 1.4,
        dash: "",
    };
    let edge = Stroke {
        dash: if style.is_hollow { "4 2" } else { "" },
        ..thin
    };
    let (lower, upper) = (y(frame, of.middle_half.0), y(frame, of.middle_half.1));
    for (from, to) in [(lower, of.whiskers.0), (upper, of.whiskers.1)] {
        let end = y(frame, to);
        frame.svg.line((x, from), (x, end), thin);
        frame
            .svg
            .line((x - half * 0.5, end), (x + half * 0.5, end), thin);
    }
    // Half a pixel at least, so that a box of one value is still seen.
    let height = (lower - upper).max(1.0);
    frame
        .svg
        .tinted_box((x - half, upper), (2.0 * half, height), edge);
    let median = y(frame, of.median);
    let bold = Stroke { width: 2.6, ..thin };
    frame.svg.line((x - half, median), (x + half, median), bold);
    let extreme = y(frame, of.extreme);
    frame.svg.marker((x, extreme), style.hue, style.is_hollow);
}
