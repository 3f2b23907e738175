//! The engine over an index and blobs: S3's semantics for one object space, once.
//!
//! [`Indexed`] keeps each object in one entry, its bytes beside it when they are small and in
//! blobs otherwise, and changes it by one atomic batch. It keeps nothing of its own but what it
//! has seen of buckets, so any number of gateways may share one index.
//!
//! | entry | tells | changes |
//! |---|---|---|
//! | `b/BUCKET` | when a bucket was made, its birth, its mark | with the bucket |
//! | `m/BUCKET NUL MARK` | in every place: that the bucket may be written | with the bucket |
//! | `o/BUCKET NUL KEY` | an object; payload: its bytes, when they are small | with each write |
//! | `l/BUCKET NUL KEY` | that the object's bytes are blobs, and which one | with the object |
//! | `u/BUCKET NUL ID` | a multipart upload | when it begins and ends |
//! | `p/BUCKET NUL ID NUL NUMBER` | a part, two bytes for its number | with the part |
//!
//! **A write is one step.** Its batch expects the bucket's mark, and that there is no `l/` entry:
//! then whatever it replaces lies in the entry itself, and needs neither a look before nor a
//! removal after. Only where there is one, or a gate looks at the object's tag, is the entry read
//! first and expected to be the same still; a write that meets others [`ATTEMPTS_MAX`] times is
//! answered `SlowDown`.
//!
//! **A bucket ends** while writers come. Its mark is deleted in every place, each of which must be
//! without objects in that same step; then its entry is, if it is the same still. A writer that
//! does not find the mark, but the bucket, gives it another: puts the new mark in every place,
//! deletes the old one in every place, and then changes the entry, if it is the same still. So of
//! an ending and a new mark only one comes to pass, what ends is empty, and of the marks that
//! gateways may remember only the last is anywhere.
//!
//! **Uploads** end in one step as well: the object's entry comes, the upload's goes, and the
//! parts stay what and where they are. An upload that is aborted first stops taking parts. Those
//! of a bucket that ended have another birth, which tells them from uploads of a later bucket of
//! that name.
//!
//! **Blobs.** A blob is named by the same entry from its first to its last day, `l/` or `p/`;
//! [`References`] walks these. It is removed once the entry is durably gone.
//!
//! A tier keeps its records in the same index, under `hot/`, and does not use this engine.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use forebay_s3::{bucket::BucketName, operation::ObjectId, time};
use forebay_store::{Body, Clock, Error};
use parking_lot::RwLock;

use crate::{
    Engine,
    blobs::{BlobId, Blobs},
    engine::{Bucket, Completion, NewObject, Opened, PartPlace},
    gate::Gate,
    ids::Ids,
    index::{Index, Route},
    listing::{Page, Scan},
    reading::Reading,
    record::{ObjectRecord, PartOfObject, PartRecord, UploadRecord},
};

mod buckets;
mod entry;
mod intake;
mod joined;
mod keys;
mod names;
mod objects;
mod parts;
mod references;
mod replace;
mod uploads;

#[cfg(any(test, feature = "testing"))]
pub use entry::check_entry;
pub use references::References;

/// Looks at an entry that others change meanwhile; with each but the last, somebody else got on.
pub const ATTEMPTS_MAX: usize = 64;

/// An engine over an index and blobs, see the module.
#[derive(Debug)]
pub struct Indexed<I, B> {
    kept: Arc<Keeping<I, B>>,
    clock: Clock,
    ids: Ids,
    /// Buckets as they were last seen; that the mark holds still, each batch expects.
    buckets: RwLock<HashMap<BucketName, Arc<buckets::Seen>>>,
}

/// Where everything is.
#[derive(Debug)]
struct Keeping<I, B> {
    index: I,
    blobs: B,
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    /// An engine over what is in `index` and `blobs` already.
    pub fn new(index: I, blobs: B, clock: Clock) -> Self {
        Self {
            kept: Arc::new(Keeping { index, blobs }),
            clock,
            ids: Ids::default(),
            buckets: RwLock::default(),
        }
    }

