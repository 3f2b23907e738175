//! A cache without bytes: the index's own queues and ghosts over hashes of names.
//!
//! Called by `shadow` for what more or less memory would bring, and by the comparison of hit
//! ratios. One read is a lookup and, on a miss, an entry in the place of others.

use hashbrown::{HashTable, hash_table};

use crate::index::{
    ghosts::Ghosts,
    queues::{Links, NONE, Nodes, Place, Queues},
};

/// Entries and their weights within a capacity.
#[derive(Debug)]
pub struct Outline {
    table: HashTable<u32>,
    slots: Slots,
    queues: Queues,
    ghosts: Ghosts,
    used_bytes: u64,
    capacity_bytes: u64,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct Slots {
    nodes: Vec<Node>,
    /// First of the free nodes.
    free: Option<u32>,
}

#[derive(Debug)]
struct Node {
    links: Links,
    weight: u32,
    hash: u64,
}

impl Outline {
    /// One of so many bytes and, whatever they weigh, so many entries at most.
    pub fn new(capacity_bytes: u64, entries_max: usize) -> Self {
        Self {
            table: HashTable::new(),
            slots: Slots::default(),
            queues: Queues::default(),
            ghosts: Ghosts::default(),
            used_bytes: 0,
            capacity_bytes,
            entries_max,
        }
    }

    /// Reads what has this hash, and stores it if it is not there; returns whether it was.
    pub fn read(&mut self, hash: u64, weight_bytes: u64, now_ms: i64) -> bool {
        let nodes = &self.slots.nodes;
        let found = self.table.find(hash, |id| nodes[*id as usize].hash == hash);
        if let Some(id) = found.copied() {
            self.slots.links_mut(id).touch(now_ms);
            return true;
        }
        self.store(hash, weight_bytes, now_ms);
        false
    }

    /// Forgets what has this hash.
    pub fn remove(&mut self, hash: u64) {
        let nodes = &self.slots.nodes;
        let found = self.table.find(hash, |id| nodes[*id as usize].hash == hash);
        if let Some(id) = found.copied() {
            self.queues.unlink(&mut self.slots, id);
            self.release(id);
        }
    }

    /// Bytes of all entries.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn store(&mut self, hash: u64, weight_bytes: u64, now_ms: i64) {
        let Some(weight) = u32::try_from(weight_bytes)
            .ok()
            .filter(|_| weight_bytes <= self.capacity_bytes)
        else {
            return;
        };
        while self.used_bytes + weight_bytes > self.capacity_bytes
            || self.table.len() >= self.entries_max
        {
            let Some(id) = self.queues.evict(&mut self.slots) else {
                return;
            };
            if self.slots.links(id).place() == Place::Small {
                let evicted = self.slots.nodes[id as usize].hash;
                self.ghosts.put(evicted, self.table.len());
            }
            self.release(id);
        }
        let place = if self.ghosts.take(hash) {
            Place::Main
        } else {
            Place::Small
        };
        let id = self.slots.insert(Node {
            links: Links::new(place, now_ms),
            weight,
            hash,
        });
        self.used_bytes += weight_bytes;
        self.queues.push(&mut self.slots, id, place);
        let nodes = &self.slots.nodes;
        self.table
            .insert_unique(hash, id, |id| nodes[*id as usize].hash);
    }

    /// Gives back the node of an entry that is in no queue.
    fn release(&mut self, id: u32) {
        self.used_bytes -= self.slots.weight_bytes(id);
        let hash = self.slots.nodes[id as usize].hash;
        if let Ok(found) = self.table.find_entry(hash, |other| *other == id) {
            hash_table::OccupiedEntry::remove(found);
        }
        let next = self.slots.free.replace(id);
        self.slots.links_mut(id).newer = next.unwrap_or(NONE);
    }
}

impl Slots {
    fn insert(&mut self, node: Node) -> u32 {
        if let Some(id) = self.free {
            let next = self.nodes[id as usize].links.newer;
            self.free = (next != NONE).then_some(next);
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("entries_max is far below 2^32")
    }
}

impl Nodes for Slots {
    fn links(&self, id: u32) -> &Links {
        &self.nodes[id as usize].links
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        &mut self.nodes[id as usize].links
    }

    fn weight_bytes(&self, id: u32) -> u64 {
        u64::from(self.nodes[id as usize].weight)
    }
}
