//! What an operator asks of a log: `verify`, `stats`, `compact`, and to let damaged entries go.
//!
//! All of it blocks, or reads much; it is made on blocking threads.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Change, Expect, Index as _, Route, Sequence};
use forebay_store::Error;
use tokio::sync::oneshot;

use crate::{
    chunks::{self, Blob},
    format::SegmentNumber,
    log::{Damaged, Job, Log},
    map::{Slot, State},
    reads::{self, Fault},
    store::LogParts,
};

/// Entries that are looked up under one lock.
const STEP_ENTRIES: usize = 1000;
/// Chunks of a blob that are checked at once.
const STEP_CHUNKS: u64 = 16;

/// The state of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Files of the log.
    pub segments: u64,
    /// Bytes of them and their tables.
    pub segments_bytes: u64,
    /// Bytes that entries point to.
    pub live_bytes: u64,
    /// Bytes that compaction could give back.
    pub garbage_bytes: u64,
    /// Bytes of large payloads.
    pub blobs_bytes: u64,
    /// Entries of the index.
    pub entries: u64,
    /// Memory that the index takes.
    pub index_bytes: u64,
    /// The least sequence that no batch has.
    pub sequence_next: u64,
    /// Why no write is taken, if none is.
    pub poisoned: Option<String>,
    /// Entries found damaged, by name, and what was found; the first 10,000.
    pub quarantined: BTreeMap<Bytes, String>,
    /// Those beyond.
    pub quarantined_more: u64,
}

/// What a check of all that is kept has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries that were read and are whole.
    pub entries: u64,
    /// Large payloads that are whole.
    pub blobs: u64,
    /// Damaged entries by name, and damaged blobs by id: what was found.
    pub damaged: BTreeMap<Bytes, String>,
}

impl LogParts {
    /// The state at this moment.
    pub fn stats(&self) -> Stats {
        let log = self.opened.log();
        let map = log.map.read();
        let (segments_bytes, live_bytes) = (map.file_bytes(), map.live_bytes());
        let sealed = map
            .segments()
            .filter(|(_, usage)| usage.state == State::Sealed);
        let sealed_bytes: u64 = sealed
            .map(|(_, usage)| usage.file_bytes.saturating_sub(usage.live_bytes))
            .sum();
        let (segments, entries) = (map.segments().count() as u64, map.len() as u64);
        let index_bytes = map.memory_bytes();
        drop(map);
        let quarantined = self.quarantined().into_iter();
        Stats {
            segments,
            segments_bytes,
            live_bytes,
            garbage_bytes: sealed_bytes,
            blobs_bytes: log.blobs_bytes.load(std::sync::atomic::Ordering::Relaxed),
            entries,
            index_bytes,
            sequence_next: log.sequence_next.load(std::sync::atomic::Ordering::Relaxed),
            poisoned: log.poison().map(str::to_owned),
            quarantined: quarantined
                .map(|(name, damaged)| (name, damaged.found))
                .collect(),
            quarantined_more: log.quarantine.lock().more_count,
        }
    }

    /// Reads and checks all entries with their payloads, and all large payloads.
    ///
    /// # Errors
    /// When the disk does not answer.
    pub async fn verify(&self) -> Result<Verified, Error> {
        let log = Arc::clone(self.opened.log());
        tokio::task::spawn_blocking(move || verify_now(&log))
            .await
            .map_err(|error| Error::internal("verify the log", error))?
    }

    /// Leaves the open segment, and compacts all that there are now.
    ///
    /// # Errors
    /// When the disk failed, or has no room.
    pub async fn compact(&self) -> Result<Stats, Error> {
        let last = self.leave().await?;
        let log = Arc::clone(self.opened.log());
        let compacted = tokio::task::spawn_blocking(move || {
            log.stock.wait_for_seals();
            last.map_or(Ok(()), |last| log.compaction.run_through(last))
        });
        compacted
            .await
            .map_err(|error| Error::internal("compact the log", error))?
            .map_err(|reason| Error::Unavailable {
                reason: reason.into(),
            })?;
        Ok(self.stats())
    }

