//! Remembers which parts of a file were ever located, a bit for each [`UNIT_BYTES`].
//!
//! [`crate::locate`] sets a bit; the arena asks for those of a slot, and clears them.
//!
//! Everything is `Relaxed`, as what comes before what is settled elsewhere. A bit is set while its
//! page is borrowed and asked for when the page is dropped, after all borrows: the counter of the
//! page's owners puts the one before the other. It is cleared before the slot is free, and set
//! again only for the slot's next page: the lock of the list of free slots puts those in order.
//! Bits of several slots lie in one word, so a word is only ever changed by one atomic operation.

use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest slot: slots are aligned to their size, so no unit belongs to two of them.
const UNIT_BYTES: u64 = crate::arena::SLOT_BYTES_MIN;
const WORD_BYTES: u64 = UNIT_BYTES * u64::BITS as u64;

/// The marks of one file: a 500,000th of its length, most of which is never used.
#[derive(Debug)]
pub(crate) struct Marks(Box<[AtomicU64]>);

impl Marks {
    /// Marks of a file of `length` bytes, none of them set.
    pub(crate) fn new(length: usize) -> Self {
        let word_count = (length as u64).div_ceil(WORD_BYTES);
        Self((0..word_count).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks the unit of this byte.
    pub(crate) fn set(&self, offset: u64) {
        let (word, bits) = self.bits(offset, UNIT_BYTES);
        // Most pages that are located once are located again, and a load leaves the word in the
        // caches of other processors.
        if word.load(Ordering::Relaxed) & bits == 0 {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Whether any unit of a slot is marked.
    pub(crate) fn any(&self, offset: u64, slot_bytes: u64) -> bool {
        self.words(offset, slot_bytes)
            .any(|(word, bits)| word.load(Ordering::Relaxed) & bits != 0)
    }

    /// Clears the marks of a slot.
    pub(crate) fn clear(&self, offset: u64, slot_bytes: u64) {
        for (word, bits) in self.words(offset, slot_bytes) {
            word.fetch_and(!bits, Ordering::Relaxed);
        }
    }

    fn words(&self, offset: u64, slot_bytes: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let step_bytes = slot_bytes.min(WORD_BYTES);
        (0..slot_bytes / step_bytes).map(move |i| self.bits(offset + i * step_bytes, step_bytes))
    }

    /// The word of `offset`, and its bits for `length` bytes from there: a power of two, a word's
    /// at most, to which `offset` is aligned unless it is one unit.
    fn bits(&self, offset: u64, length: u64) -> (&AtomicU64, u64) {
        let word = usize::try_from(offset / WORD_BYTES).expect("offsets of a mapped file");
        let ones = u64::MAX >> (u64::from(u64::BITS) - length / UNIT_BYTES);
        (&self.0[word], ones << (offset % WORD_BYTES / UNIT_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;

    #[test]
    fn a_mark_anywhere_in_a_slot_is_found_and_neighbours_keep_theirs() {
        for slot_bytes in (16..=24).map(|power| 1 << power) {
            let marks = Marks::new(48 << 20);
            for marked in [0, slot_bytes / 2, slot_bytes - 1] {
                for slot in [0, slot_bytes, 2 * slot_bytes] {
                    marks.set(slot + marked);
                    let found = [0, 1, 2].map(|i| marks.any(i * slot_bytes, slot_bytes));
                    assert_eq!(found, [0, 1, 2].map(|i| i * slot_bytes == slot));
                    marks.clear(slot, slot_bytes);
                    assert!(!marks.any(0, 16 * MIB));
                }
            }
            marks.set(0);
            marks.set(2 * slot_bytes);
            marks.clear(slot_bytes, slot_bytes);
            assert!(marks.any(0, slot_bytes) && marks.any(2 * slot_bytes, slot_bytes));
        }
    }
}
