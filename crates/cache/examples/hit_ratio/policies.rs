//! What the cache's policy is compared with: small, byte-weighted, and as their papers have them.
//!
//! Each is a map and lists of names; none is made to be fast. Where a paper leaves a choice, the
//! better one is taken: W-TinyLFU counts exactly, where its authors use a sketch.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// A cache of names and weights.
pub(crate) trait Policy {
    /// Reads an object, and stores it if it is not there; returns whether it was.
    fn read(&mut self, name: u64, weight: u64) -> bool;
}

/// A queue ordered by moments: cheap to take anything out of, whatever its place.
#[derive(Default)]
struct Order {
    names: BTreeMap<u64, u64>,
    moments: HashMap<u64, (u64, u64)>,
    clock: u64,
    bytes: u64,
}

impl Order {
    fn push(&mut self, name: u64, weight: u64) {
        self.clock += 1;
        self.names.insert(self.clock, name);
        self.moments.insert(name, (self.clock, weight));
        self.bytes += weight;
    }

    fn remove(&mut self, name: u64) -> Option<u64> {
        let (moment, weight) = self.moments.remove(&name)?;
        self.names.remove(&moment);
        self.bytes -= weight;
        Some(weight)
    }

    fn oldest(&self) -> Option<u64> {
        self.names.values().next().copied()
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        let name = self.oldest()?;
        self.remove(name).map(|weight| (name, weight))
    }

    fn has(&self, name: u64) -> bool {
        self.moments.contains_key(&name)
    }

    fn refresh(&mut self, name: u64) {
        if let Some(weight) = self.remove(name) {
            self.push(name, weight);
        }
    }
}

/// Least recently used.
pub(crate) struct Lru {
    order: Order,
    capacity: u64,
}

impl Lru {
    pub(crate) fn new(capacity: u64) -> Self {
        let order = Order::default();
        Self { order, capacity }
    }
}

impl Policy for Lru {
    fn read(&mut self, name: u64, weight: u64) -> bool {
        let hit = self.order.has(name);
        if hit {
            self.order.refresh(name);
        } else if weight <= self.capacity {
            self.order.push(name, weight);
            while self.order.bytes > self.capacity {
                self.order.pop();
            }
        }
        hit
    }
}

/// SIEVE (Zhang et al., NSDI'24).
pub(crate) struct Sieve {
    order: Order,
    visited: HashMap<u64, bool>,
    hand: u64,
    capacity: u64,
}

impl Sieve {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            order: Order::default(),
            visited: HashMap::new(),
            hand: 0,
            capacity,
        }
    }

    fn evict(&mut self) {
        loop {
            let ahead = self.order.names.range(self.hand..).next();
            let Some((moment, name)) = ahead.or_else(|| self.order.names.iter().next()) else {
                return;
            };
            let (moment, name) = (*moment, *name);
            self.hand = moment + 1;
            if !self.visited.insert(name, false).unwrap_or(false) {
                self.order.remove(name);
                self.visited.remove(&name);
                return;
            }
        }
    }
}

impl Policy for Sieve {
    fn read(&mut self, name: u64, weight: u64) -> bool {
        let hit = self.order.has(name);
        if hit {
            self.visited.insert(name, true);
        } else if weight <= self.capacity {
            while self.order.bytes + weight > self.capacity {
                self.evict();
            }
            self.order.push(name, weight);
        }
        hit
    }
}

/// S3-FIFO (Yang et al., SOSP'23): a small queue of a tenth, two uses to leave it for main, ghosts
/// for as many bytes as main has.
pub(crate) struct S3Fifo {
    small: Order,
    main: Order,
    ghosts: Order,
    uses: HashMap<u64, u8>,
    capacity: u64,
}

impl S3Fifo {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            small: Order::default(),
            main: Order::default(),
            ghosts: Order::default(),
            uses: HashMap::new(),
            capacity,
        }
    }

    fn evict(&mut self) {
        if self.small.bytes >= self.capacity / 10 || self.main.bytes == 0 {
            let Some((name, weight)) = self.small.pop() else {
                return;
            };
            if self.uses.get(&name).is_some_and(|uses| *uses > 1) {
                self.uses.insert(name, 0);
                self.main.push(name, weight);
            } else {
                self.uses.remove(&name);
                self.ghosts.remove(name);
                self.ghosts.push(name, weight);
                while self.ghosts.bytes > self.capacity - self.capacity / 10 {
                    self.ghosts.pop();
                }
            }
        } else if let Some((name, weight)) = self.main.pop() {
            let uses = self.uses.entry(name).or_default();
            if *uses > 0 {
                *uses -= 1;
                self.main.push(name, weight);
            } else {
                self.uses.remove(&name);
            }
        }
    }
}

