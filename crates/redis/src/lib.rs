//! Redis or Valkey as a store, for the hot objects of many gateways, and for what they tell each
//! other.
//!
//! A store is 64 shards, each with one hash tag: in a cluster a shard lies in one slot, so a script
//! changes entries and payloads of a shard in one step. What is acknowledged is as durable as
//! [`Durability`] says, which is judged anew on every connection.
//!
//! | module | knows |
//! |---|---|
//! | [`settings`] | what a store is told |
//! | `keys`, `entry`, `message` | the bytes in Redis, as docs/formats.md has them |
//! | `facts` | whether a server is fit |
//! | `connect`, `link`, `node`, `fleet` | a connection; keeping one; a server; which has what |
//! | `failure`, `send` | what answers mean, and what is done about it |
//! | `script` | what must happen in one step |
//! | `index`, `range`, `blobs`, `sweep`, `leases`, `changes` | the traits, over all that |
//! | `store` | all of it as a store of objects |
//!
//! Not here: S3's semantics, which are in `forebay-native`, and when objects move elsewhere, which
//! is the tier's.

mod blobs;
mod changes;
mod connect;
mod entry;
mod facts;
mod failure;
mod fleet;
mod index;
mod keys;
mod leases;
mod link;
mod message;
mod node;
mod range;
mod script;
mod send;
pub mod settings;
mod store;
mod sweep;

use std::sync::Arc;

use forebay_store::{Clock, Error};
use forebay_telemetry::redis::RedisMetrics;
use redis::{Pipeline, Value};
use tokio::runtime::Handle;

use crate::{
    blobs::Ids,
    fleet::Fleet,
    index::bytes_of,
    keys::{HOME, Keys, SHARDS},
    node::Lane,
    send::{Effect, Sending},
};
pub use crate::{
    blobs::RedisBlobs,
    changes::RedisChanges,
    facts::{Durability, Unfit},
    fleet::OpenError,
    index::RedisIndex,
    leases::RedisLeases,
    settings::RedisSettings,
    store::RedisStore,
    sweep::Sweep,
};

/// Version of all that is kept in Redis; docs/formats.md.
const FORMAT_VERSION: u32 = 1;

/// Everything that Redis keeps for gateways: entries, large payloads, leases and messages, over
/// the same connections.
#[derive(Debug)]
pub struct RedisEngine {
    fleet: Arc<Fleet>,
    index: Arc<RedisIndex>,
    blobs: Arc<RedisBlobs>,
    leases: Arc<RedisLeases>,
    changes: Arc<RedisChanges>,
}

impl RedisEngine {
    /// Finds the servers, checks that each of them is fit, and that what they hold is of this
    /// format. Connections live on `runtime`, whoever uses them.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left running.
    pub async fn open(
        settings: &RedisSettings,
        clock: Clock,
        metrics: &Arc<RedisMetrics>,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        let fleet = Arc::new(Fleet::open(settings, metrics, runtime).await?);
        let keys = Arc::new(Keys::new(&settings.prefix));
        check_format(&fleet, &keys).await?;
        let ids = Arc::new(Ids::default());
        let changes = RedisChanges::new(&fleet, &keys, ids.next());
        let (fleet_of, keys_of) = (|| Arc::clone(&fleet), || Arc::clone(&keys));
        Ok(Self {
            index: Arc::new(RedisIndex {
                fleet: fleet_of(),
                keys: keys_of(),
                ids: Arc::clone(&ids),
            }),
            blobs: Arc::new(RedisBlobs {
                fleet: fleet_of(),
                keys: keys_of(),
                ids,
                clock,
            }),
            leases: Arc::new(RedisLeases {
                fleet: fleet_of(),
                keys: keys_of(),
            }),
            changes: Arc::new(changes),
            fleet,
        })
    }

    /// Entries and small payloads.
    pub fn index(&self) -> &Arc<RedisIndex> {
        &self.index
    }

    /// Large payloads.
    pub fn blobs(&self) -> &Arc<RedisBlobs> {
        &self.blobs
    }

    /// Leases.
    pub fn leases(&self) -> &Arc<RedisLeases> {
        &self.leases
    }

    /// What gateways tell each other.
    pub fn changes(&self) -> &Arc<RedisChanges> {
        &self.changes
    }

    /// How safe an acknowledged write is: as on the least safe of the servers in use, and
    /// [`Durability::Volatile`] while none is connected.
    pub fn durability(&self) -> Durability {
        self.fleet.durability().unwrap_or(Durability::Volatile)
    }
}

/// Makes sure that what is kept under the prefix is of this format, and says so where nothing is.
async fn check_format(fleet: &Fleet, keys: &Keys) -> Result<(), OpenError> {
    let expected = format!("forebay-redis {FORMAT_VERSION} shards {SHARDS}");
    let mut commands = Pipeline::with_capacity(1);
    commands.cmd("GET").arg(keys.format());
    let sending = |lane| Sending {
        slot: keys.slot(HOME),
        lane,
        effect: Effect::Repeatable,
        seconds: &fleet.metrics().seconds.read,
    };
    let mut found = first(fleet.send(sending(Lane::Small), &commands).await)?;
    if found == Value::Nil {
        let mut commands = Pipeline::with_capacity(1);
        let key = keys.format();
        commands
            .cmd("SET")
            .arg(key)
            .arg(&expected)
            .arg("NX")
            .arg("GET");
        found = first(fleet.send(sending(Lane::Durable), &commands).await)?;
    }
    match bytes_of(found) {
        None => Ok(()),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(OpenError::OtherFormat {
            prefix: fleet.settings().prefix.clone(),
            found: String::from_utf8_lossy(&found).into_owned(),
            expected,
        }),
    }
}

fn first(answers: Result<Vec<Value>, Error>) -> Result<Value, OpenError> {
    let answers = answers.map_err(OpenError::First)?;
    Ok(answers.into_iter().next().unwrap_or(Value::Nil))
}
