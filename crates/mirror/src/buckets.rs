//! Writes of buckets, and of what a mirror can't bring from one member to another by its state.
//!
//! A bucket is made and deleted at the lead first, whose answer is the client's, and then at all
//! others. Policies, lock states, ACLs and whatever else has no state that could be copied go to
//! all members that are up, and must reach each of them.

use std::{sync::Arc, time::Duration};

use forebay_s3::{bucket::BucketName, code::Code, xml};
use forebay_store::{Body, Error, Request, Response};
use forebay_telemetry::mirror::WriteResult;
use futures_util::future::join_all;
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
    let how = (kind, Telling::Status);
    let mut progress = vec![Progress::NotSent; shared.members.count()];
    let lead = send::write(shared, plan.lead, again(), how, std::future::ready(())).await;
    let is_done = matches!(lead.progress, Progress::Done(_));
    // Tags are of objects.
    progress[usize::from(plan.lead.0)] = done_as(lead.progress, is_done);
    if is_done {
        let others = shared
            .members
            .up()
            .without(MemberSet::EMPTY.with(plan.lead));
        let sent = others
            .iter()
            .map(|member| send::write(shared, member, again(), how, std::future::ready(())));
        for sent in join_all(sent).await {
            let is_done = matches!(sent.progress, Progress::Done(_))
                || is_there_already(sent.answer.as_ref(), kind);
            progress[usize::from(sent.member.0)] = done_as(sent.progress, is_done);
        }
    }
    let times = (shared.now_ms(), shared.doubt_ms());
    let next = ledger::after(&plan, &progress, times);
    let changed = shared.change(subject, Some(&held), next).await;
    let answer = match ledger::judge(&plan, &progress, times.0) {
        Verdict::Acknowledge | Verdict::SettleAndAcknowledge => match changed {
            Ok(Swapped::Done(_)) => lead.answer.unwrap_or(Err(indeterminate())),
            Ok(Swapped::Changed) | Err(_) => Err(indeterminate()),
        },
        Verdict::Nothing => lead
            .answer
            .unwrap_or(Err(Error::SlowDown { retry_after: None })),
        Verdict::Wait | Verdict::TooFew | Verdict::Unknown => Err(indeterminate()),
    };
    lock.release().await;
    answer
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

/// Whether a member refused only because it is as it should be already.
fn is_there_already(answer: Option<&Result<Response, Error>>, kind: WriteKind) -> bool {
    let code = match answer {
        Some(Err(Error::Refused(refusal))) => refusal.code.as_str().to_owned(),
        Some(Ok(response)) => match response.status.as_u16() {
            404 => Code::NoSuchBucket.as_str().to_owned(),
            409 => Code::BucketAlreadyOwnedByYou.as_str().to_owned(),
            _ => return false,
        },
        Some(Err(_)) | None => return false,
    };
    match kind {
        WriteKind::Put | WriteKind::Retag => code == Code::BucketAlreadyOwnedByYou.as_str(),
        WriteKind::Delete => code == Code::NoSuchBucket.as_str(),
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
