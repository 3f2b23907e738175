//! Buckets: directories of the root. Everything here blocks.

use std::sync::atomic::Ordering;

use forebay_native::{
    engine::Bucket,
    listing::{Bound, Cursor as _},
    refuse,
};
use forebay_s3::bucket::BucketName;
use forebay_store::Error;
use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{AtFlags, StatxFlags},
    io::Errno,
};

use crate::{
    device::{Entry, New, Over},
    fault,
    names::{Kind, OWN_DIRECTORY},
    staged::TEMPORARY,
    store::Disk,
    tree::{self, DIRECTORY},
    uploads::{UPLOAD_FILE, UPLOADS},
    walk::{Structure, Walk},
};

/// Begins the name of a bucket that is being removed; no bucket's name begins so.
const REMOVED_PREFIX: &str = ".forebay-removed-";

impl Disk {
    /// All buckets by name.
    pub(crate) fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let context = "list the buckets";
        let mut buckets = Vec::new();
        for name in self
            .root_directories()
            .map_err(|e| fault::of_io(context, e))?
        {
            let Ok(name) = BucketName::parse(&name) else {
                continue;
            };
            match self.bucket(&name) {
                Ok(bucket) => buckets.push(bucket),
                // Removed since.
                Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(buckets)
    }

    fn root_directories(&self) -> Result<Vec<String>, Errno> {
        let root = self.tree.open(self.tree.root(), &[""; 0], DIRECTORY)?;
        let mut names = Vec::new();
        tree::visit_entries(root.as_fd(), |name, kind| {
            if kind == Kind::Directory {
                names.push(name.to_owned());
            }
            Ok(())
        })?;
        Ok(names)
    }

    pub(crate) fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        let directory = self.require_bucket(name)?;
        let mask = StatxFlags::BTIME | StatxFlags::CTIME;
        let stat = rustix::fs::statx(&directory, "", AtFlags::EMPTY_PATH, mask)
            .map_err(|error| fault::of_io("read the age of a bucket", error))?;
        // Not every file system knows when a file was born.
        let born = if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            stat.stx_ctime
        } else {
            stat.stx_btime
        };
        let created_ms = born.tv_sec * 1000 + i64::from(born.tv_nsec) / 1_000_000;
        Ok(Bucket {
            name: name.clone(),
            created_ms,
        })
    }

    pub(crate) fn create_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let entry = Entry::new(self.tree.root(), name.as_str());
        let made = self
            .device
            .make_directory(entry)
            .and_then(|new| self.sync(self.tree.root()).map(|()| new))
            .map_err(|error| fault::of_io("make a bucket", error))?;
        match made {
            New::Made => Ok(()),
            New::WasThere => Err(refuse::bucket_exists(name)),
        }
    }

    /// Removes a bucket that holds no object, nor anything else that somebody put there.
    pub(crate) fn delete_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let context = "remove a bucket";
        let _structure = self.locks.structure_changed(name.as_str());
        let bucket = self.require_bucket(name)?;
        let first = Walk::new(self, name, Structure::Locked).seek(&Bound::default())?;
        let empty = first.is_none()
            && self
                .holds_only_directories(bucket.as_fd())
                .map_err(|e| fault::of_io(context, e))?;
        if !empty {
            return Err(refuse::bucket_not_empty(name));
        }
        let count = self.temporary_count.fetch_add(1, Ordering::Relaxed);
        let removed = format!("{REMOVED_PREFIX}{:x}-{count:x}", self.modified_ns_next());
        let root = self.tree.root();
        let (from, to) = (Entry::new(root, name.as_str()), Entry::new(root, &removed));
        self.device
            .rename(from, to, Over::Anything)
            .and_then(|()| self.sync(root))
            .map_err(|error| fault::of_io(context, error))?;
        // The bucket is gone by now; what is left of it here, the next start removes.
        if let Err(error) = self.remove_bucket_rest(&removed) {
            tracing::warn!(%removed, %error, "removed bucket leaves a directory behind");
        }
        Ok(())
    }

    /// Whether there is nothing but directories, the store's own aside.
    fn holds_only_directories(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        let opened = self.tree.open(directory, &[""; 0], DIRECTORY)?;
        for entry in rustix::fs::Dir::new(opened)? {
            let entry = entry?;
            let name = entry.file_name();
            if [&b"."[..], b"..", OWN_DIRECTORY.as_bytes()].contains(&name.to_bytes()) {
                continue;
            }
            let Ok(name) = name.to_str() else {
                return Ok(false);
            };
            match self.tree.open(directory, &[name], DIRECTORY) {
                Ok(inner) if self.holds_only_directories(inner.as_fd())? => {}
                Ok(_) => return Ok(false),
                Err(error) if fault::is_absent(error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn remove_bucket_rest(&self, removed: &str) -> Result<(), Errno> {
        let directory = self.tree.open(self.tree.root(), &[removed], DIRECTORY)?;
        self.remove_all(Entry::new(directory.as_fd(), OWN_DIRECTORY))?;
        self.remove_empty(directory.as_fd())?;
        self.remove(Entry::new(self.tree.root(), removed), Kind::Directory)
    }

    /// Removes the directories in a directory, none of which holds a file.
    fn remove_empty(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let opened = self.tree.open(directory, &[""; 0], DIRECTORY)?;
        for (name, _) in tree::entries(opened.as_fd())? {
            let inner = self.tree.open(directory, &[&name], DIRECTORY)?;
            self.remove_empty(inner.as_fd())?;
            self.remove(Entry::new(directory, &name), Kind::Directory)?;
        }
        Ok(())
    }

    /// Removes what a crash left: temporary files, buckets half removed, uploads half begun.
    pub(crate) fn sweep(&self) -> Result<(), Errno> {
        let mut swept_count = 0_u64;
        for name in self.root_directories()? {
            if name.starts_with(REMOVED_PREFIX) {
                self.remove_bucket_rest(&name)?;
                swept_count += 1;
                continue;
            }
            if BucketName::parse(&name).is_err() {
                continue;
            }
            swept_count += self.sweep_own(&[&name, OWN_DIRECTORY, TEMPORARY], |_| Ok(true))?;
            swept_count += self.sweep_own(&[&name, OWN_DIRECTORY, UPLOADS], |upload| {
                let upload = self.tree.open(upload, &[""; 0], DIRECTORY)?;
                Ok(tree::kind_of(upload.as_fd(), UPLOAD_FILE)?.is_none())
            })?;
        }
        if swept_count > 0 {
            tracing::info!(swept_count, "removed what an earlier run left unfinished");
        }
        Ok(())
    }

    /// Removes the entries of a directory that are litter, and counts them; directories are judged,
    /// files always are.
    fn sweep_own(
        &self,
        path: &[&str],
        is_litter: impl Fn(BorrowedFd<'_>) -> Result<bool, Errno>,
    ) -> Result<u64, Errno> {
        let directory = match self.tree.open(self.tree.root(), path, DIRECTORY) {
            Ok(directory) => directory,
            Err(error) if fault::is_absent(error) => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut swept_count = 0;
        for (name, kind) in tree::entries(directory.as_fd())? {
            let litter = match kind {
                Kind::File => true,
                Kind::Directory => is_litter(
                    self.tree
                        .open(directory.as_fd(), &[&name], DIRECTORY)?
                        .as_fd(),
                )?,
            };
            if litter {
                self.remove_all(Entry::new(directory.as_fd(), &name))?;
                swept_count += 1;
            }
        }
        Ok(swept_count)
    }
}
