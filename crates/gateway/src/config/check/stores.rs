//! Judges `[stores.NAME]`: where objects are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    path::Path,
    time::Duration,
};

use forebay_fs::{Durability, FsSettings, RecordPlace};
use forebay_origin::{
    Addressing, OriginSettings, PayloadSigning, PoolSettings, Protocol, Retries, Timeouts,
};
use http::Uri;

use super::{
    Rule, Section, Surroundings, Wrong,
    access::{Secrets, check_access_key, check_secret},
    engines::{check_log, check_redis},
    mirror::{Known, check_mirror},
    server::REGION_DEFAULT,
    steady::{RawSteady, check_endpoints, check_steady},
};
use crate::config::{
    CredentialsConfig, DEFAULT_STORE, S3Config, StoreConfig,
    raw::{RawFsStore, RawNoSettings, RawPool, RawRetries, RawS3Store, RawStore, RawTimeouts},
    section::{Given, quoted},
    value::{KIB, MIB},
};

/// What stands in where the config says nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fallback<'a> {
    pub(super) data_dir: &'a Path,
    /// The gateway's own region.
    pub(super) region: &'a str,
    pub(super) surroundings: &'a Surroundings,
}

pub(super) fn check(
    section: &mut Section<'_, '_>,
    raw: Option<BTreeMap<String, RawStore>>,
    fallback: Fallback<'_>,
) -> BTreeMap<String, StoreConfig> {
    let raw = raw.unwrap_or_default();
    let raw = if raw.is_empty() {
        BTreeMap::from([(
            DEFAULT_STORE.to_owned(),
            RawStore::Fs(RawFsStore::default()),
        )])
    } else {
        raw
    };
    let mut stores = BTreeMap::new();
    let mut mirrors = Vec::new();
    for (name, raw) in raw {
        let mut table = section.inner(&name);
        let given = Given::Yes;
        let store = match raw {
            RawStore::S3(raw) => {
                table.note("type", "\"s3\"", given);
                check_s3(&mut table, *raw, fallback.surroundings)
                    .map(Box::new)
                    .map(StoreConfig::S3)
            }
            RawStore::Fs(raw) => {
                table.note("type", "\"fs\"", given);
                Some(StoreConfig::Fs(check_fs(&mut table, raw, fallback)))
            }
            RawStore::Log(raw) => {
                table.note("type", "\"log\"", given);
                check_log(&mut table, raw, fallback.region).map(StoreConfig::Log)
            }
            RawStore::Redis(raw) => {
                table.note("type", "\"redis\"", given);
                check_redis(&mut table, *raw, fallback.region)
                    .map(Box::new)
                    .map(StoreConfig::Redis)
            }
            // A mirror is judged by its members, so it comes after all of them.
            RawStore::Mirror(raw) => {
                mirrors.push((name, *raw));
                continue;
            }
            RawStore::Memory(RawNoSettings {}) => {
                table.note("type", "\"memory\"", given);
                table.warn(format!(
                    "{}: objects are gone when the program ends",
                    table.at("type")
                ));
                Some(StoreConfig::Memory)
            }
            RawStore::Null(RawNoSettings {}) => {
                table.note("type", "\"null\"", given);
                table.warn(format!(
                    "{}: nothing that is written is kept",
                    table.at("type")
                ));
                Some(StoreConfig::Null)
            }
        };
        // A store with a fault keeps its name, so that routes to it are not faults as well.
        stores.insert(name, store.unwrap_or(StoreConfig::Null));
    }
    let names: BTreeSet<String> = mirrors.iter().map(|(name, _)| name.clone()).collect();
    for (name, raw) in mirrors {
        let mut table = section.inner(&name);
        table.note("type", "\"mirror\"", Given::Yes);
        let known = Known {
            stores: &stores,
            mirrors: &names,
        };
        let mirror = check_mirror(&mut table, (&name, raw), known);
        let mirror = mirror.map(Box::new).map(StoreConfig::Mirror);
        stores.insert(name, mirror.unwrap_or(StoreConfig::Null));
    }
    stores
}

