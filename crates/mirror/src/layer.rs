//! The store: which operation goes which way.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_native::hot::HotKey;
use forebay_s3::{
    code::Code,
    operation::{Effect, ObjectId, Operation, OperationName, Target},
};
use forebay_store::{Error, Request, Response, Store};

use crate::{
    MirrorParts, MirrorSettings, buckets,
    journal::{Subject, WriteKind},
    lists::{self, Kind},
    many,
    mirror::Shared,
    operate::MirrorOperator,
    read,
    repair::Repairer,
    request::{check_read_version, check_write_version},
    uploads,
    write::{What, write},
};

/// Several independent stores as one, see the crate's documentation.
pub struct MirrorStore {
    shared: Arc<Shared>,
    repairer: Arc<Repairer>,
}

impl MirrorStore {
    /// A mirror of these parts: two members at least, [`crate::MEMBERS_MAX`] at most. The journal
    /// is first read by the first request, so an engine that is late delays only that. Nothing is
    /// repaired until [`Repairer::run`] is driven.
    pub fn new(parts: MirrorParts, settings: MirrorSettings) -> Self {
        let shared = Arc::new(Shared::new(parts, settings));
        let repairer = Arc::new(Repairer::new(Arc::clone(&shared)));
        Self { shared, repairer }
    }

    /// What repairs members; its [`Repairer::run`] belongs in a task that the caller owns.
    pub fn repairer(&self) -> Arc<Repairer> {
        Arc::clone(&self.repairer)
    }

    /// A handle for whoever operates the mirror.
    pub fn operator(&self) -> MirrorOperator {
        MirrorOperator::new(Arc::clone(&self.shared), Arc::clone(&self.repairer))
    }
}

impl Drop for MirrorStore {
    /// The tasks share what the store owns, and would keep it alive.
    fn drop(&mut self) {
        self.shared.tasks.abort();
    }
}

#[async_trait]
impl Store for MirrorStore {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        use Operation as O;
        let shared = &self.shared;
        shared.ready().await?;
        match request.operation.clone() {
            O::GetObject(of) | O::HeadObject(of) => read_key(shared, request, &of.object).await,
            O::GetObjectAttributes(object) | O::GetObjectTagging(object) => {
                read_key(shared, request, &object).await
            }
            O::PutObject(object) => write_key(shared, request, &object, WriteKind::Put).await,
            O::CopyObject(copy) => {
                check_read_version(&copy.source)?;
                check_write_version(&copy.object)?;
                let what = What {
                    source: Some(HotKey::from(&copy.source)),
                    ..what(&copy.object, WriteKind::Put)
                };
                write(shared, request, what).await
            }
            O::DeleteObject(object) => write_key(shared, request, &object, WriteKind::Delete).await,
            O::PutObjectTagging(object) | O::DeleteObjectTagging(object) => {
                write_key(shared, request, &object, WriteKind::Retag).await
            }
            O::DeleteObjects(bucket) => many::delete(shared, request, &bucket).await,
            O::ListObjects(of) => lists::list(shared, request, Kind::V1, &of).await,
            O::ListObjectsV2(of) => lists::list(shared, request, Kind::V2, &of).await,
            O::ListObjectVersions(of) => lists::list(shared, request, Kind::Versions, &of).await,
            O::ListBuckets => lists::list_buckets(shared, request).await,
            O::HeadBucket(bucket) => read::read(shared, request, &Subject::Bucket(bucket)).await,
            O::CreateBucket(bucket) => {
                buckets::write(shared, request, bucket, WriteKind::Put).await
            }
            O::DeleteBucket(bucket) => {
                buckets::write(shared, request, bucket, WriteKind::Delete).await
            }
            O::Other(name, target) => other(shared, request, name, target).await,
            O::ListMultipartUploads(of) => uploads::list_uploads(shared, request, &of).await,
            O::CreateMultipartUpload(object) => uploads::create(shared, request, &object).await,
            O::UploadPart(part) => uploads::upload_part(shared, request, &part).await,
            O::UploadPartCopy(part, source) => {
                check_read_version(&source)?;
                uploads::upload_part_copy(shared, request, (&part, &source)).await
            }
            O::CompleteMultipartUpload(upload) => uploads::complete(shared, request, &upload).await,
            O::AbortMultipartUpload(upload) => uploads::abort(shared, &upload).await,
            O::ListParts(upload) => uploads::list_parts(shared, request, &upload).await,
            // The edge makes a PutObject of it.
            O::PostObject(_) => Err(Error::refused(Code::NotImplemented)),
        }
    }
}

fn what(object: &ObjectId, kind: WriteKind) -> What {
    What {
        key: HotKey::from(object),
        kind,
        source: None,
        uploads: None,
    }
}

async fn read_key(
    shared: &Arc<Shared>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    check_read_version(object)?;
    let subject = Subject::Object(HotKey::from(object));
    read::read(shared, request, &subject).await
}

async fn write_key(
    shared: &Arc<Shared>,
    request: Request,
    object: &ObjectId,
    kind: WriteKind,
) -> Result<Response, Error> {
    check_write_version(object)?;
    write(shared, request, what(object, kind)).await
}

/// An operation that the mirror does not know more of than its name.
async fn other(
    shared: &Arc<Shared>,
    request: Request,
    name: OperationName,
    target: Target,
) -> Result<Response, Error> {
    if name == OperationName::PutBucketVersioning {
        return Err(Error::refused_because(
            Code::NotImplemented,
            "A mirror does not keep versions, as independent stores name them differently.",
        ));
    }
    let subject = match target {
        Target::Service if name.effect() == Effect::Read => {
            return read::service(shared, request).await;
        }
        Target::Service => return Err(Error::refused(Code::NotImplemented)),
        Target::Bucket(bucket) => Subject::Bucket(bucket),
        Target::Object(bucket, key) => {
            if request
                .query
                .get("versionId")
                .is_some_and(|id| id != "null")
            {
                return Err(Error::refused(Code::NotImplemented));
            }
            Subject::Object(HotKey { bucket, key })
        }
    };
    match name.effect() {
        Effect::Read => read::read(shared, request, &subject).await,
        Effect::Write => buckets::to_each(shared, request, subject).await,
    }
}
