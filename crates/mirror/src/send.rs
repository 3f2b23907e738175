//! One request at one member: sent, timed, counted, and its end told from a fault.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_s3::{code::Code, xml};
use forebay_store::{Body, Error, Request, Response};
use http::{StatusCode, header};

use crate::{
    journal::WriteKind,
    ledger::Progress,
    members::{Health, MemberId},
    mirror::Shared,
};

/// Most bytes of an answer that is read for what it says.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What came of a write at a member.
pub(crate) struct Sent {
    pub(crate) member: MemberId,
    pub(crate) progress: Progress,
    /// What it said; nothing when it did not answer in time.
    pub(crate) answer: Option<Result<Response, Error>>,
}

/// How an answer says whether the write happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// By its status.
    Status,
    /// At the end of its body, as that of a copy.
    Body,
}

/// Sends a write to a member; its time is counted from when `given` ends, which says that its body
/// has been given to it.
pub(crate) async fn write(
    shared: &Shared,
    member: MemberId,
    request: Request,
    (kind, telling): (WriteKind, Telling),
    given: impl Future<Output = ()>,
) -> Sent {
    let timeout = shared.settings.attempt_timeout;
    let late = async {
        given.await;
        tokio::time::sleep(timeout).await;
    };
    let answer = tokio::select! {
        biased;
        answer = call(shared, member, request) => answer,
        () = late => {
            shared.members.get(member).ended(Health::Failed);
            return Sent { member, progress: Progress::Unknown, answer: None };
        }
    };
    let (progress, answer) = judged(answer, kind, telling, timeout).await;
    Sent {
        member,
        progress,
        answer: Some(answer),
    }
}

/// Sends a request to a member and counts it.
pub(crate) async fn call(
    shared: &Shared,
    member: MemberId,
    request: Request,
) -> Result<Response, Error> {
    let member = shared.members.get(member);
    let attempt = member.attempt();
    let answer = member.store.call(request).await;
    member.ended(health_of(&answer));
    drop(attempt);
    answer
}

/// A read: sent, timed until its first byte, and counted; `None` when it took too long.
pub(crate) async fn read(
    shared: &Shared,
    member: MemberId,
    request: Request,
    timeout: Duration,
) -> Option<Result<Response, Error>> {
    let begun = shared.clock.now();
    let answer = tokio::time::timeout(timeout, call(shared, member, request)).await;
    let member = shared.members.get(member);
    match &answer {
        Err(_) => member.ended(Health::Failed),
        Ok(answer) if health_of(answer) == Health::Answered => {
            let now = shared.clock.now();
            member.took(now.saturating_duration_since(begun));
        }
        Ok(_) => {}
    }
    answer.ok()
}

/// What an answer says of the member's health.
fn health_of(answer: &Result<Response, Error>) -> Health {
    match answer {
        Ok(response) if is_fault(response.status) => Health::Failed,
        Ok(_) | Err(Error::Refused(_)) => Health::Answered,
        Err(Error::Unavailable { .. } | Error::Indeterminate { .. } | Error::Internal { .. }) => {
            Health::Failed
        }
        // A body that breaks off is as a rule the client's.
        Err(Error::SlowDown { .. } | Error::ClientGone | Error::Cut { .. }) => Health::Neither,
    }
}

/// Whether a status says that the store itself has failed.
pub(crate) fn is_fault(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

/// How far a write has come by its answer, which is read where it has to be.
async fn judged(
    answer: Result<Response, Error>,
    kind: WriteKind,
    telling: Telling,
    timeout: Duration,
) -> (Progress, Result<Response, Error>) {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return (of_error(&error, kind), Err(error)),
    };
    if response.status.is_success() && telling == Telling::Status {
        return (Progress::Done(tag_in(&response)), Ok(response));
    }
    let (response, text) = match whole(response, timeout).await {
        Ok(whole) => whole,
        Err(error) => return (Progress::Unknown, Err(error)),
    };
    let code = xml::error_in(&text).map(|error| error.code);
    let status = response.status;
    let progress = match code {
        None if status.is_success() => Progress::Done(tag_of_document(&text)),
        // An error behind the status of a success.
        Some(_) if status.is_success() => Progress::Unknown,
        Some(code) if code == "SlowDown" || code == "ServiceUnavailable" => Progress::NoEffect,
        _ if is_fault(status) => Progress::Unknown,
        Some(code) if kind == WriteKind::Delete && code == Code::NoSuchKey.as_str() => {
            Progress::Done(String::new())
        }
        _ => Progress::Refused,
    };
    (progress, Ok(response))
}

fn of_error(error: &Error, kind: WriteKind) -> Progress {
    match error {
        Error::Refused(refusal) if kind == WriteKind::Delete && refusal.code == Code::NoSuchKey => {
            Progress::Done(String::new())
        }
        Error::Refused(_) => Progress::Refused,
        Error::SlowDown { .. } | Error::Unavailable { .. } | Error::ClientGone => {
            Progress::NoEffect
        }
        Error::Indeterminate { .. } | Error::Cut { .. } | Error::Internal { .. } => {
            Progress::Unknown
        }
    }
}

/// An answer with its body read, and the text of it. One that comes slowly may take long, as long
/// as something of it comes.
async fn whole(mut response: Response, timeout: Duration) -> Result<(Response, Bytes), Error> {
    let mut body = std::mem::take(&mut response.body);
    let mut text = BytesMut::new();
    loop {
        let late = |_| Error::Indeterminate { elapsed: timeout };
        let frame = tokio::time::timeout(timeout, body.frame()).await;
        let Some(frame) = frame.map_err(late)? else {
            break;
        };
        if let Ok(data) = frame?.into_data() {
            if text.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(Error::too_large(ANSWER_BYTES_MAX));
            }
            text.extend_from_slice(&data);
        }
    }
    let text = text.freeze();
    response.body = Body::from(text.clone());
    Ok((response, text))
}

fn tag_in(response: &Response) -> String {
    let tag = response.headers.get(header::ETAG);
    let text = tag.and_then(|tag| tag.to_str().ok());
    text.unwrap_or_default().trim_matches('"').to_owned()
}

/// The tag that the document of a copy names, without quotes.
fn tag_of_document(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let tag = text
        .split_once("<ETag>")
        .and_then(|(_, rest)| rest.split_once("</ETag>"));
    let tag = tag.map(|(tag, _)| tag).unwrap_or_default();
    tag.replace("&quot;", "")
        .replace("&#34;", "")
        .replace('"', "")
}
