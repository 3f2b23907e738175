//! Large payloads, in chunks of 256 KiB under keys of their own.
//!
//! A chunk is written with a time to live and so goes by itself when its writer dies; `finish` puts
//! the blob on its shard's list, and takes the time away from all chunks. A removed blob gets one
//! again, of minutes, so that readers under way finish or are cut, and leaves the list, so that
//! nobody begins to read it. Whatever has chunks that stay is on the list, so none is lost sight of
//! where a process ends in the middle. Each chunk carries a checksum, judged on every read.
//!
//! The chunks of a blob lie in the shard of the entry that will name it. Chunks travel over
//! connections of their own, so that no small command waits behind one.

mod reader;

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_native::{
    blobs::{BlobId, BlobWriter, Blobs},
    index::Route,
};
use forebay_store::{Body, Clock, Error};
use futures_util::stream::FuturesOrdered;
use redis::{Pipeline, Value};
use tokio::time::Instant;

use self::reader::Reader;
use crate::{
    entry::checksum,
    fleet::Fleet,
    index::bytes_of,
    keys::{Keys, Shard},
    node::Lane,
    send::{Effect, Sending},
};

/// Bytes of a chunk, but for the last of a blob.
///
/// 256 KiB: as much as an entry keeps; a server reads or writes it in about a tenth of a
/// millisecond.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Bytes before a chunk's own: its checksum.
const HEAD_BYTES: usize = 8;
/// Time to live of a chunk whose blob is being written; renewed as long as that goes on.
///
/// 1 h: as long as a slow client may pause at most, and it is a leak for as long.
const UNFINISHED_TIME: Duration = Duration::from_hours(1);
/// Time to live of a chunk whose blob was removed.
///
/// 5 min: 100 MB at 3 Mbit/s; a slower reader is cut.
const REMOVED_TIME: Duration = Duration::from_mins(5);
/// Keys of one exchange that changes times to live.
const KEYS_MAX: u64 = 512;

/// Large payloads, in Redis.
#[derive(Debug, Clone)]
pub struct RedisBlobs {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) clock: Clock,
}

/// Makes names that no other gateway makes: 128 bits that a keyed hash of the operating system's
/// randomness gives.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    halves: [RandomState; 2],
    count: AtomicU64,
}

impl Ids {
    pub(crate) fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [first, second] = &self.halves;
        format!(
            "{:016x}{:016x}",
            first.hash_one(count),
            second.hash_one(count)
        )
    }
}

/// What a blob's name says: 32 hex digits of its own, a dash, and its bytes in hex.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    id: String,
    bytes: u64,
}

impl Named {
    fn read(name: &str) -> Option<Self> {
        let (id, bytes) = name.split_once('-')?;
        let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let bytes = u64::from_str_radix(bytes, 16).ok()?;
        is_id.then(|| Self {
            id: id.to_owned(),
            bytes,
        })
    }

    fn name(&self) -> BlobId {
        BlobId(format!("{}-{:x}", self.id, self.bytes))
    }

    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK_BYTES as u64)
    }

    /// Bytes of a chunk.
    fn chunk_bytes(&self, index: u64) -> u64 {
        (self.bytes - index * CHUNK_BYTES as u64).min(CHUNK_BYTES as u64)
    }
}

