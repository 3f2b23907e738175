//! What is done with an object: whether it is kept, in pages of what size, how stale, and where.
//!
//! The settings of a layer say it for all objects, rules for some: the first rule that matches an
//! object decides alone. A rule may ask for what is known only once the origin has answered, the
//! size and the type. Until then such a rule *may* match, and a request is planned so that
//! whatever it turns out to be is right ([`Policies::planned`]); what is kept is judged by all that
//! is known ([`Policies::of`]).
//!
//! Called by `layer` when a read is planned and by `version` when a record is made, which then
//! carries its policy. Pure.

use std::{ops::RangeInclusive, sync::Arc};

use forebay_s3::{bucket::BucketName, operation::ObjectId, wildcard};

use crate::settings::{CacheSettings, Coherence, Directives, PageBytes};

/// What is done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whether it is kept.
    pub keep: Keep,
    /// Size of its pages.
    pub page_bytes: PageBytes,
    /// How stale an answer may be.
    pub coherence: Coherence,
    /// Where its pages are kept.
    pub place: Place,
}

/// Whether an object is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Never: its reads pass.
    No,
    /// As long as there is room.
    #[default]
    Yes,
    /// Even when others need the room, within the quota of what is pinned.
    Pinned,
}

/// Where pages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// In memory, and on disk where the layer has one.
    #[default]
    Everywhere,
    /// In memory alone.
    Memory,
    /// On disk alone: memory is for others. Without a disk it is as [`Place::Everywhere`].
    Disk,
}

/// A policy and the objects that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The objects: all that is said here must be true of one.
    pub matching: Matching,
    /// What is done with them.
    pub policy: Policy,
}

/// Which objects a rule is for; what is not said is true of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matching {
    /// Patterns of buckets, of which one must match.
    pub buckets: Vec<String>,
    /// What the key must begin with.
    pub prefix: Option<String>,
    /// Patterns of keys, of which one must match.
    pub keys: Vec<String>,
    /// Sizes of the whole object in bytes.
    pub size_bytes: Option<RangeInclusive<u64>>,
    /// Patterns of `Content-Type`, in lower case and without parameters, of which one must match.
    pub content_types: Vec<String>,
}

/// What the origin's answer says of an object that rules may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub size_bytes: u64,
    /// The header's value; objects without one match no type.
    pub content_type: Option<&'a str>,
}

/// How a request is planned, as long as the size and the type are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// The object may be one that is kept.
    pub may_keep: bool,
    /// Each read has to ask the origin: the mode may be [`Coherence::Strict`].
    pub asks_anew: bool,
    /// The mode may be [`Coherence::Exclusive`].
    pub is_exclusive: bool,
    /// Size of the pages that a range is widened to.
    pub page_bytes: PageBytes,
}

/// The rules of a layer, in their order, and what holds where none matches.
#[derive(Debug)]
pub(crate) struct Policies {
    rules: Vec<(Matching, Arc<Policy>)>,
    otherwise: Arc<Policy>,
    /// Whether an object's `no-store` counts.
    pub origin_directives: Directives,
}

impl Matching {
    fn is_of_name(&self, object: &ObjectId) -> bool {
        let (bucket, key) = (object.bucket.as_str(), object.key.as_str());
        any_matches(&self.buckets, bucket)
            && self.prefix.as_ref().is_none_or(|p| key.starts_with(p))
            && any_matches(&self.keys, key)
    }

    fn asks_for_no_key(&self) -> bool {
        self.prefix.is_none() && self.keys.is_empty() && !self.asks_for_more()
    }

    fn asks_for_more(&self) -> bool {
        self.size_bytes.is_some() || !self.content_types.is_empty()
    }

    fn is_of_told(&self, told: Told<'_>) -> bool {
        let sizes = self.size_bytes.as_ref();
        sizes.is_none_or(|sizes| sizes.contains(&told.size_bytes))
            && (self.content_types.is_empty()
                || told.content_type.is_some_and(|value| {
                    let essence = value.split(';').next().unwrap_or_default();
                    any_matches(&self.content_types, &essence.trim().to_ascii_lowercase())
                }))
    }
}

