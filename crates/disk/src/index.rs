//! Where each page lies: 16 bytes a page, and what the table around them takes.
//!
//! Ids are not kept but their hash, 64 bits under a key of this process. Should two ids share one,
//! the later put forgets the earlier: what is read is compared with the id asked for.
//!
//! A table of 17 bytes a place is between 7/16 and 7/8 full once it has grown, so a page takes 19
//! to 39 bytes. There are many tables, so that growing one, or looking through it, is short.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{format::UNIT_BYTES, page_store::PageId};

/// Tables; a power of two.
pub(crate) const SHARD_COUNT: usize = 64;

const SEGMENT_BITS: u32 = 18;
const OFFSET_BITS: u32 = 24;
const UNITS_BITS: u32 = 21;
/// Segments that there may be at once: their numbers are kept modulo this.
pub(crate) const SEGMENTS_MAX: u64 = 1 << SEGMENT_BITS;

/// An id as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash(u64);

/// Where an entry lies: segment, offset, length, and whether it was used, in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u64);

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u64,
    place: Place,
}

impl Place {
    const USED: u64 = 1;

    /// An unused entry.
    pub(crate) fn new(segment: u64, offset: u64, entry_bytes: u64) -> Self {
        let (offset, units) = (offset / UNIT_BYTES, entry_bytes / UNIT_BYTES);
        debug_assert!(offset < 1 << OFFSET_BITS && units < 1 << UNITS_BITS);
        let segment = segment % SEGMENTS_MAX;
        Self((((segment << OFFSET_BITS) | offset) << UNITS_BITS | units) << 1)
    }

    /// Number of its segment, modulo [`SEGMENTS_MAX`].
    pub(crate) fn segment(self) -> u64 {
        self.0 >> (OFFSET_BITS + UNITS_BITS + 1)
    }

    /// Offset of the entry in its segment.
    pub(crate) fn offset(self) -> u64 {
        ((self.0 >> (UNITS_BITS + 1)) & ((1 << OFFSET_BITS) - 1)) * UNIT_BYTES
    }

    /// Length of the entry.
    pub(crate) fn entry_bytes(self) -> u64 {
        ((self.0 >> 1) & ((1 << UNITS_BITS) - 1)) * UNIT_BYTES
    }

    pub(crate) fn is_used(self) -> bool {
        self.0 & Self::USED != 0
    }

