//! Decides whether a stored version may answer a request at this moment.
//!
//! Called once a version is found, before any byte is read. Calls nothing: no clock, no I/O. The
//! caller passes ages, so each rule is one row of a table in the tests.
//!
//! Units: ages are milliseconds; what is told to clients is whole seconds (RFC 9111 §1.2.2).
//! Invariant: waiting never makes a version fresher.
//!
//! The age counts from the origin's answer, plus what the origin said of its own age (`Age`, when
//! it is a cache itself): RFC 9111 §4.2.3. Where this deviates from RFC 9111 is that the freshness
//! lifetime is the operator's, never the object's `Cache-Control` or `Expires`.

use std::time::Duration;

use crate::settings::Coherence;

/// Whether a version may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It may, for so many seconds more; `None` is for ever.
    Fresh {
        /// Whole seconds of freshness left.
        left_seconds: Option<i64>,
    },
    /// The origin has to be asked first.
    Stale,
}

/// Ages of a stored version, in milliseconds; negative ones count as 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    /// Since the origin last vouched for it.
    pub validated_ms: i64,
    /// Since it last answered.
    pub used_ms: i64,
}

/// Judges a version by its ages.
pub(crate) fn judge(coherence: Coherence, ages: Ages) -> Freshness {
    let Coherence::Bounded { ttl, tti } = coherence else {
        return Freshness::Fresh { left_seconds: None };
    };
    let left_ms = millis(ttl).saturating_sub(ages.validated_ms.max(0));
    let idle = tti.is_some_and(|tti| ages.used_ms.max(0) >= millis(tti));
    if left_ms <= 0 || idle {
        Freshness::Stale
    } else {
        Freshness::Fresh {
            left_seconds: Some(left_ms / 1000),
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_fresh_within_ttl_and_tti() {
        let bounded = |ttl_s, tti_s: Option<u64>| Coherence::Bounded {
            ttl: Duration::from_secs(ttl_s),
            tti: tti_s.map(Duration::from_secs),
        };
        let fresh = |left| Freshness::Fresh {
            left_seconds: Some(left),
        };
        for (coherence, validated_ms, used_ms, expected) in [
            (bounded(60, None), 0, 0, fresh(60)),
            (bounded(60, None), 59_999, 59_999, fresh(0)),
            (bounded(60, None), 60_000, 0, Freshness::Stale),
            (bounded(60, None), -5_000, 0, fresh(60)),
            (bounded(60, Some(5)), 10_000, 4_999, fresh(50)),
            (bounded(60, Some(5)), 10_000, 5_000, Freshness::Stale),
            (bounded(0, None), 0, 0, Freshness::Stale),
            (
                Coherence::Immutable,
                i64::MAX,
                i64::MAX,
                Freshness::Fresh { left_seconds: None },
            ),
        ] {
            let ages = Ages {
                validated_ms,
                used_ms,
            };
            assert_eq!(judge(coherence, ages), expected, "{coherence:?} {ages:?}");
        }
    }
}
