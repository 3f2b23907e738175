//! Why what a config names can't be made.

use forebay_fs::OpenError;
use forebay_origin::SettingsError;

use crate::config::Fault;

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
    /// A log that can't be used.
    #[error("stores.{name}")]
    Log {
        /// Name of the store.
        name: String,
        /// Why.
        source: forebay_log::OpenError,
    },
    /// A Redis that can't be used.
    #[error("stores.{name}")]
    Redis {
        /// Name of the store.
        name: String,
        /// Why.
        source: forebay_redis::OpenError,
    },
    /// A hot store that can't be read.
    #[error("look for what tiers and mirrors left in stores.{name}")]
    Engine {
        /// Name of the store.
        name: String,
        /// Why.
        source: forebay_store::Error,
    },
    /// A hot store whose tier is gone, and whose objects are nowhere else.
    #[error(
        "stores.{name} holds {objects} objects of space {space:?} that no cold store has yet, and \
         no route has a tier for them: bring the layer back, with space = {space:?}, and empty it \
         with `forebay admin tier drain` first"
    )]
    Stranded {
        /// Name of the store.
        name: String,
        /// Where they are there.
        space: String,
        /// How many, deletes included.
        objects: u64,
    },
    /// A journal whose mirror is gone, and whose members are not equal.
    #[error(
        "stores.{name} holds a journal of space {space:?}: members of its mirror lack {keys} keys, \
         and no store is that mirror: bring the store of type \"mirror\" back, with \
         space = {space:?}, until `forebay admin mirror status` shows all members up"
    )]
    StrandedJournal {
        /// Name of the store.
        name: String,
        /// Where it is there.
        space: String,
        /// How many, buckets included.
        keys: u64,
    },
    /// A space of a hot store that another cold store's objects are in.
    #[error(
        "space {space:?} of stores.{name} holds objects on their way to {theirs}, and here their \
         cold store is {ours}: give the tier a space = \"…\" of its own, or empty that one with \
         `forebay admin tier drain` where it belongs"
    )]
    OtherHome {
        /// Name of the store.
        name: String,
        /// Where they are there.
        space: String,
        /// What their cold store is known by.
        theirs: String,
        /// What the cold store here is known by.
        ours: String,
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
