//! Judges stores of type `log` and `redis`.

use std::{ops::RangeInclusive, time::Duration};

use forebay_log::{LogSettings, OnUnnamedDamage};
use forebay_redis::settings::{
    Mode, PoolSettings, Promise, RedisSettings, Security, Timeouts, Volatile,
};

use super::{
    Rule, Section, Wrong,
    access::{Secrets, check_secret},
};
use crate::config::{
    RedisConfig,
    raw::{RawLogStore, RawRedisStore, RawRedisTimeouts},
    section::{Given, quoted},
    value::{GIB, KIB, MIB},
};

/// The largest disk or memory that is believed: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

/// Judges a log.
pub(super) fn check_log(
    table: &mut Section<'_, '_>,
    raw: RawLogStore,
    region: &str,
) -> Option<LogSettings> {
    let RawLogStore {
        path,
        segment,
        payload_max,
        size_max,
        index_max,
        queue_max,
        on_damage,
    } = raw;
    let folder = table.text("path", path).filter(|path| !path.is_empty());
    if folder.is_none() {
        let remedy = "name a folder of this log alone: path = \"/var/lib/forebay/hot\"";
        table.missing("path", remedy);
    }
    let usual = LogSettings::new(folder.as_deref().unwrap_or_default());
    let segment_bytes = table.size("segment", segment, sizes(usual.segment_bytes, MIB..=GIB));
    let payload = sizes(
        usual.payload_bytes_max as u64,
        KIB..=segment_bytes.min(16 * MIB),
    );
    let payload_bytes = table.size("payload_max", payload_max, payload);
    let bytes_max = match size_max {
        None => {
            table.text("size_max", None);
            None
        }
        Some(text) => {
            let least = 4 * segment_bytes;
            Some(table.size("size_max", Some(text), sizes(BYTES_MAX, least..=BYTES_MAX)))
        }
    };
    let index = sizes(usual.index_bytes_max, MIB..=BYTES_MAX);
    let queue = sizes(usual.queue_bytes_max, 4 * MIB..=GIB);
    let damage = [
        ("refuse", OnUnnamedDamage::Refuse),
        ("lose", OnUnnamedDamage::Lose),
    ];
    let mut settings = LogSettings {
        segment_bytes,
        payload_bytes_max: usize::try_from(payload_bytes).unwrap_or(usual.payload_bytes_max),
        bytes_max,
        index_bytes_max: table.size("index_max", index_max, index),
        queue_bytes_max: table.size("queue_max", queue_max, queue),
        on_unnamed_damage: table.choice("on_damage", on_damage, &damage),
        ..usual
    };
    region.clone_into(&mut settings.native.region);
    folder.map(|_| settings)
}

fn sizes(default: u64, range: RangeInclusive<u64>) -> Rule<u64> {
    Rule { default, range }
}

/// How the servers make one store, before the master is known.
#[derive(Debug, Clone, Copy)]
enum Deployment {
    Single,
    Sentinel,
    Cluster,
}

/// Judges Redis.
pub(super) fn check_redis(
    table: &mut Section<'_, '_>,
    raw: RawRedisStore,
    region: &str,
) -> Option<RedisConfig> {
    let RawRedisStore {
        urls,
        mode,
        master,
        ca_file,
        username,
        secret_key,
        secret_key_file,
        secret_key_env,
        database,
        prefix,
        replicas_min,
        allow_volatile,
        connections,
        blob_connections,
        pending_max,
        timeouts,
    } = raw;
    let usual = RedisSettings::single("", 0);
    let mode = check_mode(table, mode, master);
    let urls = table.texts_or("urls", urls, &[]);
    let prefix = table.text_or("prefix", prefix, &usual.prefix);
    let database = table.count("database", database, counts(0, 0..=1_000_000));
    let promise = check_promise(table, replicas_min, allow_volatile);
    let pool = PoolSettings {
        connections: count(table, "connections", connections, usual.pool.connections),
        blob_connections: count(
            table,
            "blob_connections",
            blob_connections,
            usual.pool.blob_connections,
        ),
        pending_max: count(table, "pending_max", pending_max, usual.pool.pending_max),
    };
    let timeouts = check_timeouts(&mut table.inner("timeouts"), timeouts);
    let settings = RedisSettings {
        mode,
        database,
        prefix,
        promise,
        pool,
        timeouts,
        ..usual
    };
    let settings = with_urls(table, settings, &urls)?;
    let settings = with_ca(table, settings, ca_file);
    tell_faults(table, &settings);
    let username = table.text("username", username);
    let secrets = Secrets {
        inline: secret_key,
        file: secret_key_file,
        variable: secret_key_env,
    };
    let password = if secrets.is_any_set() {
        Some(check_secret(table, secrets)?)
    } else {
        if let Some(name) = &username {
            let wrong = Wrong {
                value: quoted(name),
                allowed: "only with a password",
                remedy: "add secret_key_file or secret_key_env, which holds it",
            };
            table.fault("username", wrong);
        }
        None
    };
    Some(RedisConfig {
        settings,
        username,
        password,
        region: region.to_owned(),
    })
}

