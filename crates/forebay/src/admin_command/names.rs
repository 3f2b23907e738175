//! Names of objects as people write them: `BUCKET/KEY`, or `s3://BUCKET/KEY`.

use std::{
    fs::File,
    io::{BufRead, BufReader, stdin},
    path::Path,
};

use anyhow::{Context, Result};
use forebay_gateway::admin::messages::Change;

use super::faulty;

/// Most bytes of a list: what the API takes, JSON around it included.
const LIST_BYTES_MAX: u64 = 15 * 1024 * 1024;

/// A change of objects named on the command line and in a file.
pub(super) fn change(objects: &[String], list: Option<&Path>) -> Result<Change> {
    let mut objects = plain(objects);
    if let Some(path) = list {
        objects.extend(read_list(path)?);
    }
    Ok(Change {
        objects,
        ..Change::default()
    })
}

/// Names without `s3://`.
pub(super) fn plain(names: &[String]) -> Vec<String> {
    names
        .iter()
        .map(|name| without_scheme(name).to_owned())
        .collect()
}

fn without_scheme(name: &str) -> &str {
    name.strip_prefix("s3://").unwrap_or(name)
}

/// Bucket and key of an object.
pub(super) fn object(name: &str) -> Result<(&str, &str)> {
    let parts = without_scheme(name).split_once('/');
    let parts = parts.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty());
    Ok(parts.ok_or_else(|| {
        let remedy = "write the bucket, a slash and the key, as in photos/2026/cat.jpg";
        faulty("BUCKET/KEY", &format!("{name:?}"), "an object", remedy)
    })?)
}

fn read_list(path: &Path) -> Result<Vec<String>> {
    if path == Path::new("-") {
        return lines(stdin().lock()).context("read the list on standard input");
    }
    let read = || lines(BufReader::new(File::open(path)?));
    read().with_context(|| format!("read the list {}", path.display()))
}

fn lines(from: impl BufRead) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut left = from.take(LIST_BYTES_MAX + 1);
    let mut line = String::new();
    while left.read_line(&mut line)? > 0 {
        anyhow::ensure!(
            left.limit() > 0,
            "it has more than {LIST_BYTES_MAX} bytes: split it"
        );
        // A key may begin or end with blanks, so only the end of the line goes.
        let name = line.trim_end_matches(['\n', '\r']);
        if !name.is_empty() {
            names.push(without_scheme(name).to_owned());
        }
        line.clear();
    }
    Ok(names)
}

/// A text as the value of a query.
pub(super) fn encoded(text: &str) -> String {
    forebay_s3::uri::encode_query(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_name_a_line() {
        let text = "b/one\r\ns3://b/two words \n\nb/three";
        assert_eq!(
            lines(text.as_bytes()).unwrap(),
            ["b/one", "b/two words ", "b/three"]
        );
        let endless = std::io::repeat(b'a');
        assert!(lines(BufReader::new(endless)).is_err());
    }

    #[test]
    fn an_object_has_a_bucket_and_a_key() {
        assert_eq!(object("s3://b/k/l").unwrap(), ("b", "k/l"));
        for wrong in ["b", "b/", "/k", ""] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }
}
