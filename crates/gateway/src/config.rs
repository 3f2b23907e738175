//! The configuration: what is written becomes what is meant, or a list of all that is wrong.
//!
//! Pure: [`Config::load`] takes the text of the file, the environment and the flags, and opens
//! nothing. The way of a value:
//!
//! 1. `merge` lays the sources over one another, default < file < environment < flag, and holds
//!    the tree against the schema of `raw`: unknown keys, wrong kinds;
//! 2. `check` judges every value and every combination and fills in the defaults;
//! 3. [`Config`] is frozen: typed, checked, with an [`Entry`] for every value in force.
//!
//! What is read from files that the config names (secrets, policies, the users file) is
//! [`crate::access`]'s; [`Outside`] lists it, for a config with faults as well. What is built from
//! it all is [`crate::assemble`]'s.

mod check;
mod entry;
mod fault;
mod merge;
mod outside;
pub mod raw;
mod section;
mod shape;
#[cfg(test)]
mod tests;
pub mod value;

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration,
};

use forebay_fs::FsSettings;
use forebay_log::LogSettings;
use forebay_mirror::MirrorSettings;
use forebay_origin::OriginSettings;
use forebay_redis::RedisSettings;
use forebay_s3::sigv4::SecretKey;
use forebay_tier::{Space, TierSettings};

pub use forebay_cache::{CacheSettings, Coherence};

pub use entry::{Entry, Provenance, Source};
pub use fault::Fault;
pub use merge::{DEFAULT_STORE, File, Flags, Sources};
pub use outside::Outside;

use crate::settings::Settings;
use check::Checked;
use merge::Merged;

/// Name of the user that exists when the config names none, or when the environment holds its key.
pub const ROOT_USER: &str = "root";

/// A complete config with a comment for every key, as `forebay config example` prints it: the
/// defaults, and examples that are commented out with a `#` that no space follows.
pub const EXAMPLE: &str = include_str!("config/example.toml");

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the built-in store and of the root credentials.
    pub data_dir: PathBuf,
    /// What the gateway is told.
    pub settings: Settings,
    /// How long requests in progress may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Where health, metrics and the admin API are served.
    pub admin: AdminConfig,
    /// Memory for what is in flight.
    pub memory: MemoryConfig,
    /// The log of the program.
    pub log: LogConfig,
    /// Who may do what.
    pub access: AccessConfig,
    /// Stores by name.
    pub stores: BTreeMap<String, StoreConfig>,
    /// Routes in their order.
    pub routes: Vec<RouteConfig>,
    /// Every value in force, in the order of the file.
    pub entries: Vec<Entry>,
    /// What is allowed, and perhaps not meant.
    pub warnings: Vec<String>,
}

/// What the check must know of the place where the gateway will run.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Memory of the machine, or of the control group if that is less.
    pub memory_bytes: u64,
    /// Cores that this process may use.
    pub cores: NonZeroUsize,
    /// `AWS_REGION` or `AWS_DEFAULT_REGION`.
    pub aws_region: Option<String>,
}

/// Where health, metrics and the admin API are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address.
    pub listen: SocketAddr,
    /// What the API asks for.
    pub token: Option<SecretSource>,
}

/// Memory for what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Bytes of payload in flight, over all requests.
    pub budget_bytes: u64,
    /// How long a request waits for its share.
    pub wait_max: Duration,
}

/// The log of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Least severe level that is written.
    pub level: tracing::Level,
    /// Form of a line.
    pub format: LogFormat,
}

/// Form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Who may do what, with secrets and policies still where the config says they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// File with more users and bucket policies.
    pub users_file: Option<PathBuf>,
    /// Users of the config itself.
    pub users: Vec<UserConfig>,
    /// Bucket policies of the config itself.
    pub bucket_policies: Vec<BucketPolicyConfig>,
}

/// One user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserConfig {
    /// Name, as in the access log.
    pub name: String,
    /// Id of the key.
    pub access_key: String,
    /// Where the secret is.
    pub secret_key: SecretSource,
    /// What the user may do.
    pub policies: Vec<PolicySource>,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In the config.
    Inline(SecretKey),
    /// In a file, alone.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(String),
}

/// Where a policy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// A document: written in the config, or the one that a ready-made policy's name stands for.
    Json {
        /// The document.
        json: String,
        /// The key of the config that it stands at, for faults.
        key: String,
    },
    /// A file with a document.
    File {
        /// Its path.
        path: PathBuf,
        /// The key of the config that names it, for faults.
        key: String,
    },
}

/// The policy of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPolicyConfig {
    /// Pattern of buckets.
    pub bucket: String,
    /// The policy.
    pub policy: PolicySource,
}

/// Where objects are kept.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// An S3 service.
    S3(Box<S3Config>),
    /// A directory tree.
    Fs(FsSettings),
    /// A log in a folder.
    Log(LogSettings),
    /// Redis or Valkey.
    Redis(Box<RedisConfig>),
    /// Several stores kept equal.
    Mirror(Box<MirrorConfig>),
    /// Memory.
    Memory,
    /// Nowhere.
    Null,
}

impl StoreConfig {
    /// The mirror, if it is one.
    pub fn mirror(&self) -> Option<&MirrorConfig> {
        match self {
            Self::Mirror(mirror) => Some(mirror),
            Self::S3(_)
            | Self::Fs(_)
            | Self::Log(_)
            | Self::Redis(_)
            | Self::Memory
            | Self::Null => None,
        }
    }
}

/// Redis or Valkey.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// How to speak to it; its login is put in once the password has been read.
    pub settings: RedisSettings,
    /// Who Forebay is there, if not the default user.
    pub username: Option<String>,
    /// Where the password is, if there is one.
    pub password: Option<SecretSource>,
    /// Region that its buckets are said to be in.
    pub region: String,
}

