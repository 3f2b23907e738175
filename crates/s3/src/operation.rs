//! The operations of the S3 API, as values a layer can match on.
//!
//! [`OperationName`] names all of them. [`Operation`] carries typed fields for those that a layer
//! acts on; each of the others is [`Operation::Other`] and passes every layer untouched, so
//! nothing that a future S3 adds is lost on the way to an S3 origin.

use crate::{
    bucket::BucketName,
    key::{ObjectKey, VersionId},
    range::RangeHeader,
};

mod action;
mod name;
mod selector;

pub use action::Action;
pub use name::{Addressed, Effect, OperationName, Scope};
pub(crate) use name::{ROWS, Row, Verb};
pub(crate) use selector::{Kind, Set, find as find_parameter};

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The service: its list of buckets.
    Service,
    /// A bucket.
    Bucket(BucketName),
    /// An object of a bucket.
    Object(BucketName, ObjectKey),
}

/// An object, or one version of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// Bucket that holds it.
    pub bucket: BucketName,
    /// Its key.
    pub key: ObjectKey,
    /// `versionId` of the query.
    pub version: Option<VersionId>,
}

/// What `GetObject` and `HeadObject` ask for, besides the conditions in the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadObject {
    /// The object.
    pub object: ObjectId,
    /// A `Range` header that counts; `None` also when it is to be ignored.
    pub range: Option<RangeHeader>,
    /// `partNumber` of the query, `1..=10000`.
    pub part_number: Option<u16>,
}

/// Where `CopyObject` and `UploadPartCopy` take their bytes (`x-amz-copy-source`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyObject {
    /// The object written.
    pub object: ObjectId,
    /// The object read.
    pub source: ObjectId,
}

/// A listing of a bucket's keys; the rest of its parameters are in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Bucket listed.
    pub bucket: BucketName,
    /// `prefix` of the query, decoded; empty when absent.
    pub prefix: String,
}

/// A multipart upload under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The object it will make.
    pub object: ObjectId,
    /// `uploadId` of the query, decoded.
    pub upload_id: String,
}

/// A part of a multipart upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPart {
    /// The upload it belongs to.
    pub upload: Upload,
    /// `partNumber` of the query, `1..=10000`.
    pub part_number: u16,
}

/// One S3 operation with the fields a layer may act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// GET / (service).
    ListBuckets,
    /// HEAD of a bucket.
    HeadBucket(BucketName),
    /// PUT of a bucket.
    CreateBucket(BucketName),
    /// DELETE of a bucket.
    DeleteBucket(BucketName),
    /// GET of a bucket, first version.
    ListObjects(Listing),
    /// GET of a bucket with `list-type=2`.
    ListObjectsV2(Listing),
    /// GET of a bucket with `versions`.
    ListObjectVersions(Listing),
    /// GET of a bucket with `uploads`.
    ListMultipartUploads(Listing),
    /// GET of an object.
    GetObject(ReadObject),
    /// HEAD of an object.
    HeadObject(ReadObject),
    /// GET of an object with `attributes`.
    GetObjectAttributes(ObjectId),
    /// PUT of an object.
    PutObject(ObjectId),
    /// POST of a form to a bucket; the key is in the form, so the edge rewrites it as
    /// [`Operation::PutObject`] before any store sees it.
    PostObject(BucketName),
    /// PUT of an object with `x-amz-copy-source`.
    CopyObject(CopyObject),
    /// DELETE of an object.
    DeleteObject(ObjectId),
    /// POST of a bucket with `delete`.
    DeleteObjects(BucketName),
    /// POST of an object with `uploads`.
    CreateMultipartUpload(ObjectId),
    /// PUT of an object with `uploadId` and `partNumber`.
    UploadPart(UploadPart),
    /// The same with `x-amz-copy-source`.
    UploadPartCopy(UploadPart, ObjectId),
    /// POST of an object with `uploadId`.
    CompleteMultipartUpload(Upload),
    /// DELETE of an object with `uploadId`.
    AbortMultipartUpload(Upload),
    /// GET of an object with `uploadId`.
    ListParts(Upload),
    /// GET of an object with `tagging`.
    GetObjectTagging(ObjectId),
    /// PUT of an object with `tagging`.
    PutObjectTagging(ObjectId),
    /// DELETE of an object with `tagging`.
    DeleteObjectTagging(ObjectId),
    /// Any other operation of the API.
    Other(OperationName, Target),
}