fn check_mode(table: &mut Section<'_, '_>, mode: Option<String>, master: Option<String>) -> Mode {
    let modes = [
        ("single", Deployment::Single),
        ("sentinel", Deployment::Sentinel),
        ("cluster", Deployment::Cluster),
    ];
    let deployment = table.choice("mode", mode, &modes);
    let master = table.text("master", master);
    match (deployment, master) {
        (Deployment::Single, None) => Mode::Single,
        (Deployment::Cluster, None) => Mode::Cluster,
        (Deployment::Sentinel, Some(master)) => Mode::Sentinel { master },
        (Deployment::Sentinel, None) => {
            table.missing("master", "name the master as the sentinels do");
            Mode::Single
        }
        (Deployment::Single | Deployment::Cluster, Some(master)) => {
            let wrong = Wrong {
                value: quoted(&master),
                allowed: "only with mode = \"sentinel\"",
                remedy: "remove it, or set the mode",
            };
            table.fault("master", wrong);
            Mode::Single
        }
    }
}

fn check_promise(
    table: &mut Section<'_, '_>,
    replicas_min: Option<i64>,
    allow_volatile: Option<bool>,
) -> Promise {
    let given = Given::from(allow_volatile.is_some());
    let is_allowed = allow_volatile.unwrap_or_default();
    table.note("allow_volatile", is_allowed.to_string(), given);
    if is_allowed {
        let key = table.at("allow_volatile");
        table.warn(format!(
            "{key}: what is acknowledged may be lost when a server ends"
        ));
    }
    Promise {
        replicas_min: table.count("replicas_min", replicas_min, counts(0, 0..=16)),
        volatile: if is_allowed {
            Volatile::Allowed
        } else {
            Volatile::Refused
        },
    }
}

fn counts(default: u32, range: RangeInclusive<u32>) -> Rule<u32> {
    Rule { default, range }
}

fn count(table: &mut Section<'_, '_>, key: &str, raw: Option<i64>, usual: usize) -> usize {
    let usual = u32::try_from(usual).unwrap_or(1);
    table.count(key, raw, counts(usual, 1..=65_536)) as usize
}

/// A URL may carry a login, but the config shows its values, so a password has keys of its own.
fn with_urls(
    table: &mut Section<'_, '_>,
    settings: RedisSettings,
    urls: &[String],
) -> Option<RedisSettings> {
    if urls.iter().any(|url| url.contains('@')) {
        let wrong = Wrong {
            value: "a URL with a login".to_owned(),
            allowed: "redis://HOST:PORT or rediss://HOST:PORT",
            remedy: "write username, and secret_key_file or secret_key_env for the password",
        };
        table.fault("urls", wrong);
        return None;
    }
    let database = settings.database;
    match settings.with_urls(urls) {
        Ok(read) => Some(RedisSettings { database, ..read }),
        Err(fault) => {
            let wrong = Wrong {
                value: quoted(&fault.value),
                allowed: fault.fault,
                remedy: "write it as in \"redis://127.0.0.1:6379\"",
            };
            table.fault(fault.key, wrong);
            None
        }
    }
}

fn with_ca(
    table: &mut Section<'_, '_>,
    settings: RedisSettings,
    ca_file: Option<String>,
) -> RedisSettings {
    let ca_file = table.text("ca_file", ca_file);
    let security = match (settings.security, ca_file) {
        (Security::Plain, Some(file)) => {
            let wrong = Wrong {
                value: quoted(&file),
                allowed: "only with rediss:// addresses",
                remedy: "write rediss:// for TLS, or remove the file",
            };
            table.fault("ca_file", wrong);
            Security::Plain
        }
        (Security::Tls { .. }, Some(file)) => Security::Tls {
            ca_file: Some(file.into()),
        },
        (security, None) => security,
    };
    RedisSettings {
        security,
        ..settings
    }
}

/// What the store itself finds wrong, and has no word for a remedy of its own.
fn tell_faults(table: &mut Section<'_, '_>, settings: &RedisSettings) {
    for fault in settings.check() {
        let wrong = Wrong {
            value: fault.value,
            allowed: fault.fault,
            remedy: "see `forebay config example`",
        };
        let time = fault.key.strip_suffix("_timeout");
        let key = time.map(|time| format!("timeouts.{time}"));
        table.fault(key.as_deref().unwrap_or(fault.key), wrong);
    }
}

fn check_timeouts(table: &mut Section<'_, '_>, raw: Option<RawRedisTimeouts>) -> Timeouts {
    let RawRedisTimeouts {
        connect,
        command,
        replicate,
        retry,
        backoff_max,
        ping,
        silence_max,
    } = raw.unwrap_or_default();
    let usual = Timeouts::default();
    let rule = |default| Rule {
        default,
        range: Duration::from_millis(1)..=Duration::from_mins(5),
    };
    Timeouts {
        connect: table.span("connect", connect, rule(usual.connect)),
        command: table.span("command", command, rule(usual.command)),
        replicate: table.span("replicate", replicate, rule(usual.replicate)),
        retry: table.span("retry", retry, rule(usual.retry)),
        backoff_max: table.span("backoff_max", backoff_max, rule(usual.backoff_max)),
        ping: table.span("ping", ping, rule(usual.ping)),
        silence_max: table.span("silence_max", silence_max, rule(usual.silence_max)),
    }
}
