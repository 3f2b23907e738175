//! How a directory is used as a store.

use std::path::PathBuf;

use forebay_native::Settings;

/// Settings of an [`crate::FsStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsSettings {
    /// The directory; made when it is not there, but not its parents.
    pub root: PathBuf,
    /// What a write waits for.
    pub durability: Durability,
    /// Where records are kept.
    pub records: RecordPlace,
    /// What clients are told.
    pub native: Settings,
}

/// What a write waits for before it is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The file and its directory are on stable storage.
    #[default]
    Sync,
    /// The kernel has it: a crash of the machine may lose or tear the latest writes.
    None,
}

/// Where the records of objects are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordPlace {
    /// In an extended attribute, and in a sidecar where that is not possible.
    #[default]
    Attribute,
    /// Always in a sidecar, for file systems and backups that lose attributes.
    Sidecar,
}

impl FsSettings {
    /// The defaults for this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            durability: Durability::default(),
            records: RecordPlace::default(),
            native: Settings::default(),
        }
    }
}
