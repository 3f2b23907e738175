//! Writes of buckets, and of what a mirror can't bring from one member to another by its state.
//!
//! A bucket is made and deleted at the lead first, whose answer is the client's, and then at all
//! others. Policies, lock states, ACLs and whatever else has no state that could be copied go to
//! all members that are up, and must reach each of them.

use std::{sync::Arc, time::Duration};

use forebay_native::refuse;
use forebay_s3::{bucket::BucketName, code::Code, operation::Operation, xml};
use forebay_store::{Body, Error, Request, Response};
use forebay_telemetry::mirror::WriteResult;
use futures_util::future::join_all;
use http::Method;
use tokio::sync::oneshot;

use crate::{
    journal::{Held, Subject, Swapped, WriteKind},
    ledger::{self, Plan, Progress, Verdict},
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::Head,
    send::{self, Telling},
    write::{Payload, cannot, settled, take_payload},
};

/// Entries of a bucket that are looked at when it is deleted.
const ENTRIES_MAX: usize = 1000;

/// Makes or deletes a bucket.
///
/// # Cancel safety
/// The write goes on when the future is dropped.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    request: Request,
    bucket: BucketName,
    kind: WriteKind,
) -> Result<Response, Error> {
    let (sender, receiver) = oneshot::channel();
    let shared = Arc::clone(shared);
    let tasks = Arc::clone(&shared);
    let (head, body) = Head::split(request);
    tasks.tasks.run(async move {
        let subject = Subject::Bucket(bucket);
        let answer = at_all(&shared, (head, body), &subject, kind).await;
        shared.metrics.wrote(match &answer {
            Ok(response) if response.status.is_success() => WriteResult::Acknowledged,
            Ok(_) | Err(Error::Refused(_)) => WriteResult::Refused,
            Err(Error::Indeterminate { .. }) => WriteResult::TooFew,
            Err(_) => WriteResult::NotSent,
        });
        shared.wake.notify_one();
        // The client may be gone.
        drop(sender.send(answer));
    });
    receiver.await.unwrap_or(Err(indeterminate()))
}

async fn at_all(
    shared: &Arc<Shared>,
    (mut request, body): (Head, Body),
    subject: &Subject,
    kind: WriteKind,
) -> Result<Response, Error> {
    let (payload, _room) = take_payload(shared, &mut request, body).await?;
    let Payload::Whole(bytes) = payload else {
        return Err(Error::too_large(xml::DOCUMENT_BYTES_MAX));
    };
    let lock = shared.locks.lock(subject).await;
    let lock = lock.map_err(|error| shared.journal_failed(error))?;
    let able = match kind {
        WriteKind::Delete => current_in(shared, subject.bucket()).await?,
        WriteKind::Put | WriteKind::Retag => shared.members.set(),
    };
    let (plan, held) = plan(shared, subject, kind, able).await?;
    let again = || request.with(bytes.clone().into());
    let (answer, progress) = send_all(shared, (&plan, subject.bucket()), (kind, able), again).await;
    let times = (shared.now_ms(), shared.doubt_ms());
    let next = ledger::after(&plan, &progress, times);
    let changed = shared.change(subject, Some(&held), next).await;
    let answer = match ledger::judge(&plan, &progress, times.0) {
        Verdict::Acknowledge | Verdict::SettleAndAcknowledge => match changed {
            Ok(Swapped::Done(_)) => answer,
            Ok(Swapped::Changed) | Err(_) => Err(indeterminate()),
        },
        Verdict::Nothing => answer,
        Verdict::Wait | Verdict::TooFew | Verdict::Unknown => Err(indeterminate()),
    };
    lock.release().await;
    answer
}

/// Sends it to the lead, and to the others when it is done there; the lead's answer.
async fn send_all(
    shared: &Shared,
    (plan, bucket): (&Plan, &BucketName),
    (kind, able): (WriteKind, MemberSet),
    again: impl Fn() -> Request,
) -> (Result<Response, Error>, Vec<Progress>) {
    let send = |member| {
        let how = (kind, Telling::Status);
        send::write(shared, member, again(), how, std::future::ready(()))
    };
    let mut progress = vec![Progress::NotSent; shared.members.count()];
    let lead = send(plan.lead).await;
    let is_done = matches!(lead.progress, Progress::Done(_));
    // Tags are of objects.
    progress[usize::from(plan.lead.0)] = done_as(lead.progress, is_done);
    let answer = lead.answer.unwrap_or(Err(indeterminate()));
    if !is_done {
        return (answer, progress);
    }
    let others = shared
        .members
        .up()
        .without(MemberSet::EMPTY.with(plan.lead));
    let mut is_written = false;
    for sent in join_all(others.iter().map(send)).await {
        let is_done = matches!(sent.progress, Progress::Done(_))
            || is_refused_with(sent.answer.as_ref(), there_already(kind));
        // One that lacks nothing of the bucket has something in it: it was written meanwhile.
        is_written |= kind == WriteKind::Delete
            && able.has(sent.member)
            && is_refused_with(sent.answer.as_ref(), Code::BucketNotEmpty);
        progress[usize::from(sent.member.0)] = done_as(sent.progress, is_done);
    }
    if is_written {
        make_again(shared, bucket, &mut progress).await;
        return (Err(refuse::bucket_not_empty(bucket)), progress);
    }
    (answer, progress)
}

