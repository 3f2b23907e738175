//! What an operator chooses about a log.

use std::path::PathBuf;

use forebay_native::Settings;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Settings of a [`crate::LogStore`].
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The folder; made when it is not there, but not its parents.
    pub folder: PathBuf,
    /// Bytes of a segment, from which the next is begun. A smaller one makes room sooner.
    pub segment_bytes: u64,
    /// Bytes of the largest payload that lies in the log; larger ones are files of their own.
    pub payload_bytes_max: usize,
    /// Bytes that segments, tables and blobs take at most, two segments held ready included. Beyond
    /// it writes are refused with `SlowDown`; deletes go on. `None` is what the disk has.
    pub bytes_max: Option<u64>,
    /// Memory that names take at most. Beyond it new names are refused with `SlowDown`; what is
    /// there can be overwritten and deleted. An entry takes 96 bytes and its name.
    pub index_bytes_max: u64,
    /// Bytes of batches that may wait to be written; more are refused with `SlowDown`.
    pub queue_bytes_max: u64,
    /// What to do when it opens and finds damage that hides names.
    pub on_unnamed_damage: OnUnnamedDamage,
    /// What clients are told.
    pub native: Settings,
}

/// What to do about damage whose keys are not known: older versions of them, or deleted ones, may
/// be all that is left of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnnamedDamage {
    /// Do not open.
    #[default]
    Refuse,
    /// Open with what is left, and say so.
    Lose,
}

impl LogSettings {
    /// The defaults for a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            // 50,000 objects of 1 KiB; scanned in 50 ms after a crash.
            segment_bytes: 64 * MIB,
            payload_bytes_max: 1 << 20,
            bytes_max: None,
            // Some 6 million names of 80 bytes.
            index_bytes_max: GIB,
            queue_bytes_max: 64 * MIB,
            on_unnamed_damage: OnUnnamedDamage::default(),
            native: Settings::default(),
        }
    }
}
