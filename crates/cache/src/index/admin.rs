//! What operators ask of the index: what there is, purge, pins.
//!
//! Called by the layer for the admin commands. Everything here looks at one shard after another,
//! and holds a lock for a batch at most: what is stored meanwhile is seen or not.

use std::sync::Arc;

use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};

use super::{
    Cause, Entry, Index, PageName, Pinned, Removed, Shard, Target, queues::Place, signed,
    watched::Watched,
};
use crate::{
    policy::Keep,
    version::{Version, Vid},
};

/// Records looked at under one lock: some ten microseconds.
const BATCH_COUNT: usize = 256;
/// Versions of more pages than this are found by looking at all pages there are, not at each that
/// there might be.
const PROBED_PAGES_MAX: u64 = 4096;

/// How an entry stands in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Uses that keep it from making room: 0 to 3.
    pub uses: u8,
    /// Its queue.
    pub place: Place,
    /// What it takes: of a record its page, if it has one, but not pages with entries of their own.
    pub weight_bytes: u64,
    /// It was used since it was stored, later than the second after.
    pub hit: bool,
}

/// Pages of a version that are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Present {
    /// Their number.
    pub pages: u64,
    /// Bytes of the object in them.
    pub bytes: u64,
}

/// What a purge removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Version records.
    pub records: u64,
    /// Pages that had entries of their own.
    pub pages: u64,
    /// What all of them took.
    pub bytes: u64,
}

impl Index {
    /// Shows every record that may answer, in no order. One that is stored anew meanwhile is seen
    /// twice or not at all.
    pub(crate) fn visit(&self, each: &mut dyn FnMut(&Arc<Version>, Standing)) {
        let mut batch = Vec::with_capacity(BATCH_COUNT);
        for shard in &self.shards {
            let mut cursor = 0;
            loop {
                let more = shard
                    .lock()
                    .next_versions(&mut cursor, BATCH_COUNT, &mut batch);
                for (version, standing) in batch.drain(..) {
                    if self.epochs.is_bucket_current(&version.stamp) {
                        each(&version, standing);
                    }
                }
                if !more {
                    break;
                }
            }
        }
    }

    /// Shows every page that has an entry of its own: of which version it is, and how it stands.
    pub(crate) fn visit_pages(&self, each: &mut dyn FnMut(Vid, Standing)) {
        for shard in &self.shards {
            let pages = shard.lock().pages();
            for (vid, standing) in pages {
                each(vid, standing);
            }
        }
    }

    /// The record of an object and how it stands; no use of it.
    pub(crate) fn standing_of(&self, object: &ObjectId) -> Option<(Arc<Version>, Standing)> {
        let hash = self.name_hash(&object.bucket, &object.key);
        let found = self.shard(hash).lock().standing(hash, object);
        found.filter(|(version, _)| self.epochs.is_bucket_current(&version.stamp))
    }

    /// The pages of a version that are here; no use of them.
    pub(crate) fn present(&self, version: &Version) -> Present {
        let mut present = Present::default();
        if let Some(page) = &version.page {
            (present.pages, present.bytes) = (1, page.len() as u64);
        }
        self.each_page(version, &mut |name| {
            if let Some(length) = self.page_length(name) {
                present.pages += 1;
                present.bytes += length;
            }
        });
        present
    }

    /// Removes the records of objects that match, and their pages, pinned or not, and makes fills
    /// under way unfit to store: all, as one may be of an object that has no record here yet.
    pub(crate) fn purge(&self, matches: &mut dyn FnMut(&ObjectId) -> bool) -> Purged {
        self.epochs.every_key_written();
        let mut purged = Purged::default();
        self.visit(&mut |version, _| {
            if !matches(&version.object) {
                return;
            }
            let hash = version.stamp.key_hash();
            let removed = self.shard(hash).lock().remove_version(hash, version);
            self.purge_removed(version, removed, &mut purged);
        });
        purged
    }

    /// Removes all versions of an object, and their pages, and makes fills of it unfit to store.
    pub(crate) fn purge_object(&self, bucket: &BucketName, key: &ObjectKey) -> Purged {
        let hashes = self.hashes(bucket, key);
        self.epochs.key_written(hashes);
        let removed = self
            .shard(hashes.key)
            .lock()
            .remove_versions(hashes.key, bucket, key);
        let mut purged = Purged::default();
        for removed in removed {
            if let Entry::Version(version) = &removed.entry {
                let version = Arc::clone(version);
                self.purge_removed(&version, Some(removed), &mut purged);
            }
        }
        purged
    }

    /// Removes everything, pages that no record leads to included.
    pub(crate) fn purge_all(&self) -> Purged {
        let mut purged = self.purge(&mut |_| true);
        for shard in &self.shards {
            loop {
                let Some(removed) = shard.lock().evict() else {
                    break;
                };
                match &removed.entry {
                    Entry::Version(_) => purged.records += 1,
                    Entry::Page { .. } => purged.pages += 1,
                }
                purged.bytes += removed.weight_bytes;
                self.gone(removed, Cause::Purged);
            }
        }
        purged
    }

    /// What is left to do of a record that was removed, unless another did it meanwhile.
    fn purge_removed(&self, version: &Version, removed: Option<Removed>, purged: &mut Purged) {
        if let Some(removed) = removed {
            purged.records += 1;
            purged.bytes += removed.weight_bytes;
            self.unaccount(Some(&removed));
            self.pins.remove_vid(version.vid);
            self.tell(removed, Cause::Purged, None);
        }
        self.each_page(version, &mut |name| {
            if let Some(weight) = self.forget_page(name, Cause::Purged) {
                purged.pages += 1;
                purged.bytes += weight;
            }
        });
    }

