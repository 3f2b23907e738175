//! Figures as people read them: three digits and a unit.
//!
//! Tables, charts and verdicts share these, so that one figure looks the same everywhere.

const KIB: f64 = 1024.0;

/// A number with three significant digits: `0.985`, `12.3`, `1230`.
pub(crate) fn number(value: f64) -> String {
    let decimals = if value == 0.0 {
        0
    } else {
        match value.abs() {
            small if small < 0.000_95 => return format!("{value:.1e}"),
            small if small < 0.0095 => 5,
            small if small < 0.095 => 4,
            small if small < 0.9995 => 3,
            small if small < 9.995 => 2,
            small if small < 99.95 => 1,
            _ => 0,
        }
    };
    format!("{value:.decimals$}")
}

/// A count in at most six characters: `999`, `12.3k`, `4.56M`.
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1000.0, 9_999.5, &["", "k", "M", "G", "T"])
}

/// A count at the tick of an axis: `500`, `2k`, `100k`.
pub(crate) fn count_tick(value: f64) -> String {
    without_zeros(&scaled(value, 1000.0, 999.5, &["", "k", "M", "G", "T"]))
}

/// Bytes at the tick of an axis: `64 KiB`.
pub(crate) fn bytes_tick(value: f64) -> String {
    without_zeros(&bytes(value))
}

/// A number at the tick of an axis: `2.5`, `5000`.
pub(crate) fn number_tick(value: f64) -> String {
    without_zeros(&number(value))
}

/// A duration in nanoseconds at the tick of an axis: `5 ms`.
pub(crate) fn duration_tick(ns: f64) -> String {
    without_zeros(&duration(ns))
}

/// A figure without the zeros that end its decimals; its unit stays.
fn without_zeros(figure: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = figure.find(|c| !is_number(c)).unwrap_or(figure.len());
    let (number, unit) = figure.split_at(end);
    if number.contains('.') && !unit.starts_with('e') {
        let number = number.trim_end_matches('0').trim_end_matches('.');
        return format!("{number}{unit}");
    }
    figure.to_owned()
}

/// Bytes with a unit behind a space: `812 KiB`.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, KIB, 1023.5, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// The size of an object, exact where the unit allows: `1 KiB`, `500 KiB`, `1000 B`.
pub(crate) fn object_size(object_bytes: u64) -> String {
    let units = [" B", " KiB", " MiB", " GiB", " TiB"];
    let (mut whole, mut unit) = (object_bytes, 0);
    while whole >= 1024 && whole.is_multiple_of(1024) && unit + 1 < units.len() {
        whole /= 1024;
        unit += 1;
    }
    if whole < 10_000 {
        return format!("{whole}{}", units[unit]);
    }
    bytes(crate::results::exact(object_bytes))
}

/// Bytes per second as MiB/s, the unit behind left to the reader.
pub(crate) fn mebibytes(bytes_per_second: f64) -> String {
    number(bytes_per_second / (KIB * KIB))
}

/// A duration in nanoseconds, unit behind a space: `42.1 µs`, `1.23 s`.
pub(crate) fn duration(ns: f64) -> String {
    for (unit, ns_in_unit) in [("µs", 1e3), ("ms", 1e6)] {
        // What would round to four digits is better off in the next unit.
        if ns / ns_in_unit < 999.5 {
            return format!("{} {unit}", number(ns / ns_in_unit));
        }
    }
    format!("{} s", number(ns / 1e9))
}

/// A share of 0–1 in percent: `0.0125` is `1.25 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// A ratio with two decimals below ten: `2.13`, `0.98`, `13.2`.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        small if small < 0.0995 => format!("{small:.3}"),
        small if small < 9.995 => format!("{small:.2}"),
        large if large < 99.95 => format!("{large:.1}"),
        large => format!("{large:.0}"),
    }
}

fn scaled(value: f64, base: f64, stays_below: f64, units: &[&str]) -> String {
    let (mut scaled, mut unit) = (value, 0);
    let mut limit = stays_below;
    while scaled.abs() >= limit && unit + 1 < units.len() {
        scaled /= base;
        unit += 1;
        limit = base - 0.5;
    }
    // A number below a whole unit of bytes or requests needs no third digit.
    let text = if unit == 0 && scaled.fract() == 0.0 {
        format!("{scaled}")
    } else {
        number(scaled)
    };
    format!("{text}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_the_unit_that_suits_them() {
        for (shown, expected) in [
            (number(0.0), "0"),
            (number(0.000_5), "5.0e-4"),
            (number(0.012_345), "0.0123"),
            (number(0.9999), "1.00"),
            (number(9.999), "10.0"),
            (number(1234.5), "1234"),
            (count(950.0), "950"),
            (count(9_999.0), "9999"),
            (count(24_589.0), "24.6k"),
            (count(999_800.0), "1.00M"),
            (bytes(0.0), "0 B"),
            (bytes(230.0 * 1024.0), "230 KiB"),
            (bytes(1023.9), "1.00 KiB"),
            (object_size(1024), "1 KiB"),
            (object_size(512_000), "500 KiB"),
            (object_size(1000), "1000 B"),
            (object_size(1 << 20), "1 MiB"),
            (object_size(100_000_000), "95.4 MiB"),
            (count_tick(0.0), "0"),
            (count_tick(2_000.0), "2k"),
            (count_tick(250_000.0), "250k"),
            (bytes_tick(65_536.0), "64 KiB"),
            (number_tick(2.5), "2.5"),
            (number_tick(0.000_5), "5.0e-4"),
            (duration_tick(5e6), "5 ms"),
            (duration_tick(500e6), "500 ms"),
            (mebibytes(3.5 * 1024.0 * 1024.0), "3.50"),
            (duration(31_000.0), "31.0 µs"),
            (duration(999_600.0), "1.00 ms"),
            (duration(12_340_000.0), "12.3 ms"),
            (duration(1.5e9), "1.50 s"),
            (duration(83e9), "83.0 s"),
            (percent(0.0125), "1.25 %"),
            (ratio(2.134), "2.13"),
            (ratio(0.0456), "0.046"),
            (ratio(9.996), "10.0"),
            (ratio(123.4), "123"),
        ] {
            assert_eq!(shown, expected);
        }
    }
}