/// Whether one of the patterns matches; no patterns match anything.
fn any_matches(patterns: &[String], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|p| wildcard::matches(p, text))
}

impl Planned {
    /// What `planned` allows for, and this policy as well. A range is widened to the pages of the
    /// first.
    fn allowing(planned: Option<Self>, policy: &Policy) -> Self {
        let before = planned.unwrap_or(Self {
            may_keep: false,
            asks_anew: false,
            is_exclusive: false,
            page_bytes: policy.page_bytes,
        });
        Self {
            may_keep: before.may_keep || policy.keep != Keep::No,
            asks_anew: before.asks_anew || policy.coherence == Coherence::Strict,
            is_exclusive: before.is_exclusive || policy.coherence == Coherence::Exclusive,
            ..before
        }
    }
}

impl Policies {
    pub(crate) fn new(settings: &CacheSettings) -> Self {
        let rules = settings.rules.iter();
        Self {
            rules: rules
                .map(|rule| (rule.matching.clone(), Arc::new(rule.policy)))
                .collect(),
            otherwise: Arc::new(settings.policy()),
            origin_directives: settings.origin_directives,
        }
    }

    /// The policy of an object of which all is known.
    pub(crate) fn of(&self, object: &ObjectId, told: Told<'_>) -> &Arc<Policy> {
        let rule = self
            .rules
            .iter()
            .find(|(matching, _)| matching.is_of_name(object) && matching.is_of_told(told));
        rule.map_or(&self.otherwise, |(_, policy)| policy)
    }

    /// How to plan a request for an object of which only the name is known.
    pub(crate) fn planned(&self, object: &ObjectId) -> Planned {
        let mut planned = None;
        for (matching, policy) in &self.rules {
            if matching.is_of_name(object) {
                let so_far = Planned::allowing(planned, policy);
                if !matching.asks_for_more() {
                    return so_far;
                }
                planned = Some(so_far);
            }
        }
        Planned::allowing(planned, &self.otherwise)
    }

    /// The policies that an object may have of which only the name is known.
    pub(crate) fn possible(&self, object: &ObjectId) -> impl Iterator<Item = &Policy> {
        let rules = self.rules.iter();
        let mut rules = rules.filter(|(matching, _)| matching.is_of_name(object));
        self.until(move || rules.next(), |matching| !matching.asks_for_more())
    }

    /// The modes that objects of a bucket may have; of all buckets that of objects without a rule.
    pub(crate) fn modes_of(&self, bucket: Option<&BucketName>) -> impl Iterator<Item = Coherence> {
        let is_of = move |matching: &Matching| {
            bucket.is_some_and(|bucket| any_matches(&matching.buckets, bucket.as_str()))
        };
        let mut rules = self
            .rules
            .iter()
            .filter(move |(matching, _)| is_of(matching));
        self.until(move || rules.next(), Matching::asks_for_no_key)
            .map(|policy| policy.coherence)
    }

