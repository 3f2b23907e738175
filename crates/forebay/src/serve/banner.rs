//! The message at the start: where it listens, what is behind it, how to try it.
//!
//! For people, so it goes to standard error once and is no line of the log. It is the only place
//! that ever shows a secret: a root key in the moment it is made.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use forebay_gateway::{
    Running,
    config::{
        CacheSettings, Coherence, Config, CredentialsConfig, LayerConfig, RouteConfig, StoreConfig,
        value::{ByteSize, MIB, Span},
    },
    settings::Authentication,
};
use forebay_store::Identity;

use super::root::Root;

/// What the message is about.
pub(super) struct Started<'a> {
    pub(super) config: &'a Config,
    pub(super) running: &'a Running,
    pub(super) root: &'a Root,
    pub(super) admin_address: SocketAddr,
}

/// Prints the message.
pub(super) fn print(started: &Started<'_>) {
    let mut text = String::new();
    // Writing to a text can't fail, and a closed standard error is no reason to stop.
    let _ = write(&mut text, started);
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn write(text: &mut String, started: &Started<'_>) -> fmt::Result {
    let Started {
        config,
        running,
        root,
        admin_address,
    } = started;
    writeln!(text, "forebay {}", env!("CARGO_PKG_VERSION"))?;
    for (address, listener) in running.addresses().iter().zip(&config.settings.listeners) {
        let scheme = if listener.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let who = match &listener.authentication {
            Authentication::Required => String::new(),
            Authentication::Off { identity } => match identity {
                Identity::User(name) => format!("  (no signatures: everybody is {name:?})"),
                Identity::Anonymous => "  (no signatures: everybody is anonymous)".to_owned(),
            },
        };
        writeln!(text, "  listen   {scheme}://{address}{who}")?;
    }
    writeln!(
        text,
        "  admin    http://{admin_address}/metrics, /health/live, /health/ready"
    )?;
    for route in &config.routes {
        write_route(text, config, route)?;
    }
    for warning in &config.warnings {
        writeln!(text, "  note     {warning}")?;
    }
    match root {
        Root::None => writeln!(
            text,
            "  users    {} in the config",
            config.access.users.len()
        )?,
        Root::FromEnvironment(key) => {
            writeln!(text, "  root     {} from the environment", key.access_key)?;
        }
        Root::FromFile { key, path } => {
            writeln!(
                text,
                "  root     {}, secret in {}",
                key.access_key,
                path.display()
            )?;
        }
        Root::Made { key, path } => {
            writeln!(
                text,
                "  root     made now, shown this once, kept in {}",
                path.display()
            )?;
            writeln!(text, "           access key  {}", key.access_key)?;
            writeln!(text, "           secret key  {}", key.secret_key.expose())?;
        }
    }
    write_trial(text, started)
}

fn write_route(text: &mut String, config: &Config, route: &RouteConfig) -> fmt::Result {
    let buckets = route.buckets.join(" ");
    let store = match &config.stores[&route.store] {
        StoreConfig::S3(s3) => {
            let signer = match &s3.credentials {
                CredentialsConfig::Aws { profile: None } => "AWS credentials".to_owned(),
                CredentialsConfig::Aws {
                    profile: Some(name),
                } => format!("AWS profile {name}"),
                CredentialsConfig::Keys { access_key, .. } => format!("key {access_key}"),
                CredentialsConfig::None => "unsigned".to_owned(),
            };
            let endpoints = s3.settings.endpoints.iter().map(ToString::to_string);
            let endpoints = endpoints.collect::<Vec<_>>().join(" ");
            format!("s3 {endpoints} ({}, {signer})", s3.settings.region)
        }
        StoreConfig::Fs(fs) => format!("fs {}", fs.root.display()),
        StoreConfig::Log(log) => format!("log {}", log.folder.display()),
        StoreConfig::Redis(redis) => {
            let servers = redis.settings.servers.iter().map(ToString::to_string);
            format!("redis {}", servers.collect::<Vec<_>>().join(" "))
        }
        StoreConfig::Mirror(mirror) => format!(
            "mirror {} (journal in {})",
            mirror.members.join(" "),
            mirror.journal
        ),
        StoreConfig::Memory => "memory".to_owned(),
        StoreConfig::Null => "null".to_owned(),
    };
    writeln!(text, "  buckets  {buckets} -> {} = {store}", route.store)?;
    for layer in &route.layers {
        match layer {
            LayerConfig::Cache(cache) => write_cache(text, cache)?,
            LayerConfig::Tier(tier) => writeln!(
                text,
                "  tier     up to {} in {}, moved after {}",
                ByteSize(tier.settings.object_bytes_max),
                tier.hot,
                Span(tier.settings.demote_after)
            )?,
        }
    }
    Ok(())
}

fn write_cache(text: &mut String, cache: &CacheSettings) -> fmt::Result {
    let coherence = match cache.coherence {
        Coherence::Bounded { ttl, tti, stale } => {
            let after = [
                ("tti", tti.unwrap_or_default()),
                ("stale while revalidated", stale.while_revalidate),
                ("stale on errors", stale.if_error),
            ];
            let after = after.into_iter().filter(|(_, span)| !span.is_zero());
            after.fold(format!("ttl {}", Span(ttl)), |text, (name, span)| {
                format!("{text}, {name} {}", Span(span))
            })
        }
        mode @ (Coherence::Strict | Coherence::Exclusive | Coherence::Immutable) => {
            mode.mode().name().to_owned()
        }
    };
    let memory = ByteSize(cache.capacity_bytes / MIB * MIB);
    let page = ByteSize(cache.page_bytes.get());
    let disk = cache.disk.as_ref().map_or_else(String::new, |disk| {
        let size = ByteSize(disk.capacity_bytes);
        format!(" and {size} of {}", disk.folder.display())
    });
    writeln!(
        text,
        "  cache    {memory} of memory{disk}, pages of {page}, {coherence}"
    )
}

/// The three lines to paste into a shell.
fn write_trial(text: &mut String, started: &Started<'_>) -> fmt::Result {
    let Started {
        config,
        running,
        root,
        ..
    } = started;
    let Some((address, listener)) = running
        .addresses()
        .iter()
        .zip(&config.settings.listeners)
        .next()
    else {
        return Ok(());
    };
    let scheme = if listener.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let region = config
        .settings
        .regions
        .first()
        .map_or("us-east-1", String::as_str);
    writeln!(text, "\nTry it with the aws cli:")?;
    match root {
        Root::FromEnvironment(_) => writeln!(
            text,
            "  export AWS_ACCESS_KEY_ID=$FOREBAY_ROOT_ACCESS_KEY \
             AWS_SECRET_ACCESS_KEY=$FOREBAY_ROOT_SECRET_KEY"
        )?,
        Root::FromFile { path, .. } | Root::Made { path, .. } => writeln!(
            text,
            "  unset AWS_ACCESS_KEY_ID AWS_PROFILE; export AWS_SHARED_CREDENTIALS_FILE={}",
            shell_word(&absolute(path))
        )?,
        Root::None => writeln!(
            text,
            "  export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY=...",
            config
                .access
                .users
                .first()
                .map_or("...", |user| user.access_key.as_str())
        )?,
    }
    let address = reachable(*address);
    writeln!(
        text,
        "  export AWS_ENDPOINT_URL={scheme}://{address} AWS_REGION={region}"
    )?;
    let trial = if config
        .stores
        .values()
        .all(|store| matches!(store, StoreConfig::S3(_)))
    {
        "aws s3 ls"
    } else {
        "aws s3 mb s3://first-bucket && aws s3 ls"
    };
    writeln!(text, "  {trial}\n")
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// An address that a client on this machine can use: nobody connects to 0.0.0.0.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_shell() {
        for (path, word) in [
            ("/srv/data/.forebay", "/srv/data/.forebay"),
            ("/srv/my data", "'/srv/my data'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
        ] {
            assert_eq!(shell_word(path), word);
        }
    }

    #[test]
    fn the_unspecified_address_is_shown_as_loopback() {
        for (address, shown) in [
            ("0.0.0.0:9000", "127.0.0.1:9000"),
            ("[::]:9000", "[::1]:9000"),
            ("10.0.0.1:9000", "10.0.0.1:9000"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()).to_string(), shown);
        }
    }
}
