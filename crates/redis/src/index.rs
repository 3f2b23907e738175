//! Entries in shards, each changed by one script in one step.
//!
//! A read of an entry is one exchange of two commands, for the entry and for its payload; a
//! checksum in the entry tells whether they are of one version. Ranges are in [`crate::range`].

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::index::{
    Applied, Batch, Change, Entry, Expect, Index, Payload, Route, Sequence, Want,
};
use forebay_store::Error;
use futures_util::future::try_join_all;
use redis::{Pipeline, Value};
use tokio::time::Instant;

use crate::{
    blobs::Ids,
    entry::{self, Packed},
    fleet::Fleet,
    keys::{HOME, Keys, Shard},
    node::Lane,
    script::{APPLY, Call, Staged},
    send::{Effect, Sending},
};

/// Bytes of the largest payload that an entry keeps: larger ones are blobs, in chunks of as much.
///
/// 256 KiB: a script is handed 100 KB in a tenth of a millisecond, and holds up all others of the
/// server meanwhile.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Bytes from which a payload is sent before its script.
///
/// 4 KiB: below it, the two commands more cost what they save; at 10 KB a write takes 1.6 times as
/// long through the script, at 100 KB 1.4 times (`redis-server` 7.0 on loopback).
const STAGED_BYTES_MIN: usize = 4 << 10;
/// Payloads of one batch that are sent so; with more, all go through the script, whose calls take
/// no more arguments than some thousand.
const STAGED_MAX: usize = 1000;
/// Reads of one entry whose payload is of another version, before that counts as damage: each
/// time, a writer was between the two commands.
const REREADS_MAX: u32 = 8;

/// The ordered map, in Redis.
#[derive(Debug, Clone)]
pub struct RedisIndex {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) ids: Arc<Ids>,
}