    /// The policies of rules up to the first that surely matches; else that of no rule as well.
    fn until<'a>(
        &'a self,
        mut next: impl FnMut() -> Option<&'a (Matching, Arc<Policy>)>,
        surely: impl Fn(&Matching) -> bool,
    ) -> impl Iterator<Item = &'a Policy> {
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let rule = next();
            is_over = rule.is_none_or(|(matching, _)| surely(matching));
            Some(rule.map_or(&*self.otherwise, |(_, policy)| &**policy))
        })
    }

    /// Whether any object may be kept for as long as no write passes the gateway.
    pub(crate) fn has_exclusive(&self) -> bool {
        let policies = self.rules.iter().map(|(_, policy)| policy);
        policies
            .chain([&self.otherwise])
            .any(|policy| policy.coherence == Coherence::Exclusive)
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::contract::requests::object;

    use super::*;

    fn rule(matching: Matching, keep: Keep, coherence: Coherence) -> Rule {
        let policy = Policy {
            keep,
            coherence,
            ..CacheSettings::default().policy()
        };
        Rule { matching, policy }
    }

    fn policies(rules: Vec<Rule>) -> Policies {
        Policies::new(&CacheSettings {
            rules,
            ..CacheSettings::default()
        })
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_rule_is_for_objects_of_which_all_it_says_is_true() {
        let told = |size_bytes, content_type| Told {
            size_bytes,
            content_type,
        };
        let any = || Matching::default();
        let video = Some("Video/MP4; codecs=a");
        for (matching, object, told, expected) in [
            (any(), object("bucket", "k"), told(1, None), true),
            (
                Matching {
                    buckets: texts(&["logs-*", "bucket"]),
                    prefix: Some("a/".to_owned()),
                    keys: texts(&["*.parquet"]),
                    ..any()
                },
                object("logs-1", "a/x/y.parquet"),
                told(1, None),
                true,
            ),
            (
                Matching {
                    buckets: texts(&["logs-*"]),
                    ..any()
                },
                object("other", "k"),
                told(1, None),
                false,
            ),
            (
                Matching {
                    prefix: Some("a/".to_owned()),
                    ..any()
                },
                object("bucket", "b/a/"),
                told(1, None),
                false,
            ),
            (
                Matching {
                    size_bytes: Some(10..=20),
                    ..any()
                },
                object("bucket", "k"),
                told(20, None),
                true,
            ),
            (
                Matching {
                    size_bytes: Some(10..=20),
                    ..any()
                },
                object("bucket", "k"),
                told(21, None),
                false,
            ),
            (
                Matching {
                    content_types: texts(&["video/*"]),
                    ..any()
                },
                object("bucket", "k"),
                told(1, video),
                true,
            ),
            (
                Matching {
                    content_types: texts(&["video/*"]),
                    ..any()
                },
                object("bucket", "k"),
                told(1, None),
                false,
            ),
        ] {
            let shown = format!("{matching:?} {object:?} {told:?}");
            let policies = policies(vec![rule(matching, Keep::No, Coherence::Strict)]);
            let found = policies.of(&object, told).keep == Keep::No;
            assert_eq!(found, expected, "{shown}");
        }
    }

    #[test]
    fn a_plan_allows_for_every_rule_that_may_match_and_for_none_after_one_that_does() {
        let small = || Matching {
            size_bytes: Some(0..=10),
            ..Matching::default()
        };
        let bounded = CacheSettings::default().coherence;
        let planned = |rules| {
            let planned = policies(rules).planned(&object("bucket", "k"));
            (planned.may_keep, planned.asks_anew)
        };
        let (no, yes) = (Keep::No, Keep::Yes);
        assert_eq!(planned(vec![]), (true, false));
        let all = |keep, coherence| rule(Matching::default(), keep, coherence);
        assert_eq!(planned(vec![all(no, bounded)]), (false, false));
        let rules = vec![rule(small(), yes, bounded), all(no, bounded)];
        assert_eq!(planned(rules), (true, false), "small ones are kept");
        let rules = vec![rule(small(), no, bounded), all(yes, Coherence::Strict)];
        assert_eq!(planned(rules), (true, true));
        let rules = vec![all(no, bounded), rule(small(), yes, Coherence::Strict)];
        assert_eq!(planned(rules), (false, false), "the first decides alone");
    }

    #[test]
    fn the_first_rule_that_matches_decides_alone() {
        let policies = policies(vec![
            rule(Matching::default(), Keep::Pinned, Coherence::Immutable),
            rule(Matching::default(), Keep::No, Coherence::Exclusive),
        ]);
        let told = Told {
            size_bytes: 1,
            content_type: None,
        };
        let found = policies.of(&object("bucket", "k"), told);
        assert_eq!(
            (found.keep, found.coherence),
            (Keep::Pinned, Coherence::Immutable)
        );
        assert!(policies.has_exclusive(), "a mode that any rule names");
    }
}
