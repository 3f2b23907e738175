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
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fd::{AsFd as _, OwnedFd},
    fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags},
    io::{Errno, ReadWriteFlags},
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
pub trait Device: fmt::Debug + Send + Sync {
    /// All segments and their lengths.
    fn list(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Makes a segment of so many bytes, all zero and with their room on the disk taken.
    fn make(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Writes into a segment.
    fn write(&self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads exactly so many bytes.
    fn read(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Vec<u8>>;

    /// The same, if it can be done without waiting for the disk; `None` where it can't.
    fn read_cached(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let _ = (segment, offset, bytes);
        Ok(None)
    }

    /// Sets the length of a segment.
    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Brings a segment, and which segments there are, to stable storage.
    fn sync(&self, segment: u64) -> io::Result<()>;

    /// Removes a segment; absent is success.
    fn remove(&self, segment: u64) -> io::Result<()>;
}

/// What the kernel keeps in memory of what is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// What it likes.
    Kernel,
    /// Nothing: whoever uses the device keeps in memory what is read again.
    Own,
}

/// A folder of the operating system.
#[derive(Debug)]
pub struct System {
    directory: OwnedFd,
    suffix: &'static str,
    caching: Caching,
    files: Mutex<HashMap<u64, Arc<File>>>,
    /// Names made and removed, and how many of those are durable.
    names_changed: AtomicU64,
    names_synced: Mutex<u64>,
    /// Holds the lock.
    _folder: Arc<Folder>,
}

impl System {
    /// Segments in the folder itself, with this suffix to their names.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(folder: &Arc<Folder>, suffix: &'static str, caching: Caching) -> io::Result<Self> {
        let directory = rustix::io::fcntl_dupfd_cloexec(&folder.directory, 0)?;
        Ok(Self::of(directory, folder, suffix, caching))
    }

    /// Segments in a folder within it, which is made if need be.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn within(
        folder: &Arc<Folder>,
        name: &str,
        suffix: &'static str,
        caching: Caching,
    ) -> io::Result<Self> {
        match rustix::fs::mkdirat(&folder.directory, name, Mode::from_bits_truncate(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::fsync(&folder.directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::openat(&folder.directory, name, flags, Mode::empty())?;
        Ok(Self::of(directory, folder, suffix, caching))
    }

    fn of(
        directory: OwnedFd,
        folder: &Arc<Folder>,
        suffix: &'static str,
        caching: Caching,
    ) -> Self {
        Self {
            directory,
            suffix,
            caching,
            files: Mutex::default(),
            // What an earlier process did is not known to be durable.
            names_changed: AtomicU64::new(1),
            names_synced: Mutex::new(0),
            _folder: Arc::clone(folder),
        }
    }

    fn file(&self, segment: u64) -> io::Result<Arc<File>> {
        if let Some(file) = self.files.lock().get(&segment) {
            return Ok(Arc::clone(file));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = self.name(segment);
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
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

    /// File name of a segment.
    fn name(&self, segment: u64) -> String {
        format!("{segment:016x}.{}", self.suffix)
    }

    /// The segment of a file name, if it is one.
    fn segment_of(&self, name: &str) -> Option<u64> {
        let segment = u64::from_str_radix(name.get(..16)?, 16).ok()?;
        (self.name(segment) == name).then_some(segment)
    }

    /// Brings which segments there are to stable storage. Whoever finds another at it waits: what
    /// is to be durable is only when that one has come to its end.
    fn sync_names(&self) -> io::Result<()> {
        let mut synced = self.names_synced.lock();
        let changed = self.names_changed.load(Ordering::Acquire);
        if *synced != changed {
            rustix::fs::fsync(&self.directory)?;
            *synced = changed;
        }
        Ok(())
    }

    fn name_changed(&self) {
        self.names_changed.fetch_add(1, Ordering::AcqRel);
    }
}

/// Takes the room of a new file.
fn take_room(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // This file system can't; room is taken as bytes are written.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::fs::ftruncate(file, bytes),
        other => other,
    }
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
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            let Some(segment) = name.and_then(|name| self.segment_of(name)) else {
                continue;
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(&self.directory, entry.file_name(), flags)?;
            segments.push((segment, u64::try_from(stat.st_size).unwrap_or_default()));
        }
        Ok(segments)
    }

    fn make(&self, segment: u64, bytes: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&self.directory, self.name(segment), flags, FILE_MODE)?;
        self.name_changed();
        let taken = if bytes == 0 {
            Ok(())
        } else {
            take_room(&file, bytes)
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
        if self.caching == Caching::Own {
            forget_cached(&file, offset, bytes);
        }
        Ok(read)
    }

    fn read_cached(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Option<Vec<u8>>> {
        // Opening a file may wait for the disk.
        let Some(file) = self.files.lock().get(&segment).map(Arc::clone) else {
            return Ok(None);
        };
        let wanted = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut read = vec![0; wanted];
        let mut buffers = [io::IoSliceMut::new(&mut read)];
        match rustix::io::preadv2(&file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) if count == wanted => Ok(Some(read)),
            // Some of it is not in memory, or the file system does not know the flag. Of other
            // errors the read that waits tells.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(self.file(segment)?.as_fd(), bytes)?)
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        let file = self.file(segment)?;
        rustix::fs::fdatasync(&file)?;
        if self.caching == Caching::Own {
            // Only clean pages leave the page cache.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }
        self.sync_names()
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.files.lock().remove(&segment);
        match rustix::fs::unlinkat(&self.directory, self.name(segment), AtFlags::empty()) {
            Ok(()) => self.name_changed(),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
