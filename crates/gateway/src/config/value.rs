//! Values with units, as people write them in the config: `"64MiB"`, `"250ms"`, `"25%"`.
//!
//! Pure: text in, value out, and back. Called by `check`, printed by `config show`. Text that has
//! no unit is refused, because `"64"` of what?
//!
//! Units: sizes are powers of 1024 (`KiB`, `MiB`, `GiB`, `TiB`) or of 1000 (`KB`, `MB`, `GB`,
//! `TB`) or plain bytes (`B`); times are `ms`, `s`, `m`, `h`, `d`.

use std::{fmt, time::Duration};

/// Bytes in a KiB.
pub const KIB: u64 = 1024;
/// Bytes in a MiB.
pub const MIB: u64 = 1024 * KIB;
/// Bytes in a GiB.
pub const GIB: u64 = 1024 * MIB;

/// Largest unit first, so that a value prints in the largest unit that divides it.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1024 * GIB),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Milliseconds in each unit of time, largest first.
const TIME_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Reads `"64MiB"`; `None` when it is no number with a unit of size.
    pub fn parse(text: &str) -> Option<Self> {
        parse_with_unit(text, &SIZE_UNITS).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &SIZE_UNITS)
    }
}

/// A length of time in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Reads `"250ms"`; `None` when it is no number with a unit of time.
    pub fn parse(text: &str) -> Option<Self> {
        parse_with_unit(text, &TIME_UNITS).map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if ms == 0 {
            f.write_str("0s")
        } else {
            write_with_unit(f, ms, &TIME_UNITS)
        }
    }
}

/// A share of a whole, `0..=100` percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);

impl Percent {
    /// Reads `"25%"`; `None` when it is no whole number of percent up to 100.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
        (number <= 100).then_some(Self(number))
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        u64::try_from(u128::from(whole) * u128::from(self.0) / 100).unwrap_or(whole)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// A share of a whole in hundredths of a percent, `0..=10_000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u16);

impl Share {
    /// The nearest share; what is below nothing is nothing, what is above the whole is the whole.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=10,000, and nothing of its fraction is meant"
    )]
    pub fn nearest(ratio: f64) -> Self {
        Self((ratio * 10_000.0).round().clamp(0.0, 10_000.0) as u16)
    }

    /// Reads `"2%"` or `"0.25%"`; `None` when it is no such share, or above 100%.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?.trim_end();
        let (whole, hundredths) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(hundredths) || hundredths.len() > 2 {
            return None;
        }
        let share = whole.parse::<u16>().ok()?.checked_mul(100)?;
        let share = share.checked_add(format!("{hundredths:0<2}").parse().ok()?)?;
        (share <= 10_000).then_some(Self(share))
    }

    /// The same as a number, `0.0..=1.0`.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (self.0 / 100, self.0 % 100);
        match hundredths {
            0 => write!(f, "{whole}%"),
            tenths if tenths.is_multiple_of(10) => write!(f, "{whole}.{}%", tenths / 10),
            _ => write!(f, "{whole}.{hundredths:02}%"),
        }
    }
}

fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = (
        text[..digits].parse::<u64>().ok()?,
        text[digits..].trim_start(),
    );
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn write_with_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value > 0 && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_needs_its_unit() {
        for (text, bytes) in [
            ("64MiB", Some(64 * MIB)),
            ("1 KiB", Some(1024)),
            ("5GB", Some(5_000_000_000)),
            ("0B", Some(0)),
            ("64", None),
            ("MiB", None),
            ("-1MiB", None),
            ("1.5GiB", None),
            ("64mib", None),
            ("99999999999TiB", None),
            ("", None),
        ] {
            assert_eq!(ByteSize::parse(text).map(|s| s.0), bytes, "{text:?}");
        }
    }

    #[test]
    fn a_time_needs_its_unit() {
        for (text, ms) in [
            ("250ms", Some(250)),
            ("60s", Some(60_000)),
            ("15 m", Some(900_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("60", None),
            ("1y", None),
            ("s", None),
        ] {
            assert_eq!(Span::parse(text).map(|s| s.0.as_millis()), ms, "{text:?}");
        }
    }

    #[test]
    fn a_share_is_at_most_the_whole() {
        for (text, share) in [
            ("25%", Some(25)),
            ("100%", Some(100)),
            ("101%", None),
            ("25", None),
        ] {
            assert_eq!(Percent::parse(text).map(|p| p.0), share, "{text:?}");
        }
        assert_eq!(Percent(25).of(4 * GIB), GIB);
        assert_eq!(Percent(100).of(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_fine_share_has_up_to_two_digits_after_the_point() {
        for (text, share) in [
            ("2%", Some(200)),
            ("0.5%", Some(50)),
            ("0.25%", Some(25)),
            ("12.05 %", Some(1205)),
            ("100%", Some(10_000)),
            ("100.01%", None),
            ("700%", None),
            ("0.123%", None),
            (".5%", None),
            ("5.%", None),
            ("-1%", None),
            ("0.02", None),
        ] {
            assert_eq!(Share::parse(text).map(|s| s.0), share, "{text:?}");
        }
        for share in (0..=10_000).map(Share) {
            assert_eq!(Share::parse(&share.to_string()), Some(share));
            assert_eq!(Share::nearest(share.ratio()), share);
        }
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same() {
        for bytes in [0, 1, 1000, 1024, 1536, 64 * MIB, 5_000_000_000, u64::MAX] {
            assert_eq!(
                ByteSize::parse(&ByteSize(bytes).to_string()),
                Some(ByteSize(bytes))
            );
        }
        for ms in [0, 1, 250, 1000, 90_000, 86_400_000] {
            let span = Span(Duration::from_millis(ms));
            assert_eq!(Span::parse(&span.to_string()), Some(span));
        }
        assert_eq!(ByteSize(64 * MIB).to_string(), "64MiB");
        assert_eq!(Span(Duration::from_mins(1)).to_string(), "1m");
    }
}