    /// Deletes all entries that are known to be damaged, whatever they were; gives their names.
    ///
    /// # Errors
    /// Those of any write.
    pub async fn discard_damaged(&self) -> Result<Vec<Bytes>, Error> {
        let mut discarded = Vec::new();
        for (name, damaged) in self.quarantined() {
            if damaged.sequence == 0 {
                continue;
            }
            let batch = Batch {
                expects: vec![(name.clone(), Expect::At(Sequence(damaged.sequence)))],
                changes: vec![Change::Delete { name: name.clone() }],
            };
            let applied = self.index.apply(&Route::One(name.clone()), batch).await?;
            // Who has written it meanwhile has mended it.
            if matches!(applied, Applied::Done(_)) {
                discarded.push(name);
            }
        }
        Ok(discarded)
    }

    /// What is damaged and was not written again since, and blobs.
    fn quarantined(&self) -> Vec<(Bytes, Damaged)> {
        let log = self.opened.log();
        let map = log.map.read();
        let quarantine = log.quarantine.lock();
        let mut current = Vec::new();
        for (name, damaged) in &quarantine.names {
            let slot = map.get(name);
            let is_as_found = slot.is_some_and(|slot| slot.sequence == damaged.sequence);
            if damaged.sequence == 0 || is_as_found {
                current.push((Bytes::copy_from_slice(name), damaged.clone()));
            }
        }
        current
    }

    /// Leaves the open segment; gives the last of those that are left.
    async fn leave(&self) -> Result<Option<SegmentNumber>, Error> {
        let (reply, answer) = oneshot::channel();
        let log = self.opened.log();
        if log.queue.push(Job::Rotate(reply)).is_err() {
            return Err(crate::log::closed());
        }
        answer
            .await
            .map_err(|error| Error::internal("leave a segment", error))??;
        let map = log.map.read();
        let numbers: Vec<SegmentNumber> = map.segments().map(|(number, _)| number).collect();
        Ok(numbers.iter().rev().nth(1).copied())
    }
}

fn verify_now(log: &Log) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let mut last: Option<Box<[u8]>> = None;
    loop {
        let step: Vec<(Box<[u8]>, Slot)> = {
            let map = log.map.read();
            let owned = |(name, slot): (&[u8], Slot)| (Box::from(name), slot);
            map.after(last.as_deref())
                .take(STEP_ENTRIES)
                .map(owned)
                .collect()
        };
        let Some((name, _)) = step.last() else {
            break;
        };
        last = Some(name.clone());
        for (name, slot) in step {
            match reads::entry_now(log, &name, &slot) {
                Ok(_) => verified.entries += 1,
                // It has changed, or moved, which checks it as well.
                Err(_) if log.map.read().get(&name) != Some(slot) => {}
                Err(Fault::Damaged(found)) => {
                    log.quarantine(&name, slot.sequence, found);
                    let name = Bytes::copy_from_slice(&name);
                    verified.damaged.insert(name, found.to_owned());
                }
                Err(Fault::Io(error)) => return Err(Error::internal("read an entry", error)),
            }
        }
    }
    let blobs = log.devices.blobs.list();
    let blobs = blobs.map_err(|error| Error::internal("list large payloads", error))?;
    for (number, file_bytes) in blobs {
        let is_earlier = number < u64::from(log.life.get()) << 32;
        match check_blob(log, number, file_bytes) {
            Ok(()) => verified.blobs += 1,
            Err(None) => {}
            // It may be that it is written at this moment.
            Err(Some(_)) if !is_earlier && chunks::length_of(file_bytes).is_none() => {}
            Err(Some(found)) => {
                let name = format!("blob {number:016x}");
                verified.damaged.insert(name.into(), found);
            }
        }
    }
    Ok(verified)
}

/// Checks all chunks of a blob; an error without a text says that it is not there.
fn check_blob(log: &Log, number: u64, file_bytes: u64) -> Result<(), Option<String>> {
    let length = chunks::length_of(file_bytes).ok_or_else(|| Some("it is cut".to_owned()))?;
    let blob = Blob { number, length };
    let mut first = 0;
    loop {
        let at = blob.chunks_at(first, STEP_CHUNKS);
        if at.is_empty() {
            return Ok(());
        }
        match log.devices.blobs.read(number, at.start, at.end - at.start) {
            Ok(bytes) if chunks::read(&bytes, number, first).is_some() => {}
            Ok(_) => return Err(Some("a chunk is damaged".to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(None),
            Err(error) => return Err(Some(error.to_string())),
        }
        first += STEP_CHUNKS;
    }
}
