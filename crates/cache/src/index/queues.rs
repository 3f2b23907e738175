//! S3-FIFO: says which entry makes room.
//!
//! New entries go to the *small* queue, a tenth of the bytes. At its end an entry that was used
//! since moves to the *main* queue; any other makes room and leaves a ghost, and if it comes back
//! while the ghost is there it goes straight to main. At the end of main an entry goes round again
//! once for each use, of which three are counted. So what is read once never displaces what is
//! read often, and a hit moves nothing. What is *pinned* is in a queue of its own, which never
//! makes room.
//!
//! An entry that is much larger than most needs more uses to stay, since it takes the room of many:
//! without that, caches of mixed sizes answer one or two reads in a hundred fewer (`hit_ratio`).
//!
//! Uses of an entry within [`CORRELATED_TICKS`] of its last one count once, or a scan in small
//! ranges would make each of its pages look popular.
//!
//! Called by `shard` for what is stored, and by `shadow` for what would be. The queues know of an
//! entry only its [`Links`] and its weight; where it lies, what it is called and its ghost are
//! its owner's.
//!
//! Invariant (`audit`): a queue's bytes are the sum of its weights.
//! Sources: Yang et al., "FIFO queues are all you need for cache eviction", SOSP'23; the window is
//! the correlated reference period of O'Neil et al., "The LRU-K page replacement algorithm",
//! SIGMOD'93.

/// Share of the small queue in the bytes that may make room, as a divisor: a tenth, as in the
/// paper.
const SMALL_DIVISOR: u64 = 10;
/// Uses counted, as in the paper.
const USES_MAX: u8 = 3;
/// An entry of so many times the mean weight needs two uses to stay, not one. Half of it gains
/// reads and loses as many bytes (example `hit_ratio`).
const LARGE: u64 = 8;
/// One of so many needs three.
const HUGE: u64 = 128;
/// Milliseconds of a tick, as a power of two: 256.
const TICK_SHIFT: u32 = 8;
/// Uses closer to each other than this are one use: so many ticks are more than 1 s.
const CORRELATED_TICKS: u16 = 5;
/// Nobody: the end of a queue.
pub(crate) const NONE: u32 = u32::MAX;

/// Set in `uses` once an entry was used at all.
const HIT: u8 = 1 << 7;

/// Which queue an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// New, and the first to make room.
    Small,
    /// Used more than once, or back soon after it had made room.
    Main,
    /// Never makes room.
    Pinned,
}

impl Place {
    /// The queue's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Main => "main",
            Self::Pinned => "pinned",
        }
    }
}

/// An entry's place in its queue, and what is known of its uses: 12 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    pub(crate) older: u32,
    pub(crate) newer: u32,
    /// In ticks; differences up to four hours stay right, and those a few hours longer cost an
    /// entry one use in 13,000.
    used: u16,
    uses: u8,
    place: Place,
}

/// Where entries lie, for queues to find them by number.
pub(crate) trait Nodes {
    fn links(&self, id: u32) -> &Links;
    fn links_mut(&mut self, id: u32) -> &mut Links;
    fn weight_bytes(&self, id: u32) -> u64;
}

/// The three queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    small: Queue,
    main: Queue,
    pinned: Queue,
}

/// A doubly linked list through the nodes.
#[derive(Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    count: u32,
    bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            oldest: NONE,
            newest: NONE,
            count: 0,
            bytes: 0,
        }
    }
}

impl Links {
    /// Those of an entry that was not used yet, stored at `now_ms`.
    pub(crate) fn new(place: Place, now_ms: i64) -> Self {
        Self {
            older: NONE,
            newer: NONE,
            used: ticks(now_ms),
            uses: 0,
            place,
        }
    }

    /// The same for one that takes the place of another of its name.
    pub(crate) fn in_place_of(replaced: Self, now_ms: i64) -> Self {
        Self {
            uses: replaced.uses,
            ..Self::new(replaced.place, now_ms)
        }
    }

    /// Counts a use.
    pub(crate) fn touch(&mut self, now_ms: i64) {
        let now = ticks(now_ms);
        if now.wrapping_sub(self.used) >= CORRELATED_TICKS {
            self.used = now;
            self.uses = (self.uses() + 1).min(USES_MAX) | HIT;
        }
    }

