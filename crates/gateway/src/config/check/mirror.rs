//! Judges stores of type `mirror`, once all other stores are known.

use std::collections::{BTreeMap, BTreeSet};

use forebay_mirror::{MirrorSettings, Space};

use super::{Form, Rule, Section, Wrong, stores::between};
use crate::config::{
    MirrorConfig, StoreConfig,
    raw::RawMirror,
    section::{Given, quoted},
    value::KIB,
};

/// Members of one mirror: every write goes to all of them.
const MEMBERS_MAX: usize = 16;
/// What no network brings: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

/// What mirrors are judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// All stores but mirrors, and the mirrors before this one.
    pub(super) stores: &'a BTreeMap<String, StoreConfig>,
    /// Names of all mirrors.
    pub(super) mirrors: &'a BTreeSet<String>,
}

/// Judges the mirror called `name`.
pub(super) fn check_mirror(
    table: &mut Section<'_, '_>,
    (name, raw): (&str, RawMirror),
    known: Known<'_>,
) -> Option<MirrorConfig> {
    let RawMirror {
        stores,
        journal,
        space,
        writes_min,
        behind_max,
        repairs_max,
        repair_bytes_per_second_max,
        retry_interval,
        attempt_timeout,
    } = raw;
    let members = check_members(table, (name, stores), known);
    let journal = check_journal(table, journal, (&members.names, known));
    let space = check_space(table, space, (name, journal.as_deref(), known));
    let usual = MirrorSettings::default();
    let rule = |default, most| Rule {
        default,
        range: 1..=most,
    };
    let behind = rule(u32::try_from(usual.behind_max).unwrap_or(1), 1_000_000_000);
    let repairs = rule(u32::try_from(usual.repairs_max).unwrap_or(1), 1024);
    let times = |default| between(default, 10..=3_600_000);
    let settings = MirrorSettings {
        writes_min: check_writes_min(table, writes_min, members.names.len()),
        behind_max: table.count("behind_max", behind_max, behind).into(),
        repairs_max: table.count("repairs_max", repairs_max, repairs) as usize,
        repair_bytes_per_second_max: table.bound(
            "repair_bytes_per_second_max",
            repair_bytes_per_second_max,
            64 * KIB..=BYTES_MAX,
        ),
        attempt_timeout: table.span(
            "attempt_timeout",
            attempt_timeout,
            times(usual.attempt_timeout),
        ),
        retry_interval: table.span(
            "retry_interval",
            retry_interval,
            times(usual.retry_interval),
        ),
    };
    Some(MirrorConfig {
        members: members.are_right.then_some(members.names)?,
        journal: journal?,
        space: space?,
        settings,
    })
}

struct Members {
    names: Vec<String>,
    are_right: bool,
}

fn check_members(
    table: &mut Section<'_, '_>,
    (mirror, raw): (&str, Option<Vec<String>>),
    known: Known<'_>,
) -> Members {
    if raw.is_none() {
        let remedy = "name them: stores = [\"ONE\", \"OTHER\"], each a [stores.NAME] of its own";
        table.missing("stores", remedy);
        return Members {
            names: Vec::new(),
            are_right: false,
        };
    }
    let names = table.texts_or("stores", raw, &[]);
    let mut are_right = (2..=MEMBERS_MAX).contains(&names.len());
    if !are_right {
        let wrong = Wrong {
            value: format!("{} stores", names.len()),
            allowed: &format!("2 to {MEMBERS_MAX} stores"),
            remedy: "name the stores that are to be kept equal; three survive the loss of one",
        };
        table.fault("stores", wrong);
    }
    for (index, name) in names.iter().enumerate() {
        let (allowed, remedy) = match known.stores.get(name) {
            _ if name == mirror => ("other stores", "remove it: a mirror is no member of itself"),
            _ if known.mirrors.contains(name) => (
                "stores that are no mirrors",
                "name the stores of that mirror in place of it",
            ),
            _ if names[..index].contains(name) => {
                ("stores that differ", "remove it: it is in the list already")
            }
            Some(_) if table.is_faulty_store(name) => {
                are_right = false;
                continue;
            }
            Some(StoreConfig::Null) => (
                "stores that keep what is written",
                "remove it: a store of type \"null\" keeps nothing, and can't be repaired",
            ),
            Some(
                StoreConfig::S3(_)
                | StoreConfig::Fs(_)
                | StoreConfig::Log(_)
                | StoreConfig::Redis(_)
                | StoreConfig::Mirror(_)
                | StoreConfig::Memory,
            ) => continue,
            None => (
                "names of stores",
                "add a [stores.NAME] of this name, or correct the name",
            ),
        };
        are_right = false;
        let wrong = Wrong {
            value: quoted(name),
            allowed,
            remedy,
        };
        table.fault(&format!("stores[{index}]"), wrong);
    }
    Members { names, are_right }
}

