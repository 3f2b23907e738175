//! SIGHUP: users, bucket policies and certificates are read again; all else needs a restart.
//!
//! The new users are taken whole or not at all: with any fault in the config, the users file, a
//! policy or a secret, the old ones stay in force and the log says why.

use std::collections::BTreeMap;

use forebay_gateway::{
    Running,
    access::{self, RootKey},
    config::Config,
};

use super::{ConfigSources, variable};
use crate::{FaultyConfig, arguments::SourceArguments};

/// Keys that a reload takes over.
const RELOADED: [&str; 3] = ["users.", "users_file", "bucket_policies["];

/// Reads everything again; faults are logged, and then nothing changes.
pub(super) async fn reload(
    current: &mut Config,
    arguments: &SourceArguments,
    running: &Running,
    root: Option<&RootKey>,
) {
    // Files may be on a slow disk, and health must be answered meanwhile.
    let (arguments, root) = (arguments.clone(), root.cloned());
    let read = tokio::task::spawn_blocking(move || {
        let config = ConfigSources::read(&arguments)?.load_whole()?;
        let sources = access::Sources {
            root: root.as_ref(),
            variable: &variable,
        };
        let users = access::load(&config.access, &config.settings.listeners, sources)
            .map_err(FaultyConfig)?;
        anyhow::Ok((config, users))
    });
    match read
        .await
        .map_err(anyhow::Error::from)
        .and_then(|result| result)
    {
        Ok((config, users)) => {
            running.replace_users(users);
            tracing::info!("users and bucket policies reloaded");
            let ignored = differing_keys(current, &config);
            if !ignored.is_empty() {
                tracing::warn!(keys = ?ignored, "these changes need a restart");
            }
            current.access = config.access;
        }
        Err(error) => refuse(&error),
    }
    match running.reload_certificates() {
        Ok(()) => {}
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!(
                error = format!("{error:#}"),
                "reload refused, the old certificate stays"
            );
        }
    }
}

fn refuse(error: &anyhow::Error) {
    let Some(FaultyConfig(faults)) = error.downcast_ref() else {
        tracing::error!(
            error = format!("{error:#}"),
            "reload refused, the old users stay"
        );
        return;
    };
    for fault in faults {
        let (key, value, allowed, remedy) =
            (&fault.key, &fault.value, &fault.allowed, &fault.remedy);
        tracing::error!(
            key,
            value,
            allowed,
            remedy,
            "reload refused, the old users stay"
        );
    }
}

/// Keys of the config that differ and that a reload does not take over.
fn differing_keys(current: &Config, new: &Config) -> Vec<String> {
    let values = |config: &Config| -> BTreeMap<String, String> {
        let entries = config.entries.iter();
        let kept = entries.filter(|entry| !RELOADED.iter().any(|key| entry.key.starts_with(key)));
        kept.map(|entry| (entry.key.clone(), entry.value.clone()))
            .collect()
    };
    let (current, new) = (values(current), values(new));
    let changed = new
        .iter()
        .filter(|(key, value)| current.get(*key) != Some(value));
    let gone = current.keys().filter(|key| !new.contains_key(*key));
    changed.map(|(key, _)| key).chain(gone).cloned().collect()
}
