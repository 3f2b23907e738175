//! What a storage must do for [`crate::Native`] to make a store of it.

use async_trait::async_trait;
use forebay_s3::{bucket::BucketName, operation::ObjectId};
use forebay_store::{Body, Error};

use crate::{
    gate::Gate,
    ingest::Ingest,
    listing::{Page, Scan},
    reading::{Plan, Reading},
    record::{Attributes, ObjectRecord, PartOfObject, PartRecord, UploadRecord},
};

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: BucketName,
    /// When it was made, Unix milliseconds.
    pub created_ms: i64,
}

/// An object about to be written.
#[derive(Debug)]
pub struct NewObject {
    /// What its writer says about it.
    pub attributes: Attributes,
    /// Digests of its bytes, to be fed with them.
    pub ingest: Ingest,
    /// What must hold of the object that it replaces.
    pub gate: Gate,
}

/// An object opened for reading.
#[derive(Debug)]
pub struct Opened {
    /// Its record.
    pub record: ObjectRecord,
    /// What its [`Reading`] said of the record.
    pub plan: Plan,
    /// The bytes of `plan.sent`.
    pub body: Body,
}

/// A multipart upload about to become an object.
#[derive(Debug)]
pub struct Completion {
    /// Record of the object; the engine sets the time.
    pub record: ObjectRecord,
    /// Its parts in order, as [`Engine::upload_parts`] gave them.
    pub parts: Vec<PartRecord>,
    /// What must hold of the object that it replaces.
    pub gate: Gate,
}

/// Keeps buckets, objects and uploads.
///
/// Contract, checked through [`crate::Native`] by the contract suite:
/// - Every method refuses with `NoSuchBucket`, `NoSuchKey` or `NoSuchUpload` what is not there.
/// - A write happens as a whole or not at all, also when its future is dropped or its body ends in
///   an error, and its gate is checked in one step with it.
/// - Bytes and record of an opened object are of one version, whatever is written meanwhile.
/// - The version in an [`ObjectId`] is not looked at: there is only one.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// All buckets by name.
    async fn buckets(&self) -> Result<Vec<Bucket>, Error>;

    /// A bucket.
    async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error>;

    /// Makes a bucket, or refuses with `BucketAlreadyOwnedByYou`.
    async fn create_bucket(&self, name: &BucketName) -> Result<(), Error>;

    /// Removes a bucket and its unfinished uploads, or refuses with `BucketNotEmpty`.
    async fn delete_bucket(&self, name: &BucketName) -> Result<(), Error>;

    /// Opens an object, judges it by `reading`, and begins to send it.
    async fn read(&self, object: &ObjectId, reading: Reading) -> Result<Opened, Error>;

    /// The parts of an object; none when it was not a multipart upload.
    async fn parts(&self, object: &ObjectId) -> Result<(ObjectRecord, Vec<PartOfObject>), Error>;

    /// Writes an object.
    async fn write(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error>;

    /// Replaces the tags of an object; its time of modification stays.
    async fn set_tags(&self, object: &ObjectId, tags: Vec<(String, String)>) -> Result<(), Error>;

    /// Deletes an object; one that is not there is success.
    async fn delete(&self, object: &ObjectId, gate: Gate) -> Result<(), Error>;

    /// One page of a listing.
    async fn list(&self, bucket: &BucketName, scan: Scan) -> Result<Page, Error>;

    /// Begins an upload.
    async fn create_upload(&self, bucket: &BucketName, upload: UploadRecord) -> Result<(), Error>;

    /// All uploads of a bucket, in any order.
    async fn uploads(&self, bucket: &BucketName) -> Result<Vec<UploadRecord>, Error>;

    /// An upload of this object.
    async fn upload(&self, object: &ObjectId, id: &str) -> Result<UploadRecord, Error>;

    /// The parts of an upload by number.
    async fn upload_parts(&self, object: &ObjectId, id: &str) -> Result<Vec<PartRecord>, Error>;

    /// Writes a part, replacing one of the same number.
    async fn write_part(&self, part: PartPlace<'_>, body: Body) -> Result<PartRecord, Error>;

    /// Makes an object of an upload, and forgets the upload. Refuses with `InvalidPart` when a
    /// part was replaced meanwhile.
    async fn complete_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error>;

    /// Forgets an upload and its parts.
    async fn abort_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error>;
}

/// Where a part goes.
#[derive(Debug)]
pub struct PartPlace<'a> {
    /// Object of the upload.
    pub object: &'a ObjectId,
    /// Id of the upload.
    pub upload_id: &'a str,
    /// Number of the part, `1..=10000`.
    pub number: u16,
    /// Digests of its bytes, to be fed with them.
    pub ingest: Ingest,
}
