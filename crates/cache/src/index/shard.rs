//! One shard of the index: a hash table over slots, and queues that say which entry makes room.
//!
//! Invariants (`audit`): every entry is in the table once and in one queue.
//! Not here: which entry makes room (`queues`), and the accounts of all shards (`index`).

use std::sync::Arc;

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use hashbrown::{DefaultHashBuilder, HashTable, hash_table};

use super::{
    Standing,
    ghosts::Ghosts,
    queues::{Links, NONE, Nodes, Place, Queues},
    slots::{Entry, PageName, Slots},
};
use crate::version::{Version, Vid};

/// One shard.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<u32>,
    slots: Slots,
    queues: Queues,
    ghosts: Ghosts,
    /// The index's own.
    hasher: DefaultHashBuilder,
}

/// An entry that was taken out.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) entry: Entry,
    pub(super) weight_bytes: u64,
    pub(super) links: Links,
}

/// Where an entry is to go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// Where that of its name was, if there was one; else to the small queue, or to main if it is
    /// back soon after it made room.
    Ordinary(Option<Links>),
    /// To those that never make room.
    Pinned,
}

impl Shard {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Self {
        Self {
            table: HashTable::new(),
            slots: Slots::default(),
            queues: Queues::default(),
            ghosts: Ghosts::default(),
            hasher,
        }
    }

    pub(super) fn version(
        &mut self,
        hash: u64,
        object: &ObjectId,
        now_ms: i64,
    ) -> Option<Arc<Version>> {
        let id = self.find_version(hash, object)?;
        self.slots.links_mut(id).touch(now_ms);
        self.slots.version(id).map(Arc::clone)
    }

    /// The record of an object and how it stands; no use of it.
    pub(super) fn standing(
        &self,
        hash: u64,
        object: &ObjectId,
    ) -> Option<(Arc<Version>, Standing)> {
        let id = self.find_version(hash, object)?;
        self.standing_of(id)
    }

    pub(super) fn page(&mut self, hash: u64, name: PageName, now_ms: i64) -> Option<Bytes> {
        let id = self.find_page(hash, name)?;
        self.slots.links_mut(id).touch(now_ms);
        Some(self.slots.page(id)?.clone().into_bytes())
    }

    /// The length of a page, if it is there; no use of it.
    pub(super) fn page_length(&self, hash: u64, name: PageName) -> Option<u64> {
        let id = self.find_page(hash, name)?;
        self.slots.page(id).map(|page| page.len() as u64)
    }

