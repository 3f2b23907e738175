//! Listings: one page of keys in byte order, with prefix and delimiter, from an ordered cursor.
//!
//! A [`Draft`] makes a page of the keys it is offered, and tells which key it needs next: past a
//! common prefix it seeks, so a page costs its entries and not the keys behind them. An engine that
//! may block gives a [`Cursor`], which [`Scan::page`] asks.

use forebay_s3::{
    checksum::{Algorithm, Kind},
    etag::ETag,
};

use crate::record::ObjectRecord;

pub mod position;

/// What of a bucket's keys is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Keys begin with it.
    pub prefix: String,
    /// Keys that have it after the prefix are rolled up; not empty.
    pub delimiter: Option<String>,
    /// Where to begin.
    pub from: Bound,
    /// Entries on the page.
    pub entries_max: usize,
}

/// A place between keys: the first key that is not less than these bytes.
///
/// Keys are UTF-8, so `key 00` is just after a key, and `prefix FF` just after all keys that begin
/// with the prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound(Vec<u8>);

impl Bound {
    /// At this key, if there is one, else after it.
    pub fn at(key: &str) -> Self {
        Self(key.into())
    }

    /// Just after this key.
    pub fn after(key: &str) -> Self {
        Self([key.as_bytes(), &[0]].concat())
    }

    /// After all keys that begin with `prefix`.
    pub fn past_prefix(prefix: &str) -> Self {
        Self([prefix.as_bytes(), &[0xff]].concat())
    }

    /// After what a client names as the last thing it has: a key, or a common prefix.
    pub fn after_marker(marker: &str, prefix: &str, delimiter: Option<&str>) -> Self {
        let rolled_up = delimiter.is_some_and(|delimiter| {
            let rest = marker.strip_prefix(prefix).unwrap_or_default();
            rest.find(delimiter)
                .is_some_and(|at| at + delimiter.len() == rest.len())
        });
        if rolled_up {
            Self::past_prefix(marker)
        } else {
            Self::after(marker)
        }
    }

    /// Takes back what [`Bound::as_bytes`] gave.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes to compare keys with.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a listing tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its tag.
    pub etag: ETag,
    /// Bytes in it.
    pub size_bytes: u64,
    /// Time of the write, Unix milliseconds.
    pub modified_ms: i64,
    /// What its checksum is.
    pub checksum: Option<(Algorithm, Kind)>,
    /// Its storage class, where it is not the usual one.
    pub storage_class: Option<String>,
}

impl From<&ObjectRecord> for Summary {
    fn from(record: &ObjectRecord) -> Self {
        Self {
            etag: record.etag.clone(),
            size_bytes: record.size_bytes,
            modified_ms: record.modified_ms,
            checksum: record
                .checksum
                .map(|sum| (sum.checksum.algorithm(), sum.kind())),
            storage_class: record.attributes.storage_class().map(str::to_owned),
        }
    }
}

/// An entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object {
        /// Its key.
        key: String,
        /// What is told of it.
        summary: Summary,
    },
    /// Keys rolled up.
    Prefix(String),
}

/// Some entries in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Where to go on; `None` at the end.
    pub next: Option<Bound>,
}

/// Walks keys in byte order; places asked for never go backwards.
pub trait Cursor {
    /// What may go wrong.
    type Error;

    /// The first key that is not before `from`.
    fn seek(&mut self, from: &Bound) -> Result<Option<String>, Self::Error>;

    /// What is told of a key that `seek` gave; `None` when it is gone by now.
    fn describe(&mut self, key: &str) -> Result<Option<Summary>, Self::Error>;
}

/// A page being made: tells where to look next, and is offered the key that is there.
///
/// It neither reads nor waits, so that any source of keys can feed it: [`Scan::page`] does from a
/// [`Cursor`].
#[derive(Debug)]
pub struct Draft<'a> {
    scan: &'a Scan,
    page: Page,
    from: Bound,
    is_done: bool,
}

/// What a [`Draft`] makes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It is an entry: [`Draft::add`] it, unless it is gone by now.
    Object,
    /// It is rolled up with others, or is not on the page.
    Passed,
}

impl Draft<'_> {
    /// Where the next key is to be looked for; `None` when the page is done. Without a key there
    /// or after it, the page is done as well.
    pub fn from(&self) -> Option<&Bound> {
        (!self.is_done).then_some(&self.from)
    }

    /// Room for entries.
    pub fn entries_left(&self) -> usize {
        self.scan.entries_max - self.page.entries.len()
    }

    /// Takes the first key that is not before [`Draft::from`].
    pub fn offer(&mut self, key: &str) -> Offered {
        let Some(rest) = key.strip_prefix(self.scan.prefix.as_str()) else {
            self.is_done = true;
            return Offered::Passed;
        };
        if self.entries_left() == 0 {
            self.is_done = true;
            self.page.next = Some(self.from.clone());
            return Offered::Passed;
        }
        let delimiter = self.scan.delimiter.as_deref();
        if let Some(end) = delimiter.and_then(|d| Some(rest.find(d)? + d.len())) {
            let common = &key[..self.scan.prefix.len() + end];
            self.from = Bound::past_prefix(common);
            self.page.entries.push(Entry::Prefix(common.to_owned()));
            return Offered::Passed;
        }
        self.from = Bound::after(key);
        Offered::Object
    }

    /// Adds the key that was offered last.
    pub fn add(&mut self, key: String, summary: Summary) {
        self.page.entries.push(Entry::Object { key, summary });
    }

    /// The page.
    pub fn into_page(self) -> Page {
        self.page
    }
}

