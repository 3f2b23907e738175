//! Makes stores, layers and routes of a checked config: what the gateway serves from.
//!
//! Called by the binary before anything listens. Opens what the config names (directories, CA
//! files, credentials); the first failure ends it, with the key of the config it belongs to. Each
//! store exists once, however many routes lead to it; each route has layers of its own.

mod gauges;

use std::{collections::BTreeMap, sync::Arc};

use forebay_cache::{CacheLayer, DiskPart, Operator};
use forebay_fs::{FsStore, OpenError};
use forebay_native::MemoryStore;
use forebay_origin::{CredentialsSource, OriginStore, SettingsError};
use forebay_s3::sigv4::Credentials;
use forebay_store::{Budget, Clock, Store, null::NullStore};
use forebay_telemetry::{cache::CacheMetrics, disk::DiskMetrics, origin::OriginMetrics};
use prometheus_client::registry::Registry;

use crate::{
    access::read_secret,
    admin::{Cache, Caches},
    config::{Config, CredentialsConfig, Fault, LayerConfig, S3Config, StoreConfig},
    routes::{BucketPattern, Route, Routes},
};

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
    /// The caches among the layers.
    pub caches: Caches,
}

/// Why a store could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A secret of the config that can't be read.
    #[error("{0}")]
    Secret(Fault),
    /// A directory that can't be used.
    #[error("stores.{name}")]
    Directory {
        /// Name of the store.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// A folder for pages that can't be used.
    #[error("disk of the cache of routes[{route_index}]")]
    CacheFolder {
        /// The route.
        route_index: usize,
        /// Why.
        source: forebay_disk::OpenError,
    },
    /// An S3 service that can't be used as configured.
    #[error("stores.{name}")]
    Origin {
        /// Name of the store.
        name: String,
        /// Why.
        source: SettingsError,
    },
}

/// Makes everything; must be called inside a tokio runtime, which then refreshes credentials.
///
/// # Errors
/// The first store that can't be made.
///
/// # Panics
/// When a route leads to a store that is not there; the config's check lets none pass.
pub fn assemble(
    config: &Config,
    components: Components<'_>,
    registry: &mut Registry,
) -> Result<Assembly, AssembleError> {
    let mut stores: BTreeMap<&str, Arc<dyn Store>> = BTreeMap::new();
    for (name, store) in &config.stores {
        stores.insert(name, make_store(name, store, components, registry)?);
    }
    let mut routes = Vec::with_capacity(config.routes.len());
    let mut caches = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        let store = stores
            .get(&*route.store)
            .expect("the check has found every store");
        // The first layer of the config is the first that a request meets, so it goes on last.
        let mut store = Arc::clone(store);
        for layer in route.layers.iter().rev() {
            let (layer, operator) = add_layer(store, layer, index, (components, registry))?;
            caches.push(Cache {
                name: index.to_string(),
                route_index: index,
                store: route.store.clone(),
                buckets: route.buckets.clone(),
                operator,
            });
            store = layer;
        }
        let buckets = route
            .buckets
            .iter()
            .map(|text| BucketPattern::new(text.as_str()))
            .collect();
        routes.push(Route { buckets, store });
    }
    let routes = Routes::new(routes);
    Ok(Assembly {
        caches: Caches {
            routes: routes.clone(),
            list: caches,
        },
        routes,
    })
}

fn make_store(
    name: &str,
    config: &StoreConfig,
    components: Components<'_>,
    registry: &mut Registry,
) -> Result<Arc<dyn Store>, AssembleError> {
    match config {
        StoreConfig::S3(s3) => make_origin(name, s3, components, registry),
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
    }
}

fn make_origin(
    name: &str,
    config: &S3Config,
    components: Components<'_>,
    registry: &mut Registry,
) -> Result<Arc<dyn Store>, AssembleError> {
    let mut settings = config.settings.clone();
    settings.credentials = match &config.credentials {
        CredentialsConfig::None => CredentialsSource::Anonymous,
        CredentialsConfig::Aws { profile } => CredentialsSource::Chain {
            profile: profile.clone(),
        },
        CredentialsConfig::Keys {
            access_key,
            secret_key,
        } => {
            let key = format!("stores.{name}");
            let secret = read_secret(&key, secret_key, components.variable);
            CredentialsSource::Static(Credentials {
                access_key_id: access_key.as_str().into(),
                secret_access_key: secret.map_err(AssembleError::Secret)?,
                session_token: None,
            })
        }
    };
    let metrics = OriginMetrics::new();
    let label = ("store".into(), name.to_owned().into());
    let registry = registry.sub_registry_with_prefix("forebay");
    metrics.register(registry.sub_registry_with_label(label));
    let store =
        OriginStore::new(&settings, components.clock.clone(), metrics).map_err(|source| {
            AssembleError::Origin {
                name: name.to_owned(),
                source,
            }
        })?;
    Ok(Arc::new(store))
}

fn add_layer(
    inner: Arc<dyn Store>,
    layer: &LayerConfig,
    route_index: usize,
    (components, registry): (Components<'_>, &mut Registry),
) -> Result<(Arc<dyn Store>, Operator), AssembleError> {
    let LayerConfig::Cache(settings) = layer;
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
    let operator = cache.operator();
    Ok((Arc::new(cache), operator))
}
