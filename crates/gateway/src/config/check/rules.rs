//! Judges the `rules` of a cache layer: which objects are kept, how, and where.

use forebay_cache::{CacheSettings, Keep, Matching, Place, Policy, Rule};

use super::{
    Section, Wrong,
    cache::{check_coherence, check_page},
};
use crate::config::{
    raw::RawCacheRule,
    section::{Given, Rule as Range, quoted},
    value::ByteSize,
};

/// Rules of one cache: each is tried on every request that is no hit.
const RULES_MAX: usize = 256;
/// The largest object of S3 is 5 TiB; some services allow more.
const SIZE_BYTES_MAX: u64 = 1 << 50;

/// Judges the rules; what they leave out is as `otherwise` says of all objects.
pub(super) fn check_rules(
    table: &mut Section<'_, '_>,
    raw: Option<Vec<RawCacheRule>>,
    otherwise: &CacheSettings,
) -> Vec<Rule> {
    let raw = raw.unwrap_or_default();
    if raw.len() > RULES_MAX {
        let wrong = Wrong {
            value: format!("{} rules", raw.len()),
            allowed: &format!("at most {RULES_MAX}"),
            remedy: "say more with one rule: each takes several patterns",
        };
        table.fault("rules", wrong);
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let mut inner = table.inner(&format!("rules[{index}]"));
        let rule = check_rule(&mut inner, raw, otherwise);
        let everything = Matching::default();
        if let Some(earlier) = rules.iter().position(|rule| rule.matching == everything) {
            let wrong = Wrong {
                value: format!("rule {index}"),
                allowed: "objects that no earlier rule takes",
                remedy: &format!("rules[{earlier}] is for all objects: move it to the end"),
            };
            inner.fault("keys", wrong);
        }
        rules.push(rule);
    }
    rules
}

fn check_rule(table: &mut Section<'_, '_>, raw: RawCacheRule, otherwise: &CacheSettings) -> Rule {
    let RawCacheRule {
        buckets,
        prefix,
        keys,
        size_min,
        size_max,
        content_types,
        keep,
        page,
        place,
        coherence,
    } = raw;
    let matching = Matching {
        buckets: patterns(table, "buckets", buckets),
        prefix: table.text("prefix", prefix).filter(|p| !p.is_empty()),
        keys: patterns(table, "keys", keys),
        size_bytes: check_sizes(table, size_min, size_max),
        content_types: patterns(table, "content_types", content_types)
            .iter()
            .map(|pattern| pattern.to_ascii_lowercase())
            .collect(),
    };
    let keeps = [
        ("yes", Keep::Yes),
        ("no", Keep::No),
        ("pinned", Keep::Pinned),
    ];
    let places = [
        ("everywhere", Place::Everywhere),
        ("memory", Place::Memory),
        ("disk", Place::Disk),
    ];
    let policy = Policy {
        keep: table.choice("keep", keep, &keeps),
        page_bytes: match page {
            Some(page) => check_page(table, Some(page), otherwise.capacity_bytes),
            None => inherited(table, "page", &ByteSize(otherwise.page_bytes.get()), {
                otherwise.page_bytes
            }),
        },
        place: table.choice("place", place, &places),
        coherence: match coherence {
            Some(coherence) => check_coherence(&mut table.inner("coherence"), Some(coherence)),
            None => inherited(
                table,
                "coherence",
                &otherwise.coherence.mode().name(),
                otherwise.coherence,
            ),
        },
    };
    Rule { matching, policy }
}

/// Notes a value that a rule leaves to the layer.
fn inherited<T>(
    table: &mut Section<'_, '_>,
    key: &str,
    shown: &dyn std::fmt::Display,
    value: T,
) -> T {
    table.note(key, format!("(the layer's: {shown})"), Given::No);
    value
}

fn patterns(
    table: &mut Section<'_, '_>,
    key: &'static str,
    raw: Option<Vec<String>>,
) -> Vec<String> {
    let is_given = raw.is_some();
    let patterns = table.texts_or(key, raw, &[]);
    if is_given && (patterns.is_empty() || patterns.iter().any(String::is_empty)) {
        let shown: Vec<_> = patterns.iter().map(|text| quoted(text)).collect();
        let wrong = Wrong {
            value: format!("[{}]", shown.join(", ")),
            allowed: "texts, or patterns of them with `*` and `?`",
            remedy: "write a pattern such as \"*.parquet\", or leave the key out for all",
        };
        table.fault(key, wrong);
    }
    patterns
}

fn check_sizes(
    table: &mut Section<'_, '_>,
    min: Option<String>,
    max: Option<String>,
) -> Option<std::ops::RangeInclusive<u64>> {
    let is_given = min.is_some() || max.is_some();
    let whole = |default| Range {
        default,
        range: 0..=SIZE_BYTES_MAX,
    };
    let min = table.size("size_min", min, whole(0));
    let max = table.size("size_max", max, whole(SIZE_BYTES_MAX));
    if min > max {
        let wrong = Wrong {
            value: quoted(&ByteSize(min).to_string()),
            allowed: "at most size_max",
            remedy: "make size_min smaller or size_max larger: no object has such a size",
        };
        table.fault("size_min", wrong);
    }
    is_given.then_some(min..=max)
}
