//! Stores that can be hot: opened once, used by routes and by tiers alike.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use forebay_log::LogStore;
use forebay_mirror::Gateways;
use forebay_native::{
    Settings as NativeSettings,
    hot::{Home, HotDurability, Parts, Space, stranded, take_home},
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_redis::{Durability, RedisSettings, RedisStore, settings::Login};
use forebay_store::{Clock, Store, changes::Changes};
use forebay_telemetry::{log::LogMetrics, redis::RedisMetrics};
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;

use super::{AssembleError, Components};
use crate::{
    access::read_secret,
    admin::Log,
    config::{Config, RedisConfig, StoreConfig},
};

/// Engines by the name of their store.
#[derive(Default)]
pub(super) struct Engines(BTreeMap<String, Engine>);

/// A space of a hot store, and the cold store of the tier that has it, by their names.
pub(super) struct UsedSpace {
    pub(super) hot: String,
    pub(super) space: Space,
    pub(super) cold: String,
}

#[derive(Clone)]
enum Engine {
    Log(Arc<LogStore>),
    Redis(Arc<RedisStore>),
}

impl Engines {
    /// Opens a store, if it is one of these; it is then a store like all others.
    pub(super) async fn open(
        &mut self,
        name: &str,
        config: &StoreConfig,
        components: Components<'_>,
        registry: &mut Registry,
    ) -> Result<Option<Arc<dyn Store>>, AssembleError> {
        let label = ("store".into(), name.to_owned().into());
        let registry = registry.sub_registry_with_label(label);
        let engine = match config {
            StoreConfig::Log(settings) => {
                let metrics = LogMetrics::new();
                metrics.register(registry);
                let opened = LogStore::open(settings.clone(), components.clock.clone(), metrics);
                let store = opened.map_err(|source| AssembleError::Log {
                    name: name.to_owned(),
                    source,
                })?;
                Engine::Log(Arc::new(store))
            }
            StoreConfig::Redis(config) => {
                let metrics = Arc::new(RedisMetrics::new());
                metrics.register(registry);
                Engine::Redis(open_redis(name, config, components, &metrics).await?)
            }
            StoreConfig::S3(_)
            | StoreConfig::Fs(_)
            | StoreConfig::Mirror(_)
            | StoreConfig::Memory
            | StoreConfig::Null => {
                return Ok(None);
            }
        };
        let store = engine.store();
        self.0.insert(name.to_owned(), engine);
        Ok(Some(store))
    }

    /// What a tier needs of a store; `None` when it is no engine.
    pub(super) fn parts(&self, name: &str) -> Option<Parts> {
        self.0.get(name).map(Engine::parts)
    }

    /// What a mirror keeps its journal in, and who else does; of a store that is no engine, memory
    /// of its own.
    pub(super) fn journal(&self, name: &str, clock: &Clock) -> (Parts, Gateways) {
        match self.0.get(name) {
            Some(engine @ Engine::Log(_)) => (engine.parts(), Gateways::One),
            Some(engine @ Engine::Redis(_)) => (engine.parts(), Gateways::Many),
            None => {
                let parts = Parts {
                    index: Arc::new(MemoryIndex::new()),
                    blobs: Arc::new(MemoryBlobs::new()),
                    leases: Arc::new(MemoryLeases::new(clock.clone())),
                    durability: HotDurability::Volatile,
                };
                (parts, Gateways::One)
            }
        }
    }

    /// What gateways tell each other through a store; `None` when it is no Redis.
    pub(super) fn changes(&self, name: &str) -> Option<Arc<dyn Changes>> {
        match self.0.get(name)? {
            Engine::Log(_) => None,
            Engine::Redis(store) => Some(Arc::clone(store.engine().changes()) as _),
        }
    }

    /// The logs, for operators.
    pub(super) fn logs(&self) -> Vec<Log> {
        let logs = self.0.iter().filter_map(|(name, engine)| match engine {
            Engine::Log(store) => Some(Log {
                name: name.clone(),
                parts: store.parts().clone(),
            }),
            Engine::Redis(_) => None,
        });
        logs.collect()
    }

    /// Each Redis.
    pub(super) fn shared(&self) -> impl Iterator<Item = Arc<RedisStore>> {
        self.0.values().filter_map(|engine| match engine {
            Engine::Log(_) => None,
            Engine::Redis(store) => Some(Arc::clone(store)),
        })
    }

    /// Refuses to start when a log holds what a tier that is no longer there left behind: nobody
    /// would move it. In Redis another gateway may have that tier, so it is only told.
    pub(super) async fn check_stranded(&self, used: &[UsedSpace]) -> Result<(), AssembleError> {
        for (name, engine) in &self.0 {
            let of_store = used.iter().filter(|used| used.hot == *name);
            let spaces: Vec<Space> = of_store.map(|used| used.space.clone()).collect();
            let found = stranded(&engine.parts(), &spaces).await;
            let found = found.map_err(|source| AssembleError::Engine {
                name: name.clone(),
                source,
            })?;
            for (space, totals) in found {
                let space = space.as_str().to_owned();
                match engine {
                    Engine::Log(_) => {
                        return Err(AssembleError::Stranded {
                            name: name.clone(),
                            space,
                            objects: totals.dirty_count + totals.tombstones_count,
                        });
                    }
                    Engine::Redis(_) => tracing::warn!(
                        store = name,
                        space,
                        objects = totals.dirty_count,
                        deletes = totals.tombstones_count,
                        "no tier here moves these to their cold store"
                    ),
                }
            }
        }
        Ok(())
    }

    /// The same of what mirrors left behind: a member would stay different from the others.
    pub(super) async fn check_journals(&self, config: &Config) -> Result<(), AssembleError> {
        let mirrors = || config.stores.values().filter_map(StoreConfig::mirror);
        for (name, engine) in &self.0 {
            let here = mirrors().filter(|mirror| mirror.journal == *name);
            let spaces: Vec<Space> = here.map(|mirror| mirror.space.clone()).collect();
            let found = forebay_mirror::stranded(&engine.parts(), &spaces).await;
            let found = found.map_err(|source| AssembleError::Engine {
                name: name.clone(),
                source,
            })?;
            for (space, keys) in found {
                let space = space.as_str().to_owned();
                match engine {
                    Engine::Log(_) => {
                        return Err(AssembleError::StrandedJournal {
                            name: name.clone(),
                            space,
                            keys,
                        });
                    }
                    Engine::Redis(_) => tracing::warn!(
                        store = name,
                        space,
                        keys,
                        "no mirror here repairs what its members lack"
                    ),
                }
            }
        }
        Ok(())
    }

    /// Refuses to start when a space holds what is on its way to another cold store: two gateways
    /// may call different services alike.
    pub(super) async fn take_homes(
        &self,
        used: &[UsedSpace],
        config: &Config,
    ) -> Result<(), AssembleError> {
        for UsedSpace { hot, space, cold } in used {
            let (Some(engine), Some(store)) = (self.0.get(hot), config.stores.get(cold)) else {
                continue;
            };
            let ours = known_by((cold, store), config);
            let home = take_home(&engine.parts(), space, &ours).await;
            let home = home.map_err(|source| AssembleError::Engine {
                name: hot.clone(),
                source,
            })?;
            match home {
                Home::Ours => {}
                Home::Other { cold } => {
                    return Err(AssembleError::OtherHome {
                        name: hot.clone(),
                        space: space.as_str().to_owned(),
                        theirs: cold.join(", "),
                        ours: ours.join(", "),
                    });
                }
            }
        }
        Ok(())
    }
}

/// What a store is known by to any gateway that uses it.
fn known_by((name, store): (&str, &StoreConfig), config: &Config) -> Vec<String> {
    match store {
        StoreConfig::S3(s3) => s3
            .settings
            .endpoints
            .iter()
            .map(|endpoint| endpoint.to_string().trim_end_matches('/').to_owned())
            .collect(),
        StoreConfig::Fs(fs) => vec![directory("fs", &fs.root)],
        StoreConfig::Log(log) => vec![directory("log", &log.folder)],
        StoreConfig::Redis(redis) => {
            let RedisSettings {
                servers, prefix, ..
            } = &redis.settings;
            let names = servers
                .iter()
                .map(|at| format!("redis:{}:{}/{prefix}", at.host, at.port));
            names.collect()
        }
        StoreConfig::Mirror(mirror) => {
            let members = mirror.members.iter();
            let members = members.filter_map(|name| Some((&**name, config.stores.get(name)?)));
            members
                .flat_map(|member| known_by(member, config))
                .collect()
        }
        // Neither keeps anything that a name could stand for.
        StoreConfig::Memory | StoreConfig::Null => vec![format!("store:{name}")],
    }
}

fn directory(kind: &str, path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    format!("{kind}:{}", path.display())
}

impl Engine {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Log(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Redis(store) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    fn parts(&self) -> Parts {
        match self {
            Self::Log(store) => Parts {
                index: Arc::clone(&store.parts().index) as _,
                blobs: Arc::clone(&store.parts().blobs) as _,
                leases: Arc::clone(&store.parts().leases) as _,
                durability: HotDurability::Local,
            },
            Self::Redis(store) => {
                let engine = store.engine();
                Parts {
                    index: Arc::clone(engine.index()) as _,
                    blobs: Arc::clone(engine.blobs()) as _,
                    leases: Arc::clone(engine.leases()) as _,
                    durability: match engine.durability() {
                        Durability::Volatile => HotDurability::Volatile,
                        Durability::HotLocal => HotDurability::Local,
                        Durability::HotReplicated => HotDurability::Replicated,
                    },
                }
            }
        }
    }
}

async fn open_redis(
    name: &str,
    config: &RedisConfig,
    components: Components<'_>,
    metrics: &Arc<RedisMetrics>,
) -> Result<Arc<RedisStore>, AssembleError> {
    let mut settings: RedisSettings = config.settings.clone();
    if let Some(source) = &config.password {
        let key = format!("stores.{name}");
        let secret = read_secret(&key, source, components.variable);
        let secret = secret.map_err(AssembleError::Secret)?;
        settings.login = Some(Login {
            username: config.username.clone(),
            password: secret.expose().to_owned(),
        });
    }
    let native = NativeSettings {
        region: config.region.clone(),
        ..NativeSettings::default()
    };
    let clock = components.clock.clone();
    let opened = RedisStore::open(&settings, native, clock, metrics, Handle::current()).await;
    let store = opened.map_err(|source| AssembleError::Redis {
        name: name.to_owned(),
        source,
    })?;
    Ok(Arc::new(store))
}
