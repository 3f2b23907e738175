//! Opening a folder as a log, and as a store.

use std::{
    pin::Pin,
    sync::Arc,
    thread::{Builder, JoinHandle},
};

use forebay_disk::{
    device::{Caching, System},
    folder::{Folder, Purpose},
};
use forebay_native::{Indexed, Native, leases::Fence, memory::MemoryLeases};
use forebay_store::{Clock, Error, Request, Response, Store};
use forebay_telemetry::log::LogMetrics;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    blobs::{LogBlobs, Reading},
    committer::{Committer, Tail},
    compact, format,
    index::LogIndex,
    keeper,
    log::{Devices, Job, Log},
    reads,
    recover::{self, OpenError},
    settings::LogSettings,
    sweep,
};

const PURPOSE: Purpose = Purpose {
    marker: "forebay-log",
    version: format::VERSION,
    noun: "a log of Forebay",
    remedy: "use the program that wrote it",
};

/// A log as a store of its own.
#[derive(Debug)]
pub struct LogStore {
    native: Native<Indexed<LogIndex, LogBlobs>>,
    parts: LogParts,
}

/// An opened log, for whoever builds on its parts; clones are of one log.
///
/// The last clone to be dropped, of this or of its parts, closes the log and waits for it, a few
/// milliseconds; so does [`LogParts::close`], on a thread that may block.
#[derive(Debug, Clone)]
pub struct LogParts {
    /// Small things, in order.
    pub index: Arc<LogIndex>,
    /// Large payloads.
    pub blobs: Arc<LogBlobs>,
    /// Leases among the tasks of this process, which is the only one.
    pub leases: Arc<MemoryLeases>,
    pub(crate) opened: Arc<Opened>,
}

/// A log with its threads.
#[derive(Debug)]
pub(crate) struct Opened {
    log: Arc<Log>,
    reading: Reading,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    committer: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl LogStore {
    /// Opens a folder, and makes it if need be.
    ///
    /// Blocks while it reads the tables of all segments; meant for the start of a program.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        settings: LogSettings,
        clock: Clock,
        metrics: LogMetrics,
    ) -> Result<Self, OpenError> {
        let native = settings.native.clone();
        let parts = LogParts::open(settings, clock.clone(), metrics)?;
        Ok(Self::of(parts, clock, native))
    }

    /// A store over an opened log.
    pub fn of(parts: LogParts, clock: Clock, settings: forebay_native::Settings) -> Self {
        let (index, blobs) = ((*parts.index).clone(), (*parts.blobs).clone());
        let engine = Indexed::new(index, blobs, clock.clone());
        Self {
            native: Native::new(engine, clock, settings),
            parts,
        }
    }

    /// The log within.
    pub fn parts(&self) -> &LogParts {
        &self.parts
    }
}

impl Store for LogStore {
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

impl LogParts {
    /// Opens a folder; see [`LogStore::open`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        settings: LogSettings,
        clock: Clock,
        metrics: LogMetrics,
    ) -> Result<Self, OpenError> {
        let path = settings.folder.clone();
        let folder = Arc::new(Folder::open(&path, &PURPOSE)?);
        let of_io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        let segments = System::new(&folder, "segment", Caching::Kernel).map_err(of_io)?;
        let tables = System::new(&folder, "table", Caching::Kernel).map_err(of_io)?;
        let blobs = System::within(&folder, "blobs", "blob", Caching::Kernel).map_err(of_io)?;
        let devices = Devices {
            segments: Arc::new(segments),
            tables: Arc::new(tables),
            blobs: Arc::new(blobs),
        };
        Self::open_on(devices, settings, clock, metrics)
    }

    /// The same on other devices.
    pub(crate) fn open_on(
        devices: Devices,
        settings: LogSettings,
        clock: Clock,
        metrics: LogMetrics,
    ) -> Result<Self, OpenError> {
        let path = settings.folder.clone();
        let recovered = recover::recover(&devices, &settings, clock.wall())
            .map_err(|broken| broken.told(path.clone()))?;
        let tail = recovered.tail;
        let life = tail.segment;
        // Fences of this life are larger than those of all before.
        let fence = Fence(u64::from(life.get()) << 32);
        let leases = MemoryLeases::after(clock.clone(), fence);
        let opened = (recovered.map, life, tail.sequence);
        let log = Arc::new(Log::new(settings, clock, metrics, devices, opened));
        for name in recovered.damaged {
            reads::check_now(&log, &name);
        }
        let opened = Opened::start(log, tail).map_err(|source| OpenError::Io { path, source })?;
        Ok(Self {
            index: Arc::new(LogIndex::new(Arc::clone(&opened))),
            blobs: Arc::new(LogBlobs::new(Arc::clone(&opened))),
            leases: Arc::new(leases),
            opened,
        })
    }

    /// Seals and closes the log. What comes later is refused; reads go on.
    pub async fn close(&self) {
        let opened = Arc::clone(&self.opened);
        // It can fail only when a thread has panicked, which has told of itself.
        let _told = tokio::task::spawn_blocking(move || opened.close()).await;
    }
}

impl Opened {
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    fn start(log: Arc<Log>, tail: Tail) -> std::io::Result<Arc<Self>> {
        let opened = Self {
            log: Arc::clone(&log),
            reading: Reading::default(),
            threads: Mutex::default(),
        };
        let committer = Committer::new(Arc::clone(&log), tail);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name.to_owned()).spawn(run)
        };
        let mut threads = opened.threads.lock();
        threads.committer = Some(spawn("log-commit", Box::new(|| committer.run()))?);
        let keeping = Arc::clone(&log);
        let kept = spawn("log-keep", Box::new(move || keeper::run(&keeping)))?;
        threads.others.push(kept);
        let compacting = Arc::clone(&log);
        let compacted = spawn("log-compact", Box::new(move || compact::run(&compacting)))?;
        threads.others.push(compacted);
        let swept = spawn("log-sweep", Box::new(move || sweep::run(&log)))?;
        threads.others.push(swept);
        drop(threads);
        Ok(Arc::new(opened))
    }

    /// Lets the threads end once all is written and sealed, and waits for them.
    fn close(&self) {
        let mut threads = self.threads.lock();
        let Some(committer) = threads.committer.take() else {
            return;
        };
        self.log.compaction.close();
        let (reply, _nobody) = oneshot::channel();
        // With a full queue the last segment is scanned at the next start.
        let _ = self.log.queue.push(Job::Rotate(reply));
        self.log.queue.close();
        let mut ended = committer.join().is_ok();
        self.log.stock.close();
        for thread in threads.others.drain(..) {
            ended &= thread.join().is_ok();
        }
        if !ended {
            tracing::error!("a thread of a log has panicked");
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.close();
    }
}
