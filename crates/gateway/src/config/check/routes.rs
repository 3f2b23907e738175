//! Judges `[[routes]]` and their layers: which buckets go where, and what it takes together.

use std::collections::BTreeMap;

use forebay_cache::{CacheSettings, Coherence, Directives, PageBytes, StaleUse};

use super::{
    Findings, MemoryConfig, Rule, Section, Surroundings, Wrong, server::seconds, shown_bytes,
};
use crate::config::{
    DEFAULT_STORE, LayerConfig, RouteConfig, StoreConfig,
    raw::{RawBounded, RawCache, RawCoherence, RawLayer, RawNoSettings, RawRoute},
    section::{Given, quoted},
    value::{ByteSize, MIB, Percent, Span},
};

/// Share of the machine's memory that a cache takes unless told otherwise.
const CACHE_SHARE_DEFAULT: Percent = Percent(25);
/// Below this a cache holds less than a few pages.
const CACHE_BYTES_MIN: u64 = 8 * MIB;

/// How much longer than its ttl something may be used on purpose: a week. Longer than any outage
/// that nobody mends, and short of forgetting that it is on.
const STALE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// What routes are judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'a> {
    pub(super) stores: &'a BTreeMap<String, StoreConfig>,
    pub(super) surroundings: &'a Surroundings,
}

pub(super) fn check(
    findings: &mut Findings<'_>,
    raw: Option<Vec<RawRoute>>,
    within: Within<'_>,
) -> Vec<RouteConfig> {
    let raw = raw.unwrap_or_else(|| vec![everything(within.stores)]);
    if raw.is_empty() {
        let wrong = Wrong {
            value: "[]".to_owned(),
            allowed: "at least one route",
            remedy: "name a route, or leave the key out to send every bucket to the only store",
        };
        findings.section("").fault("routes", wrong);
    }
    let mut routes: Vec<RouteConfig> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let mut table = findings.section(format!("routes[{index}]"));
        let route = check_route(&mut table, raw, within);
        for pattern in &route.buckets {
            let earlier = routes.iter().position(|earlier: &RouteConfig| {
                earlier.buckets.iter().any(|wide| covers(wide, pattern))
            });
            if let Some(earlier) = earlier {
                let wrong = Wrong {
                    value: quoted(pattern),
                    allowed: "buckets that no earlier route takes",
                    remedy: &format!(
                        "routes[{earlier}] takes them all and the first match counts; \
                         move this route before it"
                    ),
                };
                table.fault("buckets", wrong);
            }
        }
        routes.push(route);
    }
    routes
}

/// The route of a config that names none: every bucket to the only store, through a cache.
fn everything(stores: &BTreeMap<String, StoreConfig>) -> RawRoute {
    let only = match stores.keys().collect::<Vec<_>>()[..] {
        [only] => Some(only.clone()),
        _ => None,
    };
    RawRoute {
        buckets: None,
        store: only,
        layers: Some(vec![RawLayer::Cache(RawCache::default())]),
    }
}

fn check_route(table: &mut Section<'_, '_>, raw: RawRoute, within: Within<'_>) -> RouteConfig {
    let RawRoute {
        buckets,
        store,
        layers,
    } = raw;
    let buckets = table.texts_or("buckets", buckets, &["*"]);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*' | '?');
    if buckets.is_empty() || buckets.iter().any(|b| b.is_empty() || !b.chars().all(fits)) {
        let wrong = Wrong {
            value: format!("{buckets:?}"),
            allowed: "bucket names, or patterns of them with `*` and `?`",
            remedy: "write buckets = [\"logs-*\"], or leave it out for every bucket",
        };
        table.fault("buckets", wrong);
    }
    let store = check_store_name(table, store, within.stores);
    let mut checked = Vec::new();
    for (index, layer) in layers.unwrap_or_default().into_iter().enumerate() {
        let RawLayer::Cache(cache) = layer;
        let key = format!("layers[{index}]");
        if !checked.is_empty() {
            let wrong = Wrong {
                value: "\"cache\"".to_owned(),
                allowed: "one cache per route",
                remedy: "remove one of them: the second would never be asked on a hit",
            };
            table.fault(&key, wrong);
        }
        let mut inner = table.inner(&key);
        inner.note("type", "\"cache\"", Given::Yes);
        checked.push(LayerConfig::Cache(check_cache(
            &mut inner,
            cache,
            within.surroundings,
        )));
    }
    RouteConfig {
        buckets,
        store,
        layers: checked,
    }
}

