//! What an operator chooses about answers that are kept whole.
//!
//! What is usual, and why:
//! - S3 promises that a listing shows every write that was acknowledged before it. Only where each
//!   write passes this gateway can a kept listing promise the same, so `exclusive` keeps listings
//!   until a write, and no other mode keeps any unless told to.
//! - `ListBuckets` is kept nowhere unless told to: buckets of other routes are in it, whose writes
//!   this cache does not see.
//! - A 404 of an object is no worse for its second than an object is for its ttl, so every mode
//!   remembers it but `strict`, which answers nothing without asking.

use std::time::Duration;

use crate::settings::Coherence;

use super::name::Kind;

/// What a cache keeps besides objects, each operation by a rule of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSettings {
    /// Of `ListObjects`, version 1.
    pub list_objects: Lasting,
    /// Of `ListObjectsV2`.
    pub list_objects_v2: Lasting,
    /// Of `ListObjectVersions`.
    pub list_object_versions: Lasting,
    /// Of `HeadBucket`.
    pub head_bucket: Lasting,
    /// Of `ListBuckets`.
    pub list_buckets: Lasting,
    /// How long the origin's 404 for an object is remembered, [`Self::NEGATIVE_TTL_MAX`] at most;
    /// zero is not at all.
    pub negative_ttl: Duration,
}

/// How long answers to an operation are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lasting {
    /// As is usual in the cache's mode: `exclusive` keeps listings of objects and `HeadBucket`
    /// until a write, and nothing else is kept.
    #[default]
    Usual,
    /// Not at all.
    Off,
    /// For a while, in every mode but `strict`.
    For {
        /// Time to live, counted from when the origin was asked.
        ttl: Duration,
        /// Time to idle, counted from the last use.
        tti: Option<Duration>,
    },
}

/// For how long an answer may be used, as milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// `None` is until a write.
    pub ttl_ms: Option<i64>,
    pub tti_ms: Option<i64>,
}

impl KeptSettings {
    /// Longest time that a missing object is remembered: who waits for it to appear asks about as
    /// often.
    pub const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(1);

    /// For how long answers of this kind are kept, where objects have these modes; `None` is not at
    /// all.
    pub(crate) fn lifetime(
        &self,
        kind: Kind,
        mut modes: impl Iterator<Item = Coherence>,
    ) -> Option<Lifetime> {
        let lasting = match kind {
            Kind::ListBuckets => self.list_buckets,
            Kind::HeadBucket => self.head_bucket,
            Kind::ListObjects => self.list_objects,
            Kind::ListObjectsV2 => self.list_objects_v2,
            Kind::ListObjectVersions => self.list_object_versions,
        };
        let lifetime = match lasting {
            Lasting::Off => return None,
            Lasting::For { ttl, tti } => Lifetime {
                ttl_ms: Some(millis(ttl)),
                tti_ms: tti.map(millis),
            },
            Lasting::Usual => Lifetime {
                ttl_ms: None,
                tti_ms: None,
            },
        };
        let is_allowed = |mode| match mode {
            Coherence::Strict => false,
            Coherence::Bounded { .. } | Coherence::Immutable => lifetime.ttl_ms.is_some(),
            Coherence::Exclusive => lifetime.ttl_ms.is_some() || kind != Kind::ListBuckets,
        };
        (lifetime.ttl_ms != Some(0) && modes.all(is_allowed)).then_some(lifetime)
    }

    /// For how many milliseconds a 404 of an object is remembered; 0 is not at all.
    pub(crate) fn negative_ms(&self, coherence: Coherence) -> i64 {
        let ttl = self.negative_ttl.min(Self::NEGATIVE_TTL_MAX);
        millis(match coherence {
            Coherence::Strict => Duration::ZERO,
            Coherence::Bounded { ttl: longest, .. } => ttl.min(longest),
            Coherence::Exclusive | Coherence::Immutable => ttl,
        })
    }
}

impl Default for KeptSettings {
    fn default() -> Self {
        Self {
            list_objects: Lasting::Usual,
            list_objects_v2: Lasting::Usual,
            list_object_versions: Lasting::Usual,
            head_bucket: Lasting::Usual,
            list_buckets: Lasting::Usual,
            negative_ttl: Self::NEGATIVE_TTL_MAX,
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StaleUse;

    const KINDS: [Kind; 5] = [
        Kind::ListBuckets,
        Kind::HeadBucket,
        Kind::ListObjects,
        Kind::ListObjectsV2,
        Kind::ListObjectVersions,
    ];

    fn bounded(ttl: Duration) -> Coherence {
        Coherence::Bounded {
            ttl,
            tti: None,
            stale: StaleUse::default(),
        }
    }

    #[test]
    fn only_exclusive_keeps_listings_unless_told_to_and_strict_keeps_none() {
        let usual = KeptSettings::default();
        let second = Duration::from_secs(1);
        let told = Lasting::For {
            ttl: second,
            tti: None,
        };
        let all = KeptSettings {
            list_objects: told,
            list_objects_v2: told,
            list_object_versions: told,
            head_bucket: told,
            list_buckets: told,
            ..usual
        };
        for kind in KINDS {
            for mode in [Coherence::Strict, Coherence::Immutable, bounded(second)] {
                assert_eq!(
                    usual.lifetime(kind, [mode].into_iter()),
                    None,
                    "{kind:?} {mode:?}"
                );
            }
            let kept = usual.lifetime(kind, [Coherence::Exclusive].into_iter());
            assert_eq!(kept.is_some(), kind != Kind::ListBuckets, "{kind:?}");
            assert_eq!(
                all.lifetime(kind, [Coherence::Strict].into_iter()),
                None,
                "{kind:?}"
            );
            let mixed = [Coherence::Exclusive, bounded(second)].into_iter();
            assert_eq!(usual.lifetime(kind, mixed), None, "{kind:?}");
            for mode in [Coherence::Exclusive, Coherence::Immutable, bounded(second)] {
                let expected = Some(Lifetime {
                    ttl_ms: Some(1000),
                    tti_ms: None,
                });
                assert_eq!(
                    all.lifetime(kind, [mode].into_iter()),
                    expected,
                    "{kind:?} {mode:?}"
                );
            }
        }
    }

    #[test]
    fn a_404_is_remembered_for_a_second_at_most_and_no_longer_than_an_object() {
        let settings = |negative_ttl| KeptSettings {
            negative_ttl,
            ..Default::default()
        };
        let ms = Duration::from_millis;
        for (negative_ttl, mode, expected) in [
            (ms(1000), Coherence::Strict, 0),
            (ms(1000), Coherence::Exclusive, 1000),
            (ms(1000), Coherence::Immutable, 1000),
            (ms(1000), bounded(ms(60_000)), 1000),
            (ms(1000), bounded(ms(300)), 300),
            (ms(200), bounded(ms(300)), 200),
            (ms(0), bounded(ms(300)), 0),
            (ms(90_000), bounded(ms(60_000)), 1000),
        ] {
            let actual = settings(negative_ttl).negative_ms(mode);
            assert_eq!(actual, expected, "{negative_ttl:?} {mode:?}");
        }
    }
}
