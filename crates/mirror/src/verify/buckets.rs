//! The buckets of members: who has which, and making them the same.

use std::collections::BTreeMap;

use forebay_native::fragments;
use forebay_s3::{bucket::BucketName, operation::Operation};
use forebay_store::Error;
use http::Method;

use super::{Comparison, Difference, DifferenceKind, Remedy};
use crate::{
    ask::Trouble,
    journal::Subject,
    members::{MemberId, MemberSet},
};

impl Comparison<'_> {
    /// All buckets that any of the members has, and who has them.
    pub(super) async fn buckets(&self) -> Result<BTreeMap<BucketName, MemberSet>, Error> {
        let mut buckets: BTreeMap<BucketName, MemberSet> = BTreeMap::new();
        for member in self.parties.all.iter() {
            let asker = self.shared.copier.asker();
            let request = asker.request(Method::GET, Operation::ListBuckets, "");
            let store = &*self.shared.members.get(member).store;
            let answer = asker.ask(store, request).await;
            let (_, text) = answer.map_err(|trouble| self.unreached(member, &trouble))?;
            let text = String::from_utf8_lossy(&text);
            for name in names_in(&text) {
                let having = buckets.entry(name).or_default();
                *having = having.with(member);
            }
        }
        Ok(buckets)
    }

    /// Which of the members have a bucket.
    pub(super) async fn having(&self, bucket: &BucketName) -> Result<MemberSet, Error> {
        let mut having = MemberSet::EMPTY;
        for member in self.parties.all.iter() {
            if self.has_bucket(member, bucket).await? {
                having = having.with(member);
            }
        }
        Ok(having)
    }

    async fn has_bucket(&self, member: MemberId, bucket: &BucketName) -> Result<bool, Error> {
        let asker = self.shared.copier.asker();
        let operation = Operation::HeadBucket(bucket.clone());
        let request = asker.request(Method::HEAD, operation, "");
        let store = &*self.shared.members.get(member).store;
        match asker.ask(store, request).await {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.is_absent() => Ok(false),
            Err(trouble) => Err(self.unreached(member, &trouble)),
        }
    }

    fn unreached(&self, member: MemberId, trouble: &Trouble) -> Error {
        let name = &self.shared.members.get(member).name;
        Error::Unavailable {
            reason: format!("member {name}: {trouble}").into(),
        }
    }

    /// Compares a bucket itself, which `having` had; whoever lacks it gets it, if that is ordered.
    pub(super) async fn bucket(&self, bucket: &BucketName, having: MemberSet) -> Result<(), Error> {
        self.progress.count(|counts| counts.buckets += 1);
        if having == self.parties.all {
            return Ok(());
        }
        let subject = Subject::Bucket(bucket.clone());
        if self.parties.pupil.is_none() && self.shared.held(&subject).await?.is_some() {
            self.progress.count(|counts| counts.pending += 1);
            return Ok(());
        }
        let lock = self.shared.locks.lock(&subject).await?;
        let done = self.locked_bucket(bucket, &subject).await;
        lock.release().await;
        done
    }

    async fn locked_bucket(&self, bucket: &BucketName, subject: &Subject) -> Result<(), Error> {
        let having = self.having(bucket).await?;
        let lacking = self.parties.all.without(having);
        let is_changing =
            self.parties.pupil.is_none() && self.shared.held(subject).await?.is_some();
        if lacking.is_empty() || having.is_empty() || is_changing {
            return Ok(());
        }
        let all = self.parties.all.iter();
        let told = all.map(|member| (member, having.has(member).then(|| (String::new(), 0))));
        self.progress.differs(Difference {
            bucket: bucket.clone(),
            key: String::new(),
            kind: DifferenceKind::Bucket,
            members: self.named(&told.collect()),
        });
        if self.remedy == Remedy::Tell {
            return Ok(());
        }
        if let Some(pupil) = self.parties.pupil
            && having.and(self.parties.voters).is_empty()
        {
            return self.delete_bucket(pupil, bucket).await;
        }
        for member in lacking
            .iter()
            .filter(|m| self.parties.pupil.is_none_or(|p| p == *m))
        {
            let asker = self.shared.copier.asker();
            let operation = Operation::CreateBucket(bucket.clone());
            let request = asker.request(Method::PUT, operation, "");
            let store = &*self.shared.members.get(member).store;
            let made = asker.ask(store, request).await;
            made.map_err(|trouble| self.unreached(member, &trouble))?;
        }
        self.progress.count(|counts| counts.repaired += 1);
        Ok(())
    }

    /// Deletes a bucket that nobody else has, and first its keys, each under its own lock.
    async fn delete_bucket(&self, pupil: MemberId, bucket: &BucketName) -> Result<(), Error> {
        Box::pin(self.keys(bucket, "")).await?;
        let asker = self.shared.copier.asker();
        let operation = Operation::DeleteBucket(bucket.clone());
        let request = asker.request(Method::DELETE, operation, "");
        let store = &*self.shared.members.get(pupil).store;
        match asker.ask(store, request).await {
            Err(trouble) if !trouble.is_absent() => Err(self.unreached(pupil, &trouble)),
            Ok(_) | Err(_) => {
                self.progress.count(|counts| {
                    counts.repaired += 1;
                    counts.deleted += 1;
                });
                Ok(())
            }
        }
    }
}

/// The buckets in an answer to `ListBuckets`.
fn names_in(text: &str) -> Vec<BucketName> {
    let document = fragments::read(text);
    let list = document.and_then(|document| {
        let list = document
            .children
            .into_iter()
            .find(|child| child.name == "Buckets")?;
        fragments::read(list.raw)
    });
    let children = list.map(|list| list.children).unwrap_or_default();
    let names = children.iter().filter_map(|child| child.text_at(&["Name"]));
    names
        .filter_map(|name| BucketName::parse(&name).ok())
        .collect()
}
