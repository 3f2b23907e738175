//! What every chart has around its data: title, notes, legend, two axes.

use super::{
    scale::Scale,
    svg::{Anchor, At, Stroke, Svg, Type, text_width},
    theme::{Ink, Style, Theme},
};

/// Width of every chart in pixels.
const WIDTH: f64 = 760.0;
/// Height of the part that holds the data.
const PLOT_HEIGHT: f64 = 300.0;
const MARGIN: f64 = 18.0;
const TITLE_SIZE: f64 = 17.0;
const TEXT_SIZE: f64 = 12.5;
const LINE_HEIGHT: f64 = 19.0;
/// Between notes and legend.
const LEGEND_GAP: f64 = 4.0;
/// The dash and marker of a series in the legend, and room behind them.
const SAMPLE_WIDTH: f64 = 48.0;
const SAMPLE_WIDTH_BOXES: f64 = 20.0;
const SAMPLE_GAP: f64 = 8.0;
/// Least distance between two labels in a row.
const LABEL_GAP: f64 = 8.0;

/// The words of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    /// What it shows.
    pub(crate) title: String,
    /// How it was measured and how to read it, a line each.
    pub(crate) notes: Vec<String>,
}

/// One axis.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    /// What it measures, with its unit.
    pub(crate) title: String,
    /// Where values lie.
    pub(crate) scale: Scale,
}

/// A frame with its axes, open for data.
pub(super) struct Frame<'a> {
    pub(super) svg: Svg,
    x: &'a Axis,
    y: &'a Axis,
    left: f64,
    top: f64,
    width: f64,
}

/// What a frame is drawn from.
pub(super) struct Parts<'a> {
    pub(super) labels: &'a Labels,
    pub(super) x: &'a Axis,
    pub(super) y: &'a Axis,
    /// Name and look of each series.
    pub(super) legend: Vec<(&'a str, Style)>,
    /// Whether the legend shows a dash, as for lines, or a marker alone.
    pub(super) has_lines: bool,
    /// Whether [`Frame::rule`] will be called: its names need room above the data.
    pub(super) has_rules: bool,
}

fn set(ink: Ink, anchor: Anchor) -> Type {
    Type {
        size: TEXT_SIZE,
        ink,
        is_bold: false,
        anchor,
    }
}

impl<'a> Frame<'a> {
    /// Draws all but the data.
    pub(super) fn draw(parts: &Parts<'a>, theme: Theme) -> Self {
        let notes: Vec<String> = parts
            .labels
            .notes
            .iter()
            .flat_map(|note| wrapped(note, WIDTH - 2.0 * MARGIN))
            .collect();
        let sample_width = if parts.has_lines {
            SAMPLE_WIDTH
        } else {
            SAMPLE_WIDTH_BOXES
        };
        let rows = legend_rows(&parts.legend, sample_width);
        let rules_height = if parts.has_rules { 22.0 } else { 0.0 };
        let lines = notes.len() + rows.len();
        // Title, notes and legend, title of the y axis.
        let top = MARGIN + 22.0 + lines_height(lines) + LEGEND_GAP + 32.0 + rules_height;
        let (x_rows, rows_count) = label_rows(parts.x, WIDTH * 0.85);
        let height = top + PLOT_HEIGHT + lines_height(rows_count) + 34.0 + MARGIN;
        let ticks = parts.y.scale.ticks.iter();
        let left = ticks
            .map(|tick| text_width(&tick.label, TEXT_SIZE))
            .fold(24.0, f64::max)
            + MARGIN
            + 8.0;
        // Half of the last label may stand beyond the end of the axis.
        let last_half = parts.x.scale.ticks.last().map_or(0.0, |tick| {
            let beyond = (1.0 - parts.x.scale.place(tick.value)) * WIDTH * 0.8;
            text_width(&tick.label, TEXT_SIZE) / 2.0 - beyond
        });
        let last_half = last_half.max(12.0);
        let title = Type {
            size: TITLE_SIZE,
            is_bold: true,
            ..set(Ink::Text, Anchor::Start)
        };
        let mut svg = Svg::new(theme, (WIDTH, height), &parts.labels.title);
        svg.text((MARGIN, MARGIN + 14.0), &parts.labels.title, title);
        let mut baseline = MARGIN + 14.0 + 22.0;
        for note in &notes {
            svg.text((MARGIN, baseline), note, set(Ink::Muted, Anchor::Start));
            baseline += LINE_HEIGHT;
        }
        baseline += LEGEND_GAP;
        for row in rows {
            draw_legend_row(&mut svg, baseline, &row, parts.has_lines);
            baseline += LINE_HEIGHT;
        }
        let mut frame = Self {
            svg,
            x: parts.x,
            y: parts.y,
            left,
            top,
            width: WIDTH - left - MARGIN - last_half,
        };
        frame.draw_y_axis(rules_height);
        frame.draw_x_axis(&x_rows, rows_count);
        frame
    }

