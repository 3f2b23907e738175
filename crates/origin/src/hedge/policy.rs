//! Decides whether, and when, a read is sent a second time.
//!
//! | what is known | decision |
//! |---|---|
//! | too few reads of its kind at its endpoint | not yet |
//! | too many requests fail, or all reads of its kind are slow | suppressed |
//! | it was drawn for the control arm | never |
//! | else | after the time that [`HedgeSettings::share`] of reads are beyond |
//!
//! In this order, so that the control arm has its share of exactly those reads that would have
//! been hedged, and its latencies can be compared with theirs.
//!
//! Pure: no clock, no random source, no I/O.

use std::time::Duration;

use forebay_s3::{
    operation::{Operation, ReadObject},
    range::RangeHeader,
};
use forebay_telemetry::hedge::{Delays, Suppressed};
use http::Method;

use crate::settings::HedgeSettings;

/// Ranges up to this are small. 64 KiB: what a store sends with the head in one go.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Ranges up to this are of medium size. 1 MiB: a page of the cache, and a stripe of many stores.
const MEDIUM_BYTES_MAX: u64 = 1024 * 1024;

/// Reads whose times to first byte are alike: an operation, and how much it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Head,
    GetSmall,
    GetMedium,
    GetLarge,
    /// The whole object, or the rest of it from some byte on: nobody knows how much that is.
    GetWhole,
}

impl Kind {
    pub(crate) const COUNT: usize = 5;

    /// The kind of a request that may be hedged.
    ///
    /// Those are the reads of objects. What a listing costs depends on what it lists far more than
    /// on who is asked, and it costs much; and the rest is too rare to be known.
    pub(crate) fn of(operation: &Operation, method: &Method) -> Option<Self> {
        if let Operation::GetObject(read) = operation {
            return (*method == Method::GET).then(|| Self::of_get(read));
        }
        matches!(operation, Operation::HeadObject(_)).then_some(Self::Head)
    }

    fn of_get(read: &ReadObject) -> Self {
        let bytes = match read.range {
            Some(RangeHeader::FromTo { first, last }) => (last - first).saturating_add(1),
            Some(RangeHeader::Suffix { count }) => count,
            Some(RangeHeader::From { .. }) | None => return Self::GetWhole,
        };
        if bytes <= SMALL_BYTES_MAX {
            Self::GetSmall
        } else if bytes <= MEDIUM_BYTES_MAX {
            Self::GetMedium
        } else {
            Self::GetLarge
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Head => 0,
            Self::GetSmall => 1,
            Self::GetMedium => 2,
            Self::GetLarge => 3,
            Self::GetWhole => 4,
        }
    }

    /// Tells the metric of this kind how long a read waits for its hedge.
    pub(crate) fn show_delay(self, delays: &Delays, delay: Duration) {
        let gauge = match self {
            Self::Head => &delays.head,
            Self::GetSmall => &delays.get_small,
            Self::GetMedium => &delays.get_medium,
            Self::GetLarge => &delays.get_large,
            Self::GetWhole => &delays.get_whole,
        };
        gauge.set(delay.as_secs_f64());
    }
}

/// Why a read is not hedged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Control,
    Samples,
    Budget,
    Failures,
    Slowdown,
    NoOther,
}

impl Reason {
    pub(crate) fn count(self, suppressed: &Suppressed) {
        let counter = match self {
            Self::Control => &suppressed.control,
            Self::Samples => &suppressed.samples,
            Self::Budget => &suppressed.budget,
            Self::Failures => &suppressed.failures,
            Self::Slowdown => &suppressed.slowdown,
            Self::NoOther => &suppressed.no_other,
        };
        counter.inc();
    }
}

/// What is known when a read begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// What the estimator of its endpoint and kind says.
    pub threshold: Option<Duration>,
    /// What is wrong with the origin, if anything.
    pub trouble: Option<Reason>,
    /// Drawn at random for this read, 0 to 1.
    pub draw: f64,
}

/// What to do about a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Keep it from being hedged, and measure.
    Control,
    /// Measure only: too little is known.
    NotYet,
    /// Measure only: a second request would add to what is wrong.
    Suppressed(Reason),
    /// Send it again elsewhere once this has passed without an answer, and measure.
    HedgeAfter(Duration),
}

/// Decides what to do about a read.
pub(crate) fn decide(facts: Facts, settings: &HedgeSettings) -> Decision {
    let Some(threshold) = facts.threshold else {
        return Decision::NotYet;
    };
    if let Some(trouble) = facts.trouble {
        return Decision::Suppressed(trouble);
    }
    if facts.draw < settings.control_share {
        return Decision::Control;
    }
    Decision::HedgeAfter(threshold.max(settings.delay_min))
}

#[cfg(test)]
mod tests {
    use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};

    use super::*;

    #[test]
    fn a_read_is_hedged_unless_something_speaks_against_it() {
        let settings = HedgeSettings::default();
        let (slow, quick) = (Duration::from_millis(30), Duration::from_micros(40));
        let facts = Facts {
            threshold: Some(slow),
            trouble: None,
            draw: 0.5,
        };
        let rows = [
            (facts, Decision::HedgeAfter(slow)),
            (
                Facts {
                    threshold: Some(quick),
                    ..facts
                },
                Decision::HedgeAfter(settings.delay_min),
            ),
            (
                Facts {
                    draw: 0.0999,
                    ..facts
                },
                Decision::Control,
            ),
            (Facts { draw: 0.1, ..facts }, Decision::HedgeAfter(slow)),
            (
                Facts {
                    trouble: Some(Reason::Failures),
                    draw: 0.0,
                    ..facts
                },
                Decision::Suppressed(Reason::Failures),
            ),
            (
                Facts {
                    threshold: None,
                    trouble: Some(Reason::Slowdown),
                    draw: 0.0,
                },
                Decision::NotYet,
            ),
        ];
        for (facts, expected) in rows {
            assert_eq!(decide(facts, &settings), expected, "{facts:?}");
        }
        let no_control = HedgeSettings {
            control_share: 0.0,
            ..settings
        };
        let first = Facts { draw: 0.0, ..facts };
        assert_eq!(decide(first, &no_control), Decision::HedgeAfter(slow));
    }

    #[test]
    fn reads_of_objects_are_told_apart_by_what_they_ask_for() {
        let object = || ObjectId {
            bucket: BucketName::parse("bucket").unwrap(),
            key: ObjectKey::parse("key").unwrap(),
            version: None,
        };
        let read = |range: &str| ReadObject {
            object: object(),
            range: RangeHeader::parse(range),
            part_number: None,
        };
        let get = |range| Kind::of(&Operation::GetObject(read(range)), &Method::GET);
        let rows = [
            ("bytes=0-0", Kind::GetSmall),
            ("bytes=100-65635", Kind::GetSmall),
            ("bytes=100-65636", Kind::GetMedium),
            ("bytes=0-1048575", Kind::GetMedium),
            ("bytes=0-1048576", Kind::GetLarge),
            ("bytes=-100", Kind::GetSmall),
            ("bytes=5-", Kind::GetWhole),
            ("", Kind::GetWhole),
        ];
        for (range, expected) in rows {
            assert_eq!(get(range), Some(expected), "{range:?}");
        }
        let head = Operation::HeadObject(read(""));
        assert_eq!(Kind::of(&head, &Method::HEAD), Some(Kind::Head));
        let put = Operation::PutObject(object());
        assert_eq!(Kind::of(&put, &Method::PUT), None);
    }
}