    /// Whether both are the same entry, used or not.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.0 | Self::USED == other.0 | Self::USED
    }
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<HashTable<Slot>>,
    hasher: DefaultHashBuilder,
    count: u64,
    bytes: u64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| HashTable::new()).collect(),
            hasher: DefaultHashBuilder::default(),
            count: 0,
            bytes: 0,
        }
    }

    pub(crate) fn hash(&self, id: PageId) -> Hash {
        Hash(self.hasher.hash_one(id))
    }

    /// Bits that the tables themselves do not use.
    fn shard(&mut self, hash: Hash) -> &mut HashTable<Slot> {
        &mut self.shards[(hash.0 >> 40) as usize % SHARD_COUNT]
    }

    pub(crate) fn contains(&self, hash: Hash) -> bool {
        let shard = &self.shards[(hash.0 >> 40) as usize % SHARD_COUNT];
        shard.find(hash.0, |slot| slot.hash == hash.0).is_some()
    }

    /// Where a page lies; counts as a use of it.
    pub(crate) fn find(&mut self, hash: Hash) -> Option<Place> {
        let slot = self
            .shard(hash)
            .find_mut(hash.0, |slot| slot.hash == hash.0)?;
        slot.place.0 |= Place::USED;
        Some(slot.place)
    }

    /// Puts a page in the place of any other of its id.
    pub(crate) fn insert(&mut self, hash: Hash, place: Place) {
        let slot = Slot {
            hash: hash.0,
            place,
        };
        let shard = self.shard(hash);
        if let Some(found) = shard.find_mut(hash.0, |slot| slot.hash == hash.0) {
            *found = slot;
            return;
        }
        let before = shard.allocation_size();
        shard.insert_unique(hash.0, slot, |slot| slot.hash);
        let grown = shard.allocation_size() - before;
        self.count += 1;
        self.bytes += grown as u64;
    }

    /// Puts a page elsewhere, if it is still where it was; whether it was.
    pub(crate) fn relocate(&mut self, hash: Hash, from: Place, to: Place) -> bool {
        let shard = self.shard(hash);
        match shard.find_mut(hash.0, |slot| slot.hash == hash.0) {
            Some(found) if found.place.is_same(from) => {
                found.place = to;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Forgets a page; whether there was one.
    pub(crate) fn remove(&mut self, hash: Hash) -> bool {
        self.remove_where(hash, |_| true)
    }

    /// Forgets a page, if it is still there; whether it was.
    pub(crate) fn remove_from(&mut self, hash: Hash, place: Place) -> bool {
        self.remove_where(hash, |found| found.is_same(place))
    }

    fn remove_where(&mut self, hash: Hash, may: impl Fn(Place) -> bool) -> bool {
        let found = self
            .shard(hash)
            .find_entry(hash.0, |slot| slot.hash == hash.0 && may(slot.place));
        let Ok(entry) = found else {
            return false;
        };
        entry.remove();
        self.count -= 1;
        true
    }

    /// All pages of a segment that one table has, and that were used.
    pub(crate) fn used_of(&self, shard: usize, segment: u64) -> Vec<(Hash, Place)> {
        let of_segment = |slot: &&Slot| slot.place.segment() == segment % SEGMENTS_MAX;
        self.shards[shard]
            .iter()
            .filter(of_segment)
            .filter(|slot| slot.place.is_used())
            .map(|slot| (Hash(slot.hash), slot.place))
            .collect()
    }

    /// Forgets all pages of a segment that one table has; how many.
    pub(crate) fn remove_segment(&mut self, shard: usize, segment: u64) -> u64 {
        let before = self.shards[shard].len();
        self.shards[shard].retain(|slot| slot.place.segment() != segment % SEGMENTS_MAX);
        let gone = (before - self.shards[shard].len()) as u64;
        self.count -= gone;
        gone
    }

    /// Pages.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory that the tables take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u64) -> PageId {
        PageId {
            content: [7; 16],
            index,
        }
    }

    #[test]
    fn a_place_keeps_what_it_is_made_of() {
        for (segment, offset, bytes) in [
            (0, 0, 16),
            (SEGMENTS_MAX - 1, (256 << 20) - 16, (32 << 20) - 16),
            (5, 32, 80),
        ] {
            let place = Place::new(segment, offset, bytes);
            let kept = (place.segment(), place.offset(), place.entry_bytes());
            assert_eq!(kept, (segment, offset, bytes));
            assert!(!place.is_used());
            assert_eq!(Place::new(segment + SEGMENTS_MAX, offset, bytes), place);
        }
    }

    #[test]
    fn a_page_takes_at_most_40_bytes_of_memory() {
        let mut index = Index::new();
        for n in 0..300_000 {
            let hash = index.hash(id(n));
            index.insert(hash, Place::new(n % 9, n * 16, 16));
            // Tables that have just been made are for the few pages of a small disk.
            if n > 50_000 && n % 1000 == 0 {
                let each = index.bytes() / index.count();
                assert!(each <= 40, "{each} bytes at {n} pages");
            }
        }
        assert_eq!(index.count(), 300_000);
    }

    #[test]
    fn a_segment_is_forgotten_and_no_other() {
        let mut index = Index::new();
        for n in 0..1000 {
            let hash = index.hash(id(n));
            index.insert(hash, Place::new(n % 4, n * 16, 16));
            if n % 8 == 1 {
                index.find(hash);
            }
        }
        let used: usize = (0..SHARD_COUNT).map(|s| index.used_of(s, 1).len()).sum();
        assert_eq!(used, 125);
        let gone: u64 = (0..SHARD_COUNT).map(|s| index.remove_segment(s, 1)).sum();
        assert_eq!((gone, index.count()), (250, 750));
        for n in 0..1000 {
            assert_eq!(index.contains(index.hash(id(n))), n % 4 != 1);
        }
    }

    #[test]
    fn only_what_is_still_there_is_relocated_or_removed() {
        let mut index = Index::new();
        let hash = index.hash(id(1));
        let [a, b, c] = [0, 16, 32].map(|offset| Place::new(1, offset, 16));
        index.insert(hash, a);
        index.find(hash);
        assert!(index.relocate(hash, a, b), "a use does not move a page");
        assert!(!index.relocate(hash, a, c));
        assert!(!index.remove_from(hash, a));
        assert!(index.remove_from(hash, b));
        assert_eq!((index.find(hash), index.count()), (None, 0));
    }
}
