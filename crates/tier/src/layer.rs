//! The layer: which operation goes which way.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_native::{
    hot::{Holding, HotKey},
    refuse,
};
use forebay_s3::{
    bucket::BucketName,
    operation::{Effect, ObjectId, Operation, OperationName, Target},
};
use forebay_store::{Error, Request, Response, Store};

use crate::{
    direct::{self, Telling},
    lists::{self, Kind},
    many,
    mover::{self, Mover},
    operate::TierOperator,
    read,
    settings::TierSettings,
    tier::{Tier, TierParts},
    write,
};

/// Records read at once where all of a bucket are looked through.
const RECORDS_MAX: usize = 256;

/// A tier, see the crate's documentation.
pub struct TierLayer {
    tier: Arc<Tier>,
    mover: Arc<Mover>,
}

impl TierLayer {
    /// A tier of these components. Nothing is moved until [`Mover::run`] is driven.
    pub fn new(parts: TierParts, settings: TierSettings) -> Self {
        let tier = Arc::new(Tier::new(parts, settings));
        let mover = Arc::new(Mover::new(Arc::clone(&tier)));
        Self { tier, mover }
    }

    /// What moves objects; its [`Mover::run`] belongs in a task that the caller owns.
    pub fn mover(&self) -> Arc<Mover> {
        Arc::clone(&self.mover)
    }

    /// A handle for whoever operates the tier.
    pub fn operator(&self) -> TierOperator {
        TierOperator::new(Arc::clone(&self.tier), Arc::clone(&self.mover))
    }
}

#[async_trait]
impl Store for TierLayer {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        use Operation as O;
        let tier = &self.tier;
        match request.operation.clone() {
            O::GetObject(of) | O::HeadObject(of) => read::read(tier, request, &of.object).await,
            O::GetObjectAttributes(object) | O::GetObjectTagging(object) => {
                read::read(tier, request, &object).await
            }
            O::PutObject(object) => write::put(tier, request, &object).await,
            O::CopyObject(copy) => write::copy(tier, request, &copy).await,
            O::PutObjectTagging(object) | O::DeleteObjectTagging(object) => {
                write::retag(tier, request, &object).await
            }
            O::DeleteObject(object) => write::delete(tier, request, &object).await,
            O::DeleteObjects(bucket) => many::delete(tier, request, &bucket).await,
            O::ListObjects(of) => lists::list(tier, request, Kind::V1, &of).await,
            O::ListObjectsV2(of) => lists::list(tier, request, Kind::V2, &of).await,
            O::ListObjectVersions(of) => lists::list(tier, request, Kind::Versions, &of).await,
            O::UploadPartCopy(_, source) => {
                direct::flush(tier, &HotKey::from(&source)).await?;
                tier.cold.store.call(request).await
            }
            O::CompleteMultipartUpload(upload) => {
                direct::write(tier, request, &upload.object, Telling::Body).await
            }
            O::CreateBucket(bucket) => {
                tier.buckets.forget(&bucket);
                tier.cold.store.call(request).await
            }
            O::DeleteBucket(bucket) => delete_bucket(tier, request, &bucket).await,
            O::Other(name, target) => other(tier, request, name, target).await,
            O::ListBuckets
            | O::HeadBucket(_)
            | O::ListMultipartUploads(_)
            | O::CreateMultipartUpload(_)
            | O::UploadPart(_)
            | O::AbortMultipartUpload(_)
            | O::ListParts(_)
            | O::PostObject(_) => tier.cold.store.call(request).await,
        }
    }
}

/// An operation that only the cold store knows: it has to have the object first.
async fn other(
    tier: &Arc<Tier>,
    request: Request,
    name: OperationName,
    target: Target,
) -> Result<Response, Error> {
    match target {
        Target::Service => tier.cold.store.call(request).await,
        Target::Bucket(bucket) => {
            // It may turn versions on.
            if name.effect() != Effect::Read {
                tier.buckets.forget(&bucket);
            }
            tier.cold.store.call(request).await
        }
        Target::Object(bucket, key) => {
            let object = ObjectId {
                bucket,
                key,
                version: None,
            };
            if name.effect() == Effect::Read {
                direct::flush(tier, &HotKey::from(&object)).await?;
                return read::cold(tier, request).await;
            }
            direct::write(tier, request, &object, Telling::Status).await
        }
    }
}

/// A bucket goes when nothing hot is in it; deletes that the cold store has not had go first.
async fn delete_bucket(
    tier: &Arc<Tier>,
    request: Request,
    bucket: &BucketName,
) -> Result<Response, Error> {
    let mut from = Vec::new();
    loop {
        let records = tier
            .hot
            .range(bucket, from..vec![0xff], RECORDS_MAX)
            .await
            .map_err(|error| tier.hot_failed(&error))?;
        let Some((last, _)) = records.last() else {
            break;
        };
        from = [last.as_str().as_bytes(), &[0]].concat();
        for (key, held) in records {
            match held.record.holding {
                Holding::Dirty(_) | Holding::Conflict { .. } => {
                    return Err(refuse::bucket_not_empty(bucket));
                }
                Holding::Tombstone => {
                    let bucket = bucket.clone();
                    mover::move_now(tier, &HotKey { bucket, key }).await?;
                }
                Holding::Buried(_) | Holding::Settling(_) => {}
            }
        }
    }
    tier.buckets.forget(bucket);
    tier.cold.store.call(request).await
}