impl RedisIndex {
    pub(crate) fn reading(&self, shard: Shard) -> Sending<'_> {
        Sending {
            slot: self.keys.slot(shard),
            lane: Lane::Small,
            effect: Effect::Repeatable,
            seconds: &self.fleet.metrics().seconds.read,
        }
    }

    async fn run(&self, shard: Shard, call: &Call) -> Result<Applied, Error> {
        let sending = Sending {
            slot: self.keys.slot(shard),
            lane: Lane::Durable,
            effect: Effect::Once,
            seconds: &self.fleet.metrics().seconds.write,
        };
        match self.fleet.call(sending, call).await? {
            Value::Int(index) => {
                let expect_index = usize::try_from(index).map_err(|_| self.fleet.nonsense())?;
                Ok(Applied::Unexpected { expect_index })
            }
            Value::BulkString(stamp) => {
                let stamp = stamp.try_into().map_err(|_| self.fleet.nonsense())?;
                Ok(Applied::Done(Sequence(u64::from_be_bytes(stamp))))
            }
            _ => Err(self.fleet.nonsense()),
        }
    }

    /// Changes one place after another; see [`Route::Every`] for which begins.
    async fn apply_every(&self, batch: &Batch) -> Result<Applied, Error> {
        let begun_at = Instant::now();
        // Once a place was changed, whatever fails leaves the batch half done.
        let half_done = |_| Error::Indeterminate {
            elapsed: begun_at.elapsed(),
        };
        let is_deletion = |change: &Change| matches!(change, Change::Delete { .. });
        let (first, deletes) = if batch.changes.iter().any(is_deletion) {
            (Mode::Begin, true)
        } else {
            (Mode::Home(None), false)
        };
        let begun = self.run(HOME, &self.call(HOME, first, batch)).await?;
        let Applied::Done(sequence) = begun else {
            return Ok(begun);
        };
        if let Some(unexpected) = self
            .apply_copies(batch, sequence)
            .await
            .map_err(half_done)?
        {
            return Ok(unexpected);
        }
        if !deletes {
            return Ok(begun);
        }
        let call = self.call(HOME, Mode::Home(Some(sequence)), batch);
        self.run(HOME, &call).await.map_err(half_done)
    }

    /// Changes all places but home; `Some` is the first expectation that did not hold.
    async fn apply_copies(
        &self,
        batch: &Batch,
        sequence: Sequence,
    ) -> Result<Option<Applied>, Error> {
        let of_places = Batch {
            expects: batch
                .expects
                .iter()
                .filter(|(_, expect)| is_of_places(expect))
                .cloned()
                .collect(),
            changes: batch.changes.clone(),
        };
        let places = Shard::all().filter(|shard| *shard != HOME).map(|shard| {
            let call = self.call(shard, Mode::Copy(sequence), &of_places);
            async move { self.run(shard, &call).await }
        });
        let mut first: Option<usize> = None;
        for applied in try_join_all(places).await? {
            if let Applied::Unexpected { expect_index } = applied {
                first = Some(first.map_or(expect_index, |first| first.min(expect_index)));
            }
        }
        // Back to its place among all expectations of the batch.
        let places = || {
            batch
                .expects
                .iter()
                .enumerate()
                .filter(|(_, (_, expect))| is_of_places(expect))
        };
        Ok(first
            .and_then(|index| places().nth(index))
            .map(|(expect_index, _)| Applied::Unexpected { expect_index }))
    }

    fn call(&self, shard: Shard, mode: Mode, batch: &Batch) -> Call {
        let keys = &self.keys;
        let mut touched = vec![
            keys.names(shard),
            keys.entries(shard),
            keys.sequence(shard),
            keys.counters(shard),
            keys.changed(shard),
        ];
        let deleted = batch.changes.iter().filter_map(|change| match change {
            Change::Delete { name } => Some(name),
            Change::Put { .. } | Change::Count { .. } => None,
        });
        let put = batch.changes.iter().filter_map(|change| match change {
            Change::Put { name, .. } => Some(name),
            Change::Delete { .. } | Change::Count { .. } => None,
        });
        touched.extend(deleted.chain(put).map(|name| keys.payload(shard, name)));
        let mut call = APPLY.call(touched);
        let (name, given) = match mode {
            Mode::One => ("one", None),
            Mode::Begin => ("begin", None),
            Mode::Home(given) => ("home", given),
            Mode::Copy(given) => ("copy", Some(given)),
        };
        let given = given.map_or_else(Bytes::new, |Sequence(number)| stamp(number));
        let staged = match mode {
            Mode::One => self.staged(shard, &batch.changes),
            Mode::Begin | Mode::Home(_) | Mode::Copy(_) => Vec::new(),
        };
        let staging = if staged.is_empty() {
            Staging::None
        } else {
            Staging::Large
        };
        call.arg(name).arg(given).number(staged.len());
        call.number(batch.expects.len());
        for (name, expect) in &batch.expects {
            let (kind, detail) = match expect {
                Expect::Absent => ("absent", Bytes::new()),
                Expect::Present => ("present", Bytes::new()),
                Expect::At(Sequence(number)) => ("at", stamp(*number)),
                Expect::NoneBefore(end) => ("none", end.clone()),
            };
            call.arg(kind).arg(name.clone()).arg(detail);
        }
        add_changes(&mut call, &batch.changes, staging);
        call.stage(staged);
        call
    }

    /// The payloads that are sent before the script.
    fn staged(&self, shard: Shard, changes: &[Change]) -> Vec<Staged> {
        let large = changes.iter().filter_map(|change| match change {
            Change::Put {
                payload: Payload::Inline(bytes),
                ..
            } => Some(bytes).filter(|bytes| is_staged(bytes, Staging::Large)),
            Change::Put { .. } | Change::Delete { .. } | Change::Count { .. } => None,
        });
        if large.clone().count() > STAGED_MAX {
            return Vec::new();
        }
        let staged = large.map(|bytes| Staged {
            key: self.keys.staged(shard, &self.ids.next()),
            bytes: bytes.clone(),
        });
        staged.collect()
    }
}

/// What `apply.lua` does.
#[derive(Debug, Clone, Copy)]
enum Mode {
    One,
    Begin,
    Home(Option<Sequence>),
    Copy(Sequence),
}

/// Which payloads are sent before the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staging {
    None,
    Large,
}

fn is_staged(payload: &Bytes, staging: Staging) -> bool {
    match staging {
        Staging::None => false,
        Staging::Large => payload.len() >= STAGED_BYTES_MIN,
    }
}

/// Whether an expectation is judged in each place, not at home alone.
fn is_of_places(expect: &Expect) -> bool {
    match expect {
        Expect::NoneBefore(_) => true,
        Expect::Absent | Expect::Present | Expect::At(_) => false,
    }
}