fn check_fs(
    table: &mut Section<'_, '_>,
    raw: RawFsStore,
    Fallback {
        data_dir, region, ..
    }: Fallback<'_>,
) -> FsSettings {
    let RawFsStore {
        path,
        durability,
        records,
    } = raw;
    let durabilities = [("sync", Durability::Sync), ("none", Durability::None)];
    let places = [
        ("attribute", RecordPlace::Attribute),
        ("sidecar", RecordPlace::Sidecar),
    ];
    let root = table.text_or("path", path, &data_dir.to_string_lossy());
    let mut settings = FsSettings {
        durability: table.choice("durability", durability, &durabilities),
        records: table.choice("records", records, &places),
        ..FsSettings::new(root)
    };
    region.clone_into(&mut settings.native.region);
    settings
}

fn check_s3(
    table: &mut Section<'_, '_>,
    raw: RawS3Store,
    surroundings: &Surroundings,
) -> Option<S3Config> {
    let RawS3Store {
        endpoint,
        endpoints,
        region,
        addressing,
        protocol,
        payload_signing,
        ca_file,
        credentials,
        profile,
        access_key,
        secret_key,
        secret_key_file,
        secret_key_env,
        timeouts,
        pool,
        retries,
        balance,
        health,
        limits,
        hedge,
    } = raw;
    let endpoints = check_endpoints(table, endpoint, endpoints);
    let from_name = endpoints
        .iter()
        .flatten()
        .next()
        .and_then(Uri::host)
        .and_then(region_of_host);
    let region_default = from_name
        .or(surroundings.aws_region.as_deref())
        .unwrap_or(REGION_DEFAULT)
        .to_owned();
    let region = table.text_or("region", region, &region_default);
    let addressings = [
        ("path", Addressing::Path),
        ("virtual", Addressing::VirtualHost),
    ];
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let signings = [
        ("auto", PayloadSigning::Auto),
        ("unsigned", PayloadSigning::Unsigned),
        ("chunks", PayloadSigning::Chunks),
    ];
    let addressing = table.choice("addressing", addressing, &addressings);
    let protocol = table.choice("protocol", protocol, &protocols);
    let payload_signing = table.choice("payload_signing", payload_signing, &signings);
    let ca_file = table.text("ca_file", ca_file).map(Into::into);
    let secrets = Secrets {
        inline: secret_key,
        file: secret_key_file,
        variable: secret_key_env,
    };
    let keys = Keys {
        credentials,
        profile,
        access_key,
        secrets,
    };
    let credentials = check_credentials(table, keys);
    let endpoints_count = endpoints.as_ref().map_or(1, Vec::len);
    let timeouts = check_timeouts(&mut table.inner("timeouts"), timeouts);
    let pool = check_pool(&mut table.inner("pool"), pool);
    let retries = check_retries(&mut table.inner("retries"), retries);
    let steady = RawSteady {
        balance,
        health,
        limits,
        hedge,
    };
    let steady = check_steady(table, steady, (endpoints_count, timeouts.idle));
    let endpoints = endpoints?;
    let settings = OriginSettings {
        region,
        addressing,
        protocol,
        payload_signing,
        ca_file,
        timeouts,
        pool,
        retries,
        endpoints: endpoints.clone(),
        ..steady(OriginSettings::new(endpoints.into_iter().next()?))
    };
    Some(S3Config {
        settings,
        credentials: credentials?,
    })
}

/// The region that an Amazon endpoint has in its name: `s3.REGION.amazonaws.com`.
fn region_of_host(host: &str) -> Option<&str> {
    let labels: Vec<&str> = host.strip_suffix(".amazonaws.com")?.split('.').collect();
    match labels[..] {
        ["s3" | "s3-fips", region] | ["s3" | "s3-fips", "dualstack", region] => Some(region),
        _ => None,
    }
}

struct Keys {
    credentials: Option<String>,
    profile: Option<String>,
    access_key: Option<String>,
    secrets: Secrets,
}

#[derive(Clone, Copy)]
enum KeysFrom {
    Aws,
    Keys,
    None,
}

