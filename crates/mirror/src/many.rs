//! `DeleteObjects`: each key is a delete of its own, side by side, so that each has its place in
//! the journal.

use std::{fmt::Write as _, sync::Arc};

use forebay_native::{fragments, hot::HotKey};
use forebay_s3::{
    bucket::BucketName,
    code::Code,
    operation::{ObjectId, Operation},
    xml::{self, DeleteEntry},
};
use forebay_store::{Caller, Error, PayloadProof, Query, Request, Response};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::{
    journal::WriteKind,
    mirror::Shared,
    request::check_write_version,
    write::{What, write},
};

/// Keys that are deleted at once; a guess.
const AT_ONCE: usize = 32;
/// Bytes of a member's refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Answers a `DeleteObjects`.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    request: Request,
    bucket: &BucketName,
) -> Result<Response, Error> {
    let Request { body, caller, .. } = request;
    let _room = shared
        .budget
        .reserve(xml::DOCUMENT_BYTES_MAX as u64)
        .await?;
    let (bytes, _) = body.collect(xml::DOCUMENT_BYTES_MAX).await?;
    let entries = xml::delete_keys(&bytes).map_err(|fault| Error::refused(fault.code()))?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let malformed = || Error::refused(Code::MalformedXML);
    let document = fragments::read(text).ok_or_else(malformed)?;
    let quiet = document.text_of("Quiet");
    let is_quiet = quiet.is_some_and(|text| text.trim() == "true");
    let objects = document
        .children
        .iter()
        .filter(|child| child.name == "Object");
    let tags = objects.map(|child| child.text_at(&["ETag"]));
    let deletes: Vec<_> = entries
        .into_iter()
        .zip(tags)
        .map(|(entry, etag)| one(shared, &caller, bucket, (entry, etag)))
        .collect();
    let mut results = stream::iter(deletes).buffered(AT_ONCE);
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult \
        xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    while let Some((key, refusal)) = results.next().await {
        match refusal {
            // Without its bucket none of them is there to be deleted.
            Some((code, _)) if code == Code::NoSuchBucket.as_str() => {
                return Err(forebay_native::refuse::no_such_bucket(bucket));
            }
            None if is_quiet => {}
            refusal => tell(&mut out, &key, refusal.as_ref()),
        }
    }
    out.push_str("</DeleteResult>");
    let kind = HeaderValue::from_static("application/xml");
    Ok(Response::new(StatusCode::OK)
        .with_header(header::CONTENT_TYPE, kind)
        .with_body(out))
}

/// Deletes one key; why not, as code and message.
async fn one(
    shared: &Arc<Shared>,
    caller: &Caller,
    bucket: &BucketName,
    (entry, etag): (DeleteEntry, Option<String>),
) -> (String, Option<(String, String)>) {
    let text = entry.key.as_str().to_owned();
    let object = ObjectId {
        bucket: bucket.clone(),
        key: entry.key,
        version: entry.version,
    };
    let mut headers = HeaderMap::new();
    if let Some(Ok(etag)) = etag.map(HeaderValue::try_from) {
        headers.insert(header::IF_MATCH, etag);
    }
    let deletion = Request {
        operation: Operation::DeleteObject(object.clone()),
        method: Method::DELETE,
        headers,
        query: Query::default(),
        body: forebay_store::Body::empty(),
        payload_proof: PayloadProof::None,
        caller: caller.clone(),
    };
    let what = What {
        key: HotKey::from(&object),
        kind: WriteKind::Delete,
        source: None,
        uploads: None,
    };
    let answer = match check_write_version(&object) {
        Ok(()) => write(shared, deletion, what).await,
        Err(error) => Err(error),
    };
    (text, refusal(answer).await)
}

async fn refusal(answer: Result<Response, Error>) -> Option<(String, String)> {
    match answer {
        Ok(response) if response.status.is_success() => None,
        Ok(response) => {
            let bytes = response.body.collect(REFUSAL_BYTES_MAX).await;
            let error = bytes.ok().and_then(|(bytes, _)| xml::error_in(&bytes));
            Some(error.map_or_else(busy, |error| (error.code, error.message)))
        }
        Err(Error::Refused(refusal)) => Some((
            refusal.code.as_str().to_owned(),
            refusal.message.into_owned(),
        )),
        Err(_) => Some(busy()),
    }
}

fn busy() -> (String, String) {
    let code = Code::ServiceUnavailable;
    (code.as_str().to_owned(), code.message().to_owned())
}

fn tell(out: &mut String, key: &str, refusal: Option<&(String, String)>) {
    let root = if refusal.is_some() {
        "Error"
    } else {
        "Deleted"
    };
    let _ = write!(out, "<{root}>");
    fragments::element(out, "Key", key);
    if let Some((code, message)) = refusal {
        fragments::element(out, "Code", code);
        fragments::element(out, "Message", message);
    }
    let _ = write!(out, "</{root}>");
}
