//! What a tier asks of its hot store: one small record a key, changed in one step, and a queue.
//!
//! [`HotStore`] knows nothing of the cold store and decides nothing: which record may follow which
//! is written in the tier's `ledger`. It is implemented once ([`IndexedHot`]), over an
//! [`crate::index::Index`], [`crate::blobs::Blobs`] and [`crate::leases::Leases`], so every engine
//! that has those is a hot store. Several tiers share an engine by having each a *space*.
//!
//! A record is in one [`Queue`], in which the mover finds it when its time comes; record, place in
//! the queue and totals change in one batch. The bytes of records and names are in docs/formats.md.

use std::{ops::Range, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use forebay_store::{Body, Error};
use serde::{Deserialize, Serialize};

pub use crate::index::{Sequence, Want};
use crate::{leases::Lease, record::ObjectRecord};

mod home;
mod indexed;
mod names;
#[cfg(test)]
mod tests;

pub use home::{Home, take_home};
pub use indexed::{IndexedHot, Parts, stranded};
pub use names::{InvalidSpace, Space};
pub(crate) use names::{all, blob_named_by};

/// A key of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HotKey {
    /// Its bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
}

impl HotKey {
    /// The current version of it.
    pub fn object(&self) -> ObjectId {
        ObjectId {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            version: None,
        }
    }
}

impl From<&ObjectId> for HotKey {
    /// The key of an object, whatever version is named.
    fn from(object: &ObjectId) -> Self {
        Self {
            bucket: object.bucket.clone(),
            key: object.key.clone(),
        }
    }
}

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRecord {
    /// Names the write that made it, once and for all.
    pub write: String,
    /// When the write was acknowledged, Unix milliseconds by the cold store's clock.
    #[serde(rename = "at")]
    pub acknowledged_ms: i64,
    /// Tags, quotes included, that the cold store may show for this key by what was written
    /// through the tier before; latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<String>,
    /// Until then, Unix milliseconds, what comes to the cold store may be a write through the
    /// tier whose outcome nobody knows; zero for none.
    #[serde(rename = "doubt", default, skip_serializing_if = "is_zero")]
    pub doubt_ms: i64,
    /// Until then, Unix milliseconds, a request of the mover whose answer was lost may still come
    /// to the cold store; zero for none.
    #[serde(rename = "late", default, skip_serializing_if = "is_zero")]
    pub late_ms: i64,
    /// What the key holds.
    pub holding: Holding,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// An object that the cold store has not, or not yet for certain.
    Dirty(ObjectRecord),
    /// An object that can't be moved, as somebody else has written the key in the cold store since.
    Conflict {
        /// The object.
        record: ObjectRecord,
        /// Tag of what was found in its place.
        found: String,
    },
    /// Nothing: the cold store's object, if any, is to be deleted.
    Tombstone,
    /// Nothing: the cold store's object is deleted. Until then, Unix milliseconds, a late write
    /// may still bring one.
    Buried(i64),
    /// Whatever the cold store holds; until then, Unix milliseconds, a late write may still change
    /// it.
    Settling(i64),
}

impl Holding {
    /// The object, if the hot store has it.
    pub fn record(&self) -> Option<&ObjectRecord> {
        match self {
            Self::Dirty(record) | Self::Conflict { record, .. } => Some(record),
            Self::Tombstone | Self::Buried(_) | Self::Settling(_) => None,
        }
    }
}

/// Where the mover finds a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// What is to be applied at once: tombstones, by the time of their write.
    Prompt,
    /// Dirty objects, by the time of their write.
    Aging,
    /// What is waited for: buried and settling keys, by the time when the wait ends.
    Settling,
    /// Conflicts, by the time of their write.
    Conflicts,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Prompt, Self::Aging, Self::Settling, Self::Conflicts];
}

