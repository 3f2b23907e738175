//! An arena: a bounded amount of page memory, in slots of a memfd.
//!
//! # Layout
//! The file is sparse. For each size class (powers of two, [`SLOT_BYTES_MIN`] to
//! [`SLOT_BYTES_MAX`]) it has one region, as large as the whole arena may need in that class, and
//! the region is cut into slots, each aligned to its own size. A page lies at the start of the
//! smallest slot that holds it. Only what was written takes memory, in system pages of 4 KiB, so
//! neither a half-filled slot nor an unused region costs any: there is no fragmentation, inside
//! or outside.
//!
//! # Why bytes in flight never change
//! `sendfile` does not copy. When it returns, socket buffers (on loopback even the receiver's
//! queue) refer to the physical pages of the file, and nothing tells when they let go: an
//! acknowledged byte may still be queued on a local socket, a retransmission reads the page again.
//! So those physical pages must never be written again. They are not:
//!
//! 1. A slot is written only between being taken from the list of free slots and becoming a page,
//!    and nobody can have sent from it in between. While the page lives (any of its `Bytes`, which
//!    `Located` borrows), nobody writes to it.
//! 2. When it is dropped, a hole is punched over the *whole* slot before the slot is free again.
//!    This takes the slot's physical pages out of the file. Whoever still refers to them keeps
//!    them alive, as they are; the file does not know them any more.
//! 3. So the next write to the slot finds a hole and gets fresh physical pages.
//!
//! Step 2 has one gap. The kernel keeps file memory in folios, which may be larger than 4 KiB, and
//! when a hole covers a folio in part, that part is *zeroed in place*. No folio may reach beyond
//! its slot. Folios of a memfd are 4 KiB unless huge pages of shared memory are on for the whole
//! system (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`; `never`, `deny`, and `advise`, as
//! we give no advice, are off). Where they are on, or it can't be read, the arena lies on the heap
//! and [`crate::locate`] finds nothing in it. The setting is read when the arena is made; whoever
//! turns it on later must restart the gateway.
//!
//! If a hole can't be punched, the slot is never used again.
//!
//! Sources: Linux `mm/shmem.c` (`shmem_undo_range`, `shmem_file_splice_read`,
//! `shmem_huge_global_enabled`), `fallocate(2)`, `sendfile(2)`. The test
//! `bytes_in_flight_survive_the_reuse_of_their_slot` shows the proof at work, and that bytes do
//! change when step 2 is left out.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{PageBuf, mapping::Mapping, page::Owner};

/// Smallest slot; see [`STORED_BYTES_MIN`].
pub const SLOT_BYTES_MIN: u64 = 64 * 1024;
/// Largest slot, the largest page that a cache may have.
pub const SLOT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes fewer than this go to the heap, where storing them is one `memcpy` and not three system
/// calls: a seventh of the time at 40 KiB (example `price` of this crate). It is half a slot, so
/// that a page always fills more than half of its own.
pub const STORED_BYTES_MIN: u64 = SLOT_BYTES_MIN / 2 + 1;

const CLASS_COUNT: usize =
    (SLOT_BYTES_MAX.trailing_zeros() - SLOT_BYTES_MIN.trailing_zeros()) as usize + 1;
/// Memory is taken in system pages of this size.
const SYSTEM_PAGE_BYTES: u64 = 4096;
/// File offsets that all regions together may take: half of the 2^47 addresses of a process.
const FILE_BYTES_MAX: u64 = 1 << 46;

const _: () = assert!(CLASS_COUNT == 9);

/// A bounded amount of page memory; shared by cloning.
#[derive(Debug, Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

/// Where the pages of an arena lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaKind {
    /// In a memfd; [`crate::locate`] finds them.
    File,
    /// On the heap, because huge folios of shared memory are on, or may be.
    Heap,
}

#[derive(Debug)]
struct Inner {
    file: Option<File>,
    used_bytes: AtomicU64,
    capacity_bytes: u64,
}

#[derive(Debug)]
struct File {
    mapping: Mapping,
    /// Bytes of the file that each class has.
    region_bytes: u64,
    classes: [Mutex<Slots>; CLASS_COUNT],
    reuse: Reuse,
}

/// What happens to a slot before it is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Punched,
    /// Only to show that the test of the proof can fail.
    #[cfg(test)]
    AsItIs,
}

/// The slots of one class.
#[derive(Debug, Default)]
struct Slots {
    /// Slots given back, the last one first.
    free: Vec<u32>,
    /// Slots from this one on were never used.
    next: u32,
}

/// Bytes taken from an arena's capacity, given back when dropped.
#[derive(Debug)]
struct Charge {
    inner: Arc<Inner>,
    bytes: u64,
}

/// A page in the file.
#[derive(Debug)]
pub(crate) struct FilePage {
    charge: Charge,
    class: usize,
    slot: u32,
    length: usize,
}

/// A page on the heap.
#[derive(Debug)]
pub(crate) struct HeapPage {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl Arena {
    /// An arena that holds `capacity_bytes` at most, in a file where that is safe (see the module).
    ///
    /// # Errors
    /// What the system says when it refuses the file or its mapping.
    pub fn new(capacity_bytes: u64) -> io::Result<Self> {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        if folios_stay_small(&setting) {
            return Self::in_file(capacity_bytes, Reuse::Punched);
        }
        tracing::info!("pages lie on the heap: huge folios of shared memory are on");
        Ok(Self::on_heap(capacity_bytes))
    }

