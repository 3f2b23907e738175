//! Judges `[[routes]]` and their layers: which buckets go where, and what it takes together.

use std::collections::BTreeMap;

use super::{
    Findings, MemoryConfig, Section, Surroundings, Wrong,
    cache::{CACHE_BYTES_MIN, check_cache},
    disk::check_folders,
    shown_bytes,
    tier::check_tier,
};
use crate::config::{
    DEFAULT_STORE, LayerConfig, RouteConfig, StoreConfig,
    raw::{RawLayer, RawRoute},
    section::{Given, quoted},
    value::MIB,
};

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
    let caches = routes.iter().enumerate().flat_map(|(index, route)| {
        let layers = route.layers.iter().enumerate();
        layers.filter_map(move |(at, layer)| {
            let key = format!("routes[{index}].layers[{at}].disk");
            layer.cache().map(|cache| (key, cache))
        })
    });
    check_folders(&mut findings.section(""), caches);
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
        changes: None,
        layers: Some(vec![RawLayer::Cache(Box::default())]),
    }
}

fn check_route(table: &mut Section<'_, '_>, raw: RawRoute, within: Within<'_>) -> RouteConfig {
    let RawRoute {
        buckets,
        store,
        changes,
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
    warn_of_member(table, &store, within.stores);
    let layers = check_layers(table, layers.unwrap_or_default(), (&store, within));
    let changes = check_changes(table, changes, (&layers, within));
    RouteConfig {
        buckets,
        store,
        changes,
        layers,
    }
}

/// A member of a mirror may be read by itself, to compare; what is written so, others miss.
fn warn_of_member(
    table: &mut Section<'_, '_>,
    store: &str,
    stores: &BTreeMap<String, StoreConfig>,
) {
    let mirror = stores.iter().find(|(_, config)| {
        let mirror = config.mirror();
        mirror.is_some_and(|mirror| mirror.members.iter().any(|member| member == store))
    });
    if let Some((mirror, _)) = mirror {
        let key = table.at("store");
        table.warn(format!(
            "{key}: what is written to {store} by this route is missed by the other members of \
             stores.{mirror}; name {mirror} instead"
        ));
    }
}

/// Which Redis carries what gateways tell each other.
fn check_changes(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    (layers, within): (&[LayerConfig], Within<'_>),
) -> Option<String> {
    let is_redis = |name: &String| matches!(within.stores.get(name), Some(StoreConfig::Redis(_)));
    let given = table.text("changes", raw);
    let Some(name) = given else {
        return layers.iter().find_map(|layer| match layer {
            LayerConfig::Tier(tier) if is_redis(&tier.hot) => Some(tier.hot.clone()),
            LayerConfig::Tier(_) | LayerConfig::Cache(_) => None,
        });
    };
    if table.is_faulty_store(&name) {
        return None;
    }
    if !is_redis(&name) {
        let wrong = Wrong {
            value: quoted(&name),
            allowed: "a store of type \"redis\"",
            remedy: "name one, or add a [stores.NAME] of that type",
        };
        table.fault("changes", wrong);
    } else if !layers.iter().any(|layer| layer.cache().is_some()) {
        let wrong = Wrong {
            value: quoted(&name),
            allowed: "only with a cache, which listens and tells",
            remedy: "add a layer of type \"cache\", or remove the key",
        };
        table.fault("changes", wrong);
    }
    Some(name)
}

fn check_layers(
    table: &mut Section<'_, '_>,
    raw: Vec<RawLayer>,
    (store, within): (&str, Within<'_>),
) -> Vec<LayerConfig> {
    let mut checked: Vec<LayerConfig> = Vec::new();
    for (index, layer) in raw.into_iter().enumerate() {
        let key = format!("layers[{index}]");
        let is_cache = matches!(layer, RawLayer::Cache(_));
        let (word, remedy) = if is_cache {
            (
                "cache",
                "remove one of them: the second would never be asked on a hit",
            )
        } else {
            (
                "tier",
                "remove one of them: objects that both take would be moved twice",
            )
        };
        let is_like = |earlier: &LayerConfig| earlier.cache().is_some() == is_cache;
        if checked.iter().any(is_like) {
            let wrong = Wrong {
                value: quoted(word),
                allowed: "one layer of a kind per route",
                remedy,
            };
            table.fault(&key, wrong);
        } else if is_cache && !checked.is_empty() {
            let wrong = Wrong {
                value: quoted(word),
                allowed: "a cache before a tier",
                remedy: "name the cache first: behind the tier it would not see what is hot",
            };
            table.fault(&key, wrong);
        }
        let mut inner = table.inner(&key);
        inner.note("type", quoted(word), Given::Yes);
        let layer = match layer {
            RawLayer::Cache(cache) => {
                let cache = check_cache(&mut inner, *cache, within.surroundings);
                Some(LayerConfig::Cache(Box::new(cache)))
            }
            RawLayer::Tier(tier) => check_tier(&mut inner, *tier, (store, within.stores))
                .map(Box::new)
                .map(LayerConfig::Tier),
        };
        checked.extend(layer);
    }
    checked
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

/// All caches and the budget must fit into the machine together.
pub(super) fn check_memory_fits(
    findings: &mut Findings<'_>,
    routes: &[RouteConfig],
    memory: MemoryConfig,
    surroundings: &Surroundings,
) {
    let layers = routes.iter().flat_map(|route| &route.layers);
    let caches: u64 = layers
        .filter_map(LayerConfig::cache)
        .map(|cache| cache.capacity_bytes)
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
