//! Lays the sources of a config over one another: default < file < environment < flag.
//!
//! Pure: whoever calls has read the file and the environment. Every variable whose name begins
//! with `FOREBAY_` and has a `__` is a key (`FOREBAY_SERVER__DATA_DIR` is `server.data_dir`); its
//! text is read as the schema says for that key: a text as it is, a list by commas, all else as
//! TOML. Variables without `__` (`FOREBAY_ROOT_ACCESS_KEY`) are not keys of the config.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{
    entry::{Provenance, Source},
    fault::Fault,
    raw::{RawConfig, RawUsersFile},
    shape,
};

/// What every variable that sets a key begins with.
const VARIABLE_PREFIX: &str = "FOREBAY_";
/// What stands in a variable's name where the dotted path has a dot.
const VARIABLE_DOT: &str = "__";
/// Name of the store that exists when the config names none.
pub const DEFAULT_STORE: &str = "default";

/// A config file as it was read.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path, for faults.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Values of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin-listen`
    pub admin_listen: Option<String>,
    /// `--data`
    pub data: Option<String>,
    /// `--origin`, each time that it is given.
    pub origins: Vec<String>,
}

/// Everything that a config is made of.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<File>,
    /// All variables of the environment; those that are not ours are skipped.
    pub environment: Vec<(String, String)>,
    /// The command line.
    pub flags: Flags,
}

/// The merged config, where its values come from, and what had to be left out.
#[derive(Debug)]
pub(super) struct Merged<R> {
    pub(super) raw: R,
    pub(super) provenance: Provenance,
    pub(super) faults: Vec<Fault>,
    /// Paths of the list items that were cut out, in the order of the file.
    removed_items: Vec<String>,
}

/// Merges all sources; what is wrong is left out and reported in `faults`.
pub(super) fn merge(sources: &Sources) -> Merged<RawConfig> {
    let (mut provenance, mut faults) = (Provenance::default(), Vec::new());
    let mut tree = Table::new();
    if let Some(file) = &sources.file {
        tree = parse_file(file, &mut faults);
        note_leaves(&tree, "", &mut provenance);
    }
    for (name, text) in &sources.environment {
        overlay_variable(
            &mut tree,
            Variable { name, text },
            &mut provenance,
            &mut faults,
        );
    }
    overlay_flags(&mut tree, &sources.flags, &mut provenance, &mut faults);
    let pruned = shape::prune(&mut tree, shape::config_schema());
    faults.extend(pruned.faults);
    let raw = deserialize(tree, "config", &mut faults);
    Merged {
        raw,
        provenance,
        faults,
        removed_items: pruned.removed_items,
    }
}

impl<R> Merged<R> {
    /// Names in `key`, which was found in what is left, the place that the user knows.
    pub(super) fn restore_key(&self, key: &mut String) {
        for item in &self.removed_items {
            count_removed_item(key, item);
        }
    }

    /// All faults as the user should see them, those that the check found included.
    pub(super) fn all_faults(self, found_by_check: Vec<Fault>) -> Vec<Fault> {
        let mut found_by_check = found_by_check;
        for fault in &mut found_by_check {
            self.restore_key(&mut fault.key);
        }
        let Self {
            provenance,
            mut faults,
            ..
        } = self;
        for fault in found_by_check {
            // What was cut out is no second fault of whatever it was cut out of.
            if !faults
                .iter()
                .any(|earlier| earlier.key.starts_with(&fault.key))
            {
                faults.push(fault);
            }
        }
        for fault in &mut faults {
            // Whoever set it by a variable or a flag would look for it in the file in vain.
            let source = provenance.of(&fault.key);
            if let Source::Environment(_) | Source::Flag(_) = source {
                fault.key = format!("{} (set by {source})", fault.key);
            }
        }
        faults
    }
}

/// Counts the removed list item `path[index]` again in a key that was found without it.
fn count_removed_item(key: &mut String, removed: &str) {
    let Some((list, index)) = removed
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['))
    else {
        return;
    };
    let Some(after) = key
        .strip_prefix(list)
        .and_then(|rest| rest.strip_prefix('['))
    else {
        return;
    };
    let Some((own, rest)) = after.split_once(']') else {
        return;
    };
    if let (Ok(own), Ok(index)) = (own.parse::<usize>(), index.parse::<usize>())
        && own >= index
    {
        *key = format!("{list}[{}]{rest}", own + 1);
    }
}

/// Reads a users file; what is wrong is left out and reported in `faults`.
pub(super) fn parse_users_file(file: &File) -> Merged<RawUsersFile> {
    let mut faults = Vec::new();
    let mut tree = parse_file(file, &mut faults);
    let pruned = shape::prune(&mut tree, shape::users_file_schema());
    faults.extend(pruned.faults);
    let raw = deserialize(tree, &file.path, &mut faults);
    Merged {
        raw,
        provenance: Provenance::default(),
        faults,
        removed_items: pruned.removed_items,
    }
}

fn parse_file(file: &File, faults: &mut Vec<Fault>) -> Table {
    file.text.parse::<Table>().unwrap_or_else(|error| {
        let line = error.span().map_or(1, |span| {
            1 + file
                .text
                .bytes()
                .take(span.start)
                .filter(|&byte| byte == b'\n')
                .count()
        });
        faults.push(Fault {
            key: format!("{}:{line}", file.path),
            // The line itself may hold a secret, so only the parser's words are shown.
            value: error.message().trim_end().replace('\n', ", "),
            allowed: "TOML (https://toml.io)".to_owned(),
            remedy: "correct this line; `forebay config example` prints a complete file".to_owned(),
        });
        Table::new()
    })
}

fn deserialize<T: DeserializeOwned + Default>(
    tree: Table,
    what: &str,
    faults: &mut Vec<Fault>,
) -> T {
    // After `prune` only what the schema can't say may fail here.
    T::deserialize(tree).unwrap_or_else(|error| {
        faults.push(Fault {
            key: what.to_owned(),
            value: error.message().to_owned(),
            allowed: "what `forebay config schema` describes".to_owned(),
            remedy: "compare with `forebay config example`".to_owned(),
        });
        T::default()
    })
}

fn note_leaves(tree: &Table, path: &str, provenance: &mut Provenance) {
    for (key, value) in tree {
        let at = shape::join(path, key);
        match value {
            Value::Table(table) => note_leaves(table, &at, provenance),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => provenance.note(at, Source::File),
        }
    }
}

#[derive(Clone, Copy)]
struct Variable<'a> {
    name: &'a str,
    text: &'a str,
}

