//! A hot store over an index, blobs and leases.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey};
use forebay_store::{Body, Error};

use super::{
    Held, Holding, HotBytes, HotDurability, HotKey, HotRecord, HotStore, Queue, Queued, Space,
    Swap, Swapped, Totals,
    names::{self, Value},
};
use crate::{
    blobs::{BlobId, Blobs},
    index::{Applied, Batch, Change, Entry, Expect, Index, Payload, Want},
    leases::{Lease, Leases},
};

/// What a hot store is made of; clones share it.
#[derive(Clone)]
pub struct Parts {
    /// Keeps records.
    pub index: Arc<dyn Index>,
    /// Keeps what is too large to lie beside its record.
    pub blobs: Arc<dyn Blobs>,
    /// Gives leases.
    pub leases: Arc<dyn Leases>,
    /// What survives once the index has acknowledged.
    pub durability: HotDurability,
}

/// The records of one space, see [`HotStore`].
pub struct IndexedHot {
    parts: Parts,
    space: Space,
}

impl IndexedHot {
    /// The space `space` of an engine.
    pub fn new(parts: Parts, space: Space) -> Self {
        Self { parts, space }
    }

    /// Writes bytes that are too large to lie beside a record.
    async fn write_blob(&self, key: &HotKey, bytes: &Bytes) -> Result<BlobId, Error> {
        let mut writer = self.parts.blobs.create(&names::route(key)).await?;
        writer.write(bytes.clone()).await?;
        writer.finish().await
    }

    /// Removes a blob that nothing names; what fails is left to the sweep of the blobs.
    async fn remove_blob(&self, key: &HotKey, blob: Option<&BlobId>) {
        if let Some(blob) = blob {
            let removed = self.parts.blobs.remove(&names::route(key), blob).await;
            drop(removed);
        }
    }

    /// The changes of a swap; `blob` is where the new bytes are, if not beside the record.
    fn batch(&self, swap: &Swap<'_>, blob: Option<&BlobId>) -> Result<Batch, Error> {
        let name = self.space.record(swap.key);
        let expect = swap
            .from
            .map_or(Expect::Absent, |held| Expect::At(held.sequence));
        let place = |record: &HotRecord| {
            let (queue, at_ms) = record.queued();
            self.space.place(queue, at_ms, swap.key)
        };
        let old_place = swap.from.map(|held| place(&held.record));
        let new_place = swap.to.as_ref().map(|(record, _)| place(record));
        let mut changes = Vec::with_capacity(8);
        match &swap.to {
            None => changes.push(Change::Delete { name: name.clone() }),
            Some((record, bytes)) => {
                let value = Value {
                    record: record.clone(),
                    blob: blob.map(|blob| blob.0.clone()),
                };
                changes.push(Change::Put {
                    name: name.clone(),
                    value: serde_json::to_vec(&value)
                        .map_err(|error| Error::internal("write a hot record", error))?
                        .into(),
                    payload: match (bytes, blob) {
                        (HotBytes::New(bytes), None) => Payload::Inline(bytes.clone()),
                        (HotBytes::Kept, None) => Payload::Keep,
                        (HotBytes::None, _) | (_, Some(_)) => Payload::None,
                    },
                });
            }
        }
        if old_place != new_place {
            changes.extend(old_place.map(|name| Change::Delete { name }));
            changes.extend(new_place.map(|name| Change::Put {
                name,
                value: Bytes::new(),
                payload: Payload::None,
            }));
        }
        let before = counts(swap.from.map(|held| &held.record));
        let after = counts(swap.to.as_ref().map(|(record, _)| record));
        for ((counter, before), (_, after)) in before.into_iter().zip(after) {
            if before != after {
                let counter = self.space.counter(counter);
                let by = after - before;
                changes.push(Change::Count { counter, by });
            }
        }
        Ok(Batch {
            expects: vec![(name, expect)],
            changes,
        })
    }

    async fn count(&self, counter: &'static str) -> Result<u64, Error> {
        let count = self.parts.index.counter(&self.space.counter(counter)).await;
        Ok(u64::try_from(count?).unwrap_or(0))
    }
}

