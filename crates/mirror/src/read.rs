//! Reads: from the member that promises most, and from the next when it fails.
//!
//! A read of a key looks first what the journal says of it. While a write is under way the lead is
//! asked alone, and when the journal says something else by the time of the answer all is asked
//! again; so nobody sees an older state after a newer one. A `404` is believed when a second member
//! says so too.

use std::{sync::Arc, time::Duration};

use forebay_store::{Body, Error, Request, Response};
use forebay_telemetry::mirror::Fallback;
use http::StatusCode;

use crate::{
    journal::{Entry, Owed, Subject},
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::Head,
    send, settle,
    write::settled,
};

/// Time within which a member answers before the next is asked, where there is one. Far above the
/// tail of a healthy store, and short enough for a client to wait; a guess.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(5);
/// Looks at a key of which no member could be asked.
const LOOKS_MAX: usize = 50;
/// Time between two of them: with the looks, 5 s in which a write under way may hand over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Changes of a key while it is read, after which it is locked.
const CHANGES_MAX: u32 = 3;

/// What came of asking members.
enum Asked {
    Answer(Result<Response, Error>),
    /// Nobody could be asked, or none has answered as a store should.
    Nothing(Option<Result<Response, Error>>),
}

/// Answers a read of a key, or of a bucket.
///
/// # Errors
/// `Unavailable` when no member that has the last state can be asked; else the member's own.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    request: Request,
    subject: &Subject,
) -> Result<Response, Error> {
    let (request, _) = Head::split(request);
    let mut last = None;
    let mut changed_count = 0;
    for _ in 0..LOOKS_MAX {
        // A key that others write all the time is read when it is our turn.
        let lock = if changed_count < CHANGES_MAX {
            None
        } else {
            let lock = shared.locks.lock(subject).await;
            Some(lock.map_err(|error| shared.journal_failed(error))?)
        };
        let held = match &lock {
            Some(_) => settled(shared, subject).await?,
            None => shared.held(subject).await?,
        };
        let entry = held.as_ref().map(|held| &held.entry);
        let readable = shared.readable();
        let current = entry.map_or(readable, |entry| entry.current(readable));
        let asked = ask(shared, &request, (subject, entry), current).await;
        let is_locked = lock.is_some();
        if let Some(lock) = lock {
            lock.release().await;
        }
        match asked {
            Asked::Answer(answer) if is_locked => return answer,
            Asked::Answer(answer) => {
                let now = shared.held(subject).await?;
                if now.map(|now| now.sequence) == held.map(|held| held.sequence) {
                    return answer;
                }
                changed_count += 1;
                continue;
            }
            Asked::Nothing(answer) => last = answer.or(last),
        }
        let is_under_way = entry.is_some_and(|entry| entry.intent.is_some());
        if !is_under_way {
            break;
        }
        // Its gateway may have ended; else the lock is not to be had.
        settle_now(shared, subject).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    last.unwrap_or_else(|| {
        Err(Error::Unavailable {
            reason: "no member that has the last state can be asked".into(),
        })
    })
}

/// Asks these members one after the other.
async fn ask(
    shared: &Arc<Shared>,
    request: &Head,
    (subject, entry): (&Subject, Option<&Entry>),
    members: MemberSet,
) -> Asked {
    let mut left = shared.members.by_promise(members);
    left.reverse();
    // The first that said there is nothing, and what it said.
    let mut absent: Option<(MemberId, Result<Response, Error>)> = None;
    let mut failed = None;
    while let Some(member) = left.pop() {
        let timeout = if left.is_empty() {
            shared.settings.attempt_timeout
        } else {
            shared.settings.attempt_timeout.min(FIRST_BYTE_MAX)
        };
        let answer = send::read(shared, member, request.with(Body::empty()), timeout).await;
        let (reason, answer) = match judge(answer) {
            Judged::Answer(answer) => {
                if let Some((first, _)) = absent {
                    shared.metrics.fell_back(Fallback::NotFound);
                    if entry.is_none() {
                        owe(shared, subject, first).await;
                    }
                }
                return Asked::Answer(answer);
            }
            Judged::Absent(answer) => {
                if let Some((_, answer)) = absent {
                    return Asked::Answer(answer);
                }
                absent = Some((member, answer));
                continue;
            }
            Judged::Failed(reason, answer) => (reason, answer),
        };
        shared.metrics.fell_back(reason);
        failed = answer.or(failed);
    }
    match absent {
        Some((_, answer)) => Asked::Answer(answer),
        None => Asked::Nothing(failed),
    }
}

enum Judged {
    Answer(Result<Response, Error>),
    Absent(Result<Response, Error>),
    Failed(Fallback, Option<Result<Response, Error>>),
}

fn judge(answer: Option<Result<Response, Error>>) -> Judged {
    let Some(answer) = answer else {
        return Judged::Failed(Fallback::Timeout, None);
    };
    match &answer {
        Ok(response) if response.status == StatusCode::NOT_FOUND => Judged::Absent(answer),
        Ok(response) if send::is_fault(response.status) => {
            Judged::Failed(Fallback::ServerError, Some(answer))
        }
        // The client was let in at the edge; when all members say so it is told.
        Ok(response) if is_denial(response.status) => {
            Judged::Failed(Fallback::Denied, Some(answer))
        }
        Err(Error::Refused(refusal)) if is_denial(refusal.code.status()) => {
            Judged::Failed(Fallback::Denied, Some(answer))
        }
        Err(Error::Refused(refusal)) if refusal.code.status() == StatusCode::NOT_FOUND => {
            Judged::Absent(answer)
        }
        Ok(_) | Err(Error::Refused(_) | Error::ClientGone) => Judged::Answer(answer),
        Err(
            Error::SlowDown { .. }
            | Error::Unavailable { .. }
            | Error::Indeterminate { .. }
            | Error::Cut { .. }
            | Error::Internal { .. },
        ) => Judged::Failed(Fallback::Failed, Some(answer)),
    }
}

fn is_denial(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Writes down that a member lacks what another has, though the journal says nothing of it; if the
/// key is written meanwhile, that counts.
async fn owe(shared: &Shared, subject: &Subject, member: MemberId) {
    let owed = Owed {
        member,
        doubt_ms: 0,
    };
    let entry = Entry {
        at_ms: shared.now_ms(),
        intent: None,
        owed: vec![owed],
    };
    match shared.change(subject, None, Some(entry)).await {
        Ok(_) => shared.wake.notify_one(),
        // The next read that notices it will try again.
        Err(error) => tracing::debug!(%error, "what a member lacks was not written down"),
    }
}

/// Settles a write whose gateway ended, if nobody is at work on the key.
async fn settle_now(shared: &Arc<Shared>, subject: &Subject) {
    let Ok(Some(lock)) = shared.locks.try_lock(subject).await else {
        return;
    };
    if let Ok(Some(held)) = shared.held(subject).await
        && held.entry.intent.is_some()
        && let Err(error) = settle::settle(shared, subject, &held).await
    {
        tracing::debug!(%error, "a write is not settled yet");
    }
    lock.release().await;
}

/// Answers a read that is of no key: from the best member.
pub(crate) async fn service(shared: &Arc<Shared>, request: Request) -> Result<Response, Error> {
    let (request, _) = Head::split(request);
    let mut failed = None;
    for member in shared.members.by_promise(shared.readable()) {
        let timeout = shared.settings.attempt_timeout;
        let answer = send::read(shared, member, request.with(Body::empty()), timeout).await;
        match judge(answer) {
            Judged::Answer(answer) | Judged::Absent(answer) => return answer,
            Judged::Failed(reason, answer) => {
                shared.metrics.fell_back(reason);
                failed = answer.or(failed);
            }
        }
    }
    failed.unwrap_or_else(|| {
        Err(Error::Unavailable {
            reason: "no member can be asked".into(),
        })
    })
}
