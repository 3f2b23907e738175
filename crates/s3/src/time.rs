//! The date formats of S3, to and from whole seconds (or milliseconds) since the Unix epoch.
//!
//! | form | example | where |
//! |---|---|---|
//! | ISO 8601 basic | `20130524T000000Z` | `x-amz-date`, `X-Amz-Date` ([`AmzDate`]) |
//! | HTTP date | `Fri, 24 May 2013 00:00:00 GMT` | `Date`, `Last-Modified`, conditions |
//! | RFC 3339 | `2013-05-24T00:00:00.000Z` | XML bodies, POST policies |
//!
//! Called by the signature code, by whoever prints headers or XML, and by condition checks.
//! Formatting fills a buffer on the stack. Years are `0..=9999`; times outside are clamped, since
//! they only arise from a broken clock and must not panic a server.
//!
//! Sources: RFC 9110 §5.6.7 (HTTP dates), RFC 3339, the Signature Version 4 reference.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The first second of the year 0 and the last of the year 9999: what four digits can show.
const SHOWN_SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// ASCII text of a fixed length, held without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const LEN: usize>([u8; LEN]);

impl<const LEN: usize> Text<LEN> {
    /// The text.
    pub fn as_str(&self) -> &str {
        ascii(&self.0)
    }

    /// The text's bytes.
    pub const fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// Takes ASCII bytes; the caller has checked them.
    pub(crate) fn from_ascii(bytes: [u8; LEN]) -> Self {
        debug_assert!(bytes.is_ascii());
        Self(bytes)
    }
}

impl<const LEN: usize> fmt::Display for Text<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const LEN: usize> fmt::Debug for Text<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// A moment as Signature Version 4 writes it: `20130524T000000Z`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AmzDate {
    text: Text<16>,
    unix_seconds: i64,
}

impl AmzDate {
    /// Formats a moment.
    pub fn from_unix(unix_seconds: i64) -> Self {
        let civil = Civil::from_unix(unix_seconds);
        let mut text = *b"00000000T000000Z";
        civil.put_year(&mut text[0..4]);
        put_two(&mut text[4..6], civil.month);
        put_two(&mut text[6..8], civil.day);
        put_two(&mut text[9..11], civil.hour);
        put_two(&mut text[11..13], civil.minute);
        put_two(&mut text[13..15], civil.second);
        Self {
            text: Text(text),
            unix_seconds: unix_seconds.clamp(*SHOWN_SECONDS.start(), *SHOWN_SECONDS.end()),
        }
    }

    /// Reads exactly `yyyyMMdd'T'HHmmss'Z'`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: &[u8; 16] = text.as_bytes().try_into().ok()?;
        if bytes[8] != b'T' || bytes[15] != b'Z' {
            return None;
        }
        let civil = Civil {
            year: digits(&bytes[0..4])?,
            month: digits(&bytes[4..6])?,
            day: digits(&bytes[6..8])?,
            hour: digits(&bytes[9..11])?,
            minute: digits(&bytes[11..13])?,
            second: digits(&bytes[13..15])?,
        };
        Some(Self {
            text: Text(*bytes),
            unix_seconds: civil.to_unix()?,
        })
    }

    /// The sixteen characters.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// The day alone, `20130524`, as credential scopes carry it.
    pub fn date_stamp(&self) -> &str {
        &self.as_str()[..8]
    }

    /// Seconds since the Unix epoch.
    pub const fn unix_seconds(&self) -> i64 {
        self.unix_seconds
    }
}

impl fmt::Display for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Formats an HTTP date, `Fri, 24 May 2013 00:00:00 GMT`.
pub fn http_date(unix_seconds: i64) -> Text<29> {
    const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let civil = Civil::from_unix(unix_seconds);
    let weekday = narrow(unix_seconds.div_euclid(DAY_SECONDS).rem_euclid(7)) as usize;
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[0..3].copy_from_slice(WEEKDAYS[weekday]);
    put_two(&mut text[5..7], civil.day);
    text[8..11].copy_from_slice(MONTHS[civil.month as usize - 1]);
    civil.put_year(&mut text[12..16]);
    put_two(&mut text[17..19], civil.hour);
    put_two(&mut text[20..22], civil.minute);
    put_two(&mut text[23..25], civil.second);
    Text(text)
}

