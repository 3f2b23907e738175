//! A sealed memfd, mapped once and for all of its length.
//!
//! Bytes get into a hole by `pwritev`, which neither zeroes memory first nor faults in user space,
//! and are read through the mapping or sent from the file. Physical memory is what was written.
//! Where there is some already they are copied over it through the mapping: a `pwritev` looks up
//! each system page, and holds a lock of the whole file, for which other writers spin.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
};

use bytes::Bytes;
use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    },
    io::{Errno, pwritev},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
};

use crate::{marks::Marks, registry};

/// Slices in one `pwritev` (Linux, `UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// The file and its mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    length: usize,
    fd: OwnedFd,
    /// What of it was ever located.
    marks: Box<Marks>,
    entry: Option<usize>,
}

// SAFETY: the mapping is plain memory that belongs to the whole process; its address is never
// changed, unmapping it needs `&mut self` (in `drop`), and who may read or write which part of it
// when is what `slice` and `copy_in` ask their callers to promise.
#[expect(unsafe_code, reason = "NonNull is neither Send nor Sync by itself")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "NonNull is neither Send nor Sync by itself")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A file of `length` bytes, a multiple of the system's page size, all of them holes.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("forebay-pages", flags)?;
        ftruncate(&fd, length as u64)?;
        // With the length sealed, no access to the mapping can end in SIGBUS for lack of a file.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        #[expect(unsafe_code, reason = "mmap")]
        let address = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }?;
        // A core dump without the cached objects is smaller and gives less away. A kernel that
        // refuses the advice dumps them; nothing else hangs on it.
        // SAFETY: the advice changes only what a core dump holds.
        #[expect(unsafe_code, reason = "madvise")]
        let _ = unsafe { madvise(address, length, Advice::LinuxDontDump) };
        let address = NonNull::new(address.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let marks = Box::new(Marks::new(length));
        let entry = registry::register(address.addr().get(), length, fd.as_raw_fd(), &marks);
        Ok(Self {
            address,
            length,
            fd,
            marks,
            entry,
        })
    }

    /// Writes `pieces` one after another from `offset` on.
    pub(crate) fn write<P: AsRef<[u8]>>(&self, offset: u64, pieces: &[P]) -> io::Result<()> {
        let mut offset = offset;
        for batch in pieces.chunks(SLICES_MAX) {
            let mut slices: Vec<_> = batch.iter().map(|p| IoSlice::new(p.as_ref())).collect();
            let mut left = slices.as_mut_slice();
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match pwritev(self.fd.as_fd(), left, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        IoSlice::advance_slices(&mut left, count);
                        offset += count as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Copies `pieces` one after another to `offset`, where the file has memory for all of them.
    ///
    /// # Safety
    /// Nobody else reads, writes or punches these bytes of the file meanwhile.
    #[expect(unsafe_code, reason = "the caller owns the bytes of the file")]
    pub(crate) unsafe fn copy_in(&self, offset: usize, pieces: &[Bytes]) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length)
        );
        let mut at = offset;
        for piece in pieces {
            // SAFETY: within the mapping by the assertion; mapped writable until `self` is
            // dropped. By the caller's promise nobody refers to these bytes, so no piece overlaps
            // them, which is itself borrowed.
            unsafe {
                let target = self.address.as_ptr().add(at);
                ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
            }
            at += piece.len();
        }
    }

    /// Takes the pages of `offset..offset + length` out of the file and gives their memory back.
    pub(crate) fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(self.fd.as_fd(), flags, offset, length) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Which bytes were ever located.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The file, for tests that ask the kernel about it.
    #[cfg(test)]
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The bytes `offset..offset + length`.
    ///
    /// # Safety
    /// Nobody writes to or punches these bytes of the file while the slice lives.
    #[expect(unsafe_code, reason = "the caller owns the bytes of the file")]
    pub(crate) unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length)
        );
        // SAFETY: within the mapping by the assertion; mapped readable until `self` is dropped;
        // unchanged by the caller's promise, and nobody else has the descriptor.
        unsafe { slice::from_raw_parts(self.address.as_ptr().add(offset), length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            registry::unregister(entry);
        }
        // SAFETY: this is the mapping made in `new`, unmapped once; `slice` borrows `self`, so
        // nothing points into it any more. The descriptor is closed and the marks are freed after
        // this, as fields.
        #[expect(unsafe_code, reason = "munmap")]
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "the range is exactly what mmap gave");
    }
}
