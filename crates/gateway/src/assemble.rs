//! Makes stores, layers and routes of a checked config: what the gateway serves from.
//!
//! Called by the binary before anything listens. Opens what the config names (directories, CA
//! files, credentials); the first failure ends it, with the key of the config it belongs to. Each
//! store exists once, however many routes lead to it; each route has layers of its own.

mod engines;
mod error;
mod gauges;
mod mirrors;
mod origins;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
};

use forebay_cache::{CacheLayer, CacheSettings, DiskPart, Operator};
use forebay_fs::FsStore;
use forebay_native::MemoryStore;
use forebay_origin::OriginStore;
use forebay_store::{Budget, Clock, Store, changes::Changes, null::NullStore};
use forebay_telemetry::{cache::CacheMetrics, disk::DiskMetrics, tier::TierMetrics};
use forebay_tier::{IndexedHot, TierLayer, TierParts};
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;

use crate::{
    admin::{Cache, Caches, Mirror, Operators, Origin, Tier, Tiers},
    config::{Config, LayerConfig, RouteConfig, StoreConfig, TierConfig},
    routes::{BucketPattern, Route, Routes},
};

use engines::{Engines, UsedSpace};
pub use error::AssembleError;
use mirrors::make_mirrors;
use origins::{ByOrigin, make_origin};

pub use gauges::register_gauges;

/// What stores and layers share.
#[derive(Clone, Copy)]
pub struct Components<'a> {
    /// The time.
    pub clock: &'a Clock,
    /// Room for payload bytes in flight.
    pub budget: &'a Budget,
    /// Finds a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// What the gateway serves from.
#[derive(Debug)]
pub struct Assembly {
    /// Which store, layers included, answers for which bucket.
    pub routes: Routes,
    /// What operators see of its stores and layers, and change.
    pub operators: Operators,
}

/// Makes everything, on a tokio runtime, which then refreshes credentials and speaks to Redis.
///
/// # Errors
/// The first store that can't be made.
///
/// # Panics
/// When a route leads to a store that is not there; the config's check lets none pass.
pub async fn assemble(
    config: &Config,
    components: Components<'_>,
    registry: &mut Registry,
) -> Result<Assembly, AssembleError> {
    let mut stores: BTreeMap<&str, Arc<dyn Store>> = BTreeMap::new();
    let mut engines = Engines::default();
    let mut origins = BTreeMap::new();
    for (name, store) in &config.stores {
        let opened = engines.open(name, store, components, registry).await?;
        let store = match opened {
            Some(store) => store,
            None => match store {
                StoreConfig::S3(s3) => {
                    let origin = make_origin(name, s3, components, registry)?;
                    origins.insert(name.clone(), Arc::clone(&origin));
                    origin
                }
                StoreConfig::Mirror(_) => continue,
                other => make_store(name, other, components)?,
            },
        };
        stores.insert(name, store);
    }
    // Made of other stores, so they come after all of them.
    let beside = (&mut stores, &engines);
    let mirrors = make_mirrors(config, beside, (components, &mut *registry));
    let mut building = Building {
        engines,
        origins,
        components,
        registry,
        caches: Vec::new(),
        tiers: Vec::new(),
        used: Vec::new(),
    };
    let mut routes = Vec::with_capacity(config.routes.len());
    for (index, route) in config.routes.iter().enumerate() {
        let store = stores
            .get(&*route.store)
            .expect("the check has found every store");
        let store = building.add_layers(Arc::clone(store), route, index)?;
        let buckets = route
            .buckets
            .iter()
            .map(|text| BucketPattern::new(text.as_str()))
            .collect();
        routes.push(Route { buckets, store });
    }
    building.engines.check_stranded(&building.used).await?;
    building.engines.check_journals(config).await?;
    building.engines.take_homes(&building.used, config).await?;
    let routes = Routes::new(routes);
    let operators = building.operators(&routes, mirrors);
    Ok(Assembly { routes, operators })
}

/// What is put together so far.
struct Building<'a> {
    engines: Engines,
    /// S3 services, which clients can be sent to.
    origins: BTreeMap<String, Arc<OriginStore>>,
    components: Components<'a>,
    registry: &'a mut Registry,
    caches: Vec<Cache>,
    tiers: Vec<Tier>,
    /// Spaces of hot stores that a tier looks after.
    used: Vec<UsedSpace>,
}

