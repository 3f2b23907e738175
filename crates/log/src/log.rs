//! What the threads of a log and its readers share.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_disk::device::Device;
use forebay_native::index::Applied;
use forebay_store::{Clock, Error};
use forebay_telemetry::log::LogMetrics;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::oneshot;

use crate::{
    compact::Compaction,
    format::SegmentNumber,
    group::{Moved, Room, Work},
    keeper::Stock,
    map::Map,
    settings::LogSettings,
};

/// Names that are remembered as damaged; of more, only their number is.
const QUARANTINED_MAX: usize = 10_000;
/// What a client is told to wait for when there is no room: room is made within seconds or not.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The parts of the folder.
#[derive(Debug, Clone)]
pub(crate) struct Devices {
    pub(crate) segments: Arc<dyn Device>,
    pub(crate) tables: Arc<dyn Device>,
    pub(crate) blobs: Arc<dyn Device>,
}

/// All that is shared.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) settings: LogSettings,
    pub(crate) clock: Clock,
    pub(crate) metrics: LogMetrics,
    pub(crate) devices: Devices,
    pub(crate) map: RwLock<Map>,
    pub(crate) queue: Queue,
    pub(crate) stock: Stock,
    pub(crate) compaction: Compaction,
    pub(crate) quarantine: Mutex<Quarantine>,
    /// Number of the segment with which this life began: no other life has it.
    pub(crate) life: SegmentNumber,
    pub(crate) blobs_bytes: AtomicU64,
    /// The least that no batch has.
    pub(crate) sequence_next: AtomicU64,
    poison: OnceLock<String>,
}

/// What the committer is asked to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Apply a batch.
    Apply(Work, oneshot::Sender<Result<Applied, Error>>),
    /// Move entries, and counters, out of a segment that is to go; gives how many entries moved.
    Move {
        moved: Vec<Moved>,
        counters: Vec<Box<[u8]>>,
        reply: oneshot::Sender<Result<usize, Error>>,
    },
    /// Leave the open segment, and make the next durable.
    Rotate(oneshot::Sender<Result<(), Error>>),
}

/// What waits for the committer.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    work: Condvar,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: u64,
    /// The committer sleeps until there are so many.
    wake_at: Option<usize>,
    is_closed: bool,
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotQueued {
    Full,
    /// Nobody is there to do it.
    Closed,
}

/// What was found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    pub(crate) sequence: u64,
    pub(crate) found: String,
}

/// Entries that were found damaged.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// By name. What was written again since is there still, with the sequence of before.
    pub(crate) names: BTreeMap<Box<[u8]>, Damaged>,
    /// Those that found no room above.
    pub(crate) more_count: u64,
}

impl Log {
    pub(crate) fn new(
        settings: LogSettings,
        clock: Clock,
        metrics: LogMetrics,
        devices: Devices,
        opened: (Map, SegmentNumber, u64),
    ) -> Self {
        let (map, life, sequence_next) = opened;
        Self {
            queue: Queue {
                state: Mutex::default(),
                work: Condvar::new(),
                bytes_max: settings.queue_bytes_max,
            },
            stock: Stock::new(life),
            compaction: Compaction::default(),
            quarantine: Mutex::default(),
            map: RwLock::new(map),
            blobs_bytes: AtomicU64::new(0),
            sequence_next: AtomicU64::new(sequence_next),
            poison: OnceLock::new(),
            settings,
            clock,
            metrics,
            devices,
            life,
        }
    }

    /// Whether the disk failed, and how.
    pub(crate) fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Acknowledges nothing from now on: after a failed sync nobody knows what is on the disk.
    pub(crate) fn set_poison(&self, doing: &str, error: &io::Error) {
        if self.poison.set(format!("{doing}: {error}")).is_ok() {
            self.metrics.poisoned.set(1);
            tracing::error!(
                folder = %self.settings.folder.display(),
                %doing,
                %error,
                "the disk of a log failed; no write is taken until the program is started anew"
            );
        }
    }

