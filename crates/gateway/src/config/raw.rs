//! The config as it is written: every key, all optional, nothing judged yet.
//!
//! The one list of keys. `shape` reads the JSON schema of these types to find unknown keys and
//! wrong kinds of value, `check` turns them into a [`super::Config`], `forebay config schema`
//! prints the schema, and a test holds `example.toml` against it. The doc comments below are the
//! descriptions in that schema.

mod admin;
mod cache;
mod engines;
mod mirror;
mod steady;
mod tier;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub use admin::RawAdmin;
pub use cache::{
    RawBounded, RawCache, RawCacheRule, RawCoherence, RawDisk, RawKeptFor, RawLasting,
};
pub use engines::{RawLogStore, RawRedisStore, RawRedisTimeouts};
pub use mirror::RawMirror;
pub use steady::{RawBalance, RawEndpointLimits, RawHealth, RawHedge};
pub use tier::{RawTier, RawTierRule};

/// Configuration of `forebay serve`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// File with more `[users.NAME]` and `[[bucket_policies]]`, read again on SIGHUP.
    #[schemars(example = &"/etc/forebay/users.toml")]
    pub users_file: Option<String>,
    /// Where and how clients are served.
    pub server: Option<RawServer>,
    /// The listener for health, metrics and the admin API.
    pub admin: Option<RawAdmin>,
    /// Memory for what is in flight.
    pub memory: Option<RawMemory>,
    /// The log of the program itself.
    pub log: Option<RawLog>,
    /// One line per request; off unless this section has a path.
    pub access_log: Option<RawAccessLog>,
    /// Who may sign requests, by name.
    pub users: Option<BTreeMap<String, RawUser>>,
    /// Policies of buckets; the only way to let unsigned requests in.
    pub bucket_policies: Option<Vec<RawBucketPolicy>>,
    /// Where objects are kept, by a name that routes refer to.
    pub stores: Option<BTreeMap<String, RawStore>>,
    /// Which buckets go to which store through which layers; the first that matches counts.
    pub routes: Option<Vec<RawRoute>>,
}

/// What may stand in a users file: the part of the config that is read again on SIGHUP.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawUsersFile {
    /// Who may sign requests, by name.
    pub users: Option<BTreeMap<String, RawUser>>,
    /// Policies of buckets; the only way to let unsigned requests in.
    pub bucket_policies: Option<Vec<RawBucketPolicy>>,
}

/// Where and how clients are served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawServer {
    /// What the gateway calls itself in `Cache-Status`, to be told apart from caches before and
    /// behind it.
    #[schemars(example = &"forebay")]
    pub name: Option<String>,
    /// Addresses, each a text or a table.
    #[schemars(example = ["0.0.0.0:9000"])]
    pub listen: Option<Vec<RawListen>>,
    /// Names under which buckets are sub-domains (`bucket.NAME`).
    #[schemars(example = ["s3.example.com"])]
    pub domains: Option<Vec<String>>,
    /// Regions that clients may sign for, the first being the gateway's own; any when empty.
    #[schemars(example = ["us-east-1"])]
    pub regions: Option<Vec<String>>,
    /// Threads that serve requests; one per core unless given.
    #[schemars(example = 4)]
    pub threads: Option<i64>,
    /// Directory of the built-in store and of the root credentials.
    #[schemars(example = &"./forebay-data")]
    pub data_dir: Option<String>,
    /// How long requests in progress may go on after SIGTERM.
    #[schemars(example = &"30s")]
    pub drain_timeout: Option<String>,
    /// What one client, or all of them, can't exceed.
    pub limits: Option<RawLimits>,
}

/// One listening address.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawListen {
    /// The address alone: no TLS, signatures required.
    Address(String),
    /// The address with how it is served.
    Table(RawListener),
}

/// One listening address and how it is served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawListener {
    /// IP address and port.
    #[schemars(example = &"0.0.0.0:9000")]
    pub address: Option<String>,
    /// Certificate and key; without them the listener speaks plain HTTP.
    pub tls: Option<RawTls>,
    /// `required` (signatures are checked) or `off` (closed networks: everybody is `user`).
    #[schemars(example = &"required")]
    pub authentication: Option<String>,
    /// With `authentication = "off"`: who everybody is; `root` unless given.
    #[schemars(example = &"alice")]
    pub user: Option<String>,
    /// Says that `authentication = "off"` is meant although the address is not loopback.
    #[schemars(example = true)]
    pub allow_unauthenticated: Option<bool>,
}

/// Certificate and key, read again on SIGHUP and when they change.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTls {
    /// PEM file with the certificate and its chain.
    #[schemars(example = &"/etc/forebay/tls.crt")]
    pub certificate: Option<String>,
    /// PEM file with the private key.
    #[schemars(example = &"/etc/forebay/tls.key")]
    pub key: Option<String>,
}

