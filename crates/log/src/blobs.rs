//! Large payloads as files of their own, beside the log.
//!
//! A blob is written in pieces, each on a blocking thread, and synced, with its name, before it has
//! one that anyone knows. Its number begins with that of the life that made it, so no two have the
//! same. A blob that bodies are reading goes when the last of them does.

use std::{
    collections::HashMap,
    future::Future as _,
    io,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::{
    blobs::{BlobId, BlobWriter, Blobs},
    index::Route,
};
use forebay_store::{Body, Error};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    chunks::{self, Blob, CHUNK_BYTES},
    committer::{is_full, signed},
    group::Room,
    log::{Log, slow_down},
    store::Opened,
};

/// Bytes written at once: so that a hop to a blocking thread does not count.
const WRITE_BYTES: usize = 1 << 20;
/// Chunks read at once, 256 KiB: so that a thousand downloads fit into memory.
const READ_CHUNKS: u64 = 4;

/// Large payloads in a folder; durable once `finish` has returned, on the disk of this machine.
#[derive(Debug, Clone)]
pub struct LogBlobs {
    opened: Arc<Opened>,
}

/// Blobs that bodies are reading, by number.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    blobs: Mutex<HashMap<u64, Readers>>,
    made: AtomicU64,
}

#[derive(Debug, Default)]
struct Readers {
    count: usize,
    /// It was removed; its file goes with the last of them.
    is_removed: bool,
}

/// One body's part in that.
struct Reader {
    opened: Arc<Opened>,
    number: u64,
}

impl LogBlobs {
    pub(crate) fn new(opened: Arc<Opened>) -> Self {
        Self { opened }
    }

    fn log(&self) -> &Arc<Log> {
        self.opened.log()
    }
}

impl Reading {
    /// A number that no blob has.
    fn next_number(&self, log: &Log) -> u64 {
        let made = self.made.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX);
        (u64::from(log.life.get()) << 32) | made
    }
}