impl Scan {
    /// A page with nothing on it yet.
    pub fn draft(&self) -> Draft<'_> {
        Draft {
            scan: self,
            page: Page::default(),
            from: self.from.clone().max(Bound::at(&self.prefix)),
            is_done: self.entries_max == 0,
        }
    }

    /// Reads one page.
    ///
    /// # Errors
    /// The cursor's own.
    pub fn page<C: Cursor>(&self, cursor: &mut C) -> Result<Page, C::Error> {
        let mut draft = self.draft();
        while let Some(from) = draft.from() {
            let Some(key) = cursor.seek(from)? else {
                break;
            };
            if draft.offer(&key) == Offered::Object
                && let Some(summary) = cursor.describe(&key)?
            {
                draft.add(key, summary);
            }
        }
        Ok(draft.into_page())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::{collections::BTreeSet, convert::Infallible};

    struct Keys<'a> {
        keys: &'a BTreeSet<String>,
        seeks: usize,
    }

    impl Cursor for Keys<'_> {
        type Error = Infallible;

        fn seek(&mut self, from: &Bound) -> Result<Option<String>, Infallible> {
            self.seeks += 1;
            Ok(self
                .keys
                .iter()
                .find(|key| key.as_bytes() >= from.as_bytes())
                .cloned())
        }

        fn describe(&mut self, _key: &str) -> Result<Option<Summary>, Infallible> {
            let etag = ETag::strong("x").unwrap();
            let (size_bytes, modified_ms) = (0, 0);
            Ok(Some(Summary {
                etag,
                size_bytes,
                modified_ms,
                checksum: None,
                storage_class: None,
            }))
        }
    }

    fn names(page: &Page) -> Vec<String> {
        let name = |entry: &Entry| match entry {
            Entry::Object { key, .. } => key.clone(),
            Entry::Prefix(prefix) => format!("{prefix}*"),
        };
        page.entries.iter().map(name).collect()
    }

    #[test]
    fn a_common_prefix_costs_one_seek() {
        let mut keys: BTreeSet<String> = (0..1000).map(|n| format!("a/{n}")).collect();
        keys.insert("b".into());
        let mut cursor = Keys {
            keys: &keys,
            seeks: 0,
        };
        let scan = Scan {
            delimiter: Some("/".into()),
            entries_max: 10,
            ..Scan::default()
        };
        assert_eq!(names(&scan.page(&mut cursor).unwrap()), ["a/*", "b"]);
        assert_eq!(cursor.seeks, 3);
    }

    #[test]
    fn markers_continue_after_what_they_name() {
        for (marker, prefix, delimiter, expected) in [
            ("a", "", None, Bound::after("a")),
            ("a/", "", None, Bound::after("a/")),
            ("a/", "", Some("/"), Bound::past_prefix("a/")),
            ("a/b", "", Some("/"), Bound::after("a/b")),
            ("a/b/", "", Some("/"), Bound::after("a/b/")),
            ("a/b/", "a/", Some("/"), Bound::past_prefix("a/b/")),
            ("a/", "a/", Some("/"), Bound::after("a/")),
        ] {
            let bound = Bound::after_marker(marker, prefix, delimiter);
            assert_eq!(bound, expected, "{marker} {prefix} {delimiter:?}");
        }
    }

    proptest! {
        /// Goal: pages joined are the listing, whatever the page size.
        /// Method: against the definition: filter, roll up, without repeats.
        #[test]
        fn pages_joined_are_the_whole_listing(
            keys in vec("[ab/é]{1,5}", 0..40),
            prefix in "[ab/]{0,2}",
            delimiter in proptest::option::of("/|b|a/"),
            entries_max in 1_usize..6,
        ) {
            let keys: BTreeSet<String> = keys.into_iter().collect();
            let mut expected: Vec<String> = Vec::new();
            for key in keys.iter().filter(|key| key.starts_with(&prefix)) {
                let end = delimiter.as_deref()
                    .and_then(|d| Some(prefix.len() + key[prefix.len()..].find(d)? + d.len()));
                let name = end.map_or(key.clone(), |end| format!("{}*", &key[..end]));
                if expected.last() != Some(&name) {
                    expected.push(name);
                }
            }
            let mut scan = Scan { prefix, delimiter, entries_max, from: Bound::default() };
            let mut joined = Vec::new();
            loop {
                let page = scan.page(&mut Keys { keys: &keys, seeks: 0 }).unwrap();
                prop_assert!(page.entries.len() <= entries_max);
                joined.extend(names(&page));
                let Some(next) = page.next else { break };
                prop_assert_eq!(page.entries.len(), entries_max);
                scan.from = next;
            }
            prop_assert_eq!(joined, expected);
        }
    }
}
