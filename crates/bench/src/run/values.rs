//! Values of the command line of `forebay bench run` that are more than a text or a number.

use std::{fmt, str::FromStr, time::Duration};

use crate::{quantity, wire::Address};

/// `[LABEL=]URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointArgument {
    /// The label, if one was given.
    pub label: Option<String>,
    /// Where it is.
    pub address: Address,
}

impl FromStr for EndpointArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, url) = split_label(text);
        let address = Address::parse(url).map_err(|error| error.to_string())?;
        Ok(Self {
            label: label.map(str::to_owned),
            address,
        })
    }
}

/// A label before an address: what is before the first `=`, if that is before the address.
fn split_label(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((label, rest)) if !label.is_empty() && !label.contains([':', '/']) => {
            (Some(label), rest)
        }
        _ => (None, text),
    }
}

/// `LABEL=ID:SECRET`.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialsArgument {
    /// Of which endpoint.
    pub label: String,
    /// The key's id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl fmt::Debug for CredentialsArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:***", self.label, self.id)
    }
}

impl FromStr for CredentialsArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (label, pair) = text.split_once('=')?;
            let (id, secret) = pair.split_once(':')?;
            let is_whole = !label.is_empty() && !id.is_empty() && !secret.is_empty();
            is_whole.then(|| Self {
                label: label.to_owned(),
                id: id.to_owned(),
                secret: secret.to_owned(),
            })
        };
        read().ok_or_else(|| "write LABEL=ID:SECRET".to_owned())
    }
}

/// `[LABEL=]URL-or-file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapArgument {
    /// Of which endpoint; of all, if none was given.
    pub label: Option<String>,
    /// Where the statistics are.
    pub place: String,
}

impl FromStr for TapArgument {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (label, place) = split_label(text);
        Ok(Self {
            label: label.map(str::to_owned),
            place: place.to_owned(),
        })
    }
}

/// A multiple such as `1/2` or `8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiple {
    over: u32,
    under: u32,
}

impl Multiple {
    pub(crate) fn of(self, bytes: u64) -> u64 {
        let product = u128::from(bytes) * u128::from(self.over) / u128::from(self.under);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

impl FromStr for Multiple {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches(['x', '×']);
        let (over, under) = text.split_once('/').unwrap_or((text, "1"));
        match (over.trim().parse(), under.trim().parse()) {
            (Ok(over @ 1..), Ok(under @ 1..)) => Ok(Self { over, under }),
            _ => Err("a multiple is a number or a fraction: 8, 1/2".to_owned()),
        }
    }
}

impl fmt::Display for Multiple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.under {
            1 => write!(f, "{}x", self.over),
            under => write!(f, "{}/{under}x", self.over),
        }
    }
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    match quantity::parse_size(text) {
        Some(bytes @ 1..) => Ok(bytes),
        _ => Err(format!("a size is {}", quantity::SIZE_ALLOWED)),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    match quantity::parse_time(text) {
        Some(time) if !time.is_zero() => Ok(time),
        _ => Err(format!("a time is {}", quantity::TIME_ALLOWED)),
    }
}

pub(super) fn time_or_none(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    quantity::parse_time(text).ok_or_else(|| format!("a time is {}", quantity::TIME_ALLOWED))
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_before_addresses() {
        for (text, label, shown) in [
            ("http://a", None, "http://a"),
            ("x=http://a:81", Some("x"), "http://a:81"),
            ("redis://u:p=q@a", None, "redis://a"),
        ] {
            let endpoint: EndpointArgument = text.parse().unwrap();
            assert_eq!(endpoint.label.as_deref(), label, "{text}");
            assert_eq!(endpoint.address.to_string(), shown);
        }
        let credentials: CredentialsArgument = "x=AKID:a/b=:c".parse().unwrap();
        assert_eq!(format!("{credentials:?}"), "x=AKID:***");
        assert_eq!(credentials.secret, "a/b=:c");
    }

    #[test]
    fn multiples_are_numbers_or_fractions() {
        for (text, shown, of_100) in [("1/2", "1/2x", 50), ("64x", "64x", 6400), ("1", "1x", 100)] {
            let multiple: Multiple = text.parse().unwrap();
            assert_eq!(
                (multiple.to_string().as_str(), multiple.of(100)),
                (shown, of_100)
            );
        }
        for text in ["", "0", "1/0", "-1", "a"] {
            assert!(text.parse::<Multiple>().is_err(), "{text}");
        }
    }
}
