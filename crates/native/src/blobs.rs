//! Large payloads: written once, read in pieces, removed when nothing refers to them any more.
//!
//! The engine writes a blob first and then an entry of the [`crate::index::Index`] that names it.
//!
//! **Which blobs are live.** A blob lives while an entry names it; `crate::indexed::References`
//! walks the index and gives the ids of all that do. The engine removes a blob once the entry that
//! named it is durably gone. What it could not remove (its process ended between the two, or
//! before the entry was written) is swept by the implementation, which lists its blobs *first*,
//! walks the references after, and removes those that it listed and nobody named. A blob is
//! named within [`UNNAMED_TIME_MAX`] of its `finish` or never, so younger ones are let be; an
//! implementation that has one process alone may sweep all of them when it opens, before any
//! write.

use std::{ops::Range, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Body, Error};

use crate::index::Route;

/// Time from `finish` to the entry that names a blob: the engine writes the entry at once, so this
/// is ample for a slow index; a guess.
pub const UNNAMED_TIME_MAX: Duration = Duration::from_hours(1);

/// Names a blob in its store, printable, at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobId(pub String);

/// Keeps large payloads.
///
/// Contract, checked for every implementation by `contract::blobs`:
/// - A blob is readable once `finish` has returned, and durable to the same degree as an entry.
/// - A writer that is dropped leaves nothing readable, and its bytes are removed in time.
/// - A body under way when its blob is removed gives the right bytes to its end, or is cut.
/// - Bytes are checked when they are read: damage cuts the body, wrong bytes are never given.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Begins a blob for an entry of this route.
    async fn create(&self, route: &Route) -> Result<Box<dyn BlobWriter>, Error>;

    /// Bytes `span` of a blob; the engine asks only for what is within it, and never for none. A
    /// blob that is not there is an error, now or in the body: the engine looks whether its entry
    /// has changed meanwhile.
    async fn read(&self, route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error>;

    /// Removes a blob; absent is success.
    async fn remove(&self, route: &Route, blob: &BlobId) -> Result<(), Error>;
}

/// A blob being written.
#[async_trait]
pub trait BlobWriter: Send {
    /// Appends bytes.
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error>;

    /// Makes it durable, and names it.
    async fn finish(self: Box<Self>) -> Result<BlobId, Error>;
}
