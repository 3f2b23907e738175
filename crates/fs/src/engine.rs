//! The tree as an engine: each call is one hop to a blocking thread, bodies aside.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::{
    Engine,
    engine::{Bucket, Completion, NewObject, Opened, PartPlace},
    gate::Gate,
    ingest::Ingest,
    listing::{Page, Scan},
    pieces::{Piece, Pieces, Then},
    reading::Reading,
    record::{ObjectRecord, PartOfObject, PartRecord, UploadRecord},
};
use forebay_s3::{bucket::BucketName, operation::ObjectId};
use forebay_store::{Body, Error};
use rustix::fd::AsFd as _;

use crate::{
    RecordPlace, body, fault,
    staged::{Staged, Writing},
    store::Disk,
    walk::{Structure, Walk},
};

/// Bytes of a body that are hashed and written in one hop. 350 uploads at once then hold 45 MB.
const PIECE_BYTES_MAX: usize = 128 * 1024;

/// The engine.
#[derive(Debug)]
pub(crate) struct Fs {
    disk: Arc<Disk>,
}

impl Fs {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Runs `act` on a blocking thread; it runs to its end even when nobody waits any more.
    async fn hop<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Disk) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let disk = Arc::clone(&self.disk);
        match tokio::task::spawn_blocking(move || act(&disk)).await {
            Ok(outcome) => outcome,
            Err(panic) => Err(Error::internal("work on a blocking thread", panic)),
        }
    }

    /// Takes a body into a temporary file, and ends with `end` in the hop of its last piece.
    async fn take<T: Send + 'static>(
        &self,
        bucket: &BucketName,
        ingest: Ingest,
        body: Body,
        early: impl FnOnce(&Disk) -> Result<(), Error> + Send + 'static,
        end: impl FnOnce(&Disk, Staged, forebay_native::ingest::Ingested) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let mut pieces = Pieces::new(body, PIECE_BYTES_MAX);
        let first = pieces.next().await?;
        let bucket = bucket.clone();
        let begin = move |disk: &Disk, piece: &Piece| {
            let mut writing = Writing {
                staged: disk.stage(&bucket)?,
                ingest,
            };
            writing.take(piece)?;
            Ok::<_, Error>(writing)
        };
        if let Then::End(trailers) = &first.then {
            let trailers = trailers.clone();
            return self
                .hop(move |disk| {
                    let (staged, ingested) = begin(disk, &first)?.finish(trailers.as_ref())?;
                    end(disk, staged, ingested)
                })
                .await;
        }
        let mut writing = self
            .hop(move |disk| {
                early(disk)?;
                begin(disk, &first)
            })
            .await?;
        loop {
            let piece = pieces.next().await?;
            if let Then::End(trailers) = &piece.then {
                let trailers = trailers.clone();
                return self
                    .hop(move |disk| {
                        writing.take(&piece)?;
                        let (staged, ingested) = writing.finish(trailers.as_ref())?;
                        end(disk, staged, ingested)
                    })
                    .await;
            }
            writing = self
                .hop(move |_| {
                    writing.take(&piece)?;
                    Ok(writing)
                })
                .await?;
        }
    }
}

