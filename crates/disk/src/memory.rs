//! A store of pages in memory, for tests of who uses one.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::page_store::{PageId, PageStore, Put, Refusal, Stats, Unwritten};

/// Pages in a map; it forgets nothing until it is closed, and then all.
#[derive(Debug)]
pub struct MemoryPages {
    /// `None` once it is closed.
    pages: Mutex<Option<HashMap<PageId, Bytes>>>,
}

impl MemoryPages {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            pages: Mutex::new(Some(HashMap::new())),
        }
    }
}

impl Default for MemoryPages {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl PageStore for MemoryPages {
    async fn get(&self, id: PageId) -> Option<Bytes> {
        self.pages.lock().as_ref()?.get(&id).cloned()
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        match self.pages.lock().as_mut() {
            Some(pages) => {
                pages.insert(id, page);
                Put::Taken
            }
            None => Put::Refused(Refusal::Closed),
        }
    }

    fn contains(&self, id: PageId) -> bool {
        let pages = self.pages.lock();
        pages.as_ref().is_some_and(|pages| pages.contains_key(&id))
    }

    fn remove(&self, id: PageId) {
        if let Some(pages) = self.pages.lock().as_mut() {
            pages.remove(&id);
        }
    }

    fn stats(&self) -> Stats {
        let pages = self.pages.lock();
        let Some(pages) = pages.as_ref() else {
            return Stats::default();
        };
        Stats {
            entries: pages.len() as u64,
            used_bytes: pages.values().map(|page| page.len() as u64).sum(),
            index_bytes: 0,
        }
    }

    async fn flush(&self) -> Result<(), Unwritten> {
        match *self.pages.lock() {
            Some(_) => Ok(()),
            None => Err(Unwritten),
        }
    }

    async fn close(&self) -> Result<(), Unwritten> {
        self.pages.lock().take().map_or(Err(Unwritten), |_| Ok(()))
    }
}
