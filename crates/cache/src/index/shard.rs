//! One shard of the index: a hash table, and S3-FIFO to say which entry makes room.
//!
//! New entries go to the *small* queue, a tenth of the bytes. At its end an entry that was used
//! since moves to the *main* queue; any other makes room and leaves a ghost, and if it comes back
//! while the ghost is there it goes straight to main. At the end of main an entry goes round again
//! once for each use, of which three are counted. So what is read once never displaces what is
//! read often, and a hit moves nothing.
//!
//! Uses of an entry within [`CORRELATED_MS`] of its last one count once, or a scan in small ranges
//! would make each of its pages look popular.
//!
//! Invariants (`audit`): every entry is in the table once and in one queue; a queue's bytes are
//! the sum of its weights.
//! Sources: Yang et al., "FIFO queues are all you need for cache eviction", SOSP'23; the window is
//! the correlated reference period of O'Neil et al., "The LRU-K page replacement algorithm",
//! SIGMOD'93.

use std::sync::Arc;

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use hashbrown::{HashTable, hash_table};

use super::ghosts::Ghosts;
use crate::version::{Version, Vid};

/// Share of the small queue in a shard's bytes, as a divisor: a tenth, as in the paper.
const SMALL_DIVISOR: u64 = 10;
/// Uses counted, as in the paper.
const USES_MAX: u8 = 3;
/// Uses closer to each other than this are one use.
const CORRELATED_MS: u32 = 1000;
/// No node: the end of a queue.
const NONE: u32 = u32::MAX;

/// What an entry takes besides its value: its node, its place in the table (a hash table is
/// between 7/16 and 7/8 full, 5 bytes each) and a ghost's (a list and a set).
pub(super) const OVERHEAD_BYTES: u64 = size_of::<Node>() as u64 + 10 + 32;
/// The allocation that counts the references to a page.
pub(super) const PAGE_OWNER_BYTES: u64 = 64;

/// What is stored.
#[derive(Debug)]
pub(super) enum Entry {
    Version(Arc<Version>),
    Page {
        vid: Vid,
        page_index: u64,
        page: Bytes,
    },
    /// A node that is free.
    Free,
}

/// One shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
}

#[derive(Debug)]
struct Node {
    entry: Entry,
    hash: u64,
    weight: u64,
    older: u32,
    newer: u32,
    used_ms: u32,
    uses: u8,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Small,
    Main,
}

/// A doubly linked list through the nodes.
#[derive(Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            oldest: NONE,
            newest: NONE,
            bytes: 0,
        }
    }
}

impl Shard {
    pub(super) fn version(
        &mut self,
        hash: u64,
        object: &ObjectId,
        now_ms: i64,
    ) -> Option<Arc<Version>> {
        let node = self.find(hash, |entry| entry.is_version_of(object))?;
        let node = &mut self.nodes[node as usize];
        node.touch(now_ms);
        match &node.entry {
            Entry::Version(version) => Some(Arc::clone(version)),
            Entry::Page { .. } | Entry::Free => None,
        }
    }

    pub(super) fn page(
        &mut self,
        hash: u64,
        vid: Vid,
        page_index: u64,
        now_ms: i64,
    ) -> Option<Bytes> {
        let node = self.find(hash, |entry| entry.is_page(vid, page_index))?;
        let node = &mut self.nodes[node as usize];
        node.touch(now_ms);
        match &node.entry {
            Entry::Page { page, .. } => Some(page.clone()),
            Entry::Version(_) | Entry::Free => None,
        }
    }

    pub(super) fn has_page(&self, hash: u64, vid: Vid, page_index: u64) -> bool {
        self.find(hash, |entry| entry.is_page(vid, page_index))
            .is_some()
    }

