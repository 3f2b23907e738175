//! A page of a listing, from what one member lists and what others say of the keys it lacks: pure.

use std::collections::BTreeMap;

use forebay_native::listing::{
    Summary,
    position::{Position, rolled_up},
};

/// What is on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// An object, as its member wrote it, and the id of its version if it has one.
    Raw {
        key: String,
        raw: String,
        version: Option<String>,
    },
    /// An object, as another member told of it.
    Told { key: String, summary: Summary },
    /// A common prefix, as it was written if it was.
    Prefix { prefix: String, raw: Option<String> },
}

impl Item {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Raw { key, .. } | Self::Told { key, .. } => key,
            Self::Prefix { prefix, .. } => prefix,
        }
    }

    /// The place just after it.
    pub(super) fn position(&self) -> Position {
        match self {
            Self::Raw { key, .. } | Self::Told { key, .. } => Position::After(key.clone()),
            Self::Prefix { prefix, .. } => Position::Past(prefix.clone()),
        }
    }

    /// Whether it is one of several versions, or may be.
    pub(super) fn is_version(&self) -> bool {
        match self {
            Self::Raw { version, .. } => version.as_ref().is_some_and(|id| id != "null"),
            Self::Told { .. } | Self::Prefix { .. } => false,
        }
    }
}

/// What of a bucket's keys is on the page.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) prefix: String,
    pub(super) delimiter: Option<String>,
    pub(super) entries_max: usize,
}

/// What is said of a key that the listing member lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Says {
    Object(Summary),
    Gone,
}

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) items: BTreeMap<String, Item>,
    /// Where the next one begins; `None` at the end.
    pub(super) next: Option<Position>,
    /// Whether it is what the member listed, no more and no less.
    pub(super) is_plain: bool,
    /// Common prefixes of which nobody knows yet whether anything is left in them.
    doubtful: Vec<String>,
}

impl Page {
    /// What was listed, up to `end` if there is one, with what is said of some keys before it.
    pub(super) fn of(
        listed: &[Item],
        end: Option<Position>,
        terms: &Terms,
        says: Vec<(String, Says)>,
    ) -> Self {
        let is_within = |item: &&Item| match &end {
            // A common prefix that reaches over the end is given as a whole, and passed.
            Some(end) => item.name().as_bytes() < &end.bytes()[..],
            None => true,
        };
        let kept = listed.iter().filter(is_within);
        let items: BTreeMap<_, _> = kept
            .map(|item| (item.name().to_owned(), item.clone()))
            .collect();
        let mut page = Self {
            is_plain: says.is_empty() && items.len() == listed.len(),
            items,
            next: end,
            doubtful: Vec::new(),
        };
        let delimiter = terms.delimiter.as_deref();
        for (key, says) in says {
            match (rolled_up(&key, &terms.prefix, delimiter), says) {
                (None, Says::Object(summary)) => {
                    page.items.insert(key.clone(), Item::Told { key, summary });
                }
                (None, Says::Gone) => {
                    page.items.remove(&key);
                }
                (Some(common), Says::Object(_)) => page.has_object_under(common),
                (Some(common), Says::Gone) => page.has_gone_under(common),
            }
        }
        page.pass_last_prefix();
        page
    }

    fn has_object_under(&mut self, common: &str) {
        let prefix = || Item::Prefix {
            prefix: common.to_owned(),
            raw: None,
        };
        self.items.entry(common.to_owned()).or_insert_with(prefix);
        self.doubtful.retain(|doubtful| doubtful != common);
    }

    fn has_gone_under(&mut self, common: &str) {
        let is_told = matches!(
            self.items.get(common),
            Some(Item::Prefix { raw: Some(_), .. })
        );
        if is_told && self.doubtful.last().is_none_or(|last| last != common) {
            self.doubtful.push(common.to_owned());
        }
    }

