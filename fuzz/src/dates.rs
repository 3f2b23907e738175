//! The three date forms: a line with a date in any of them, a line with Unix milliseconds.

use forebay_s3::time::{AmzDate, http_date, parse_http_date, parse_rfc3339, rfc3339_millis};

use crate::input::Input;

/// The first second of the year 0 and the last of 9999.
const SHOWN_SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Printed dates read the same, and agree with an independent writer.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let text = input.text_line();
    if let Some(seconds) = parse_http_date(text) {
        assert_eq!(parse_http_date(http_date(seconds).as_str()), Some(seconds));
    }
    if let Some(date) = AmzDate::parse(text) {
        assert_eq!(date.as_str(), text);
        check_moment(date.unix_seconds() * 1000);
        // A leap second is the first second of the next minute, and printed so.
        if !text.ends_with("60Z") {
            assert_eq!(AmzDate::from_unix(date.unix_seconds()), date);
        }
    }
    if let Some(millis) = parse_rfc3339(text) {
        check_moment(millis);
    }
    if let Ok(millis) = input.text_line().parse() {
        check_moment(millis);
    }
}

fn check_moment(millis: i64) {
    let seconds = millis.div_euclid(1000);
    let shown_seconds = seconds.clamp(*SHOWN_SECONDS.start(), *SHOWN_SECONDS.end());
    let amz = AmzDate::from_unix(seconds);
    assert_eq!(amz.unix_seconds(), shown_seconds);
    assert_eq!(AmzDate::parse(amz.as_str()), Some(amz));

    let rfc3339 = rfc3339_millis(millis);
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    assert_eq!(digits(rfc3339.as_str())[..14], digits(amz.as_str()));
    let shown_millis = shown_seconds * 1000 + millis.rem_euclid(1000);
    assert_eq!(parse_rfc3339(rfc3339.as_str()), Some(shown_millis));

    // The other writer knows no years before 1970.
    if let Ok(unix_seconds) = u64::try_from(seconds)
        && SHOWN_SECONDS.contains(&seconds)
    {
        let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_seconds);
        assert_eq!(http_date(seconds).as_str(), httpdate::fmt_http_date(moment));
        assert_eq!(parse_http_date(http_date(seconds).as_str()), Some(seconds));
    }
}
