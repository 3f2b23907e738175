//! Objects: read, written, deleted, tagged.

use std::ops::Range;

use bytes::Bytes;
use forebay_s3::operation::ObjectId;
use forebay_store::{Body, Error};

use super::{
    ATTEMPTS_MAX, Indexed,
    entry::{Kept, ObjectEntry},
    intake::{self, TakenTo},
    names::Place,
    replace::{NewEntry, Replaced, Replacement},
    too_contended,
};
use crate::{
    blobs::Blobs,
    engine::{NewObject, Opened},
    gate::Gate,
    index::{Applied, Batch, Change, Entry, Expect, Index, Payload, Want},
    reading::{self, Reading},
    record::ObjectRecord,
    refuse,
};

impl<I: Index, B: Blobs> Indexed<I, B> {
    pub(super) async fn read_object(
        &self,
        object: &ObjectId,
        reading: &Reading,
    ) -> Result<Opened, Error> {
        let place = Place::of(object);
        let want = match reading.payload {
            reading::Payload::Sent => Want::Payload,
            reading::Payload::Withheld => Want::Value,
        };
        for _ in 0..ATTEMPTS_MAX {
            let found = self.find_object(object, &place, want).await?;
            let entry = ObjectEntry::decode(&found.value)?;
            let plan = reading.plan(&entry.record)?;
            let opened = self.open(object, &place, &found, &entry.kept, plan.sent.clone());
            match opened.await {
                Ok(body) => {
                    return Ok(Opened {
                        record: entry.record,
                        plan,
                        body,
                    });
                }
                Err(error) => self.unless_changed(&place, &found, error).await?,
            }
        }
        Err(too_contended())
    }

    /// The entry of an object.
    pub(super) async fn find_object(
        &self,
        object: &ObjectId,
        place: &Place,
        want: Want,
    ) -> Result<Entry, Error> {
        if let Some(found) = self.index().get(&place.route, &place.name, want).await? {
            return Ok(found);
        }
        self.look_at_bucket(&object.bucket).await?;
        Err(refuse::no_such_key(&object.key))
    }

    /// The bytes of an object.
    async fn open(
        &self,
        object: &ObjectId,
        place: &Place,
        found: &Entry,
        kept: &Kept,
        span: Range<u64>,
    ) -> Result<Body, Error> {
        if span.is_empty() {
            return Ok(Body::empty());
        }
        match kept {
            Kept::Beside => slice(found.payload.as_ref(), span).map(Body::from),
            Kept::Blob(blob) => self.blobs().read(&place.route, blob, span).await,
            Kept::Parts { upload_id, .. } => {
                let record = ObjectEntry::decode(&found.value)?.record;
                let parts = self.whole_parts(&object.bucket, upload_id, &record).await?;
                Ok(self.join(&place.route, parts, span))
            }
        }
    }

    /// Passes an error on, unless it came because the entry was changed since it was read.
    pub(super) async fn unless_changed(
        &self,
        place: &Place,
        found: &Entry,
        error: Error,
    ) -> Result<(), Error> {
        let now = self.index().get(&place.route, &place.name, Want::Value);
        match now.await? {
            Some(now) if now.sequence == found.sequence => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) async fn write_object(
        &self,
        object: &ObjectId,
        new: NewObject,
        body: Body,
    ) -> Result<ObjectRecord, Error> {
        let place = Place::of(object);
        self.remembered_bucket(&object.bucket).await?;
        let payload_bytes_max = self.index().payload_bytes_max();
        let taken = intake::take(
            self.blobs(),
            &place.route,
            body,
            new.ingest,
            payload_bytes_max,
        );
        let taken = taken.await?;
        let record = taken.ingested.into_object(new.attributes, self.now_ms());
        let written = self.put(object, &place, &new.gate, &record, &taken.place);
        match written.await {
            Ok(()) => Ok(record),
            Err(error) => {
                self.discard_after(&error, &place.route, taken.place.blob())
                    .await;
                Err(error)
            }
        }
    }

    async fn put(
        &self,
        object: &ObjectId,
        place: &Place,
        gate: &Gate,
        record: &ObjectRecord,
        taken: &TakenTo,
    ) -> Result<(), Error> {
        let kept = match taken {
            TakenTo::Here(_) => Kept::Beside,
            TakenTo::Blob(blob) => Kept::Blob(blob.clone()),
        };
        let blob = taken.blob();
        let new = NewEntry {
            value: ObjectEntry::encode(record, &kept)?,
            payload: taken.payload(),
            large: blob.map(|blob| Bytes::copy_from_slice(blob.0.as_bytes())),
        };
        self.replace_alone(object, place, gate, Some(new)).await
    }

    pub(super) async fn delete_object(&self, object: &ObjectId, gate: &Gate) -> Result<(), Error> {
        self.replace_alone(object, &Place::of(object), gate, None)
            .await
    }

    /// Changes an object, and nothing beside it.
    async fn replace_alone(
        &self,
        object: &ObjectId,
        place: &Place,
        gate: &Gate,
        to: Option<NewEntry>,
    ) -> Result<(), Error> {
        let asked = Replacement {
            object,
            place,
            gate,
            to,
            expects: Vec::new(),
            changes: Vec::new(),
        };
        match self.replace(&asked).await? {
            Replaced::Done => Ok(()),
            Replaced::Unexpected(_) | Replaced::TooMany => Err(Error::internal(
                "replace an object",
                "what was not asked for was refused",
            )),
        }
    }

    pub(super) async fn write_tags(
        &self,
        object: &ObjectId,
        tags: &[(String, String)],
    ) -> Result<(), Error> {
        let place = Place::of(object);
        for _ in 0..ATTEMPTS_MAX {
            let bucket = self.remembered_bucket(&object.bucket).await?;
            let found = self.find_object(object, &place, Want::Value).await?;
            let mut entry = ObjectEntry::decode(&found.value)?;
            entry.record.attributes.tags = tags.to_vec();
            let batch = Batch {
                expects: vec![
                    (bucket.mark.clone(), Expect::Present),
                    (place.name.clone(), Expect::At(found.sequence)),
                ],
                changes: vec![Change::Put {
                    name: place.name.clone(),
                    value: ObjectEntry::encode(&entry.record, &entry.kept)?,
                    payload: Payload::Keep,
                }],
            };
            match self.index().apply(&place.route, batch).await? {
                Applied::Done(_) => return Ok(()),
                Applied::Unexpected { expect_index: 0 } => {
                    self.mend_bucket(&object.bucket, &bucket).await?;
                }
                Applied::Unexpected { .. } => {}
            }
        }
        Err(too_contended())
    }
}

/// Bytes `span` of a payload.
pub(super) fn slice(payload: Option<&Bytes>, span: Range<u64>) -> Result<Bytes, Error> {
    let within = |payload: &Bytes| {
        let (start, end) = (
            usize::try_from(span.start).ok()?,
            usize::try_from(span.end).ok()?,
        );
        (start <= end && end <= payload.len()).then(|| payload.slice(start..end))
    };
    payload
        .and_then(within)
        .ok_or_else(|| Error::internal("read an object", "its payload is shorter than its record"))
}
