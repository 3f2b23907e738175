//! What never makes room, and how much of it there may be.
//!
//! A pin is for an object: its record goes to the queue that never makes room, and each page whose
//! record is there follows it. So a page is pinned only while its record is, and no pinned page is
//! left behind when the record goes. A rule of the configuration pins what is stored under it; an
//! operator pins names, which are kept, so that an object that is filled again is pinned again.
//!
//! Called by the index, under the lock of the entry's shard: so a page is stored either before its
//! record is pinned, and moved with it, or after, and pinned itself.
//!
//! When the quota is used up a pin is refused and counted; the entry is an ordinary one.

use std::sync::atomic::Ordering;

use forebay_s3::operation::ObjectId;
use hashbrown::HashSet;

use super::Limits;
use crate::{
    sync::{AtomicU64, RwLock},
    version::Vid,
};

/// What came of an operator's pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// The name is kept; of what is in memory so much is pinned and so much found no room in the
    /// quota.
    Kept {
        /// Bytes pinned by this call.
        pinned_bytes: u64,
        /// Bytes that stay ordinary.
        refused_bytes: u64,
    },
    /// There are as many names as there may be.
    TooManyNames,
}

/// The account of pins.
#[derive(Debug)]
pub(super) struct Pins {
    bytes: AtomicU64,
    bytes_max: u64,
    names: RwLock<HashSet<ObjectId>>,
    names_max: usize,
    /// Versions of several pages whose record is pinned; no more than records fit the quota.
    vids: RwLock<HashSet<Vid>>,
}

impl Pins {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max: limits.pin_bytes_max,
            names: RwLock::default(),
            names_max: limits.pins_max,
            vids: RwLock::default(),
        }
    }

    /// Whether anything can be pinned at all: where not, nothing else here needs a look.
    pub(super) fn are_possible(&self) -> bool {
        self.bytes_max > 0
    }

    /// Bytes of what is pinned.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes so much of the quota; `false` when there is not so much left.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let taken = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max)
            });
        taken.is_ok()
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Keeps a name; `false` when there are too many.
    pub(super) fn add_name(&self, object: &ObjectId) -> bool {
        let mut names = self.names.write();
        let fits = names.len() < self.names_max || names.contains(object);
        if fits {
            names.insert(object.clone());
        }
        fits
    }

    pub(super) fn remove_name(&self, object: &ObjectId) {
        self.names.write().remove(object);
    }

    pub(super) fn has_name(&self, object: &ObjectId) -> bool {
        self.are_possible() && self.names.read().contains(object)
    }

    pub(super) fn names(&self) -> Vec<ObjectId> {
        self.names.read().iter().cloned().collect()
    }

    pub(super) fn add_vid(&self, vid: Vid) {
        self.vids.write().insert(vid);
    }

    /// Whether it was there.
    pub(super) fn remove_vid(&self, vid: Vid) -> bool {
        self.vids.write().remove(&vid)
    }

    pub(super) fn has_vid(&self, vid: Vid) -> bool {
        self.are_possible() && self.vids.read().contains(&vid)
    }
}
