//! Opening a directory as a store, and what its parts share.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use forebay_native::{Native, refuse};
use forebay_s3::bucket::BucketName;
use forebay_store::{Clock, Error, Request, Response, Store};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use crate::{
    device::{Device, Entry, New, System},
    engine::Fs,
    fault,
    locks::Locks,
    names::{Kind, OWN_DIRECTORY},
    settings::{Durability, FsSettings, RecordPlace},
    tree::{DIRECTORY, LOOKUP, Tree},
    windows::{WINDOW_ENTRIES_MAX, Windows},
};

/// A directory tree as a store.
#[derive(Debug)]
pub struct FsStore {
    native: Native<Fs>,
}

/// Why a directory can't be a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be made, opened or read.
    #[error("open {path}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// Another process uses it.
    #[error("{path} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// What all operations on the tree share.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) tree: Tree,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) locks: Locks,
    pub(crate) windows: Windows,
    pub(crate) clock: Clock,
    pub(crate) records: RecordPlace,
    pub(crate) temporary_count: AtomicU64,
    durability: Durability,
    modified_ns_last: AtomicI64,
}

impl FsStore {
    /// Opens a directory, makes it if need be, and sweeps up what a crash left.
    ///
    /// Blocks while it does; meant for the start of a program.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(settings: FsSettings, clock: Clock) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(System), settings, clock)
    }

    /// The same, making its changes through `device`.
    pub(crate) fn open_on(
        device: Arc<dyn Device>,
        settings: FsSettings,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let native = settings.native.clone();
        let windows = Windows::new(WINDOW_ENTRIES_MAX);
        let disk = Arc::new(Disk::open(device, settings, clock.clone(), windows)?);
        Ok(Self {
            native: Native::new(Fs::new(disk), clock, native),
        })
    }

    /// Directories that listings have read since the start.
    pub fn directories_read(&self) -> u64 {
        self.native.engine().disk().windows.directories_read()
    }
}

impl Store for FsStore {
    /// Written as `async_trait` writes it, so that no second future is boxed around the first.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.native.call(request)
    }
}

impl Disk {
    /// Opens and sweeps a root.
    pub(crate) fn open(
        device: Arc<dyn Device>,
        settings: FsSettings,
        clock: Clock,
        windows: Windows,
    ) -> Result<Self, OpenError> {
        let FsSettings {
            root: path,
            durability,
            records,
            native: _,
        } = settings;
        let unusable = |source| OpenError::Unusable {
            path: path.clone(),
            source,
        };
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unusable(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| unusable(e.into()))?;
        match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { path }),
            Err(error) => return Err(unusable(error.into())),
        }
        let disk = Self {
            tree: Tree::new(root),
            device,
            locks: Locks::new(),
            windows,
            clock,
            records,
            temporary_count: AtomicU64::new(0),
            durability,
            modified_ns_last: AtomicI64::new(0),
        };
        disk.adopt().map_err(|error| unusable(error.into()))?;
        Ok(disk)
    }

    /// Makes what an earlier process left a state to go on from.
    fn adopt(&self) -> Result<(), Errno> {
        self.sweep()?;
        match self.durability {
            Durability::None => Ok(()),
            // A process that was killed may have left directories that are not durable; from here
            // on each directory that is there is taken to be.
            Durability::Sync => self.device.sync_all(self.tree.root()),
        }
    }

    /// A time that no file of this process had before, now or a little later; Unix nanoseconds.
    pub(crate) fn modified_ns_next(&self) -> i64 {
        let since = self
            .clock
            .wall()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        let next = |last: i64| Some(now_ns.max(last + 1));
        let order = Ordering::Relaxed;
        match self.modified_ns_last.fetch_update(order, order, next) {
            Ok(last) | Err(last) => now_ns.max(last + 1),
        }
    }

    /// Brings a file or a directory to stable storage, where the settings ask for it.
    pub(crate) fn sync(&self, file: impl AsFd) -> Result<(), Errno> {
        match self.durability {
            Durability::None => Ok(()),
            Durability::Sync => self.device.sync(file.as_fd()),
        }
    }

    /// The same for a directory that is open for lookups only.
    pub(crate) fn sync_directory(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.durability {
            Durability::None => Ok(()),
            Durability::Sync => {
                let reopened = self.tree.open(directory, &[""; 0], DIRECTORY)?;
                self.device.sync(reopened.as_fd())
            }
        }
    }

    /// Opens a bucket, or refuses with `NoSuchBucket`.
    pub(crate) fn require_bucket(&self, bucket: &BucketName) -> Result<OwnedFd, Error> {
        match self.tree.open(self.tree.root(), &[bucket.as_str()], LOOKUP) {
            Ok(directory) => Ok(directory),
            Err(error) if fault::is_absent(error) => Err(refuse::no_such_bucket(bucket)),
            Err(error) => Err(fault::of_io("open a bucket", error)),
        }
    }

    /// Opens a directory among the store's own in a bucket, and makes it if need be.
    pub(crate) fn own_directory(
        &self,
        bucket: &BucketName,
        names: &[&str],
    ) -> Result<OwnedFd, Error> {
        let context = "open the store's own directory of a bucket";
        let path = [&[bucket.as_str(), OWN_DIRECTORY], names].concat();
        let opened = {
            let _structure = self.locks.structure_kept(bucket.as_str());
            self.tree.open(self.tree.root(), &path, DIRECTORY)
        };
        match opened {
            Ok(directory) => return Ok(directory),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(fault::of_io(context, error)),
        }
        let _structure = self.locks.structure_changed(bucket.as_str());
        let mut at = self.require_bucket(bucket)?;
        for name in &path[1..] {
            let made = self.device.make_directory(Entry::new(at.as_fd(), name));
            let made = made.and_then(|new| {
                if new == New::Made {
                    self.sync_directory(at.as_fd())?;
                }
                self.tree.open(at.as_fd(), &[name], DIRECTORY)
            });
            at = made.map_err(|error| fault::of_io(context, error))?;
        }
        Ok(at)
    }

    /// Removes a file or an empty directory, if it is there.
    pub(crate) fn remove(&self, entry: Entry<'_>, kind: Kind) -> Result<(), Errno> {
        match self.device.remove(entry, kind) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a directory and all that is in it.
    pub(crate) fn remove_all(&self, entry: Entry<'_>) -> Result<(), Errno> {
        let Entry { directory, name } = entry;
        let flags = DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let inside = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(inside) => inside,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => return self.remove(entry, Kind::File),
            Err(error) => return Err(error),
        };
        let again = rustix::io::fcntl_dupfd_cloexec(&inside, 0)?;
        let mut names = Vec::new();
        for inner in rustix::fs::Dir::new(inside)? {
            let inner = inner?;
            if !matches!(inner.file_name().to_bytes(), b"." | b"..") {
                names.push((inner.file_name().to_owned(), inner.file_type()));
            }
        }
        for (inner, kind) in names {
            let inner = Entry::new(again.as_fd(), OsStr::from_bytes(inner.to_bytes()));
            match kind {
                FileType::Directory | FileType::Unknown => self.remove_all(inner)?,
                _ => self.remove(inner, Kind::File)?,
            }
        }
        self.remove(entry, Kind::Directory)
    }
}