/// What one client, or all of them, can't exceed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Connections at once; further ones wait to be accepted.
    #[schemars(example = 10000)]
    pub connections_max: Option<i64>,
    /// Requests at once on one HTTP/2 connection.
    #[schemars(example = 256)]
    pub streams_max: Option<i64>,
    /// Bytes of request line and headers.
    #[schemars(example = &"16KiB")]
    pub header_bytes_max: Option<String>,
    /// Headers of one request.
    #[schemars(example = 100)]
    pub header_count_max: Option<i64>,
    /// Time to send a whole request head, the TLS handshake included.
    #[schemars(example = &"10s")]
    pub header_timeout: Option<String>,
    /// Time between requests of one connection.
    #[schemars(example = &"75s")]
    pub idle_timeout: Option<String>,
    /// Time in which a body, either way, must move on by `rate_min` a second.
    #[schemars(example = &"30s")]
    pub stall_timeout: Option<String>,
    /// Slowest pace of a body, per second.
    #[schemars(example = &"256B")]
    pub rate_min: Option<String>,
    /// Time from a request's head to its answer's; a body adds what it takes at the slowest pace.
    #[schemars(example = &"5m")]
    pub request_timeout: Option<String>,
}

/// Memory for what is in flight.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawMemory {
    /// Bytes of payload in flight, over all requests; beyond it reading from sockets waits.
    #[schemars(example = &"256MiB")]
    pub budget: Option<String>,
    /// How long a request waits for its share before it is told to slow down.
    #[schemars(example = &"5s")]
    pub wait_max: Option<String>,
}

/// The log of the program itself, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLog {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    #[schemars(example = &"info")]
    pub level: Option<String>,
    /// `text` or `json`.
    #[schemars(example = &"text")]
    pub format: Option<String>,
}

/// One line per request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawAccessLog {
    /// File to append to, or `-` for standard output.
    #[schemars(example = &"/var/log/forebay/access.log")]
    pub path: Option<String>,
    /// `json` (one object per line) or `aws` (S3 server access log).
    #[schemars(example = &"json")]
    pub format: Option<String>,
}

/// One user: a key pair and what it may do.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawUser {
    /// Id of the key, sent in clear with each request.
    #[schemars(example = &"AKIAEXAMPLE000000001")]
    pub access_key: Option<String>,
    /// The secret itself; rather use one of the other two.
    pub secret_key: Option<String>,
    /// File that holds the secret, and nothing else.
    #[schemars(example = &"/run/secrets/alice")]
    pub secret_key_file: Option<String>,
    /// Environment variable that holds the secret.
    #[schemars(example = &"ALICE_SECRET_KEY")]
    pub secret_key_env: Option<String>,
    /// What the user may do: `admin`, `readonly`, or AWS policy documents.
    #[schemars(example = ["readonly"])]
    pub policies: Option<Vec<RawPolicy>>,
}

/// A policy: a ready-made one by name, or an AWS policy document.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawPolicy {
    /// Name of a ready-made policy.
    Named(String),
    /// An AWS policy document.
    Document(RawPolicyDocument),
}

/// An AWS policy document: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPolicyDocument {
    /// The document as JSON text.
    pub json: Option<String>,
    /// File that holds the document.
    #[schemars(example = &"/etc/forebay/alice.json")]
    pub file: Option<String>,
}

/// The policy of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBucketPolicy {
    /// Bucket, or a pattern of buckets with `*` and `?`.
    #[schemars(example = &"public-*")]
    pub bucket: Option<String>,
    /// `public-read`, `public-read-write`, or an AWS policy document with a `Principal`.
    #[schemars(example = &"public-read")]
    pub policy: Option<RawPolicy>,
}

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RawStore {
    /// An S3 service.
    S3(Box<RawS3Store>),
    /// A directory tree, files as files.
    Fs(RawFsStore),
    /// A log in a folder, for one gateway: durable in the time of a sync.
    Log(RawLogStore),
    /// Redis or Valkey, for any number of gateways.
    Redis(Box<RawRedisStore>),
    /// Several stores that share nothing, kept equal.
    Mirror(Box<RawMirror>),
    /// Memory; gone when the program ends.
    Memory(RawNoSettings),
    /// Nowhere: takes everything, answers plausibly; measures the gateway itself.
    Null(RawNoSettings),
}

/// A type without settings.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawNoSettings {}