fn overlay_variable(
    tree: &mut Table,
    variable: Variable<'_>,
    provenance: &mut Provenance,
    faults: &mut Vec<Fault>,
) {
    let Some(rest) = variable.name.strip_prefix(VARIABLE_PREFIX) else {
        return;
    };
    if !rest.contains(VARIABLE_DOT) {
        return;
    }
    let path = rest.to_ascii_lowercase().replace(VARIABLE_DOT, ".");
    let keys: Vec<&str> = path.split('.').collect();
    // A key that is not known is found with all others, when the whole tree is pruned.
    let known = shape::find(shape::config_schema(), &keys).unwrap_or(&Json::Null);
    match value_of_variable(variable.text, known) {
        Some(value) => {
            insert(tree, &keys, value);
            provenance.note(path, Source::Environment(variable.name.to_owned()));
        }
        None => faults.push(Fault {
            key: variable.name.to_owned(),
            value: "…".to_owned(),
            allowed: format!("what {path} holds in a file, as TOML"),
            remedy: "put texts inside a list or table into quotes".to_owned(),
        }),
    }
}

fn value_of_variable(text: &str, schema: &Json) -> Option<Value> {
    let as_toml = || {
        let mut table = format!("value = {text}").parse::<Table>().ok()?;
        table.remove("value")
    };
    match schema["type"].as_str() {
        Some("string") | None => Some(Value::from(text)),
        Some("array") if !text.trim_start().starts_with('[') => Some(Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|t| !t.is_empty())
                .map(Value::from)
                .collect(),
        )),
        _ => as_toml(),
    }
}

/// Puts `value` at the path, making tables on the way and replacing what is no table.
fn insert(tree: &mut Table, keys: &[&str], value: Value) {
    let [path @ .., last] = keys else { return };
    let mut table = tree;
    for key in path {
        let slot = table
            .entry(*key)
            .or_insert_with(|| Value::Table(Table::new()));
        if !slot.is_table() {
            *slot = Value::Table(Table::new());
        }
        let Value::Table(inner) = slot else { return };
        table = inner;
    }
    table.insert((*last).to_owned(), value);
}

fn overlay_flags(
    tree: &mut Table,
    flags: &Flags,
    provenance: &mut Provenance,
    faults: &mut Vec<Fault>,
) {
    let Flags {
        listen,
        admin_listen,
        data,
        origins,
    } = flags;
    let mut set = |tree: &mut Table, keys: &[&str], value: Value, flag: &'static str| {
        insert(tree, keys, value);
        provenance.note(keys.join("."), Source::Flag(flag));
    };
    if let Some(address) = listen {
        let list = Value::Array(vec![Value::from(address.as_str())]);
        set(tree, &["server", "listen"], list, "--listen");
    }
    if let Some(address) = admin_listen {
        set(
            tree,
            &["admin", "listen"],
            Value::from(address.as_str()),
            "--admin-listen",
        );
    }
    if let Some(directory) = data {
        set(
            tree,
            &["server", "data_dir"],
            Value::from(directory.as_str()),
            "--data",
        );
    }
    if origins.is_empty() {
        return;
    }
    let Some(mut store) = implied_store(tree) else {
        faults.push(Fault {
            key: "--origin".to_owned(),
            value: origins.join(", "),
            allowed: "only without [stores] in the config".to_owned(),
            remedy: "drop the flag, or take [stores] out of the file; what else its store needs \
                     can stay in [stores.default], without type and endpoints"
                .to_owned(),
        });
        return;
    };
    store.insert("type".to_owned(), Value::from("s3"));
    let (key, endpoints) = match &origins[..] {
        [one] => ("endpoint", Value::from(one.as_str())),
        several => ("endpoints", Value::from(several.to_vec())),
    };
    store.insert(key.to_owned(), endpoints);
    set(
        tree,
        &["stores", DEFAULT_STORE],
        Value::Table(store),
        "--origin",
    );
}

/// What is set already of the store that `--origin` makes, such as its credentials by a variable;
/// `None` when other stores are set, or this one is a whole.
fn implied_store(tree: &Table) -> Option<Table> {
    let Some(stores) = tree.get("stores") else {
        return Some(Table::new());
    };
    let stores = stores.as_table()?;
    let store = stores.get(DEFAULT_STORE)?.as_table()?;
    let whole = ["type", "endpoint", "endpoints"];
    let is_part = whole.iter().all(|key| !store.contains_key(*key));
    (stores.len() == 1 && is_part).then(|| store.clone())
}
