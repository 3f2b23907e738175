//! Decides whether a stored version may answer a request at this moment.
//!
//! Called once a version is found, before any byte is read. Calls nothing: no clock, no I/O. The
//! caller passes ages, so each rule is one row of a table in the tests.
//!
//! Units: ages are milliseconds; what is told to clients is whole seconds (RFC 9111 §1.2.2).
//! Invariant: waiting never makes a version fresher, nor more usable when stale.
//!
//! The age counts from the moment the origin was asked, plus what the origin said of its own age
//! (`Age`, when it is a cache itself): RFC 9111 §4.2.3. Where this deviates from RFC 9111 is that
//! the freshness lifetime, and for how long something stale may be used (RFC 5861), is the
//! operator's choice, never the object's `Cache-Control` or `Expires`.

use std::time::Duration;

use crate::settings::{Coherence, StaleUse};

/// Whether a version may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It may, for so many seconds more; `None` is for ever.
    Fresh {
        /// Whole seconds of freshness left.
        left_seconds: Option<i64>,
    },
    /// The origin has to be asked first, but for what is said here.
    Stale(Stale),
}

/// How a stale version may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stale {
    /// Whole seconds of freshness left: 0 or fewer, the begun second counted.
    pub left_seconds: i64,
    /// It may answer while the origin is asked.
    pub while_revalidate: bool,
    /// It may answer once the origin was asked and has failed.
    pub if_error: bool,
}

/// The moment at which stored versions are judged, in milliseconds of the layer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub now_ms: i64,
    /// Since when all that other gateways write is heard of: long past where nobody else writes,
    /// and yet to come while they are not heard.
    pub heard_since_ms: i64,
}

/// What there is to judge a stored version by. Milliseconds; negative ages count as 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    /// Since the origin last vouched for it.
    pub validated_ms: i64,
    /// Since it last answered.
    pub used_ms: i64,
    /// What speaks against it.
    pub against: Against,
}

/// What speaks against a version, whatever its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// Nothing.
    Nothing,
    /// The origin has since refused to say whether it is current.
    Refused,
    /// When the origin last vouched for it, a write of unknown outcome might still have come.
    Doubt,
    /// When the origin last vouched for it, what other gateways wrote was not heard of.
    Unheard,
    /// It is of an earlier run of the gateway, and the origin has not vouched for it in this one:
    /// what was written meanwhile nobody knows.
    Restored,
}

/// Judges a version by its ages.
pub(crate) fn judge(coherence: Coherence, ages: Ages) -> Freshness {
    if ages.against == Against::Restored {
        return Freshness::Stale(Stale::default());
    }
    let (ttl, tti, stale) = match coherence {
        Coherence::Exclusive => {
            return match ages.against {
                Against::Nothing => Freshness::Fresh { left_seconds: None },
                Against::Refused | Against::Doubt | Against::Unheard | Against::Restored => {
                    Freshness::Stale(Stale::default())
                }
            };
        }
        Coherence::Immutable => return Freshness::Fresh { left_seconds: None },
        Coherence::Strict => return Freshness::Stale(Stale::default()),
        Coherence::Bounded { ttl, tti, stale } => (ttl, tti, stale),
    };
    let ttl_left_ms = millis(ttl).saturating_sub(ages.validated_ms.max(0));
    let used_left_ms = tti.map(|tti| millis(tti).saturating_sub(ages.used_ms.max(0)));
    let is_idle = used_left_ms.is_some_and(|left_ms| left_ms <= 0);
    if ttl_left_ms > 0 && !is_idle {
        let left_seconds = Some(ttl_left_ms / 1000);
        return Freshness::Fresh { left_seconds };
    }
    let left_ms = ttl_left_ms.min(used_left_ms.unwrap_or(i64::MAX));
    Freshness::Stale(usable(stale, left_ms, ages.against))
}