    /// Where a pair of values lies in the picture.
    pub(super) fn at(&self, x: f64, y: f64) -> At {
        (
            self.left + self.x.scale.place(x) * self.width,
            self.top + (1.0 - self.y.scale.place(y)) * PLOT_HEIGHT,
        )
    }

    /// Pixels between two places on the x axis.
    pub(super) fn distance(&self, from: f64, to: f64) -> f64 {
        (self.x.scale.place(to) - self.x.scale.place(from)) * self.width
    }

    /// A line from bottom to top with a name above it.
    pub(super) fn rule(&mut self, x: f64, label: &str) {
        let (x, _) = self.at(x, 0.0);
        let (top, bottom) = (self.top, self.top + PLOT_HEIGHT);
        let stroke = Stroke {
            dash: "3 3",
            ..Stroke::thin(Ink::Muted)
        };
        self.svg.line((x, top - 18.0), (x, bottom), stroke);
        let small = Type {
            size: 11.0,
            ..set(Ink::Muted, Anchor::Start)
        };
        self.svg.text((x + 4.0, top - 10.0), label, small);
    }

    fn draw_y_axis(&mut self, rules_height: f64) {
        let kind = if self.y.scale.is_log() {
            ", log scale"
        } else {
            ""
        };
        let title = Type {
            is_bold: true,
            ..set(Ink::Text, Anchor::Start)
        };
        let text = format!("{}{kind}", self.y.title);
        let baseline = self.top - 12.0 - rules_height;
        self.svg.text((MARGIN, baseline), &text, title);
        for tick in &self.y.scale.ticks {
            let y = self.top + (1.0 - self.y.scale.place(tick.value)) * PLOT_HEIGHT;
            let right = self.left + self.width;
            self.svg
                .line((self.left, y), (right, y), Stroke::thin(Ink::Grid));
            let label = set(Ink::Muted, Anchor::End);
            self.svg
                .text((self.left - 8.0, y + 4.4), &tick.label, label);
        }
    }

    fn draw_x_axis(&mut self, rows: &[Option<usize>], rows_count: usize) {
        let bottom = self.top + PLOT_HEIGHT;
        let right = self.left + self.width;
        let stroke = Stroke::thin(Ink::Muted);
        self.svg.line((self.left, bottom), (right, bottom), stroke);
        for (tick, row) in self.x.scale.ticks.iter().zip(rows) {
            let x = self.left + self.x.scale.place(tick.value) * self.width;
            self.svg.line((x, bottom), (x, bottom + 5.0), stroke);
            let Some(row) = row else { continue };
            let y = bottom + 19.0 + lines_height(*row);
            let label = set(Ink::Muted, Anchor::Middle);
            self.svg.text((x, y), &tick.label, label);
        }
        let title = Type {
            is_bold: true,
            ..set(Ink::Text, Anchor::Middle)
        };
        let middle = self.left + self.width / 2.0;
        let y = bottom + lines_height(rows_count) + 24.0;
        self.svg.text((middle, y), &self.x.title, title);
    }
}