#[async_trait]
impl Engine for Fs {
    async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        self.hop(Disk::buckets).await
    }

    async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        let name = name.clone();
        self.hop(move |disk| disk.bucket(&name)).await
    }

    async fn create_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let name = name.clone();
        self.hop(move |disk| disk.create_bucket(&name)).await
    }

    async fn delete_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let name = name.clone();
        self.hop(move |disk| disk.delete_bucket(&name)).await
    }

    async fn read(&self, object: &ObjectId, reading: Reading) -> Result<Opened, Error> {
        let object = object.clone();
        self.hop(move |disk| {
            let found = disk.require(&object)?;
            let plan = reading.plan(&found.record)?;
            let first = if plan.sent.is_empty() {
                Bytes::new()
            } else {
                body::read_piece(&found.file, plan.sent.clone())?
            };
            let body = body::of_file(found.file, plan.sent.clone(), first);
            Ok(Opened {
                record: found.record,
                plan,
                body,
            })
        })
        .await
    }

    async fn parts(&self, object: &ObjectId) -> Result<(ObjectRecord, Vec<PartOfObject>), Error> {
        let object = object.clone();
        self.hop(move |disk| {
            let found = disk.require(&object)?;
            let parts = match found.record.part_count {
                Some(_) => disk.load_parts(&object, found.version())?,
                None => Vec::new(),
            };
            Ok((found.record, parts))
        })
        .await
    }

    async fn write(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error> {
        let NewObject {
            attributes,
            ingest,
            gate,
        } = new;
        let (object, early) = (object.clone(), (object.clone(), gate.clone()));
        let bucket = object.bucket.clone();
        self.take(
            &bucket,
            ingest,
            body,
            move |disk| disk.check_early(&early.0, &early.1),
            move |disk, staged, ingested| {
                let record = |modified_ms| ingested.into_object(attributes, modified_ms);
                let record = disk.seal(&staged, &object, &[], record)?;
                disk.commit(&object, staged, &gate)?;
                Ok(record)
            },
        )
        .await
    }

    async fn set_tags(&self, object: &ObjectId, tags: Vec<(String, String)>) -> Result<(), Error> {
        let object = object.clone();
        self.hop(move |disk| {
            let _key = disk.locks.key(&object);
            let mut found = disk.require(&object)?;
            found.record.attributes.tags = tags;
            let (file, version) = (found.file.as_fd(), found.version());
            let place = disk.store_record(&object, file, version, &found.record)?;
            disk.sync(file)
                .map_err(|e| fault::of_io("sync the tags of an object", e))?;
            match place {
                RecordPlace::Attribute => disk.forget_sidecar(&object, version),
                RecordPlace::Sidecar => Ok(()),
            }
        })
        .await
    }

    async fn delete(&self, object: &ObjectId, gate: Gate) -> Result<(), Error> {
        let object = object.clone();
        self.hop(move |disk| disk.delete(&object, &gate)).await
    }

    async fn list(&self, bucket: &BucketName, scan: Scan) -> Result<Page, Error> {
        let bucket = bucket.clone();
        self.hop(move |disk| {
            disk.require_bucket(&bucket)?;
            scan.page(&mut Walk::new(disk, &bucket, Structure::Unlocked))
        })
        .await
    }

    async fn create_upload(&self, bucket: &BucketName, upload: UploadRecord) -> Result<(), Error> {
        let bucket = bucket.clone();
        self.hop(move |disk| disk.create_upload(&bucket, &upload))
            .await
    }

    async fn uploads(&self, bucket: &BucketName) -> Result<Vec<UploadRecord>, Error> {
        let bucket = bucket.clone();
        self.hop(move |disk| disk.uploads(&bucket)).await
    }

    async fn upload(&self, object: &ObjectId, id: &str) -> Result<UploadRecord, Error> {
        let (object, id) = (object.clone(), id.to_owned());
        self.hop(move |disk| disk.upload(&object, &id)).await
    }

    async fn upload_parts(&self, object: &ObjectId, id: &str) -> Result<Vec<PartRecord>, Error> {
        let (object, id) = (object.clone(), id.to_owned());
        self.hop(move |disk| disk.upload_parts(&object, &id)).await
    }

    async fn write_part(&self, part: PartPlace<'_>, body: Body) -> Result<PartRecord, Error> {
        let PartPlace {
            object,
            upload_id,
            number,
            ingest,
        } = part;
        let (object, id) = (object.clone(), upload_id.to_owned());
        let bucket = object.bucket.clone();
        self.take(
            &bucket,
            ingest,
            body,
            |_| Ok(()),
            move |disk, staged, ingested| {
                disk.commit_part(&object, &id, number, (staged, ingested))
            },
        )
        .await
    }

    async fn complete_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error> {
        let (object, id) = (object.clone(), id.to_owned());
        self.hop(move |disk| disk.complete_upload(&object, &id, completion))
            .await
    }

    async fn abort_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error> {
        let (object, id) = (object.clone(), id.to_owned());
        self.hop(move |disk| disk.abort_upload(&object, &id)).await
    }
}
