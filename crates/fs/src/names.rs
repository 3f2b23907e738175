//! Keys to paths and back: any key has one place in the tree, and no key leaves it.
//!
//! A key is cut at each `/`. A segment that a file name can hold is its own name; the rest are
//! escaped. Three prefixes mark names of ours, in which `%XX` stands for a byte:
//!
//! | name | is |
//! |---|---|
//! | `.object%TEXT` | a file: the object of segment TEXT, where it can't have a plain name |
//! | `.folder%TEXT` | a directory: segment TEXT followed by `/` |
//! | `.join%TEXT` | a directory: the names in it continue TEXT, without a `/` between |
//! | `.forebay` | a directory: what the store keeps for itself |
//!
//! Only `%` and NUL are escaped within TEXT. Everything here is pure.

use std::borrow::Cow;

/// The store's own directory in each bucket.
pub const OWN_DIRECTORY: &str = ".forebay";

const OBJECT_MARK: &str = ".object%";
const FOLDER_MARK: &str = ".folder%";
const JOIN_MARK: &str = ".join%";
/// Most bytes in a file name: `NAME_MAX` of Linux.
const NAME_BYTES_MAX: usize = 255;
/// Most bytes of TEXT in one name: a mark and this fit into a name.
const TEXT_BYTES_MAX: usize = 240;

/// Where a key is in its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Directories down to the file, each a file name.
    pub folders: Vec<String>,
    /// Name of the file, when a plain one is possible and no directory has it.
    pub plain: Option<String>,
    /// Directories below `folders` down to the escaped file.
    pub joins: Vec<String>,
    /// Name of the file otherwise.
    pub escaped: String,
}

