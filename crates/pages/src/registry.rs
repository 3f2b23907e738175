//! Finds the file behind a slice of page memory.
//!
//! [`locate`] runs for every slice that a connection writes, so it is a few loads and compares:
//! a table of pointers to address ranges, written only when an arena is made or dropped.

use std::{
    os::fd::{BorrowedFd, RawFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use crate::marks::Marks;

/// Arenas that [`locate`] can know at once. One serves a cache layer; the arenas beyond work too,
/// only their pages are never found, so that they are sent by copying.
const REGIONS_MAX: usize = 64;

static REGIONS: [AtomicPtr<Region>; REGIONS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; REGIONS_MAX];

/// Entries of [`REGIONS`] ever used; those beyond need no look.
static REGIONS_USED: AtomicUsize = AtomicUsize::new(0);

/// The addresses of one mapping, and its file. Never freed, never changed: a reader may hold a
/// pointer to it while the mapping goes away. That costs 32 bytes for each arena ever made.
#[derive(Debug)]
pub(crate) struct Region {
    start: usize,
    end: usize,
    fd: RawFd,
    /// Freed after the mapping is unmapped, as the descriptor is closed.
    marks: NonNull<Marks>,
}

/// Place of a slice in the file of an arena.
///
/// Whoever sends from the file must keep the bytes alive until the call that sends has returned;
/// the borrow sees to that. What the kernel has taken by then stays as it is, see
/// [`crate::arena`].
#[derive(Debug, Clone, Copy)]
pub struct Located<'a> {
    /// File that holds the bytes: read from it at given offsets only.
    pub fd: BorrowedFd<'a>,
    /// Offset of the first byte.
    pub offset: u64,
}

/// Where `slice` lies in an arena's file, or `None` when it is not page memory.
///
/// A page that was ever found costs more to forget: the kernel may refer to its memory, so that no
/// other page can be written over it.
#[inline]
pub fn locate(slice: &[u8]) -> Option<Located<'_>> {
    let start = slice.as_ptr().addr();
    let used = REGIONS_USED.load(Ordering::Acquire);
    for entry in &REGIONS[..used] {
        let region = entry.load(Ordering::Acquire);
        if region.is_null() {
            continue;
        }
        // SAFETY: a pointer in the table comes from `Box::leak` in `register`: it is valid for
        // ever, and nothing writes to what it points to.
        #[expect(unsafe_code, reason = "reads a leaked, immutable record")]
        let region = unsafe { &*region };
        if (region.start..region.end).contains(&start) && !slice.is_empty() {
            // SAFETY: the descriptor must stay open for the lifetime of `slice`, and the marks must
            // be there until this returns. The one is closed, and the others are freed, only after
            // their mapping is unmapped, and the entry is cleared before that (`Mapping::drop`),
            // so when we loaded the entry the mapping was there and owned these addresses. `slice`
            // was alive at that moment, so it is memory of this mapping, and since memory outlives
            // its borrows, the mapping, and with it the descriptor and the marks, outlives the
            // slice.
            #[expect(unsafe_code, reason = "the slice keeps the descriptor and the marks")]
            let (fd, marks) = unsafe { (BorrowedFd::borrow_raw(region.fd), region.marks.as_ref()) };
            let offset = (start - region.start) as u64;
            // Before anyone can send: see `crate::arena`, step 4.
            marks.set(offset);
            return Some(Located { fd, offset });
        }
    }
    None
}

/// Makes the `length` addresses from `start` known, as those of the file `fd`; returns the entry
/// to clear, or `None` when the table is full.
///
/// `marks` stay where they are until the entry is cleared and the addresses are unmapped.
pub(crate) fn register(start: usize, length: usize, fd: RawFd, marks: &Marks) -> Option<usize> {
    let region: &'static mut Region = Box::leak(Box::new(Region {
        start,
        end: start + length,
        fd,
        marks: NonNull::from(marks),
    }));
    let region = ptr::from_mut(region);
    let free = REGIONS.iter().position(|entry| {
        let empty = ptr::null_mut();
        entry
            .compare_exchange(empty, region, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })?;
    REGIONS_USED.fetch_max(free + 1, Ordering::AcqRel);
    Some(free)
}

/// Forgets an entry; to be called before its addresses are unmapped.
pub(crate) fn unregister(entry: usize) {
    REGIONS[entry].store(ptr::null_mut(), Ordering::Release);
}