impl Building<'_> {
    /// Handles on all that was made.
    fn operators(self, routes: &Routes, mirrors: Vec<Mirror>) -> Operators {
        let origins = self.origins.into_iter().map(|(name, origin)| Origin {
            name,
            operator: origin.operator(),
        });
        let shared = self.engines.shared();
        Operators {
            caches: Caches {
                routes: routes.clone(),
                list: self.caches,
            },
            tiers: Tiers {
                list: self.tiers,
                logs: self.engines.logs(),
                shared: shared.map(|store| (store, holder().into())).collect(),
            },
            origins: origins.collect(),
            mirrors,
        }
    }

    fn add_layers(
        &mut self,
        store: Arc<dyn Store>,
        route: &RouteConfig,
        index: usize,
    ) -> Result<Arc<dyn Store>, AssembleError> {
        let mut store = store;
        // The first layer of the config is the first that a request meets, so it goes on last.
        for layer in route.layers.iter().rev() {
            store = match layer {
                LayerConfig::Cache(settings) => {
                    let changes = route.changes.as_ref();
                    let changes = changes.and_then(|name| self.engines.changes(name));
                    let parts = (self.components, &mut *self.registry);
                    let (layer, operator) = add_cache((store, changes), settings, index, parts)?;
                    self.caches.push(Cache {
                        name: index.to_string(),
                        route_index: index,
                        store: route.store.clone(),
                        buckets: route.buckets.clone(),
                        operator,
                    });
                    layer
                }
                LayerConfig::Tier(tier) => self.add_tier(store, tier, route, index),
            };
        }
        Ok(store)
    }

    fn add_tier(
        &mut self,
        cold: Arc<dyn Store>,
        config: &TierConfig,
        route: &RouteConfig,
        index: usize,
    ) -> Arc<dyn Store> {
        let metrics = TierMetrics::new();
        let label = ("route".into(), index.to_string().into());
        let registry = self.registry.sub_registry_with_prefix("forebay");
        metrics.register(registry.sub_registry_with_label(label));
        let parts = self.engines.parts(&config.hot);
        let parts = parts.expect("the check has found every hot store to be an engine");
        let parts = TierParts {
            hot: Arc::new(IndexedHot::new(parts, config.space.clone())),
            cold,
            presigner: self
                .origins
                .get(&route.store)
                .map(|origin| Arc::new(ByOrigin(Arc::clone(origin))) as _),
            clock: self.components.clock.clone(),
            budget: self.components.budget.clone(),
            metrics,
            holder: holder(),
        };
        let layer = TierLayer::new(parts, config.settings.clone());
        self.used.push(UsedSpace {
            hot: config.hot.clone(),
            space: config.space.clone(),
            cold: route.store.clone(),
        });
        self.tiers.push(Tier {
            name: index.to_string(),
            hot: config.hot.clone(),
            space: config.space.as_str().to_owned(),
            cold: route.store.clone(),
            buckets: route.buckets.clone(),
            operator: layer.operator(),
            mover: layer.mover(),
        });
        Arc::new(layer)
    }
}

/// Names this life of this gateway, like no other: keys of the hasher come from the operating
/// system.
fn holder() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

fn make_store(
    name: &str,
    config: &StoreConfig,
    components: Components<'_>,
) -> Result<Arc<dyn Store>, AssembleError> {
    match config {
        StoreConfig::Fs(fs) => {
            let store = FsStore::open(fs.clone(), components.clock.clone());
            let failed = |source| AssembleError::Directory {
                name: name.to_owned(),
                source,
            };
            Ok(Arc::new(store.map_err(failed)?))
        }
        StoreConfig::Memory => Ok(Arc::new(MemoryStore::new(components.clock.clone()))),
        StoreConfig::Null => Ok(Arc::new(NullStore::default())),
        StoreConfig::S3(_)
        | StoreConfig::Log(_)
        | StoreConfig::Redis(_)
        | StoreConfig::Mirror(_) => {
            unreachable!("these were made before")
        }
    }
}

fn add_cache(
    (inner, changes): (Arc<dyn Store>, Option<Arc<dyn Changes>>),
    settings: &CacheSettings,
    route_index: usize,
    (components, registry): (Components<'_>, &mut Registry),
) -> Result<(Arc<dyn Store>, Operator), AssembleError> {
    let metrics = CacheMetrics::default();
    let label = ("route".into(), route_index.to_string().into());
    let registry = registry.sub_registry_with_label(label);
    metrics.register(registry);
    let (clock, budget) = (components.clock.clone(), components.budget.clone());
    let cache = match &settings.disk {
        None => CacheLayer::new(inner, settings.clone(), clock, budget, metrics),
        Some(choice) => {
            let on_disk = DiskMetrics::new();
            on_disk.register(registry);
            let part = DiskPart::open(settings, choice, clock.clone(), on_disk);
            let part = part.map_err(|source| AssembleError::CacheFolder {
                route_index,
                source,
            })?;
            CacheLayer::with_disk(inner, settings.clone(), (clock, budget), metrics, part)
        }
    };
    let cache = match changes {
        None => cache,
        Some(changes) => cache.with_changes(changes, &Handle::current()),
    };
    let operator = cache.operator();
    Ok((Arc::new(cache), operator))
}
