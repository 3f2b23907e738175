//! A device that writes down every change it makes, and can die after any of them.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use parking_lot::Mutex;
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    fs::AtFlags,
    io::Errno,
};

use crate::{
    device::{Attribute, Device, Entry, New, Over, System},
    names::Kind,
    tree,
};

/// Larger attributes are refused, so that sidecars are seen on every file system.
const ATTRIBUTE_BYTES_MAX: usize = 1500;

/// A file or a directory; the root is the first.
pub(super) type Node = usize;

/// A name in a directory.
pub(super) type Name = (Node, OsString);

/// A change that was made, or a sync.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Make { name: Name, node: Node, kind: Kind },
    Append { file: Node, bytes: Vec<u8> },
    SetTime { file: Node, modified_ns: i64 },
    SetAttribute { file: Node, value: Option<Vec<u8>> },
    Rename { from: Name, to: Name, kind: Kind },
    Remove { name: Name },
    Sync { node: Node },
    SyncAll,
}

#[derive(Debug)]
pub(super) struct Recorder {
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    calls: Vec<Call>,
    /// By inode number, which a file system may use again: the latest node counts.
    nodes: HashMap<u64, Node>,
    node_count: usize,
    calls_max: usize,
}

impl Recorder {
    /// For changes beneath `root`.
    pub(super) fn new(root: &Path) -> Self {
        let inode = root.metadata().unwrap().ino();
        Self {
            log: Mutex::new(Log {
                calls: Vec::new(),
                nodes: [(inode, 0)].into(),
                node_count: 1,
                calls_max: usize::MAX,
            }),
        }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.log.lock().calls.clone()
    }

    pub(super) fn count(&self) -> usize {
        self.log.lock().calls.len()
    }

    /// From now on every call beyond the first `calls_max` fails, as if the process were dead.
    pub(super) fn die_after(&self, calls_max: usize) {
        self.log.lock().calls_max = calls_max;
    }

    /// Makes one change, and writes it down unless it was none.
    fn call<T>(
        &self,
        act: impl FnOnce(&mut Log) -> Result<(T, Option<Call>), Errno>,
    ) -> Result<T, Errno> {
        let mut log = self.log.lock();
        if log.calls.len() >= log.calls_max {
            return Err(Errno::IO);
        }
        let (made, call) = act(&mut log)?;
        log.calls.extend(call);
        Ok(made)
    }
}

impl Log {
    fn node(&self, file: BorrowedFd<'_>) -> Result<Node, Errno> {
        Ok(self.nodes[&rustix::fs::fstat(file)?.st_ino])
    }

    fn name(&self, entry: Entry<'_>) -> Result<Name, Errno> {
        Ok((self.node(entry.directory)?, entry.name.to_owned()))
    }

    fn made(&mut self, entry: Entry<'_>, kind: Kind) -> Result<Call, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let inode = rustix::fs::statat(entry.directory, entry.name, flags)?.st_ino;
        let node = self.node_count;
        self.node_count += 1;
        self.nodes.insert(inode, node);
        let name = self.name(entry)?;
        Ok(Call::Make { name, node, kind })
    }
}

impl Device for Recorder {
    fn make_directory(&self, entry: Entry<'_>) -> Result<New, Errno> {
        self.call(|log| match System.make_directory(entry)? {
            New::Made => Ok((New::Made, Some(log.made(entry, Kind::Directory)?))),
            New::WasThere => Ok((New::WasThere, None)),
        })
    }

    fn make_file(&self, entry: Entry<'_>) -> Result<OwnedFd, Errno> {
        self.call(|log| {
            let file = System.make_file(entry)?;
            Ok((file, Some(log.made(entry, Kind::File)?)))
        })
    }

    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        let written = self.call(|log| {
            let node = log.node(file.as_fd())?;
            System.write(file, bytes).map_err(|_| Errno::IO)?;
            let bytes = bytes.to_vec();
            Ok(((), Some(Call::Append { file: node, bytes })))
        });
        Ok(written?)
    }

    fn append(&self, file: &mut File, source: &mut File) -> io::Result<u64> {
        let appended = self.call(|log| {
            let node = log.node(file.as_fd())?;
            let before = file.metadata().map_err(|_| Errno::IO)?.len();
            let count = System.append(file, source).map_err(|_| Errno::IO)?;
            let mut bytes = vec![0; usize::try_from(count).unwrap()];
            file.read_exact_at(&mut bytes, before)
                .map_err(|_| Errno::IO)?;
            Ok((count, Some(Call::Append { file: node, bytes })))
        });
        Ok(appended?)
    }

    fn set_time(&self, file: BorrowedFd<'_>, modified_ns: i64) -> Result<(), Errno> {
        self.call(|log| {
            System.set_time(file, modified_ns)?;
            let file = log.node(file)?;
            Ok(((), Some(Call::SetTime { file, modified_ns })))
        })
    }

    fn set_attribute(&self, file: BorrowedFd<'_>, attribute: Attribute<'_>) -> Result<(), Errno> {
        if attribute.value.len() > ATTRIBUTE_BYTES_MAX {
            return Err(Errno::NOSPC);
        }
        self.call(|log| {
            System.set_attribute(file, attribute)?;
            let (file, value) = (log.node(file)?, Some(attribute.value.to_vec()));
            Ok(((), Some(Call::SetAttribute { file, value })))
        })
    }

    fn remove_attribute(&self, file: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        self.call(|log| {
            System.remove_attribute(file, name)?;
            let (file, value) = (log.node(file)?, None);
            Ok(((), Some(Call::SetAttribute { file, value })))
        })
    }

    fn rename(&self, from: Entry<'_>, to: Entry<'_>, over: Over) -> Result<(), Errno> {
        self.call(|log| {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(from.directory, from.name, flags)?;
            System.rename(from, to, over)?;
            let kind = if tree::is_directory(&stat) {
                Kind::Directory
            } else {
                Kind::File
            };
            let (from, to) = (log.name(from)?, log.name(to)?);
            Ok(((), Some(Call::Rename { from, to, kind })))
        })
    }

    fn remove(&self, entry: Entry<'_>, kind: Kind) -> Result<(), Errno> {
        self.call(|log| {
            // The name of a sidecar is a path of two names.
            let (mut at, mut name) = (log.node(entry.directory)?, entry.name.to_owned());
            if let Some((folder, file)) = entry.name.to_str().and_then(|n| n.split_once('/')) {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let inode = rustix::fs::statat(entry.directory, folder, flags)?.st_ino;
                (at, name) = (log.nodes[&inode], file.into());
            }
            System.remove(entry, kind)?;
            Ok(((), Some(Call::Remove { name: (at, name) })))
        })
    }

    /// Writes it down; the medium is not waited for.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.call(|log| {
            let node = log.node(file)?;
            Ok(((), Some(Call::Sync { node })))
        })
    }

    fn sync_all(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        self.call(|_| Ok(((), Some(Call::SyncAll))))
    }
}