impl HotRecord {
    /// The queue that it is in, and its time there.
    pub fn queued(&self) -> (Queue, i64) {
        match &self.holding {
            Holding::Tombstone => (Queue::Prompt, self.acknowledged_ms),
            Holding::Dirty(_) => (Queue::Aging, self.acknowledged_ms),
            Holding::Conflict { .. } => (Queue::Conflicts, self.acknowledged_ms),
            Holding::Buried(until_ms) | Holding::Settling(until_ms) => (Queue::Settling, *until_ms),
        }
    }
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The record.
    pub record: HotRecord,
    /// When it was last changed.
    pub sequence: Sequence,
    /// Bytes of its object, when they lie beside it and were asked for.
    pub payload: Option<Bytes>,
    /// Names its bytes when they lie elsewhere.
    pub(crate) blob: Option<crate::blobs::BlobId>,
}

/// A change of one key, in one step.
#[derive(Debug)]
pub struct Swap<'a> {
    /// The key.
    pub key: &'a HotKey,
    /// What must be there still; `None` is nothing.
    pub from: Option<&'a Held>,
    /// What comes in its place; `None` is nothing.
    pub to: Option<(HotRecord, HotBytes)>,
}

/// The bytes of a record that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HotBytes {
    /// It has none.
    None,
    /// It has these.
    New(Bytes),
    /// It keeps those of the record before it.
    Kept,
}

/// What came of a [`Swap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swapped {
    /// It happened and is durable.
    Done(Sequence),
    /// Nothing happened: something else was there.
    Changed,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its time, Unix milliseconds.
    pub at_ms: i64,
    /// The key.
    pub key: HotKey,
}

/// What a space holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of dirty objects, those in conflict included.
    pub dirty_bytes: u64,
    /// Dirty objects, those in conflict included.
    pub dirty_count: u64,
    /// Of these, those in conflict.
    pub conflicts_count: u64,
    /// Deletes that the cold store has not had yet.
    pub tombstones_count: u64,
}

impl Totals {
    /// Whether the cold store lacks nothing.
    pub fn is_clean(&self) -> bool {
        self.dirty_count == 0 && self.tombstones_count == 0
    }
}

/// What survives, once a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotDurability {
    /// Nothing: the server keeps no log of its writes.
    Volatile,
    /// The loss of this process and its machine's power: it is on one medium.
    Local,
    /// The loss of any one medium.
    Replicated,
}

/// Keeps records of keys for a tier.
///
/// Contract:
/// - **One step.** A swap happens as a whole or not at all, judged in one step with what is there;
///   readers see all of it or none.
/// - **Durable** as [`HotStore::durability`] says, once `swap` has returned [`Swapped::Done`].
/// - **Errors** as those of an [`crate::index::Index`]: `SlowDown` and `Unavailable` had no effect,
///   after `Indeterminate` reads tell.
/// - **Cancel-safe.** A dropped future of `swap` leaves the old record or the new one, whole.
#[async_trait]
pub trait HotStore: Send + Sync + 'static {
    /// The record of a key.
    async fn get(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error>;

    /// Changes the record of a key.
    async fn swap(&self, swap: Swap<'_>) -> Result<Swapped, Error>;

    /// Bytes `span` of the object of a record that was read; `None` when they are gone by now, as
    /// the record has been replaced.
    async fn bytes(
        &self,
        key: &HotKey,
        held: &Held,
        span: Range<u64>,
    ) -> Result<Option<Body>, Error>;

    /// The first records of a bucket whose keys are in `keys`, which are compared as bytes: some,
    /// `1..=records_max`, or none at the end. Without payloads.
    async fn range(
        &self,
        bucket: &BucketName,
        keys: Range<Vec<u8>>,
        records_max: usize,
    ) -> Result<Vec<(ObjectKey, Held)>, Error>;

    /// The first places of a queue, `1..=places_max` or none at the end, after `after`.
    async fn queue(
        &self,
        queue: Queue,
        after: Option<&Queued>,
        places_max: usize,
    ) -> Result<Vec<Queued>, Error>;

    /// What there is in all.
    async fn totals(&self) -> Result<Totals, Error>;

    /// Takes the lease of this name, or `None` when another holder has it.
    async fn lease(
        &self,
        name: &'static str,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error>;

    /// Prolongs a lease; `false` when it is no longer held.
    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error>;

    /// Gives a lease back.
    async fn release(&self, lease: Lease) -> Result<(), Error>;

    /// What survives, once a write is acknowledged.
    fn durability(&self) -> HotDurability;
}
