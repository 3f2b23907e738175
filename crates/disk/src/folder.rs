//! Whose folder it is: made, recognised and locked before anything in it is touched.
//!
//! A file named for what the folder is (`forebay-disk`) marks it as ours and carries the lock.
//! Nothing else is ever removed than files that are named as segments are, in a folder that is
//! marked.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

/// What a folder is for.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    /// The file that marks it, and its first word.
    pub marker: &'static str,
    /// Of all formats in it.
    pub version: u32,
    /// What it is, for people: "a cache of Forebay".
    pub noun: &'static str,
    /// What to do with one of a version that this program does not know.
    pub remedy: &'static str,
}

/// What file systems put into an empty one.
const LOST_AND_FOUND: &str = "lost+found";
/// The marker is a few dozen bytes.
const MARKER_BYTES_MAX: u64 = 256;

/// Why a folder can't keep pages.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be made, opened or read.
    #[error("open {path}")]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{path} is in use by process {holder}; give each gateway a folder of its own")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Its process id, as that process wrote it.
        holder: String,
    },
    /// There are files in it that the store has not made.
    #[error("{path} is not empty and not {noun} ({found} is in it); name an empty folder")]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// What it should be.
        noun: &'static str,
        /// One of the files.
        found: String,
    },
    /// A newer version of this program has written it.
    #[error("{path} has format {found}, and this program knows {known}; {remedy}")]
    UnknownVersion {
        /// The folder.
        path: PathBuf,
        /// The version that this program knows.
        known: u32,
        /// What to do.
        remedy: &'static str,
        /// What it says of its version.
        found: String,
    },
    /// There is not room for four of the largest pages.
    #[error("{capacity_bytes} bytes are too few: at least {least_bytes}")]
    TooSmall {
        /// The capacity asked for.
        capacity_bytes: u64,
        /// The least that works.
        least_bytes: u64,
    },
}

/// A folder that belongs to this process until it is dropped.
#[derive(Debug)]
pub struct Folder {
    /// Open for reading names.
    pub(crate) directory: OwnedFd,
    /// Holds the lock until it is dropped.
    pub(crate) _marker: File,
}

impl Folder {
    /// Makes or opens, checks and locks the folder.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, purpose: &Purpose) -> Result<Self, OpenError> {
        let unusable = |error: Errno| OpenError::Unusable {
            path: path.to_owned(),
            source: error.into(),
        };
        match rustix::fs::mkdir(path, Mode::from_bits_truncate(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(unusable(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(unusable)?;
        if let Some(found) = stranger(&directory, purpose.marker).map_err(unusable)? {
            let (path, noun) = (path.to_owned(), purpose.noun);
            return Err(OpenError::Foreign { path, noun, found });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_bits_truncate(0o600);
        let marker =
            rustix::fs::openat(&directory, purpose.marker, flags, mode).map_err(unusable)?;
        let locked = rustix::fs::flock(&marker, FlockOperation::NonBlockingLockExclusive);
        let marker = File::from(marker);
        let mut text = String::new();
        let read = (&marker).take(MARKER_BYTES_MAX).read_to_string(&mut text);
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = text.lines().find_map(|line| line.strip_prefix("pid "));
                return Err(OpenError::Locked {
                    path: path.to_owned(),
                    holder: holder.unwrap_or("unknown").to_owned(),
                });
            }
            Err(error) => return Err(unusable(error)),
        }
        let first = format!("{} {}", purpose.marker, purpose.version);
        // An empty one is what a crash may have left of the first start.
        let is_known = text.is_empty() || text.lines().next() == Some(&first);
        if read.is_err() || !is_known {
            return Err(OpenError::UnknownVersion {
                path: path.to_owned(),
                known: purpose.version,
                remedy: purpose.remedy,
                found: format!("{:?}", text.lines().next().unwrap_or_default()),
            });
        }
        let now = format!("{first}\npid {}\n", std::process::id());
        let io_error = |source| OpenError::Unusable {
            path: path.to_owned(),
            source,
        };
        marker.write_all_at(now.as_bytes(), 0).map_err(io_error)?;
        marker.set_len(now.len() as u64).map_err(io_error)?;
        Ok(Self {
            directory,
            _marker: marker,
        })
    }
}

/// A name in a folder without a marker that nobody but others can have made.
fn stranger(directory: &OwnedFd, marker: &str) -> Result<Option<String>, Errno> {
    let mut found = None;
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        match name.as_str() {
            name if name == marker => return Ok(None),
            "." | ".." | LOST_AND_FOUND => {}
            _ => found = Some(name),
        }
    }
    Ok(found)
}
