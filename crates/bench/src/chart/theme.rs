//! Colours, markers and dashes.

/// Where a chart is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// On white.
    Light,
    /// On near black.
    Dark,
    /// In a page that sets the colours itself, as [`Theme::page_css`] does.
    Page,
}

/// How a series looks: colour and marker of one number, dash of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Which colour and marker.
    pub(crate) hue: usize,
    /// Which dash; a series of another run than the first has hollow markers, too.
    pub(crate) dash: usize,
    /// Whether markers are hollow.
    pub(crate) is_hollow: bool,
}

/// What is drawn in which colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Behind all.
    Ground,
    /// Titles.
    Text,
    /// Notes and ticks.
    Muted,
    /// Lines behind the data.
    Grid,
    /// A series.
    Hue(usize),
}

/// Colours by name: light, dark.
const PLAIN: [(&str, &str, &str); 4] = [
    ("ground", "#ffffff", "#14181d"),
    ("text", "#1b1f24", "#e8ebee"),
    ("muted", "#57606a", "#a3adb8"),
    ("grid", "#dfe3e8", "#2e353d"),
];

/// Okabe–Ito, in an order in which neighbours differ most: blue, vermillion, green, purple, orange,
/// grey. On white the bright ones are deepened, on black the deep ones lightened, so that each has
/// a contrast of at least 3 with the ground (WCAG 2.1, 1.4.11).
const HUES: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#f2823a"),
    ("#008f68", "#2bc49a"),
    ("#b85f92", "#e29bc6"),
    ("#b07700", "#f0c24a"),
    ("#4d545c", "#c9d0d7"),
];

/// Dashes, the first without.
const DASHES: [&str; 6] = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 4"];

impl Style {
    /// The dash as SVG has it, or an empty text for none.
    pub(crate) fn dasharray(self) -> &'static str {
        DASHES[self.dash % DASHES.len()]
    }
}

impl Theme {
    /// A colour, as SVG has it.
    pub(crate) fn paint(self, ink: Ink) -> String {
        let plain = |index: usize| match self {
            Self::Light => PLAIN[index].1.to_owned(),
            Self::Dark => PLAIN[index].2.to_owned(),
            Self::Page => format!("var(--{})", PLAIN[index].0),
        };
        match ink {
            Ink::Ground => plain(0),
            Ink::Text => plain(1),
            Ink::Muted => plain(2),
            Ink::Grid => plain(3),
            Ink::Hue(hue) => {
                let hue = hue % HUES.len();
                match self {
                    Self::Light => HUES[hue].0.to_owned(),
                    Self::Dark => HUES[hue].1.to_owned(),
                    Self::Page => format!("var(--hue-{hue})"),
                }
            }
        }
    }

    /// The colours of a page, as variables that follow what the reader prefers.
    pub(crate) fn page_css() -> String {
        let variables = |is_dark: bool| {
            let pick = |light: &'static str, dark: &'static str| if is_dark { dark } else { light };
            let plain = PLAIN
                .iter()
                .map(|(name, light, dark)| format!("--{name}:{};", pick(light, dark)));
            let hues = HUES
                .iter()
                .enumerate()
                .map(|(hue, (light, dark))| format!("--hue-{hue}:{};", pick(light, dark)));
            plain.chain(hues).collect::<String>()
        };
        format!(
            ":root{{color-scheme:light dark;{}}}\n\
             @media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
            variables(false),
            variables(true)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.1.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let byte = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let value = f64::from(byte) / 255.0;
            if value <= 0.03928 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn every_colour_stands_out_from_its_ground() {
        for theme in [Theme::Light, Theme::Dark] {
            let ground = theme.paint(Ink::Ground);
            for (ink, least) in [(Ink::Text, 7.0), (Ink::Muted, 4.5)] {
                assert!(
                    contrast(&theme.paint(ink), &ground) >= least,
                    "{theme:?} {ink:?}"
                );
            }
            for hue in 0..HUES.len() {
                let contrast = contrast(&theme.paint(Ink::Hue(hue)), &ground);
                assert!(contrast >= 3.0, "{theme:?} {hue}: {contrast:.2}");
            }
        }
    }
}
