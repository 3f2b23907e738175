//! The trait on a folder.

use std::{io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::Clock;
use forebay_telemetry::disk::DiskMetrics;
use tokio::sync::{Mutex, mpsc};

use crate::{
    device::{Caching, Device, System},
    folder::{Folder, OpenError, Purpose},
    format,
    page_store::{PageId, PageStore, Put, Stats, Unwritten},
    reads::{self, Reads},
    recover,
    settings::DiskSettings,
    shelf::{Found, OnDisk, SharedShelf, Shelf},
    writer::Writer,
};

pub(crate) const PURPOSE: Purpose = Purpose {
    marker: "forebay-disk",
    version: format::VERSION,
    noun: "a cache of Forebay",
    remedy: "use the program that wrote it, or remove the folder: it is a cache",
};

/// The least segments that a capacity has room for.
const SEGMENTS_MIN: u64 = 4;

/// Pages in a folder, see the crate's documentation.
///
/// Dropping it lets its threads end by themselves once all is written; [`PageStore::close`] waits
/// for them.
#[derive(Debug)]
pub struct DiskPages {
    shelf: SharedShelf,
    reads: Arc<Reads>,
    /// Ends when all threads have.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl DiskPages {
    /// Opens a folder, which belongs to this process until all threads have ended. Blocks while it
    /// reads the ends of all segments.
    ///
    /// # Errors
    /// When the folder can't be used, or must not be.
    pub fn open(
        settings: DiskSettings,
        clock: Clock,
        metrics: DiskMetrics,
    ) -> Result<Self, OpenError> {
        let folder = Arc::new(Folder::open(&settings.folder, &PURPOSE)?);
        let device = System::new(&folder, "segment", Caching::Own).map_err(|source| {
            let path = settings.folder.clone();
            OpenError::Unusable { path, source }
        })?;
        Self::open_on(Arc::new(device), settings, clock, metrics)
    }

    pub(crate) fn open_on(
        device: Arc<dyn Device>,
        settings: DiskSettings,
        clock: Clock,
        metrics: DiskMetrics,
    ) -> Result<Self, OpenError> {
        let (capacity_bytes, least_bytes) = (
            settings.capacity_bytes,
            SEGMENTS_MIN * settings.segment_bytes(),
        );
        if capacity_bytes < least_bytes {
            return Err(OpenError::TooSmall {
                capacity_bytes,
                least_bytes,
            });
        }
        let path = settings.folder.clone();
        let unusable = |source: io::Error| OpenError::Unusable {
            path: path.clone(),
            source,
        };
        let threads = settings.read_threads_max.max(1);
        let reads = Arc::new(Reads::new(settings.reads_max));
        let shelf = Arc::new(Shelf::new(settings, clock, metrics));
        recover::recover(&shelf, &*device)?;
        let (running, ended) = mpsc::channel(1);
        let store = Self {
            shelf,
            reads,
            ended: Mutex::new(ended),
        };
        for _ in 0..threads {
            let (reads, shelf) = (Arc::clone(&store.reads), Arc::clone(&store.shelf));
            let (device, running) = (Arc::clone(&device), running.clone());
            std::thread::Builder::new()
                .name("disk-read".to_owned())
                .spawn(move || reads::run(&reads, &shelf, device, running))
                .map_err(unusable)?;
        }
        let writer = Writer::new(Arc::clone(&store.shelf), device);
        std::thread::Builder::new()
            .name("disk-write".to_owned())
            .spawn(move || {
                writer.run();
                drop(running);
            })
            .map_err(unusable)?;
        Ok(store)
    }

    /// Reads an entry, in time or not at all.
    async fn read(&self, entry: OnDisk, id: PageId) -> Option<Bytes> {
        let failed = &self.shelf.metrics.reads_failed;
        let Some(answer) = self.reads.begin(entry) else {
            failed.busy.inc();
            return None;
        };
        let timeout = self.shelf.settings.read_timeout;
        let Ok(answer) = tokio::time::timeout(timeout, answer).await else {
            failed.timeout.inc();
            self.shelf.read_failed();
            return None;
        };
        let cause = match answer.ok()? {
            Ok(read) => {
                if let Some(page) = format::page_in(&read, entry.segment, id) {
                    return Some(Bytes::from(read).slice(page));
                }
                &failed.corrupt
            }
            Err(_) => &failed.error,
        };
        // An entry that was evicted or replaced while it was read is no failure.
        if self.shelf.drop_unreadable(entry) {
            cause.inc();
        }
        None
    }
}

#[async_trait]
impl PageStore for DiskPages {
    async fn get(&self, id: PageId) -> Option<Bytes> {
        let metrics = &self.shelf.metrics;
        let page = match self.shelf.find(id) {
            Found::Nowhere => None,
            Found::Memory(page) => Some(page),
            Found::Broken => {
                metrics.reads_failed.breaker.inc();
                None
            }
            Found::Disk(entry) => {
                let began = self.shelf.clock.now();
                let page = self.read(entry, id).await;
                let took = self.shelf.clock.now() - began;
                if page.is_some() {
                    metrics.read_seconds.observe(took.as_secs_f64());
                }
                page
            }
        };
        match page {
            Some(_) => metrics.hits.inc(),
            None => metrics.misses.inc(),
        };
        page
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        self.shelf.put(id, page)
    }

    fn contains(&self, id: PageId) -> bool {
        self.shelf.contains(id)
    }

    fn remove(&self, id: PageId) {
        self.shelf.remove(id);
    }

    fn stats(&self) -> Stats {
        self.shelf.stats()
    }

    async fn flush(&self) -> Result<(), Unwritten> {
        // The writer has ended: it was closed.
        self.shelf.flush().await.unwrap_or(Err(Unwritten))
    }

    async fn close(&self) -> Result<(), Unwritten> {
        let flushed = self.shelf.flush();
        self.shelf.close();
        self.reads.close();
        // Nothing is ever sent; it ends with the last thread.
        let _ = self.ended.lock().await.recv().await;
        flushed.await.unwrap_or(Err(Unwritten))
    }
}

impl Drop for DiskPages {
    fn drop(&mut self) {
        self.shelf.close();
        self.reads.close();
    }
}
