//! The hot store as an engine of `native`: what makes answers of records.
//!
//! One view serves one request. The layer has looked at the key before, so the view is used only
//! for keys that the hot store answers for; when that has changed meanwhile, it refuses with
//! `SlowDown` and says so in [`View::has_turned_cold`], for the layer to send the request on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::{
    Engine, Native, Settings,
    engine::{Bucket, Completion, NewObject, Opened, PartPlace},
    gate::Gate,
    hot::{Held, Holding, HotBytes, HotKey, HotRecord, Swapped, Want},
    listing::{Page, Scan},
    reading::Reading,
    record::{ObjectRecord, PartOfObject, PartRecord, UploadRecord},
    refuse,
};
use forebay_s3::{bucket::BucketName, code::Code, operation::ObjectId, time};
use forebay_store::{Body, Error};
use forebay_telemetry::tier::Saved;
use parking_lot::Mutex;

use crate::{
    ledger::{self, DeleteWay, Look, PutWay},
    tier::Tier,
};

/// Tries to change a record that others change as well.
const ATTEMPTS_MAX: usize = 32;

/// What is known of a key before a request.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Nothing.
    Nothing,
    /// What the hot store said of it; boxed, as it is large and most requests have none.
    Key(Box<(HotKey, Option<Held>)>),
}

impl Seen {
    pub(crate) fn key(key: HotKey, held: Option<Held>) -> Self {
        Self::Key(Box::new((key, held)))
    }
}

/// See the module.
pub(crate) struct View {
    tier: Arc<Tier>,
    /// What the layer has read already; taken by the first who needs it.
    seen: Mutex<Seen>,
    has_turned_cold: AtomicBool,
}

impl View {
    /// A store for one request; `seen` is what is known already of a key.
    pub(crate) fn store(tier: &Arc<Tier>, seen: Seen) -> Native<Self> {
        let view = Self {
            tier: Arc::clone(tier),
            seen: Mutex::new(seen),
            has_turned_cold: AtomicBool::new(false),
        };
        Native::new(view, tier.clock.clone(), Settings::default())
    }

    /// Whether a key is no longer the hot store's to answer for.
    pub(crate) fn has_turned_cold(&self) -> bool {
        self.has_turned_cold.load(Ordering::Relaxed)
    }

    fn turned_cold(&self) -> Error {
        self.has_turned_cold.store(true, Ordering::Relaxed);
        Error::SlowDown { retry_after: None }
    }

    /// What was seen, if it was of this key.
    fn take_seen(&self, key: &HotKey) -> Seen {
        let mut seen = self.seen.lock();
        match std::mem::replace(&mut *seen, Seen::Nothing) {
            Seen::Key(of) if of.0 == *key => Seen::Key(of),
            other => {
                *seen = other;
                Seen::Nothing
            }
        }
    }

    async fn held(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error> {
        match self.take_seen(key) {
            Seen::Key(of) => Ok(of.1),
            Seen::Nothing => self.tier.held(key, want).await,
        }
    }

    /// Changes a record until nobody came between; `next` makes the record that follows.
    async fn change<F>(&self, key: &HotKey, first: Option<Held>, next: F) -> Result<(), Error>
    where
        F: Fn(Option<&HotRecord>) -> Result<(HotRecord, HotBytes), Error> + Send + Sync,
    {
        let mut held = first;
        for _ in 0..ATTEMPTS_MAX {
            let to = next(held.as_ref().map(|held| &held.record))?;
            let is_due = self.tier.is_due(&to.0.holding);
            match self.tier.swap(key, held.as_ref(), Some(to)).await? {
                Swapped::Done(_) => {
                    if let Some(Holding::Dirty(_)) = held.map(|held| held.record.holding) {
                        self.tier.saved(Saved::Write);
                    }
                    if is_due {
                        self.tier.wake.notify_one();
                    }
                    return Ok(());
                }
                Swapped::Changed => held = self.tier.held(key, Want::Value).await?,
            }
        }
        Err(Error::SlowDown { retry_after: None })
    }

    /// Reads an object; what was read is of one version.
    async fn open(&self, object: &ObjectId, reading: &Reading) -> Result<Opened, Error> {
        let key = HotKey::from(object);
        let mut held = self.held(&key, Want::Payload).await?;
        for _ in 0..ATTEMPTS_MAX {
            let record = match ledger::look(held.as_ref().map(|held| &held.record)) {
                Look::Cold => return Err(self.turned_cold()),
                Look::Gone => return Err(refuse::no_such_key(&object.key)),
                Look::Object(record) => record.clone(),
            };
            let plan = reading.plan(&record)?;
            if let Some(held) = &held {
                let bytes = self.tier.hot.bytes(&key, held, plan.sent.clone()).await;
                if let Some(body) = bytes.map_err(|error| self.tier.hot_failed(&error))? {
                    return Ok(Opened { record, plan, body });
                }
            }
            // It was replaced or moved while its bytes were opened.
            held = self.tier.held(&key, Want::Payload).await?;
        }
        Err(Error::SlowDown { retry_after: None })
    }
}

fn not_here<T>() -> Result<T, Error> {
    Err(Error::refused(Code::NotImplemented))
}

#[async_trait]
impl Engine for View {
    async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        not_here()
    }