impl Reader {
    /// A part in a blob's being read; `None` when it is removed.
    fn begin(opened: &Arc<Opened>, number: u64) -> Option<Self> {
        let mut blobs = opened.reading().blobs.lock();
        let readers = blobs.entry(number).or_default();
        if readers.is_removed {
            return None;
        }
        readers.count += 1;
        Some(Self {
            opened: Arc::clone(opened),
            number,
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut blobs = self.opened.reading().blobs.lock();
        let Some(readers) = blobs.get_mut(&self.number) else {
            return;
        };
        readers.count -= 1;
        if readers.count == 0 {
            let is_removed = readers.is_removed;
            blobs.remove(&self.number);
            if is_removed {
                self.opened.log().stock.remove_blob(self.number);
            }
        }
    }
}

#[async_trait]
impl Blobs for LogBlobs {
    async fn create(&self, _route: &Route) -> Result<Box<dyn BlobWriter>, Error> {
        let log = self.log();
        log.check_poison()?;
        check_room(log)?;
        let number = self.opened.reading().next_number(log);
        Ok(Box::new(Writer {
            opened: Arc::clone(&self.opened),
            blob: Blob { number, length: 0 },
            buffer: Vec::new(),
            state: State::Unmade,
        }))
    }

    async fn read(&self, _route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error> {
        let found = Blob::of(&blob.0).filter(|found| span.end <= found.length);
        let reader = found.and_then(|found| Reader::begin(&self.opened, found.number));
        let (Some(blob), Some(reader)) = (found, reader) else {
            return Err(Error::internal("read a blob", "it is not there"));
        };
        Ok(Body::stream(BlobBody {
            reader: Arc::new(reader),
            blob,
            span,
            ready: Vec::new(),
            reading: None,
        }))
    }

    async fn remove(&self, _route: &Route, blob: &BlobId) -> Result<(), Error> {
        let Some(blob) = Blob::of(&blob.0) else {
            return Ok(());
        };
        {
            let mut blobs = self.opened.reading().blobs.lock();
            if let Some(readers) = blobs.get_mut(&blob.number) {
                readers.is_removed = true;
                return Ok(());
            }
        }
        let log = Arc::clone(self.log());
        let removed = tokio::task::spawn_blocking(move || remove_now(&log, blob));
        removed
            .await
            .map_err(|error| Error::internal("remove a blob", error))?
            .map_err(|error| Error::internal("remove a blob", error))
    }
}

fn check_room(log: &Log) -> Result<(), Error> {
    match log.room() {
        Room::Enough => Ok(()),
        Room::None => {
            log.metrics.refused.disk.inc();
            log.stock.retry();
            Err(slow_down())
        }
    }
}

fn remove_now(log: &Log, blob: Blob) -> io::Result<()> {
    // Of one that is gone already, the bytes are counted as gone.
    let is_there = log.devices.blobs.read(blob.number, 0, 1).is_ok();
    log.devices.blobs.remove(blob.number)?;
    if is_there {
        count(log, 0, blob.file_bytes());
    }
    log.stock.retry();
    Ok(())
}

/// Counts bytes of blobs that came and went.
pub(crate) fn count(log: &Log, more: u64, less: u64) {
    let next = |bytes: u64| Some((bytes + more).saturating_sub(less));
    let order = Ordering::Relaxed;
    let _ = log.blobs_bytes.fetch_update(order, order, next);
    let bytes = log.blobs_bytes.load(order);
    log.metrics.blobs_bytes.set(signed(bytes));
}

/// How far a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no file.
    Unmade,
    Made,
    /// It has its name, and is nobody's to remove here.
    Finished,
}

struct Writer {
    opened: Arc<Opened>,
    /// Its length is what was written.
    blob: Blob,
    /// Whole chunks, but for the last.
    buffer: Vec<u8>,
    state: State,
}

impl Writer {
    /// Writes what has come.
    async fn flush(&mut self) -> Result<(), Error> {
        check_room(self.opened.log())?;
        let bytes = std::mem::take(&mut self.buffer);
        let (log, before, is_made) = (
            Arc::clone(self.opened.log()),
            self.blob,
            self.state != State::Unmade,
        );
        self.blob.length += bytes.len() as u64;
        // Set before the file is there: whoever drops this from here on has it removed.
        self.state = State::Made;
        let written = tokio::task::spawn_blocking(move || {
            let device = &log.devices.blobs;
            if !is_made {
                device.make(before.number, 0)?;
            }
            let first = before.length / CHUNK_BYTES;
            let mut file = Vec::with_capacity(bytes.len() + 8 * (WRITE_BYTES >> 16) + 8);
            chunks::push(&mut file, before.number, first, &bytes);
            let written = device.write(before.number, before.file_bytes(), &file);
            count(&log, file.len() as u64, 0);
            written
        });
        self.told(written.await)
    }

    /// What a failed call means to the client.
    fn told(&self, done: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), Error> {
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_full(&error) => {
                self.opened.log().metrics.refused.disk.inc();
                Err(slow_down())
            }
            Ok(Err(error)) => Err(Error::Unavailable {
                reason: format!("a large payload can't be written: {error}").into(),
            }),
            Err(error) => Err(Error::internal("write a blob", error)),
        }
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let room = WRITE_BYTES - self.buffer.len();
            let piece = bytes.split_to(room.min(bytes.len()));
            self.buffer.extend_from_slice(&piece);
            if self.buffer.len() == WRITE_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<BlobId, Error> {
        if !self.buffer.is_empty() || self.state == State::Unmade {
            self.flush().await?;
        }
        let (log, number) = (Arc::clone(self.opened.log()), self.blob.number);
        log.check_poison()?;
        let synced = tokio::task::spawn_blocking(move || {
            let synced = log.devices.blobs.sync(number);
            if let Err(error) = &synced {
                log.set_poison("sync a large payload", error);
            }
            synced
        });
        self.told(synced.await)?;
        self.state = State::Finished;
        Ok(BlobId(self.blob.id()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match self.state {
            State::Made => {
                let log = self.opened.log();
                count(log, 0, self.blob.file_bytes());
                log.stock.remove_blob(self.blob.number);
            }
            State::Unmade | State::Finished => {}
        }
    }
}

/// Bytes of a blob, a few chunks at a time.
struct BlobBody {
    reader: Arc<Reader>,
    blob: Blob,
    /// What is left to be read.
    span: Range<u64>,
    /// Pieces that are read, the last one first.
    ready: Vec<Bytes>,
    reading: Option<JoinHandle<Result<Vec<Bytes>, Error>>>,
}

/// Bytes that one read of `span` brings.
fn next_end(span: &Range<u64>) -> u64 {
    let last = span.start / CHUNK_BYTES + READ_CHUNKS;
    span.end.min(last * CHUNK_BYTES)
}

/// Reads and checks the chunks that hold `span`; the last piece comes first.
fn read_now(log: &Log, blob: Blob, span: &Range<u64>) -> Result<Vec<Bytes>, Error> {
    let cut = |reason: String| Error::Cut {
        reason: reason.into(),
    };
    let first = span.start / CHUNK_BYTES;
    let count = span.end.div_ceil(CHUNK_BYTES) - first;
    let at = blob.chunks_at(first, count);
    let read = log
        .devices
        .blobs
        .read(blob.number, at.start, at.end - at.start);
    let read = read.map_err(|error| cut(format!("a large payload can't be read: {error}")))?;
    let Some(found) = chunks::read(&read, blob.number, first) else {
        log.quarantine(
            format!("blob {}", blob.id()).as_bytes(),
            0,
            "a chunk of it is damaged",
        );
        return Err(cut(format!("blob {} is damaged", blob.id())));
    };
    let (read, mut pieces) = (Bytes::from(read), Vec::with_capacity(found.len()));
    for (index, place) in (first..).zip(found) {
        let start = index * CHUNK_BYTES;
        let skipped = span.start.saturating_sub(start);
        let kept = span.end.min(start + place.len() as u64) - start;
        let within = |at: u64| place.start + usize::try_from(at).expect("within a chunk");
        pieces.push(read.slice(within(skipped)..within(kept)));
    }
    pieces.reverse();
    Ok(pieces)
}

impl HttpBody for BlobBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(piece) = self.ready.pop() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.span.is_empty() {
            return Poll::Ready(None);
        }
        let span = self.span.start..next_end(&self.span);
        let (reader, blob) = (Arc::clone(&self.reader), self.blob);
        let wanted = span.clone();
        let reading = self.reading.get_or_insert_with(|| {
            tokio::task::spawn_blocking(move || read_now(reader.opened.log(), blob, &wanted))
        });
        let read = match ready!(Pin::new(reading).poll(cx)) {
            Ok(read) => read,
            Err(error) => Err(Error::internal("read a blob", error)),
        };
        self.reading = None;
        match read {
            Ok(pieces) => {
                self.span.start = span.end;
                self.ready = pieces;
                Poll::Ready(self.ready.pop().map(|piece| Ok(Frame::data(piece))))
            }
            Err(error) => {
                self.span.start = self.span.end;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let ready: usize = self.ready.iter().map(Bytes::len).sum();
        SizeHint::with_exact(self.span.end - self.span.start + ready as u64)
    }
}