impl Policy for S3Fifo {
    fn read(&mut self, name: u64, weight: u64) -> bool {
        let hit = self.small.has(name) || self.main.has(name);
        if hit {
            let uses = self.uses.entry(name).or_default();
            *uses = (*uses + 1).min(3);
        } else if weight <= self.capacity {
            while self.small.bytes + self.main.bytes + weight > self.capacity {
                self.evict();
            }
            if self.ghosts.remove(name).is_some() {
                self.main.push(name, weight);
            } else {
                self.small.push(name, weight);
            }
        }
        hit
    }
}

/// W-TinyLFU (Einziger et al., ACM TOS 2017): a window of 1 %, main in two segments, admission by
/// frequency, counters halved after ten reads for each entry. The window does not adapt.
pub(crate) struct WTinyLfu {
    window: Order,
    probation: Order,
    protected: Order,
    counts: HashMap<u64, u8>,
    counted: u64,
    capacity: u64,
}

impl WTinyLfu {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            window: Order::default(),
            probation: Order::default(),
            protected: Order::default(),
            counts: HashMap::new(),
            counted: 0,
            capacity,
        }
    }

    fn count(&mut self, name: u64) {
        let count = self.counts.entry(name).or_default();
        *count = (*count + 1).min(15);
        self.counted += 1;
        let entries = [&self.window, &self.probation, &self.protected];
        let entries: usize = entries.iter().map(|order| order.moments.len()).sum();
        if self.counted > 10 * entries.max(100) as u64 {
            self.counted /= 2;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }

    fn frequency(&self, name: u64) -> u8 {
        self.counts.get(&name).copied().unwrap_or(0)
    }

    fn hit(&mut self, name: u64) -> bool {
        if self.window.has(name) {
            self.window.refresh(name);
        } else if self.protected.has(name) {
            self.protected.refresh(name);
        } else if let Some(weight) = self.probation.remove(name) {
            self.protected.push(name, weight);
            while self.protected.bytes > self.main_capacity() * 8 / 10 {
                let Some((name, weight)) = self.protected.pop() else {
                    break;
                };
                self.probation.push(name, weight);
            }
        } else {
            return false;
        }
        true
    }

    fn main_capacity(&self) -> u64 {
        self.capacity - self.capacity / 100
    }

    /// Lets a candidate into main if it is read more often than what would make room for it.
    fn admit(&mut self, candidate: u64, weight: u64) {
        let mut victims = VecDeque::new();
        let main = self.probation.bytes + self.protected.bytes;
        let mut needed = (main + weight).saturating_sub(self.main_capacity());
        let oldest = self.probation.names.values();
        for name in oldest.chain(self.protected.names.values()) {
            if needed == 0 {
                break;
            }
            if self.frequency(*name) >= self.frequency(candidate) {
                return;
            }
            let of = |order: &Order| order.moments.get(name).map(|(_, weight)| *weight);
            let freed = of(&self.probation).or_else(|| of(&self.protected));
            needed = needed.saturating_sub(freed.unwrap_or(0));
            victims.push_back(*name);
        }
        for name in victims {
            if self.probation.remove(name).is_none() {
                self.protected.remove(name);
            }
        }
        if needed == 0 {
            self.probation.push(candidate, weight);
        }
    }
}

impl Policy for WTinyLfu {
    fn read(&mut self, name: u64, weight: u64) -> bool {
        self.count(name);
        if self.hit(name) {
            return true;
        }
        if weight <= self.main_capacity() {
            self.window.push(name, weight);
            while self.window.bytes > self.capacity / 100 {
                let Some((candidate, weight)) = self.window.pop() else {
                    break;
                };
                self.admit(candidate, weight);
            }
        }
        false
    }
}