fn stamp(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Deletions, puts and counters, each with their number before them: a name occurs once, so their
/// order says nothing.
fn add_changes(call: &mut Call, changes: &[Change], staging: Staging) {
    let count = |is: fn(&Change) -> bool| changes.iter().filter(|change| is(change)).count();
    call.number(count(|change| matches!(change, Change::Delete { .. })));
    for change in changes {
        if let Change::Delete { name } = change {
            call.arg(name.clone());
        }
    }
    call.number(count(|change| matches!(change, Change::Put { .. })));
    for change in changes {
        let Change::Put {
            name,
            value,
            payload,
        } = change
        else {
            continue;
        };
        let (tail, payload) = match payload {
            Payload::None => (Bytes::copy_from_slice(&entry::tail(None)), Bytes::new()),
            Payload::Inline(bytes) => {
                let mut tail = entry::tail(Some(bytes));
                if is_staged(bytes, staging) {
                    tail[0] = entry::STAGED;
                    (Bytes::copy_from_slice(&tail), Bytes::new())
                } else {
                    (Bytes::copy_from_slice(&tail), bytes.clone())
                }
            }
            Payload::Keep => (Bytes::new(), Bytes::new()),
        };
        call.arg(name.clone())
            .arg(tail)
            .arg(value.clone())
            .arg(payload);
    }
    call.number(count(|change| matches!(change, Change::Count { .. })));
    for change in changes {
        if let Change::Count { counter, by } = change {
            call.arg(counter.clone()).arg(by.to_string());
        }
    }
}

/// Bytes of an answer; `None` where there are none.
pub(crate) fn bytes_of(answer: Value) -> Option<Bytes> {
    match answer {
        Value::BulkString(bytes) => Some(bytes.into()),
        _ => None,
    }
}

#[async_trait]
impl Index for RedisIndex {
    async fn get(&self, route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
        let shard = Shard::of(route);
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("HGET").arg(self.keys.entries(shard)).arg(name);
        if want == Want::Payload {
            commands.cmd("GET").arg(self.keys.payload(shard, name));
        }
        for _ in 0..REREADS_MAX {
            let mut answers = self
                .fleet
                .send(self.reading(shard), &commands)
                .await?
                .into_iter();
            let Some(bytes) = answers.next().and_then(bytes_of) else {
                return Ok(None);
            };
            let packed = Packed::read(&bytes).map_err(|_| self.fleet.damaged())?;
            let entry = |payload| Entry {
                name: Bytes::copy_from_slice(name),
                sequence: packed.sequence,
                value: packed.value.clone(),
                payload,
            };
            let expected = match (want, packed.payload) {
                (Want::Value, _) | (Want::Payload, None) => return Ok(Some(entry(None))),
                (Want::Payload, Some(expected)) => expected,
            };
            let payload = answers.next().and_then(bytes_of);
            if let Some(payload) = payload.filter(|bytes| entry::checksum(bytes) == expected) {
                return Ok(Some(entry(Some(payload))));
            }
            self.fleet.metrics().payloads_reread.inc();
        }
        Err(self.fleet.damaged())
    }

    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error> {
        self.range_of(names, entries_max).await
    }

    async fn apply(&self, route: &Route, batch: Batch) -> Result<Applied, Error> {
        batch.check(PAYLOAD_BYTES_MAX)?;
        match route {
            Route::One(_) => {
                let shard = Shard::of(route);
                self.run(shard, &self.call(shard, Mode::One, &batch)).await
            }
            Route::Every => self.apply_every(&batch).await,
        }
    }

    async fn counter(&self, counter: &[u8]) -> Result<i64, Error> {
        let shards = Shard::all().map(|shard| {
            let mut command = Pipeline::with_capacity(1);
            command
                .cmd("HGET")
                .arg(self.keys.counters(shard))
                .arg(counter);
            async move { self.fleet.send(self.reading(shard), &command).await }
        });
        let mut sum = 0;
        for answers in try_join_all(shards).await? {
            let Some(bytes) = answers.into_iter().next().and_then(bytes_of) else {
                continue;
            };
            let text = std::str::from_utf8(&bytes).map_err(|_| self.fleet.damaged())?;
            sum += text.parse::<i64>().map_err(|_| self.fleet.damaged())?;
        }
        Ok(sum)
    }

    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
}