/// What a record adds to the totals, by counter.
fn counts(record: Option<&HotRecord>) -> [(&'static str, i64); 4] {
    let (mut bytes, mut objects, mut conflicts, mut tombstones) = (0, 0, 0, 0);
    match record.map(|record| &record.holding) {
        None | Some(Holding::Buried(_) | Holding::Settling(_)) => {}
        Some(Holding::Tombstone) => tombstones = 1,
        Some(Holding::Dirty(record)) => (bytes, objects) = (size_of(record), 1),
        Some(Holding::Conflict { record, .. }) => {
            (bytes, objects, conflicts) = (size_of(record), 1, 1);
        }
    }
    [
        (BYTES, bytes),
        (OBJECTS, objects),
        (CONFLICTS, conflicts),
        (TOMBSTONES, tombstones),
    ]
}

fn size_of(record: &crate::record::ObjectRecord) -> i64 {
    i64::try_from(record.size_bytes).unwrap_or(i64::MAX)
}

const BYTES: &str = "bytes";
const OBJECTS: &str = "objects";
const CONFLICTS: &str = "conflicts";
const TOMBSTONES: &str = "tombstones";

fn held(entry: Entry) -> Result<Held, Error> {
    let value: Value = serde_json::from_slice(&entry.value)
        .map_err(|error| Error::internal("read a hot record", error))?;
    Ok(Held {
        record: value.record,
        sequence: entry.sequence,
        payload: entry.payload,
        blob: value.blob.map(BlobId),
    })
}

/// Bytes `span` of a payload that is here whole.
fn slice(payload: &Bytes, span: Range<u64>) -> Result<Body, Error> {
    let end = usize::try_from(span.end)
        .ok()
        .filter(|end| *end <= payload.len());
    match (usize::try_from(span.start), end) {
        (Ok(start), Some(end)) if start <= end => Ok(payload.slice(start..end).into()),
        _ => Err(Error::internal("read hot bytes", "the payload is shorter")),
    }
}

#[async_trait]
impl HotStore for IndexedHot {
    async fn get(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error> {
        let route = names::route(key);
        let entry = self
            .parts
            .index
            .get(&route, &self.space.record(key), want)
            .await?;
        entry.map(held).transpose()
    }

    async fn swap(&self, swap: Swap<'_>) -> Result<Swapped, Error> {
        let kept = swap.from.and_then(|held| held.blob.clone());
        let written = match &swap.to {
            Some((_, HotBytes::New(bytes)))
                if bytes.len() > self.parts.index.payload_bytes_max() =>
            {
                Some(self.write_blob(swap.key, bytes).await?)
            }
            Some((_, HotBytes::New(_) | HotBytes::None | HotBytes::Kept)) | None => None,
        };
        let keeps = matches!(&swap.to, Some((_, HotBytes::Kept)));
        let blob = written.as_ref().or(kept.as_ref().filter(|_| keeps));
        let batch = self.batch(&swap, blob)?;
        match self.parts.index.apply(&names::route(swap.key), batch).await {
            Ok(Applied::Done(sequence)) => {
                if !keeps {
                    self.remove_blob(swap.key, kept.as_ref()).await;
                }
                Ok(Swapped::Done(sequence))
            }
            Ok(Applied::Unexpected { .. }) => {
                self.remove_blob(swap.key, written.as_ref()).await;
                Ok(Swapped::Changed)
            }
            // After an unknown outcome the blob may be named; the sweep will tell.
            Err(error) => Err(error),
        }
    }

    async fn bytes(
        &self,
        key: &HotKey,
        held: &Held,
        span: Range<u64>,
    ) -> Result<Option<Body>, Error> {
        if span.is_empty() {
            return Ok(Some(Body::empty()));
        }
        match (&held.payload, &held.blob) {
            (Some(payload), _) => slice(payload, span).map(Some),
            (None, Some(blob)) => {
                let route = names::route(key);
                match self.parts.blobs.read(&route, blob, span).await {
                    Ok(body) => Ok(Some(body)),
                    // It is gone if, and only if, its record was replaced.
                    Err(error) => match self.get(key, Want::Value).await? {
                        Some(now) if now.blob == held.blob => Err(error),
                        Some(_) | None => Ok(None),
                    },
                }
            }
            (None, None) => match self.get(key, Want::Payload).await? {
                Some(now) if now.sequence == held.sequence => match &now.payload {
                    Some(payload) => slice(payload, span).map(Some),
                    None => Err(Error::internal("read hot bytes", "the record has none")),
                },
                Some(_) | None => Ok(None),
            },
        }
    }

    async fn range(
        &self,
        bucket: &BucketName,
        keys: Range<Vec<u8>>,
        records_max: usize,
    ) -> Result<Vec<(ObjectKey, Held)>, Error> {
        let start = self.space.record_at(bucket, &keys.start);
        let end = self.space.record_at(bucket, &keys.end);
        let names = start..end.min(self.space.records_end(bucket));
        let entries = self.parts.index.range(names, records_max).await?;
        entries
            .into_iter()
            .map(|entry| {
                let key = names::key_of_record(&entry.name)
                    .ok_or_else(|| Error::internal("read a hot record", "its name is none"))?;
                Ok((key, held(entry)?))
            })
            .collect()
    }

    async fn queue(
        &self,
        queue: Queue,
        after: Option<&Queued>,
        places_max: usize,
    ) -> Result<Vec<Queued>, Error> {
        let mut names = self.space.places(queue);
        if let Some(after) = after {
            let place = self.space.place(queue, after.at_ms, &after.key);
            names.start = [&place[..], &[0]].concat().into();
        }
        let entries = self.parts.index.range(names, places_max).await?;
        let places = entries
            .iter()
            .map(|entry| names::queued_of_place(&entry.name));
        places
            .collect::<Option<_>>()
            .ok_or_else(|| Error::internal("read a queue", "a name in it is none"))
    }

    async fn totals(&self) -> Result<Totals, Error> {
        Ok(Totals {
            dirty_bytes: self.count(BYTES).await?,
            dirty_count: self.count(OBJECTS).await?,
            conflicts_count: self.count(CONFLICTS).await?,
            tombstones_count: self.count(TOMBSTONES).await?,
        })
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error> {
        let route = self.space.lease(name);
        self.parts.leases.acquire(&route, holder, time).await
    }

    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error> {
        self.parts.leases.renew(lease, time).await
    }

    async fn release(&self, lease: Lease) -> Result<(), Error> {
        self.parts.leases.release(lease).await
    }

    fn durability(&self) -> HotDurability {
        self.parts.durability
    }
}

/// The spaces of an engine that are not in `used`, with what they hold that no cold store has:
/// left over by tiers that were taken away too early.
///
/// # Errors
/// The index's own.
pub async fn stranded(parts: &Parts, used: &[Space]) -> Result<Vec<(Space, Totals)>, Error> {
    let mut found = Vec::new();
    let mut names = Space::all();
    loop {
        let first = parts.index.range(names.clone(), 1).await?;
        let Some((space, after)) = first.first().and_then(|entry| Space::of_name(&entry.name))
        else {
            return Ok(found);
        };
        names.start = after;
        if used.contains(&space) {
            continue;
        }
        let totals = IndexedHot::new(parts.clone(), space.clone())
            .totals()
            .await?;
        if !totals.is_clean() {
            found.push((space, totals));
        }
    }
}