/// What a name in a directory stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning<'a> {
    /// Part of a key that ends here; of a file.
    Object(Cow<'a, str>),
    /// Part of a key up to a `/`; of a directory.
    Folder(Cow<'a, str>),
    /// Part of a segment that goes on in this directory.
    Join(Cow<'a, str>),
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

impl Place {
    /// The place of a key.
    pub fn of_key(key: &str) -> Self {
        let (folders, last) = match key.rsplit_once('/') {
            Some((folders, last)) => (folder_names(folders), last),
            None => (Vec::new(), key),
        };
        let (joins, escaped) = escape(OBJECT_MARK, last);
        let plain = is_plain(last).then(|| last.to_owned());
        Self {
            folders,
            plain,
            joins,
            escaped,
        }
    }
}

/// Names of the directories that hold the keys beginning with `path/`.
pub fn folder_names(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    for segment in path.split('/') {
        if is_plain(segment) {
            names.push(segment.to_owned());
        } else {
            let (joins, folder) = escape(FOLDER_MARK, segment);
            names.extend(joins);
            names.push(folder);
        }
    }
    names
}

/// Whether a segment is a file name as it stands.
fn is_plain(segment: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&segment.len())
        && !matches!(segment, "." | ".." | OWN_DIRECTORY)
        && !segment.contains('\0')
        && ![OBJECT_MARK, FOLDER_MARK, JOIN_MARK]
            .iter()
            .any(|mark| segment.starts_with(mark))
}

/// Directories to go through, and the name at the end, for an escaped segment.
fn escape(mark: &str, segment: &str) -> (Vec<String>, String) {
    let mut joins = Vec::new();
    let mut text = String::new();
    for c in segment.chars() {
        let mut buffer = [0; 4];
        let escaped: &str = match c {
            '%' => "%25",
            '\0' => "%00",
            c => c.encode_utf8(&mut buffer),
        };
        if text.len() + escaped.len() > TEXT_BYTES_MAX {
            joins.push(format!("{JOIN_MARK}{text}"));
            text.clear();
        }
        text.push_str(escaped);
    }
    (joins, format!("{mark}{text}"))
}

/// What a name stands for; `None` for names that are no key's: the store's own, and names that no
/// key leads to.
pub fn meaning(name: &str, kind: Kind) -> Option<Meaning<'_>> {
    if name == OWN_DIRECTORY {
        return None;
    }
    match kind {
        Kind::File => match name.strip_prefix(OBJECT_MARK) {
            Some(text) => unescape(text).map(Meaning::Object),
            None => is_plain(name).then_some(Meaning::Object(Cow::Borrowed(name))),
        },
        Kind::Directory => {
            if let Some(text) = name.strip_prefix(FOLDER_MARK) {
                return unescape(text).map(Meaning::Folder);
            }
            if let Some(text) = name.strip_prefix(JOIN_MARK) {
                return unescape(text).map(Meaning::Join);
            }
            is_plain(name).then_some(Meaning::Folder(Cow::Borrowed(name)))
        }
    }
}

/// Whether the directory `name`, reached through `joins`, is where keys of `segment/` are.
pub fn is_folder_of(segment: &str, joins: &[String], name: &str) -> bool {
    if joins.is_empty() && name == segment {
        return is_plain(segment);
    }
    folder_names(segment)
        .split_last()
        .is_some_and(|(last, before)| last == name && before == joins)
}

fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        plain.push(match rest.get(at + 1..at + 3)? {
            "25" => '%',
            "00" => '\0',
            _ => return None,
        });
        rest = &rest[at + 3..];
    }
    plain.push_str(rest);
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_keys_are_paths_and_odd_ones_are_marked() {
        let long = "x".repeat(300);
        let joined = format!(".join%{}", "x".repeat(240));
        let rest = format!(".object%{}", "x".repeat(60));
        for (key, path) in [
            ("a", "a"),
            ("a/b.txt", "a/b.txt"),
            ("a/", "a/.object%"),
            ("/a", ".folder%/a"),
            ("a//b", "a/.folder%/b"),
            ("../x", ".folder%../x"),
            ("a/..", "a/.object%.."),
            (".forebay/tmp/x", ".folder%.forebay/tmp/x"),
            ("a\0b", ".object%a%00b"),
            ("100%", "100%"),
            (".object%a", ".object%.object%25a"),
            (&long, &format!("{joined}/{rest}")),
        ] {
            let Place {
                mut folders,
                plain,
                joins,
                escaped,
            } = Place::of_key(key);
            match plain {
                Some(plain) => folders.push(plain),
                None => folders.extend(joins.into_iter().chain([escaped])),
            }
            assert_eq!(folders.join("/"), path, "{key:?}");
        }
    }

    /// Reads a path back to the key it stands for.
    fn key_of(names: &[String]) -> Option<String> {
        let (last, folders) = names.split_last()?;
        let mut key = String::new();
        for folder in folders {
            match meaning(folder, Kind::Directory)? {
                Meaning::Folder(text) => key.extend([&text, "/"]),
                Meaning::Join(text) => key.push_str(&text),
                Meaning::Object(_) => return None,
            }
        }
        match meaning(last, Kind::File)? {
            Meaning::Object(text) => Some(key + &text),
            Meaning::Folder(_) | Meaning::Join(_) => None,
        }
    }

    proptest! {
        /// Goal: each key has its own path, of names that a file system takes, beneath the bucket.
        #[test]
        fn every_key_comes_back_from_its_path(
            key in prop_oneof![
                "[a/.%\0é]{1,12}",
                "(\\.|\\.\\.|\\.forebay|\\.object%|\\.folder%|\\.join%|/|a){1,6}",
                "[a%é\0]{200,700}(/[a%é]{0,300})?",
                any::<String>().prop_filter("keys are not empty", |key| !key.is_empty()),
            ]
        ) {
            let Place { folders, plain, joins, escaped } = Place::of_key(&key);
            let escaped_path = [folders.clone(), joins, vec![escaped]].concat();
            let mut paths = vec![escaped_path];
            paths.extend(plain.map(|plain| [folders, vec![plain]].concat()));
            for path in paths {
                for name in &path {
                    prop_assert!((1..=255).contains(&name.len()), "{} bytes", name.len());
                    prop_assert!(name != "." && name != ".." && name != OWN_DIRECTORY);
                    prop_assert!(!name.contains(['/', '\0']), "{name:?}");
                }
                prop_assert_eq!(key_of(&path), Some(key.clone()));
            }
        }
    }

    #[test]
    fn only_the_directory_that_a_key_leads_to_is_its_folder() {
        assert!(is_folder_of("a", &[], "a"));
        assert!(is_folder_of("..", &[], ".folder%.."));
        assert!(!is_folder_of("a", &[], ".folder%a"));
        assert_eq!(meaning(".folder%%zz", Kind::Directory), None);
        assert_eq!(meaning(".forebay", Kind::Directory), None);
        assert_eq!(meaning(".folder%a", Kind::File), None);
    }
}
