//! One line of `forebay config show`: a key, its value in force, and where the value comes from.

use std::{collections::BTreeMap, fmt};

/// Where a value comes from; a later one outranks an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The config file.
    File,
    /// An environment variable, by name.
    Environment(String),
    /// A flag of the command line, by name.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Dotted path of the key.
    pub key: String,
    /// The value as TOML; `***` for a secret.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}  # {}", self.key, self.value, self.source)
    }
}

/// Where each value that somebody set comes from, by dotted path; a list is one value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance(BTreeMap<String, Source>);

impl Provenance {
    /// Notes that `path`, and all below it, comes from `source`.
    pub fn note(&mut self, path: String, source: Source) {
        self.0.insert(path, source);
    }

    /// Who set `key`: the nearest enclosing path that is noted.
    pub fn of(&self, key: &str) -> Source {
        let mut path = key;
        loop {
            if let Some(source) = self.0.get(path) {
                return source.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Source::Default,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_inside_a_list_has_the_source_of_the_list() {
        let mut provenance = Provenance::default();
        provenance.note("routes".to_owned(), Source::File);
        provenance.note(
            "log.level".to_owned(),
            Source::Environment("FOREBAY_LOG__LEVEL".into()),
        );
        for (key, source) in [
            ("routes[0].layers[1].memory", "file"),
            ("log.level", "FOREBAY_LOG__LEVEL"),
            ("log.format", "default"),
            ("log", "default"),
        ] {
            assert_eq!(provenance.of(key).to_string(), source, "{key}");
        }
    }
}
