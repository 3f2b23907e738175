//! The endpoints of a run: who they are, how they are reached, whether they answer.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use forebay_s3::sigv4::{Credentials, SecretKey};

use super::{
    arguments::{DEFAULT_BUCKET, RunArguments},
    cases::{Before, Group, Source},
    values::EndpointArgument,
};
use crate::{
    load::Target,
    prepare::{self, PrepareError},
    results::{self, Run},
    sign::Access,
    wire::{
        Address, Connector, Scheme,
        connect::{Timeouts, Trust},
    },
};

/// One endpoint, ready to be asked.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) label: String,
    pub(super) address: Address,
    pub(super) target: Target,
}

/// All endpoints of a run.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) list: Vec<Endpoint>,
    /// Where objects are uploaded, if not at the endpoints under test.
    pub(super) prepare_at: Option<Endpoint>,
}

/// What is wrong with the endpoints as arguments.
pub(super) fn check(arguments: &RunArguments, fault: &mut impl FnMut(&str, String, &str, &str)) {
    let labels = labels(arguments);
    for (index, label) in labels.iter().enumerate() {
        if labels[..index].contains(label) {
            fault(
                "--endpoint",
                label.clone(),
                "endpoints with labels of their own",
                "write LABEL=URL",
            );
        }
    }
    let prepare_at = arguments.prepare_at.as_ref().map(label_of);
    let mut named: Vec<&str> = Vec::new();
    named.extend(arguments.anonymous.iter().flatten().map(String::as_str));
    named.extend(
        arguments
            .credentials
            .iter()
            .map(|credentials| &*credentials.label),
    );
    named.extend(
        arguments
            .tap_stats
            .iter()
            .filter_map(|tap| tap.label.as_deref()),
    );
    for name in named.into_iter().filter(|name| !name.is_empty()) {
        if !labels.iter().chain(&prepare_at).any(|label| label == name) {
            fault(
                "--anonymous, --credentials, --tap-stats",
                name.to_owned(),
                &labels.join(", "),
                "name the label of an endpoint",
            );
        }
    }
    let needs_keys = labels
        .iter()
        .zip(&arguments.endpoints)
        .any(|(label, endpoint)| {
            endpoint.address.scheme != Scheme::Redis && access(arguments, label).is_none()
        });
    if needs_keys {
        fault(
            "--access-key, --secret-key",
            "not given".to_owned(),
            "credentials, or --anonymous",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or send no signature",
        );
    }
    let speaks_redis = |endpoint: &EndpointArgument| endpoint.address.scheme == Scheme::Redis;
    let has_redis = arguments.endpoints.iter().any(speaks_redis);
    let name = arguments.workload.name();
    if has_redis && !["get", "hot", "put", "tier"].contains(&name) {
        fault(
            "--endpoint",
            "redis://…".to_owned(),
            "http:// or https:// with this workload",
            "with Redis use get, hot, put or tier",
        );
    }
}

fn label_of(endpoint: &EndpointArgument) -> String {
    match &endpoint.label {
        Some(label) => label.clone(),
        None => format!("{}:{}", endpoint.address.host, endpoint.address.port),
    }
}

fn labels(arguments: &RunArguments) -> Vec<String> {
    arguments.endpoints.iter().map(label_of).collect()
}

/// Who asks an endpoint; `None` when nobody said.
fn access(arguments: &RunArguments, label: &str) -> Option<Access> {
    let region = arguments.region.clone().into_boxed_str();
    let own = arguments.credentials.iter().find(|own| own.label == label);
    if let Some(own) = own {
        return Some(Access::Signed {
            credentials: Credentials {
                access_key_id: own.id.clone().into(),
                secret_access_key: SecretKey::new(own.secret.clone()),
                session_token: None,
            },
            region,
        });
    }
    let is_anonymous = arguments.anonymous.as_ref().is_some_and(|labels| {
        labels.iter().all(String::is_empty) || labels.iter().any(|anonymous| anonymous == label)
    });
    if is_anonymous {
        return Some(Access::Anonymous);
    }
    let (id, secret) = (
        arguments.access_key.as_ref()?,
        arguments.secret_key.as_ref()?,
    );
    let token = arguments
        .session_token
        .clone()
        .filter(|token| !token.is_empty());
    Some(Access::Signed {
        credentials: Credentials {
            access_key_id: id.clone().into(),
            secret_access_key: SecretKey::new(secret.clone()),
            session_token: token.map(Into::into),
        },
        region,
    })
}