impl RedisBlobs {
    fn sending(&self, shard: Shard, lane: Lane) -> Sending<'_> {
        Sending {
            slot: self.keys.slot(shard),
            lane,
            effect: Effect::Repeatable,
            seconds: &self.fleet.metrics().seconds.blob,
        }
    }

    /// One chunk, whole and right; the first one of a body is judged by the list as well.
    async fn chunk(
        &self,
        shard: Shard,
        named: &Named,
        index: u64,
        turn: Turn,
    ) -> Result<Bytes, Error> {
        let mut commands = Pipeline::with_capacity(2);
        commands
            .cmd("GET")
            .arg(self.keys.chunk(shard, &named.id, index));
        if turn == Turn::First {
            let BlobId(name) = named.name();
            commands.cmd("ZSCORE").arg(self.keys.blobs(shard)).arg(name);
        }
        let sending = self.sending(shard, Lane::Blob);
        let mut answers = self.fleet.send(sending, &commands).await?.into_iter();
        let chunk = answers.next().and_then(bytes_of);
        let is_listed = answers.next().is_none_or(|score| score != Value::Nil);
        let Some(bytes) = chunk.filter(|_| is_listed) else {
            return Err(Error::Cut {
                reason: "the payload was removed".into(),
            });
        };
        let (head, chunk) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or_else(|| self.fleet.damaged())?;
        let is_right =
            chunk.len() as u64 == named.chunk_bytes(index) && head == checksum(chunk).to_be_bytes();
        if is_right {
            Ok(bytes.slice(HEAD_BYTES..))
        } else {
            Err(self.fleet.damaged())
        }
    }

    /// Gives some chunks a time to live, or takes it away.
    async fn retime(
        &self,
        shard: Shard,
        id: &str,
        chunks: Range<u64>,
        time: Option<Duration>,
    ) -> Result<(), Error> {
        let mut from = chunks.start;
        while from < chunks.end {
            let to = (from + KEYS_MAX).min(chunks.end);
            let mut commands = Pipeline::new();
            for index in from..to {
                let key = self.keys.chunk(shard, id, index);
                match time {
                    Some(time) => commands.cmd("PEXPIRE").arg(key).arg(millis(time)),
                    None => commands.cmd("PERSIST").arg(key),
                };
            }
            self.fleet
                .send(self.sending(shard, Lane::Blob), &commands)
                .await?;
            from = to;
        }
        Ok(())
    }

    /// How many chunks of a blob are there.
    async fn count(&self, shard: Shard, named: &Named) -> Result<u64, Error> {
        let (mut there, mut from) = (0, 0);
        while from < named.chunks() {
            let to = (from + KEYS_MAX).min(named.chunks());
            let mut command = Pipeline::with_capacity(1);
            command.cmd("EXISTS");
            for index in from..to {
                command.arg(self.keys.chunk(shard, &named.id, index));
            }
            let answers = self
                .fleet
                .send(self.sending(shard, Lane::Blob), &command)
                .await?;
            match answers.first() {
                Some(Value::Int(count)) => there += u64::try_from(*count).unwrap_or(0),
                _ => return Err(self.fleet.nonsense()),
            }
            from = to;
        }
        Ok(there)
    }

    /// Puts a blob on the list, or renews its time there.
    async fn list(&self, shard: Shard, named: &Named, lane: Lane) -> Result<(), Error> {
        let BlobId(name) = named.name();
        let mut command = Pipeline::with_capacity(1);
        let key = self.keys.blobs(shard);
        command
            .cmd("ZADD")
            .arg(key)
            .arg(self.clock.unix_seconds())
            .arg(name);
        self.fleet.send(self.sending(shard, lane), &command).await?;
        Ok(())
    }

    /// Blobs of a shard that were finished before a time in Unix seconds.
    pub(crate) async fn finished_before(
        &self,
        shard: Shard,
        unix_seconds: i64,
    ) -> Result<Vec<BlobId>, Error> {
        let mut command = Pipeline::with_capacity(1);
        let key = self.keys.blobs(shard);
        command
            .cmd("ZRANGEBYSCORE")
            .arg(key)
            .arg("-inf")
            .arg(format!("({unix_seconds}"));
        let answers = self
            .fleet
            .send(self.sending(shard, Lane::Small), &command)
            .await?;
        let Some(Value::Array(names)) = answers.into_iter().next() else {
            return Err(self.fleet.nonsense());
        };
        let name = |bytes: Bytes| String::from_utf8(bytes.to_vec()).ok().map(BlobId);
        Ok(names
            .into_iter()
            .filter_map(bytes_of)
            .filter_map(name)
            .collect())
    }

    /// Removes a blob of a shard; absent is success.
    pub(crate) async fn remove_from(&self, shard: Shard, blob: &BlobId) -> Result<(), Error> {
        let Some(named) = Named::read(&blob.0) else {
            return Ok(());
        };
        self.retime(shard, &named.id, 0..named.chunks(), Some(REMOVED_TIME))
            .await?;
        let mut command = Pipeline::with_capacity(1);
        command
            .cmd("ZREM")
            .arg(self.keys.blobs(shard))
            .arg(blob.0.as_str());
        self.fleet
            .send(self.sending(shard, Lane::Small), &command)
            .await?;
        Ok(())
    }
}

