//! Tells somebody else of what leaves the index.
//!
//! Called by the index for each entry, after every lock is released: so whoever listens may take
//! its time, but the fill or the write that made the entry leave waits for it.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use forebay_telemetry::cache::CacheMetrics;

use super::slots::{Entry, PageName};
use crate::version::{Version, Vid};

/// Why an entry left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// Others needed its room.
    Room,
    /// Another of its name took its place.
    Replaced,
    /// The origin has another version by now, or none.
    Superseded,
    /// A write passed.
    Invalidated,
    /// An operator said so.
    Purged,
}

/// What left.
#[derive(Debug)]
pub(crate) enum GoneEntry {
    /// A record, and in it the page of an object that has only one.
    Version(Arc<Version>),
    /// A page of an object that has several.
    Page {
        vid: Vid,
        page_index: u64,
        page: Bytes,
    },
}

/// An entry that left.
#[derive(Debug)]
pub(crate) struct Gone {
    pub entry: GoneEntry,
    /// It was used since it was stored, later than the second after.
    pub was_hit: bool,
    pub cause: Cause,
}

/// Who is told. Called on any thread, with no lock of the index held.
pub(crate) trait GoneSink: fmt::Debug + Send + Sync {
    /// An entry left.
    fn gone(&self, gone: Gone);
}

/// Nobody.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nobody;

impl GoneSink for Nobody {
    fn gone(&self, _gone: Gone) {}
}

impl Cause {
    /// Counts an entry.
    pub(super) fn count(self, metrics: &CacheMetrics) {
        match self {
            Self::Room => metrics.evictions.inc(),
            Self::Replaced => metrics.gone.replaced.inc(),
            Self::Superseded => metrics.gone.superseded.inc(),
            Self::Invalidated => metrics.gone.invalidated.inc(),
            Self::Purged => metrics.gone.purged.inc(),
        };
    }
}

impl From<Entry> for GoneEntry {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Version(version) => Self::Version(version),
            Entry::Page { name, page } => {
                let PageName { vid, page_index } = name;
                let page_index = u64::from(page_index);
                Self::Page {
                    vid,
                    page_index,
                    page: page.into_bytes(),
                }
            }
        }
    }
}