impl Endpoints {
    /// Resolves the names.
    ///
    /// # Errors
    /// Names the endpoint that has no address, or credentials that can't be sent.
    pub(super) fn open(arguments: &RunArguments) -> anyhow::Result<Self> {
        let open = |endpoint: &EndpointArgument| open(arguments, endpoint);
        Ok(Self {
            list: arguments
                .endpoints
                .iter()
                .map(open)
                .collect::<Result<_, _>>()?,
            prepare_at: arguments.prepare_at.as_ref().map(open).transpose()?,
        })
    }

    /// As the run file has them.
    pub(super) fn shown(&self) -> Vec<results::Endpoint> {
        let shown = |endpoint: &Endpoint| {
            results::Endpoint::new(&endpoint.label, &endpoint.address.to_string())
        };
        self.list.iter().map(shown).collect()
    }

    /// Those that objects are uploaded to.
    pub(super) fn fillable(&self, index: usize) -> &Endpoint {
        self.prepare_at.as_ref().unwrap_or(&self.list[index])
    }

    /// Asks each endpoint for something small, and makes the bucket where that is wanted: whoever
    /// can't be measured is found before the first minute of waiting.
    ///
    /// # Errors
    /// Names the endpoint and what it said.
    pub(super) fn look(
        &mut self,
        arguments: &RunArguments,
        groups: &[Group],
        run: &mut Run,
    ) -> anyhow::Result<()> {
        if let Some(endpoint) = &self.prepare_at {
            look_at_bucket(arguments, endpoint).with_context(|| endpoint.named())?;
        }
        let is_filled_elsewhere = arguments.no_prepare || self.prepare_at.is_some();
        for (endpoint, shown) in self.list.iter().zip(&mut run.endpoints) {
            let looked = if is_filled_elsewhere {
                look_at_anything(arguments, endpoint, groups)
            } else {
                look_at_bucket(arguments, endpoint)
            };
            shown.server = looked.with_context(|| endpoint.named())?;
        }
        Ok(())
    }
}

impl Endpoint {
    pub(super) fn named(&self) -> String {
        format!("endpoint {} ({})", self.label, self.address)
    }
}

fn open(arguments: &RunArguments, endpoint: &EndpointArgument) -> anyhow::Result<Endpoint> {
    let label = label_of(endpoint);
    let address = endpoint.address.clone();
    let trust = if arguments.insecure {
        Trust::Anyone
    } else {
        Trust::Machine
    };
    let timeouts = Timeouts {
        connect: arguments.connect_timeout,
        silence: arguments.timeout,
    };
    let connector = Connector::new(&address, trust, timeouts)
        .map_err(|error| anyhow!(error))
        .with_context(|| format!("endpoint {label} ({address})"))?;
    let access = access(arguments, &label).unwrap_or(Access::Anonymous);
    access.check().context("credentials")?;
    Ok(Endpoint {
        target: Target {
            connector: Arc::new(connector),
            host: address.authority.clone(),
            access,
        },
        label,
        address,
    })
}

fn look_at_bucket(
    arguments: &RunArguments,
    endpoint: &Endpoint,
) -> Result<Option<String>, PrepareError> {
    let (target, bucket) = (&endpoint.target, &arguments.bucket);
    let may_create = arguments.create_bucket || bucket == DEFAULT_BUCKET;
    match prepare::list_once(target, bucket) {
        Err(error) if error.is_no_such_bucket() && may_create && !arguments.no_prepare => {
            prepare::create_bucket(target, bucket, &arguments.region)?;
            prepare::list_once(target, bucket)
        }
        other => other,
    }
}

/// Of an endpoint that may know nothing of buckets, such as a server of files: any answer will do,
/// unless it is to be read from, and what it is to be read is said to be there.
fn look_at_anything(
    arguments: &RunArguments,
    endpoint: &Endpoint,
    groups: &[Group],
) -> Result<Option<String>, PrepareError> {
    let listed = prepare::list_once(&endpoint.target, &arguments.bucket);
    let refused = match listed {
        Err(error @ PrepareError::Refused { .. }) => error,
        other => return other,
    };
    if !arguments.no_prepare || endpoint.address.scheme == Scheme::Redis {
        return Ok(None);
    }
    let read = groups
        .iter()
        .flatten()
        .find(|case| case.before == Before::Kept);
    match read.map(|case| &case.source) {
        Some(Source::Common { objects, .. }) => prepare::look_at(&endpoint.target, objects.get(0)),
        _ => Err(refused),
    }
}
