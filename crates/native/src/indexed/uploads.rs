//! Multipart uploads: begun, completed, aborted.

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, code::Code, operation::ObjectId};
use forebay_store::Error;

use super::{
    ATTEMPTS_MAX, Indexed,
    entry::{Kept, ObjectEntry, UploadEntry, UploadState},
    names::{self, Place},
    parts::FoundPart,
    replace::{NewEntry, Replaced, Replacement},
    too_contended,
};
use crate::{
    blobs::{BlobId, Blobs},
    engine::Completion,
    index::{Applied, Batch, Change, Entry, Expect, Index, Payload, Sequence, Want},
    record::{ObjectRecord, PartRecord, UploadRecord},
    refuse,
};

/// Entries read at a time.
const ENTRIES_MAX: usize = 1000;

/// An upload as it was read.
#[derive(Debug)]
pub(super) struct FoundUpload {
    pub(super) name: Bytes,
    pub(super) sequence: Sequence,
    pub(super) entry: UploadEntry,
}

impl FoundUpload {
    fn read(found: Entry) -> Result<Self, Error> {
        Ok(Self {
            entry: UploadEntry::decode(&found.value)?,
            name: found.name,
            sequence: found.sequence,
        })
    }
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    pub(super) async fn begin_upload(
        &self,
        bucket: &BucketName,
        record: UploadRecord,
    ) -> Result<(), Error> {
        let place = Place::at(bucket, &record.key);
        let name = names::upload(bucket, &record.id);
        let mut entry = UploadEntry {
            record,
            birth: String::new(),
            state: UploadState::Open,
        };
        for _ in 0..ATTEMPTS_MAX {
            let seen = self.remembered_bucket(bucket).await?;
            entry.birth.clone_from(&seen.entry.birth);
            let batch = Batch {
                expects: vec![(seen.mark.clone(), Expect::Present)],
                changes: vec![Change::Put {
                    name: name.clone(),
                    value: entry.encode()?,
                    payload: Payload::None,
                }],
            };
            match self.index().apply(&place.route, batch).await? {
                Applied::Done(_) => return Ok(()),
                Applied::Unexpected { .. } => self.mend_bucket(bucket, &seen).await?,
            }
        }
        Err(too_contended())
    }

    /// An upload of this object that takes parts.
    pub(super) async fn find_upload(
        &self,
        object: &ObjectId,
        id: &str,
    ) -> Result<FoundUpload, Error> {
        let found = self.find_any_upload(object, id).await?;
        match found.entry.state {
            UploadState::Open => Ok(found),
            UploadState::Aborted => Err(refuse::no_such_upload(id)),
        }
    }

    async fn find_any_upload(&self, object: &ObjectId, id: &str) -> Result<FoundUpload, Error> {
        let seen = self.look_at_bucket(&object.bucket).await?;
        let found = if names::is_upload_id(id) {
            let (place, name) = (Place::of(object), names::upload(&object.bucket, id));
            self.index().get(&place.route, &name, Want::Value).await?
        } else {
            None
        };
        let found = found.map(FoundUpload::read).transpose()?;
        let is_of = |found: &FoundUpload| {
            found.entry.record.key == object.key.as_str() && found.entry.birth == seen.entry.birth
        };
        found
            .filter(is_of)
            .ok_or_else(|| refuse::no_such_upload(id))
    }

    pub(super) async fn all_uploads(
        &self,
        bucket: &BucketName,
    ) -> Result<Vec<UploadRecord>, Error> {
        let seen = self.look_at_bucket(bucket).await?;
        let mut uploads = Vec::new();
        let mut left = names::uploads(bucket);
        while let Some(found) = self.next_uploads(&mut left).await? {
            for found in found {
                match found.entry.state {
                    UploadState::Open if found.entry.birth == seen.entry.birth => {
                        uploads.push(found.entry.record);
                    }
                    UploadState::Open => {}
                    // Whoever aborted it may be gone, and a client that lists looks for leftovers.
                    UploadState::Aborted => {
                        let _swept_later = self.abort(bucket, found).await;
                    }
                }
            }
        }
        Ok(uploads)
    }

    /// The next uploads of a range of names; `None` at its end.
    async fn next_uploads(
        &self,
        left: &mut std::ops::Range<Bytes>,
    ) -> Result<Option<Vec<FoundUpload>>, Error> {
        let entries = self.index().range(left.clone(), ENTRIES_MAX).await?;
        let Some(last) = entries.last() else {
            return Ok(None);
        };
        left.start = names::after(&last.name);
        let found = entries.into_iter().map(FoundUpload::read);
        found.collect::<Result<_, _>>().map(Some)
    }

