//! Which keys of a listing which members lack, and what those say of them that have them.

use std::sync::Arc;

use forebay_native::{
    hot::HotKey,
    listing::{Summary, position::Position},
};
use forebay_s3::{etag::ETag, operation::Listing};
use forebay_store::Error;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;

use super::{bucket_members, page::Says};
use crate::{
    ask::{text_of, whole},
    copy::Described,
    journal::{Entry, Subject},
    members::{MemberId, MemberSet},
    mirror::Shared,
    read,
};

/// Entries read for a page. A page ends where they end; as many as a page has entries.
const ENTRIES_MAX: usize = 1000;
/// Keys asked after side by side; a guess.
const LOOKS_AT_ONCE: usize = 16;

/// What the journal says of the keys of a listing from a position on.
pub(super) struct Lacks {
    entries: Vec<(HotKey, Entry)>,
    /// The place up to which they were read; `None` for all.
    pub(super) horizon: Option<Position>,
    /// Members that know whether the bucket is there.
    members: MemberSet,
}

impl Lacks {
    /// Reads it; to be done before any member lists, so that what is repaired meanwhile is not
    /// missed on both sides.
    pub(super) async fn read(
        shared: &Shared,
        listing: &Listing,
        position: &Position,
    ) -> Result<Self, Error> {
        let prefix = listing.prefix.as_bytes();
        let until = [prefix, &[0xff]].concat();
        let mut from = position.bytes().max(prefix.to_vec());
        let members = bucket_members(shared, listing).await?;
        let (mut entries, mut horizon) = (Vec::new(), None);
        while from < until {
            let room = ENTRIES_MAX - entries.len();
            if room == 0 {
                let last = entries
                    .last()
                    .map(|(key, _): &(HotKey, _)| key.key.as_str());
                horizon = last.map(|key| Position::After(key.to_owned()));
                break;
            }
            let range = from.clone()..until.clone();
            let found = shared.journal.range(&listing.bucket, range, room).await;
            let found = found.map_err(|error| shared.journal_failed(error))?;
            let Some((last, _)) = found.last() else { break };
            from = match last {
                Subject::Bucket(_) => vec![0],
                Subject::Object(key) => Position::After(key.key.as_str().to_owned()).bytes(),
            };
            entries.extend(
                found
                    .into_iter()
                    .filter_map(|(subject, held)| match subject {
                        Subject::Bucket(_) => None,
                        Subject::Object(key) => Some((key, held.entry)),
                    }),
            );
        }
        Ok(Self {
            entries,
            horizon,
            members,
        })
    }

    /// Members that may list, those that lack the fewest keys first.
    pub(super) fn order(&self, shared: &Shared) -> Vec<MemberId> {
        let mut ordered = shared.members.by_promise(self.members);
        ordered.sort_by_cached_key(|member| self.of(shared, *member).count());
        ordered
    }

    /// The entries of what a member lacks, or may lack.
    fn of(&self, shared: &Shared, member: MemberId) -> impl Iterator<Item = &(HotKey, Entry)> {
        let all = shared.members.set();
        self.entries
            .iter()
            .filter(move |(_, entry)| !entry.current(all).has(member))
    }

    /// What is said of the keys that a member lacks, before `end` if there is one.
    ///
    /// # Errors
    /// `Unavailable` when nobody can be asked that has one of them.
    pub(super) async fn told(
        &self,
        shared: &Arc<Shared>,
        member: MemberId,
        end: Option<&Position>,
    ) -> Result<Vec<(String, Says)>, Error> {
        let end = end.map(Position::bytes);
        let is_within = |key: &HotKey| match &end {
            Some(end) => key.key.as_str().as_bytes() < &end[..],
            None => true,
        };
        let lacking: Vec<_> = self
            .of(shared, member)
            .filter(|(key, _)| is_within(key))
            .map(|(key, _)| says(shared, key))
            .collect();
        stream::iter(lacking)
            .buffered(LOOKS_AT_ONCE)
            .try_collect()
            .await
    }
}

/// What a read of a key says of it.
async fn says(shared: &Arc<Shared>, key: &HotKey) -> Result<(String, Says), Error> {
    let name = key.key.as_str().to_owned();
    let request = shared.copier.asker().head(whole(key.object()), "");
    let subject = Subject::Object(key.clone());
    let answer = match read::read(shared, request, &subject).await {
        Ok(answer) => answer,
        Err(Error::Refused(refusal)) if refusal.code.status() == StatusCode::NOT_FOUND => {
            return Ok((name, Says::Gone));
        }
        Err(error) => return Err(error),
    };
    if answer.status == StatusCode::NOT_FOUND {
        return Ok((name, Says::Gone));
    }
    let told = summary(&answer.headers).filter(|_| answer.status.is_success());
    let told = told.ok_or_else(|| Error::internal("look at a key of a listing", "no answer"))?;
    Ok((name, Says::Object(told)))
}

/// What a listing tells of an object, from what a HEAD does.
fn summary(headers: &http::HeaderMap) -> Option<Summary> {
    let described = Described::read(headers)?;
    let checksum = described.checksum.map(|sum| sum.checksum.algorithm());
    let class = text_of(headers, "x-amz-storage-class").map(str::to_owned);
    Some(Summary {
        etag: ETag::parse(&described.etag).ok()?,
        size_bytes: described.size_bytes,
        modified_ms: described.modified_s.unwrap_or(0) * 1000,
        checksum: checksum.zip(described.checksum_kind),
        storage_class: class,
    })
}
