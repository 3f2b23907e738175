//! Charts as SVG, and the same as PNG.
//!
//! Pure but for fonts: a chart is values and words, [`Chart::svg`] is text. All that is drawn is a
//! frame (title, notes, legend, two axes) around lines or boxes. Units stand in the titles of axes.
//!
//! Told apart by everyone: colours are those of Okabe and Ito (Color Universal Design, 2008),
//! deepened or lightened for contrast with the ground, and no two series differ in colour alone:
//! marker and dash differ as well.
//!
//! Drawn by hand: the plotting library that was looked at makes box plots of raw values, which a
//! run file does not have, with whiskers at one place only.

mod boxes;
mod frame;
mod lines;
mod picture;
mod scale;
mod svg;
mod theme;

pub(crate) use boxes::{BoxSeries, Boxes, Quartiles};
pub(crate) use frame::{Axis, Labels};
pub(crate) use lines::{Lines, Marks, Point, Rule, Series};
pub(crate) use picture::png;
pub(crate) use scale::Scale;
pub(crate) use svg::escaped;
pub(crate) use theme::Style;
pub use theme::Theme;

/// One chart.
#[derive(Debug, Clone)]
pub(crate) enum Chart {
    /// Lines over a scale.
    Lines(Lines),
    /// Boxes over categories.
    Boxes(Boxes),
}

impl Chart {
    /// The chart in the colours of `theme`.
    pub(crate) fn svg(&self, theme: Theme) -> String {
        match self {
            Self::Lines(lines) => lines.svg(theme),
            Self::Boxes(boxes) => boxes.svg(theme),
        }
    }
}
