//! Compares members by their listings, and brings what differs to one state.
//!
//! The listings of all members are walked side by side in the order of keys, a batch of each at a
//! time. They are no snapshot, so a key that differs is looked at once more under its lock, where
//! no write is under way. What the journal has an entry of is *pending*: repair will see to it, by
//! the journal's word. Of the rest (somebody wrote past the mirror, or a member lost something)
//! the version of more than half of the members is right, or without one the last modified, which
//! counts as a conflict. An object that most members lack is restored, not deleted, unless the
//! order says otherwise: a mirror that was set up before a full member and an empty one would
//! lose everything by a vote.
//!
//! A member that is to be compared as a whole has no vote: what the others have is right, and what
//! it has besides is deleted ([`resync`]).
//!
//! Tags and metadata are not in listings. They are compared where anything else differs, and with
//! [`Depth::Full`] of every key.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use forebay_native::hot::HotKey;
use forebay_s3::bucket::BucketName;
use forebay_store::Error;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;

use crate::{
    members::{MemberId, MemberSet},
    mirror::Shared,
    operate::MirrorOperator,
};

mod buckets;
mod judge;
mod lister;
mod one;
mod resync;
#[cfg(test)]
mod tests;

use lister::{Heads, Listers};
pub(crate) use resync::resync;

/// Differences that are kept to be shown; the rest are counted.
const DIFFERENCES_MAX: usize = 100;
/// Errors that are kept as they were; the rest are counted.
const ERRORS_MAX: usize = 10;

/// Which keys are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareScope {
    /// All.
    All,
    /// Those of a bucket.
    Bucket(BucketName),
    /// Those of a bucket that begin so.
    Prefix(BucketName, String),
}

/// What is done about a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// It is told.
    Tell,
    /// All members get the right version; an object that most of them lack is restored.
    Restore,
    /// All members get the right version; an object that more than half of them lack is deleted.
    DeleteByMajority,
}

/// How closely keys are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// By tag and size as they are listed; where tags differ, by checksums that both keep.
    Listed,
    /// Every key by all that a HEAD tells, and its tags; where neither tags nor checksums tell, by
    /// its bytes.
    Full,
}

/// What to compare, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareOrder {
    /// Which keys.
    pub scope: CompareScope,
    /// What is done about a difference.
    pub remedy: Remedy,
    /// How closely they are compared.
    pub depth: Depth,
}

/// How two members differ in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// A bucket that some lack.
    Bucket,
    /// Some have an object and others none.
    Missing,
    /// They have different ones.
    Differing,
    /// Sizes are equal and tags are not, and nothing tells whether the bytes are.
    Undecided,
}

/// A difference between members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The bucket.
    pub bucket: BucketName,
    /// The key; empty for the bucket itself.
    pub key: String,
    /// How they differ.
    pub kind: DifferenceKind,
    /// What each member has: its name, and tag and size of its object.
    pub members: Vec<(String, Option<(String, u64)>)>,
}

/// How far a comparison has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompareCounts {
    /// Buckets that were looked at.
    pub buckets: u64,
    /// Keys that were compared.
    pub keys: u64,
    /// Keys that differ as the journal knows: repair is to see to them.
    pub pending: u64,
    /// Keys and buckets that some members lack.
    pub missing: u64,
    /// Keys that differ.
    pub differing: u64,
    /// Keys of which it can't be told without reading them whether they differ.
    pub undecided: u64,
    /// Of those that differ: with no version that more than half have. The last modified counts.
    pub conflicts: u64,
    /// Keys and buckets that were brought to one state.
    pub repaired: u64,
    /// Of those: where something was deleted.
    pub deleted: u64,
    /// Keys that could not be compared or repaired.
    pub failed: u64,
    /// Bytes that repairs have copied.
    pub bytes: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The first errors.
    pub errors: Vec<String>,
}

impl CompareCounts {
    /// Keys and buckets that differ and are not pending.
    pub fn differ(&self) -> u64 {
        self.missing + self.differing + self.undecided
    }
}

/// How far a comparison has come, to be read while it runs.
#[derive(Debug, Default)]
pub struct CompareProgress(Mutex<CompareCounts>);

impl CompareProgress {
    /// The counts of this moment.
    pub fn counts(&self) -> CompareCounts {
        self.0.lock().clone()
    }

    fn count(&self, change: impl FnOnce(&mut CompareCounts)) {
        change(&mut self.0.lock());
    }

    fn failed(&self, what: &str, why: &dyn std::fmt::Display) {
        self.count(|counts| {
            counts.failed += 1;
            if counts.errors.len() < ERRORS_MAX {
                counts.errors.push(format!("{what}: {why}"));
            }
        });
    }

    fn differs(&self, difference: Difference) {
        self.count(|counts| {
            match difference.kind {
                DifferenceKind::Bucket | DifferenceKind::Missing => counts.missing += 1,
                DifferenceKind::Differing => counts.differing += 1,
                DifferenceKind::Undecided => counts.undecided += 1,
            }
            if counts.differences.len() < DIFFERENCES_MAX {
                counts.differences.push(difference);
            }
        });
    }
}

