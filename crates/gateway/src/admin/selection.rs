//! Reads what a change is about, and finds the caches it is for.

use std::{collections::BTreeMap, num::NonZeroUsize};

use forebay_cache::Selection;
use forebay_s3::{bucket::BucketName, key::ObjectKey};

use super::{Caches, messages::Change};

/// Objects that a warm reads at once unless it is told otherwise, and at most: an origin store has
/// 64 connections unless the config says otherwise, and clients need them as well.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");
const CONCURRENCY_MAX: u32 = 64;
/// Bytes of a text that names one thing, in an error.
const SHOWN_CHARS: usize = 80;

/// What of which cache; the key is its place in [`Caches`].
pub(super) type Targets = BTreeMap<usize, Vec<Selection>>;

/// What a change names.
pub(super) fn selections(change: &Change) -> Result<Vec<Selection>, String> {
    let mut selections = Vec::new();
    for name in &change.objects {
        let (bucket, key) = split(name, "objects")?;
        let key = ObjectKey::parse(key)
            .map_err(|fault| format!("objects: {:?}: {fault}", shown(name)))?;
        selections.push(Selection::Object(bucket, key));
    }
    for name in &change.prefixes {
        let (bucket, prefix) = split(name, "prefixes")?;
        selections.push(Selection::Prefix(bucket, prefix.to_owned()));
    }
    for name in &change.buckets {
        selections.push(Selection::Bucket(bucket(name, "buckets")?));
    }
    if change.all {
        selections.push(Selection::All);
    }
    if selections.is_empty() {
        return Err("name objects, prefixes or buckets, or say all".to_owned());
    }
    Ok(selections)
}

/// How many objects a warm reads at once.
pub(super) fn concurrency(change: &Change) -> Result<NonZeroUsize, String> {
    match change.concurrency {
        None => Ok(CONCURRENCY),
        Some(wanted) if wanted <= CONCURRENCY_MAX => NonZeroUsize::new(wanted as usize)
            .ok_or_else(|| format!("concurrency: 1 to {CONCURRENCY_MAX}")),
        Some(_) => Err(format!("concurrency: 1 to {CONCURRENCY_MAX}")),
    }
}

/// The caches that the selections are for.
///
/// # Errors
/// A bucket before whose store there is no cache.
pub(super) fn targets(caches: &Caches, selections: Vec<Selection>) -> Result<Targets, String> {
    let mut targets = Targets::new();
    for selection in selections {
        match selection.bucket() {
            None => {
                for at in 0..caches.list.len() {
                    targets.entry(at).or_default().push(selection.clone());
                }
            }
            Some(bucket) => {
                let mut found = caches.of_bucket(bucket).peekable();
                if found.peek().is_none() {
                    return Err(no_cache(bucket));
                }
                for at in found {
                    targets.entry(at).or_default().push(selection.clone());
                }
            }
        }
    }
    Ok(targets)
}

/// What is said of a bucket without a cache.
pub(super) fn no_cache(bucket: &BucketName) -> String {
    format!("no cache is for bucket {}", bucket.as_str())
}

/// A few words for a change, for the list of jobs and the log.
pub(super) fn description(change: &Change) -> String {
    let names = [&change.objects, &change.prefixes, &change.buckets];
    let suffixes = ["", "*", "/"];
    let mut parts: Vec<String> = Vec::new();
    for (names, suffix) in names.into_iter().zip(suffixes) {
        match &names[..] {
            [] => {}
            [one] => parts.push(format!("{}{suffix}", shown(one))),
            [first, rest @ ..] => {
                parts.push(format!("{}{suffix} and {} more", shown(first), rest.len()));
            }
        }
    }
    if change.all {
        parts.push("all".to_owned());
    }
    parts.join(", ")
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

fn split<'a>(name: &'a str, field: &str) -> Result<(BucketName, &'a str), String> {
    let (first, rest) = name
        .split_once('/')
        .ok_or_else(|| format!("{field}: {:?}: write BUCKET/…", shown(name)))?;
    Ok((bucket(first, field)?, rest))
}

fn bucket(name: &str, field: &str) -> Result<BucketName, String> {
    BucketName::parse(name).map_err(|fault| format!("{field}: {:?}: {fault}", shown(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Selection>, String> {
        let change: Change = serde_json::from_str(json).map_err(|error| error.to_string())?;
        selections(&change)
    }

    #[test]
    fn what_is_named_adds_up() {
        let bucket = || BucketName::parse("bucket").unwrap();
        let json = r#"{"objects":["bucket/a/b"],"prefixes":["bucket/","bucket/a/"],
            "buckets":["bucket"],"all":true}"#;
        let expected = [
            Selection::Object(bucket(), ObjectKey::parse("a/b").unwrap()),
            Selection::Prefix(bucket(), String::new()),
            Selection::Prefix(bucket(), "a/".to_owned()),
            Selection::Bucket(bucket()),
            Selection::All,
        ];
        assert_eq!(read(json).unwrap(), expected);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (json, told) in [
            ("{}", "name objects, prefixes or buckets, or say all"),
            (
                r#"{"objects":["bucket"]}"#,
                "objects: \"bucket\": write BUCKET/…",
            ),
            (
                r#"{"objects":["bucket/"]}"#,
                "objects: \"bucket/\": your key is empty",
            ),
            (r#"{"buckets":["B/"]}"#, "buckets: \"B/\": "),
            (r#"{"prefix":"bucket/a"}"#, "unknown field `prefix`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.starts_with(told), "{json}: {error}");
        }
    }

    #[test]
    fn a_long_list_is_described_by_its_first() {
        let change = Change {
            objects: vec!["b/1".into(), "b/2".into(), "b/3".into()],
            prefixes: vec!["b/p/".into()],
            ..Change::default()
        };
        assert_eq!(description(&change), "b/1 and 2 more, b/p/*");
    }
}
