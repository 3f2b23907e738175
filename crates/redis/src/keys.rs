//! The keys in Redis: their names, which shard a route lies in, which slot of a cluster a key has.
//!
//! Every key of a shard carries the shard's hash tag, so in a cluster all of them lie in one slot,
//! and a script can change them in one step. The table of keys is in docs/formats.md.
//!
//! Sources: the cluster specification of Redis, "Key distribution model" and "Hash tags".

use crc_fast::CrcAlgorithm;
use forebay_native::index::Route;

/// Shards of a store: in a cluster, at most as many masters share the work. Part of the format: it
/// is written at first use, and a store of another number is refused.
///
/// 64: a few times the masters of a large cluster, and few enough that a listing, which asks all of
/// them, stays one exchange of a few dozen kilobytes.
pub(crate) const SHARDS: u16 = 64;
/// Where the copy of [`Route::Every`] lies that is read.
pub(crate) const HOME: Shard = Shard(0);
/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// One of the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shard(pub(crate) u16);

impl Shard {
    pub(crate) fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    /// The shard of a route; that of every place is at home.
    pub(crate) fn of(route: &Route) -> Self {
        match route {
            Route::One(bytes) => {
                let hash = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes);
                let shard = hash % u64::from(SHARDS);
                Self(u16::try_from(shard).expect("it is below the number of shards"))
            }
            Route::Every => HOME,
        }
    }
}

/// The slot of a cluster in which a key lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u16);

/// Makes the keys of one store.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: String,
    slots: Vec<Slot>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let tag = |n: u16| format!("fb:{prefix}:{n}");
        Self {
            prefix: prefix.to_owned(),
            slots: (0..SHARDS)
                .map(|n| slot_of_tag(tag(n).as_bytes()))
                .collect(),
        }
    }

    pub(crate) fn slot(&self, shard: Shard) -> Slot {
        self.slots[usize::from(shard.0)]
    }

    fn of(&self, shard: Shard, kind: &str) -> Vec<u8> {
        format!("{{fb:{}:{}}}:{kind}", self.prefix, shard.0).into_bytes()
    }

    /// What the store is: format and number of shards.
    pub(crate) fn format(&self) -> Vec<u8> {
        self.of(HOME, "format")
    }

    /// Sorted set of names, all with score 0.
    pub(crate) fn names(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "names")
    }

    /// Hash of name to entry; copies of [`Route::Every`] too, whose names are not in `names`.
    pub(crate) fn entries(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "entries")
    }

    /// Hash of name to the number of its last change, for [`Route::Every`].
    pub(crate) fn changed(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "changed")
    }

    /// Number of the last change.
    pub(crate) fn sequence(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "sequence")
    }

    /// Hash of counter to value.
    pub(crate) fn counters(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "counters")
    }

    /// The payload of an entry.
    pub(crate) fn payload(&self, shard: Shard, name: &[u8]) -> Vec<u8> {
        let mut key = self.of(shard, "payload:");
        key.extend_from_slice(name);
        key
    }

    /// A payload on its way to its entry.
    pub(crate) fn staged(&self, shard: Shard, id: &str) -> Vec<u8> {
        self.of(shard, &format!("staged:{id}"))
    }

    /// Sorted set of the blobs that were finished, by time.
    pub(crate) fn blobs(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "blobs")
    }

    /// One chunk of a blob.
    pub(crate) fn chunk(&self, shard: Shard, blob: &str, chunk_index: u64) -> Vec<u8> {
        self.of(shard, &format!("chunk:{blob}:{chunk_index}"))
    }

    /// The lease of a route.
    pub(crate) fn lease(&self, shard: Shard, route: &Route) -> Vec<u8> {
        match route {
            Route::One(bytes) => {
                let mut key = self.of(shard, "lease:");
                key.extend_from_slice(bytes);
                key
            }
            Route::Every => self.of(shard, "lease-every"),
        }
    }

    /// Number of the last lease.
    pub(crate) fn fence(&self, shard: Shard) -> Vec<u8> {
        self.of(shard, "fence")
    }

    /// The channel on which gateways tell each other what changed.
    pub(crate) fn changes(&self) -> Vec<u8> {
        self.of(HOME, "changes")
    }
}

/// The slot of keys with this hash tag.
fn slot_of_tag(tag: &[u8]) -> Slot {
    // CRC-16/XMODEM, bit by bit: it runs 64 times when a store is opened.
    let mut crc = 0_u16;
    for &byte in tag {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    Slot(crc % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of_tag(b"123456789"), Slot(0x31C3));
        // `CLUSTER KEYSLOT {user1000}.following` of a server says 3443.
        assert_eq!(slot_of_tag(b"user1000"), Slot(3443));
    }

    #[test]
    fn a_route_stays_in_its_shard_from_version_to_version() {
        let shard = |text: &'static str| Shard::of(&Route::One(text.into())).0;
        assert_eq!(
            [shard("photos/cat.jpg"), shard("a"), shard("")],
            [41, 60, 0]
        );
        assert_eq!(Shard::of(&Route::Every), HOME);
    }

    #[test]
    fn routes_spread_evenly() {
        let mut counts = [0; SHARDS as usize];
        for n in 0..64_000 {
            let route = Route::One(format!("bucket/results/{n:08}").into());
            counts[usize::from(Shard::of(&route).0)] += 1;
        }
        assert!(
            counts.iter().all(|count| (700..1300).contains(count)),
            "{counts:?}"
        );
    }
}