    /// Refuses, if the disk failed.
    pub(crate) fn check_poison(&self) -> Result<(), Error> {
        match self.poison() {
            None => Ok(()),
            Some(reason) => Err(Error::Unavailable {
                reason: format!("the log takes no writes since its disk failed: {reason}").into(),
            }),
        }
    }

    /// Bytes of all files, and of a segment that is held ready.
    pub(crate) fn used_bytes(&self) -> u64 {
        let files_bytes = self.map.read().file_bytes();
        files_bytes + self.settings.segment_bytes + self.blobs_bytes.load(Ordering::Relaxed)
    }

    /// Whether entries and blobs may be written.
    pub(crate) fn room(&self) -> Room {
        let bytes_max = self.settings.bytes_max;
        let is_over = bytes_max.is_some_and(|max| self.used_bytes() >= max);
        if is_over || self.stock.is_full() {
            Room::None
        } else {
            Room::Enough
        }
    }

    /// Remembers that what was written at this sequence is damaged, and says so once; blobs have
    /// sequence 0.
    pub(crate) fn quarantine(&self, name: &[u8], sequence: u64, found: &str) {
        let mut quarantine = self.quarantine.lock();
        let known = quarantine.names.get(name);
        if known.is_some_and(|known| known.sequence == sequence) {
            return;
        }
        if known.is_some() || quarantine.names.len() < QUARANTINED_MAX {
            let found = found.to_owned();
            let damaged = Damaged { sequence, found };
            quarantine.names.insert(name.into(), damaged);
        } else {
            quarantine.more_count += 1;
        }
        self.metrics.quarantined.inc();
        drop(quarantine);
        let name = name.escape_ascii();
        tracing::error!(%name, %found, "an entry of a log is damaged and is not served");
    }
}

/// What a client is told that finds no room.
pub(crate) fn slow_down() -> Error {
    Error::SlowDown {
        retry_after: Some(RETRY_AFTER),
    }
}

/// What a client is told when the log is closed.
pub(crate) fn closed() -> Error {
    Error::Unavailable {
        reason: "the log is closed".into(),
    }
}

impl Job {
    /// Bytes that its record takes at most.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Apply(work, _) => work.bytes_max,
            Self::Move {
                moved, counters, ..
            } => {
                let counters: usize = counters.iter().map(|name| name.len() + 64).sum();
                moved.iter().map(Moved::bytes_max).sum::<usize>() + counters + 64
            }
            Self::Rotate(_) => 0,
        }
    }
}

impl Waiting {
    fn move_to(&mut self, jobs: &mut VecDeque<Job>) {
        jobs.append(&mut self.jobs);
        self.bytes = 0;
    }
}

impl Queue {
    /// Puts a job at the end.
    pub(crate) fn push(&self, job: Job) -> Result<(), NotQueued> {
        let bytes = job.bytes_max() as u64;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(NotQueued::Closed);
        }
        // One that is larger than the room goes alone.
        if state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            return Err(NotQueued::Full);
        }
        state.bytes += bytes;
        state.jobs.push_back(job);
        let wake = state.wake_at.is_some_and(|count| state.jobs.len() >= count);
        if wake {
            state.wake_at = None;
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Moves all that waits to the end of `jobs`, and waits for some if there are none; `false`
    /// when none will come.
    pub(crate) fn take(&self, jobs: &mut VecDeque<Job>) -> bool {
        let mut state = self.state.lock();
        loop {
            state.move_to(jobs);
            if !jobs.is_empty() || state.is_closed {
                return !jobs.is_empty();
            }
            state.wake_at = Some(1);
            self.work.wait(&mut state);
        }
    }

    /// Waits until `jobs` and those that come are so many, for so long at most.
    pub(crate) fn gather(&self, jobs: &mut VecDeque<Job>, count: usize, wait_max: Duration) {
        let mut state = self.state.lock();
        let missing = count.saturating_sub(jobs.len());
        if state.jobs.len() < missing && !state.is_closed {
            state.wake_at = Some(missing);
            // Woken early or late, the group is made of what is there.
            let _ = self.work.wait_for(&mut state, wait_max);
            state.wake_at = None;
        }
        state.move_to(jobs);
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.work.notify_all();
    }
}