    /// An end within a common prefix that is on the page would give it twice.
    fn pass_last_prefix(&mut self) {
        let Some(end) = &self.next else { return };
        if let Some((prefix, Item::Prefix { .. })) = self.items.last_key_value() {
            let past = Position::Past(prefix.clone());
            if end.bytes() < past.bytes() {
                self.next = Some(past);
            }
        }
    }

    /// Common prefixes to be asked after.
    pub(super) fn take_doubtful(&mut self) -> Vec<String> {
        std::mem::take(&mut self.doubtful)
    }

    pub(super) fn remove_prefix(&mut self, prefix: &str) {
        self.items.remove(prefix);
    }

    /// Leaves what is too much to the next page.
    pub(super) fn cut(&mut self, entries_max: usize) {
        while self.items.len() > entries_max {
            self.items.pop_last();
            self.is_plain = false;
            let last = self.items.last_key_value();
            self.next = last.map(|(_, item)| item.position());
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_s3::etag::ETag;

    use super::*;

    fn raw(key: &str) -> Item {
        Item::Raw {
            key: key.into(),
            raw: format!("<{key}>"),
            version: None,
        }
    }

    fn prefix(prefix: &str) -> Item {
        Item::Prefix {
            prefix: prefix.into(),
            raw: Some(String::new()),
        }
    }

    fn object() -> Says {
        Says::Object(Summary {
            etag: ETag::strong("e").unwrap(),
            size_bytes: 1,
            modified_ms: 0,
            checksum: None,
            storage_class: None,
        })
    }

    fn page(listed: &[Item], end: Option<&str>, says: &[(&str, Says)]) -> Page {
        let terms = Terms {
            prefix: String::new(),
            delimiter: Some("/".into()),
            entries_max: 3,
        };
        let says = says
            .iter()
            .map(|(key, says)| ((*key).to_owned(), says.clone()));
        let end = end.map(|end| Position::After(end.to_owned()));
        Page::of(listed, end, &terms, says.collect())
    }

    fn names(page: &Page) -> Vec<&str> {
        page.items.keys().map(String::as_str).collect()
    }

    #[test]
    fn what_is_said_replaces_what_was_listed() {
        let listed = [raw("a"), raw("b"), prefix("c/")];
        let says = [("a", Says::Gone), ("aa", object()), ("d/1", object())];
        let mut all = page(&listed, None, &says);
        assert_eq!(names(&all), ["aa", "b", "c/", "d/"]);
        assert!(!all.is_plain && all.next.is_none());
        all.cut(3);
        assert_eq!(names(&all), ["aa", "b", "c/"]);
        assert_eq!(all.next, Some(Position::Past("c/".into())));
        let plain = page(&listed, None, &[]);
        assert!(plain.is_plain);
    }

    #[test]
    fn a_prefix_whose_keys_are_deleted_is_asked_after_unless_one_is_there() {
        let listed = [prefix("c/"), prefix("d/")];
        let says = [
            ("b/1", Says::Gone),
            ("c/1", Says::Gone),
            ("c/2", Says::Gone),
            ("d/1", Says::Gone),
            ("d/2", object()),
        ];
        let mut all = page(&listed, None, &says);
        assert_eq!(all.take_doubtful(), ["c/"]);
        all.remove_prefix("c/");
        assert_eq!(names(&all), ["d/"]);
    }

    #[test]
    fn a_page_ends_where_it_is_told_but_never_within_a_prefix_that_it_has() {
        let listed = [raw("a"), prefix("c/"), raw("d")];
        let cut = page(&listed, Some("a"), &[]);
        assert_eq!((names(&cut), cut.is_plain), (vec!["a"], false));
        assert_eq!(cut.next, Some(Position::After("a".into())));
        let cut = page(&listed, Some("c/5"), &[("c/4", object())]);
        assert_eq!(names(&cut), ["a", "c/"]);
        assert_eq!(cut.next, Some(Position::Past("c/".into())));
    }
}
