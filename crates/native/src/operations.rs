//! The operations: typed S3 requests to calls of an engine, and its records to answers.

use async_trait::async_trait;
use forebay_s3::{
    code::Code,
    key::VersionId,
    operation::{ObjectId, Operation, OperationName, Target},
    time,
};
use forebay_store::{Clock, Error, Request, Response, Store};

use crate::{Engine, ids::Ids, xml};

mod buckets;
mod completion;
mod copy;
mod lists;
mod objects;
mod tagging;
mod uploads;

/// A store over an engine.
///
/// Answers the operations on buckets, objects, listings, multipart uploads, tags and attributes of
/// an unversioned S3 bucket; any other operation is refused with `NotImplemented`.
#[derive(Debug)]
pub struct Native<E> {
    engine: E,
    clock: Clock,
    settings: Settings,
    ids: Ids,
}

/// What a store tells its clients about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Region that buckets are said to be in.
    pub region: String,
    /// Owner that buckets and objects are said to have.
    pub owner: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region: DEFAULT_REGION.to_owned(),
            owner: "forebay".to_owned(),
        }
    }
}

/// The region whose location S3 writes as an empty text.
const DEFAULT_REGION: &str = "us-east-1";

impl<E: Engine> Native<E> {
    /// Makes a store of `engine`.
    pub fn new(engine: E, clock: Clock, settings: Settings) -> Self {
        Self {
            engine,
            clock,
            settings,
            ids: Ids::default(),
        }
    }

    /// The engine within.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    fn now_ms(&self) -> i64 {
        time::unix_millis(self.clock.wall())
    }
}

#[async_trait]
impl<E: Engine> Store for Native<E> {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        use Operation as O;
        let Request {
            operation,
            headers,
            query,
            body,
            ..
        } = request;
        let asked = Asked { headers, query };
        match operation {
            O::ListBuckets => self.list_buckets(&asked).await,
            O::HeadBucket(bucket) => self.head_bucket(&bucket).await,
            O::CreateBucket(bucket) => self.create_bucket(&bucket, &asked, body).await,
            O::DeleteBucket(bucket) => self.delete_bucket(&bucket).await,
            O::ListObjects(listing) => self.list_objects(&listing, &asked).await,
            O::ListObjectsV2(listing) => self.list_objects_v2(&listing, &asked).await,
            O::ListObjectVersions(listing) => self.list_versions(&listing, &asked).await,
            O::ListMultipartUploads(listing) => self.list_uploads(&listing, &asked).await,
            O::GetObject(read) => {
                self.read(&read, &asked, crate::reading::Payload::Sent)
                    .await
            }
            O::HeadObject(read) => {
                self.read(&read, &asked, crate::reading::Payload::Withheld)
                    .await
            }
            O::GetObjectAttributes(object) => self.attributes(&object, &asked).await,
            O::PutObject(object) => self.put(&object, &asked, body).await,
            O::CopyObject(copy) => self.copy(&copy, &asked).await,
            O::DeleteObject(object) => self.delete(&object, &asked).await,
            O::DeleteObjects(bucket) => self.delete_many(&bucket, body).await,
            O::CreateMultipartUpload(object) => self.create_upload(&object, &asked).await,
            O::UploadPart(part) => self.upload_part(&part, &asked, body).await,
            O::UploadPartCopy(part, source) => self.upload_part_copy(&part, &source, &asked).await,
            O::CompleteMultipartUpload(upload) => self.complete_upload(&upload, &asked, body).await,
            O::AbortMultipartUpload(upload) => self.abort_upload(&upload).await,
            O::ListParts(upload) => self.list_parts(&upload, &asked).await,
            O::GetObjectTagging(object) => self.tags(&object).await,
            O::PutObjectTagging(object) => {
                let (document, _) = body.collect(xml::DOCUMENT_BYTES_MAX).await?;
                self.put_tags(&object, crate::tags::from_document(&document)?)
                    .await
            }
            O::DeleteObjectTagging(object) => self.delete_tags(&object).await,
            O::Other(name, target) => self.other(name, &target).await,
            O::PostObject(_) => Err(not_implemented()),
        }
    }
}

impl<E: Engine> Native<E> {
    async fn other(&self, name: OperationName, target: &Target) -> Result<Response, Error> {
        use OperationName as N;
        match (name, target) {
            (N::GetBucketLocation, Target::Bucket(bucket)) => self.location(bucket).await,
            (N::GetBucketVersioning, Target::Bucket(bucket)) => self.versioning(bucket).await,
            (N::GetBucketAcl, Target::Bucket(bucket)) => {
                self.engine.bucket(bucket).await?;
                Ok(self.acl())
            }
            (N::GetObjectAcl, Target::Object(bucket, key)) => {
                let object = ObjectId {
                    bucket: bucket.clone(),
                    key: key.clone(),
                    version: None,
                };
                self.head_record(&object).await?;
                Ok(self.acl())
            }
            _ => Err(not_implemented()),
        }
    }
}

/// What a request says besides its typed fields and its body.
#[derive(Debug)]
struct Asked {
    headers: http::HeaderMap,
    query: forebay_store::Query,
}

impl Asked {
    /// A header's text; `None` when absent or no text.
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

fn not_implemented() -> Error {
    Error::refused_because(
        Code::NotImplemented,
        "This store does not implement the requested operation.",
    )
}

/// Refuses any version but `null`, the only one of an object that has no versions.
fn only_null_version(object: &ObjectId) -> Result<(), Error> {
    match object.version.as_ref().map(VersionId::as_str) {
        None | Some("null") => Ok(()),
        Some(version) => {
            let mut error = Error::refused(Code::NoSuchVersion);
            if let Error::Refused(refusal) = &mut error {
                refusal
                    .details
                    .push(("Key", object.key.as_str().to_owned()));
                refusal.details.push(("VersionId", version.to_owned()));
            }
            Err(error)
        }
    }
}
