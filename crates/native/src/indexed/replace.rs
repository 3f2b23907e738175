//! What an object becomes, in one step: by a write, a delete, a completed upload.

use bytes::Bytes;
use forebay_s3::operation::ObjectId;
use forebay_store::Error;

use super::{
    ATTEMPTS_MAX, Indexed, buckets,
    entry::{Kept, ObjectEntry},
    names::Place,
    too_contended,
};
use crate::{
    blobs::{BlobId, Blobs},
    gate::{Absent, Act, Gate},
    index::{Applied, Batch, CHANGES_MAX, Change, Expect, Index, Payload, Want},
    refuse,
};

/// A change of an object.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    pub(super) object: &'a ObjectId,
    pub(super) place: &'a Place,
    /// What must hold of the object that is there.
    pub(super) gate: &'a Gate,
    /// What it becomes; `None` is nothing.
    pub(super) to: Option<NewEntry>,
    /// What else is expected.
    pub(super) expects: Vec<(Bytes, Expect)>,
    /// What else changes.
    pub(super) changes: Vec<Change>,
}

/// An object's entry that is to be written.
#[derive(Debug)]
pub(super) struct NewEntry {
    pub(super) value: Bytes,
    pub(super) payload: Payload,
    /// What its `l/` entry says, when its bytes are blobs.
    pub(super) large: Option<Bytes>,
}

/// What came of a [`Replacement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    Done,
    /// Nothing happened: what is at this place of [`Replacement::expects`] does not hold.
    Unexpected(usize),
    /// Nothing happened: together with what it replaces it has too many changes for one step.
    TooMany,
}

/// What is known of the object that is there.
#[derive(Debug)]
enum Base {
    /// Nothing; then its bytes must not be blobs, which nobody would remove.
    Unseen,
    Seen(Old),
}

/// The object that is there.
#[derive(Debug)]
struct Old {
    expect: Expect,
    /// Whether it has an `l/` entry.
    large: Large,
    /// Names of its parts.
    parts: Vec<Bytes>,
    blobs: Vec<BlobId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Large {
    Yes,
    No,
}

impl Old {
    fn absent() -> Self {
        Self {
            expect: Expect::Absent,
            large: Large::No,
            parts: Vec::new(),
            blobs: Vec::new(),
        }
    }
}

impl Base {
    /// Expectations of [`Replacement::batch`] before those of the replacement itself.
    fn expects_count(&self, gate: &Gate) -> usize {
        match (self, gate.absent) {
            (Self::Unseen, Absent::Required) => 3,
            (Self::Unseen, Absent::NotRequired) | (Self::Seen(_), _) => 2,
        }
    }
}

impl Replacement<'_> {
    fn act(&self) -> Act {
        match self.to {
            Some(_) => Act::Write,
            None => Act::Delete,
        }
    }

    /// Its changes, over what is there: the bucket's mark is expected first, the object second.
    fn batch(&self, bucket: &buckets::Seen, base: &Base) -> Batch {
        let (name, large) = (&self.place.name, self.place.large());
        let mut expects = Vec::with_capacity(3 + self.expects.len());
        expects.push((bucket.mark.clone(), Expect::Present));
        match base {
            Base::Seen(old) => expects.push((name.clone(), old.expect.clone())),
            Base::Unseen => {
                expects.push((large.clone(), Expect::Absent));
                if self.gate.absent == Absent::Required {
                    expects.push((name.clone(), Expect::Absent));
                }
            }
        }
        expects.extend(self.expects.iter().cloned());
        let mut changes = Vec::with_capacity(2 + self.changes.len());
        changes.push(match &self.to {
            Some(new) => Change::Put {
                name: name.clone(),
                value: new.value.clone(),
                payload: new.payload.clone(),
            },
            None => Change::Delete { name: name.clone() },
        });
        if let Some(value) = self.to.as_ref().and_then(|new| new.large.clone()) {
            changes.push(Change::Put {
                name: large,
                value,
                payload: Payload::None,
            });
        } else if matches!(base, Base::Seen(old) if old.large == Large::Yes) {
            changes.push(Change::Delete { name: large });
        }
        if let Base::Seen(old) = base {
            let deletes = old.parts.iter().cloned();
            changes.extend(deletes.map(|name| Change::Delete { name }));
        }
        changes.extend(self.changes.iter().cloned());
        Batch { expects, changes }
    }
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    /// Changes an object, and removes the blobs of what was there.
    pub(super) async fn replace(&self, asked: &Replacement<'_>) -> Result<Replaced, Error> {
        let name = &asked.object.bucket;
        // A tag is compared with what is there; that nothing is there can be expected unseen.
        let mut is_seen = asked.gate.if_match.is_some();
        for _ in 0..ATTEMPTS_MAX {
            let bucket = self.remembered_bucket(name).await?;
            let base = if is_seen {
                Base::Seen(self.old(asked).await?)
            } else {
                Base::Unseen
            };
            let batch = asked.batch(&bucket, &base);
            if batch.changes.len() > CHANGES_MAX {
                return Ok(Replaced::TooMany);
            }
            let own = base.expects_count(asked.gate);
            match self.index().apply(&asked.place.route, batch).await? {
                Applied::Done(_) => {
                    if let Base::Seen(old) = base {
                        self.discard(&asked.place.route, old.blobs).await;
                    }
                    return Ok(Replaced::Done);
                }
                Applied::Unexpected { expect_index: 0 } => self.mend_bucket(name, &bucket).await?,
                Applied::Unexpected { expect_index: 1 } => is_seen = true,
                Applied::Unexpected { expect_index } => {
                    return match expect_index.checked_sub(own) {
                        Some(index) => Ok(Replaced::Unexpected(index)),
                        None => Err(refuse::precondition_failed("If-None-Match")),
                    };
                }
            }
        }
        Err(too_contended())
    }

    /// Looks at the object that is there, and judges it by the gate.
    async fn old(&self, asked: &Replacement<'_>) -> Result<Old, Error> {
        let (object, place) = (asked.object, asked.place);
        let found = self.index().get(&place.route, &place.name, Want::Value);
        let Some(found) = found.await? else {
            if !asked.gate.is_open() {
                // What is remembered of the bucket does not say that it is there still.
                self.look_at_bucket(&object.bucket).await?;
            }
            asked.gate.check(asked.act(), &object.key, None)?;
            return Ok(Old::absent());
        };
        let entry = ObjectEntry::decode(&found.value)?;
        let etag = Some(&entry.record.etag);
        asked.gate.check(asked.act(), &object.key, etag)?;
        let old = Old {
            expect: Expect::At(found.sequence),
            large: Large::Yes,
            parts: Vec::new(),
            blobs: Vec::new(),
        };
        Ok(match entry.kept {
            Kept::Beside => Old {
                large: Large::No,
                ..old
            },
            Kept::Blob(blob) => Old {
                blobs: vec![blob],
                ..old
            },
            Kept::Parts { upload_id, .. } => {
                let parts = self.part_entries(&object.bucket, &upload_id).await?;
                let (parts, blobs) = parts
                    .into_iter()
                    .map(|part| (part.name, part.entry.blob))
                    .unzip::<_, _, Vec<_>, Vec<_>>();
                Old {
                    parts,
                    blobs: blobs.into_iter().flatten().collect(),
                    ..old
                }
            }
        })
    }
}
