//! Tests of the whole log, most of them on a simulated disk.

mod compaction;
mod crash;
mod damage;
mod faults;
mod folders;
mod model;
mod strange;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk::sim::{Image, Sim};
use forebay_native::{
    blobs::{BlobId, BlobWriter, Blobs},
    contract,
    index::{Applied, Batch, Change, Index as _, Payload, Route, Want},
};
use forebay_store::{Body, Clock, Error};
use forebay_telemetry::log::LogMetrics;

use crate::{LogParts, LogSettings, OpenError, log::Devices};

/// Small, so that a few batches fill one.
const SEGMENT_BYTES: u64 = 1024;
const PAYLOAD_BYTES_MAX: usize = 2000;
/// The counter of all tests.
const COUNTER: &[u8] = b"counter";

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: SEGMENT_BYTES,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        ..LogSettings::new("simulated")
    }
}

fn devices(sim: &Arc<Sim>) -> Devices {
    Devices {
        segments: sim.folder(0),
        tables: sim.folder(1),
        blobs: sim.folder(2),
    }
}

fn open_with(sim: &Arc<Sim>, settings: LogSettings) -> Result<LogParts, OpenError> {
    let clock = Clock::manual(UNIX_EPOCH + Duration::from_hours(1));
    LogParts::open_on(devices(sim), settings, clock, LogMetrics::new())
}

fn open(sim: &Arc<Sim>) -> LogParts {
    open_with(sim, settings()).unwrap()
}

fn open_image(image: Image) -> (Arc<Sim>, LogParts) {
    let sim = Arc::new(Sim::of(image));
    let parts = open(&sim);
    (sim, parts)
}

fn route() -> Route {
    Route::One(Bytes::from_static(b"route"))
}

/// Bytes that tell writes apart.
fn sample(seed: u64, length: usize) -> Bytes {
    let mut text = format!("{seed:015x}/").into_bytes().repeat(length / 16 + 1);
    text.truncate(length);
    text.into()
}

fn name(index: u64) -> Bytes {
    format!("o/name {index}").into()
}

fn put(index: u64, seed: u64, length: Option<usize>) -> Change {
    Change::Put {
        name: name(index),
        value: format!("value {seed}").into(),
        payload: length.map_or(Payload::None, |length| {
            Payload::Inline(sample(seed, length))
        }),
    }
}

fn delete(index: u64) -> Change {
    Change::Delete { name: name(index) }
}

async fn apply(parts: &LogParts, changes: Vec<Change>) -> Result<Applied, Error> {
    let batch = Batch {
        expects: Vec::new(),
        changes,
    };
    parts.index.apply(&route(), batch).await
}

async fn done(parts: &LogParts, changes: Vec<Change>) {
    let applied = apply(parts, changes).await.unwrap();
    assert!(matches!(applied, Applied::Done(_)), "{applied:?}");
}

/// All that a log shows: values and payloads by name, and the counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    entries: BTreeMap<Bytes, (Bytes, Option<Bytes>)>,
    counter: i64,
}

impl Shown {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Put {
                name,
                value,
                payload,
            } => {
                let payload = match payload {
                    Payload::None => None,
                    Payload::Inline(bytes) => Some(bytes.clone()),
                    Payload::Keep => self.entries.get(name).and_then(|(_, kept)| kept.clone()),
                };
                self.entries.insert(name.clone(), (value.clone(), payload));
            }
            Change::Delete { name } => drop(self.entries.remove(name)),
            Change::Count { by, .. } => self.counter += by,
        }
    }
}

/// Reads all; the names that could not be read are told apart.
async fn shown_or_told(parts: &LogParts) -> (Shown, Vec<Bytes>) {
    let (mut shown, mut told) = (Shown::default(), Vec::new());
    let mut from = Bytes::new();
    loop {
        let end = Bytes::from_static(&[0xff]);
        let entries = parts.index.range(from.clone()..end, 3).await.unwrap();
        let Some(last) = entries.last() else {
            break;
        };
        from = [&last.name[..], &[0]].concat().into();
        for entry in entries {
            match parts.index.get(&route(), &entry.name, Want::Payload).await {
                Ok(found) => {
                    let found = found.expect("a range has told of it");
                    assert_eq!(found.value, entry.value, "of one version");
                    assert_eq!(found.sequence, entry.sequence);
                    let content = (found.value, found.payload);
                    shown.entries.insert(found.name, content);
                }
                Err(_) => told.push(entry.name),
            }
        }
    }
    shown.counter = parts.index.counter(COUNTER).await.unwrap();
    told.extend(parts.stats().quarantined.into_keys());
    told.sort();
    told.dedup();
    (shown, told)
}

async fn shown(parts: &LogParts) -> Shown {
    let (shown, told) = shown_or_told(parts).await;
    assert_eq!(told, [] as [Bytes; 0], "damaged");
    shown
}

/// Room for whatever the suites write.
fn roomy() -> LogSettings {
    LogSettings {
        segment_bytes: 64 << 10,
        payload_bytes_max: 64 << 10,
        ..LogSettings::new("simulated")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_index_keeps_its_contract_across_restarts_too() {
    let parts = open_with(&Arc::new(Sim::new()), roomy()).unwrap();
    contract::index(async || Arc::clone(&parts.index)).await;
    let sim = Arc::new(Sim::new());
    contract::index_reopened(async || open_with(&sim, roomy()).unwrap().index).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobs_keep_their_contract_across_restarts_too() {
    let parts = open(&Arc::new(Sim::new()));
    contract::blobs(async || Arc::clone(&parts.blobs)).await;
    let sim = Arc::new(Sim::new());
    contract::blobs_reopened(async || Arc::new(Named(open(&sim)))).await;
}

/// Blobs of which each is named by an entry once it is finished, as the engine does: others are
/// swept when the log is opened again.
struct Named(LogParts);

struct NamedWriter {
    parts: LogParts,
    writer: Box<dyn BlobWriter>,
}

#[async_trait]
impl Blobs for Named {
    async fn create(&self, route: &Route) -> Result<Box<dyn BlobWriter>, Error> {
        let writer = self.0.blobs.create(route).await?;
        let parts = self.0.clone();
        Ok(Box::new(NamedWriter { parts, writer }))
    }

    async fn read(&self, route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error> {
        self.0.blobs.read(route, blob, span).await
    }

    async fn remove(&self, route: &Route, blob: &BlobId) -> Result<(), Error> {
        self.0.blobs.remove(route, blob).await
    }
}

#[async_trait]
impl BlobWriter for NamedWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.writer.write(bytes).await
    }

    async fn finish(self: Box<Self>) -> Result<BlobId, Error> {
        let blob = self.writer.finish().await?;
        done(&self.parts, vec![name_blob(&blob)]).await;
        Ok(blob)
    }
}

/// What the engine writes beside an object whose bytes are a blob.
fn name_blob(blob: &BlobId) -> Change {
    Change::Put {
        name: format!("l/{}", blob.0).into(),
        value: blob.0.clone().into(),
        payload: Payload::None,
    }
}

#[tokio::test]
async fn leases_keep_their_contract_across_restarts_too() {
    let clock = Clock::manual(UNIX_EPOCH);
    let open = |sim: &Arc<Sim>| {
        LogParts::open_on(devices(sim), settings(), clock.clone(), LogMetrics::new()).unwrap()
    };
    let parts = open(&Arc::new(Sim::new()));
    let pass = async |time| clock.advance(time);
    contract::leases(async || Arc::clone(&parts.leases), pass).await;
    let sim = Arc::new(Sim::new());
    contract::leases_reopened(async || open(&sim).leases).await;
}
