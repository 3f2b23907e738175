//! Buckets: their entry, and the mark that every write expects.

use std::sync::Arc;

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
#[derive(Debug)]
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
    pub(super) async fn look_at_bucket(&self, name: &BucketName) -> Result<Arc<Seen>, Error> {
        match self.find_bucket(name).await? {
            Some(seen) => Ok(seen),
            None => Err(refuse::no_such_bucket(name)),
        }
    }

    /// The bucket as it was seen once; what must not be stale expects its mark.
    pub(super) async fn remembered_bucket(&self, name: &BucketName) -> Result<Arc<Seen>, Error> {
        let remembered = self.buckets.read().get(name).cloned();
        match remembered {
            Some(seen) => Ok(seen),
            None => self.look_at_bucket(name).await,
        }
    }

    async fn find_bucket(&self, name: &BucketName) -> Result<Option<Arc<Seen>>, Error> {
        let (route, place) = (names::bucket_route(name), names::bucket(name));
        let Some(found) = self.index().get(&route, &place, Want::Value).await? else {
            self.buckets.write().remove(name);
            return Ok(None);
        };
        let entry = BucketEntry::decode(&found.value)?;
        let mark = names::mark(name, &entry.mark);
        let seen = Arc::new(Seen {
            entry,
            sequence: found.sequence,
            mark,
        });
        let mut buckets = self.buckets.write();
        if buckets.len() >= SEEN_MAX {
            buckets.clear();
        }
        buckets.insert(name.clone(), Arc::clone(&seen));
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
        if self.publish(name, None, entry).await? {
            Ok(())
        } else {
            Err(refuse::bucket_exists(name))
        }
    }

    /// Writes the bucket's entry once its mark is in every place, and that of the entry it replaces
    /// is in none: whoever remembers that one must not write by it any more. `false` when the
    /// entry to replace is not there, and then the new mark is of no use to anybody.
    async fn publish(
        &self,
        name: &BucketName,
        old: Option<&Seen>,
        entry: BucketEntry,
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
        let expect = match old {
            None => Expect::Absent,
            Some(old) => {
                self.delete_mark(old.mark.clone()).await?;
                Expect::At(old.sequence)
            }
        };
        let here = Batch {
            expects: vec![(names::bucket(name), expect)],
            changes: vec![put(names::bucket(name), entry.encode()?)],
        };
        let applied = self.index().apply(&names::bucket_route(name), here).await?;
        match applied {
            Applied::Done(_) => Ok(true),
            Applied::Unexpected { .. } => {
                // Nobody ever learns of it, so that it may as well stay.
                let _unneeded = self.delete_mark(mark).await;
                Ok(false)
            }
        }
    }

    /// Deletes a mark in every place.
    async fn delete_mark(&self, mark: Bytes) -> Result<(), Error> {
        let delete = Batch {
            expects: Vec::new(),
            changes: vec![Change::Delete { name: mark }],
        };
        self.index().apply(&Route::Every, delete).await?;
        Ok(())
    }

    /// Sees to it that a write that did not find this mark finds one, if there is the bucket.
    pub(super) async fn mend_bucket(&self, name: &BucketName, lost: &Seen) -> Result<(), Error> {
        let now = self.look_at_bucket(name).await?;
        if now.mark != lost.mark {
            return Ok(());
        }
        let entry = BucketEntry {
            mark: self.ids.next(self.now_ms()),
            ..now.entry.clone()
        };
        // If somebody else was first, there is another mark as well, or no bucket.
        self.publish(name, Some(&now), entry).await?;
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
                // What is left of them is swept when there is a bucket of that name again.
                let _swept_later = self.sweep_uploads(name).await;
                return Ok(());
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