fn check_credentials(table: &mut Section<'_, '_>, raw: Keys) -> Option<CredentialsConfig> {
    let Keys {
        credentials,
        profile,
        access_key,
        secrets,
    } = raw;
    let words = [
        ("aws", KeysFrom::Aws),
        ("keys", KeysFrom::Keys),
        ("none", KeysFrom::None),
    ];
    let from = table.choice("credentials", credentials, &words);
    let is_key_set = access_key.is_some() || secrets.is_any_set();
    if is_key_set && !matches!(from, KeysFrom::Keys) {
        let wrong = Wrong {
            value: "…".to_owned(),
            allowed: "only with credentials = \"keys\"",
            remedy: "add credentials = \"keys\", or remove the key and its secret",
        };
        table.fault("access_key", wrong);
    }
    if profile.is_some() && !matches!(from, KeysFrom::Aws) {
        let wrong = Wrong {
            value: profile.as_deref().map(quoted).unwrap_or_default(),
            allowed: "only with credentials = \"aws\"",
            remedy: "remove the profile, or the other kind of credentials",
        };
        table.fault("profile", wrong);
    }
    match from {
        KeysFrom::Aws => Some(CredentialsConfig::Aws {
            profile: table.text("profile", profile),
        }),
        KeysFrom::Keys => {
            let access_key = check_access_key(table, access_key);
            let secret_key = check_secret(table, secrets);
            Some(CredentialsConfig::Keys {
                access_key: access_key?,
                secret_key: secret_key?,
            })
        }
        KeysFrom::None => Some(CredentialsConfig::None),
    }
}

pub(super) fn between(default: Duration, range: RangeInclusive<u64>) -> Rule<Duration> {
    let (start, end) = range.into_inner();
    Rule {
        default,
        range: Duration::from_millis(start)..=Duration::from_millis(end),
    }
}

fn check_timeouts(table: &mut Section<'_, '_>, raw: Option<RawTimeouts>) -> Timeouts {
    let RawTimeouts {
        connect,
        first_byte,
        idle,
        attempt,
    } = raw.unwrap_or_default();
    let usual = Timeouts::default();
    let hour_ms = 3_600_000;
    let timeouts = Timeouts {
        connect: table.span("connect", connect, between(usual.connect, 10..=60_000)),
        first_byte: table.span(
            "first_byte",
            first_byte,
            between(usual.first_byte, 10..=hour_ms),
        ),
        idle: table.span("idle", idle, between(usual.idle, 10..=hour_ms)),
        attempt: table.span("attempt", attempt, between(usual.attempt, 10..=2 * hour_ms)),
    };
    if timeouts.attempt < timeouts.connect {
        let wrong = Wrong {
            value: format!("{:?}", timeouts.attempt),
            allowed: "at least as long as timeouts.connect",
            remedy: "make the attempt longer, or the time to connect shorter",
        };
        table.fault("attempt", wrong);
    }
    timeouts
}

fn check_pool(table: &mut Section<'_, '_>, raw: Option<RawPool>) -> PoolSettings {
    let RawPool {
        connections_max,
        idle_connections_max,
        idle_timeout,
        wait_max,
        streams_max,
        buffer_bytes_max,
    } = raw.unwrap_or_default();
    let usual = PoolSettings::default();
    let rule = |default: usize, range| Rule {
        default: u32::try_from(default).unwrap_or(1),
        range,
    };
    let buffer = Rule {
        default: usual.buffer_bytes_max as u64,
        range: 8 * KIB..=4 * MIB,
    };
    let buffer_bytes = table.size("buffer_bytes_max", buffer_bytes_max, buffer);
    let connections = rule(usual.connections_max, 1..=65_536);
    let idle = rule(usual.idle_connections_max, 0..=65_536);
    let streams = rule(usual.streams_max, 1..=1024);
    PoolSettings {
        connections_max: table.count("connections_max", connections_max, connections) as usize,
        idle_connections_max: table.count("idle_connections_max", idle_connections_max, idle)
            as usize,
        idle_timeout: table.span(
            "idle_timeout",
            idle_timeout,
            between(usual.idle_timeout, 100..=3_600_000),
        ),
        wait_max: table.span("wait_max", wait_max, between(usual.wait_max, 0..=300_000)),
        streams_max: table.count("streams_max", streams_max, streams) as usize,
        buffer_bytes_max: usize::try_from(buffer_bytes).unwrap_or(usual.buffer_bytes_max),
    }
}

fn check_retries(table: &mut Section<'_, '_>, raw: Option<RawRetries>) -> Retries {
    let RawRetries {
        attempts_max,
        backoff,
    } = raw.unwrap_or_default();
    let usual = Retries::default();
    let attempts = Rule {
        default: usual.attempts_max,
        range: 1..=10,
    };
    Retries {
        attempts_max: table.count("attempts_max", attempts_max, attempts),
        backoff: table.span("backoff", backoff, between(usual.backoff, 0..=10_000)),
    }
}
