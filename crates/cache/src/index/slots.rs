//! Where a shard's entries lie: pages in one slab, version records in another.
//!
//! An entry's number says which: so a page, of which there may be millions, takes no more than a
//! page needs. Slabs grow by small chunks, which never move, and free nodes form a list through
//! their links, so that there is no memory but the nodes themselves.
//!
//! Called by `shard` alone.

use std::{hash::BuildHasher, sync::Arc};

use forebay_pages::{Arena, PageBuf};
use hashbrown::DefaultHashBuilder;

use super::{
    ghosts::GHOST_BYTES,
    queues::{Links, NONE, Nodes},
};
use crate::version::{Version, Vid};

/// Set in the number of a version record.
const VERSION: u32 = 1 << 31;
/// Nodes of a chunk: a few kilobytes, so that a cache of few entries wastes little.
const CHUNK_NODES: usize = 128;

/// Most bytes of a hash table for each entry: it is between 7/16 and 7/8 full, and has a number and
/// a byte of its hash for each place.
const TABLE_BYTES: u64 = 12;
/// The same for the nodes of the last chunk that are not used yet, from a few thousand entries on.
const CHUNK_BYTES: u64 = 1;
/// What a page takes besides its bytes and their owner: its node, its place in the table, a ghost.
const PAGE_OVERHEAD_BYTES: u64 =
    size_of::<PageNode>() as u64 + CHUNK_BYTES + TABLE_BYTES + GHOST_BYTES;
/// The same for a version record.
const VERSION_OVERHEAD_BYTES: u64 =
    size_of::<VersionNode>() as u64 + CHUNK_BYTES + TABLE_BYTES + GHOST_BYTES;

const _: () = assert!(PAGE_OVERHEAD_BYTES <= 64);

/// What is stored.
#[derive(Debug)]
pub(super) enum Entry {
    Version(Arc<Version>),
    Page { name: PageName, page: PageBuf },
}

/// A name of something stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PageName {
    pub(super) vid: Vid,
    pub(super) page_index: u32,
}

#[derive(Debug)]
pub(super) struct PageNode {
    links: Links,
    page_index: u32,
    /// Halves of a `u128`, which alone would make the node larger by its alignment.
    vid: [u64; 2],
    /// `None` in a free node.
    page: Option<PageBuf>,
}

#[derive(Debug)]
pub(super) struct VersionNode {
    links: Links,
    /// In bytes. A page is 16 MiB at most.
    weight: u32,
    /// `None` in a free node.
    version: Option<Arc<Version>>,
}

/// All nodes of a shard.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pages: Slab<PageNode>,
    versions: Slab<VersionNode>,
}

/// Nodes of one kind.
#[derive(Debug)]
struct Slab<N> {
    chunks: Vec<Vec<N>>,
    /// First of the free nodes.
    free: u32,
    length: u32,
}

/// A node of a slab.
trait Linked {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

impl Linked for PageNode {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Linked for VersionNode {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<N> Default for Slab<N> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
            length: 0,
        }
    }
}

impl<N: Linked> Slab<N> {
    fn get(&self, id: u32) -> &N {
        &self.chunks[id as usize / CHUNK_NODES][id as usize % CHUNK_NODES]
    }

    fn get_mut(&mut self, id: u32) -> &mut N {
        &mut self.chunks[id as usize / CHUNK_NODES][id as usize % CHUNK_NODES]
    }

    fn insert(&mut self, node: N) -> u32 {
        if self.free != NONE {
            let id = self.free;
            let free = self.get_mut(id);
            let next = free.links().newer;
            *free = node;
            self.free = next;
            return id;
        }
        let id = self.length;
        assert!(
            id < VERSION,
            "a shard has fewer than 2^31 entries of a kind"
        );
        if (id as usize).is_multiple_of(CHUNK_NODES) {
            self.chunks.push(Vec::with_capacity(CHUNK_NODES));
        }
        self.chunks[id as usize / CHUNK_NODES].push(node);
        self.length += 1;
        id
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let nodes: usize = self.chunks.iter().map(Vec::capacity).sum();
        nodes * size_of::<N>() + self.chunks.capacity() * size_of::<Vec<N>>()
    }

    /// The node is free from now on; its value was taken out.
    fn release(&mut self, id: u32) {
        let next = self.free;
        self.get_mut(id).links_mut().newer = next;
        self.free = id;
    }
}

impl Slots {
    /// Stores an entry that takes `weight` bytes; returns its number.
    pub(super) fn insert(&mut self, entry: Entry, weight: u64, links: Links) -> u32 {
        match entry {
            Entry::Version(version) => {
                VERSION
                    | self.versions.insert(VersionNode {
                        links,
                        weight: u32::try_from(weight).unwrap_or(u32::MAX),
                        version: Some(version),
                    })
            }
            Entry::Page { name, page } => self.pages.insert(PageNode {
                links,
                page_index: name.page_index,
                vid: halves(name.vid),
                page: Some(page),
            }),
        }
    }

