//! Every call that changes the file system, and those that make changes durable.
//!
//! The store makes them through [`Device`], so that a test can write them down, stop after any of
//! them, and look at each state that a crash could leave ([`crate::tests`]). Calls that only read
//! are made directly; `clippy.toml` bans the changing ones elsewhere.

#![expect(clippy::disallowed_methods, reason = "this is where they are made")]

use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    io::{self, Write as _},
};

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

use crate::names::Kind;

/// Directories are made for everyone the umask lets.
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o777);
/// Files too.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o666);

/// What the store asks of a file system.
///
/// Contract: nothing is durable before [`Device::sync`] of it, a name before that of its directory.
/// Within that, a crash may keep or lose each change, but a rename puts the new name there before
/// it takes the old one away, and does both at once for a directory.
pub(crate) trait Device: fmt::Debug + Send + Sync {
    /// Makes a directory; tells whether it is new.
    fn make_directory(&self, entry: Entry<'_>) -> Result<New, Errno>;

    /// Makes a file that was not there, for writing and reading back.
    fn make_file(&self, entry: Entry<'_>) -> Result<OwnedFd, Errno>;

    /// Appends bytes to a file.
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()>;

    /// Appends all that is in another file, sharing its blocks where the file system can.
    fn append(&self, file: &mut File, source: &mut File) -> io::Result<u64>;

    /// Sets the time of modification, Unix nanoseconds.
    fn set_time(&self, file: BorrowedFd<'_>, modified_ns: i64) -> Result<(), Errno>;

    /// Sets an extended attribute, in one step.
    fn set_attribute(&self, file: BorrowedFd<'_>, value: Attribute<'_>) -> Result<(), Errno>;

    /// Removes one.
    fn remove_attribute(&self, file: BorrowedFd<'_>, name: &str) -> Result<(), Errno>;

    /// Renames.
    fn rename(&self, from: Entry<'_>, to: Entry<'_>, over: Over) -> Result<(), Errno>;

    /// Removes a file or an empty directory.
    fn remove(&self, entry: Entry<'_>, kind: Kind) -> Result<(), Errno>;

    /// Brings a file, or the names in a directory, to stable storage.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;

    /// The same for all that is on the file system of this directory.
    fn sync_all(&self, directory: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a OsStr,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(directory: BorrowedFd<'a>, name: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        let name = name.as_ref();
        Self { directory, name }
    }
}

/// An extended attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a [u8],
}

/// What is renamed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Whatever is there.
    Anything,
    /// There must be nothing.
    Nothing,
}

/// Whether something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum New {
    /// Just now.
    Made,
    /// Earlier.
    WasThere,
}

/// The operating system.
#[derive(Debug)]
pub(crate) struct System;

impl Device for System {
    fn make_directory(&self, entry: Entry<'_>) -> Result<New, Errno> {
        match rustix::fs::mkdirat(entry.directory, entry.name, DIRECTORY_MODE) {
            Ok(()) => Ok(New::Made),
            Err(Errno::EXIST) => Ok(New::WasThere),
            Err(error) => Err(error),
        }
    }

    fn make_file(&self, entry: Entry<'_>) -> Result<OwnedFd, Errno> {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | new;
        rustix::fs::openat(entry.directory, entry.name, flags, FILE_MODE)
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn append(&self, file: &mut File, source: &mut File) -> io::Result<u64> {
        // On Linux this is copy_file_range, which clones where it can.
        io::copy(source, file)
    }

    fn set_time(&self, file: BorrowedFd<'_>, modified_ns: i64) -> Result<(), Errno> {
        let time = Timespec {
            tv_sec: modified_ns.div_euclid(1_000_000_000),
            tv_nsec: modified_ns.rem_euclid(1_000_000_000),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(file, &times)
    }

    fn set_attribute(&self, file: BorrowedFd<'_>, attribute: Attribute<'_>) -> Result<(), Errno> {
        let Attribute { name, value } = attribute;
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
    }

    fn remove_attribute(&self, file: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        rustix::fs::fremovexattr(file, name)
    }

    fn rename(&self, from: Entry<'_>, to: Entry<'_>, over: Over) -> Result<(), Errno> {
        let replace = || rustix::fs::renameat(from.directory, from.name, to.directory, to.name);
        if over == Over::Anything {
            return replace();
        }
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from.directory, from.name, to.directory, to.name, flags) {
            // This file system can't; the key's lock keeps others of this process away.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => replace(),
            other => other,
        }
    }

    fn remove(&self, entry: Entry<'_>, kind: Kind) -> Result<(), Errno> {
        let flags = match kind {
            Kind::File => AtFlags::empty(),
            Kind::Directory => AtFlags::REMOVEDIR,
        };
        rustix::fs::unlinkat(entry.directory, entry.name, flags)
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::fs::fsync(file)
    }

    fn sync_all(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::fs::syncfs(directory)
    }
}
