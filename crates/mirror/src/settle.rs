//! Finds out what came of a write whose gateway ended, or whose answers were lost.

use forebay_native::hot::HotKey;
use forebay_s3::{bucket::BucketName, operation::Operation};
use forebay_store::Error;
use futures_util::future::join_all;
use http::Method;

use crate::{
    ask::Trouble,
    journal::{Held, Subject, Swapped},
    ledger::{self, Look},
    members::{Health, MemberId},
    mirror::Shared,
};

/// Settles an entry with an intent; the caller has the lock of its subject. The entry that is left.
///
/// # Errors
/// `Unavailable` when too few members can be asked, or the journal can't.
pub(crate) async fn settle(
    shared: &Shared,
    subject: &Subject,
    held: &Held,
) -> Result<Option<Held>, Error> {
    let standings = shared.standings();
    let looks = join_all(
        standings
            .up
            .iter()
            .map(|member| async move { (member, look(shared, member, subject).await) }),
    );
    let winner = ledger::settle(&held.entry, &looks.await, standings, shared.lost_ms());
    let Some(winner) = winner else {
        return Err(Error::Unavailable {
            reason: "too few members are up to tell how the last write of the key ended".into(),
        });
    };
    let next = ledger::settled(&held.entry, winner, standings, shared.doubt_ms());
    match shared.change(subject, Some(held), next).await? {
        Swapped::Done(_) => {}
        // Only who has the lock changes an intent, so the lease was lost.
        Swapped::Changed => return Err(Error::SlowDown { retry_after: None }),
    }
    shared.wake.notify_one();
    shared.held(subject).await
}

async fn look(shared: &Shared, member: MemberId, subject: &Subject) -> Look {
    let found = match subject {
        Subject::Object(key) => look_at_key(shared, member, key).await,
        Subject::Bucket(bucket) => look_at_bucket(shared, member, bucket).await,
    };
    found.unwrap_or_else(|trouble| {
        if trouble == Trouble::Unknown {
            shared.members.get(member).ended(Health::Failed);
        }
        Look::NotReached
    })
}

async fn look_at_key(shared: &Shared, member: MemberId, key: &HotKey) -> Result<Look, Trouble> {
    let store = &*shared.members.get(member).store;
    let found = shared.copier.look(store, &key.object()).await?;
    Ok(found.map_or(Look::Absent, |found| Look::There {
        modified_s: found.modified_s.unwrap_or(0),
    }))
}

/// Whether a member has a bucket.
pub(crate) async fn look_at_bucket(
    shared: &Shared,
    member: MemberId,
    bucket: &BucketName,
) -> Result<Look, Trouble> {
    let store = &*shared.members.get(member).store;
    let asker = shared.copier.asker();
    let request = asker.request(Method::HEAD, Operation::HeadBucket(bucket.clone()), "");
    match asker.ask(store, request).await {
        Ok(_) => Ok(Look::There { modified_s: 0 }),
        Err(trouble) if trouble.is_absent() => Ok(Look::Absent),
        Err(trouble) => Err(trouble),
    }
}
