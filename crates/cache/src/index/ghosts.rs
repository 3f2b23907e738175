//! Remembers which entries made room lately, by their hashes alone.

use std::collections::VecDeque;

use hashbrown::HashSet;

/// Ghosts kept however few entries there are.
const GHOSTS_MIN: usize = 64;

/// Hashes of entries that made room, the oldest first; as many as there are entries.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    order: VecDeque<u64>,
    /// Those of `order` that have not come back.
    waiting: HashSet<u64>,
}

impl Ghosts {
    /// Adds one; the oldest beyond `entry_count` are forgotten.
    pub(super) fn put(&mut self, hash: u64, entry_count: usize) {
        if self.waiting.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > entry_count.max(GHOSTS_MIN) {
            if let Some(oldest) = self.order.pop_front() {
                self.waiting.remove(&oldest);
            }
        }
    }

    /// Whether it made room lately; asked when it comes back, and then forgotten.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        self.waiting.remove(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ghosts_as_entries_are_remembered_once() {
        let mut ghosts = Ghosts::default();
        (0..100).for_each(|hash| ghosts.put(hash, 80));
        assert!(!ghosts.take(19), "the oldest are forgotten");
        assert!(ghosts.take(20));
        assert!(!ghosts.take(20), "it has come back");
        assert!(ghosts.take(99));
    }
}