    /// The index within.
    pub fn index(&self) -> &I {
        &self.kept.index
    }

    /// The blobs within.
    pub fn blobs(&self) -> &B {
        &self.kept.blobs
    }

    fn now_ms(&self) -> i64 {
        time::unix_millis(self.clock.wall())
    }

    /// Removes blobs that no entry names any more.
    async fn discard(&self, route: &Route, blobs: impl IntoIterator<Item = BlobId>) {
        for blob in blobs {
            // What fails is swept with other blobs that nobody names.
            let _swept_later = self.blobs().remove(route, &blob).await;
        }
    }

    /// Removes the blob of a write that failed, unless its entry may be there.
    async fn discard_after(&self, error: &Error, route: &Route, blob: Option<&BlobId>) {
        let no_effect = match error {
            Error::Refused(_) | Error::SlowDown { .. } | Error::Unavailable { .. } => true,
            Error::Indeterminate { .. }
            | Error::Cut { .. }
            | Error::ClientGone
            | Error::Internal { .. } => false,
        };
        if no_effect {
            self.discard(route, blob.cloned()).await;
        }
    }
}

/// Others changed what was looked at, each time.
fn too_contended() -> Error {
    Error::SlowDown { retry_after: None }
}

#[async_trait]
impl<I: Index, B: Blobs> Engine for Indexed<I, B> {
    async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        self.all_buckets().await
    }

    async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        let seen = self.look_at_bucket(name).await?;
        Ok(seen.bucket(name))
    }

    async fn create_bucket(&self, name: &BucketName) -> Result<(), Error> {
        self.make_bucket(name).await
    }

    async fn delete_bucket(&self, name: &BucketName) -> Result<(), Error> {
        self.end_bucket(name).await
    }

    async fn read(&self, object: &ObjectId, reading: Reading) -> Result<Opened, Error> {
        self.read_object(object, &reading).await
    }

    async fn parts(&self, object: &ObjectId) -> Result<(ObjectRecord, Vec<PartOfObject>), Error> {
        self.parts_of_object(object).await
    }

    async fn write(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error> {
        self.write_object(object, new, body).await
    }

    async fn set_tags(&self, object: &ObjectId, tags: Vec<(String, String)>) -> Result<(), Error> {
        self.write_tags(object, &tags).await
    }

    async fn delete(&self, object: &ObjectId, gate: Gate) -> Result<(), Error> {
        self.delete_object(object, &gate).await
    }

    async fn list(&self, bucket: &BucketName, scan: Scan) -> Result<Page, Error> {
        self.list_keys(bucket, &scan).await
    }

    async fn create_upload(&self, bucket: &BucketName, upload: UploadRecord) -> Result<(), Error> {
        self.begin_upload(bucket, upload).await
    }

    async fn uploads(&self, bucket: &BucketName) -> Result<Vec<UploadRecord>, Error> {
        self.all_uploads(bucket).await
    }

    async fn upload(&self, object: &ObjectId, id: &str) -> Result<UploadRecord, Error> {
        let found = self.find_upload(object, id).await?;
        Ok(found.entry.record)
    }

    async fn upload_parts(&self, object: &ObjectId, id: &str) -> Result<Vec<PartRecord>, Error> {
        self.find_upload(object, id).await?;
        let parts = self.part_entries(&object.bucket, id).await?;
        Ok(parts.into_iter().map(|part| part.entry.record).collect())
    }

    async fn write_part(&self, part: PartPlace<'_>, body: Body) -> Result<PartRecord, Error> {
        self.take_part(part, body).await
    }

    async fn complete_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error> {
        self.end_upload(object, id, completion).await
    }

    async fn abort_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error> {
        self.drop_upload(object, id).await
    }
}

#[cfg(test)]
mod tests;
