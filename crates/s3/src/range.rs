//! Byte ranges: half-open inside, inclusive only on the wire.
//!
//! S3 answers one range a request. A header that is no single `bytes` range is ignored, as
//! RFC 9110 §14.2 allows and S3 does: the answer is then the whole object with status 200.

use std::fmt;

/// Bytes `start..end` of an object; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The range `start..end`, or `None` when it would hold no byte.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Bytes in the range, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a ByteRange is never empty")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// The value of a `Content-Range` header for an object of `size_bytes`.
    pub fn content_range(self, size_bytes: u64) -> String {
        format!("bytes {}-{}/{size_bytes}", self.start, self.end - 1)
    }

    /// Reads a `Content-Range` with a known total: the range and the object's size.
    pub fn parse_content_range(text: &str) -> Option<(Self, u64)> {
        let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let size_bytes = parse_digits(size)?;
        let range = Self::new(parse_digits(first)?, parse_digits(last)?.checked_add(1)?)?;
        (range.end <= size_bytes).then_some((range, size_bytes))
    }
}

/// What a `Range` header asks for, before the object's size is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeHeader {
    /// `bytes=first-last`, both inclusive, `first <= last`.
    FromTo {
        /// First byte.
        first: u64,
        /// Last byte.
        last: u64,
    },
    /// `bytes=first-`.
    From {
        /// First byte.
        first: u64,
    },
    /// `bytes=-count`: the last `count` bytes.
    Suffix {
        /// Bytes asked for.
        count: u64,
    },
}

/// No byte of the object is in the range (S3: `InvalidRange`, status 416).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the requested range is not satisfiable")]
pub struct NotSatisfiable;

impl RangeHeader {
    /// Reads the value of a `Range` header; `None` when it is to be ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, spec) = text.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = spec.trim().split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", count) => Some(Self::Suffix {
                count: parse_digits(count)?,
            }),
            (first, "") => Some(Self::From {
                first: parse_digits(first)?,
            }),
            (first, last) => {
                let (first, last) = (parse_digits(first)?, parse_digits(last)?);
                (first <= last).then_some(Self::FromTo { first, last })
            }
        }
    }

    /// The bytes that an object of `size_bytes` has of this range.
    ///
    /// # Errors
    /// [`NotSatisfiable`] when it has none.
    pub fn resolve(self, size_bytes: u64) -> Result<ByteRange, NotSatisfiable> {
        let (start, end) = match self {
            Self::FromTo { first, last } => (first, last.saturating_add(1).min(size_bytes)),
            Self::From { first } => (first, size_bytes),
            Self::Suffix { count } => (size_bytes.saturating_sub(count), size_bytes),
        };
        ByteRange::new(start, end).ok_or(NotSatisfiable)
    }
}

impl fmt::Display for RangeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromTo { first, last } => write!(f, "bytes={first}-{last}"),
            Self::From { first } => write!(f, "bytes={first}-"),
            Self::Suffix { count } => write!(f, "bytes=-{count}"),
        }
    }
}

/// Digits only: `u64::from_str` would take a leading `+`.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_anything_else_ignored() {
        for (text, range) in [
            ("bytes=0-0", Some(RangeHeader::FromTo { first: 0, last: 0 })),
            ("bytes=0-", Some(RangeHeader::From { first: 0 })),
            (
                "Bytes = 5-9",
                Some(RangeHeader::FromTo { first: 5, last: 9 }),
            ),
            ("bytes=-5", Some(RangeHeader::Suffix { count: 5 })),
            ("bytes=9-5", None),
            ("bytes=0-1,3-4", None),
            ("bytes=", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("items=0-1", None),
            ("bytes=99999999999999999999-", None),
        ] {
            assert_eq!(RangeHeader::parse(text), range, "{text:?}");
        }
    }

    #[test]
    fn ranges_resolve_against_the_size() {
        for (text, size_bytes, expected) in [
            ("bytes=0-", 10, Some((0, 10))),
            ("bytes=2-4", 10, Some((2, 5))),
            ("bytes=2-400", 10, Some((2, 10))),
            ("bytes=10-", 10, None),
            ("bytes=-3", 10, Some((7, 10))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=-0", 10, None),
            ("bytes=0-0", 0, None),
            ("bytes=-1", 0, None),
            ("bytes=1-18446744073709551615", 10, Some((1, 10))),
        ] {
            let range = RangeHeader::parse(text).unwrap().resolve(size_bytes).ok();
            assert_eq!(
                range.map(|r| (r.start(), r.end())),
                expected,
                "{text} of {size_bytes}"
            );
        }
    }

    #[test]
    fn content_range_round_trips() {
        let range = ByteRange::new(2, 5).unwrap();
        assert_eq!(range.content_range(10), "bytes 2-4/10");
        assert_eq!(
            ByteRange::parse_content_range("bytes 2-4/10"),
            Some((range, 10))
        );
        for bad in [
            "bytes 2-4/*",
            "bytes */10",
            "bytes 4-2/10",
            "bytes 2-10/10",
            "2-4/10",
        ] {
            assert_eq!(ByteRange::parse_content_range(bad), None, "{bad}");
        }
    }
}
