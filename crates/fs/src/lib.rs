//! A directory tree as a store: buckets are directories, keys are paths, objects are files.
//!
//! People can look at the tree, copy files out of it and put files into it. What S3 knows of an
//! object besides its bytes is in an extended attribute of the file, or in a sidecar file; a file
//! without either is an object all the same. docs/formats.md describes the layout.
//!
//! - A put is a temporary file, synced, renamed into place, and its directory synced: after a
//!   crash there is the old object or the new one, and what was acknowledged is there.
//! - A read holds its file open, so an overwrite during it does not mix versions.
//! - Every path is resolved beneath the root and no symbolic link is followed.
//! - Every call to the disk is made on a blocking thread: a small object's read, and all of a
//!   small write after its body has come, are one such hop.
//! - A listing reads the directories it needs, in key order, and no others.
//!
//! One process at a time owns a root (an advisory lock on the directory). The file system must
//! tell upper from lower case and keep names byte for byte.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | keys to paths and back, whatever the key |
//! | `tree`, `device` | directories beneath the root, by descriptor; all that changes them |
//! | `record` | records in extended attributes and sidecars |
//! | `objects`, `staged`, `body` | reads, atomic writes, deletes |
//! | `walk`, `windows` | keys in order, and sorted pieces of large directories |
//! | `uploads`, `buckets` | multipart uploads; buckets |
//! | `engine` | all of it as an engine of `forebay-native` |

mod body;
mod buckets;
mod device;
mod engine;
mod fault;
mod locks;
pub mod names;
mod objects;
mod record;
mod settings;
mod staged;
mod store;
mod tree;
mod uploads;
mod walk;
mod windows;

#[cfg(test)]
mod tests;

pub use settings::{Durability, FsSettings, RecordPlace};
pub use store::{FsStore, OpenError};