/// Undoes the delete of a bucket that was written while it was deleted.
async fn make_again(shared: &Shared, bucket: &BucketName, progress: &mut [Progress]) {
    for member in shared.members.set().iter() {
        let progress = &mut progress[usize::from(member.0)];
        if !matches!(progress, Progress::Done(_)) {
            continue;
        }
        let store = &*shared.members.get(member).store;
        let asker = shared.copier.asker();
        let operation = Operation::CreateBucket(bucket.clone());
        let made = asker
            .ask(store, asker.request(Method::PUT, operation, ""))
            .await;
        *progress = match made {
            Ok(_) => Progress::NoEffect,
            Err(_) => Progress::Unknown,
        };
    }
}

fn done_as(progress: Progress, is_done: bool) -> Progress {
    if is_done {
        Progress::Done(String::new())
    } else {
        progress
    }
}

async fn plan(
    shared: &Arc<Shared>,
    subject: &Subject,
    kind: WriteKind,
    able: MemberSet,
) -> Result<(Plan, Held), Error> {
    let held = settled(shared, subject).await?;
    let first = shared.members.by_promise(shared.members.up());
    let entry = held.as_ref().map(|held| &held.entry);
    let now = (&first[..], shared.now_ms());
    let plan = ledger::plan(entry, kind, shared.standings(), able, now).map_err(cannot)?;
    let intent = Some(plan.entry.clone());
    match shared.change(subject, held.as_ref(), intent).await? {
        Swapped::Done(sequence) => {
            let entry = plan.entry.clone();
            Ok((plan, Held { entry, sequence }))
        }
        Swapped::Changed => Err(Error::SlowDown { retry_after: None }),
    }
}

/// Members that have the last state of every key of a bucket; one that has not must not judge
/// whether it is empty.
async fn current_in(shared: &Shared, bucket: &BucketName) -> Result<MemberSet, Error> {
    let mut current = shared.members.set();
    let mut from = vec![0];
    loop {
        let entries = shared
            .journal
            .range(bucket, from..vec![0xff; 4], ENTRIES_MAX)
            .await
            .map_err(|error| shared.journal_failed(error))?;
        let Some((Subject::Object(last), _)) = entries.last() else {
            return Ok(current);
        };
        from = [last.key.as_str().as_bytes(), &[0]].concat();
        for (_, held) in &entries {
            if held.entry.intent.is_some() {
                return Err(Error::SlowDown { retry_after: None });
            }
            current = held.entry.current(current);
        }
    }
}

/// With what a member refuses that is as it should be already.
fn there_already(kind: WriteKind) -> Code {
    match kind {
        WriteKind::Put | WriteKind::Retag => Code::BucketAlreadyOwnedByYou,
        WriteKind::Delete => Code::NoSuchBucket,
    }
}

/// Whether a member refused with this code, by its status where it does not say more.
fn is_refused_with(answer: Option<&Result<Response, Error>>, code: Code) -> bool {
    match answer {
        Some(Err(Error::Refused(refusal))) => refusal.code == code,
        Some(Ok(response)) => response.status == code.status(),
        Some(Err(_)) | None => false,
    }
}

/// A write that can't be repaired by copying a state: to all members that are up, each of which
/// must take it.
pub(crate) async fn to_each(
    shared: &Arc<Shared>,
    request: Request,
    subject: Subject,
) -> Result<Response, Error> {
    let (mut head, body) = Head::split(request);
    let (payload, room) = take_payload(shared, &mut head, body).await?;
    let Payload::Whole(bytes) = payload else {
        return Err(Error::too_large(xml::DOCUMENT_BYTES_MAX));
    };
    let (sender, receiver) = oneshot::channel();
    let shared = Arc::clone(shared);
    let tasks = Arc::clone(&shared);
    tasks.tasks.run(async move {
        let answer = to_each_now(&shared, &head, &bytes, &subject).await;
        drop(room);
        // The client may be gone.
        drop(sender.send(answer));
    });
    receiver.await.unwrap_or(Err(indeterminate()))
}

async fn to_each_now(
    shared: &Arc<Shared>,
    request: &Head,
    bytes: &bytes::Bytes,
    subject: &Subject,
) -> Result<Response, Error> {
    let lock = shared.locks.lock(subject).await;
    let lock = lock.map_err(|error| shared.journal_failed(error))?;
    let held = settled(shared, subject).await?;
    let up = shared.members.up();
    // Who lacks the key itself gets none of what is beside it.
    let current = held.map_or(up, |held| held.entry.current(up));
    if current.count() < shared.writes_min {
        return Err(cannot(ledger::NoPlan::TooFew));
    }
    let sent = current.iter().map(|member: MemberId| {
        let request = request.with(bytes.clone().into());
        let how = (WriteKind::Retag, Telling::Status);
        send::write(shared, member, request, how, std::future::ready(()))
    });
    let sent = join_all(sent).await;
    lock.release().await;
    let (done, failed): (Vec<_>, Vec<_>) = sent
        .into_iter()
        .partition(|sent| matches!(sent.progress, Progress::Done(_)));
    let (first_done, first_failed) = (done.into_iter().next(), failed.into_iter().next());
    match (first_done, first_failed) {
        // Some have it and some have not: the client repeats it.
        (Some(_), Some(_)) => Err(indeterminate()),
        (Some(sent), None) | (None, Some(sent)) => sent.answer.unwrap_or(Err(indeterminate())),
        (None, None) => Err(cannot(ledger::NoPlan::TooFew)),
    }
}

fn indeterminate() -> Error {
    Error::Indeterminate {
        elapsed: Duration::ZERO,
    }
}