    /// Uses that still count.
    pub(crate) fn uses(self) -> u8 {
        self.uses & !HIT
    }

    /// Whether it was used since it was stored, but for the second after.
    pub(crate) fn was_hit(self) -> bool {
        self.uses & HIT != 0
    }

    pub(crate) fn place(self) -> Place {
        self.place
    }

    fn forget_uses(&mut self) {
        self.uses &= HIT;
    }
}

impl Queues {
    /// Takes out the entry whose turn it is to make room; its links tell from which queue.
    pub(crate) fn evict(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        loop {
            let total = self.small.bytes + self.main.bytes;
            let from_small = self.small.bytes > total / SMALL_DIVISOR || self.main.oldest == NONE;
            let id = if from_small && self.small.oldest != NONE {
                self.small.oldest
            } else {
                self.main.oldest
            };
            if id == NONE {
                return None;
            }
            let needed = self.uses_needed(nodes.weight_bytes(id));
            self.unlink(nodes, id);
            let links = nodes.links_mut(id);
            if links.uses() < needed {
                return Some(id);
            }
            match links.place {
                Place::Small => links.forget_uses(),
                Place::Main | Place::Pinned => links.uses -= needed,
            }
            self.push(nodes, id, Place::Main);
        }
    }

    /// Uses that keep an entry of this weight from making room: the more, the more others it takes
    /// the room of.
    fn uses_needed(&self, weight_bytes: u64) -> u8 {
        let count = u64::from(self.small.count) + u64::from(self.main.count);
        let mean = (self.small.bytes + self.main.bytes) / count.max(1);
        match weight_bytes / mean.max(1) {
            0..LARGE => 1,
            LARGE..HUGE => 2,
            HUGE.. => USES_MAX,
        }
    }

    /// Appends an entry that is in no queue.
    pub(crate) fn push(&mut self, nodes: &mut impl Nodes, id: u32, place: Place) {
        let weight = nodes.weight_bytes(id);
        let queue = self.queue(place);
        let newest = queue.newest;
        queue.bytes += weight;
        queue.count += 1;
        queue.newest = id;
        if queue.oldest == NONE {
            queue.oldest = id;
        }
        let links = nodes.links_mut(id);
        (links.place, links.older, links.newer) = (place, newest, NONE);
        if newest != NONE {
            nodes.links_mut(newest).newer = id;
        }
    }

    /// Takes an entry out of its queue.
    pub(crate) fn unlink(&mut self, nodes: &mut impl Nodes, id: u32) {
        let weight = nodes.weight_bytes(id);
        let Links {
            older,
            newer,
            place,
            ..
        } = *nodes.links(id);
        if older != NONE {
            nodes.links_mut(older).newer = newer;
        }
        if newer != NONE {
            nodes.links_mut(newer).older = older;
        }
        let queue = self.queue(place);
        queue.bytes -= weight;
        queue.count -= 1;
        if queue.oldest == id {
            queue.oldest = newer;
        }
        if queue.newest == id {
            queue.newest = older;
        }
    }

    /// The entry that has been in its queue for longest, or [`NONE`].
    pub(crate) fn oldest(&self, place: Place) -> u32 {
        match place {
            Place::Small => self.small.oldest,
            Place::Main => self.main.oldest,
            Place::Pinned => self.pinned.oldest,
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Pinned => &mut self.pinned,
        }
    }

    /// Checks the lists; returns the weight and the number of entries in each of the three.
    #[cfg(test)]
    pub(crate) fn audit(&self, nodes: &impl Nodes) -> [(u64, usize); 3] {
        let queues = [
            (&self.small, Place::Small),
            (&self.main, Place::Main),
            (&self.pinned, Place::Pinned),
        ];
        queues.map(|(queue, place)| {
            let (mut id, mut previous, mut bytes, mut count) = (queue.oldest, NONE, 0, 0);
            while id != NONE {
                let links = nodes.links(id);
                assert!(links.place == place && links.older == previous);
                bytes += nodes.weight_bytes(id);
                count += 1;
                (previous, id) = (id, links.newer);
            }
            assert_eq!((queue.newest, queue.bytes), (previous, bytes));
            (bytes, count)
        })
    }
}

/// The low bits of a time: only differences count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only differences"
)]
fn ticks(ms: i64) -> u16 {
    (ms >> TICK_SHIFT) as u16
}