    /// Takes an entry out that is in no queue any more.
    pub(super) fn take(&mut self, id: u32) -> Entry {
        if id & VERSION != 0 {
            let node = self.versions.get_mut(id & !VERSION);
            let version = node.version.take();
            self.versions.release(id & !VERSION);
            return Entry::Version(version.expect("whoever is in the table has a record"));
        }
        let node = self.pages.get_mut(id);
        let entry = Entry::Page {
            name: PageName {
                vid: whole(node.vid),
                page_index: node.page_index,
            },
            page: node
                .page
                .take()
                .expect("whoever is in the table has a page"),
        };
        self.pages.release(id);
        entry
    }

    pub(super) fn version(&self, id: u32) -> Option<&Arc<Version>> {
        if id & VERSION == 0 {
            return None;
        }
        self.versions.get(id & !VERSION).version.as_ref()
    }

    pub(super) fn page_name(&self, id: u32) -> Option<PageName> {
        if id & VERSION != 0 {
            return None;
        }
        let node = self.pages.get(id);
        node.page.as_ref()?;
        Some(PageName {
            vid: whole(node.vid),
            page_index: node.page_index,
        })
    }

    pub(super) fn page(&self, id: u32) -> Option<&PageBuf> {
        if id & VERSION != 0 {
            return None;
        }
        self.pages.get(id).page.as_ref()
    }

    /// Hash by which an entry is found. Nobody stores it: it is needed when a table grows or an
    /// entry leaves.
    pub(super) fn hash(&self, id: u32, hasher: &DefaultHashBuilder) -> u64 {
        match (self.version(id), self.page_name(id)) {
            (Some(version), _) => version.stamp.key_hash(),
            (None, Some(name)) => name.hash(hasher),
            (None, None) => 0,
        }
    }

    /// Memory of the nodes, free ones included.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes() + self.versions.memory_bytes()
    }

    /// Numbers that version records have or had, from the one at `first` on.
    pub(super) fn version_ids(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        (first..self.versions.length).map(|id| VERSION | id)
    }

    /// Numbers that pages have or had.
    pub(super) fn page_ids(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.pages.length
    }
}

impl Nodes for Slots {
    fn links(&self, id: u32) -> &Links {
        if id & VERSION == 0 {
            self.pages.get(id).links()
        } else {
            self.versions.get(id & !VERSION).links()
        }
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        if id & VERSION == 0 {
            self.pages.get_mut(id).links_mut()
        } else {
            self.versions.get_mut(id & !VERSION).links_mut()
        }
    }

    fn weight_bytes(&self, id: u32) -> u64 {
        if id & VERSION == 0 {
            let page = self.pages.get(id).page.as_ref();
            page_weight_bytes(page.map_or(0, PageBuf::len) as u64)
        } else {
            u64::from(self.versions.get(id & !VERSION).weight)
        }
    }
}

/// What a page of `length` bytes takes, its node and its place in the index included.
pub(crate) fn page_weight_bytes(length: u64) -> u64 {
    PAGE_OVERHEAD_BYTES + PageBuf::OWNER_BYTES + Arena::footprint_bytes(length)
}

/// The same for a record that is to have a page of `page_length` bytes besides what it has.
pub(crate) fn record_weight_bytes(version: &Version, page_length: u64) -> u64 {
    let page = Arena::footprint_bytes(page_length);
    VERSION_OVERHEAD_BYTES + version.footprint_bytes() + page
}

impl PageName {
    /// `None` beyond 2^32 pages, 16 TiB of the smallest: nobody stores those.
    pub(super) fn new(vid: Vid, page_index: u64) -> Option<Self> {
        let page_index = u32::try_from(page_index).ok()?;
        Some(Self { vid, page_index })
    }

    pub(super) fn hash(self, hasher: &DefaultHashBuilder) -> u64 {
        hasher.hash_one(self)
    }
}

impl Entry {
    /// What it takes, its node and its place in the index included.
    pub(super) fn weight_bytes(&self) -> u64 {
        match self {
            Self::Version(version) => VERSION_OVERHEAD_BYTES + version.footprint_bytes(),
            Self::Page { page, .. } => page_weight_bytes(page.len() as u64),
        }
    }
}

fn halves(vid: Vid) -> [u64; 2] {
    let bytes = vid.0.to_ne_bytes();
    let (low, high) = bytes.split_at(8);
    [low, high].map(|half| u64::from_ne_bytes(std::array::from_fn(|i| half[i])))
}

fn whole(halves: [u64; 2]) -> Vid {
    let [low, high] = halves.map(u64::to_ne_bytes);
    let byte = |i: usize| if i < 8 { low[i] } else { high[i - 8] };
    Vid(u128::from_ne_bytes(std::array::from_fn(byte)))
}