    pub(super) async fn end_upload(
        &self,
        object: &ObjectId,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectRecord, Error> {
        let place = Place::of(object);
        let upload = self.find_upload(object, id).await?;
        let there = self.part_entries(&object.bucket, id).await?;
        let mut split = Split::of(there, &completion.parts)?;
        let mut record = completion.record;
        record.modified_ms = self.now_ms();
        let kept = Kept::Parts {
            upload_id: id.to_owned(),
            choice: upload.entry.choice(),
        };
        let at = (upload.name.clone(), Expect::At(upload.sequence));
        let mut expects = vec![at.clone()];
        expects.append(&mut split.expects);
        let mut asked = Replacement {
            object,
            place: &place,
            gate: &completion.gate,
            to: Some(NewEntry {
                value: ObjectEntry::encode(&record, &kept)?,
                payload: Payload::None,
                large: Some(Bytes::new()),
            }),
            expects,
            changes: split.deletes(&upload.name),
        };
        let mut replaced = self.replace(&asked).await?;
        if replaced == Replaced::TooMany {
            // The object that it replaces has thousands of parts, as this upload has of parts that
            // its completion does not name: these go in a step of their own.
            let rest = Batch {
                expects: vec![at],
                changes: asked.changes.split_off(1),
            };
            let applied = self.index().apply(&place.route, rest).await?;
            if let Applied::Done(_) = applied {
                self.discard(&place.route, split.blobs.drain(..)).await;
            }
            replaced = self.replace(&asked).await?;
        }
        match replaced {
            Replaced::Done => {
                self.discard(&place.route, split.blobs).await;
                Ok(record)
            }
            Replaced::Unexpected(0) => Err(refuse::no_such_upload(id)),
            Replaced::Unexpected(_) => Err(Error::refused(Code::InvalidPart)),
            Replaced::TooMany => Err(Error::internal("complete an upload", "too many parts")),
        }
    }

    pub(super) async fn drop_upload(&self, object: &ObjectId, id: &str) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.find_any_upload(object, id).await?;
            if self.abort(&object.bucket, found).await? {
                return Ok(());
            }
        }
        Err(too_contended())
    }

    /// Forgets an upload and its parts; `false` when it was changed since it was read.
    async fn abort(&self, bucket: &BucketName, found: FoundUpload) -> Result<bool, Error> {
        let place = Place::at(bucket, &found.entry.record.key);
        let id = found.entry.record.id.clone();
        let FoundUpload {
            name,
            mut sequence,
            mut entry,
        } = found;
        if entry.state == UploadState::Open {
            entry.state = UploadState::Aborted;
            let stop = Batch {
                expects: vec![(name.clone(), Expect::At(sequence))],
                changes: vec![Change::Put {
                    name: name.clone(),
                    value: entry.encode()?,
                    payload: Payload::None,
                }],
            };
            match self.index().apply(&place.route, stop).await? {
                Applied::Done(at) => sequence = at,
                Applied::Unexpected { .. } => return Ok(false),
            }
        }
        // No part comes any more.
        let split = Split::of(self.part_entries(bucket, &id).await?, &[])?;
        let forget = Batch {
            expects: vec![(name.clone(), Expect::At(sequence))],
            changes: split.deletes(&name),
        };
        let applied = self.index().apply(&place.route, forget).await?;
        if matches!(applied, Applied::Done(_)) {
            self.discard(&place.route, split.blobs).await;
        }
        // If it was changed, whoever aborts it as well was here first.
        Ok(true)
    }

    /// Forgets uploads of buckets of this name that have ended, and what is left of aborted ones.
    pub(super) async fn sweep_uploads(&self, bucket: &BucketName) -> Result<(), Error> {
        let mut left = names::uploads(bucket);
        while let Some(found) = self.next_uploads(&mut left).await? {
            for found in found {
                // Looked at after the upload was seen: a birth never comes back.
                let birth = match self.look_at_bucket(bucket).await {
                    Ok(seen) => Some(seen.entry.birth.clone()),
                    Err(Error::Refused(_)) => None,
                    Err(error) => return Err(error),
                };
                let is_over = found.entry.state == UploadState::Aborted;
                if is_over || birth.is_none_or(|birth| birth != found.entry.birth) {
                    self.abort(bucket, found).await?;
                }
            }
        }
        Ok(())
    }
}

/// The parts of an upload: those that its completion names, and the others.
#[derive(Debug, Default)]
struct Split {
    /// That those named stay as they are.
    expects: Vec<(Bytes, Expect)>,
    /// Names of the others.
    others: Vec<Bytes>,
    /// Blobs of the others.
    blobs: Vec<BlobId>,
}

impl Split {
    /// Splits what is there, by number; refuses with `InvalidPart` when one that is named is not
    /// there as named.
    fn of(there: Vec<FoundPart>, named: &[PartRecord]) -> Result<Self, Error> {
        let mut split = Self::default();
        let mut named = named.iter().peekable();
        for part in there {
            if named
                .next_if(|named| **named == part.entry.record)
                .is_some()
            {
                split.expects.push((part.name, Expect::At(part.sequence)));
            } else {
                split.others.push(part.name);
                split.blobs.extend(part.entry.blob);
            }
        }
        match named.next() {
            None => Ok(split),
            Some(_) => Err(Error::refused(Code::InvalidPart)),
        }
    }

    /// Deletes of the upload and of the parts not named.
    fn deletes(&self, upload: &Bytes) -> Vec<Change> {
        let names = std::iter::once(upload).chain(&self.others);
        names
            .map(|name| Change::Delete { name: name.clone() })
            .collect()
    }
}
