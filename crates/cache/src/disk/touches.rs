//! Remembers what passed through memory lately, so that only what comes a second time is written
//! to disk.
//!
//! Most objects are read once: writing them would wear the disk and push out what is read again
//! (Maggs & Sitaraman, "Algorithmic nuggets in content delivery", 2015, on one-hit wonders). A
//! fixed table of fingerprints, in sets of four, the oldest of which gives way. A false memory
//! writes a page once for nothing: one in some 10^9 of them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Fingerprints of one set.
const WAYS: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Touches {
    slots: Box<[AtomicU32]>,
    /// Ways give way in turns.
    next_way: AtomicUsize,
}

impl Touches {
    /// A memory of `count` touches, rounded up to a power of two.
    pub(super) fn new(count: usize) -> Self {
        let count = count.max(WAYS).next_power_of_two();
        Self {
            slots: (0..count).map(|_| AtomicU32::new(0)).collect(),
            next_way: AtomicUsize::new(0),
        }
    }

    /// Notes a touch; `true` when there was one before that is remembered.
    pub(super) fn note(&self, hash: u128) -> bool {
        let set_count = self.slots.len() / WAYS;
        #[expect(clippy::cast_possible_truncation, reason = "bits of a hash")]
        let (set, print) = (hash as usize & (set_count - 1), (hash >> 64) as u32 | 1);
        let slots = &self.slots[set * WAYS..][..WAYS];
        let found = |slot: &AtomicU32| slot.load(Ordering::Relaxed) == print;
        if slots.iter().any(found) {
            return true;
        }
        let empty = slots
            .iter()
            .position(|slot| slot.load(Ordering::Relaxed) == 0);
        let way = empty.unwrap_or_else(|| self.next_way.fetch_add(1, Ordering::Relaxed) % WAYS);
        slots[way].store(print, Ordering::Relaxed);
        false
    }

    /// Memory that it takes.
    pub(super) fn footprint_bytes(&self) -> u64 {
        (self.slots.len() * size_of::<AtomicU32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u128) -> u128 {
        let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        mixed ^ (mixed >> 61)
    }

    #[test]
    fn the_second_touch_is_known_and_old_ones_are_forgotten() {
        let touches = Touches::new(1024);
        assert!((0..256).all(|n| !touches.note(hash(n))));
        let known = (0..256).filter(|n| touches.note(hash(*n))).count();
        assert!(known > 250, "{known} of 256 with room for 1024");
        (1000..101_000).for_each(|n| {
            touches.note(hash(n));
        });
        let known = (0..256).filter(|n| touches.note(hash(*n))).count();
        assert!(known < 10, "{known} are remembered after 100,000 others");
        assert_eq!(touches.footprint_bytes(), 4096);
    }
}
