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
//! 2. When it is dropped after it was ever located, a hole is punched over the *whole* slot before
//!    the slot is free again. This takes the slot's physical pages out of the file. Whoever still
//!    refers to them keeps them alive, as they are; the file does not know them any more.
//! 3. So the next write to the slot finds a hole and gets fresh physical pages.
//! 4. When it is dropped and was never located, nobody refers to its physical pages: to send from
//!    the file takes its descriptor, which [`crate::locate`] alone gives away, for one page at a
//!    time. Such a slot may stay *backed*: the next page is written over its physical pages, which
//!    saves punching the hole, and the kernel finding and zeroing new ones.
//!
//! Step 4 needs every [`crate::locate`] that found a page to be known when the page is dropped.
//! `locate` sets a mark for the slot before it returns, while it borrows the page. The page is
//! dropped by its last owner, after all borrows of it have ended; that the owners' counter goes
//! down (`Release`) and is seen at zero (`Acquire`) puts the mark before the drop, which looks for
//! it. Marks are cleared only when the hole is punched, before the slot is free again: no page
//! inherits the mark of another, and none loses its own. (A backed slot has none to clear.)
//!
//! Step 4 also needs that nobody makes the kernel refer to physical pages by their *address*. The
//! system calls that do (`vmsplice`, `MSG_ZEROCOPY` and their like in `io_uring`) must not be
//! given page memory; `write`, `writev` and `pwrite` have copied when they return.
//!
//! Step 2 has one gap. The kernel keeps file memory in folios, which may be larger than 4 KiB, and
//! when a hole covers a folio in part, that part is *zeroed in place*. No folio may reach beyond
//! its slot. Folios of a memfd are 4 KiB unless huge pages of shared memory are on for the whole
//! system (`shmem_enabled` in `/sys/kernel/mm/transparent_hugepage`, and in its `hugepages-*` for
//! each size; `never`, `deny`, and `advise`, as we give no advice, are off, and `inherit` is what
//! the first says). Where they are on, or it can't be read, the arena lies on the heap and
//! [`crate::locate`] finds nothing in it. The setting is read when the arena is made; whoever
//! turns it on later must restart the gateway.
//!
//! If a hole can't be punched, the slot is never used again.
//!
//! Sources: Linux `mm/shmem.c` (`shmem_undo_range`, `shmem_file_splice_read`,
//! `shmem_huge_global_enabled`), `fallocate(2)`, `sendfile(2)`. The test
//! `bytes_in_flight_survive_the_reuse_of_their_slot` shows the proof at work, and that bytes do
//! change when step 2 is left out.
//!
//! # Memory
//! Backed slots take memory of the arena's capacity, up to a limit, and give it back as soon as a
//! page would not fit otherwise. A page that is shorter than the one before it in its slot gives
//! the rest of the memory back before it is written. What is left of that one's bytes in its last
//! system page is beyond its length, where neither its `Bytes` nor whoever sends them reaches.

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{PageBuf, page::Owner};
use file::{File, Reuse, Slot};

mod file;

/// Smallest slot; see [`STORED_BYTES_MIN`].
pub const SLOT_BYTES_MIN: u64 = 64 * 1024;
/// Largest slot, the largest page that a cache may have.
pub const SLOT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes fewer than this go to the heap, where storing them is one `memcpy` and never three system
/// calls, which without a backed slot take twenty times as long at 40 KiB (example `price` of this
/// crate). It is half a slot, so that a page always fills more than half of its own.
pub const STORED_BYTES_MIN: u64 = SLOT_BYTES_MIN / 2 + 1;

/// Memory is taken in system pages of this size.
const SYSTEM_PAGE_BYTES: u64 = 4096;
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
    /// Memory of pages and of backed slots.
    taken_bytes: AtomicU64,
    capacity_bytes: u64,
}

/// Bytes taken from an arena's capacity, given back when dropped.
#[derive(Debug)]
struct Charge {
    inner: Arc<Inner>,
    bytes: u64,
}

