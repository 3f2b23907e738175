//! The engine in memory: every rule in its plainest form, under one lock.
//!
//! It is the reference model for the tests of all other stores and of every layer, and a store for
//! whoever wants one that forgets when the process ends. It holds every object whole; only memory
//! limits it.

mod blobs;
mod index;
mod leases;
#[cfg(test)]
mod tests;

pub use blobs::MemoryBlobs;
pub use index::MemoryIndex;
pub use leases::MemoryLeases;

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    ops::Bound::{Included, Unbounded},
    pin::Pin,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{bucket::BucketName, code::Code, operation::ObjectId, time};
use forebay_store::{Body, Clock, Error, Request, Response, Store};
use parking_lot::Mutex;

use crate::{
    Engine, Native, Settings,
    engine::{Bucket, Completion, NewObject, Opened, PartPlace},
    gate::{Act, Gate},
    listing::{Bound, Cursor, Page, Scan, Summary},
    pieces::{Pieces, Then},
    reading::Reading,
    record::{ObjectRecord, PartOfObject, PartRecord, UploadRecord},
    refuse,
};

/// Bytes that are hashed between two looks at the body.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    native: Native<Memory>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: Clock) -> Self {
        let engine = Memory {
            clock: clock.clone(),
            buckets: Mutex::default(),
        };
        Self {
            native: Native::new(engine, clock, Settings::default()),
        }
    }
}

impl Store for MemoryStore {
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

/// The engine, see the module.
#[derive(Debug)]
pub struct Memory {
    clock: Clock,
    buckets: Mutex<BTreeMap<BucketName, BucketState>>,
}

#[derive(Debug, Default)]
struct BucketState {
    created_ms: i64,
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, UploadState>,
}

#[derive(Debug, Clone)]
struct Object {
    record: ObjectRecord,
    chunks: Vec<Bytes>,
    parts: Vec<PartOfObject>,
}

#[derive(Debug)]
struct UploadState {
    record: UploadRecord,
    parts: BTreeMap<u16, (PartRecord, Vec<Bytes>)>,
}

impl BucketState {
    fn object(&self, object: &ObjectId) -> Result<&Object, Error> {
        self.objects
            .get(object.key.as_str())
            .ok_or_else(|| refuse::no_such_key(&object.key))
    }

    fn upload(&mut self, object: &ObjectId, id: &str) -> Result<&mut UploadState, Error> {
        self.uploads
            .get_mut(id)
            .filter(|upload| upload.record.key == object.key.as_str())
            .ok_or_else(|| refuse::no_such_upload(id))
    }

    fn check(&self, object: &ObjectId, gate: &Gate, act: Act) -> Result<(), Error> {
        let current = self
            .objects
            .get(object.key.as_str())
            .map(|object| &object.record.etag);
        gate.check(act, &object.key, current)
    }
}

impl Memory {
    fn with<T>(
        &self,
        bucket: &BucketName,
        act: impl FnOnce(&mut BucketState) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut buckets = self.buckets.lock();
        act(buckets
            .get_mut(bucket)
            .ok_or_else(|| refuse::no_such_bucket(bucket))?)
    }

    fn now_ms(&self) -> i64 {
        time::unix_millis(self.clock.wall())
    }
}

/// Takes a whole body in.
async fn take(
    body: Body,
    mut ingest: crate::ingest::Ingest,
) -> Result<(Vec<Bytes>, crate::ingest::Ingested), Error> {
    let mut pieces = Pieces::new(body, PIECE_BYTES_MAX);
    let mut chunks = Vec::new();
    loop {
        let piece = pieces.next().await?;
        piece.chunks.iter().for_each(|chunk| ingest.update(chunk));
        chunks.extend(piece.chunks);
        if let Then::End(trailers) = piece.then {
            return Ok((chunks, ingest.finish(trailers.as_ref())?));
        }
    }
}

/// The bytes `span` of these chunks.
fn slice(chunks: &[Bytes], span: std::ops::Range<u64>) -> VecDeque<Bytes> {
    let mut found = VecDeque::new();
    let mut start = 0_u64;
    for chunk in chunks {
        let end = start + chunk.len() as u64;
        let within = span.start.max(start)..span.end.min(end);
        if within.start < within.end {
            let at = |place: u64| usize::try_from(place - start).unwrap_or(chunk.len());
            found.push_back(chunk.slice(at(within.start)..at(within.end)));
        }
        start = end;
    }
    found
}

struct Keys<'a>(&'a BTreeMap<String, Object>);

impl Cursor for Keys<'_> {
    type Error = Infallible;

    fn seek(&mut self, from: &Bound) -> Result<Option<String>, Infallible> {
        // A bound is no text, but the longest text in it sorts just before it.
        let text = match std::str::from_utf8(from.as_bytes()) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&from.as_bytes()[..error.valid_up_to()])
                .expect("valid up to there"),
        };
        let mut range = self.0.range::<str, _>((Included(text), Unbounded));
        Ok(range
            .find(|(key, _)| key.as_bytes() >= from.as_bytes())
            .map(|(key, _)| key.clone()))
    }

    fn describe(&mut self, key: &str) -> Result<Option<Summary>, Infallible> {
        Ok(self.0.get(key).map(|object| Summary::from(&object.record)))
    }
}