/// Who is compared, and who of them has a vote.
#[derive(Debug, Clone, Copy)]
struct Parties {
    all: MemberSet,
    voters: MemberSet,
    /// The one that is to become like the voters, if it is that.
    pupil: Option<MemberId>,
}

/// A comparison under way.
struct Comparison<'a> {
    shared: &'a Arc<Shared>,
    parties: Parties,
    remedy: Remedy,
    depth: Depth,
    /// Objects modified since, Unix milliseconds, are looked at even if they are listed alike.
    suspect_since_ms: Option<i64>,
    progress: &'a CompareProgress,
}

impl MirrorOperator {
    /// Compares the members, and repairs them if that is ordered. It may run while clients write.
    ///
    /// # Errors
    /// What keeps it from going on: a member that can't be listed.
    ///
    /// # Cancel safety
    /// A dropped future ends the comparison; a key that is being copied has its old state at the
    /// member, or the new one.
    pub async fn compare(
        &self,
        order: CompareOrder,
        progress: &Arc<CompareProgress>,
    ) -> Result<(), String> {
        let shared = &self.shared;
        // A member that is down can't be listed, and one that was down long ago is for a resync.
        let readable = shared.readable();
        if readable.count() < 2 {
            return Err("fewer than two members can be compared now".to_owned());
        }
        for left_out in shared.members.set().without(readable).iter() {
            let name = &shared.members.get(left_out).name;
            progress.failed(name, &"left out: it is down, or to be compared as a whole");
        }
        let comparison = Comparison {
            shared,
            parties: Parties {
                all: readable,
                voters: readable,
                pupil: None,
            },
            remedy: order.remedy,
            depth: order.depth,
            suspect_since_ms: None,
            progress,
        };
        let ran = comparison.run(&order.scope).await;
        ran.map_err(|error| error.to_string())
    }

    /// Brings a member that is to be compared as a whole back, by its name: compares it with the
    /// others while they serve and take writes.
    ///
    /// # Errors
    /// Why it is not back.
    ///
    /// # Cancel safety
    /// As [`MirrorOperator::compare`]; the member stays as it was then.
    pub async fn resync(
        &self,
        member: &str,
        progress: &Arc<CompareProgress>,
    ) -> Result<(), String> {
        let member = self
            .shared
            .members
            .named(member)
            .ok_or("there is no such member")?;
        let back = resync(&self.shared, member, progress).await;
        back.map_err(|error| error.to_string())
    }
}

impl Comparison<'_> {
    async fn run(&self, scope: &CompareScope) -> Result<(), Error> {
        match scope {
            CompareScope::All => {
                for (bucket, having) in self.buckets().await? {
                    self.bucket(&bucket, having).await?;
                    self.keys(&bucket, "").await?;
                }
                Ok(())
            }
            CompareScope::Bucket(bucket) => {
                self.bucket(bucket, self.having(bucket).await?).await?;
                self.keys(bucket, "").await
            }
            CompareScope::Prefix(bucket, prefix) => self.keys(bucket, prefix).await,
        }
    }

    /// Compares the keys of a bucket that begin so.
    async fn keys(&self, bucket: &BucketName, prefix: &str) -> Result<(), Error> {
        let mut listers = Listers::new(self.shared, self.parties.all, (bucket, prefix));
        let mut under_way = FuturesUnordered::new();
        let at_once = self.shared.settings.repairs_max.max(1);
        loop {
            // Keys under way hold their locks, so they go on while more is listed.
            let heads = {
                let mut next = std::pin::pin!(listers.next());
                loop {
                    tokio::select! {
                        biased;
                        heads = &mut next => break heads?,
                        Some(()) = under_way.next() => {}
                    }
                }
            };
            let Some(heads) = heads else { break };
            self.progress.count(|counts| counts.keys += 1);
            if self.seem_equal(&heads) {
                continue;
            }
            if under_way.len() >= at_once {
                under_way.next().await;
            }
            let key = HotKey {
                bucket: bucket.clone(),
                key: heads.key,
            };
            under_way.push(self.one(key));
        }
        while under_way.next().await.is_some() {}
        Ok(())
    }

    /// Whether a key need not be looked at.
    fn seem_equal(&self, heads: &Heads) -> bool {
        let is_suspect = match (self.depth, self.suspect_since_ms) {
            (Depth::Full, _) => true,
            (Depth::Listed, None) => false,
            (Depth::Listed, Some(since_ms)) => {
                let mut all = heads.of.values();
                all.any(|object| object.modified_ms.is_none_or(|at_ms| at_ms >= since_ms))
            }
        };
        let is_everywhere = heads.of.len() == self.parties.all.count();
        let tags: BTreeSet<_> = heads.of.values().map(|o| (&o.etag, o.size_bytes)).collect();
        is_everywhere && tags.len() == 1 && !is_suspect
    }

    /// Names of members, for a difference.
    fn named<T>(&self, of: &BTreeMap<MemberId, T>) -> Vec<(String, Option<(String, u64)>)>
    where
        T: Clone + Into<Option<(String, u64)>>,
    {
        of.iter()
            .map(|(member, told)| {
                let name = self.shared.members.get(*member).name.clone();
                (name, told.clone().into())
            })
            .collect()
    }
}
