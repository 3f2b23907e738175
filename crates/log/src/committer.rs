//! The thread that writes: all batches that wait become one write and one sync.
//!
//! While the disk syncs a group, the next gathers in the queue. A group is visible to readers and
//! acknowledged once it is durable, and not before. Nothing but the disk is waited for here, and
//! the next segment, which the keeper has ready.

use std::{collections::VecDeque, io, sync::Arc, sync::atomic::Ordering, time::Duration};

use forebay_native::index::Applied;
use forebay_store::Error;
use tokio::sync::oneshot;

use crate::{
    format::{self, SEGMENT_HEAD_BYTES, SegmentHead, SegmentNumber},
    group::{Full, Group, Limits, Puts, Start},
    log::{Job, Log, slow_down},
};

/// Bytes of a group, but for a batch that is larger: 4 ms of a disk that writes 2 GB/s, so that the
/// first of a group does not wait long for the last.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// The part of a sync's time that writers of the last group are waited for; a lone writer is not.
/// A guess: a quarter more at worst, and half at best (`examples/puts.rs`).
const GATHER_SHARE: u32 = 4;
/// And no longer than this, however slow the disk is.
const GATHER_TIME_MAX: Duration = Duration::from_millis(1);

/// The part of a segment that only deletes and compaction may fill.
const RESERVE_SHARE: u64 = 8;

/// Where the log goes on.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) segment: SegmentNumber,
    /// Where the next group goes.
    pub(crate) end: u32,
    /// The head of the segment, while it is not written.
    pub(crate) head: Option<SegmentHead>,
    /// Checksum of the last record head.
    pub(crate) chain: u64,
    /// Of the segment.
    pub(crate) salt: u64,
    /// Of the next batch.
    pub(crate) sequence: u64,
}

/// The thread's own.
pub(crate) struct Committer {
    log: Arc<Log>,
    tail: Tail,
    /// A failed write has left the segment: nothing more goes there.
    is_spoilt: bool,
    /// Memory of the last group, for the next.
    buffer: Vec<u8>,
    /// Batches in the last group, and how long its sync took.
    last_count: usize,
    sync_took: Duration,
}

/// Who is told what, once a group is durable.
enum Reply {
    Applied(oneshot::Sender<Result<Applied, Error>>, Applied),
    Moved(oneshot::Sender<Result<usize, Error>>, usize),
}

impl Reply {
    fn send(self, failed: Option<&dyn Fn() -> Error>) {
        // Whoever asked may have left.
        match self {
            Self::Applied(reply, applied) => {
                let _ = reply.send(failed.map_or(Ok(applied), |error| Err(error())));
            }
            Self::Moved(reply, count) => {
                let _ = reply.send(failed.map_or(Ok(count), |error| Err(error())));
            }
        }
    }
}

impl Committer {
    pub(crate) fn new(log: Arc<Log>, tail: Tail) -> Self {
        Self {
            log,
            tail,
            is_spoilt: false,
            buffer: Vec::new(),
            last_count: 0,
            sync_took: Duration::ZERO,
        }
    }

    /// What the thread does until the log is closed.
    pub(crate) fn run(mut self) {
        let log = Arc::clone(&self.log);
        let mut jobs = VecDeque::new();
        while log.queue.take(&mut jobs) {
            self.gather(&mut jobs);
            self.round(&mut jobs);
        }
    }

    /// Waits a little for writers that were in the last group: they have just been answered, and
    /// if the first of them started a sync alone, all others would wait for two.
    fn gather(&self, jobs: &mut VecDeque<Job>) {
        let wait_max = (self.sync_took / GATHER_SHARE).min(GATHER_TIME_MAX);
        if jobs.len() < self.last_count && !wait_max.is_zero() {
            self.log.queue.gather(jobs, self.last_count, wait_max);
        }
    }

