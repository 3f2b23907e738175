//! Writes SVG elements. Coordinates are pixels from the upper left, with one decimal.

use std::fmt::Write;

use super::theme::{Ink, Theme};

/// An SVG document as it grows.
pub(super) struct Svg {
    text: String,
    theme: Theme,
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    pub(super) size: f64,
    pub(super) ink: Ink,
    pub(super) is_bold: bool,
    pub(super) anchor: Anchor,
}

/// Which part of a text lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stroke {
    pub(super) ink: Ink,
    pub(super) width: f64,
    pub(super) dash: &'static str,
}

impl Stroke {
    pub(super) fn thin(ink: Ink) -> Self {
        Self {
            ink,
            width: 1.0,
            dash: "",
        }
    }
}

/// A point of the picture.
pub(super) type At = (f64, f64);

/// Letters that are narrower and wider than most, for [`text_width`].
const NARROW: &str = "ijl.,:;'|!()[] -/fItr";
const WIDE: &str = "mwMW%@µ";

/// About how wide a text is in pixels: an upper bound for common sans-serif fonts, so that what is
/// laid out by it does not collide.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        c if NARROW.contains(c) => 0.36,
        c if WIDE.contains(c) => 0.95,
        c if c.is_ascii_uppercase() => 0.68,
        c if c.is_ascii() => 0.58,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size
}

impl Svg {
    /// A picture of a size, named for those who can't see it.
    pub(super) fn new(theme: Theme, (width, height): At, title: &str) -> Self {
        let mut svg = Self {
            text: String::new(),
            theme,
        };
        let ground = svg.theme.paint(Ink::Ground);
        svg.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" \
             font-family=\"'Noto Sans',system-ui,'Segoe UI','DejaVu Sans',sans-serif\">\n\
             <title>{}</title>\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"{ground}\"/>\n",
            escaped(title)
        ));
        svg
    }

    /// The document, ended.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a text can't fail.
        let _ = self.text.write_fmt(arguments);
    }

    pub(super) fn text(&mut self, (x, y): At, text: &str, set: Type) {
        let fill = self.theme.paint(set.ink);
        let anchor = match set.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if set.is_bold {
            " font-weight=\"700\""
        } else {
            ""
        };
        let (size, text) = (set.size, escaped(text));
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\"{anchor}{weight}>\
             {text}</text>\n"
        ));
    }

    pub(super) fn line(&mut self, (x1, y1): At, (x2, y2): At, stroke: Stroke) {
        let stroke = self.stroke(stroke);
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"{stroke}/>\n"
        ));
    }

    /// A line through points.
    pub(super) fn polyline(&mut self, points: &[At], stroke: Stroke) {
        if points.len() < 2 {
            return;
        }
        let stroke = self.stroke(stroke);
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            let _ = write!(path, "{separator}{x:.1},{y:.1}");
        }
        self.push(format_args!(
            "<polyline points=\"{path}\" fill=\"none\" stroke-linejoin=\"round\"{stroke}/>\n"
        ));
    }

    /// A box with an edge and a paler filling.
    pub(super) fn tinted_box(&mut self, (x, y): At, (width, height): At, stroke: Stroke) {
        let fill = self.theme.paint(stroke.ink);
        let edge = self.stroke(stroke);
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\" fill-opacity=\"0.22\"{edge}/>\n"
        ));
    }

    /// The marker of a series: its shape tells it from the others without colour. A hollow one is
    /// wider and lets what is behind it be seen.
    pub(super) fn marker(&mut self, (x, y): At, hue: usize, is_hollow: bool) {
        let paint = self.theme.paint(Ink::Hue(hue));
        let (fill, wide) = if is_hollow {
            ("none", 1.45)
        } else {
            (paint.as_str(), 1.0)
        };
        let style = format!("fill=\"{fill}\" stroke=\"{paint}\" stroke-width=\"1.5\"");
        let corners = |corners: &[At]| {
            let corners: Vec<At> = corners
                .iter()
                .map(|(right, down)| (x + right * wide, y + down * wide))
                .collect();
            polygon(&corners, &style)
        };
        let shape = match hue % 6 {
            0 => format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" {style}/>",
                4.0 * wide
            ),
            1 => corners(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
            2 => corners(&[(0.0, -5.0), (4.8, 3.6), (-4.8, 3.6)]),
            3 => corners(&[(0.0, -5.4), (5.4, 0.0), (0.0, 5.4), (-5.4, 0.0)]),
            4 => corners(&[(0.0, 5.0), (4.8, -3.6), (-4.8, -3.6)]),
            _ => corners(&[(-4.4, -4.4), (0.0, -1.2), (4.4, -4.4), (0.0, 4.4)]),
        };
        self.push(format_args!("{shape}\n"));
    }

    fn stroke(&self, stroke: Stroke) -> String {
        let paint = self.theme.paint(stroke.ink);
        let mut text = format!(" stroke=\"{paint}\" stroke-width=\"{}\"", stroke.width);
        if !stroke.dash.is_empty() {
            let _ = write!(text, " stroke-dasharray=\"{}\"", stroke.dash);
        }
        text
    }
}

fn polygon(points: &[At], style: &str) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    format!("<polygon points=\"{}\" {style}/>", points.join(" "))
}

/// A text as XML and HTML hold it, in quotes or between tags.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no way to hold other control characters.
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
