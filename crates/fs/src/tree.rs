//! Directories and files beneath the root, by descriptor.
//!
//! Every path is resolved with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS` (openat2, Linux 5.6), so no
//! key, and no link that somebody puts into the tree, leads out of it. Where the kernel has no
//! openat2, paths are walked name by name with `O_NOFOLLOW`; names never are `..` or hold a `/`.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat},
    io::Errno,
};

use crate::names::Kind;

/// Bytes of directory entries that one call gives; what C libraries use.
const ENTRIES_BYTES: usize = 32 * 1024;
/// Most bytes of a path in one call, well below `PATH_MAX` of 4096.
const PATH_BYTES_MAX: usize = 3072;
/// A race with a rename elsewhere makes openat2 give up with `EAGAIN`; how often it is tried.
const RACES_MAX: usize = 64;

/// Opens what is beneath a directory.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    has_openat2: AtomicBool,
}

/// For looking up names only.
pub(crate) const LOOKUP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// For reading or syncing a directory.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// For reading a file; a FIFO must not make it wait.
pub(crate) const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl Tree {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self {
            root,
            has_openat2: AtomicBool::new(true),
        }
    }

    /// The root itself.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens what `names` lead to from `from`; no names reopen `from` itself.
    pub(crate) fn open(
        &self,
        from: BorrowedFd<'_>,
        names: &[impl AsRef<str>],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let mut at: Option<OwnedFd> = None;
        let mut path = String::new();
        for name in names {
            let name = name.as_ref();
            if path.len() + 1 + name.len() > PATH_BYTES_MAX {
                let next = self.open_path(at.as_ref().map_or(from, AsFd::as_fd), &path, LOOKUP)?;
                at = Some(next);
                path.clear();
            }
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(name);
        }
        if path.is_empty() {
            path.push('.');
        }
        self.open_path(at.as_ref().map_or(from, AsFd::as_fd), &path, flags)
    }

    fn open_path(&self, at: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if !self.has_openat2.load(Ordering::Relaxed) {
            return walk(at, path, flags);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let mut races_left = RACES_MAX;
        loop {
            match rustix::fs::openat2(at, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if races_left > 0 => races_left -= 1,
                // Old kernels lack it; some sandboxes forbid it.
                Err(Errno::NOSYS | Errno::PERM) => {
                    let walked = walk(at, path, flags)?;
                    self.has_openat2.store(false, Ordering::Relaxed);
                    return Ok(walked);
                }
                other => return other,
            }
        }
    }
}

fn walk(at: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut held: Option<OwnedFd> = None;
    let mut names = path.split('/').peekable();
    loop {
        let Some(name) = names.next() else {
            return Err(Errno::NOENT);
        };
        let from = held.as_ref().map_or(at, AsFd::as_fd);
        if names.peek().is_none() {
            return rustix::fs::openat(from, name, flags, Mode::empty());
        }
        let through = LOOKUP | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        held = Some(rustix::fs::openat(from, name, through, Mode::empty())?);
    }
}

/// What is under a name of a directory, links not followed.
pub(crate) fn kind_of(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(crate) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Time of modification, Unix nanoseconds.
pub(crate) fn modified_ns(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
    stat.st_mtime
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Bytes in a file.
pub(crate) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// Calls `visit` with each name in a directory and what it is, in no order; names that are no UTF-8
/// and special files are left out.
pub(crate) fn visit_entries(
    directory: BorrowedFd<'_>,
    mut visit: impl FnMut(&str, Kind) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(ENTRIES_BYTES);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if matches!(name, "." | "..") {
            continue;
        }
        match entry.file_type() {
            FileType::RegularFile => visit(name, Kind::File)?,
            FileType::Directory => visit(name, Kind::Directory)?,
            // Not every file system tells.
            FileType::Unknown => match kind_of(directory, name)? {
                Some(stat) if is_file(&stat) => visit(name, Kind::File)?,
                Some(stat) if is_directory(&stat) => visit(name, Kind::Directory)?,
                _ => {}
            },
            _ => {}
        }
    }
    Ok(())
}

/// All of them at once, for directories that are small.
pub(crate) fn entries(directory: BorrowedFd<'_>) -> Result<Vec<(String, Kind)>, Errno> {
    let mut entries = Vec::new();
    visit_entries(directory, |name, kind| {
        entries.push((name.to_owned(), kind));
        Ok(())
    })?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::device::{Device as _, Entry, System};

    /// Goal: no name and no link leads out of the root, with openat2 and without.
    #[test]
    fn nothing_beneath_the_root_leads_out_of_it() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "in").unwrap();
        fs::write(outer.path().join("secret"), "out").unwrap();
        symlink(outer.path(), root.join("a/up")).unwrap();
        symlink("../../secret", root.join("a/secret")).unwrap();
        symlink("b", root.join("a/link")).unwrap();
        for has_openat2 in [true, false] {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let tree = Tree::new(rustix::fs::open(&root, flags, Mode::empty()).unwrap());
            tree.has_openat2.store(has_openat2, Ordering::Relaxed);
            let open = |path: &str| {
                let names: Vec<&str> = path.split('/').collect();
                tree.open(tree.root(), &names, FILE).map(drop)
            };
            assert_eq!(open("a/b/file"), Ok(()));
            for path in ["a/up/secret", "a/secret", "a/link/file", "a/link"] {
                let error = open(path).unwrap_err();
                assert!(crate::fault::is_absent(error), "{path}: {error}");
            }
            assert_eq!(tree.has_openat2.load(Ordering::Relaxed), has_openat2);
        }
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_opened_in_steps() {
        let outer = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let tree = Tree::new(rustix::fs::open(outer.path(), flags, Mode::empty()).unwrap());
        let names = vec!["d".repeat(200); 40];
        let mut at = tree.open(tree.root(), &[""; 0], LOOKUP).unwrap();
        for name in &names {
            let entry = Entry::new(at.as_fd(), name);
            System.make_directory(entry).unwrap();
            at = tree.open(at.as_fd(), &[name], LOOKUP).unwrap();
        }
        for has_openat2 in [true, false] {
            tree.has_openat2.store(has_openat2, Ordering::Relaxed);
            assert!(tree.open(tree.root(), &names, DIRECTORY).is_ok());
        }
    }
}