    /// Makes one group of the first jobs.
    fn round(&mut self, jobs: &mut VecDeque<Job>) {
        let mut group = self.begin();
        let mut replies = Vec::new();
        let limits = Limits {
            room: self.log.room(),
            index_bytes_max: self.log.settings.index_bytes_max,
        };
        while let Some(job) = jobs.front() {
            if let Err(error) = self.log.check_poison() {
                refuse(jobs.pop_front(), &error);
                continue;
            }
            let bytes_max = job.bytes_max();
            let is_large = group.buffer.len() + bytes_max > GROUP_BYTES_MAX;
            let must_rotate = match job {
                Job::Rotate(_) => !self.is_fresh() || !group.is_empty(),
                Job::Apply(work, _) if work.puts == Puts::Some => {
                    !self.fits(&group, bytes_max + self.reserve_bytes())
                }
                Job::Apply(..) | Job::Move { .. } => !self.fits(&group, bytes_max),
            };
            if !group.is_empty() && (is_large || must_rotate) {
                break;
            }
            if must_rotate {
                // What was judged so far has changed nothing, and keeps its numbers.
                self.tail.sequence = group.sequence;
                if let Err(error) = self.rotate() {
                    refuse(jobs.pop_front(), &error);
                    continue;
                }
                group = self.begin();
            }
            match jobs.pop_front() {
                Some(Job::Apply(work, reply)) => {
                    let map = self.log.map.read();
                    match group.take(&map, &work, limits) {
                        Ok(applied) => replies.push(Reply::Applied(reply, applied)),
                        Err(full) => {
                            drop(map);
                            self.tell_full(full);
                            let _ = reply.send(Err(slow_down()));
                        }
                    }
                }
                Some(Job::Move {
                    moved,
                    counters,
                    reply,
                }) => {
                    let map = self.log.map.read();
                    let count = group.take_moved(&map, &moved, &counters);
                    replies.push(Reply::Moved(reply, count));
                }
                Some(Job::Rotate(reply)) => {
                    self.tail.sequence = group.sequence;
                    let written = self.write_head();
                    group = self.begin();
                    let _ = reply.send(written.map_err(|_| indeterminate()));
                }
                None => {}
            }
        }
        self.end(group, replies);
    }

    /// A group that goes where the last ended.
    fn begin(&mut self) -> Group {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() > 2 * GROUP_BYTES_MAX {
            // One large batch need not be paid for ever after.
            buffer = Vec::new();
        }
        buffer.clear();
        if let Some(head) = &self.tail.head {
            buffer.extend(head.write());
        }
        let start = Start {
            segment: self.tail.segment,
            offset: self.tail.end,
            chain: self.tail.chain,
            salt: self.tail.salt,
            sequence: self.tail.sequence,
        };
        Group::new(start, buffer)
    }

    /// Whether the segment is durable and has nothing in it.
    fn is_fresh(&self) -> bool {
        self.tail.head.is_none() && self.tail.end as usize == SEGMENT_HEAD_BYTES
    }

    /// Bytes of each segment for what makes room: when the disk is full, and there is no next
    /// segment, deletes and compaction go on in this one.
    fn reserve_bytes(&self) -> usize {
        usize::try_from(self.log.settings.segment_bytes / RESERVE_SHARE).unwrap_or(usize::MAX)
    }

    /// Whether a record of so many bytes still goes into the segment. One that is larger than a
    /// segment has one of its own.
    fn fits(&self, group: &Group, bytes_max: usize) -> bool {
        let used_bytes = self.tail.end as usize + group.buffer.len();
        let is_unused = used_bytes <= SEGMENT_HEAD_BYTES;
        let end = used_bytes.saturating_add(bytes_max) as u64;
        !self.is_spoilt && (is_unused || end <= self.log.settings.segment_bytes)
    }

    /// Writes a group, makes it durable, shows it, and acknowledges it.
    fn end(&mut self, mut group: Group, replies: Vec<Reply>) {
        if group.is_empty() {
            self.tail.sequence = group.sequence;
            self.buffer = group.buffer;
            for reply in replies {
                reply.send(None);
            }
            return;
        }
        let buffer = std::mem::take(&mut group.buffer);
        let written = self.write(&buffer);
        if let Err(failed) = written {
            self.buffer = buffer;
            let error: &dyn Fn() -> Error = match failed {
                Failed::Full => {
                    self.tell_full(Full::Disk);
                    &slow_down
                }
                Failed::Poisoned => &indeterminate,
            };
            for reply in replies {
                reply.send(Some(error));
            }
            return;
        }
        self.last_count = replies.len();
        let log = Arc::clone(&self.log);
        log.metrics.group_batches.observe(f64::from(group.count));
        (self.tail.chain, self.tail.sequence) = (group.chain, group.sequence);
        log.sequence_next.store(group.sequence, Ordering::Relaxed);
        let mut map = log.map.write();
        group.publish(&mut map);
        let usage = map.usage(self.tail.segment);
        usage.file_bytes = log.settings.segment_bytes.max(u64::from(self.tail.end));
        log.metrics.entries.set(signed(map.len() as u64));
        log.metrics.index_bytes.set(signed(map.memory_bytes()));
        log.metrics.live_bytes.set(signed(map.live_bytes()));
        drop(map);
        for reply in replies {
            reply.send(None);
        }
        log.metrics.written_bytes.inc_by(buffer.len() as u64);
        self.buffer = buffer;
        log.compaction.poke(&log);
    }

