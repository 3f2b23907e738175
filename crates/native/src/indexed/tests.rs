//! Tests of the engine over an index: what a request costs, a model, storms, faults.

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroUsize,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{
    bucket::BucketName, checksum::Algorithm, code::Code, etag::ETagList, key::ObjectKey,
    operation::ObjectId,
};
use forebay_store::{Body, Clock, Error, Store, contract};
use http_body::{Body as HttpBody, Frame};
use parking_lot::Mutex;

use super::{Indexed, References};
use crate::{
    Native, Settings,
    blobs::{BlobId, BlobWriter, Blobs},
    engine::{Engine as _, NewObject},
    gate::{Absent, Gate},
    index::{Applied, Batch, Entry, Index, Route, Want},
    ingest::Ingest,
    memory::{MemoryBlobs, MemoryIndex},
    reading::Reading,
    record::{Attributes, ObjectRecord, UploadChecksum, UploadRecord},
};

mod costs;
mod faults;
mod interleavings;
mod model;
mod storms;

/// Longest payload beside a record here, so that short bodies are blobs.
const PAYLOAD_BYTES_MAX: usize = 8;

/// What the engine under test is over; clones share it, as gateways do.
#[derive(Clone)]
struct World {
    index: Arc<MemoryIndex>,
    blobs: Arc<MemoryBlobs>,
    seen: Arc<Seen>,
    faults: Arc<Mutex<Option<faults::Dice>>>,
}

/// What was asked of the index.
#[derive(Debug, Default)]
struct Seen {
    gets: AtomicUsize,
    ranges: AtomicUsize,
    entries: AtomicUsize,
    applies: AtomicUsize,
    created: AtomicUsize,
}

type Engine = Indexed<World, World>;

impl World {
    fn new() -> Self {
        Self::spread(1)
    }

    fn spread(places: usize) -> Self {
        let places = NonZeroUsize::new(places).unwrap();
        Self {
            index: Arc::new(MemoryIndex::spread(places)),
            blobs: Arc::new(MemoryBlobs::new()),
            seen: Arc::default(),
            faults: Arc::default(),
        }
    }

    /// A gateway over it.
    fn engine(&self) -> Engine {
        Indexed::new(self.clone(), self.clone(), Clock::system())
    }

    /// How often the index was asked since it was last asked so: gets, ranges, entries, applies.
    fn asked(&self) -> [usize; 4] {
        let seen = &self.seen;
        [&seen.gets, &seen.ranges, &seen.entries, &seen.applies]
            .map(|count| count.swap(0, Ordering::Relaxed))
    }

    /// Blobs that entries name.
    async fn named(&self) -> BTreeSet<BlobId> {
        let (mut named, mut references) = (BTreeSet::new(), References::new());
        while let Some(blobs) = references.next(&*self.index).await.unwrap() {
            named.extend(blobs);
        }
        named
    }

    /// Blobs that are there.
    fn there(&self) -> BTreeSet<BlobId> {
        self.blobs.ids().into_iter().collect()
    }

    /// Names of a kind of entry.
    async fn names(&self, kind: &'static str) -> Vec<Bytes> {
        let end = kind.replace('/', "0");
        let entries = self.index.range(kind.into()..end.into(), 100_000).await;
        entries.unwrap().into_iter().map(|e| e.name).collect()
    }
}

#[async_trait]
impl Index for World {
    async fn get(&self, route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
        self.seen.gets.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.index.get(route, name, want).await
    }

    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error> {
        tokio::task::yield_now().await;
        let entries = self.index.range(names, entries_max).await?;
        self.seen.ranges.fetch_add(1, Ordering::Relaxed);
        self.seen
            .entries
            .fetch_add(entries.len(), Ordering::Relaxed);
        Ok(entries)
    }

    async fn apply(&self, route: &Route, batch: Batch) -> Result<Applied, Error> {
        self.seen.applies.fetch_add(1, Ordering::Relaxed);
        let fault = self.faults.lock().as_mut().map(faults::Dice::throw);
        faults::before(fault)?;
        tokio::task::yield_now().await;
        let applied = self.index.apply(route, batch).await?;
        tokio::task::yield_now().await;
        faults::after(fault)?;
        Ok(applied)
    }

    async fn counter(&self, counter: &[u8]) -> Result<i64, Error> {
        self.index.counter(counter).await
    }

    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
}

#[async_trait]
impl Blobs for World {
    async fn create(&self, route: &Route) -> Result<Box<dyn BlobWriter>, Error> {
        self.seen.created.fetch_add(1, Ordering::Relaxed);
        self.blobs.create(route).await
    }

    async fn read(&self, route: &Route, blob: &BlobId, span: Range<u64>) -> Result<Body, Error> {
        tokio::task::yield_now().await;
        self.blobs.read(route, blob, span).await
    }

    async fn remove(&self, route: &Route, blob: &BlobId) -> Result<(), Error> {
        tokio::task::yield_now().await;
        self.blobs.remove(route, blob).await
    }
}

fn bucket(name: &str) -> BucketName {
    BucketName::parse(name).unwrap()
}

fn object(bucket: &BucketName, key: &str) -> ObjectId {
    ObjectId {
        bucket: bucket.clone(),
        key: ObjectKey::parse(key).unwrap(),
        version: None,
    }
}

fn if_match(tags: &str) -> Gate {
    Gate {
        if_match: Some(ETagList::parse(tags).unwrap()),
        ..Gate::default()
    }
}

fn if_absent() -> Gate {
    Gate {
        absent: Absent::Required,
        ..Gate::default()
    }
}

fn new_object(gate: Gate) -> NewObject {
    NewObject {
        attributes: Attributes::default(),
        ingest: Ingest::computing(Algorithm::Crc32),
        gate,
    }
}

fn upload_record(id: &str, key: &str) -> UploadRecord {
    UploadRecord {
        id: id.to_owned(),
        key: key.to_owned(),
        initiated_ms: 0,
        attributes: Attributes::default(),
        checksum: UploadChecksum::DEFAULT,
    }
}

async fn put(
    engine: &Engine,
    object: &ObjectId,
    bytes: &[u8],
    gate: Gate,
) -> Result<ObjectRecord, Error> {
    let body = Body::from(bytes.to_vec());
    engine.write(object, new_object(gate), body).await
}

async fn get(engine: &Engine, object: &ObjectId) -> Result<(ObjectRecord, Bytes), Error> {
    let opened = engine.read(object, Reading::default()).await?;
    let (bytes, _) = opened.body.collect(1 << 20).await?;
    Ok((opened.record, bytes))
}

/// The code of a refusal.
fn code(error: &Error) -> Option<Code> {
    match error {
        Error::Refused(refusal) => Some(refusal.code),
        _ => None,
    }
}

/// Almost every body is a blob here, and bucket and key lie in different places.
#[tokio::test]
async fn an_index_in_many_places_makes_a_store() {
    let (world, clock) = (World::spread(3), Clock::system());
    let native = Native::new(world.engine(), clock, Settings::default());
    let store: Arc<dyn Store> = Arc::new(native);
    contract::check(async || Arc::clone(&store)).await;
    // Requests that the suite gives up may leave blobs, which a sweep finds by their names.
    assert!(world.named().await.is_subset(&world.there()));
}

/// A body in pieces of three bytes, whose length nobody is told.
struct Unmeasured(VecDeque<Bytes>);

impl Unmeasured {
    fn body(bytes: &[u8]) -> Body {
        Body::stream(Self(bytes.chunks(3).map(Bytes::copy_from_slice).collect()))
    }
}

impl HttpBody for Unmeasured {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }
}
