//! Pages on disk: what the cache keeps beyond its memory.
//!
//! [`DiskPages`] maps a [`PageId`] to bytes and knows nothing of S3. It is a log of segments in one
//! folder (docs/formats.md): entries are appended by one thread, the oldest segment makes room,
//! and what was used since it was written is written once more. A restart reads the end of each
//! segment and is ready.
//!
//! A fault of the disk is a miss. Nobody waits for it: a read is given up after `read_timeout`, so
//! many may be under way, a put takes a place in a queue or is refused, and a disk that keeps
//! failing is left alone for a while.
//!
//! | module | knows |
//! |---|---|
//! | [`page_store`] | the trait and its contract |
//! | `store`, `settings` | the trait on a folder; what an operator chooses |
//! | `shelf` | what is where at this moment, under one lock |
//! | `index`, `breaker`, `budget` | rules and tables, pure |
//! | `reads` | threads that read |
//! | `writer`, `recover` | the thread that writes, seals and evicts; what an earlier one left |
//! | `format` | bytes of segments, pure |
//! | [`device`], [`folder`] | every call to the disk; whose folder it is: also for other logs |
//! | `sim` | a disk that crashes, fails, fills up and hangs, for tests |

mod breaker;
mod budget;
pub mod device;
pub mod folder;
mod format;
mod index;
pub mod page_store;
mod reads;
mod recover;
mod settings;
mod shelf;
mod store;
mod writer;

#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod promises;
#[cfg(any(test, feature = "testing"))]
pub mod sim;

#[cfg(test)]
mod tests;

pub use folder::OpenError;
pub use page_store::{PageId, PageStore, Put, Refusal, Stats, Unwritten};
pub use settings::DiskSettings;
pub use store::DiskPages;