impl Operation {
    /// The operation's name in the S3 API.
    pub fn name(&self) -> OperationName {
        use OperationName as N;
        match self {
            Self::ListBuckets => N::ListBuckets,
            Self::HeadBucket(_) => N::HeadBucket,
            Self::CreateBucket(_) => N::CreateBucket,
            Self::DeleteBucket(_) => N::DeleteBucket,
            Self::ListObjects(_) => N::ListObjects,
            Self::ListObjectsV2(_) => N::ListObjectsV2,
            Self::ListObjectVersions(_) => N::ListObjectVersions,
            Self::ListMultipartUploads(_) => N::ListMultipartUploads,
            Self::GetObject(_) => N::GetObject,
            Self::HeadObject(_) => N::HeadObject,
            Self::GetObjectAttributes(_) => N::GetObjectAttributes,
            Self::PutObject(_) => N::PutObject,
            Self::PostObject(_) => N::PostObject,
            Self::CopyObject(_) => N::CopyObject,
            Self::DeleteObject(_) => N::DeleteObject,
            Self::DeleteObjects(_) => N::DeleteObjects,
            Self::CreateMultipartUpload(_) => N::CreateMultipartUpload,
            Self::UploadPart(_) => N::UploadPart,
            Self::UploadPartCopy(..) => N::UploadPartCopy,
            Self::CompleteMultipartUpload(_) => N::CompleteMultipartUpload,
            Self::AbortMultipartUpload(_) => N::AbortMultipartUpload,
            Self::ListParts(_) => N::ListParts,
            Self::GetObjectTagging(_) => N::GetObjectTagging,
            Self::PutObjectTagging(_) => N::PutObjectTagging,
            Self::DeleteObjectTagging(_) => N::DeleteObjectTagging,
            Self::Other(name, _) => *name,
        }
    }

    /// The bucket addressed, if any.
    pub fn bucket(&self) -> Option<&BucketName> {
        match self {
            Self::ListBuckets | Self::Other(_, Target::Service) => None,
            Self::HeadBucket(bucket)
            | Self::CreateBucket(bucket)
            | Self::DeleteBucket(bucket)
            | Self::PostObject(bucket)
            | Self::DeleteObjects(bucket)
            | Self::Other(_, Target::Bucket(bucket) | Target::Object(bucket, _)) => Some(bucket),
            Self::ListObjects(listing)
            | Self::ListObjectsV2(listing)
            | Self::ListObjectVersions(listing)
            | Self::ListMultipartUploads(listing) => Some(&listing.bucket),
            _ => self.object().map(|object| &object.bucket),
        }
    }

    /// The key addressed, if any.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Other(_, Target::Object(_, key)) => Some(key),
            _ => self.object().map(|object| &object.key),
        }
    }

    /// The object addressed, if this operation is one with typed fields about one object.
    pub fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::GetObject(read) | Self::HeadObject(read) => Some(&read.object),
            Self::GetObjectAttributes(object)
            | Self::PutObject(object)
            | Self::DeleteObject(object)
            | Self::CreateMultipartUpload(object)
            | Self::GetObjectTagging(object)
            | Self::PutObjectTagging(object)
            | Self::DeleteObjectTagging(object) => Some(object),
            Self::CopyObject(copy) => Some(&copy.object),
            Self::UploadPart(part) | Self::UploadPartCopy(part, _) => Some(&part.upload.object),
            Self::CompleteMultipartUpload(upload)
            | Self::AbortMultipartUpload(upload)
            | Self::ListParts(upload) => Some(&upload.object),
            Self::ListBuckets
            | Self::HeadBucket(_)
            | Self::CreateBucket(_)
            | Self::DeleteBucket(_)
            | Self::ListObjects(_)
            | Self::ListObjectsV2(_)
            | Self::ListObjectVersions(_)
            | Self::ListMultipartUploads(_)
            | Self::PostObject(_)
            | Self::DeleteObjects(_)
            | Self::Other(..) => None,
        }
    }
}
