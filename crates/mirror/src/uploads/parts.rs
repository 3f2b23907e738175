//! Parts of uploads: to all members that take part, and what is there of them.

use std::{sync::Arc, time::Duration};

use forebay_native::hot::HotKey;
use forebay_s3::operation::{ObjectId, Upload, UploadPart};
use forebay_store::{Body, Error, Request, Response};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::header;

use super::{
    best_first, drop_members, no_such_upload, read_answer, record, set_text, too_few, with_id,
};
use crate::{
    journal::Subject,
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::Head,
    send,
    tee::Tee,
};

/// How long members are waited for once enough have a part. Who is later misses it, and with it
/// the upload; a guess, as long as a body waits for one that is behind.
const LAG_MAX: Duration = Duration::from_secs(5);

/// What a member said to a part, its body read.
struct Said {
    member: MemberId,
    answer: Result<(Response, bytes::Bytes), Error>,
}

impl Said {
    /// The tag of the part, if the member has it.
    fn tag(&self) -> Option<String> {
        let (response, text) = self.answer.as_ref().ok()?;
        if !response.status.is_success() || forebay_s3::xml::error_in(text).is_some() {
            return None;
        }
        let tag = response
            .headers
            .get(header::ETAG)
            .and_then(|tag| tag.to_str().ok());
        let of_copy = || {
            let text = std::str::from_utf8(text).ok()?;
            forebay_native::fragments::read(text)?.text_of("ETag")
        };
        let tag = tag.map(str::to_owned).or_else(of_copy)?;
        Some(tag.trim_matches('"').to_owned())
    }
}

/// Writes a part to all members that take part.
///
/// # Errors
/// `NoSuchUpload`; `Unavailable` when too few have it; the body's own.
pub(crate) async fn upload_part(
    shared: &Arc<Shared>,
    request: Request,
    part: &UploadPart,
) -> Result<Response, Error> {
    let record = open(shared, &part.upload).await?;
    let members = best_first(shared, &record);
    let timeout = shared.settings.attempt_timeout;
    let _room = shared.budget.reserve(crate::tee::WINDOW_BYTES_MAX).await?;
    let (head, body) = Head::split(request);
    let (tee, bodies) = Tee::new(body, members.len(), timeout);
    let given = tokio::sync::watch::Sender::new(false);
    let sent: FuturesUnordered<_> = members
        .iter()
        .zip(bodies)
        .filter_map(|(member, body)| {
            let one = head.for_upload(record.id_at(shared, *member)?).with(body);
            Some(written(shared, *member, one, given.subscribe()))
        })
        .collect();
    let giving = async {
        let gave = tee.run().await;
        given.send_replace(true);
        gave
    };
    let (gave, said) = tokio::join!(giving, all_of(shared, sent));
    gave?;
    acknowledged(shared, &part.upload, record.taking_part(shared), said).await
}

/// Has members copy a part from an object of theirs; who lacks the object's last state can't.
///
/// # Errors
/// As [`upload_part`]; `SlowDown` while too few members have the object.
pub(crate) async fn upload_part_copy(
    shared: &Arc<Shared>,
    request: Request,
    (part, source): (&UploadPart, &ObjectId),
) -> Result<Response, Error> {
    let record = open(shared, &part.upload).await?;
    let subject = Subject::Object(HotKey::from(source));
    let lock = shared.locks.lock(&subject).await?;
    let entry = shared.journal.get(&subject).await?;
    let taking_part = record.taking_part(shared);
    let able = match &entry {
        Some(held) => held.entry.current(taking_part),
        None => taking_part.and(shared.standings().known),
    };
    let able = able.and(shared.members.up());
    if able.count() < shared.writes_min {
        return Err(Error::SlowDown { retry_after: None });
    }
    let (head, _) = Head::split(request);
    let given = tokio::sync::watch::Sender::new(true);
    let sent: FuturesUnordered<_> = able
        .iter()
        .filter_map(|member| {
            let one = head.for_upload(record.id_at(shared, member)?);
            let one = one.with(Body::empty());
            Some(written(shared, member, one, given.subscribe()))
        })
        .collect();
    let said = all_of(shared, sent).await;
    lock.release().await;
    acknowledged(shared, &part.upload, taking_part, said).await
}