/// Reads an HTTP date in any of the three forms of RFC 9110 §5.6.7.
pub fn parse_http_date(text: &str) -> Option<i64> {
    httpdate::parse_http_date(text.trim())
        .ok()
        .map(unix_seconds)
}

/// Formats RFC 3339 in UTC with milliseconds, as S3's XML does: `2013-05-24T00:00:00.000Z`.
pub fn rfc3339_millis(unix_millis: i64) -> Text<24> {
    let civil = Civil::from_unix(unix_millis.div_euclid(1000));
    let millis = narrow(unix_millis.rem_euclid(1000));
    let mut text = *b"1970-01-01T00:00:00.000Z";
    civil.put_year(&mut text[0..4]);
    put_two(&mut text[5..7], civil.month);
    put_two(&mut text[8..10], civil.day);
    put_two(&mut text[11..13], civil.hour);
    put_two(&mut text[14..16], civil.minute);
    put_two(&mut text[17..19], civil.second);
    text[20] = digit(millis / 100);
    put_two(&mut text[21..23], millis % 100);
    Text(text)
}

/// Reads RFC 3339 with an optional fraction and `Z` or a numeric offset, to Unix milliseconds.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let head = bytes.get(..19)?;
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| head[at] != byte)
        || !matches!(head[10], b'T' | b't' | b' ')
    {
        return None;
    }
    let civil = Civil {
        year: digits(&head[0..4])?,
        month: digits(&head[5..7])?,
        day: digits(&head[8..10])?,
        hour: digits(&head[11..13])?,
        minute: digits(&head[14..16])?,
        second: digits(&head[17..19])?,
    };
    let mut rest = &bytes[19..];
    let mut millis = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if len == 0 {
            return None;
        }
        let mut kept = *b"000";
        let kept_len = len.min(3);
        kept[..kept_len].copy_from_slice(&fraction[..kept_len]);
        millis = i64::from(digits(&kept)?);
        rest = &fraction[len..];
    }
    let offset_seconds = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = i64::from(hours * 3600 + minutes * 60);
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    Some((civil.to_unix()? - offset_seconds) * 1000 + millis)
}

/// Whole seconds since the Unix epoch, rounded down.
pub fn unix_seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            -whole - i64::from(before.subsec_nanos() > 0)
        }
    }
}

/// Whole milliseconds since the Unix epoch; moments before it give zero.
pub fn unix_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The moment `unix_seconds` after (or, when negative, before) the Unix epoch.
pub fn system_time(unix_seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(unix_seconds.unsigned_abs());
    if unix_seconds >= 0 {
        UNIX_EPOCH + distance
    } else {
        UNIX_EPOCH - distance
    }
}

