//! Quantities as people write them: `"64MiB"`, `"2.5ms"`, `"0.1%"`, `"26.32GiB"`.
//!
//! Pure: text in, value out. Text without a unit is refused, because `"64"` of what? Decimals are
//! read digit by digit, never by way of a float, so that a price or a share is what was written.
//!
//! Units: sizes are powers of 1024 (`KiB` …) or of 1000 (`KB` …) or plain bytes (`B`); times are
//! `us`, `ms`, `s`, `m`, `h`, `d`; shares are parts of a million inside.

use std::{fmt, time::Duration};

const KIB: u64 = 1024;

/// What a size may look like, for messages.
pub(crate) const SIZE_ALLOWED: &str = "a number and a unit: B, KB, KiB, MB, MiB, GB, GiB, TB, TiB";
/// What a time may look like, for messages.
pub(crate) const TIME_ALLOWED: &str = "a number and a unit: us, ms, s, m, h, d";
/// What a share may look like, for messages.
pub(crate) const SHARE_ALLOWED: &str = "0% to 100%, with up to four decimals";

/// Largest first, so that a value prints in the largest unit that divides it.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", KIB * KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("MiB", KIB * KIB),
    ("KiB", KIB),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Nanoseconds in each unit of time, largest first.
const TIME_UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A number written in decimal: `mantissa / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) mantissa: u128,
    pub(crate) scale: u32,
}

impl Decimal {
    /// Reads digits with at most one point and twelve decimals.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(decimals) || decimals.len() > 12 {
            return None;
        }
        if text.ends_with('.') || whole.len() > 20 {
            return None;
        }
        Some(Self {
            mantissa: format!("{whole}{decimals}").parse().ok()?,
            scale: u32::try_from(decimals.len()).ok()?,
        })
    }

    /// This many times `factor`, rounded down; `None` when it does not fit.
    pub(crate) fn times(self, factor: u64) -> Option<u64> {
        let product = self.mantissa.checked_mul(u128::from(factor))?;
        u64::try_from(product / 10u128.pow(self.scale)).ok()
    }

    /// This many times `factor`; `None` when that is no whole number.
    pub(crate) fn times_exactly(self, factor: u128) -> Option<u128> {
        let product = self.mantissa.checked_mul(factor)?;
        let divisor = 10u128.pow(self.scale);
        product.is_multiple_of(divisor).then_some(product / divisor)
    }
}

/// A share of a whole in parts of a million, `0..=1_000_000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(u32);

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);
    /// Four fifths of it.
    pub(crate) const FOUR_FIFTHS: Self = Self(800_000);
    /// None of it.
    pub const NONE: Self = Self(0);

    /// Reads `"0.1%"`; `None` when it is no share.
    pub fn parse(text: &str) -> Option<Self> {
        let number = Decimal::parse(text.trim().strip_suffix('%')?.trim_end())?;
        let parts = u32::try_from(number.times_exactly(10_000)?).ok()?;
        (parts <= Self::WHOLE.0).then_some(Self(parts))
    }

    /// This share moved `step` of `whole` steps towards another one, rounded down; `whole > 0`.
    pub(crate) fn towards(self, other: Self, step: u128, whole: u128) -> Self {
        let (from, to) = (u128::from(self.0), u128::from(other.0));
        let step = step.min(whole);
        let parts = (from * (whole - step) + to * step) / whole;
        Self(u32::try_from(parts).unwrap_or(Self::WHOLE.0))
    }

    /// Parts of a million.
    pub fn parts_per_million(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.0 / 10_000, self.0 % 10_000);
        if decimals == 0 {
            return write!(f, "{whole}%");
        }
        let decimals = format!("{decimals:04}");
        write!(f, "{whole}.{}%", decimals.trim_end_matches('0'))
    }
}

/// Reads a size in bytes: `"64MiB"`, `"1.5GB"`; a fraction of a byte is dropped.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    parse_with_unit(text, &SIZE_UNITS)
}

/// Reads a length of time: `"250ms"`, `"1.5h"`; a bare `0` needs no unit.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    if text.trim() == "0" {
        return Some(Duration::ZERO);
    }
    parse_with_unit(text, &TIME_UNITS).map(Duration::from_nanos)
}

/// A size in the largest unit that divides it.
pub(crate) fn show_size(bytes: u64) -> String {
    show_with_unit(bytes, &SIZE_UNITS)
}

/// A time in the largest unit that divides it, to the microsecond.
pub(crate) fn show_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if nanos == 0 {
        return "0s".to_owned();
    }
    show_with_unit(nanos - nanos % 1_000, &TIME_UNITS)
}

fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let unit = text[end..].trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Decimal::parse(&text[..end])?.times(*factor)
}

fn show_with_unit(value: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| value > 0 && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    format!("{}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_needs_its_unit_and_may_have_decimals() {
        for (text, bytes) in [
            ("64MiB", Some(64 << 20)),
            ("1MB", Some(1_000_000)),
            ("1.5 KiB", Some(1536)),
            ("26.32GiB", Some(28_260_884_807)),
            ("64", None),
            ("1.GiB", None),
            (".5GiB", None),
            ("1.2.3GiB", None),
            ("99999999999TiB", None),
            ("-1B", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn a_time_needs_its_unit_unless_it_is_none() {
        for (text, nanos) in [
            ("20ms", Some(20_000_000)),
            ("0.5ms", Some(500_000)),
            ("100us", Some(100_000)),
            ("7d", Some(604_800_000_000_000)),
            ("0", Some(0)),
            ("20", None),
            ("1e3s", None),
        ] {
            assert_eq!(parse_time(text).map(|t| t.as_nanos()), nanos, "{text:?}");
        }
    }

    #[test]
    fn a_share_is_exact_to_a_millionth() {
        for (text, parts) in [
            ("5%", Some(50_000)),
            ("0.1%", Some(1_000)),
            ("0.0001%", Some(1)),
            ("100%", Some(1_000_000)),
            ("0.00001%", None),
            ("100.1%", None),
            ("5", None),
        ] {
            assert_eq!(Share::parse(text).map(|s| s.0), parts, "{text:?}");
        }
    }

    #[test]
    fn values_print_as_they_are_read() {
        for text in ["64MiB", "1MB", "0B"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        for text in ["20ms", "7d", "500us", "0s"] {
            assert_eq!(show_time(parse_time(text).unwrap()), text);
        }
        for text in ["5%", "0.1%", "12.3456%"] {
            assert_eq!(Share::parse(text).unwrap().to_string(), text);
        }
    }
}
