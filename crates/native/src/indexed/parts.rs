//! Parts: of uploads under way, and of objects that were uploads.

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, operation::ObjectId};
use forebay_store::{Body, Error};

use super::{
    ATTEMPTS_MAX, Indexed,
    entry::{Kept, ObjectEntry, PartEntry, UploadEntry},
    intake::{self, TakenTo},
    names::{self, Place},
    too_contended,
};
use crate::{
    blobs::Blobs,
    engine::PartPlace,
    index::{Applied, Batch, Change, Entry, Expect, Index, Sequence, Want},
    record::{Choice, ObjectRecord, PartOfObject, PartRecord},
};

/// Entries read at a time.
const ENTRIES_MAX: usize = 1000;

/// A part as it was read.
#[derive(Debug)]
pub(super) struct FoundPart {
    pub(super) name: Bytes,
    pub(super) sequence: Sequence,
    pub(super) entry: PartEntry,
}

impl FoundPart {
    fn read(found: Entry) -> Result<Self, Error> {
        Ok(Self {
            entry: PartEntry::decode(&found.value)?,
            name: found.name,
            sequence: found.sequence,
        })
    }
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    /// The parts of an upload, by number.
    pub(super) async fn part_entries(
        &self,
        bucket: &BucketName,
        id: &str,
    ) -> Result<Vec<FoundPart>, Error> {
        let (mut parts, mut left) = (Vec::new(), names::parts(bucket, id));
        loop {
            let entries = self.index().range(left.clone(), ENTRIES_MAX).await?;
            let Some(last) = entries.last() else {
                return Ok(parts);
            };
            left.start = names::after(&last.name);
            for found in entries {
                parts.push(FoundPart::read(found)?);
            }
        }
    }

    /// The parts of an object that was an upload: all of them, or an error when it is being
    /// replaced.
    pub(super) async fn whole_parts(
        &self,
        bucket: &BucketName,
        id: &str,
        record: &ObjectRecord,
    ) -> Result<Vec<FoundPart>, Error> {
        let parts = self.part_entries(bucket, id).await?;
        let size_bytes: u64 = parts.iter().map(|part| part.entry.record.size_bytes).sum();
        let count = u32::try_from(parts.len()).ok();
        if size_bytes == record.size_bytes && count == record.part_count {
            return Ok(parts);
        }
        let reason = "its parts are not those of its record";
        Err(Error::internal("read an object", reason))
    }

    pub(super) async fn parts_of_object(
        &self,
        object: &ObjectId,
    ) -> Result<(ObjectRecord, Vec<PartOfObject>), Error> {
        let place = Place::of(object);
        for _ in 0..ATTEMPTS_MAX {
            let found = self.find_object(object, &place, Want::Value).await?;
            let ObjectEntry { record, kept } = ObjectEntry::decode(&found.value)?;
            let (upload_id, choice) = match kept {
                Kept::Beside | Kept::Blob(_) => return Ok((record, Vec::new())),
                Kept::Parts { upload_id, choice } => (upload_id, choice),
            };
            let parts = self.whole_parts(&object.bucket, &upload_id, &record);
            match parts.await {
                Ok(parts) => {
                    let told = |part: FoundPart| part.entry.record.of_object(choice);
                    return Ok((record, parts.into_iter().map(told).collect()));
                }
                Err(error) => self.unless_changed(&place, &found, error).await?,
            }
        }
        Err(too_contended())
    }

    pub(super) async fn take_part(
        &self,
        part: PartPlace<'_>,
        body: Body,
    ) -> Result<PartRecord, Error> {
        let PartPlace {
            object,
            upload_id,
            number,
            ingest,
        } = part;
        self.find_upload(object, upload_id).await?;
        let place = Place::of(object);
        let payload_bytes_max = self.index().payload_bytes_max();
        let taken = intake::take(self.blobs(), &place.route, body, ingest, payload_bytes_max);
        let taken = taken.await?;
        let record = taken.ingested.into_part(number, self.now_ms());
        let written = self.put_part(object, upload_id, &record, &taken.place);
        match written.await {
            Ok(()) => Ok(record),
            Err(error) => {
                self.discard_after(&error, &place.route, taken.place.blob())
                    .await;
                Err(error)
            }
        }
    }

    /// Writes the entry of a part, and removes the blob of the part that it replaces.
    async fn put_part(
        &self,
        object: &ObjectId,
        upload_id: &str,
        record: &PartRecord,
        taken: &TakenTo,
    ) -> Result<(), Error> {
        let place = Place::of(object);
        let name = names::part(&object.bucket, upload_id, record.number);
        let entry = PartEntry {
            record: *record,
            blob: taken.blob().cloned(),
        };
        let value = entry.encode()?;
        for _ in 0..ATTEMPTS_MAX {
            let upload = self.find_upload(object, upload_id).await?;
            let found = self.index().get(&place.route, &name, Want::Value).await?;
            let old = found.map(FoundPart::read).transpose()?;
            let expect = match &old {
                None => Expect::Absent,
                Some(old) => Expect::At(old.sequence),
            };
            let batch = Batch {
                expects: vec![
                    (upload.name, Expect::At(upload.sequence)),
                    (name.clone(), expect),
                ],
                changes: vec![Change::Put {
                    name: name.clone(),
                    value: value.clone(),
                    payload: taken.payload(),
                }],
            };
            if let Applied::Done(_) = self.index().apply(&place.route, batch).await? {
                let blob = old.and_then(|old| old.entry.blob);
                self.discard(&place.route, blob).await;
                return Ok(());
            }
        }
        Err(too_contended())
    }
}

impl UploadEntry {
    /// Whether the parts of its object tell their checksums.
    pub(super) fn choice(&self) -> Choice {
        self.record.checksum.choice
    }
}