    /// The layer has asked the cold store for it.
    async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        let created_ms = 0;
        Ok(Bucket {
            name: name.clone(),
            created_ms,
        })
    }

    async fn create_bucket(&self, _: &BucketName) -> Result<(), Error> {
        not_here()
    }

    async fn delete_bucket(&self, _: &BucketName) -> Result<(), Error> {
        not_here()
    }

    async fn read(&self, object: &ObjectId, reading: Reading) -> Result<Opened, Error> {
        self.open(object, &reading).await
    }

    async fn parts(&self, object: &ObjectId) -> Result<(ObjectRecord, Vec<PartOfObject>), Error> {
        let reading = Reading {
            payload: forebay_native::reading::Payload::Withheld,
            ..Reading::default()
        };
        Ok((self.open(object, &reading).await?.record, Vec::new()))
    }

    async fn write(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error> {
        let NewObject {
            attributes,
            mut ingest,
            gate,
        } = new;
        let bytes_max = usize::try_from(self.tier.settings.dirty_bytes_max).unwrap_or(usize::MAX);
        let (bytes, trailers): (Bytes, _) = body.collect(bytes_max).await?;
        ingest.update(&bytes);
        let modified_ms = time::unix_millis(self.tier.clock.wall());
        let ingested = ingest.finish(trailers.as_ref())?;
        let record = ingested.into_object(attributes, modified_ms);
        let (key, write) = (HotKey::from(object), self.tier.next_write());
        // Most keys are new, so nothing is looked up first.
        let first = match self.take_seen(&key) {
            Seen::Key(of) => of.1,
            Seen::Nothing => None,
        };
        let next = |now: Option<&HotRecord>| match ledger::put(now, &gate, &object.key)? {
            PutWay::Cold => Err(self.turned_cold()),
            PutWay::Hot => {
                let holding = Holding::Dirty(record.clone());
                let at_ms = self.tier.cold.now_ms();
                let next = ledger::after(now, write.clone(), at_ms, holding);
                Ok((next, HotBytes::New(bytes.clone())))
            }
        };
        self.change(&key, first, next).await?;
        Ok(record)
    }

    async fn set_tags(&self, object: &ObjectId, tags: Vec<(String, String)>) -> Result<(), Error> {
        let (key, write) = (HotKey::from(object), self.tier.next_write());
        let first = self.held(&key, Want::Value).await?;
        let next = |now: Option<&HotRecord>| match ledger::look(now) {
            Look::Cold => Err(self.turned_cold()),
            Look::Gone => Err(refuse::no_such_key(&object.key)),
            Look::Object(record) => {
                let mut record = record.clone();
                record.attributes.tags.clone_from(&tags);
                // Tags decide nothing between two who have written the key.
                let holding =
                    if let Some(Holding::Conflict { found, .. }) = now.map(|now| &now.holding) {
                        let found = found.clone();
                        Holding::Conflict { record, found }
                    } else {
                        Holding::Dirty(record)
                    };
                let at_ms = self.tier.cold.now_ms();
                let next = ledger::after(now, write.clone(), at_ms, holding);
                Ok((next, HotBytes::Kept))
            }
        };
        self.change(&key, first, next).await
    }

    async fn delete(&self, object: &ObjectId, gate: Gate) -> Result<(), Error> {
        let (key, write) = (HotKey::from(object), self.tier.next_write());
        let first = self.held(&key, Want::Value).await?;
        let next = |now: Option<&HotRecord>| match ledger::delete(now, &gate, &object.key)? {
            DeleteWay::Cold | DeleteWay::ColdThenBury => Err(self.turned_cold()),
            DeleteWay::Entomb => {
                let at_ms = self.tier.cold.now_ms();
                let next = ledger::after(now, write.clone(), at_ms, Holding::Tombstone);
                Ok((next, HotBytes::None))
            }
        };
        self.change(&key, first, next).await
    }

    async fn list(&self, _: &BucketName, _: Scan) -> Result<Page, Error> {
        not_here()
    }

    async fn create_upload(&self, _: &BucketName, _: UploadRecord) -> Result<(), Error> {
        not_here()
    }

    async fn uploads(&self, _: &BucketName) -> Result<Vec<UploadRecord>, Error> {
        not_here()
    }

    async fn upload(&self, _: &ObjectId, _: &str) -> Result<UploadRecord, Error> {
        not_here()
    }

    async fn upload_parts(&self, _: &ObjectId, _: &str) -> Result<Vec<PartRecord>, Error> {
        not_here()
    }

    async fn write_part(&self, _: PartPlace<'_>, _: Body) -> Result<PartRecord, Error> {
        not_here()
    }

    async fn complete_upload(
        &self,
        _: &ObjectId,
        _: &str,
        _: Completion,
    ) -> Result<ObjectRecord, Error> {
        not_here()
    }

    async fn abort_upload(&self, _: &ObjectId, _: &str) -> Result<(), Error> {
        not_here()
    }
}
