//! Listings: entries of keys in batches, of which each is asked for where the last one ended.

use std::collections::VecDeque;

use forebay_s3::bucket::BucketName;
use forebay_store::Error;

use super::{Indexed, entry::ObjectEntry, names};
use crate::{
    blobs::Blobs,
    index::{Entry, Index},
    listing::{Bound, Offered, Page, Scan, Summary},
};

/// Entries of a batch at first where keys are rolled up, and after a prefix was: most folders have
/// more keys than that, and reading the rest of them would be in vain. A guess.
const ENTRIES_FIRST: usize = 4;
/// Entries of a batch at most: a page of a listing, and the key that tells whether it is the last.
const ENTRIES_MAX: usize = 1001;

/// Keys that were read ahead of a listing.
struct Batches<'a, I, B> {
    engine: &'a Indexed<I, B>,
    bucket: &'a BucketName,
    prefix: &'a str,
    ahead: VecDeque<Entry>,
    /// Entries of the next batch.
    entries_next: usize,
    /// Whether keys are rolled up at all.
    rolls_up: bool,
}

impl<I: Index, B: Blobs> Batches<'_, I, B> {
    /// The first entry that is not before `from`.
    async fn seek(&mut self, from: &Bound, entries_left: usize) -> Result<Option<Entry>, Error> {
        let names = names::objects_from(self.bucket, from, self.prefix);
        while self.ahead.front().is_some_and(|e| e.name < names.start) {
            self.ahead.pop_front();
            self.entries_next = ENTRIES_FIRST;
        }
        if self.ahead.is_empty() {
            // One more than the page has room for tells whether there is another page.
            let wanted = entries_left.saturating_add(1).min(ENTRIES_MAX);
            let entries_max = if self.rolls_up {
                wanted.min(self.entries_next)
            } else {
                wanted
            };
            self.entries_next = entries_max.saturating_mul(2);
            self.ahead = self.engine.index().range(names, entries_max).await?.into();
        }
        Ok(self.ahead.pop_front())
    }
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    pub(super) async fn list_keys(&self, bucket: &BucketName, scan: &Scan) -> Result<Page, Error> {
        let mut draft = scan.draft();
        let mut batches = Batches {
            engine: self,
            bucket,
            prefix: &scan.prefix,
            ahead: VecDeque::new(),
            entries_next: ENTRIES_FIRST,
            rolls_up: scan.delimiter.is_some(),
        };
        while let Some(from) = draft.from() {
            let Some(found) = batches.seek(from, draft.entries_left()).await? else {
                break;
            };
            let key = names::key_of(bucket, &found.name)
                .ok_or_else(|| Error::internal("list objects", "a name is no key"))?;
            if let Offered::Object = draft.offer(&key) {
                let record = ObjectEntry::decode(&found.value)?.record;
                draft.add(key, Summary::from(&record));
            }
        }
        let page = draft.into_page();
        if page.entries.is_empty() {
            self.look_at_bucket(bucket).await?;
        }
        Ok(page)
    }
}
