//! What an operator chooses about pages on disk.

use std::{path::PathBuf, time::Duration};

use crate::format::{self, ENTRY_HEAD_BYTES, SEGMENT_BYTES_MAX, SEGMENT_HEAD_BYTES};

const MIB: u64 = 1024 * 1024;

/// One segment is a 256th of the capacity, so that less than a half per cent of it lies idle.
const SEGMENTS_OF_CAPACITY: u64 = 256;

/// Settings of a [`crate::DiskPages`].
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The folder; made when it is not there, but not its parents.
    pub folder: PathBuf,
    /// Bytes that the folder's files take at most. At least room for four of the largest pages.
    pub capacity_bytes: u64,
    /// Bytes of the largest page, up to 16 MiB and a little.
    pub page_bytes_max: u64,
    /// Pages at most. Each takes 17 to 40 bytes of memory.
    pub entries_max: u64,
    /// Bytes that may wait to be written.
    pub queue_bytes_max: u64,
    /// Bytes that may be written in a day, those of pages written once more included. A 24th of it
    /// may be written at once. `None` is no limit.
    pub written_bytes_per_day_max: Option<u64>,
    /// How long a read may take before it is a miss.
    pub read_timeout: Duration,
    /// Reads that may be under way; one more is a miss at once.
    pub reads_max: usize,
    /// Threads that read.
    pub read_threads_max: usize,
    /// Failures in a row, of reads or of writes, after which the disk is left alone.
    pub failures_max: u32,
    /// For how long it is, until one attempt is made.
    pub retry_after: Duration,
}

impl DiskSettings {
    /// The defaults for a folder and a capacity.
    pub fn new(folder: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            capacity_bytes,
            // A page of the largest size, with room for what is known of its object.
            page_bytes_max: 16 * MIB + 64 * 1024,
            // At most 160 MB of index.
            entries_max: 4_000_000,
            queue_bytes_max: 64 * MIB,
            written_bytes_per_day_max: None,
            read_timeout: Duration::from_millis(500),
            reads_max: 256,
            // A guess: NVMe devices need about so many readers for half of their speed.
            read_threads_max: 8,
            failures_max: 5,
            retry_after: Duration::from_secs(5),
        }
    }

    /// Size of a new segment: a 256th of the capacity, but room for a page of the largest size, and
    /// no more than can be scanned in a moment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let entry = format::padded(ENTRY_HEAD_BYTES + self.page_bytes_max);
        // A segment with one entry has a footer with one item.
        let least = SEGMENT_HEAD_BYTES + entry + format::footer_bytes(1);
        (self.capacity_bytes / SEGMENTS_OF_CAPACITY)
            .max(least)
            .min(SEGMENT_BYTES_MAX)
            .next_multiple_of(format::BLOCK_BYTES)
    }
}
