//! The file of an arena: which of its slots are free, and which of those are still backed.
//!
//! A slot that is given back is either a hole, which takes no memory, or *backed*: it still has
//! the memory of its last page, for the next page to be copied over. Only a slot that was never
//! located may be backed (see [`crate::arena`] for why), and what all of them take is limited.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{SLOT_BYTES_MAX, SLOT_BYTES_MIN};
use crate::mapping::Mapping;

const CLASS_COUNT: usize =
    (SLOT_BYTES_MAX.trailing_zeros() - SLOT_BYTES_MIN.trailing_zeros()) as usize + 1;
/// File offsets that all regions together may take: half of the 2^47 addresses of a process.
const FILE_BYTES_MAX: u64 = 1 << 46;
/// Memory of backed slots: two of the largest. A page that comes in takes the slot of one that went
/// out for it, so there are seldom more than a few; what is over lies there unused.
const BACKED_BYTES_MAX: u64 = 2 * SLOT_BYTES_MAX;
/// The same, as a part of the arena, for small ones.
const BACKED_DIVISOR: u64 = 4;

const _: () = assert!(CLASS_COUNT == 9);

#[derive(Debug)]
pub(super) struct File {
    mapping: Mapping,
    /// Bytes of the file that each class has.
    region_bytes: u64,
    classes: [Mutex<Slots>; CLASS_COUNT],
    backed_bytes: AtomicU64,
    backed_bytes_max: u64,
    reuse: Reuse,
}

/// What happens to a slot before it is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    PunchedIfLocated,
    /// Only to show that the test of the proof can fail.
    #[cfg(test)]
    AsItIs,
}

/// The slots of one class that no page has.
#[derive(Debug, Default)]
struct Slots {
    /// Slots given back that are holes, the last one first.
    holes: Vec<u32>,
    /// Slots given back that are not, and their memory; the last one, of which most may still be
    /// in the processor's cache, first.
    backed: Vec<(u32, u64)>,
    /// Slots from this one on were never used.
    next: u32,
}

/// A slot, as a page has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    class: usize,
    index: u32,
}

impl Slot {
    fn bytes(self) -> u64 {
        SLOT_BYTES_MIN << self.class
    }
}

