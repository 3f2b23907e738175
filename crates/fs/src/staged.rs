//! Temporary files: written beside the tree, renamed into it when whole, removed otherwise.

use std::{
    fs::File,
    sync::{Arc, atomic::Ordering},
};

use forebay_native::{
    ingest::{Ingest, Ingested},
    pieces::Piece,
    record::{ObjectRecord, PartOfObject},
};
use forebay_s3::{bucket::BucketName, operation::ObjectId};
use forebay_store::Error;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use crate::{
    device::{Device, Entry, Over},
    fault,
    names::Kind,
    record::Version,
    store::Disk,
};

/// Directory of temporary files in the store's own directory of a bucket.
pub(crate) const TEMPORARY: &str = "tmp";

/// A file that is not in the tree yet; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Staged {
    device: Arc<dyn Device>,
    directory: Arc<OwnedFd>,
    name: String,
    file: File,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Removed when dropped.
    Removed,
    /// In the tree by now, under another name.
    Kept,
}

impl Disk {
    /// Makes a temporary file in a bucket.
    pub(crate) fn stage(&self, bucket: &BucketName) -> Result<Staged, Error> {
        let directory = self.own_directory(bucket, &[TEMPORARY])?;
        loop {
            let count = self.temporary_count.fetch_add(1, Ordering::Relaxed);
            let name = format!("{:x}-{count:x}", self.modified_ns_next());
            match self.device.make_file(Entry::new(directory.as_fd(), &name)) {
                Ok(file) => {
                    return Ok(Staged {
                        device: Arc::clone(&self.device),
                        directory: Arc::new(directory),
                        name,
                        file: file.into(),
                        fate: Fate::Removed,
                    });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(fault::of_io("make a temporary file", error)),
            }
        }
    }

    /// Gives a temporary file its time, record and parts, and brings it to stable storage.
    pub(crate) fn seal(
        &self,
        staged: &Staged,
        object: &ObjectId,
        parts: &[PartOfObject],
        record: impl FnOnce(i64) -> ObjectRecord,
    ) -> Result<ObjectRecord, Error> {
        let version = self.date(staged)?;
        let record = record(version.modified_ns.div_euclid(1_000_000));
        self.store_record(object, staged.file.as_fd(), version, &record)?;
        if !parts.is_empty() {
            self.store_parts(object, version, parts)?;
        }
        self.sync(&staged.file)
            .map_err(|e| fault::of_io("sync a file", e))?;
        Ok(record)
    }

    /// Sets a file's time to one that no other file of this store has.
    pub(crate) fn date(&self, staged: &Staged) -> Result<Version, Error> {
        let context = "set the time of a file";
        let now_ns = self.modified_ns_next();
        self.device
            .set_time(staged.file.as_fd(), now_ns)
            .map_err(|e| fault::of_io(context, e))?;
        // Read back, because not every file system keeps nanoseconds.
        let stat = rustix::fs::fstat(&staged.file).map_err(|e| fault::of_io(context, e))?;
        Ok(Version::of(&stat))
    }
}

impl Staged {
    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.device
            .write(&self.file, bytes)
            .map_err(|e| fault::of_io("write a temporary file", e))
    }

    /// Appends a piece of a body, hashing it.
    pub(crate) fn take(&mut self, piece: &Piece, ingest: &mut Ingest) -> Result<(), Error> {
        for chunk in &piece.chunks {
            self.write(chunk)?;
            ingest.update(chunk);
        }
        Ok(())
    }

    /// Appends all that is in another file, sharing its blocks where the file system can.
    pub(crate) fn append_file(&mut self, mut source: File) -> Result<u64, Error> {
        self.device
            .append(&mut self.file, &mut source)
            .map_err(|e| fault::of_io("copy a part into a file", e))
    }

    /// Renames the file; it stays temporary if that fails, for another try.
    pub(crate) fn rename(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &str,
        over: Over,
    ) -> Result<(), Errno> {
        let from = Entry::new(self.directory.as_fd(), &self.name);
        self.device
            .rename(from, Entry::new(directory, name), over)?;
        self.fate = Fate::Kept;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.fate == Fate::Kept {
            return;
        }
        let (device, directory) = (Arc::clone(&self.device), Arc::clone(&self.directory));
        let name = std::mem::take(&mut self.name);
        // A failure leaves litter that the next start sweeps up.
        let remove = move || {
            let _ = device.remove(Entry::new(directory.as_fd(), &name), Kind::File);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// A body on its way into a temporary file.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) staged: Staged,
    pub(crate) ingest: Ingest,
}

impl Writing {
    pub(crate) fn take(&mut self, piece: &Piece) -> Result<(), Error> {
        self.staged.take(piece, &mut self.ingest)
    }

    /// Ends the body.
    pub(crate) fn finish(
        self,
        trailers: Option<&http::HeaderMap>,
    ) -> Result<(Staged, Ingested), Error> {
        Ok((self.staged, self.ingest.finish(trailers)?))
    }
}
