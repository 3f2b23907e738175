//! Judges a raw config: every value against its range, every combination against its promise.
//!
//! Called by `Config::load`. Opens nothing; each raw table is taken apart without `..`, so that a
//! new key can't be forgotten here. All faults come out together.

mod access;
mod admin;
mod cache;
mod disk;
mod engines;
mod kept;
mod mirror;
mod routes;
mod rules;
mod server;
mod steady;
mod stores;
mod tier;

use std::path::PathBuf;

use super::{
    Config, Fault, LogConfig, LogFormat, MemoryConfig, Outside, Surroundings,
    entry::Provenance,
    raw::{RawConfig, RawLog, RawMemory, RawUsersFile},
    section::{Findings, Form, Given, Rule, Section, Wrong},
    value::{ByteSize, GIB, MIB},
};
use crate::{config::AccessConfig, settings::Settings};

/// Memory for what is in flight unless the config says otherwise: room for thousands of 64 KiB
/// buffers, and less than a quarter on machines from 1 GiB on; smaller ones get a quarter. A
/// guess, to be revisited with `make bench`.
const BUDGET_BYTES_DEFAULT: u64 = 256 * MIB;

/// What a check came to: the thing itself or all that is wrong with it, and what it names.
pub(super) type Checked<T> = (Result<T, Vec<Fault>>, Vec<Outside>);

/// Judges the whole config.
pub(super) fn check(
    raw: RawConfig,
    surroundings: &Surroundings,
    provenance: &Provenance,
) -> Checked<Config> {
    let RawConfig {
        users_file,
        server,
        admin,
        memory,
        log,
        access_log,
        users,
        bucket_policies,
        stores,
        routes,
    } = raw;
    let mut findings = Findings::new(provenance);
    let users_file = findings
        .section("")
        .text("users_file", users_file)
        .map(PathBuf::from);
    if let Some(path) = &users_file {
        findings.outside.push(Outside::UsersFile(path.clone()));
    }
    let server = server::check(&mut findings.section("server"), server, surroundings);
    let admin = admin::check(&mut findings.section("admin"), admin);
    let memory = check_memory(&mut findings.section("memory"), memory, surroundings);
    let log = check_log(&mut findings.section("log"), log);
    let access_log = server::check_access_log(&mut findings.section("access_log"), access_log);
    let users = access::check_users(&mut findings.section("users"), users);
    let bucket_policies = access::check_bucket_policies(&mut findings, bucket_policies);
    let region = server
        .regions
        .first()
        .map_or(server::REGION_DEFAULT, String::as_str);
    let fallback = stores::Fallback {
        data_dir: &server.data_dir,
        region,
        surroundings,
    };
    let stores = stores::check(&mut findings.section("stores"), stores, fallback);
    let routes = routes::check(
        &mut findings,
        routes,
        routes::Within {
            stores: &stores,
            surroundings,
        },
    );
    routes::check_memory_fits(&mut findings, &routes, memory, surroundings);
    let Findings {
        faults,
        entries,
        warnings,
        outside,
        ..
    } = findings;
    if !faults.is_empty() {
        return (Err(faults), outside);
    }
    let settings = Settings {
        name: server.name,
        listeners: server.listeners,
        domains: server.domains,
        regions: server.regions,
        threads: server.threads,
        limits: server.limits,
        access_log,
    };
    let access = AccessConfig {
        users_file,
        users,
        bucket_policies,
    };
    let config = Config {
        data_dir: server.data_dir,
        settings,
        drain_timeout: server.drain_timeout,
        admin,
        memory,
        log,
        access,
        stores,
        routes,
        entries,
        warnings,
    };
    (Ok(config), outside)
}

/// Judges a users file.
pub(super) fn check_users_file(raw: RawUsersFile) -> Checked<AccessConfig> {
    let RawUsersFile {
        users,
        bucket_policies,
    } = raw;
    let provenance = Provenance::default();
    let mut findings = Findings::new(&provenance);
    let users = access::check_users(&mut findings.section("users"), users);
    let bucket_policies = access::check_bucket_policies(&mut findings, bucket_policies);
    let Findings {
        faults, outside, ..
    } = findings;
    if !faults.is_empty() {
        return (Err(faults), outside);
    }
    let access = AccessConfig {
        users_file: None,
        users,
        bucket_policies,
    };
    (Ok(access), outside)
}

fn check_memory(
    section: &mut Section<'_, '_>,
    raw: Option<RawMemory>,
    surroundings: &Surroundings,
) -> MemoryConfig {
    let RawMemory { budget, wait_max } = raw.unwrap_or_default();
    let most = surroundings.memory_bytes.max(8 * MIB);
    let default = BUDGET_BYTES_DEFAULT.min((most / 4).next_multiple_of(MIB));
    MemoryConfig {
        // Less than a few read buffers would serve nobody.
        budget_bytes: section.size(
            "budget",
            budget,
            Rule {
                default,
                range: 4 * MIB..=most,
            },
        ),
        wait_max: section.span("wait_max", wait_max, server::seconds(5, 0..=300)),
    }
}

fn check_log(section: &mut Section<'_, '_>, raw: Option<RawLog>) -> LogConfig {
    let RawLog { level, format } = raw.unwrap_or_default();
    let levels = [
        ("info", tracing::Level::INFO),
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    LogConfig {
        level: section.choice("level", level, &levels),
        format: section.choice(
            "format",
            format,
            &[("text", LogFormat::Text), ("json", LogFormat::Json)],
        ),
    }
}

/// Bytes as the config writes them, for the texts of faults.
fn shown_bytes(bytes: u64) -> String {
    // Whole MiB are exact enough to compare by eye.
    let rounded = if bytes >= GIB {
        bytes / MIB * MIB
    } else {
        bytes
    };
    ByteSize(rounded).to_string()
}
