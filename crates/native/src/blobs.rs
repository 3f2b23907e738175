//! Large payloads: written once, read in pieces, removed when nothing refers to them any more.
//!
//! The engine writes a blob first and then an entry of the [`crate::index::Index`] that names it.
//! A blob that no entry names (its writer died between the two) is found and removed by the
//! implementation, not by the engine.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Body, Error};

use crate::index::Route;

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

    /// Bytes `span` of a blob; the engine asks only for what is within it.
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
