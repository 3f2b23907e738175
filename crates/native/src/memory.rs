//! What engines are built on, in memory: every rule in its plainest form, under one lock each.
//!
//! [`MemoryStore`], the engine over it, is the reference model for the tests of all other stores
//! and of every layer, and a store for whoever wants one that forgets when the process ends. It
//! holds every object whole; only memory limits it.

mod blobs;
mod index;
mod leases;
#[cfg(test)]
mod tests;

use std::pin::Pin;

use forebay_store::{Clock, Error, Request, Response, Store};

use crate::{Indexed, Native, Settings};

pub use blobs::MemoryBlobs;
pub use index::MemoryIndex;
pub use leases::MemoryLeases;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    native: Native<Indexed<MemoryIndex, MemoryBlobs>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: Clock) -> Self {
        let engine = Indexed::new(MemoryIndex::new(), MemoryBlobs::new(), clock.clone());
        Self {
            native: Native::new(engine, clock, Settings::default()),
        }
    }
}

impl Store for MemoryStore {
    /// Written as `async_trait` writes it, so that no second future is boxed around the first.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.native.call(request)
    }
}
