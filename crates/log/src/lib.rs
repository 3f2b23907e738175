//! An embedded store: a log of segments with group commit, its index in memory.
//!
//! [`LogStore`] is S3's semantics (`forebay-native`) over [`LogIndex`] and [`LogBlobs`] in one
//! folder, which belongs to one process. Whatever is acknowledged is on the disk: one thread writes
//! all batches that wait as one and syncs once. docs/formats.md describes every byte.
//!
//! - **The log is the truth.** A record is one batch, payloads included, so it happens as a whole
//!   or not at all. What a crash left of the last group is cut; damage before it is told, by key
//!   where it is known, and never served.
//! - **The index** is in memory, names and places alone. It is read from a table beside each
//!   segment when the log opens; only the last segment is scanned.
//! - **A failed sync** ends all writes until the next start: nobody knows what is on the disk.
//!   Reads go on. A full disk refuses writes before they are acknowledged, and takes them again
//!   when there is room.
//! - **Large payloads** are files of their own, in chunks with a checksum each.
//! - **Compaction** moves what lives in the oldest segment to the end, in small steps.
//!
//! | module | knows |
//! |---|---|
//! | `store`, [`LogParts`], `operate` | opening and closing; what operators ask |
//! | `index`, `blobs`, `reads` | the contracts of `forebay-native` |
//! | `group`, `committer` | batches that become one write; the thread that makes it |
//! | `keeper`, `compact`, `sweep` | the next segment, tables; making room; litter of a crash |
//! | `recover`, `scan` | what an earlier life left |
//! | `map` | what is where, in memory |
//! | `format`, `table`, `chunks` | bytes of segments, tables and blobs, pure |
//!
//! All calls to the disk go through `forebay_disk::device`, which tests simulate.

mod blobs;
mod chunks;
mod committer;
mod compact;
mod format;
mod group;
mod index;
mod keeper;
mod log;
mod map;
mod operate;
mod reads;
mod recover;
mod scan;
mod settings;
mod store;
mod sweep;
mod table;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests;

pub use blobs::LogBlobs;
pub use index::LogIndex;
pub use operate::{Stats, Verified};
pub use recover::OpenError;
pub use settings::{LogSettings, OnUnnamedDamage};
pub use store::{LogParts, LogStore};