impl File {
    pub(super) fn new(capacity_bytes: u64, reuse: Reuse) -> io::Result<Self> {
        // A page fills more than half of its slot, so twice the capacity always has a slot left.
        let region_bytes = (capacity_bytes.saturating_mul(2))
            .min(FILE_BYTES_MAX / CLASS_COUNT as u64 - SLOT_BYTES_MAX)
            .next_multiple_of(SLOT_BYTES_MAX)
            .max(SLOT_BYTES_MAX);
        let length = usize::try_from(region_bytes * CLASS_COUNT as u64)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self {
            mapping: Mapping::new(length)?,
            region_bytes,
            classes: Default::default(),
            backed_bytes: AtomicU64::new(0),
            backed_bytes_max: BACKED_BYTES_MAX.min(capacity_bytes / BACKED_DIVISOR),
            reuse,
        })
    }

    /// A slot for `length` bytes and the memory that it has already, or `None` when they are
    /// larger than any, or none is left.
    pub(super) fn take(&self, length: u64) -> Option<(Slot, u64)> {
        let slot_bytes = length.next_power_of_two().max(SLOT_BYTES_MIN);
        let class = (slot_bytes.trailing_zeros() - SLOT_BYTES_MIN.trailing_zeros()) as usize;
        let mut slots = self.classes.get(class)?.lock();
        if let Some((index, backed_bytes)) = slots.backed.pop() {
            self.backed_bytes.fetch_sub(backed_bytes, Ordering::Relaxed);
            return Some((Slot { class, index }, backed_bytes));
        }
        if let Some(index) = slots.holes.pop() {
            return Some((Slot { class, index }, 0));
        }
        let index = slots.next;
        if u64::from(index) >= self.region_bytes / slot_bytes {
            return None;
        }
        slots.next += 1;
        Some((Slot { class, index }, 0))
    }

    /// Takes back a slot whose page is gone, and has `taken_bytes` of memory at most; returns how
    /// much of that it keeps.
    pub(super) fn give_back(&self, slot: Slot, taken_bytes: u64) -> u64 {
        let offset = self.offset(slot);
        let may_be_referred_to = match self.reuse {
            Reuse::PunchedIfLocated => self.mapping.marks().any(offset, slot.bytes()),
            #[cfg(test)]
            Reuse::AsItIs => false,
        };
        if !may_be_referred_to && taken_bytes > 0 && self.may_keep(taken_bytes) {
            let mut slots = self.classes[slot.class].lock();
            slots.backed.push((slot.index, taken_bytes));
            return taken_bytes;
        }
        self.punch(slot, taken_bytes)
    }

    /// Counts a backed slot, if there may be one more.
    fn may_keep(&self, bytes: u64) -> bool {
        self.backed_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |backed| {
                Some(backed + bytes).filter(|total| *total <= self.backed_bytes_max)
            })
            .is_ok()
    }

    /// Makes a slot a hole; returns how much memory it keeps.
    fn punch(&self, slot: Slot, taken_bytes: u64) -> u64 {
        let offset = self.offset(slot);
        // A slot that still has its old pages must not be written again: leave it unused, and its
        // memory taken.
        if taken_bytes > 0 && self.mapping.punch(offset, slot.bytes()).is_err() {
            return taken_bytes;
        }
        self.mapping.marks().clear(offset, slot.bytes());
        self.classes[slot.class].lock().holes.push(slot.index);
        0
    }

    /// Makes one backed slot a hole; returns how much memory that gave back, or `None` when there
    /// is none.
    pub(super) fn punch_one(&self) -> Option<u64> {
        (0..CLASS_COUNT).find_map(|class| {
            let (index, taken_bytes) = self.classes[class].lock().backed.pop()?;
            self.backed_bytes.fetch_sub(taken_bytes, Ordering::Relaxed);
            Some(taken_bytes - self.punch(Slot { class, index }, taken_bytes))
        })
    }

    /// Gives the memory of a slot that has `taken_bytes` of it back, but for the first
    /// `kept_bytes`; returns how much it keeps.
    ///
    /// To be called before the slot has a page: nobody refers to what it has.
    pub(super) fn trim(&self, slot: Slot, taken_bytes: u64, kept_bytes: u64) -> u64 {
        let tail = self.offset(slot) + kept_bytes;
        match self.mapping.punch(tail, taken_bytes - kept_bytes) {
            Ok(()) => kept_bytes,
            Err(_) => taken_bytes,
        }
    }

    /// Writes a page into a slot with `backed_bytes` of memory.
    ///
    /// # Safety
    /// The slot was taken with so much memory, nothing was written to it since, and nobody borrows
    /// bytes of it.
    #[expect(unsafe_code, reason = "the caller owns the slot")]
    pub(super) unsafe fn write(
        &self,
        slot: Slot,
        backed_bytes: u64,
        pieces: &[Bytes],
    ) -> io::Result<()> {
        let offset = self.offset(slot);
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if length as u64 > backed_bytes {
            let written = self.mapping.write(offset, pieces);
            if written.is_err() {
                // Not all of its memory is there, so it must not stay backed.
                self.mapping.marks().set(offset);
            }
            return written;
        }
        // SAFETY: the caller's promise.
        unsafe { self.mapping.copy_in(address(offset), pieces) };
        Ok(())
    }

    /// The first `length` bytes of a slot.
    ///
    /// # Safety
    /// The slot is not written or given back while they are borrowed.
    #[expect(unsafe_code, reason = "the caller owns the slot")]
    pub(super) unsafe fn bytes(&self, slot: Slot, length: usize) -> &[u8] {
        // SAFETY: the caller's promise, as only `write`, `trim`, `give_back` and, for slots given
        // back, `punch_one` change the file.
        unsafe { self.mapping.slice(address(self.offset(slot)), length) }
    }

    /// Memory of backed slots.
    pub(super) fn backed_bytes(&self) -> u64 {
        self.backed_bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn offset(&self, slot: Slot) -> u64 {
        slot.class as u64 * self.region_bytes + u64::from(slot.index) * slot.bytes()
    }
}

fn address(offset: u64) -> usize {
    usize::try_from(offset).expect("the whole file is mapped, so its offsets are addresses")
}
