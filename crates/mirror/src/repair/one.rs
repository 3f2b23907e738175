//! Brings one key, or one bucket, to rest.

use forebay_native::hot::HotKey;
use forebay_s3::{bucket::BucketName, operation::Operation};
use forebay_store::Error;
use forebay_telemetry::mirror::RepairResult;
use http::Method;

use crate::{
    ask::Trouble,
    copy::{Copied, CopyError, Ends},
    journal::{Entry, Held, Standing, Subject},
    ledger::Look,
    locks::KeyLock,
    members::{Health, MemberId, MemberSet},
    mirror::Shared,
    settle::{look_at_bucket, settle},
};

/// What came of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody owes anything.
    Done,
    /// Somebody owes something, and it can't be had now.
    Left,
    /// It could not be repaired, and is to wait.
    Failed,
}

/// Repairs what can be repaired of a subject now; who owes something after it.
pub(super) async fn repair_key(shared: &Shared, subject: &Subject) -> (End, MemberSet) {
    let lock = match shared.locks.try_lock(subject).await {
        Ok(Some(lock)) => lock,
        // It is being written.
        Ok(None) => return (End::Left, MemberSet::EMPTY),
        Err(error) => return (failed(&error), MemberSet::EMPTY),
    };
    let end = match repair_locked(shared, &lock).await {
        Ok((end, owing)) => (end, owing),
        Err(error) => (failed(&error), MemberSet::EMPTY),
    };
    lock.release().await;
    end
}

fn failed(error: &Error) -> End {
    tracing::debug!(%error, "a key can't be repaired now");
    End::Failed
}

async fn repair_locked(shared: &Shared, lock: &KeyLock) -> Result<(End, MemberSet), Error> {
    let subject = lock.subject();
    let Some(mut held) = shared.held(subject).await? else {
        return Ok((End::Done, MemberSet::EMPTY));
    };
    if held.entry.intent.is_some() {
        match settle(shared, subject, &held).await? {
            Some(settled) => held = settled,
            None => return Ok((End::Done, MemberSet::EMPTY)),
        }
    }
    let Held { entry, .. } = &held;
    let mut next = entry.clone();
    let mut has_failed = false;
    let (up, now_ms) = (shared.members.up(), shared.now_ms());
    for owed in &entry.owed {
        let member = owed.member;
        let is_forgotten = !shared.standings().tracked.has(member);
        if is_forgotten {
            next.owed.retain(|owed| owed.member != member);
            continue;
        }
        let is_whole = matches!(shared.standing(member), Standing::Whole(_));
        if is_whole || !up.has(member) || owed.doubt_ms > now_ms {
            continue;
        }
        match repair_member(shared, lock, entry, member).await {
            Ok(result) => {
                shared.metrics.repaired(result);
                next.owed.retain(|owed| owed.member != member);
            }
            Err(Stopped::Wanted) => {
                shared.metrics.repaired(RepairResult::Superseded);
                let doubt_ms = shared.doubt_ms();
                let owed = next.owed.iter_mut().filter(|owed| owed.member == member);
                owed.for_each(|owed| owed.doubt_ms = doubt_ms);
                break;
            }
            Err(Stopped::Nobody) => break,
            Err(Stopped::Failed(is_unknown)) => {
                shared.metrics.repaired(RepairResult::Failed);
                has_failed = true;
                if is_unknown {
                    let doubt_ms = shared.doubt_ms();
                    let owed = next.owed.iter_mut().filter(|owed| owed.member == member);
                    owed.for_each(|owed| owed.doubt_ms = doubt_ms);
                }
            }
        }
    }
    let owing = next.owing();
    let to = (!next.owed.is_empty()).then_some(next);
    if to.as_ref() != Some(entry) {
        shared.change(subject, Some(&held), to).await?;
    }
    let end = match (owing.is_empty(), has_failed) {
        (true, _) => End::Done,
        (false, true) => End::Failed,
        (false, false) => End::Left,
    };
    Ok((end, owing))
}

