//! `[admin]` as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// The listener for health, metrics and the admin API.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawAdmin {
    /// IP address and port; anything but loopback needs a token.
    #[schemars(example = &"127.0.0.1:9001")]
    pub listen: Option<String>,
    /// What the admin API asks for (`Authorization: Bearer TOKEN`); health and metrics do not.
    #[schemars(example = &"a long random text")]
    pub token: Option<String>,
    /// File that holds the token, alone.
    #[schemars(example = &"/run/secrets/forebay-admin")]
    pub token_file: Option<String>,
    /// Variable of the environment that holds the token.
    #[schemars(example = &"FOREBAY_ADMIN_TOKEN")]
    pub token_env: Option<String>,
}