/// A page in the file, or a slot that is about to become one.
#[derive(Debug)]
pub(crate) struct FilePage {
    /// All the memory that the slot has.
    charge: Charge,
    slot: Slot,
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
        if folio_settings().iter().all(folios_stay_small) {
            return Self::in_file(capacity_bytes, Reuse::PunchedIfLocated);
        }
        tracing::info!("pages lie on the heap: huge folios of shared memory are on");
        Ok(Self::on_heap(capacity_bytes))
    }

    /// An arena on the heap: works everywhere, and its pages are sent by copying.
    pub fn on_heap(capacity_bytes: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                file: None,
                taken_bytes: AtomicU64::new(0),
                capacity_bytes,
            }),
        }
    }

    fn in_file(capacity_bytes: u64, reuse: Reuse) -> io::Result<Self> {
        Ok(Self {
            inner: Arc::new(Inner {
                file: Some(File::new(capacity_bytes, reuse)?),
                taken_bytes: AtomicU64::new(0),
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
        let footprint_bytes = Self::footprint_bytes(length as u64);
        let file = self.inner.file.as_ref();
        let Some((slot, backed_bytes)) = file.and_then(|file| file.take(length as u64)) else {
            let mut charge = Charge::of(&self.inner, 0);
            charge.grow(footprint_bytes)?;
            return Some(PageBuf::owned(Owner::Heap(HeapPage {
                bytes: joined(pieces, length),
                _charge: charge,
            })));
        };
        // From here on the slot is given back by dropping the page.
        let mut page = FilePage {
            charge: Charge::of(&self.inner, backed_bytes),
            slot,
            length,
        };
        page.resize(footprint_bytes)?;
        // SAFETY: the slot was just taken, with these `backed_bytes` or, if `resize` took some of
        // them away, no fewer than are written; `page` is not handed out yet.
        #[expect(unsafe_code, reason = "the page owns its slot of the file")]
        let written = unsafe { page.file().write(slot, backed_bytes, pieces) };
        written.ok()?;
        Some(PageBuf::owned(Owner::File(page)))
    }

    /// Memory that pages take, those included that are no longer cached but still being sent.
    pub fn used_bytes(&self) -> u64 {
        let taken_bytes = self.inner.taken_bytes.load(Ordering::Relaxed);
        taken_bytes.saturating_sub(self.backed_bytes())
    }

    /// Memory that is kept for the next pages; with that of the pages it is at most the capacity.
    pub fn backed_bytes(&self) -> u64 {
        self.inner.file.as_ref().map_or(0, File::backed_bytes)
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

/// What the system says of huge folios of shared memory: of all sizes, then of each, if it knows of
/// sizes.
fn folio_settings() -> Vec<io::Result<String>> {
    let all_sizes = Path::new("/sys/kernel/mm/transparent_hugepage");
    let mut settings = vec![fs::read_to_string(all_sizes.join("shmem_enabled"))];
    match fs::read_dir(all_sizes) {
        Ok(entries) => settings.extend(entries.filter_map(|entry| match entry {
            Ok(entry) => {
                let is_size = entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("hugepages-");
                is_size.then(|| fs::read_to_string(entry.path().join("shmem_enabled")))
            }
            Err(error) => Some(Err(error)),
        })),
        Err(error) => settings.push(Err(error)),
    }
    settings
}

/// Whether no folio of a memfd can be larger than a slot for this setting, see the module.
fn folios_stay_small(setting: &io::Result<String>) -> bool {
    match setting {
        Ok(text) => ["[never]", "[advise]", "[deny]", "[inherit]"]
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

impl Charge {
    /// A charge for bytes that are taken already.
    fn of(inner: &Arc<Inner>, bytes: u64) -> Self {
        Self {
            inner: Arc::clone(inner),
            bytes,
        }
    }

    /// Takes more, from backed slots if need be, or says `None` when there is no room.
    fn grow(&mut self, bytes: u64) -> Option<()> {
        let more = bytes - self.bytes;
        while !self.inner.try_take(more) {
            let freed_bytes = self.inner.file.as_ref()?.punch_one()?;
            self.inner.free(freed_bytes);
        }
        self.bytes = bytes;
        Some(())
    }

    /// Gives some back.
    fn shrink(&mut self, bytes: u64) {
        self.inner.free(self.bytes - bytes);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.inner.free(self.bytes);
    }
}

impl Inner {
    fn try_take(&self, bytes: u64) -> bool {
        self.taken_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken
                    .checked_add(bytes)
                    .filter(|total| *total <= self.capacity_bytes)
            })
            .is_ok()
    }

    fn free(&self, bytes: u64) {
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
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

    /// Makes the memory that the slot has, and may have, `bytes`; to be called before it is
    /// written. `None` when there is no room.
    fn resize(&mut self, bytes: u64) -> Option<()> {
        let taken_bytes = self.charge.bytes;
        if bytes < taken_bytes {
            let kept_bytes = self.file().trim(self.slot, taken_bytes, bytes);
            self.charge.shrink(kept_bytes);
            Some(())
        } else {
            self.charge.grow(bytes)
        }
    }
}

impl AsRef<[u8]> for FilePage {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the slot belongs to this page alone, which is written before anyone can see it
        // and given back only in `drop`, when nothing borrows it any more.
        #[expect(unsafe_code, reason = "the page owns its slot of the file")]
        unsafe {
            self.file().bytes(self.slot, self.length)
        }
    }
}

impl Drop for FilePage {
    fn drop(&mut self) {
        let kept_bytes = self.file().give_back(self.slot, self.charge.bytes);
        // What the slot keeps stays taken.
        self.charge.bytes -= kept_bytes;
    }
}

impl AsRef<[u8]> for HeapPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests;
