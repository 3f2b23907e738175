//! Multipart uploads over all members.
//!
//! Creating one creates one on every member that is current; our own id names a [`record`] of
//! theirs in the journal's index. A part goes to all that take part. One that misses a part is
//! dropped from the upload, which the record says before the part is acknowledged; so whoever takes
//! part has every part that was acknowledged. The completion is a write like any other, with an
//! intent in the journal before it is sent: members that do not take part owe the object then, and
//! get it by a copy.
//!
//! Members have to give parts the same tags, as they have to for objects. An upload that nobody
//! ends is given up after [`EXPIRES_AFTER`]. Source: Amazon S3 User Guide, "Uploading and copying
//! objects using multipart upload".

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_native::fragments;
use forebay_s3::{
    operation::{ObjectId, Operation, Upload},
    uri, xml,
};
use forebay_store::{Body, Error, Request, Response};
use futures_util::future;
use http::{Method, header};

use crate::{
    ask::Trouble,
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::Head,
};

mod complete;
mod list;
mod parts;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use complete::complete;
pub(crate) use list::list_uploads;
pub(crate) use parts::{list_parts, upload_part, upload_part_copy};
use record::{End, Record, no_such_upload};

/// Bytes of an id: the time, a random number, in hex.
const ID_BYTES: usize = 32;
/// An upload that is not ended for so long is given up. AWS's own advice for a lifecycle rule.
const EXPIRES_AFTER: Duration = Duration::from_hours(7 * 24);
/// For so long a repeated completion is answered as the first was: a client that got no answer
/// tries again within minutes.
const COMPLETED_KEPT: Duration = Duration::from_hours(1);
/// Records read at once by a turn of the loop.
const RECORDS_MAX: usize = 256;
/// Most bytes of an answer that is read for what it says.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// Creates an upload on every member that can be read.
///
/// # Errors
/// `Unavailable` when fewer than acknowledge a write did create it; the index's own.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    let (head, _) = Head::split(request);
    let members = shared.readable();
    let asked = members.iter().map(|member| {
        let request = head.with(Body::empty());
        async move { (member, read_answer(shared.ask(member, request).await).await) }
    });
    let answers = future::join_all(asked).await;
    let mut ids = BTreeMap::new();
    let (mut answered, mut refused) = (None, None);
    for (member, answer) in answers {
        match answer {
            Ok((response, text)) if response.status.is_success() => {
                let id = xml::upload_id(&text);
                let id = id.map_err(|error| Error::internal("read a new upload's id", error))?;
                ids.insert(shared.members.get(member).name.clone(), id);
                answered.get_or_insert((response, text));
            }
            other => refused = Some(other),
        }
    }
    let (true, Some((mut response, text))) = (ids.len() >= shared.writes_min, answered) else {
        abort_all(shared, object, &ids).await;
        return match refused {
            Some(Ok((response, text))) => Ok(response.with_body(text)),
            Some(Err(error)) => Err(error),
            None => Err(too_few()),
        };
    };
    let upload = Upload {
        object: object.clone(),
        upload_id: new_id(shared),
    };
    let class = head.headers.get("x-amz-storage-class");
    let record = Record {
        begun_ms: shared.now_ms(),
        members: ids,
        dropped: BTreeMap::new(),
        class: class
            .and_then(|class| class.to_str().ok())
            .map(str::to_owned),
        end: None,
    };
    record::begin(shared, &upload, &record).await?;
    set_text(&mut response, with_id(&text, &upload.upload_id)?);
    Ok(response)
}

/// Gives an upload up.
///
/// # Errors
/// `NoSuchUpload`; the index's own.
pub(crate) async fn abort(shared: &Arc<Shared>, upload: &Upload) -> Result<Response, Error> {
    let held = record::get(shared, upload).await?;
    if held.record.end.is_some() {
        return Err(no_such_upload(upload));
    }
    record::change(shared, upload, |record| {
        record.give_up();
        record.end = Some(End::Aborted);
    })
    .await?;
    tidy(shared, upload).await?;
    Ok(Response::new(http::StatusCode::NO_CONTENT))
}

