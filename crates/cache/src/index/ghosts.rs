//! Remembers which entries made room lately, by four bytes of their hashes.
//!
//! A set of small buckets; each keeps the latest and forgets the oldest. Taken together they
//! remember about as many as there are entries. An entry that never was here is taken for one that
//! was in about one of 2^29 cases for each bucket it meets, which costs nothing but its place in
//! the wrong queue.

/// Ghosts of a bucket: half a cache line.
const WAYS: usize = 8;
/// Buckets kept however few entries there are.
const BUCKETS_MIN: usize = 8;
/// Memory of a ghost, at most, when there are as many as entries: 4 bytes, and a quarter more as
/// they grow ahead of the entries.
pub(crate) const GHOST_BYTES: u64 = 5;

/// No ghost.
const NOBODY: u32 = 0;

/// Hashes of entries that made room, about as many as there are entries.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// In each bucket the latest comes first.
    buckets: Vec<[u32; WAYS]>,
}

impl Ghosts {
    /// Adds one; `count` are to be remembered.
    pub(crate) fn put(&mut self, hash: u64, count: usize) {
        self.fit(count);
        let print = print(hash);
        let bucket = bucket(&mut self.buckets, print);
        let place = bucket.iter().position(|other| *other == print);
        bucket[..=place.unwrap_or(WAYS - 1)].rotate_right(1);
        bucket[0] = print;
    }

    /// Whether it made room lately; asked when it comes back, and then forgotten.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let print = print(hash);
        let bucket = bucket(&mut self.buckets, print);
        let found = bucket.iter().position(|other| *other == print);
        if let Some(place) = found {
            bucket[place..].rotate_left(1);
            bucket[WAYS - 1] = NOBODY;
        }
        found.is_some()
    }

    /// Makes it remember so many: in steps, as each takes all ghosts to other buckets.
    fn fit(&mut self, count: usize) {
        let needed = count.div_ceil(WAYS).max(BUCKETS_MIN);
        let have = self.buckets.len();
        if (needed..=needed + needed / 4).contains(&have) {
            return;
        }
        let mut buckets = vec![[NOBODY; WAYS]; needed + needed / 8];
        for place in (0..WAYS).rev() {
            for old in &self.buckets {
                if old[place] != NOBODY {
                    let bucket = bucket(&mut buckets, old[place]);
                    bucket.rotate_right(1);
                    bucket[0] = old[place];
                }
            }
        }
        self.buckets = buckets;
    }

    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<[u32; WAYS]>()
    }
}

/// Never [`NOBODY`].
#[expect(clippy::cast_possible_truncation, reason = "32 bits are meant")]
fn print(hash: u64) -> u32 {
    (hash as u32).max(1)
}

/// Entries of a shard share some bits, so all of them are mixed.
fn bucket(buckets: &mut [[u32; WAYS]], print: u32) -> &mut [u32; WAYS] {
    let mixed = u64::from(print.wrapping_mul(0x9E37_79B1));
    let at = (mixed * buckets.len() as u64) >> 32;
    &mut buckets[usize::try_from(at).expect("below the number of buckets")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(name: u64) -> u64 {
        name.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
    }

    #[test]
    fn about_as_many_ghosts_as_entries_are_remembered_once() {
        let mut ghosts = Ghosts::default();
        (0..20_000).for_each(|name| ghosts.put(hash(name), 1000));
        let remembered = (0..20_000).filter(|name| ghosts.take(hash(*name))).count();
        assert!((1000..=1200).contains(&remembered), "{remembered}");
        let again = (0..20_000).filter(|name| ghosts.take(hash(*name))).count();
        assert_eq!(again, 0, "they have come back");
    }

    #[test]
    fn the_latest_ghosts_are_those_remembered_while_their_number_changes() {
        let mut ghosts = Ghosts::default();
        (0..1000).for_each(|name| ghosts.put(hash(name), usize::try_from(name).unwrap() + 100));
        let latest = (800..1000).filter(|name| ghosts.take(hash(*name))).count();
        assert!(latest >= 195, "{latest}");
        (0..1000).for_each(|name| ghosts.put(hash(name), 100));
        assert!(ghosts.memory_bytes() <= 600, "fewer ghosts, less memory");
        assert!(ghosts.take(hash(999)));
    }
}