fn check_store_name(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    stores: &BTreeMap<String, StoreConfig>,
) -> String {
    let names: Vec<String> = stores.keys().map(|name| quoted(name)).collect();
    let allowed = names.join(", ");
    let Some(name) = table.text("store", raw) else {
        table.missing(
            "store",
            &format!("write store = NAME with one of {allowed}"),
        );
        return DEFAULT_STORE.to_owned();
    };
    if !stores.contains_key(&name) {
        let wrong = Wrong {
            value: quoted(&name),
            allowed: &allowed,
            remedy: "name one of these stores, or add a [stores.NAME] section",
        };
        table.fault("store", wrong);
    }
    name
}

fn check_cache(
    table: &mut Section<'_, '_>,
    raw: RawCache,
    surroundings: &Surroundings,
) -> CacheSettings {
    let RawCache {
        memory,
        page,
        coherence,
        client_directives,
        origin_directives,
    } = raw;
    let capacity_bytes = check_cache_memory(table, memory, surroundings);
    let page_bytes = check_page(table, page, capacity_bytes);
    let coherence = check_coherence(&mut table.inner("coherence"), coherence);
    let words = [
        ("honour", Directives::Honour),
        ("ignore", Directives::Ignore),
    ];
    CacheSettings {
        capacity_bytes,
        page_bytes,
        coherence,
        client_directives: table.choice("client_directives", client_directives, &words),
        origin_directives: table.choice("origin_directives", origin_directives, &words),
    }
}

fn check_page(table: &mut Section<'_, '_>, raw: Option<String>, capacity_bytes: u64) -> PageBytes {
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
            allowed: "a power of two from 64KiB to 16MiB",
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

fn check_coherence(table: &mut Section<'_, '_>, raw: Option<RawCoherence>) -> Coherence {
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

/// All caches and the budget must fit into the machine together.
pub(super) fn check_memory_fits(
    findings: &mut Findings<'_>,
    routes: &[RouteConfig],
    memory: MemoryConfig,
    surroundings: &Surroundings,
) {
    let layers = routes.iter().flat_map(|route| &route.layers);
    let caches: u64 = layers
        .map(|LayerConfig::Cache(cache)| cache.capacity_bytes)
        .sum();
    let wanted = caches.saturating_add(memory.budget_bytes);
    if wanted > surroundings.memory_bytes.max(CACHE_BYTES_MIN + 8 * MIB) {
        let wrong = Wrong {
            value: format!(
                "{} of caches and {} of memory.budget",
                shown_bytes(caches),
                shown_bytes(memory.budget_bytes)
            ),
            allowed: &format!(
                "together at most {}",
                shown_bytes(surroundings.memory_bytes)
            ),
            remedy: "give the caches less memory: what does not fit is swapped or killed",
        };
        findings
            .section("")
            .fault("routes[*].layers[*].memory", wrong);
    }
}

/// Whether every name that `narrow` stands for is one that `wide` stands for: certain cases only.
fn covers(wide: &str, narrow: &str) -> bool {
    let literal = !wide.contains(['*', '?']);
    if literal {
        return wide == narrow;
    }
    // `prefix*` takes whatever begins with the prefix, patterns included.
    match wide.strip_suffix('*') {
        Some(prefix) if !prefix.contains(['*', '?']) => narrow.starts_with(prefix),
        Some(_) | None => wide == narrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_it_surely_covers() {
        for (wide, narrow, expected) in [
            ("*", "logs-*", true),
            ("*", "*", true),
            ("logs-*", "logs-2024", true),
            ("logs-*", "logs-*-old", true),
            ("logs-*", "log*", false),
            ("logs", "logs", true),
            ("logs", "logs-1", false),
            ("a*b", "acb", false),
            ("a*b", "a*b", true),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide} over {narrow}");
        }
    }
}