fn usable(stale: StaleUse, left_ms: i64, against: Against) -> Stale {
    let within = |limit| against != Against::Refused && left_ms.saturating_add(millis(limit)) > 0;
    Stale {
        left_seconds: left_ms.div_euclid(1000),
        while_revalidate: within(stale.while_revalidate),
        if_error: within(stale.if_error),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Freshness = Freshness::Stale(Stale {
        left_seconds: 0,
        while_revalidate: false,
        if_error: false,
    });
    const FOR_EVER: Freshness = Freshness::Fresh { left_seconds: None };

    fn ages(validated_ms: i64, used_ms: i64, against: Against) -> Ages {
        Ages {
            validated_ms,
            used_ms,
            against,
        }
    }

    fn bounded(ttl_s: u64, idle_s: Option<u64>, stale_s: (u64, u64)) -> Coherence {
        Coherence::Bounded {
            ttl: Duration::from_secs(ttl_s),
            tti: idle_s.map(Duration::from_secs),
            stale: StaleUse {
                while_revalidate: Duration::from_secs(stale_s.0),
                if_error: Duration::from_secs(stale_s.1),
            },
        }
    }

    #[test]
    fn a_version_is_fresh_within_ttl_and_tti() {
        let bounded = |ttl_s, idle_s| bounded(ttl_s, idle_s, (0, 0));
        let fresh = |left| Freshness::Fresh {
            left_seconds: Some(left),
        };
        let (long, none) = (i64::MAX, Against::Nothing);
        for (coherence, ages, expected) in [
            (bounded(60, None), ages(0, 0, none), fresh(60)),
            (bounded(60, None), ages(59_999, 59_999, none), fresh(0)),
            (bounded(60, None), ages(60_000, 0, none), NO),
            (bounded(60, None), ages(-5_000, 0, none), fresh(60)),
            (bounded(60, Some(5)), ages(10_000, 4_999, none), fresh(50)),
            (bounded(60, Some(5)), ages(10_000, 5_000, none), NO),
            (bounded(0, None), ages(0, 0, none), NO),
            (Coherence::Strict, ages(0, 0, none), NO),
            (Coherence::Immutable, ages(long, long, none), FOR_EVER),
            (Coherence::Immutable, ages(0, 0, Against::Doubt), FOR_EVER),
            (Coherence::Exclusive, ages(long, long, none), FOR_EVER),
            (Coherence::Immutable, ages(0, 0, Against::Unheard), FOR_EVER),
            (bounded(60, None), ages(0, 0, Against::Unheard), fresh(60)),
            (Coherence::Exclusive, ages(0, 0, Against::Doubt), NO),
            (Coherence::Exclusive, ages(0, 0, Against::Unheard), NO),
            (Coherence::Exclusive, ages(0, 0, Against::Refused), NO),
            (Coherence::Exclusive, ages(0, 0, Against::Restored), NO),
            (Coherence::Immutable, ages(0, 0, Against::Restored), NO),
            (bounded(60, None), ages(0, 0, Against::Restored), NO),
        ] {
            assert_eq!(judge(coherence, ages), expected, "{coherence:?} {ages:?}");
        }
    }

    #[test]
    fn stale_use_ends_at_its_bound_and_with_a_refusal() {
        let found = |left_seconds, while_revalidate, if_error| {
            Freshness::Stale(Stale {
                left_seconds,
                while_revalidate,
                if_error,
            })
        };
        let coherence = bounded(60, Some(20), (5, 30));
        let (none, refused) = (Against::Nothing, Against::Refused);
        for (ages, expected) in [
            (ages(60_000, 0, none), found(0, true, true)),
            (ages(60_001, 0, none), found(-1, true, true)),
            (ages(64_999, 0, none), found(-5, true, true)),
            (ages(65_000, 0, none), found(-5, false, true)),
            (ages(89_999, 0, none), found(-30, false, true)),
            (ages(90_000, 0, none), found(-30, false, false)),
            (ages(60_000, 0, refused), found(0, false, false)),
            // Idle: the bound counts from when that made it stale.
            (ages(24_999, 24_999, none), found(-5, true, true)),
            (ages(25_000, 25_000, none), found(-5, false, true)),
            (
                ages(i64::MAX, i64::MAX, none),
                found(-9_223_372_036_854_756, false, false),
            ),
        ] {
            assert_eq!(judge(coherence, ages), expected, "{ages:?}");
        }
    }
}