fn lines_height(lines: usize) -> f64 {
    crate::results::exact(lines as u64) * LINE_HEIGHT
}

/// In which row below the axis each label has room; none in any of the two: it is left out.
fn label_rows(axis: &Axis, width: f64) -> (Vec<Option<usize>>, usize) {
    let mut ends = [f64::NEG_INFINITY; 2];
    let mut rows_count = 1;
    let rows = axis.scale.ticks.iter().map(|tick| {
        let half = text_width(&tick.label, TEXT_SIZE) / 2.0;
        let middle = axis.scale.place(tick.value) * width;
        let row = ends
            .iter()
            .position(|end| middle - half >= end + LABEL_GAP)?;
        ends[row] = middle + half;
        rows_count = rows_count.max(row + 1);
        Some(row)
    });
    let rows = rows.collect();
    (rows, rows_count)
}

/// The legend in as many rows as it needs.
fn legend_rows<'a>(
    legend: &[(&'a str, Style)],
    sample_width: f64,
) -> Vec<Vec<(f64, &'a str, Style)>> {
    let mut rows: Vec<Vec<(f64, &str, Style)>> = Vec::new();
    let mut x = MARGIN;
    for (label, style) in legend {
        let width = sample_width + text_width(label, TEXT_SIZE) + 20.0;
        if rows.is_empty() || x + width > WIDTH - MARGIN {
            rows.push(Vec::new());
            x = MARGIN;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, label, *style));
        }
        x += width;
    }
    rows
}

fn draw_legend_row(svg: &mut Svg, baseline: f64, row: &[(f64, &str, Style)], has_lines: bool) {
    let sample_width = if has_lines {
        SAMPLE_WIDTH
    } else {
        SAMPLE_WIDTH_BOXES
    };
    for (x, label, style) in row {
        let middle = baseline - 4.4;
        let end = x + sample_width - SAMPLE_GAP;
        if has_lines {
            let stroke = Stroke {
                ink: Ink::Hue(style.hue),
                width: 2.0,
                dash: style.dasharray(),
            };
            svg.line((*x, middle), (end, middle), stroke);
        }
        svg.marker((f64::midpoint(*x, end), middle), style.hue, style.is_hollow);
        let words = set(Ink::Text, Anchor::Start);
        svg.text((x + sample_width, baseline), label, words);
    }
}

/// A text in lines of at most `width` pixels.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), TEXT_SIZE) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_one_row_stand_apart() {
        let places: Vec<(f64, String)> = (0..40)
            .map(|power| (1.2_f64.powi(power), format!("{power} KiB")))
            .collect();
        let axis = Axis {
            title: "size".to_owned(),
            scale: Scale::log_at(&places),
        };
        let (rows, rows_count) = label_rows(&axis, 640.0);
        assert_eq!(rows_count, 2);
        for row in 0..rows_count {
            let of_row = rows
                .iter()
                .zip(&axis.scale.ticks)
                .filter(|(of, _)| **of == Some(row));
            let ends: Vec<(f64, f64)> = of_row
                .map(|(_, tick)| {
                    let half = text_width(&tick.label, TEXT_SIZE) / 2.0;
                    let middle = axis.scale.place(tick.value) * 640.0;
                    (middle - half, middle + half)
                })
                .collect();
            assert!(ends.len() > 5, "{ends:?}");
            assert!(
                ends.windows(2).all(|pair| pair[0].1 < pair[1].0),
                "{ends:?}"
            );
        }
    }

    #[test]
    fn a_long_legend_and_long_notes_take_more_rows() {
        let style = Style {
            hue: 0,
            dash: 0,
            is_hollow: false,
        };
        let label = "a rather long name of an endpoint";
        let rows = legend_rows(&[(label, style); 5], SAMPLE_WIDTH);
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let lines = wrapped(&"word ".repeat(60), WIDTH);
        assert!(lines.len() > 1);
        assert!(
            lines
                .iter()
                .all(|line| text_width(line, TEXT_SIZE) <= WIDTH)
        );
    }
}
