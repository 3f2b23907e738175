//! What is where at this moment: the index in memory, and what each segment still has to live for.
//!
//! Pure. One thread changes it (the committer), readers look at it between; it holds only what is
//! durable. A name takes [`ENTRY_BYTES`] and its own length, whatever its value and payload.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    ops::{Bound, Range},
};

use crate::{
    format::{Kind, Place, SegmentNumber},
    scan::Item,
};

/// Memory of an entry besides its name: 48 bytes in a tree of which two thirds are in use, and what
/// an allocator adds to a name. With names of 80 bytes, `examples/open.rs` found 106.
pub(crate) const ENTRY_BYTES: u64 = 96;

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// When it was last changed.
    pub(crate) sequence: u64,
    /// Its head, name and value.
    pub(crate) item: Place,
    /// Its payload, which may be behind that or anywhere else.
    pub(crate) payload: Option<Place>,
}

/// The index in memory.
#[derive(Debug, Default)]
pub(crate) struct Map {
    entries: BTreeMap<Box<[u8]>, Slot>,
    counters: HashMap<Box<[u8]>, i64>,
    segments: BTreeMap<SegmentNumber, Usage>,
    names_bytes: u64,
    live_bytes: u64,
}

/// What a segment holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes of items that entries point to.
    pub(crate) live_bytes: u64,
    /// Bytes of the file and of its table.
    pub(crate) file_bytes: u64,
    pub(crate) state: State,
}

/// Whether a segment is still written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It is written to, or its table is being made.
    #[default]
    Open,
    Sealed,
}

impl Slot {
    /// The bytes of each segment that it keeps alive.
    fn claims(&self) -> impl Iterator<Item = (SegmentNumber, u64)> {
        let item = (self.item.segment, u64::from(self.item.bytes));
        let payload = |place: Place| (place.segment, u64::from(place.bytes));
        std::iter::once(item).chain(self.payload.map(payload))
    }

    /// Whether some of it is in that segment.
    pub(crate) fn is_in(&self, segment: SegmentNumber) -> bool {
        self.claims().any(|(claimed, _)| claimed == segment)
    }
}

impl Map {
    pub(crate) fn get(&self, name: &[u8]) -> Option<Slot> {
        self.entries.get(name).copied()
    }

    pub(crate) fn counter(&self, name: &[u8]) -> i64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn set_counter(&mut self, name: &[u8], total: i64) {
        if total == 0 {
            self.counters.remove(name);
        } else {
            self.counters.insert(name.into(), total);
        }
    }

    /// Entries of `names` in order.
    pub(crate) fn range<'a>(
        &'a self,
        names: Range<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Slot)> + use<'a> {
        // The map panics when the end is before the start.
        let end = names.end.max(names.start);
        let bounds = (Bound::Included(names.start), Bound::Excluded(end));
        self.entries
            .range::<[u8], _>(bounds)
            .map(|(name, slot)| (&**name, *slot))
    }

    /// The first entries after `name`, or from the start.
    pub(crate) fn after<'a>(
        &'a self,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Slot)> + use<'a> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (start, Bound::Unbounded);
        self.entries
            .range::<[u8], _>(bounds)
            .map(|(name, slot)| (&**name, *slot))
    }

    /// Changes an entry, or deletes it.
    pub(crate) fn set(&mut self, name: Box<[u8]>, slot: Option<Slot>) {
        let name_bytes = name.len() as u64;
        let old = match slot {
            None => {
                let old = self.entries.remove(&name);
                if old.is_some() {
                    self.names_bytes -= name_bytes;
                }
                old
            }
            Some(slot) => {
                self.claim(&slot);
                match self.entries.entry(name) {
                    Entry::Occupied(mut kept) => Some(kept.insert(slot)),
                    Entry::Vacant(place) => {
                        place.insert(slot);
                        self.names_bytes += name_bytes;
                        None
                    }
                }
            }
        };
        if let Some(old) = old {
            self.unclaim(&old);
        }
    }

    /// Counts what an entry keeps alive. A segment that is not known is one that was compacted
    /// before: what moved out of it comes later in the log.
    fn claim(&mut self, slot: &Slot) {
        for (segment, bytes) in slot.claims() {
            if let Some(usage) = self.segments.get_mut(&segment) {
                usage.live_bytes += bytes;
                self.live_bytes += bytes;
            }
        }
    }

    fn unclaim(&mut self, slot: &Slot) {
        for (segment, bytes) in slot.claims() {
            if let Some(usage) = self.segments.get_mut(&segment) {
                usage.live_bytes -= bytes;
                self.live_bytes -= bytes;
            }
        }
    }

    /// Does what an item of the log says, in the order of the log.
    pub(crate) fn replay(&mut self, segment: SegmentNumber, item: Item) {
        match item.kind {
            Kind::Put | Kind::Lost => {
                let slot = Slot {
                    sequence: item.sequence,
                    item: Place {
                        segment,
                        offset: item.offset,
                        bytes: item.bytes,
                    },
                    payload: item.payload,
                };
                self.set(item.name, Some(slot));
            }
            Kind::Delete => self.set(item.name, None),
            Kind::Add => {
                let total = self.counter(&item.name).wrapping_add(item.amount);
                self.set_counter(&item.name, total);
            }
            Kind::Total => self.set_counter(&item.name, item.amount),
        }
    }

    /// What a segment holds; made known if it is not.
    pub(crate) fn usage(&mut self, segment: SegmentNumber) -> &mut Usage {
        self.segments.entry(segment).or_default()
    }

    /// Forgets a segment, which nothing points to.
    pub(crate) fn forget(&mut self, segment: SegmentNumber) {
        let usage = self.segments.remove(&segment);
        debug_assert_eq!(usage.map_or(0, |usage| usage.live_bytes), 0, "{segment}");
    }

    /// All segments, oldest first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (SegmentNumber, Usage)> {
        self.segments
            .iter()
            .map(|(segment, usage)| (*segment, *usage))
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.names_bytes + self.len() as u64 * ENTRY_BYTES
    }

    /// Bytes of all items that entries point to.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of all segments and tables.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.segments.values().map(|usage| usage.file_bytes).sum()
    }
}

/// What stands behind a payload.
const TAIL: u32 = 8;

/// Bytes from the start of an item to the end of its payload, if one read brings both.
pub(crate) fn together(slot: &Slot) -> Option<u32> {
    let payload = slot.payload?;
    let follows =
        payload.segment == slot.item.segment && u64::from(payload.offset) == slot.item.end();
    follows.then(|| slot.item.bytes + payload.bytes + TAIL)
}