    /// Writes bytes at the end and syncs them.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let (segment, offset) = (self.tail.segment.get().into(), self.tail.end.into());
        let device = &self.log.devices.segments;
        if let Err(error) = device.write(segment, offset, bytes) {
            let is_full = is_full(&error);
            // Nothing of it may come to light later: the segment ends here.
            let cut = device.resize(segment, offset);
            let cut = cut.and_then(|()| device.sync(segment));
            self.is_spoilt = true;
            return match cut {
                Ok(()) if is_full => Err(Failed::Full),
                Ok(()) | Err(_) => {
                    self.log.set_poison("write to the log", &error);
                    Err(Failed::Poisoned)
                }
            };
        }
        let start = self.log.clock.now();
        let synced = device.sync(segment);
        let took = self.log.clock.now().saturating_duration_since(start);
        self.log.metrics.sync_seconds.observe(took.as_secs_f64());
        self.sync_took = took;
        if let Err(error) = synced {
            self.log.set_poison("sync the log", &error);
            return Err(Failed::Poisoned);
        }
        self.tail.head = None;
        let length = u32::try_from(bytes.len()).expect("groups are limited");
        self.tail.end += length;
        Ok(())
    }

    /// Goes on in the next segment.
    fn rotate(&mut self) -> Result<(), Error> {
        let next = match self.log.stock.take() {
            Ok(next) => next,
            Err(error) if is_full(&error) => {
                self.tell_full(Full::Disk);
                return Err(slow_down());
            }
            Err(error) => {
                self.log.stock.retry();
                let reason = format!("the next segment of the log can't be made: {error}");
                return Err(Error::Unavailable {
                    reason: reason.into(),
                });
            }
        };
        let left = self.tail.segment;
        let salt = format::salt(self.log.clock.wall(), next, self.tail.chain);
        let head = if let Some(head) = self.tail.head {
            // Nothing was written to it, as its first write failed.
            self.log.stock.discard(left);
            SegmentHead {
                segment: next,
                sequence: self.tail.sequence,
                salt,
                ..head
            }
        } else {
            self.log.stock.seal(left, self.tail.end);
            SegmentHead {
                segment: next,
                sequence: self.tail.sequence,
                previous: Some(left),
                previous_end: self.tail.end.into(),
                chain: self.tail.chain,
                salt,
            }
        };
        let mut map = self.log.map.write();
        if self.tail.head.is_some() {
            map.forget(left);
        }
        map.usage(next).file_bytes = self.log.settings.segment_bytes;
        drop(map);
        self.is_spoilt = false;
        self.tail.segment = next;
        self.tail.end = 0;
        self.tail.head = Some(head);
        self.tail.salt = salt;
        Ok(())
    }

    /// Makes a segment durable that has nothing in it yet.
    fn write_head(&mut self) -> Result<(), Failed> {
        match self.tail.head {
            Some(head) => self.write(&head.write()),
            None => Ok(()),
        }
    }

    fn tell_full(&self, full: Full) {
        match full {
            Full::Disk => {
                self.log.metrics.refused.disk.inc();
                self.log.stock.retry();
                self.log.compaction.poke(&self.log);
            }
            Full::Index => {
                self.log.metrics.refused.index.inc();
            }
        }
    }
}

/// Why a group was not made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// There was no room; none of it is there.
    Full,
    /// The disk failed; it may be there.
    Poisoned,
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn indeterminate() -> Error {
    Error::Indeterminate {
        elapsed: Duration::ZERO,
    }
}

/// A number for a gauge.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Tells whoever asked that it was not done.
fn refuse(job: Option<Job>, error: &Error) {
    let again = || match error {
        Error::SlowDown { retry_after } => Error::SlowDown {
            retry_after: *retry_after,
        },
        other => Error::Unavailable {
            reason: other.to_string().into(),
        },
    };
    match job {
        Some(Job::Apply(_, reply)) => drop(reply.send(Err(again()))),
        Some(Job::Move { reply, .. }) => drop(reply.send(Err(again()))),
        Some(Job::Rotate(reply)) => drop(reply.send(Err(again()))),
        None => {}
    }
}
