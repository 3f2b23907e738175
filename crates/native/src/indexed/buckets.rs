//! Buckets: their entry, and the mark that every write expects.

use bytes::Bytes;
use forebay_s3::bucket::BucketName;
use forebay_store::Error;

use super::{ATTEMPTS_MAX, Indexed, entry::BucketEntry, names, too_contended};
use crate::{
    blobs::Blobs,
    engine::Bucket,
    index::{Applied, Batch, Change, Expect, Index, Payload, Route, Sequence, Want},
    refuse,
};

/// Buckets that are remembered; more are looked up again.
const SEEN_MAX: usize = 4096;
/// Entries read at a time.
const ENTRIES_MAX: usize = 1000;

/// A bucket as it was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) entry: BucketEntry,
    sequence: Sequence,
    /// What writes into it expect.
    pub(super) mark: Bytes,
}

impl Seen {
    pub(super) fn bucket(&self, name: &BucketName) -> Bucket {
        Bucket {
            name: name.clone(),
            created_ms: self.entry.created_ms,
        }
    }
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    /// The bucket as it is now.
    pub(super) async fn look_at_bucket(&self, name: &BucketName) -> Result<Seen, Error> {
        match self.find_bucket(name).await? {
            Some(seen) => Ok(seen),
            None => Err(refuse::no_such_bucket(name)),
        }
    }

    /// The bucket as it was seen once; what must not be stale expects its mark.
    pub(super) async fn remembered_bucket(&self, name: &BucketName) -> Result<Seen, Error> {
        let remembered = self.buckets.read().get(name).cloned();
        match remembered {
            Some(seen) => Ok(seen),
            None => self.look_at_bucket(name).await,
        }
    }

    async fn find_bucket(&self, name: &BucketName) -> Result<Option<Seen>, Error> {
        let (route, place) = (names::bucket_route(name), names::bucket(name));
        let Some(found) = self.index().get(&route, &place, Want::Value).await? else {
            self.buckets.write().remove(name);
            return Ok(None);
        };
        let entry = BucketEntry::decode(&found.value)?;
        let mark = names::mark(name, &entry.mark);
        let seen = Seen {
            entry,
            sequence: found.sequence,
            mark,
        };
        let mut buckets = self.buckets.write();
        if buckets.len() >= SEEN_MAX {
            buckets.clear();
        }
        buckets.insert(name.clone(), seen.clone());
        Ok(Some(seen))
    }

    pub(super) async fn all_buckets(&self) -> Result<Vec<Bucket>, Error> {
        let (mut buckets, mut left) = (Vec::new(), names::buckets());
        loop {
            let entries = self.index().range(left.clone(), ENTRIES_MAX).await?;
            let Some(last) = entries.last() else {
                return Ok(buckets);
            };
            left.start = names::after(&last.name);
            for found in &entries {
                let text = found.name.get(left_of_name()..).unwrap_or_default();
                let name = std::str::from_utf8(text).ok();
                let name = name.and_then(|name| BucketName::parse(name).ok());
                let name = name.ok_or_else(|| Error::internal("list buckets", "no name"))?;
                let created_ms = BucketEntry::decode(&found.value)?.created_ms;
                buckets.push(Bucket { name, created_ms });
            }
        }
    }

    pub(super) async fn make_bucket(&self, name: &BucketName) -> Result<(), Error> {
        if self.find_bucket(name).await?.is_some() {
            return Err(refuse::bucket_exists(name));
        }
        self.sweep_uploads(name).await?;
        let now_ms = self.now_ms();
        let entry = BucketEntry {
            created_ms: now_ms,
            birth: self.ids.next(now_ms),
            mark: self.ids.next(now_ms),
        };
        if self.publish(name, entry, Expect::Absent).await? {
            Ok(())
        } else {
            Err(refuse::bucket_exists(name))
        }
    }

    /// Writes the bucket's entry once its mark is in every place; `false` when the entry there is
    /// not as expected, and then the mark is of no use to anybody.
    async fn publish(
        &self,
        name: &BucketName,
        entry: BucketEntry,
        expect: Expect,
    ) -> Result<bool, Error> {
        let mark = names::mark(name, &entry.mark);
        let put = |name: Bytes, value: Bytes| Change::Put {
            name,
            value,
            payload: Payload::None,
        };
        let everywhere = Batch {
            expects: Vec::new(),
            changes: vec![put(mark.clone(), Bytes::new())],
        };
        self.index().apply(&Route::Every, everywhere).await?;
        let here = Batch {
            expects: vec![(names::bucket(name), expect)],
            changes: vec![put(names::bucket(name), entry.encode()?)],
        };
        let applied = self.index().apply(&names::bucket_route(name), here).await?;
        match applied {
            Applied::Done(_) => Ok(true),
            Applied::Unexpected { .. } => {
                self.delete_mark(mark).await;
                Ok(false)
            }
        }
    }

    /// Deletes a mark that no entry names; one that stays is a few bytes that mean nothing.
    async fn delete_mark(&self, mark: Bytes) {
        let delete = Batch {
            expects: Vec::new(),
            changes: vec![Change::Delete { name: mark }],
        };
        let _means_nothing = self.index().apply(&Route::Every, delete).await;
    }

    /// Sees to it that a write that did not find this mark finds one, if there is the bucket.
    pub(super) async fn mend_bucket(&self, name: &BucketName, lost: &Seen) -> Result<(), Error> {
        let now = self.look_at_bucket(name).await?;
        if now.mark != lost.mark {
            return Ok(());
        }
        let entry = BucketEntry {
            mark: self.ids.next(self.now_ms()),
            ..now.entry
        };
        if self.publish(name, entry, Expect::At(now.sequence)).await? {
            self.delete_mark(now.mark).await;
        }
        self.look_at_bucket(name).await?;
        Ok(())
    }

    pub(super) async fn end_bucket(&self, name: &BucketName) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let seen = self.look_at_bucket(name).await?;
            let objects = names::objects(name);
            if !self.index().range(objects.clone(), 1).await?.is_empty() {
                return Err(refuse::bucket_not_empty(name));
            }
            let close = Batch {
                expects: vec![(objects.start, Expect::NoneBefore(objects.end))],
                changes: vec![Change::Delete {
                    name: seen.mark.clone(),
                }],
            };
            match self.index().apply(&Route::Every, close).await? {
                Applied::Done(_) => {}
                Applied::Unexpected { .. } => {
                    // Some places may be without the mark by now.
                    self.mend_bucket(name, &seen).await?;
                    return Err(refuse::bucket_not_empty(name));
                }
            }
            let end = Batch {
                expects: vec![(names::bucket(name), Expect::At(seen.sequence))],
                changes: vec![Change::Delete {
                    name: names::bucket(name),
                }],
            };
            let applied = self.index().apply(&names::bucket_route(name), end).await?;
            if matches!(applied, Applied::Done(_)) {
                self.buckets.write().remove(name);
                return self.sweep_uploads(name).await;
            }
            // A writer has given it another mark meanwhile.
        }
        Err(too_contended())
    }
}

/// Where the bucket's name begins in the name of its entry.
fn left_of_name() -> usize {
    names::buckets().start.len()
}