/// Gives up what is left of an upload at members that have no use for it, and forgets the upload
/// when nothing is left and nobody asks for it any more.
async fn tidy(shared: &Shared, upload: &Upload) -> Result<(), Error> {
    let record = match record::get(shared, upload).await {
        Ok(held) => held.record,
        Err(Error::Refused(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let since =
        |at_ms: i64| Duration::from_millis(u64::try_from(shared.now_ms() - at_ms).unwrap_or(0));
    let mut record = record;
    let is_ended = match &record.end {
        None => false,
        Some(End::Aborted) => true,
        // Until then a late completion of a slow member may still come to it.
        Some(End::Completed { at_ms, .. }) => since(*at_ms) >= COMPLETED_KEPT,
    };
    if is_ended {
        record.give_up();
    }
    let gone = abort_all(shared, &upload.object, &record.dropped).await;
    let left = record::change(shared, upload, |record| {
        if is_ended {
            record.give_up();
        }
        record.dropped.retain(|name, _| !gone.contains(name));
    });
    let Some(record) = left.await? else {
        return Ok(());
    };
    // A member that can't be asked for so long gives it up by its own rule, if it ever returns.
    let is_expired = since(record.begun_ms) >= 2 * EXPIRES_AFTER;
    let is_over = is_ended && (record.dropped.is_empty() || is_expired);
    if is_over {
        record::forget(shared, upload).await?;
    }
    Ok(())
}

/// One turn of the loop over all uploads: tidies those that have ended, and gives up those that
/// nobody ended for a long time.
///
/// # Errors
/// The index's own.
pub(crate) async fn turn(shared: &Shared) -> Result<(), Error> {
    let mut from = None;
    loop {
        let records = record::range(shared, None, from, RECORDS_MAX).await?;
        let Some(last) = records.last() else {
            return Ok(());
        };
        from = Some([&last.name[..], &[0]].concat().into());
        for named in records {
            let age_ms = u64::try_from(shared.now_ms() - named.record.begun_ms).unwrap_or(0);
            let is_old = Duration::from_millis(age_ms) >= EXPIRES_AFTER;
            if is_old && named.record.end.is_none() {
                record::change(shared, &named.upload, |record| {
                    record.give_up();
                    record.end = Some(End::Aborted);
                })
                .await?;
            }
            if is_old || named.record.end.is_some() || !named.record.dropped.is_empty() {
                tidy(shared, &named.upload).await?;
            }
        }
    }
}

/// Aborts an upload at members, by name; the names of those where it is gone.
async fn abort_all(
    shared: &Shared,
    object: &ObjectId,
    ids: &BTreeMap<String, String>,
) -> Vec<String> {
    let aborted = ids.iter().map(async |(name, id)| {
        let Some(member) = shared.members.named(name) else {
            // It is configured no longer.
            return Some(name.clone());
        };
        let upload = Upload {
            object: object.clone(),
            upload_id: id.clone(),
        };
        let query = format!("uploadId={}", uri::encode_query(id));
        let operation = Operation::AbortMultipartUpload(upload);
        let asker = shared.copier.asker();
        let request = asker.request(Method::DELETE, operation, &query);
        match asker.ask(&*shared.members.get(member).store, request).await {
            Ok(_) | Err(Trouble::Refused(..)) => Some(name.clone()),
            Err(Trouble::Busy | Trouble::Unknown) => None,
        }
    });
    future::join_all(aborted)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// Takes members out of an upload, for a part that they missed.
///
/// # Errors
/// `NoSuchUpload` when it was ended meanwhile; `Unavailable` when too few would be left.
async fn drop_members(shared: &Shared, upload: &Upload, missing: MemberSet) -> Result<(), Error> {
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing
        .iter()
        .map(|member| shared.members.get(member).name.as_str())
        .collect();
    let changed = record::change(shared, upload, |record| {
        let left = record
            .members
            .keys()
            .filter(|name| !names.contains(&name.as_str()));
        if left.count() < shared.writes_min || record.end.is_some() {
            return;
        }
        for name in &names {
            if let Some((name, id)) = record.members.remove_entry(*name) {
                record.dropped.insert(name, id);
            }
        }
    });
    let record = changed.await?.ok_or_else(|| no_such_upload(upload))?;
    if record.end.is_some() {
        return Err(no_such_upload(upload));
    }
    if names.iter().any(|name| record.members.contains_key(*name)) {
        return Err(too_few());
    }
    Ok(())
}

fn too_few() -> Error {
    Error::Unavailable {
        reason: "too few members of the mirror have the upload".into(),
    }
}

/// An id like no other.
fn new_id(shared: &Shared) -> String {
    let now_ms = u64::try_from(shared.now_ms()).unwrap_or(0);
    format!("{now_ms:016x}{:016x}", fastrand::u64(..))
}

/// An answer with its body read.
async fn read_answer(answer: Result<Response, Error>) -> Result<(Response, Bytes), Error> {
    let mut response = answer?;
    let body = std::mem::take(&mut response.body);
    let (text, _) = body.collect(ANSWER_BYTES_MAX).await?;
    Ok((response, text))
}

/// A member's document with our id in the place of its own.
fn with_id(text: &[u8], id: &str) -> Result<String, Error> {
    let unreadable = || Error::internal("read an answer about an upload", "it is none");
    let text = std::str::from_utf8(text).map_err(|_| unreadable())?;
    let document = fragments::read(text).ok_or_else(unreadable)?;
    let theirs = document
        .children
        .iter()
        .find(|child| child.name == "UploadId");
    let theirs = theirs.ok_or_else(unreadable)?;
    let mut ours = String::new();
    fragments::element(&mut ours, "UploadId", id);
    Ok(text.replacen(theirs.raw, &ours, 1))
}

fn set_text(response: &mut Response, text: String) {
    let headers = &mut response.headers;
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    response.body = Body::from(text);
}

/// These members, the best first, by what the record says that take part.
fn best_first(shared: &Shared, record: &Record) -> Vec<MemberId> {
    let members = record.taking_part(shared).and(shared.members.up());
    shared.members.by_promise(members)
}
