//! Holds a config tree against the schema of its keys: finds every unknown key and every value of
//! a wrong kind, all at once, where a parser would stop at the first.
//!
//! Called by `load` before the tree becomes a `RawConfig`. What is wrong is reported and cut out
//! of the tree, so that the rest can still be checked for faults of its own. The schema comes from
//! the types in `raw`, so a key exists in exactly one place.

use std::sync::OnceLock;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{
    fault::Fault,
    raw::{RawConfig, RawUsersFile},
};

/// How alike two words must be for one to be offered in place of the other: a guess that offers
/// `listen` for `listne` and nothing for `disk`.
const LIKENESS_MIN: f64 = 0.75;

/// The JSON schema of the config file.
pub(super) fn config_schema() -> &'static Json {
    static SCHEMA: OnceLock<Json> = OnceLock::new();
    SCHEMA.get_or_init(schema_of::<RawConfig>)
}

/// The JSON schema of a users file.
pub(super) fn users_file_schema() -> &'static Json {
    static SCHEMA: OnceLock<Json> = OnceLock::new();
    SCHEMA.get_or_init(schema_of::<RawUsersFile>)
}

fn schema_of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    without_null(&mut schema);
    schema
}

/// Takes `null` out of a schema: TOML has none, an absent key is simply not there.
fn without_null(schema: &mut Json) {
    match schema {
        Json::Object(node) => {
            if let Some(Json::Array(kinds)) = node.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [only] = &kinds[..] {
                    let only = only.clone();
                    node.insert("type".to_owned(), only);
                }
            }
            if let Some(Json::Array(choices)) = node.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Json::Object(only)] = &choices[..] {
                    let only = only.clone();
                    node.remove("anyOf");
                    for (key, value) in only {
                        node.entry(key).or_insert(value);
                    }
                }
            }
            node.values_mut().for_each(without_null);
        }
        Json::Array(nodes) => nodes.iter_mut().for_each(without_null),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// What was cut out of a tree.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    /// A fault for each piece.
    pub(super) faults: Vec<Fault>,
    /// Paths of list items that are gone, in the order of the tree; later ones moved up.
    pub(super) removed_items: Vec<String>,
}

/// Cuts out of `tree` what `schema` does not know.
pub(super) fn prune(tree: &mut Table, schema: &Json) -> Pruned {
    let mut pruned = Pruned::default();
    prune_table(tree, schema, "", &mut pruned);
    pruned
}

/// The part of `schema` that describes the value at `path`, if the path leads somewhere.
pub(super) fn find<'a>(schema: &'a Json, path: &[&str]) -> Option<&'a Json> {
    path.iter().try_fold(schema, |node, key| {
        let known = &node["properties"][*key];
        let further = if known.is_null() {
            &node["additionalProperties"]
        } else {
            known
        };
        if further.is_object() {
            return Some(further);
        }
        let choices = node["oneOf"].as_array()?;
        choices
            .iter()
            .map(|choice| &choice["properties"][*key])
            .find(|found| found.is_object())
    })
}

/// Whether a value of this kind is wanted; `Keep::No` after its fault was told.
#[derive(PartialEq)]
enum Keep {
    Yes,
    No,
}

fn prune_table(table: &mut Table, schema: &Json, path: &str, pruned: &mut Pruned) {
    table.retain(|key, value| {
        let at = join(path, key);
        let known = &schema["properties"][key];
        let further = if known.is_null() {
            &schema["additionalProperties"]
        } else {
            known
        };
        if further.is_object() {
            return prune_value(value, further, &at, pruned) == Keep::Yes;
        }
        pruned.faults.push(unknown_key(key, value, schema, at));
        false
    });
}

