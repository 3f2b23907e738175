//! A tier layer as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Keeps small objects in a fast store first.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTier {
    /// Name of the hot store, of type `log` or `redis`; the route's store is the cold one.
    #[schemars(example = &"hot")]
    pub hot: Option<String>,
    /// What this tier's objects are called in the hot store; the name of the cold store unless
    /// given. Gateways that share them say the same.
    #[schemars(example = &"amazon")]
    pub space: Option<String>,
    /// Largest object that goes to the hot store; `0B` is write-through.
    #[schemars(example = &"1MiB")]
    pub max_object_size: Option<String>,
    /// Age at which an object is moved to the cold store; `0s` is write-back.
    #[schemars(example = &"1h")]
    pub demote_after: Option<String>,
    /// Bytes that the cold store may lack: from half of them on the mover hurries, from nine tenths
    /// on writes go to the cold store.
    #[schemars(example = &"1GiB")]
    pub dirty_max: Option<String>,
    /// Age of what the cold store lacks from which on the gateway is not ready.
    #[schemars(example = &"24h")]
    pub oldest_dirty_max: Option<String>,
    /// Moves under way at once.
    #[schemars(example = 16)]
    pub moves_max: Option<i64>,
    /// Moves begun in a second; as many as there are unless given.
    #[schemars(example = 500)]
    pub moves_per_second_max: Option<i64>,
    /// What becomes of dirty objects at the end of the program: `leave` them where they are
    /// durable, or `drain` them into the cold store.
    #[schemars(example = &"leave")]
    pub on_stop: Option<String>,
    /// Whether the cold store judges `If-Match` and `If-None-Match` of writes: `honoured`, or
    /// `ignored`, where the tier looks before it writes.
    #[schemars(example = &"honoured")]
    pub conditional_writes: Option<String>,
    /// Objects in the cold store of at least so many bytes are answered with a redirect to a
    /// presigned address there, for clients that send `x-forebay-redirect: allow`; never unless
    /// given.
    #[schemars(example = &"64MiB")]
    pub redirect_min: Option<String>,
    /// What is different for some objects; the first that matches counts.
    pub rules: Option<Vec<RawTierRule>>,
}

/// Where some objects go.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTierRule {
    /// `BUCKET/KEY` with `*` and `?`.
    #[schemars(example = &"logs/*.json")]
    pub objects: Option<String>,
    /// `hot` or `cold`.
    #[schemars(example = &"cold")]
    pub place: Option<String>,
    /// Largest object that goes to the hot store, in place of the layer's.
    #[schemars(example = &"64KiB")]
    pub max_object_size: Option<String>,
}