/// An S3 service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawS3Store {
    /// Scheme, host and port.
    #[schemars(example = &"https://s3.eu-central-1.amazonaws.com")]
    pub endpoint: Option<String>,
    /// In place of `endpoint`: several that share their data, so that each can answer for all.
    #[schemars(example = ["https://s3-1.internal:9000", "https://s3-2.internal:9000"])]
    pub endpoints: Option<Vec<String>>,
    /// Region to sign for; from `AWS_REGION` or the endpoint's name unless given.
    #[schemars(example = &"eu-central-1")]
    pub region: Option<String>,
    /// `path` (`host/bucket/key`) or `virtual` (`bucket.host/key`).
    #[schemars(example = &"path")]
    pub addressing: Option<String>,
    /// `http1`, or `http2` (by ALPN over TLS, with prior knowledge without it).
    #[schemars(example = &"http1")]
    pub protocol: Option<String>,
    /// What vouches for a payload that came without a hash: `auto`, `unsigned` or `chunks`.
    #[schemars(example = &"auto")]
    pub payload_signing: Option<String>,
    /// PEM file of the certificates to trust in place of the machine's own.
    #[schemars(example = &"/etc/ssl/own-ca.pem")]
    pub ca_file: Option<String>,
    /// Where keys come from: `aws` (environment, profile files, instance or web identity, in the
    /// usual order), `keys` (the keys below) or `none` (requests go unsigned).
    #[schemars(example = &"aws")]
    pub credentials: Option<String>,
    /// Profile of the AWS files to use, with `credentials = "aws"`.
    #[schemars(example = &"backup")]
    pub profile: Option<String>,
    /// Id of the key, with `credentials = "keys"`.
    #[schemars(example = &"AKIAEXAMPLE000000002")]
    pub access_key: Option<String>,
    /// The secret itself; rather use one of the other two.
    pub secret_key: Option<String>,
    /// File that holds the secret, and nothing else.
    #[schemars(example = &"/run/secrets/origin")]
    pub secret_key_file: Option<String>,
    /// Environment variable that holds the secret.
    #[schemars(example = &"ORIGIN_SECRET_KEY")]
    pub secret_key_env: Option<String>,
    /// How long things may take.
    pub timeouts: Option<RawTimeouts>,
    /// How many connections there may be.
    pub pool: Option<RawPool>,
    /// How often a request is tried.
    pub retries: Option<RawRetries>,
    /// How an endpoint is chosen.
    pub balance: Option<RawBalance>,
    /// When an endpoint is left out.
    pub health: Option<RawHealth>,
    /// What one endpoint is asked at most.
    pub limits: Option<RawEndpointLimits>,
    /// When a read is sent twice.
    pub hedge: Option<RawHedge>,
}

/// How long things may take at an S3 service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTimeouts {
    /// To a connection that is ready, TLS included.
    #[schemars(example = &"3s")]
    pub connect: Option<String>,
    /// From the sent request to the first byte of its answer.
    #[schemars(example = &"60s")]
    pub first_byte: Option<String>,
    /// Without a byte in a body under way.
    #[schemars(example = &"30s")]
    pub idle: Option<String>,
    /// One attempt of a request without a payload, up to the answer's headers.
    #[schemars(example = &"65s")]
    pub attempt: Option<String>,
}

/// How many connections to an S3 service there may be, and how long they are kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPool {
    /// Open at once; further requests wait.
    #[schemars(example = 1024)]
    pub connections_max: Option<i64>,
    /// Kept open without a request.
    #[schemars(example = 256)]
    pub idle_connections_max: Option<i64>,
    /// Time without a request after which a connection is not used any more.
    #[schemars(example = &"15s")]
    pub idle_timeout: Option<String>,
    /// Time a request waits for a connection before it is told to slow down.
    #[schemars(example = &"2s")]
    pub wait_max: Option<String>,
    /// Requests at once on one HTTP/2 connection.
    #[schemars(example = 100)]
    pub streams_max: Option<i64>,
    /// Buffer of one connection in each direction.
    #[schemars(example = &"32KiB")]
    pub buffer_bytes_max: Option<String>,
}

/// How often a request to an S3 service is tried.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRetries {
    /// Attempts of one request, the first included.
    #[schemars(example = 3)]
    pub attempts_max: Option<i64>,
    /// Most time before the second attempt; doubled for each further one.
    #[schemars(example = &"50ms")]
    pub backoff: Option<String>,
}

/// A directory tree, files as files.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawFsStore {
    /// Directory whose sub-directories are the buckets; made when absent.
    #[schemars(example = &"/srv/objects")]
    pub path: Option<String>,
    /// `sync` (a write is on the disk when it is acknowledged) or `none` (left to the kernel).
    #[schemars(example = &"sync")]
    pub durability: Option<String>,
    /// Where metadata is kept: `attribute` (of the file, where possible) or `sidecar` (a file).
    #[schemars(example = &"attribute")]
    pub records: Option<String>,
}

/// Which buckets go to which store through which layers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    /// Buckets, or patterns with `*` and `?`; all of them unless given.
    #[schemars(example = ["*"])]
    pub buckets: Option<Vec<String>>,
    /// Name of the store.
    #[schemars(example = &"default")]
    pub store: Option<String>,
    /// Name of a store of type `redis` through which gateways tell each other of writes; the hot
    /// store of the route's tier unless given, if that is a Redis.
    #[schemars(example = &"shared")]
    pub changes: Option<String>,
    /// Layers in the order a request meets them; none unless given.
    pub layers: Option<Vec<RawLayer>>,
}

/// A layer around a store.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RawLayer {
    /// Keeps pages of objects in memory.
    Cache(Box<RawCache>),
    /// Keeps small objects in a fast store first.
    Tier(Box<RawTier>),
}
