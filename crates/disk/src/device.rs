//! Every call to the disk.
//!
//! The store makes them through [`Device`], so that a test can lose, tear and reorder them, fail
//! them, and let them hang (`tests::sim`). All of them block: they are made on the store's own
//! threads alone.

#![expect(clippy::disallowed_methods, reason = "this is where they are made")]

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    num::NonZeroU64,
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fd::{AsFd as _, OwnedFd},
    fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags},
    io::Errno,
};

use crate::{folder::Folder, format::BLOCK_BYTES};

/// Files are for the store's own user.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o600);
/// Segments kept open; opening one costs a few microseconds.
const FILES_MAX: usize = 256;

/// What the store asks of a disk: a set of segments, by number.
///
/// Contract: nothing is durable before [`Device::sync`], the existence of segments included. A
/// crash may keep, lose or tear each write since, and keep or lose each segment made or removed.
/// Bytes that were never written are zero.
pub(crate) trait Device: fmt::Debug + Send + Sync {
    /// All segments and their lengths.
    fn list(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Makes a segment of so many bytes, all zero and with their room on the disk taken.
    fn make(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Writes into a segment.
    fn write(&self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads exactly so many bytes.
    fn read(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Vec<u8>>;

    /// Sets the length of a segment.
    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Brings a segment, and which segments there are, to stable storage.
    fn sync(&self, segment: u64) -> io::Result<()>;

    /// Removes a segment; absent is success.
    fn remove(&self, segment: u64) -> io::Result<()>;
}

/// A folder of the operating system.
#[derive(Debug)]
pub(crate) struct System {
    folder: Folder,
    files: Mutex<HashMap<u64, Arc<File>>>,
    names_changed: AtomicBool,
}

impl System {
    pub(crate) fn new(folder: Folder) -> Self {
        Self {
            folder,
            files: Mutex::default(),
            names_changed: AtomicBool::new(true),
        }
    }

    fn file(&self, segment: u64) -> io::Result<Arc<File>> {
        if let Some(file) = self.files.lock().get(&segment) {
            return Ok(Arc::clone(file));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.folder.directory, name(segment), flags, Mode::empty())?;
        Ok(self.keep(segment, file))
    }

    fn keep(&self, segment: u64, file: OwnedFd) -> Arc<File> {
        // The kernel would read ahead, and what is read here is all that is wanted.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        let file = Arc::new(File::from(file));
        let mut files = self.files.lock();
        if files.len() >= FILES_MAX {
            // Any one: all are as likely to be asked for.
            let any = files.keys().next().copied();
            any.map(|any| files.remove(&any));
        }
        files.insert(segment, Arc::clone(&file));
        file
    }
}

/// File name of a segment.
fn name(segment: u64) -> String {
    format!("{segment:016x}.segment")
}

/// The segment of a file name, if it is one.
pub(crate) fn segment_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".segment")?;
    let segment = u64::from_str_radix(digits, 16).ok()?;
    (self::name(segment) == name).then_some(segment)
}

/// The page cache need not keep what the store keeps: pages that are read again are in memory.
fn forget_cached(file: &File, offset: u64, bytes: u64) {
    let start = offset - offset % BLOCK_BYTES;
    let length = (offset + bytes).next_multiple_of(BLOCK_BYTES) - start;
    // Advice; when it is not taken the kernel finds out by itself.
    let _ = rustix::fs::fadvise(file, start, NonZeroU64::new(length), Advice::DontNeed);
}

impl Device for System {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut segments = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.folder.directory)? {
            let entry = entry?;
            let Some(segment) = entry.file_name().to_str().ok().and_then(segment_of) else {
                continue;
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(&self.folder.directory, entry.file_name(), flags)?;
            segments.push((segment, u64::try_from(stat.st_size).unwrap_or_default()));
        }
        Ok(segments)
    }

    fn make(&self, segment: u64, bytes: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&self.folder.directory, name(segment), flags, FILE_MODE)?;
        self.names_changed.store(true, Ordering::Release);
        let taken = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // This file system can't; room is taken as bytes are written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::fs::ftruncate(&file, bytes),
            other => other,
        };
        match taken {
            Ok(()) => drop(self.keep(segment, file)),
            Err(error) => {
                let _ = self.remove(segment);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn write(&self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(segment)?.write_all_at(bytes, offset)
    }

    fn read(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let file = self.file(segment)?;
        let wanted = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut read = Vec::with_capacity(wanted);
        while read.len() < wanted {
            let at = offset + read.len() as u64;
            let spare = rustix::buffer::spare_capacity(&mut read);
            match rustix::io::pread(&file, spare, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may have given more than was asked for.
        read.truncate(wanted);
        forget_cached(&file, offset, bytes);
        Ok(read)
    }

    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(self.file(segment)?.as_fd(), bytes)?)
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        let file = self.file(segment)?;
        rustix::fs::fdatasync(&file)?;
        // Only clean pages leave the page cache.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        if self.names_changed.swap(false, Ordering::AcqRel) {
            rustix::fs::fsync(&self.folder.directory).inspect_err(|_| {
                self.names_changed.store(true, Ordering::Release);
            })?;
        }
        Ok(())
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.files.lock().remove(&segment);
        self.names_changed.store(true, Ordering::Release);
        match rustix::fs::unlinkat(&self.folder.directory, name(segment), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