/// The record of an upload that is under way.
async fn open(shared: &Shared, upload: &Upload) -> Result<record::Record, Error> {
    let record = record::get(shared, upload).await?.record;
    if record.end.is_some() {
        return Err(no_such_upload(upload));
    }
    Ok(record)
}

/// Sends a part to a member; its time counts from when it was given all of it.
async fn written(
    shared: &Shared,
    member: MemberId,
    request: Request,
    mut given: tokio::sync::watch::Receiver<bool>,
) -> Said {
    let late = async {
        // A sender that is gone has given what it had.
        let _ = given.wait_for(|given| *given).await;
        tokio::time::sleep(shared.settings.attempt_timeout).await;
    };
    let answered = async { read_answer(send::call(shared, member, request).await).await };
    let answer = tokio::select! {
        biased;
        answer = answered => answer,
        () = late => {
            shared.members.get(member).ended(crate::members::Health::Failed);
            Err(Error::Indeterminate { elapsed: shared.settings.attempt_timeout })
        }
    };
    Said { member, answer }
}

/// What all said, but for those that are far behind the others.
async fn all_of(
    shared: &Shared,
    mut sent: FuturesUnordered<impl Future<Output = Said>>,
) -> Vec<Said> {
    let mut said: Vec<Said> = Vec::new();
    loop {
        let count = said.iter().filter(|said| said.tag().is_some()).count();
        let next = if count >= shared.writes_min {
            // One that is late has had its chance.
            let next = tokio::time::timeout(LAG_MAX, sent.next()).await;
            next.unwrap_or(None)
        } else {
            sent.next().await
        };
        match next {
            Some(one) => said.push(one),
            None => return said,
        }
    }
}

/// Acknowledges a part that enough members have, once those that have it not are out of the upload.
async fn acknowledged(
    shared: &Shared,
    upload: &Upload,
    taking_part: MemberSet,
    said: Vec<Said>,
) -> Result<Response, Error> {
    let tags: Vec<(MemberId, String)> = said
        .iter()
        .filter_map(|said| Some((said.member, said.tag()?)))
        .collect();
    let count = |tag: &String| tags.iter().filter(|(_, other)| other == tag).count();
    let most = tags
        .iter()
        .map(|(_, tag)| tag)
        .max_by_key(|tag| count(tag))
        .cloned();
    let having: MemberSet = tags
        .iter()
        .filter(|(_, tag)| Some(tag) == most.as_ref())
        .map(|(member, _)| *member)
        .collect();
    if having.count() < shared.writes_min {
        return refusal(said, having);
    }
    drop_members(shared, upload, taking_part.without(having)).await?;
    let answer = said.into_iter().find(|said| having.has(said.member));
    let (response, text) = answer.ok_or_else(too_few)?.answer?;
    Ok(response.with_body(text))
}

/// What a client is told of a part that too few have: a refusal if there is one.
fn refusal(said: Vec<Said>, having: MemberSet) -> Result<Response, Error> {
    let mut failed = None;
    for one in said.into_iter().filter(|one| !having.has(one.member)) {
        match one.answer {
            Ok((response, text)) if response.status.is_client_error() => {
                return Ok(response.with_body(text));
            }
            Err(refused @ (Error::Refused(_) | Error::ClientGone)) => return Err(refused),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    Err(match failed {
        // A part that some have is harmless: it is written again, or not named.
        Some(error) if error.is_retryable() => error,
        Some(_) | None => too_few(),
    })
}

/// What is there of an upload: whoever takes part has every part that was acknowledged.
///
/// # Errors
/// `NoSuchUpload`; `Unavailable` when nobody that takes part can be asked.
pub(crate) async fn list_parts(
    shared: &Arc<Shared>,
    request: Request,
    upload: &Upload,
) -> Result<Response, Error> {
    let record = open(shared, upload).await?;
    let (head, _) = Head::split(request);
    let mut failed = None;
    for member in best_first(shared, &record) {
        let Some(id) = record.id_at(shared, member) else {
            continue;
        };
        let answer = shared
            .ask(member, head.for_upload(id).with(Body::empty()))
            .await;
        match read_answer(answer).await {
            Ok((mut response, text)) if response.status.is_success() => {
                set_text(&mut response, with_id(&text, &upload.upload_id)?);
                return Ok(response);
            }
            Ok((response, text)) => return Ok(response.with_body(text)),
            Err(refused @ Error::Refused(_)) => return Err(refused),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(too_few))
}
