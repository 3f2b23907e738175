//! S3 services: opened with their credentials, counted, and where a client can go itself.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_origin::{CredentialsSource, OriginStore};
use forebay_s3::{operation::ObjectId, sigv4::Credentials};
use forebay_store::Query;
use forebay_telemetry::origin::OriginMetrics;
use forebay_tier::Presigner;
use prometheus_client::registry::Registry;

use super::{AssembleError, Components};
use crate::{
    access::read_secret,
    config::{CredentialsConfig, S3Config},
};

/// Sends clients to the S3 service itself.
pub(super) struct ByOrigin(pub(super) Arc<OriginStore>);

#[async_trait]
impl Presigner for ByOrigin {
    async fn presign(&self, object: &ObjectId, query: &Query) -> Option<String> {
        match self.0.presign(object, query).await {
            Ok(address) => address,
            Err(error) => {
                tracing::debug!(%error, "no address for a redirect");
                None
            }
        }
    }
}

/// Opens a service; nothing is asked of it yet.
pub(super) fn make_origin(
    name: &str,
    config: &S3Config,
    components: Components<'_>,
    registry: &mut Registry,
) -> Result<Arc<OriginStore>, AssembleError> {
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