#[async_trait]
impl Engine for Memory {
    async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let buckets = self.buckets.lock();
        let bucket = |(name, state): (&BucketName, &BucketState)| Bucket {
            name: name.clone(),
            created_ms: state.created_ms,
        };
        Ok(buckets.iter().map(bucket).collect())
    }

    async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        self.with(name, |state| {
            Ok(Bucket {
                name: name.clone(),
                created_ms: state.created_ms,
            })
        })
    }

    async fn create_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let mut buckets = self.buckets.lock();
        if buckets.contains_key(name) {
            return Err(refuse::bucket_exists(name));
        }
        let state = BucketState {
            created_ms: self.now_ms(),
            ..BucketState::default()
        };
        buckets.insert(name.clone(), state);
        Ok(())
    }

    async fn delete_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let mut buckets = self.buckets.lock();
        let state = buckets
            .get(name)
            .ok_or_else(|| refuse::no_such_bucket(name))?;
        if !state.objects.is_empty() {
            return Err(refuse::bucket_not_empty(name));
        }
        buckets.remove(name);
        Ok(())
    }

    async fn read(&self, object: &ObjectId, reading: Reading) -> Result<Opened, Error> {
        self.with(&object.bucket, |bucket| {
            let found = bucket.object(object)?;
            let plan = reading.plan(&found.record)?;
            let body = Body::pieces(slice(&found.chunks, plan.sent.clone()));
            Ok(Opened {
                record: found.record.clone(),
                plan,
                body,
            })
        })
    }

    async fn parts(&self, object: &ObjectId) -> Result<(ObjectRecord, Vec<PartOfObject>), Error> {
        self.with(&object.bucket, |bucket| {
            let found = bucket.object(object)?;
            Ok((found.record.clone(), found.parts.clone()))
        })
    }

    async fn write(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error> {
        self.bucket(&object.bucket).await?;
        let (chunks, ingested) = take(body, new.ingest).await?;
        self.with(&object.bucket, |bucket| {
            bucket.check(object, &new.gate, Act::Write)?;
            let record = ingested.into_object(new.attributes, self.now_ms());
            let stored = Object {
                record: record.clone(),
                chunks,
                parts: Vec::new(),
            };
            bucket
                .objects
                .insert(object.key.as_str().to_owned(), stored);
            Ok(record)
        })
    }

    async fn set_tags(&self, object: &ObjectId, tags: Vec<(String, String)>) -> Result<(), Error> {
        self.with(&object.bucket, |bucket| {
            let found = bucket.objects.get_mut(object.key.as_str());
            let found = found.ok_or_else(|| refuse::no_such_key(&object.key))?;
            found.record.attributes.tags = tags;
            Ok(())
        })
    }

    async fn delete(&self, object: &ObjectId, gate: Gate) -> Result<(), Error> {
        self.with(&object.bucket, |bucket| {
            bucket.check(object, &gate, Act::Delete)?;
            bucket.objects.remove(object.key.as_str());
            Ok(())
        })
    }

    async fn list(&self, bucket: &BucketName, scan: Scan) -> Result<Page, Error> {
        self.with(bucket, |bucket| {
            match scan.page(&mut Keys(&bucket.objects)) {
                Ok(page) => Ok(page),
            }
        })
    }

    async fn create_upload(&self, bucket: &BucketName, upload: UploadRecord) -> Result<(), Error> {
        self.with(bucket, |bucket| {
            let id = upload.id.clone();
            bucket.uploads.insert(
                id,
                UploadState {
                    record: upload,
                    parts: BTreeMap::new(),
                },
            );
            Ok(())
        })
    }

    async fn uploads(&self, bucket: &BucketName) -> Result<Vec<UploadRecord>, Error> {
        self.with(bucket, |bucket| {
            Ok(bucket
                .uploads
                .values()
                .map(|upload| upload.record.clone())
                .collect())
        })
    }

    async fn upload(&self, object: &ObjectId, id: &str) -> Result<UploadRecord, Error> {
        self.with(&object.bucket, |bucket| {
            Ok(bucket.upload(object, id)?.record.clone())
        })
    }

    async fn upload_parts(&self, object: &ObjectId, id: &str) -> Result<Vec<PartRecord>, Error> {
        self.with(&object.bucket, |bucket| {
            Ok(bucket
                .upload(object, id)?
                .parts
                .values()
                .map(|(record, _)| *record)
                .collect())
        })
    }

    async fn write_part(&self, part: PartPlace<'_>, body: Body) -> Result<PartRecord, Error> {
        let (chunks, ingested) = take(body, part.ingest).await?;
        self.with(&part.object.bucket, |bucket| {
            let record = ingested.into_part(part.number, self.now_ms());
            let upload = bucket.upload(part.object, part.upload_id)?;
            upload.parts.insert(part.number, (record, chunks));
            Ok(record)
        })
    }

    async fn complete_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error> {
        let Completion {
            mut record,
            parts,
            gate,
        } = completion;
        record.modified_ms = self.now_ms();
        self.with(&object.bucket, |bucket| {
            bucket.upload(object, id)?;
            bucket.check(object, &gate, Act::Write)?;
            let upload = bucket.upload(object, id)?;
            let mut chunks = Vec::new();
            let mut of_object = Vec::new();
            for part in &parts {
                let (there, bytes) = upload
                    .parts
                    .get(&part.number)
                    .filter(|(there, _)| there == part)
                    .ok_or_else(|| Error::refused(Code::InvalidPart))?;
                chunks.extend(bytes.iter().cloned());
                of_object.push(there.of_object(&upload.record));
            }
            bucket.uploads.remove(id);
            let stored = Object {
                record: record.clone(),
                chunks,
                parts: of_object,
            };
            bucket
                .objects
                .insert(object.key.as_str().to_owned(), stored);
            Ok(record)
        })
    }

    async fn abort_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error> {
        self.with(&object.bucket, |bucket| {
            bucket.upload(object, id)?;
            bucket.uploads.remove(id);
            Ok(())
        })
    }
}