fn prune_value(value: &mut Value, schema: &Json, at: &str, pruned: &mut Pruned) -> Keep {
    if let Some(variants) = schema["oneOf"].as_array() {
        return prune_tagged(value, variants, at, pruned);
    }
    let choices = schema["anyOf"]
        .as_array()
        .map_or(std::slice::from_ref(schema), Vec::as_slice);
    let Some(schema) = choices
        .iter()
        .find(|choice| choice["type"] == kind_of(value))
    else {
        pruned.faults.push(wrong_kind(value, choices, schema, at));
        return Keep::No;
    };
    match value {
        Value::Table(table) => prune_table(table, schema, at, pruned),
        Value::Array(items) => {
            let mut index = 0;
            items.retain_mut(|item| {
                let place = format!("{at}[{index}]");
                index += 1;
                let keep = prune_value(item, &schema["items"], &place, pruned);
                if keep == Keep::No {
                    pruned.removed_items.push(place);
                }
                keep == Keep::Yes
            });
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => {}
    }
    Keep::Yes
}

/// A table whose `type` (or `mode`) says which of several shapes it has.
fn prune_tagged(value: &mut Value, variants: &[Json], at: &str, pruned: &mut Pruned) -> Keep {
    let (tag, names) = tag_of(variants);
    let Value::Table(table) = value else {
        pruned.faults.push(Fault {
            key: at.to_owned(),
            value: shown(value),
            allowed: "a table".to_owned(),
            remedy: format!("write {{ {tag} = \"{}\", … }}", names[0]),
        });
        return Keep::No;
    };
    let given = table.get(tag).and_then(Value::as_str);
    let matching = variants
        .iter()
        .find(|v| v["properties"][tag]["const"].as_str() == given);
    let (Some(variant), Some(_)) = (matching, given) else {
        pruned.faults.push(Fault {
            key: join(at, tag),
            value: table.get(tag).map_or_else(|| "(not set)".to_owned(), shown),
            allowed: names.join(", "),
            remedy: "choose one of these; nothing else is available in this version".to_owned(),
        });
        return Keep::No;
    };
    let others = variants.iter().filter(|other| *other != variant);
    let homes: Vec<(&str, &Json)> = others
        .filter_map(|other| Some((other["properties"][tag]["const"].as_str()?, other)))
        .collect();
    table.retain(|key, value| {
        let known = |shape: &Json| shape["properties"][key].is_object();
        let home = homes.iter().find(|home| known(home.1));
        let (false, Some((home, _))) = (known(variant), home) else {
            return true;
        };
        let fault = key_of_another((key, &*value), (tag, *home), variant, at);
        pruned.faults.push(fault);
        false
    });
    prune_table(table, variant, at, pruned);
    Keep::Yes
}

/// A key that is none of this shape but of another: more than unknown, it can't be kept here.
fn key_of_another(
    (key, value): (&str, &Value),
    (tag, home): (&str, &str),
    variant: &Json,
    at: &str,
) -> Fault {
    let given = variant["properties"][tag]["const"]
        .as_str()
        .unwrap_or_default();
    // A secret may have been left behind when the type was changed.
    let value = match value {
        Value::Table(_) => "{ … }".to_owned(),
        _ if key.contains("secret") => "…".to_owned(),
        value => shown(value),
    };
    Fault {
        key: join(at, key),
        value,
        allowed: format!("no such key with {tag} = \"{given}\""),
        remedy: format!("remove it, or choose {tag} = \"{home}\", which it belongs to"),
    }
}

fn tag_of(variants: &[Json]) -> (&str, Vec<&str>) {
    let tag = variants[0]["properties"]
        .as_object()
        .and_then(|keys| keys.iter().find(|(_, key)| key["const"].is_string()))
        .map_or("type", |(tag, _)| tag.as_str());
    (
        tag,
        variants
            .iter()
            .filter_map(|v| v["properties"][tag]["const"].as_str())
            .collect(),
    )
}

fn unknown_key(key: &str, value: &Value, schema: &Json, at: String) -> Fault {
    let known: Vec<&str> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, _)| k.as_str())
        .collect();
    let likeness = |candidate: &&str| strsim::jaro_winkler(key, candidate);
    let nearest = known
        .iter()
        .copied()
        .filter(|candidate| likeness(candidate) >= LIKENESS_MIN)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let remedy = match nearest {
        Some(nearest) => format!("unknown key; did you mean `{nearest}`?"),
        None => "unknown key, not available in this version; remove it".to_owned(),
    };
    let allowed = if known.is_empty() {
        "no keys here".to_owned()
    } else {
        known.join(", ")
    };
    // What an unknown key holds may be a misspelt secret.
    let value = if value.is_table() { "{ … }" } else { "…" }.to_owned();
    Fault {
        key: at,
        value,
        allowed,
        remedy,
    }
}

fn wrong_kind(value: &Value, choices: &[Json], schema: &Json, at: &str) -> Fault {
    let kinds: Vec<&str> = choices
        .iter()
        .filter_map(|c| c["type"].as_str())
        .map(kind_name)
        .collect();
    let example = schema["examples"]
        .get(0)
        .or_else(|| choices[0]["examples"].get(0));
    let remedy = match example {
        Some(example) => format!("write it as in {} = {example}", last_key(at)),
        None => format!("write {}", kinds.join(" or ")),
    };
    Fault {
        key: at.to_owned(),
        value: shown(value),
        allowed: kinds.join(" or "),
        remedy,
    }
}

fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Integer(_) => "integer",
        Value::Float(_) => "number",
        Value::Boolean(_) => "boolean",
        Value::Datetime(_) => "datetime",
        Value::Array(_) => "array",
        Value::Table(_) => "object",
    }
}

fn kind_name(kind: &str) -> &str {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a table",
        other => other,
    }
}

/// A value as the config would hold it, for a fault; a text of a wrong kind may be a secret whose
/// quotes are missing, but then it was no valid TOML, so what gets here is a number or a list.
fn shown(value: &Value) -> String {
    match value {
        Value::Table(_) => "{ … }".to_owned(),
        Value::Array(_) => "[ … ]".to_owned(),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => value.to_string(),
    }
}

/// The path of `key` inside `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