    /// An arena on the heap: works everywhere, and its pages are sent by copying.
    pub fn on_heap(capacity_bytes: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                file: None,
                used_bytes: AtomicU64::new(0),
                capacity_bytes,
            }),
        }
    }

    fn in_file(capacity_bytes: u64, reuse: Reuse) -> io::Result<Self> {
        // A page fills more than half of its slot, so twice the capacity always has a slot left.
        let region_bytes = (capacity_bytes.saturating_mul(2))
            .min(FILE_BYTES_MAX / CLASS_COUNT as u64 - SLOT_BYTES_MAX)
            .next_multiple_of(SLOT_BYTES_MAX)
            .max(SLOT_BYTES_MAX);
        let length = usize::try_from(region_bytes * CLASS_COUNT as u64)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let file = File {
            mapping: Mapping::new(length)?,
            region_bytes,
            classes: Default::default(),
            reuse,
        };
        let used_bytes = AtomicU64::new(0);
        Ok(Self {
            inner: Arc::new(Inner {
                file: Some(file),
                used_bytes,
                capacity_bytes,
            }),
        })
    }

    /// Copies `pieces` into one page, or says `None` when there is no room for them.
    ///
    /// What is smaller than [`STORED_BYTES_MIN`] becomes an allocation of exactly its size, which
    /// the arena does not count: its caller does.
    pub fn store(&self, pieces: &[Bytes]) -> Option<Bytes> {
        self.store_page(pieces).map(PageBuf::into_bytes)
    }

    /// The same for whoever holds many pages.
    pub fn store_page(&self, pieces: &[Bytes]) -> Option<PageBuf> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if (length as u64) < STORED_BYTES_MIN {
            return Some(PageBuf::small(joined(pieces, length)));
        }
        let charge = Charge::take(&self.inner, length as u64)?;
        let slot = (self.inner.file.as_ref())
            .and_then(|file| Some((file, file.take_slot(length as u64)?)));
        let Some((file, (class, slot))) = slot else {
            return Some(PageBuf::owned(Owner::Heap(HeapPage {
                bytes: joined(pieces, length),
                _charge: charge,
            })));
        };
        // From here on the slot is given back by dropping the page.
        let page = FilePage {
            charge,
            class,
            slot,
            length,
        };
        file.mapping.write(file.offset(class, slot), pieces).ok()?;
        Some(PageBuf::owned(Owner::File(page)))
    }

    /// Memory that pages take, those included that are no longer cached but still being sent.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }

    /// Memory that a page of `length` bytes takes.
    pub fn footprint_bytes(length: u64) -> u64 {
        if length < STORED_BYTES_MIN {
            length
        } else {
            length.next_multiple_of(SYSTEM_PAGE_BYTES)
        }
    }

    /// Where the pages lie.
    pub fn kind(&self) -> ArenaKind {
        if self.inner.file.is_some() {
            ArenaKind::File
        } else {
            ArenaKind::Heap
        }
    }
}

/// Whether no folio of a memfd can be larger than a slot, see the module.
fn folios_stay_small(setting: &io::Result<String>) -> bool {
    match setting {
        Ok(text) => ["[never]", "[advise]", "[deny]"]
            .iter()
            .any(|off| text.contains(off)),
        // A kernel without huge pages has no such file.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn joined(pieces: &[Bytes], length: usize) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(length);
    for piece in pieces {
        bytes.extend_from_slice(piece);
    }
    bytes.into_boxed_slice()
}

impl File {
    /// A free slot for `length` bytes, or `None` when they are larger than any, or none is left.
    fn take_slot(&self, length: u64) -> Option<(usize, u32)> {
        let slot_bytes = length.next_power_of_two().max(SLOT_BYTES_MIN);
        let class = (slot_bytes.trailing_zeros() - SLOT_BYTES_MIN.trailing_zeros()) as usize;
        let mut slots = self.classes.get(class)?.lock();
        if let Some(slot) = slots.free.pop() {
            return Some((class, slot));
        }
        let slot = slots.next;
        if u64::from(slot) >= self.region_bytes / slot_bytes {
            return None;
        }
        slots.next += 1;
        Some((class, slot))
    }

    fn offset(&self, class: usize, slot: u32) -> u64 {
        class as u64 * self.region_bytes + u64::from(slot) * slot_bytes(class)
    }
}

fn slot_bytes(class: usize) -> u64 {
    SLOT_BYTES_MIN << class
}

impl Charge {
    fn take(inner: &Arc<Inner>, length: u64) -> Option<Self> {
        let bytes = length.next_multiple_of(SYSTEM_PAGE_BYTES);
        inner
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|total| *total <= inner.capacity_bytes)
            })
            .ok()?;
        Some(Self {
            inner: Arc::clone(inner),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.inner
            .used_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl FilePage {
    fn file(&self) -> &File {
        self.charge
            .inner
            .file
            .as_ref()
            .expect("a file page is only made by an arena with a file")
    }
}

impl AsRef<[u8]> for FilePage {
    fn as_ref(&self) -> &[u8] {
        let file = self.file();
        let offset = usize::try_from(file.offset(self.class, self.slot))
            .expect("the whole file is mapped, so its offsets are addresses");
        // SAFETY: the slot belongs to this page alone, which is written before anyone can see it
        // and punched only in `drop`, when nothing borrows it any more.
        #[expect(unsafe_code, reason = "the page owns its slot of the file")]
        unsafe {
            file.mapping.slice(offset, self.length)
        }
    }
}

impl Drop for FilePage {
    fn drop(&mut self) {
        let file = self.file();
        let punched = match file.reuse {
            Reuse::Punched => file
                .mapping
                .punch(file.offset(self.class, self.slot), slot_bytes(self.class)),
            #[cfg(test)]
            Reuse::AsItIs => Ok(()),
        };
        // A slot that still has its old pages must not be written again: leave it unused.
        if punched.is_ok() {
            file.classes[self.class].lock().free.push(self.slot);
        }
    }
}

impl AsRef<[u8]> for HeapPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests;
