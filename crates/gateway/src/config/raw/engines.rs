//! Stores that own their data and can be hot, as they are written: `log` and `redis`.

use schemars::JsonSchema;
use serde::Deserialize;

/// A log in a folder of this machine, for one gateway.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLogStore {
    /// Folder of the log; made when absent.
    #[schemars(example = &"/var/lib/forebay/hot")]
    pub path: Option<String>,
    /// Bytes of a segment, from which the next is begun. A smaller one makes room sooner.
    #[schemars(example = &"64MiB")]
    pub segment: Option<String>,
    /// Largest payload that lies in a segment; larger ones are files of their own.
    #[schemars(example = &"1MiB")]
    pub payload_max: Option<String>,
    /// What it may take of the disk; all there is unless given. Beyond it writes are told to slow
    /// down, or go to the cold store where a tier is around it.
    #[schemars(example = &"100GiB")]
    pub size_max: Option<String>,
    /// Memory for the names of objects; beyond it new ones are told to slow down.
    #[schemars(example = &"1GiB")]
    pub index_max: Option<String>,
    /// Bytes that may wait to be written; more are told to slow down.
    #[schemars(example = &"64MiB")]
    pub queue_max: Option<String>,
    /// When damage hides which objects it hit: `refuse` to start, or `lose` what is lost.
    #[schemars(example = &"refuse")]
    pub on_damage: Option<String>,
}

/// Redis or Valkey, for any number of gateways.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRedisStore {
    /// `redis://` or `rediss://` (TLS), host, port: the server, sentinels, or nodes of a cluster.
    #[schemars(example = ["redis://127.0.0.1:6379"])]
    pub urls: Option<Vec<String>>,
    /// `single`, `sentinel` or `cluster`.
    #[schemars(example = &"single")]
    pub mode: Option<String>,
    /// Name of the master, with `mode = "sentinel"`.
    #[schemars(example = &"mymaster")]
    pub master: Option<String>,
    /// PEM file of the certificates to trust in place of the machine's own.
    #[schemars(example = &"/etc/ssl/own-ca.pem")]
    pub ca_file: Option<String>,
    /// User of the servers' access list; the default user unless given.
    #[schemars(example = &"forebay")]
    pub username: Option<String>,
    /// The password itself; rather use one of the other two.
    pub secret_key: Option<String>,
    /// File that holds the password, and nothing else.
    #[schemars(example = &"/run/secrets/redis")]
    pub secret_key_file: Option<String>,
    /// Environment variable that holds the password.
    #[schemars(example = &"REDIS_PASSWORD")]
    pub secret_key_env: Option<String>,
    /// Number of the database.
    #[schemars(example = 0)]
    pub database: Option<i64>,
    /// Begins every key: gateways with the same one share what they keep.
    #[schemars(example = &"forebay")]
    pub prefix: Option<String>,
    /// Replicas that must have a write before it is acknowledged.
    #[schemars(example = 1)]
    pub replicas_min: Option<i64>,
    /// Uses servers that keep no log of their writes: what they acknowledge may be lost.
    #[schemars(example = false)]
    pub allow_volatile: Option<bool>,
    /// Connections to each server.
    #[schemars(example = 4)]
    pub connections: Option<i64>,
    /// Connections to each server for large payloads.
    #[schemars(example = 2)]
    pub blob_connections: Option<i64>,
    /// Commands under way on one connection; more are told to slow down.
    #[schemars(example = 1024)]
    pub pending_max: Option<i64>,
    /// How long things may take.
    pub timeouts: Option<RawRedisTimeouts>,
}

/// How long things may take at Redis.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRedisTimeouts {
    /// To a connection whose server was checked.
    #[schemars(example = &"2s")]
    pub connect: Option<String>,
    /// From a command to its answer.
    #[schemars(example = &"2s")]
    pub command: Option<String>,
    /// Until the replicas have a write; after it its outcome is unknown.
    #[schemars(example = &"1s")]
    pub replicate: Option<String>,
    /// How long a command that had no effect is tried again.
    #[schemars(example = &"500ms")]
    pub retry: Option<String>,
    /// Longest time between attempts to connect.
    #[schemars(example = &"2s")]
    pub backoff_max: Option<String>,
    /// Time between questions to the server that tells of other gateways' writes.
    #[schemars(example = &"500ms")]
    pub ping: Option<String>,
    /// Silence of that server after which nothing kept is taken for current.
    #[schemars(example = &"1s")]
    pub silence_max: Option<String>,
}
