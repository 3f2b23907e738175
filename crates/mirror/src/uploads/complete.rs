//! The completion of an upload: a write of its key, asked of each member under its own id.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use forebay_native::{fragments, hot::HotKey};
use forebay_s3::{
    code::Code,
    operation::Upload,
    xml::{self, DOCUMENT_BYTES_MAX},
};
use forebay_store::{Error, Request, Response};
use http::{HeaderValue, StatusCode, header};
use md5::{Digest as _, Md5};

use super::{End, Record, no_such_upload, read_answer, record, too_few};
use crate::{
    journal::{Subject, WriteKind},
    members::MemberId,
    mirror::Shared,
    write::{self, What},
};

/// Completes an upload at all members that take part.
///
/// A client that got no answer asks again: what it asks for may have happened. While the record is
/// there it tells; else members that know the upload no longer are asked for the object, whose tag
/// follows from those of its parts.
///
/// # Errors
/// `NoSuchUpload`; as any write.
pub(crate) async fn complete(
    shared: &Arc<Shared>,
    mut request: Request,
    upload: &Upload,
) -> Result<Response, Error> {
    let record = record::get(shared, upload).await?.record;
    let body = std::mem::take(&mut request.body);
    let (document, _) = body.collect(DOCUMENT_BYTES_MAX).await?;
    let expected = expected_tag(&document);
    match &record.end {
        None => {}
        Some(End::Completed { document, .. }) => {
            return again(shared, upload, (document, expected)).await;
        }
        Some(End::Aborted) => return Err(no_such_upload(upload)),
    }
    request
        .headers
        .insert(header::CONTENT_LENGTH, document.len().into());
    request.body = document.into();
    let what = What {
        key: HotKey::from(&upload.object),
        kind: WriteKind::Put,
        source: None,
        uploads: Some(Arc::new(ids(shared, &record))),
    };
    let answer = read_answer(write::write(shared, request, what).await).await;
    let (response, text) = match answer {
        Ok((response, text)) if response.status.is_success() && xml::error_in(&text).is_none() => {
            let document = String::from_utf8_lossy(&text).into_owned();
            (response.with_body(text), document)
        }
        other => {
            let tag = expected.filter(|_| is_no_such_upload(&other));
            let is_there = match &tag {
                Some(tag) => is_there(shared, upload, tag).await?,
                None => false,
            };
            let (true, Some(tag)) = (is_there, tag) else {
                return other.map(|(response, text)| response.with_body(text));
            };
            let document = document_of(upload, &tag);
            (answered(&document), document)
        }
    };
    let at_ms = shared.now_ms();
    let ended = record::change(shared, upload, |record| {
        record.end = Some(End::Completed {
            at_ms,
            document: text.clone(),
        });
    });
    // The object is there; the record ends with its time if it can't be written now.
    if let Err(error) = ended.await {
        tracing::debug!(%error, "the end of an upload was not written down");
    }
    Ok(response)
}

/// The ids of an upload by the members that take part.
fn ids(shared: &Shared, record: &Record) -> BTreeMap<MemberId, String> {
    let members = record.taking_part(shared);
    let id = |member| Some((member, record.id_at(shared, member)?.to_owned()));
    members.iter().filter_map(id).collect()
}

/// Answers as the first time, if the same is asked for and still there.
async fn again(
    shared: &Shared,
    upload: &Upload,
    (document, expected): (&str, Option<String>),
) -> Result<Response, Error> {
    let tag = tag_in(document).unwrap_or_default();
    let is_same = expected.is_none_or(|expected| expected == tag);
    if is_same && is_there(shared, upload, &tag).await? {
        Ok(answered(document))
    } else {
        Err(no_such_upload(upload))
    }
}

/// The document of a completion that has happened.
fn document_of(upload: &Upload, tag: &str) -> String {
    let Upload { object, .. } = upload;
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult \
         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    for (name, value) in [
        ("Location", &*format!("/{}/{}", object.bucket, object.key)),
        ("Bucket", object.bucket.as_str()),
        ("Key", object.key.as_str()),
        ("ETag", tag),
    ] {
        fragments::element(&mut text, name, value);
    }
    text.push_str("</CompleteMultipartUploadResult>");
    text
}

fn answered(document: &str) -> Response {
    Response::new(StatusCode::OK)
        .with_header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/xml"),
        )
        .with_header(header::CONTENT_LENGTH, document.len().into())
        .with_body(document.to_owned())
}

fn tag_in(text: &str) -> Option<String> {
    fragments::read(text.trim_start())?.text_of("ETag")
}

fn is_no_such_upload(answer: &Result<(Response, Bytes), Error>) -> bool {
    match answer {
        Ok((_, text)) => xml::error_in(text).is_some_and(|error| error.code == "NoSuchUpload"),
        Err(Error::Refused(refusal)) => refusal.code == Code::NoSuchUpload,
        Err(_) => false,
    }
}

/// Whether the key holds an object of this tag.
async fn is_there(shared: &Shared, upload: &Upload, tag: &str) -> Result<bool, Error> {
    let subject = Subject::Object(HotKey::from(&upload.object));
    let held = shared.held(&subject).await?;
    let readable = shared.readable();
    let current = held.map_or(readable, |held| held.entry.current(readable));
    for member in current.iter() {
        let store = &*shared.members.get(member).store;
        if let Ok(found) = shared.copier.look(store, &upload.object).await {
            return Ok(found.is_some_and(|found| found.etag == tag));
        }
    }
    Err(too_few())
}

/// The tag of the object that the parts of a document make: the digest of their digests, and their
/// number. `None` where a tag of a part is no digest.
pub(super) fn expected_tag(document: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(document).ok()?;
    let document = fragments::read(text)?;
    let parts = document
        .children
        .iter()
        .filter(|child| child.name == "Part");
    let mut md5 = Md5::new();
    let mut count = 0;
    for part in parts {
        let tag = part.text_at(&["ETag"])?;
        let digest = hex::decode(tag.trim().trim_matches('"')).ok()?;
        md5.update(<[u8; 16]>::try_from(digest).ok()?);
        count += 1;
    }
    (count > 0).then(|| format!("\"{}-{count}\"", hex::encode(md5.finalize())))
}
