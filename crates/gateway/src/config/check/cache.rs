//! Judges a cache layer: how much memory it takes, how stale its answers may be.

use forebay_cache::{CacheSettings, Coherence, Directives, KeptSettings, PageBytes, StaleUse};

use super::{
    Rule, Section, Surroundings, Wrong,
    disk::check_disk,
    kept::{RawKept, check_kept},
    rules::check_rules,
    server::seconds,
    shown_bytes,
};
use crate::config::{
    raw::{RawBounded, RawCache, RawCoherence, RawNoSettings},
    section::{Given, quoted},
    value::{ByteSize, MIB, Percent, Span},
};

/// Share of the machine's memory that a cache takes unless told otherwise.
const CACHE_SHARE_DEFAULT: Percent = Percent(25);
/// Below this a cache holds less than a few pages.
pub(super) const CACHE_BYTES_MIN: u64 = 8 * MIB;

/// How much longer than its ttl something may be used on purpose: a week. Longer than any outage
/// that nobody mends, and short of forgetting that it is on.
const STALE_SECONDS_MAX: u64 = 7 * 24 * 3600;

pub(super) fn check_cache(
    table: &mut Section<'_, '_>,
    raw: RawCache,
    surroundings: &Surroundings,
) -> CacheSettings {
    let RawCache {
        memory,
        page,
        disk,
        coherence,
        client_directives,
        origin_directives,
        rules,
        list_objects,
        list_objects_v2,
        list_object_versions,
        head_bucket,
        list_buckets,
        negative_ttl,
    } = raw;
    let kept = RawKept {
        list_objects,
        list_objects_v2,
        list_object_versions,
        head_bucket,
        list_buckets,
        negative_ttl,
    };
    let capacity_bytes = check_cache_memory(table, memory, surroundings);
    let page_bytes = check_page(table, page, capacity_bytes);
    let coherence = check_coherence(&mut table.inner("coherence"), coherence);
    let words = [
        ("honour", Directives::Honour),
        ("ignore", Directives::Ignore),
    ];
    let mut settings = CacheSettings {
        capacity_bytes,
        page_bytes,
        disk: None,
        coherence,
        rules: Vec::new(),
        kept: KeptSettings::default(),
        client_directives: table.choice("client_directives", client_directives, &words),
        origin_directives: table.choice("origin_directives", origin_directives, &words),
    };
    settings.rules = check_rules(table, rules, &settings);
    settings.kept = check_kept(table, kept, &settings);
    settings.disk = check_disk(table, disk, &settings);
    settings
}

pub(super) fn check_page(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    capacity_bytes: u64,
) -> PageBytes {
    let usual = PageBytes::DEFAULT;
    let range = PageBytes::MIN.get()..=PageBytes::MAX.get();
    let bytes = table.size(
        "page",
        raw,
        Rule {
            default: usual.get(),
            range,
        },
    );
    let Some(page) = PageBytes::new(bytes) else {
        let wrong = Wrong {
            value: quoted(&ByteSize(bytes).to_string()),
            allowed: "a power of two from 4KiB to 16MiB",
            remedy: &format!("write {}", ByteSize(bytes.next_power_of_two())),
        };
        table.fault("page", wrong);
        return usual;
    };
    if bytes > capacity_bytes / 8 {
        let wrong = Wrong {
            value: quoted(&ByteSize(bytes).to_string()),
            allowed: "at most an eighth of the cache's memory",
            remedy: "make the page smaller or the memory larger",
        };
        table.fault("page", wrong);
    }
    page
}

fn check_cache_memory(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    surroundings: &Surroundings,
) -> u64 {
    let machine = surroundings.memory_bytes;
    let given = Given::from(raw.is_some());
    let text = raw.unwrap_or_else(|| CACHE_SHARE_DEFAULT.to_string());
    let share = Percent::parse(&text).map(|share| share.of(machine));
    let bytes = share.or_else(|| ByteSize::parse(&text).map(|size| size.0));
    table.note("memory", quoted(&text), given);
    // A share of a tiny machine is raised to the least; a size is taken at its word.
    let bytes = if share.is_some() {
        bytes.map(|b| b.max(CACHE_BYTES_MIN))
    } else {
        bytes
    };
    match bytes {
        Some(bytes) if bytes >= CACHE_BYTES_MIN && bytes <= machine.max(CACHE_BYTES_MIN) => bytes,
        Some(_) | None => {
            let wrong = Wrong {
                value: quoted(&text),
                allowed: &format!(
                    "{} to {}, the memory of this machine, or a share of it",
                    ByteSize(CACHE_BYTES_MIN),
                    shown_bytes(machine)
                ),
                remedy: "write a size such as \"2GiB\" or a share such as \"25%\"",
            };
            table.fault("memory", wrong);
            CACHE_SHARE_DEFAULT.of(machine).max(CACHE_BYTES_MIN)
        }
    }
}

pub(super) fn check_coherence(table: &mut Section<'_, '_>, raw: Option<RawCoherence>) -> Coherence {
    let given = Given::from(raw.is_some());
    match raw.unwrap_or(RawCoherence::Bounded(RawBounded::default())) {
        RawCoherence::Strict(RawNoSettings {}) => {
            table.note("mode", "\"strict\"", given);
            Coherence::Strict
        }
        RawCoherence::Exclusive(RawNoSettings {}) => {
            table.note("mode", "\"exclusive\"", given);
            Coherence::Exclusive
        }
        RawCoherence::Immutable(RawNoSettings {}) => {
            table.note("mode", "\"immutable\"", given);
            Coherence::Immutable
        }
        RawCoherence::Bounded(raw) => {
            table.note("mode", "\"bounded\"", given);
            check_bounded(table, raw)
        }
    }
}

fn check_bounded(table: &mut Section<'_, '_>, raw: RawBounded) -> Coherence {
    let RawBounded {
        ttl,
        tti,
        stale_while_revalidate,
        stale_if_error,
    } = raw;
    let ttl = table.span("ttl", ttl, seconds(60, 0..=365 * 24 * 3600));
    let tti = match tti {
        None => {
            table.text("tti", None);
            None
        }
        Some(tti) => Some(table.span("tti", Some(tti), seconds(600, 0..=365 * 24 * 3600))),
    };
    if tti.is_some_and(|tti| tti > ttl) {
        let wrong = Wrong {
            value: tti
                .map(|tti| quoted(&Span(tti).to_string()))
                .unwrap_or_default(),
            allowed: "at most ttl",
            remedy: "make tti shorter, or leave it out: ttl already ends before it",
        };
        table.fault("tti", wrong);
    }
    // Off unless given, since it gives a part of ttl's promise away.
    let off = || seconds(0, 0..=STALE_SECONDS_MAX);
    let stale = StaleUse {
        while_revalidate: table.span("stale_while_revalidate", stale_while_revalidate, off()),
        if_error: table.span("stale_if_error", stale_if_error, off()),
    };
    Coherence::Bounded { ttl, tti, stale }
}
