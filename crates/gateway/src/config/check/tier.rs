//! Judges a tier layer: what goes to the hot store, and when it leaves.

use std::{collections::BTreeMap, time::Duration};

use forebay_tier::{Conditions, OnStop, Rule as TierRule, RulePlace, Space, TierSettings};

use super::{Form, Rule, Section, Wrong};
use crate::config::{
    StoreConfig, TierConfig,
    raw::{RawTier, RawTierRule},
    section::{Given, quoted},
    value::{GIB, MIB},
};

/// The largest object of one PUT (S3).
const OBJECT_BYTES_MAX: u64 = 64 * MIB;
/// What a hot store may hold is its own limit; this is for a slip of the pen.
const DIRTY_BYTES_MAX: u64 = 1 << 50;
const WEEK: Duration = Duration::from_hours(7 * 24);
const RULES_MAX: usize = 256;

/// Judges a tier whose cold store is `cold`.
pub(super) fn check_tier(
    table: &mut Section<'_, '_>,
    raw: RawTier,
    (cold, stores): (&str, &BTreeMap<String, StoreConfig>),
) -> Option<TierConfig> {
    let RawTier {
        hot,
        space,
        max_object_size,
        demote_after,
        dirty_max,
        oldest_dirty_max,
        moves_max,
        moves_per_second_max,
        on_stop,
        conditional_writes,
        redirect_min,
        rules,
    } = raw;
    let hot = check_hot(table, hot, (cold, stores));
    let space = check_space(table, space, cold);
    let usual = TierSettings::default();
    let object_bytes_max = table.size(
        "max_object_size",
        max_object_size,
        Rule {
            default: usual.object_bytes_max,
            range: 0..=OBJECT_BYTES_MAX,
        },
    );
    let spans = |default, least| Rule {
        default,
        range: least..=WEEK * 52,
    };
    let dirty = Rule {
        default: usual.dirty_bytes_max,
        range: MIB..=DIRTY_BYTES_MAX,
    };
    let moves = |default, most| Rule {
        default,
        range: 1..=most,
    };
    let moves_usual = u32::try_from(usual.moves_max).unwrap_or(1);
    let stops = [("leave", OnStop::Leave), ("drain", OnStop::Drain)];
    let conditions = [
        ("honoured", Conditions::Honoured),
        ("ignored", Conditions::Ignored),
    ];
    let a_second = Duration::from_secs(1);
    let settings = TierSettings {
        object_bytes_max,
        demote_after: table.span(
            "demote_after",
            demote_after,
            spans(usual.demote_after, Duration::ZERO),
        ),
        dirty_bytes_max: table.size("dirty_max", dirty_max, dirty),
        oldest_dirty_max: table.span(
            "oldest_dirty_max",
            oldest_dirty_max,
            spans(usual.oldest_dirty_max, a_second),
        ),
        moves_max: table.count("moves_max", moves_max, moves(moves_usual, 1024)) as usize,
        moves_per_second_max: check_pace(table, moves_per_second_max),
        on_stop: table.choice("on_stop", on_stop, &stops),
        conditions: table.choice("conditional_writes", conditional_writes, &conditions),
        redirect_bytes_min: check_redirect(table, redirect_min, (cold, stores)),
        rules: check_rules(table, rules, object_bytes_max),
        ..usual
    };
    if settings.demote_after >= settings.oldest_dirty_max {
        let wrong = Wrong {
            value: format!("{:?}", settings.oldest_dirty_max),
            allowed: "longer than demote_after",
            remedy: "make it longer: objects of that age are not late",
        };
        table.fault("oldest_dirty_max", wrong);
    }
    Some(TierConfig {
        hot: hot?,
        space: space?,
        settings,
    })
}

fn check_hot(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    (cold, stores): (&str, &BTreeMap<String, StoreConfig>),
) -> Option<String> {
    let able = |config: &StoreConfig| match config {
        StoreConfig::Log(_) | StoreConfig::Redis(_) => true,
        StoreConfig::S3(_)
        | StoreConfig::Fs(_)
        | StoreConfig::Mirror(_)
        | StoreConfig::Memory
        | StoreConfig::Null => false,
    };
    let Some(name) = table.text("hot", raw) else {
        table.missing("hot", "name a store of type \"log\" or \"redis\"");
        return None;
    };
    let remedy = "add a [stores.NAME] of type \"log\" (one gateway) or \"redis\" (many)";
    let allowed = match stores.get(&name) {
        Some(_) if name == cold => "another store than the route's",
        Some(_) if table.is_faulty_store(&name) => return None,
        Some(config) if able(config) => return Some(name),
        Some(_) => "a store that keeps what it acknowledges apart: type \"log\" or \"redis\"",
        None => "the name of a store",
    };
    let wrong = Wrong {
        value: quoted(&name),
        allowed,
        remedy,
    };
    table.fault("hot", wrong);
    None
}