fn check_journal(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    (members, known): (&[String], Known<'_>),
) -> Option<String> {
    let Some(name) = table.text("journal", raw) else {
        let remedy = "name a store of type \"log\" (one gateway) or \"redis\" (many)";
        table.missing("journal", remedy);
        return None;
    };
    let allowed = match known.stores.get(&name) {
        _ if members.contains(&name) => "another store than the members",
        Some(_) if table.is_faulty_store(&name) => return None,
        Some(StoreConfig::Log(_) | StoreConfig::Redis(_)) => return Some(name),
        Some(StoreConfig::Memory) => {
            let key = table.at("journal");
            table.warn(format!(
                "{key}: what a member has missed is forgotten when the program ends, and it stays \
                 different until `forebay admin mirror repair`"
            ));
            return Some(name);
        }
        Some(
            StoreConfig::S3(_) | StoreConfig::Fs(_) | StoreConfig::Mirror(_) | StoreConfig::Null,
        ) => "a store of type \"log\" or \"redis\"",
        None if known.mirrors.contains(&name) => "a store of type \"log\" or \"redis\"",
        None => "the name of a store",
    };
    let wrong = Wrong {
        value: quoted(&name),
        allowed,
        remedy: "add a [stores.NAME] of type \"log\" (one gateway) or \"redis\" (many)",
    };
    table.fault("journal", wrong);
    None
}

fn check_space(
    table: &mut Section<'_, '_>,
    raw: Option<String>,
    (mirror, journal, known): (&str, Option<&str>, Known<'_>),
) -> Option<Space> {
    let given = Given::from(raw.is_some());
    let text = raw.unwrap_or_else(|| format!("mirror-{mirror}"));
    let form = Form {
        parse: |text| Space::parse(text).ok().map(|_| text.to_owned()),
        allowed: "1 to 128 letters, digits, dashes, underscores and dots",
        remedy: "name the space: what gateways that share this journal call it",
    };
    let text = table.parsed("space", &text, given, form)?;
    let space = Space::parse(&text).ok()?;
    let taken = known.stores.iter().find(|(_, store)| {
        let other = store.mirror();
        other.is_some_and(|other| Some(&*other.journal) == journal && other.space == space)
    });
    if let Some((other, _)) = taken {
        let wrong = Wrong {
            value: quoted(&text),
            allowed: "a space of this mirror alone",
            remedy: &format!("name another one: stores.{other} has it in the same journal"),
        };
        table.fault("space", wrong);
        return None;
    }
    Some(space)
}

/// How many members a write needs; more than half unless it is said.
fn check_writes_min(
    table: &mut Section<'_, '_>,
    raw: Option<i64>,
    members_count: usize,
) -> Option<usize> {
    // Without members they are what is wrong.
    let count = u32::try_from(members_count).unwrap_or(1).max(1);
    let is_given = raw.is_some();
    let rule = Rule {
        default: count / 2 + 1,
        range: 1..=count,
    };
    let writes_min = table.count("writes_min", raw, rule);
    if is_given && 2 * writes_min <= count {
        let key = table.at("writes_min");
        table.warn(format!(
            "{key}: an acknowledged write may be in {writes_min} of {count} stores alone, and is \
             lost with them"
        ));
    }
    is_given.then_some(writes_min as usize)
}