/// A moment in the proleptic Gregorian calendar, UTC.
struct Civil {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Civil {
    /// Splits a moment; days to year, month, day after Howard Hinnant's `civil_from_days`.
    fn from_unix(unix_seconds: i64) -> Self {
        let clamped = unix_seconds.clamp(*SHOWN_SECONDS.start(), *SHOWN_SECONDS.end());
        let second_of_day = narrow(clamped.rem_euclid(DAY_SECONDS));
        // Eras of 400 years count from 0000-03-01, so that a leap day ends its year.
        let days = clamped.div_euclid(DAY_SECONDS) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self {
            year: narrow(year),
            month: narrow(month),
            day: narrow(day_of_year - (153 * shifted_month + 2) / 5 + 1),
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    /// Joins the fields, or says `None` for a date that does not exist. A leap second (`:60`) is
    /// the first second of the next minute.
    fn to_unix(&self) -> Option<i64> {
        let leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let month_days = match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        let in_range = (1..=month_days).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !in_range {
            return None;
        }
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted_month = i64::from(if self.month > 2 {
            self.month - 3
        } else {
            self.month + 9
        });
        let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let second_of_day = self.hour * 3600 + self.minute * 60 + self.second;
        Some(days * DAY_SECONDS + i64::from(second_of_day))
    }

    fn put_year(&self, at: &mut [u8]) {
        put_two(&mut at[0..2], self.year / 100);
        put_two(&mut at[2..4], self.year % 100);
    }
}

/// The text of bytes that are ASCII.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("only ASCII is ever put in")
}

/// A field of a date: small, and never negative, since years are clamped to `0..=9999`.
fn narrow(field: i64) -> u32 {
    u32::try_from(field).expect("remainders and clamped years are small")
}

/// Writes a number below one hundred as two digits.
fn put_two(at: &mut [u8], value: u32) {
    at[0] = digit(value / 10);
    at[1] = digit(value);
}

/// The last decimal digit of a number.
fn digit(value: u32) -> u8 {
    b"0123456789"[(value % 10) as usize]
}

/// Reads up to nine ASCII digits.
fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u32::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_print_in_all_three_forms() {
        let table = [
            (
                0,
                "19700101T000000Z",
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "1970-01-01T00:00:00.000Z",
            ),
            (
                1_369_353_600,
                "20130524T000000Z",
                "Fri, 24 May 2013 00:00:00 GMT",
                "2013-05-24T00:00:00.000Z",
            ),
            (
                951_827_696,
                "20000229T123456Z",
                "Tue, 29 Feb 2000 12:34:56 GMT",
                "2000-02-29T12:34:56.000Z",
            ),
            (
                -1,
                "19691231T235959Z",
                "Wed, 31 Dec 1969 23:59:59 GMT",
                "1969-12-31T23:59:59.000Z",
            ),
        ];
        for (unix, amz, http, rfc3339) in table {
            assert_eq!(AmzDate::from_unix(unix).as_str(), amz);
            assert_eq!(AmzDate::parse(amz).unwrap().unix_seconds(), unix);
            assert_eq!(http_date(unix).as_str(), http);
            assert_eq!(rfc3339_millis(unix * 1000).as_str(), rfc3339);
            assert_eq!(parse_rfc3339(rfc3339), Some(unix * 1000));
            assert_eq!(unix_seconds(system_time(unix)), unix);
        }
        assert_eq!(AmzDate::from_unix(1_369_353_600).date_stamp(), "20130524");
        assert_eq!(
            parse_http_date("Fri, 24 May 2013 00:00:00 GMT"),
            Some(1_369_353_600)
        );
    }

    #[test]
    fn impossible_dates_are_refused() {
        for text in [
            "20130229T000000Z",
            "20130001T000000Z",
            "20131301T000000Z",
            "20130100T000000Z",
            "20130101T240000Z",
            "20130101T006000Z",
            "20130101T000061Z",
            "20130101 000000Z",
            "20130101T000000",
            "2013-01-01T00:00:00Z",
            "20130101T00000éZ",
            "",
        ] {
            assert_eq!(AmzDate::parse(text), None, "{text}");
        }
        for text in [
            "2013-01-01T00:00:00",
            "2013-01-01T00:00:00.Z",
            "2013-01-01T00:00:00+2500",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        assert_eq!(parse_http_date("yesterday"), None);
    }

    #[test]
    fn fractions_and_offsets_of_rfc3339_count() {
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.5Z"), Some(1500));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.123456Z"), Some(1123));
        assert_eq!(parse_rfc3339("1970-01-01T02:00:01+02:00"), Some(1000));
        assert_eq!(
            rfc3339_millis(1_000_000_000_123).as_str(),
            "2001-09-09T01:46:40.123Z"
        );
    }

    #[test]
    fn a_broken_clock_prints_something_and_does_not_panic() {
        assert_eq!(AmzDate::from_unix(i64::MAX).as_str(), "99991231T235959Z");
        assert_eq!(AmzDate::from_unix(i64::MIN).as_str(), "00000101T000000Z");
        let _ = (
            http_date(i64::MAX),
            http_date(i64::MIN),
            rfc3339_millis(i64::MAX),
        );
    }

    #[test]
    fn every_day_of_four_centuries_survives_a_round_trip() {
        for day in -40_000..110_000_i64 {
            let unix = day * DAY_SECONDS + 4711;
            let date = AmzDate::from_unix(unix);
            assert_eq!(AmzDate::parse(date.as_str()).unwrap().unix_seconds(), unix);
            if day >= 0 {
                assert_eq!(parse_http_date(http_date(unix).as_str()), Some(unix));
            }
        }
    }
}
