//! The AWS provider chain of the `aws-config` library: web identity, containers, instances, and
//! profiles that assume a role or run a process.
//!
//! Built at the first request, since building asks the environment. Source: AWS SDKs and Tools
//! Reference Guide, "Standardized credential providers".

use async_trait::async_trait;
use aws_config::{Region, default_provider::credentials::DefaultCredentialsChain};
use aws_credential_types::provider::ProvideCredentials as _;
use forebay_s3::sigv4::{Credentials, SecretKey};
use tokio::sync::OnceCell;

use super::{CredentialsError, Fetch, Fetched};

/// The library's default chain.
#[derive(Debug)]
pub(super) struct Chain {
    region: String,
    profile: Option<String>,
    built: OnceCell<DefaultCredentialsChain>,
}

impl Chain {
    pub(super) fn new(region: &str, profile: Option<&str>) -> Self {
        Self {
            region: region.to_owned(),
            profile: profile.map(str::to_owned),
            built: OnceCell::new(),
        }
    }

    async fn build(&self) -> DefaultCredentialsChain {
        let mut builder =
            DefaultCredentialsChain::builder().region(Region::new(self.region.clone()));
        if let Some(profile) = &self.profile {
            builder = builder.profile_name(profile);
        }
        builder.build().await
    }
}

#[async_trait]
impl Fetch for Chain {
    async fn fetch(&self) -> Result<Fetched, CredentialsError> {
        let chain = self.built.get_or_init(|| self.build()).await;
        let found = chain
            .provide_credentials()
            .await
            .map_err(|error| CredentialsError::Service(Box::new(error)))?;
        let credentials = Credentials {
            access_key_id: found.access_key_id().into(),
            secret_access_key: SecretKey::new(found.secret_access_key()),
            session_token: found.session_token().map(Into::into),
        };
        Ok(Fetched {
            credentials,
            expires: found.expiry(),
        })
    }
}
