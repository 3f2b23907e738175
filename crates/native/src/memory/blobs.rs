//! [`Blobs`] in memory.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Body, Error};
use parking_lot::Mutex;

use crate::{
    blobs::{BlobId, BlobWriter, Blobs},
    index::Route,
};

/// Blobs that are gone when the process ends; only memory limits them.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    blobs: HashMap<BlobId, Vec<Bytes>>,
    count: u64,
}

#[derive(Debug)]
struct Writer {
    kept: Arc<Mutex<Kept>>,
    pieces: Vec<Bytes>,
}

impl MemoryBlobs {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ids of all blobs, in any order.
    pub fn ids(&self) -> Vec<BlobId> {
        self.kept.lock().blobs.keys().cloned().collect()
    }
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn create(&self, _route: &Route) -> Result<Box<dyn BlobWriter>, Error> {
        Ok(Box::new(Writer {
            kept: Arc::clone(&self.kept),
            pieces: Vec::new(),
        }))
    }

    async fn read(&self, _route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error> {
        let kept = self.kept.lock();
        let pieces = kept.blobs.get(blob).ok_or_else(|| Error::Cut {
            reason: "the blob is gone".into(),
        })?;
        Ok(Body::pieces(slice(pieces, span)))
    }

    async fn remove(&self, _route: &Route, blob: &BlobId) -> Result<(), Error> {
        self.kept.lock().blobs.remove(blob);
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.pieces.push(bytes);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<BlobId, Error> {
        let mut kept = self.kept.lock();
        kept.count += 1;
        let id = BlobId(format!("{:016x}", kept.count));
        kept.blobs.insert(id.clone(), self.pieces);
        Ok(id)
    }
}

/// The bytes `span` of these pieces.
fn slice(pieces: &[Bytes], span: Range<u64>) -> VecDeque<Bytes> {
    let mut found = VecDeque::new();
    let mut start = 0_u64;
    for piece in pieces {
        let end = start + piece.len() as u64;
        let within = span.start.max(start)..span.end.min(end);
        if within.start < within.end {
            let at = |place: u64| usize::try_from(place - start).unwrap_or(piece.len());
            found.push_back(piece.slice(at(within.start)..at(within.end)));
        }
        start = end;
    }
    found
}