/// Why a member was not repaired.
enum Stopped {
    /// A client waits for the key.
    Wanted,
    /// No member that is current can be asked.
    Nobody,
    /// One of the two did not do it; whether it may still.
    Failed(bool),
}

async fn repair_member(
    shared: &Shared,
    lock: &KeyLock,
    entry: &Entry,
    target: MemberId,
) -> Result<RepairResult, Stopped> {
    let current = entry.current(shared.readable());
    let source = shared.members.by_promise(current).into_iter().next();
    let source = source.ok_or(Stopped::Nobody)?;
    let repair = async {
        match lock.subject() {
            Subject::Object(key) => copy_key(shared, key, (source, target)).await,
            Subject::Bucket(bucket) => copy_bucket(shared, bucket, (source, target)).await,
        }
    };
    tokio::select! {
        biased;
        repaired = repair => repaired,
        () = lock.wanted() => Err(Stopped::Wanted),
    }
}

async fn copy_key(
    shared: &Shared,
    key: &HotKey,
    (source, target): (MemberId, MemberId),
) -> Result<RepairResult, Stopped> {
    let ends = Ends {
        source: &*shared.members.get(source).store,
        target: &*shared.members.get(target).store,
    };
    match shared.copier.copy(key, ends).await {
        Ok(Copied::Nothing) => Ok(RepairResult::Equal),
        Ok(Copied::Written(bytes, _)) => {
            shared.metrics.repaired_bytes.inc_by(bytes);
            Ok(RepairResult::Copied)
        }
        Ok(Copied::Deleted) => Ok(RepairResult::Deleted),
        Err(error) => {
            let names = (
                &shared.members.get(source).name,
                &shared.members.get(target).name,
            );
            tracing::debug!(source = names.0, target = names.1, %error, "a key was not repaired");
            match &error {
                CopyError::Source(trouble) => ended(shared, source, trouble),
                CopyError::Target(trouble) => ended(shared, target, trouble),
                CopyError::Changed | CopyError::NotLike => {}
            }
            Err(Stopped::Failed(
                error == CopyError::Target(Trouble::Unknown),
            ))
        }
    }
}

async fn copy_bucket(
    shared: &Shared,
    bucket: &BucketName,
    (source, target): (MemberId, MemberId),
) -> Result<RepairResult, Stopped> {
    let look = async |member| {
        let look = look_at_bucket(shared, member, bucket).await;
        look.map_err(|trouble| {
            ended(shared, member, &trouble);
            Stopped::Failed(false)
        })
    };
    let (right, there) = (look(source).await?, look(target).await?);
    let (method, operation, result) = match (right, there) {
        (Look::Absent, Look::Absent) | (Look::There { .. }, Look::There { .. }) => {
            return Ok(RepairResult::Equal);
        }
        (Look::Absent, Look::There { .. }) => (
            Method::DELETE,
            Operation::DeleteBucket(bucket.clone()),
            RepairResult::Deleted,
        ),
        (Look::There { .. }, Look::Absent) => (
            Method::PUT,
            Operation::CreateBucket(bucket.clone()),
            RepairResult::Copied,
        ),
        (Look::NotReached, _) | (_, Look::NotReached) => return Err(Stopped::Failed(false)),
    };
    let asker = shared.copier.asker();
    let request = asker.request(method, operation, "");
    let store = &*shared.members.get(target).store;
    match asker.ask(store, request).await {
        Ok(_) => Ok(result),
        Err(trouble) => {
            ended(shared, target, &trouble);
            Err(Stopped::Failed(trouble == Trouble::Unknown))
        }
    }
}

/// Counts what trouble says of a member's health.
fn ended(shared: &Shared, member: MemberId, trouble: &Trouble) {
    let health = match trouble {
        Trouble::Refused(..) => Health::Answered,
        Trouble::Busy => Health::Neither,
        Trouble::Unknown => Health::Failed,
    };
    shared.members.get(member).ended(health);
}