    /// Pins an object by its name: what is here of it now, and whatever of it is stored later.
    pub(crate) fn pin(&self, object: &ObjectId) -> Pinned {
        if !self.pins.are_possible() || !self.pins.add_name(object) {
            self.metrics.pins_refused.inc();
            return Pinned::TooManyNames;
        }
        let (mut pinned_bytes, mut refused_bytes) = (0, 0);
        let mut may_move = |weight| {
            let fits = self.take_pin(weight);
            *(if fits {
                &mut pinned_bytes
            } else {
                &mut refused_bytes
            }) += weight;
            fits
        };
        let hash = self.name_hash(&object.bucket, &object.key);
        let version = self.shard(hash).lock().move_version(
            hash,
            object,
            Place::Pinned,
            |version, _, weight| {
                let moves = may_move(weight);
                if moves && Self::page_count(version) > 0 {
                    self.pins.add_vid(version.vid);
                }
                moves
            },
        );
        if let Some(version) = version {
            // Under the lock of each page: whoever ends the pin looks at the pages after that.
            let is_pinned = || self.pins.has_vid(version.vid);
            self.each_page(&version, &mut |name| {
                let hash = name.hash(&self.hasher);
                let mut shard = self.shard(hash).lock();
                let may_move = |_, weight| is_pinned() && may_move(weight);
                shard.move_page(hash, name, Place::Pinned, may_move);
            });
        }
        Pinned::Kept {
            pinned_bytes,
            refused_bytes,
        }
    }

    /// Ends an operator's pin: what is here of the object makes room again when its turn comes.
    pub(crate) fn unpin(&self, object: &ObjectId) {
        self.pins.remove_name(object);
        let may_move = |from, weight| {
            let is_pinned = from == Place::Pinned;
            if is_pinned {
                self.give_back_pin(weight);
            }
            is_pinned
        };
        let hash = self.name_hash(&object.bucket, &object.key);
        let version = self.shard(hash).lock().move_version(
            hash,
            object,
            Place::Main,
            |version, from, weight| {
                self.pins.remove_vid(version.vid);
                may_move(from, weight)
            },
        );
        let Some(version) = version else { return };
        self.each_page(&version, &mut |name| {
            let hash = name.hash(&self.hasher);
            let mut shard = self.shard(hash).lock();
            shard.move_page(hash, name, Place::Main, may_move);
        });
    }

    /// The names that an operator pinned.
    pub(crate) fn pinned_names(&self) -> Vec<ObjectId> {
        self.pins.names()
    }

    /// Bytes of what is pinned.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pins.bytes()
    }

    /// Takes quota for an entry that is to be pinned, if it is.
    pub(super) fn may_pin(&self, entry: &Entry, weight_bytes: u64) -> bool {
        let wanted = match entry {
            Entry::Version(version) => {
                version.policy.keep == Keep::Pinned || self.pins.has_name(&version.object)
            }
            Entry::Page { name, .. } => self.pins.has_vid(name.vid),
        };
        wanted && self.take_pin(weight_bytes)
    }

    /// Notes that pages of a record are to be pinned as it is; under the lock of its shard.
    pub(super) fn note_pinned(&self, entry: &Entry, target: Target) -> Option<Vid> {
        match (entry, target) {
            (Entry::Version(version), Target::Pinned) if Self::page_count(version) > 0 => {
                self.pins.add_vid(version.vid);
                Some(version.vid)
            }
            (Entry::Version(_) | Entry::Page { .. }, Target::Pinned | Target::Ordinary(_)) => None,
        }
    }

    /// Removes the pinned pages of a record that left: nobody else would find them.
    pub(super) fn release_pages(&self, removed: &Removed, cause: Cause, kept: Option<Vid>) {
        let Entry::Version(version) = &removed.entry else {
            return;
        };
        if removed.links.place() != Place::Pinned
            || kept == Some(version.vid)
            || !self.pins.remove_vid(version.vid)
        {
            return;
        }
        for shard in &self.shards {
            let pages = shard.lock().remove_pinned_pages(version.vid);
            for page in pages {
                self.gone(page, cause);
            }
        }
    }

    /// Removes what is pinned of buckets that were written as a whole: what is not pinned is found
    /// to be outdated when it is looked up, or makes room.
    pub(super) fn forget_outdated_pins(&self) {
        if self.pins.bytes() == 0 {
            return;
        }
        for shard in &self.shards {
            let pinned = shard.lock().pinned_versions();
            for version in pinned {
                if !self.epochs.is_bucket_current(&version.stamp) {
                    self.forget_for(&version, Cause::Invalidated);
                }
            }
        }
    }

    /// Shows the names of a version's pages that are here, and perhaps of some that are not.
    fn each_page(&self, version: &Version, each: &mut dyn FnMut(PageName)) {
        let page_count = Self::page_count(version);
        if page_count <= PROBED_PAGES_MAX {
            let names = (0..page_count).filter_map(|at| PageName::new(version.vid, at));
            return names.for_each(each);
        }
        let pages_of = |shard: &Watched<Shard>| shard.lock().pages_of(version.vid);
        self.shards.iter().flat_map(pages_of).for_each(each);
    }

    fn take_pin(&self, bytes: u64) -> bool {
        let taken = self.pins.take(bytes);
        if taken {
            self.metrics.pinned.inc_by(signed(bytes));
        } else {
            self.metrics.pins_refused.inc();
        }
        taken
    }

    pub(super) fn give_back_pin(&self, bytes: u64) {
        self.pins.give_back(bytes);
        self.metrics.pinned.dec_by(signed(bytes));
    }
}