    /// Inserts an entry; returns the one of the same name that was there, and its weight.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        entry: Entry,
        weight: u64,
        now_ms: i64,
    ) -> Option<(Entry, u64)> {
        let found = self.find(hash, |there| there.is_named_like(&entry));
        let (place, uses) = match found {
            Some(index) => (
                self.nodes[index as usize].place,
                self.nodes[index as usize].uses,
            ),
            None if self.ghosts.take(hash) => (Place::Main, 0),
            None => (Place::Small, 0),
        };
        let replaced = found.map(|index| self.remove(index));
        let node = Node {
            entry,
            hash,
            weight,
            older: NONE,
            newer: NONE,
            used_ms: wrapped(now_ms),
            uses,
            place,
        };
        let index = if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("a shard has fewer than 2^32 entries")
        };
        self.push(index, place);
        let nodes = &self.nodes;
        self.table
            .insert_unique(hash, index, |other| nodes[*other as usize].hash);
        replaced
    }

    /// Removes the entry whose turn it is to make room.
    pub(super) fn evict(&mut self) -> Option<(Entry, u64)> {
        loop {
            let total = self.small.bytes + self.main.bytes;
            let from_small = self.small.bytes > total / SMALL_DIVISOR || self.main.oldest == NONE;
            if from_small && self.small.oldest != NONE {
                let index = self.small.oldest;
                let node = &mut self.nodes[index as usize];
                if node.uses == 0 {
                    let hash = node.hash;
                    self.ghosts.put(hash, self.table.len());
                    return Some(self.remove(index));
                }
                node.uses = 0;
                self.unlink(index);
                self.push(index, Place::Main);
            } else if self.main.oldest != NONE {
                let index = self.main.oldest;
                let node = &mut self.nodes[index as usize];
                if node.uses == 0 {
                    return Some(self.remove(index));
                }
                node.uses -= 1;
                self.unlink(index);
                self.push(index, Place::Main);
            } else {
                return None;
            }
        }
    }

    /// Removes the records of all versions of an object.
    pub(super) fn remove_object(
        &mut self,
        hash: u64,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Vec<(Arc<Version>, u64)> {
        let mut removed = Vec::new();
        while let Some(index) = self.find(hash, |entry| match entry {
            Entry::Version(v) => v.object.key == *key && v.object.bucket == *bucket,
            Entry::Page { .. } | Entry::Free => false,
        }) {
            if let (Entry::Version(version), weight) = self.remove(index) {
                removed.push((version, weight));
            }
        }
        removed
    }

    /// Removes this record, or another of the same version: not one that has taken its place.
    pub(super) fn remove_version(
        &mut self,
        hash: u64,
        version: &Arc<Version>,
    ) -> Option<(Entry, u64)> {
        let index = self.find(hash, |entry| match entry {
            Entry::Version(v) => {
                v.object == version.object && v.vid == version.vid && v.stamp == version.stamp
            }
            Entry::Page { .. } | Entry::Free => false,
        })?;
        Some(self.remove(index))
    }

    pub(super) fn remove_page(
        &mut self,
        hash: u64,
        vid: Vid,
        page_index: u64,
    ) -> Option<(Entry, u64)> {
        let index = self.find(hash, |entry| entry.is_page(vid, page_index))?;
        Some(self.remove(index))
    }

    fn find(&self, hash: u64, is_it: impl Fn(&Entry) -> bool) -> Option<u32> {
        let nodes = &self.nodes;
        self.table
            .find(hash, |index| is_it(&nodes[*index as usize].entry))
            .copied()
    }

    fn remove(&mut self, index: u32) -> (Entry, u64) {
        self.unlink(index);
        let node = &mut self.nodes[index as usize];
        let entry = std::mem::replace(&mut node.entry, Entry::Free);
        let found = self.table.find_entry(node.hash, |other| *other == index);
        if let Ok(occupied) = found {
            hash_table::OccupiedEntry::remove(occupied);
        }
        self.free.push(index);
        (entry, node.weight)
    }

    /// Appends a node that is in no queue.
    fn push(&mut self, index: u32, place: Place) {
        let newest = self.queue(place).newest;
        let node = &mut self.nodes[index as usize];
        (node.place, node.older, node.newer) = (place, newest, NONE);
        let weight = node.weight;
        if newest != NONE {
            self.nodes[newest as usize].newer = index;
        }
        let queue = self.queue(place);
        queue.bytes += weight;
        queue.newest = index;
        if queue.oldest == NONE {
            queue.oldest = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let node = &self.nodes[index as usize];
        let (place, older, newer, weight) = (node.place, node.older, node.newer, node.weight);
        if older != NONE {
            self.nodes[older as usize].newer = newer;
        }
        if newer != NONE {
            self.nodes[newer as usize].older = older;
        }
        let queue = self.queue(place);
        queue.bytes -= weight;
        if queue.oldest == index {
            queue.oldest = newer;
        }
        if queue.newest == index {
            queue.newest = older;
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
        }
    }

    /// Checks the invariants; returns the sum of all weights and the number of entries.
    #[cfg(test)]
    pub(super) fn audit(&self) -> (u64, i64) {
        let mut count = 0;
        for (queue, place) in [(&self.small, Place::Small), (&self.main, Place::Main)] {
            let (mut index, mut previous, mut bytes) = (queue.oldest, NONE, 0);
            while index != NONE {
                let node = &self.nodes[index as usize];
                assert!(node.place == place && node.older == previous);
                assert!(!matches!(node.entry, Entry::Free));
                assert!(
                    self.table
                        .find(node.hash, |other| *other == index)
                        .is_some()
                );
                bytes += node.weight;
                count += 1;
                (previous, index) = (index, node.newer);
            }
            assert_eq!((queue.newest, queue.bytes), (previous, bytes));
        }
        assert_eq!(count, self.table.len());
        assert_eq!(count + self.free.len(), self.nodes.len());
        (
            self.small.bytes + self.main.bytes,
            i64::try_from(count).unwrap(),
        )
    }
}

impl Entry {
    fn is_version_of(&self, object: &ObjectId) -> bool {
        matches!(self, Self::Version(version) if version.object == *object)
    }

    fn is_page(&self, of: Vid, at: u64) -> bool {
        matches!(self, Self::Page { vid, page_index, .. } if *vid == of && *page_index == at)
    }

    fn is_named_like(&self, other: &Self) -> bool {
        match other {
            Self::Version(version) => self.is_version_of(&version.object),
            Self::Page {
                vid, page_index, ..
            } => self.is_page(*vid, *page_index),
            Self::Free => false,
        }
    }
}

impl Node {
    fn touch(&mut self, now_ms: i64) {
        let now_ms = wrapped(now_ms);
        if now_ms.wrapping_sub(self.used_ms) >= CORRELATED_MS {
            self.used_ms = now_ms;
            self.uses = (self.uses + 1).min(USES_MAX);
        }
    }
}

/// The low bits of a time: differences up to 49 days stay right.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only differences"
)]
fn wrapped(ms: i64) -> u32 {
    ms as u32
}

#[cfg(test)]
mod tests;