/// Several stores kept equal.
#[derive(Debug, Clone)]
pub struct MirrorConfig {
    /// Names of the members; they exist.
    pub members: Vec<String>,
    /// Name of the store that keeps what a member has missed; it exists.
    pub journal: String,
    /// Where that is there.
    pub space: Space,
    /// What it is told to do.
    pub settings: MirrorSettings,
}

/// A hot store in front of the route's.
#[derive(Debug, Clone)]
pub struct TierConfig {
    /// Name of the hot store; it exists.
    pub hot: String,
    /// Where its records are there.
    pub space: Space,
    /// What it is told to do.
    pub settings: TierSettings,
}

/// An S3 service.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// How to speak to it; its credentials are put in once the secret has been read.
    pub settings: OriginSettings,
    /// Where keys come from.
    pub credentials: CredentialsConfig,
}

/// Where the keys for an S3 service come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsConfig {
    /// Environment, profile files, instance or web identity, in AWS's usual order.
    Aws {
        /// Profile to use in place of the default one.
        profile: Option<String>,
    },
    /// A key of the config.
    Keys {
        /// Id of the key.
        access_key: String,
        /// Where the secret is.
        secret_key: SecretSource,
    },
    /// Requests go unsigned.
    None,
}

/// Which buckets go to which store through which layers.
#[derive(Debug, Clone)]
pub struct RouteConfig {
    /// Patterns of buckets.
    pub buckets: Vec<String>,
    /// Name of the store; it exists.
    pub store: String,
    /// Name of the Redis through which gateways tell each other of writes; it exists.
    pub changes: Option<String>,
    /// Layers in the order a request meets them.
    pub layers: Vec<LayerConfig>,
}

/// A layer around a store.
#[derive(Debug, Clone)]
pub enum LayerConfig {
    /// Pages in memory.
    Cache(Box<CacheSettings>),
    /// A hot store first.
    Tier(Box<TierConfig>),
}

impl LayerConfig {
    /// The cache, if it is one.
    pub fn cache(&self) -> Option<&CacheSettings> {
        match self {
            Self::Cache(cache) => Some(cache),
            Self::Tier(_) => None,
        }
    }
}

/// A config as it was judged.
#[derive(Debug)]
pub struct Judged {
    /// The config, or all that is wrong with it.
    pub config: Result<Config, Vec<Fault>>,
    /// What it names outside of itself, as far as that can be read.
    pub outside: Vec<Outside>,
}

impl Config {
    /// Merges and checks all sources.
    ///
    /// # Errors
    /// All that is wrong, not only the first.
    pub fn load(sources: &Sources, surroundings: &Surroundings) -> Result<Self, Vec<Fault>> {
        Self::judge(sources, surroundings).config
    }

    /// The same, with what the config names outside of itself.
    pub fn judge(sources: &Sources, surroundings: &Surroundings) -> Judged {
        let mut merged = merge::merge(sources);
        let raw = std::mem::take(&mut merged.raw);
        let checked = check::check(raw, surroundings, &merged.provenance);
        let (config, outside) = joined(merged, checked);
        Judged { config, outside }
    }

    /// Checks a raw config on its own, all values of which count as written in a file.
    ///
    /// # Errors
    /// All that is wrong, not only the first.
    pub fn check(raw: raw::RawConfig, surroundings: &Surroundings) -> Result<Self, Vec<Fault>> {
        check::check(raw, surroundings, &Provenance::default()).0
    }

    /// All stores' caches together, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        let layers = self.routes.iter().flat_map(|route| &route.layers);
        layers
            .filter_map(LayerConfig::cache)
            .map(|cache| cache.capacity_bytes)
            .sum()
    }
}

/// Reads the users and bucket policies of a users file.
///
/// # Errors
/// All that is wrong with it.
pub fn check_users_file(file: &File) -> Result<AccessConfig, Vec<Fault>> {
    judge_users_file(file).0
}

/// The same, with what the file names outside of itself.
pub(crate) fn judge_users_file(file: &File) -> Checked<AccessConfig> {
    let mut merged = merge::parse_users_file(file);
    let raw = std::mem::take(&mut merged.raw);
    let (mut access, mut outside) = joined(merged, check::check_users_file(raw));
    let in_file = |key: &mut String| {
        if !key.starts_with(&file.path) {
            *key = format!("{}: {key}", file.path);
        }
    };
    for key in outside.iter_mut().filter_map(Outside::key_mut) {
        in_file(key);
    }
    match &mut access {
        Ok(access) => {
            let of_users = access.users.iter_mut().flat_map(|user| &mut user.policies);
            let of_buckets = access.bucket_policies.iter_mut();
            for policy in of_users.chain(of_buckets.map(|bucket| &mut bucket.policy)) {
                in_file(policy.key_mut());
            }
        }
        Err(faults) => {
            for fault in faults {
                in_file(&mut fault.key);
            }
        }
    }
    (access, outside)
}

/// What was found while merging and while checking, under the keys that the user knows.
fn joined<R, T>(merged: Merged<R>, checked: Checked<T>) -> Checked<T> {
    let (checked, mut outside) = checked;
    for key in outside.iter_mut().filter_map(Outside::key_mut) {
        merged.restore_key(key);
    }
    let found = match checked {
        Ok(checked) if merged.faults.is_empty() => Ok(checked),
        Ok(_) => Err(merged.all_faults(Vec::new())),
        Err(further) => Err(merged.all_faults(further)),
    };
    (found, outside)
}

/// The JSON schema of the config file, as text.
pub fn schema_text() -> String {
    format!("{:#}", shape::config_schema())
}