/// Which chunk of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Later,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Blobs for RedisBlobs {
    async fn create(&self, route: &Route) -> Result<Box<dyn BlobWriter>, Error> {
        Ok(Box::new(Writer {
            blobs: self.clone(),
            shard: Shard::of(route),
            id: self.ids.next(),
            chunk: BytesMut::new(),
            chunks: 0,
            bytes: 0,
            renewed: Instant::now(),
        }))
    }

    async fn read(&self, route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error> {
        let named = Named::read(&blob.0)
            .filter(|named| span.start <= span.end && span.end <= named.bytes)
            .ok_or_else(|| self.fleet.damaged())?;
        if span.is_empty() {
            return Ok(Body::empty());
        }
        let (shard, size) = (Shard::of(route), CHUNK_BYTES as u64);
        let chunks = span.start / size..span.end.div_ceil(size);
        // A blob that was removed is told now, so that who asked can look for the one in its place.
        let first = self.chunk(shard, &named, chunks.start, Turn::First).await?;
        Ok(Body::stream(Reader {
            blobs: self.clone(),
            shard,
            named: Arc::new(named),
            chunks: chunks.start + 1..chunks.end,
            first: Some(first),
            skip: usize::try_from(span.start % size).expect("less than a chunk"),
            left: span.end - span.start,
            ahead: FuturesOrdered::new(),
        }))
    }

    async fn remove(&self, route: &Route, blob: &BlobId) -> Result<(), Error> {
        self.remove_from(Shard::of(route), blob).await
    }
}

/// A blob being written.
struct Writer {
    blobs: RedisBlobs,
    shard: Shard,
    id: String,
    /// The chunk that is being filled, room for its checksum first; empty before its first byte.
    chunk: BytesMut,
    /// Chunks that are in Redis.
    chunks: u64,
    bytes: u64,
    /// When all chunks got their time to live.
    renewed: Instant,
}

impl Writer {
    async fn flush(&mut self) -> Result<(), Error> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let (head, bytes) = chunk.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&checksum(bytes).to_be_bytes());
        let mut command = Pipeline::with_capacity(1);
        let key = self.blobs.keys.chunk(self.shard, &self.id, self.chunks);
        command
            .cmd("SET")
            .arg(key)
            .arg(&chunk[..])
            .arg("PX")
            .arg(millis(UNFINISHED_TIME));
        let sending = self.blobs.sending(self.shard, Lane::Blob);
        self.blobs.fleet.send(sending, &command).await?;
        self.chunks += 1;
        if self.renewed.elapsed() > UNFINISHED_TIME / 4 {
            let time = Some(UNFINISHED_TIME);
            self.blobs
                .retime(self.shard, &self.id, 0..self.chunks, time)
                .await?;
            self.renewed = Instant::now();
        }
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            if self.chunk.is_empty() {
                self.chunk.reserve(HEAD_BYTES + CHUNK_BYTES);
                self.chunk.extend_from_slice(&[0; HEAD_BYTES]);
            }
            let room = HEAD_BYTES + CHUNK_BYTES - self.chunk.len();
            let piece = bytes.split_to(room.min(bytes.len()));
            self.chunk.extend_from_slice(&piece);
            self.bytes += piece.len() as u64;
            if piece.len() == room {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<BlobId, Error> {
        if !self.chunk.is_empty() {
            self.flush().await?;
        }
        let named = Named {
            id: self.id.clone(),
            bytes: self.bytes,
        };
        let (blobs, shard) = (&self.blobs, self.shard);
        blobs.list(shard, &named, Lane::Small).await?;
        blobs
            .retime(shard, &named.id, 0..named.chunks(), None)
            .await?;
        // A failover may have lost chunks, and a writer that slept too long as well.
        if blobs.count(shard, &named).await? != named.chunks() {
            return Err(Error::Unavailable {
                reason: "Redis: it lost a part of the payload".into(),
            });
        }
        // What is acknowledged as durable now, on replicas too, came after all the chunks.
        blobs.list(shard, &named, Lane::Durable).await?;
        Ok(named.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_long_a_blob_is() {
        let named = Named {
            id: Ids::default().next(),
            bytes: 600_000,
        };
        let BlobId(name) = named.name();
        assert!(name.len() <= 64);
        assert_eq!(Named::read(&name), Some(named.clone()));
        assert_eq!(named.chunks(), 3);
        let sizes = [0, 1, 2].map(|index| named.chunk_bytes(index));
        assert_eq!(sizes, [262_144, 262_144, 75_712]);
    }

    #[test]
    fn what_is_no_name_is_told() {
        for name in ["", "-", "abc-1", "00000000000000000000000000000000-x"] {
            assert_eq!(Named::read(name), None, "{name}");
        }
    }
}