    /// Inserts an entry; no other of its name may be there.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        entry: Entry,
        weight_bytes: u64,
        target: Target,
        now_ms: i64,
    ) {
        let links = match target {
            Target::Pinned => Links::new(Place::Pinned, now_ms),
            Target::Ordinary(Some(replaced)) if replaced.place() != Place::Pinned => {
                Links::in_place_of(replaced, now_ms)
            }
            Target::Ordinary(_) if self.ghosts.take(hash) => Links::new(Place::Main, now_ms),
            Target::Ordinary(_) => Links::new(Place::Small, now_ms),
        };
        let id = self.slots.insert(entry, weight_bytes, links);
        self.queues.push(&mut self.slots, id, links.place());
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |other: &u32| slots.hash(*other, hasher);
        self.table.insert_unique(hash, id, rehash);
    }

    /// Removes the entry whose turn it is to make room.
    pub(super) fn evict(&mut self) -> Option<Removed> {
        let id = self.queues.evict(&mut self.slots)?;
        let hash = self.slots.hash(id, &self.hasher);
        if self.slots.links(id).place() == Place::Small {
            self.ghosts.put(hash, self.table.len());
        }
        Some(self.take(id, hash))
    }

    fn remove_object(&mut self, hash: u64, object: &ObjectId) -> Option<Removed> {
        let id = self.find_version(hash, object)?;
        Some(self.remove(id, hash))
    }

    /// Removes the records of all versions of an object.
    pub(super) fn remove_versions(
        &mut self,
        hash: u64,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Vec<Removed> {
        let mut removed = Vec::new();
        while let Some(id) = self.find(hash, |version| {
            version.object.key == *key && version.object.bucket == *bucket
        }) {
            removed.push(self.remove(id, hash));
        }
        removed
    }

    /// Removes this record, or another of the same version: not one that has taken its place.
    pub(super) fn remove_version(&mut self, hash: u64, version: &Version) -> Option<Removed> {
        let id = self.find(hash, |other| {
            other.object == version.object
                && other.vid == version.vid
                && other.stamp == version.stamp
        })?;
        Some(self.remove(id, hash))
    }

    /// Removes the entry of the same name as another, wherever that is.
    pub(super) fn remove_like(&mut self, hash: u64, other: &Entry) -> Option<Removed> {
        match other {
            Entry::Version(version) => self.remove_object(hash, &version.object),
            Entry::Page { name, .. } => self.remove_page(hash, *name),
        }
    }

    pub(super) fn remove_page(&mut self, hash: u64, name: PageName) -> Option<Removed> {
        let id = self.find_page(hash, name)?;
        Some(self.remove(id, hash))
    }

    /// Removes one of the pinned pages of a version.
    pub(super) fn remove_pinned_pages(&mut self, vid: Vid) -> Vec<Removed> {
        let mut removed = Vec::new();
        let mut id = self.queues.oldest(Place::Pinned);
        while id != NONE {
            let newer = self.slots.links(id).newer;
            if self.slots.page_name(id).is_some_and(|name| name.vid == vid) {
                let hash = self.slots.hash(id, &self.hasher);
                removed.push(self.remove(id, hash));
            }
            id = newer;
        }
        removed
    }

    /// The records that are pinned.
    pub(super) fn pinned_versions(&self) -> Vec<Arc<Version>> {
        let mut versions = Vec::new();
        let mut id = self.queues.oldest(Place::Pinned);
        while id != NONE {
            versions.extend(self.slots.version(id).map(Arc::clone));
            id = self.slots.links(id).newer;
        }
        versions
    }

    /// Moves the record of an object to another queue, if `may_move` its weight from one place.
    pub(super) fn move_version(
        &mut self,
        hash: u64,
        object: &ObjectId,
        to: Place,
        may_move: impl FnOnce(&Version, Place, u64) -> bool,
    ) -> Option<Arc<Version>> {
        let id = self.find_version(hash, object)?;
        let version = Arc::clone(self.slots.version(id)?);
        self.shift(id, to, |from, weight| may_move(&version, from, weight));
        Some(version)
    }

    /// The same for a page; whether there is one.
    pub(super) fn move_page(
        &mut self,
        hash: u64,
        name: PageName,
        to: Place,
        may_move: impl FnOnce(Place, u64) -> bool,
    ) -> bool {
        let found = self.find_page(hash, name);
        if let Some(id) = found {
            self.shift(id, to, may_move);
        }
        found.is_some()
    }

    fn shift(&mut self, id: u32, to: Place, may_move: impl FnOnce(Place, u64) -> bool) {
        let (from, weight) = (self.slots.links(id).place(), self.slots.weight_bytes(id));
        if from != to && may_move(from, weight) {
            self.queues.unlink(&mut self.slots, id);
            self.queues.push(&mut self.slots, id, to);
        }
    }

    /// Adds the next records to `batch`, from the `cursor` on, until `count_max` were looked at;
    /// moves the cursor, and returns whether there are more.
    pub(super) fn next_versions(
        &self,
        cursor: &mut u32,
        count_max: usize,
        batch: &mut Vec<(Arc<Version>, Standing)>,
    ) -> bool {
        let mut ids = self.slots.version_ids(*cursor);
        for id in ids.by_ref().take(count_max) {
            *cursor += 1;
            batch.extend(self.standing_of(id));
        }
        ids.next().is_some()
    }

    /// Names of the pages of a version, found by looking at all pages.
    pub(super) fn pages_of(&self, vid: Vid) -> Vec<PageName> {
        let names = self
            .slots
            .page_ids()
            .filter_map(|id| self.slots.page_name(id));
        names.filter(|name| name.vid == vid).collect()
    }

    /// All pages, each with its version.
    pub(super) fn pages(&self) -> Vec<(Vid, Standing)> {
        let found = |id| Some((self.slots.page_name(id)?.vid, self.stands(id)));
        self.slots.page_ids().filter_map(found).collect()
    }

    fn standing_of(&self, id: u32) -> Option<(Arc<Version>, Standing)> {
        let version = self.slots.version(id)?;
        Some((Arc::clone(version), self.stands(id)))
    }

    fn stands(&self, id: u32) -> Standing {
        let links = self.slots.links(id);
        Standing {
            uses: links.uses(),
            place: links.place(),
            weight_bytes: self.slots.weight_bytes(id),
            hit: links.was_hit(),
        }
    }

    fn find(&self, hash: u64, is_it: impl Fn(&Version) -> bool) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |id: &u32| slots.version(*id).is_some_and(|version| is_it(version));
        self.table.find(hash, is_it).copied()
    }

    fn find_version(&self, hash: u64, object: &ObjectId) -> Option<u32> {
        self.find(hash, |version| version.object == *object)
    }

    fn find_page(&self, hash: u64, name: PageName) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |id: &u32| slots.page_name(*id) == Some(name);
        self.table.find(hash, is_it).copied()
    }

    fn remove(&mut self, id: u32, hash: u64) -> Removed {
        self.queues.unlink(&mut self.slots, id);
        self.take(id, hash)
    }

    /// Takes out what is in no queue any more.
    fn take(&mut self, id: u32, hash: u64) -> Removed {
        if let Ok(found) = self.table.find_entry(hash, |other| *other == id) {
            hash_table::OccupiedEntry::remove(found);
        }
        let (weight_bytes, links) = (self.slots.weight_bytes(id), *self.slots.links(id));
        Removed {
            entry: self.slots.take(id),
            weight_bytes,
            links,
        }
    }

    /// Memory of everything but what entries hold.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.table.allocation_size() + self.slots.memory_bytes() + self.ghosts.memory_bytes()
    }

    /// Checks the invariants; returns the weight and the number of entries of the three queues.
    #[cfg(test)]
    pub(super) fn audit(&self) -> [(u64, usize); 3] {
        let queues = self.queues.audit(&self.slots);
        let count: usize = queues.iter().map(|(_, count)| count).sum();
        assert_eq!(count, self.table.len());
        for id in &self.table {
            let hash = self.slots.hash(*id, &self.hasher);
            let found = self.table.find(hash, |other| other == id);
            assert!(found.is_some(), "an entry is found by its hash");
        }
        queues
    }
}

#[cfg(test)]
mod tests;