fn check_space(table: &mut Section<'_, '_>, raw: Option<String>, cold: &str) -> Option<Space> {
    let given = Given::from(raw.is_some());
    let text = raw.unwrap_or_else(|| cold.to_owned());
    let form = Form {
        parse: |text| Space::parse(text).ok().map(|_| text.to_owned()),
        allowed: "1 to 128 letters, digits, dashes, underscores and dots",
        remedy: "name the space: what gateways that share these objects call it",
    };
    let text = table.parsed("space", &text, given, form)?;
    Space::parse(&text).ok()
}

fn check_pace(table: &mut Section<'_, '_>, raw: Option<i64>) -> Option<u32> {
    let Some(number) = raw else {
        table.note("moves_per_second_max", "(not set)", Given::No);
        return None;
    };
    let rule = Rule {
        default: 1,
        range: 1..=1_000_000,
    };
    Some(table.count("moves_per_second_max", Some(number), rule))
}

/// Only an S3 service has an address that a client can read from.
fn check_redirect(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    (cold, stores): (&str, &BTreeMap<String, StoreConfig>),
) -> Option<u64> {
    let Some(text) = raw else {
        table.note("redirect_min", "(not set)", Given::No);
        return None;
    };
    let is_s3 = matches!(stores.get(cold), Some(StoreConfig::S3(_)));
    if !is_s3 && !table.is_faulty_store(cold) {
        let wrong = Wrong {
            value: quoted(&text),
            allowed: "only before a store of type \"s3\"",
            remedy: "remove it: clients can't read from this store themselves",
        };
        table.fault("redirect_min", wrong);
    }
    let rule = Rule {
        default: MIB,
        range: 1..=DIRTY_BYTES_MAX,
    };
    Some(table.size("redirect_min", Some(text), rule))
}

fn check_rules(
    table: &mut Section<'_, '_>,
    raw: Option<Vec<RawTierRule>>,
    object_bytes_max: u64,
) -> Vec<TierRule> {
    let raw = raw.unwrap_or_default();
    if raw.len() > RULES_MAX {
        let wrong = Wrong {
            value: format!("{} rules", raw.len()),
            allowed: &format!("at most {RULES_MAX}"),
            remedy: "say more with one pattern",
        };
        table.fault("rules", wrong);
    }
    let rules = raw.into_iter().enumerate();
    let checked = rules.filter_map(|(index, raw)| {
        check_rule(
            &mut table.inner(&format!("rules[{index}]")),
            raw,
            object_bytes_max,
        )
    });
    checked.collect()
}

fn check_rule(
    table: &mut Section<'_, '_>,
    raw: RawTierRule,
    object_bytes_max: u64,
) -> Option<TierRule> {
    let RawTierRule {
        objects,
        place,
        max_object_size,
    } = raw;
    let Some(pattern) = table.text("objects", objects) else {
        table.missing(
            "objects",
            "say which: objects = \"BUCKET/KEY\", with `*` and `?`",
        );
        return None;
    };
    if !pattern.contains('/') && pattern != "*" {
        let wrong = Wrong {
            value: quoted(&pattern),
            allowed: "a bucket, a slash, and a key, with `*` and `?`",
            remedy: "write \"BUCKET/*\" for all of a bucket",
        };
        table.fault("objects", wrong);
    }
    let is_cold = table.choice("place", place, &[("hot", false), ("cold", true)]);
    let range = 0..=OBJECT_BYTES_MAX.min(GIB);
    let rule = Rule {
        default: object_bytes_max,
        range,
    };
    let bytes = table.size("max_object_size", max_object_size, rule);
    let place = if is_cold {
        RulePlace::Cold
    } else {
        RulePlace::Hot {
            object_bytes_max: bytes,
        }
    };
    Some(TierRule { pattern, place })
}
