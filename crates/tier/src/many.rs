//! `DeleteObjects`: keys that the hot store knows get tombstones, the rest goes to the cold store
//! in a request of its own, and the answers are joined.
//!
//! The cold store is asked first: when it fails as a whole, nothing was deleted.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use base64::Engine as _;
use forebay_native::{
    Engine as _,
    fragments::{self, Child, Document},
    gate::Gate,
    hot::{HotKey, Want},
};
use forebay_s3::{
    bucket::BucketName,
    etag::ETagList,
    operation::ObjectId,
    xml::{self, DeleteEntry},
};
use forebay_store::{Body, Error, PayloadProof, Request, Response};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
use md5::{Digest as _, Md5};

use crate::{
    ledger::{self, DeleteWay},
    request::{Whole, names_version},
    tier::{Side, Tier},
    view::{Seen, View},
};

/// Keys that are looked at, or deleted, at once; a guess.
const AT_ONCE: usize = 16;
/// Most bytes of the cold store's answer: a thousand keys with their errors.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// One object to delete.
struct Deletion<'a> {
    object: ObjectId,
    gate: Gate,
    raw: &'a str,
}

/// Answers a `DeleteObjects`.
pub(crate) async fn delete(
    tier: &Arc<Tier>,
    request: Request,
    bucket: &BucketName,
) -> Result<Response, Error> {
    let whole = Whole::read(request, xml::DOCUMENT_BYTES_MAX as u64, &tier.budget).await?;
    let entries = xml::delete_keys(whole.bytes()).map_err(|fault| Error::refused(fault.code()))?;
    let text = std::str::from_utf8(whole.bytes()).unwrap_or_default();
    let malformed = || Error::refused(forebay_s3::code::Code::MalformedXML);
    let document = fragments::read(text).ok_or_else(malformed)?;
    let objects = document
        .children
        .iter()
        .filter(|child| child.name == "Object");
    let deletions: Vec<Deletion<'_>> = objects
        .zip(entries)
        .map(|(child, entry)| deletion(bucket, *child, entry))
        .collect::<Result<_, _>>()?;
    let looks: Vec<_> = deletions.iter().map(|of| is_hot(tier, of)).collect();
    let is_hot: Vec<bool> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
    let (hot, cold): (Vec<_>, Vec<_>) = deletions.iter().zip(is_hot).partition(|(_, hot)| *hot);
    if hot.is_empty() {
        let response = tier.cold.store.call(whole.again()).await?;
        return Ok(tier.tell(Side::Cold, response));
    }
    let quiet = document
        .text_of("Quiet")
        .filter(|text| text.trim() == "true");
    let mut answer = if cold.is_empty() {
        Answer::default()
    } else {
        let raws = cold.iter().map(|(deletion, _)| deletion.raw);
        match ask_cold(tier, whole.again(), &document, raws.collect()).await? {
            Ok(answer) => answer,
            Err(refused) => return Ok(refused),
        }
    };
    let store = View::store(tier, Seen::Nothing);
    let deletes: Vec<_> = hot
        .iter()
        .map(|(of, _)| store.engine().delete(&of.object, of.gate.clone()))
        .collect();
    let outcomes: Vec<_> = stream::iter(deletes).buffered(AT_ONCE).collect().await;
    for ((deletion, _), outcome) in hot.into_iter().zip(outcomes) {
        answer.add(
            deletion,
            outcome.as_ref().err(),
            quiet.is_none().then_some(Shown),
        );
    }
    answer.sort(&deletions);
    Ok(tier.tell(Side::Hot, answer.into_response()))
}

fn deletion<'a>(
    bucket: &BucketName,
    child: Child<'a>,
    entry: DeleteEntry,
) -> Result<Deletion<'a>, Error> {
    let if_match = match child.text_at(&["ETag"]) {
        None => None,
        Some(text) => Some(
            ETagList::parse(&text)
                .map_err(|_| Error::refused(forebay_s3::code::Code::MalformedXML))?,
        ),
    };
    Ok(Deletion {
        object: ObjectId {
            bucket: bucket.clone(),
            key: entry.key,
            version: entry.version,
        },
        gate: Gate {
            if_match,
            ..Gate::default()
        },
        raw: child.raw,
    })
}

/// Whether a delete is the hot store's.
async fn is_hot(tier: &Tier, deletion: &Deletion<'_>) -> Result<bool, Error> {
    if names_version(&deletion.object) {
        return Ok(false);
    }
    let held = tier
        .held(&HotKey::from(&deletion.object), Want::Value)
        .await?;
    let record = held.as_ref().map(|held| &held.record);
    Ok(
        match ledger::delete(record, &deletion.gate, &deletion.object.key) {
            Ok(DeleteWay::Cold | DeleteWay::ColdThenBury) => false,
            // A refusal is told with the rest.
            Ok(DeleteWay::Entomb) | Err(_) => true,
        },
    )
}

/// Deletes of which each is told.
#[derive(Clone, Copy)]
struct Shown;

/// The results, by key.
#[derive(Default)]
struct Answer {
    results: Vec<(String, String)>,
}

impl Answer {
    fn add(&mut self, deletion: &Deletion<'_>, error: Option<&Error>, shown: Option<Shown>) {
        let key = deletion.object.key.as_str();
        let mut out = String::new();
        match (error, shown) {
            (None, None) => return,
            (None, Some(Shown)) => {
                out.push_str("<Deleted>");
                fragments::element(&mut out, "Key", key);
                out.push_str("</Deleted>");
            }
            (Some(error), _) => {
                let (code, message) = if let Error::Refused(refusal) = error {
                    (refusal.code.as_str(), refusal.message.as_ref())
                } else {
                    ("ServiceUnavailable", "Please reduce your request rate.")
                };
                out.push_str("<Error>");
                fragments::element(&mut out, "Key", key);
                fragments::element(&mut out, "Code", code);
                fragments::element(&mut out, "Message", message);
                out.push_str("</Error>");
            }
        }
        self.results.push((key.to_owned(), out));
    }

    /// Puts the results in the order in which the keys were asked for.
    fn sort(&mut self, deletions: &[Deletion<'_>]) {
        let places = deletions.iter().enumerate();
        let places: HashMap<&str, usize> = places
            .map(|(at, deletion)| (deletion.object.key.as_str(), at))
            .collect();
        self.results
            .sort_by_key(|(key, _)| places.get(key.as_str()).copied().unwrap_or(usize::MAX));
    }

    fn into_response(self) -> Response {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult \
            xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
        );
        text.extend(self.results.into_iter().map(|(_, result)| result));
        text.push_str("</DeleteResult>");
        let kind = HeaderValue::from_static("application/xml");
        Response::new(StatusCode::OK)
            .with_header(header::CONTENT_TYPE, kind)
            .with_body(text)
    }
}

/// Sends what is not hot to the cold store; its results, or its refusal.
async fn ask_cold(
    tier: &Tier,
    mut request: Request,
    document: &Document<'_>,
    raws: Vec<&str>,
) -> Result<Result<Answer, Response>, Error> {
    let mut text = document.head.to_owned();
    let others = document
        .children
        .iter()
        .filter(|child| child.name != "Object");
    text.extend(others.map(|child| child.raw));
    text.extend(raws);
    let root = document.head.rsplit('<').next().unwrap_or_default();
    let end = root.find(|c: char| c.is_whitespace() || c == '>');
    let _ = write!(text, "</{}>", end.map_or(document.root, |end| &root[..end]));
    request.payload_proof = PayloadProof::None;
    let sums: Vec<_> = request
        .headers
        .keys()
        .filter(|name| {
            name.as_str().starts_with("x-amz-checksum-")
                || name.as_str() == "x-amz-sdk-checksum-algorithm"
        })
        .cloned()
        .collect();
    for name in sums {
        request.headers.remove(name);
    }
    let md5 = base64::engine::general_purpose::STANDARD.encode(Md5::digest(text.as_bytes()));
    if let Ok(md5) = HeaderValue::try_from(md5) {
        request.headers.insert("content-md5", md5);
    }
    request
        .headers
        .insert(header::CONTENT_LENGTH, text.len().into());
    request.body = text.into();
    let mut response = tier.cold.store.call(request).await?;
    if !response.status.is_success() {
        return Ok(Err(response));
    }
    let body = std::mem::replace(&mut response.body, Body::empty());
    let (bytes, _) = body.collect(ANSWER_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&bytes);
    let unreadable = || Error::internal("read the cold store's answer to a delete", "it is none");
    let document = fragments::read(&text).ok_or_else(unreadable)?;
    let results = document.children.iter().map(|child| {
        let key = child.text_at(&["Key"]).unwrap_or_default();
        (key, child.raw.to_owned())
    });
    Ok(Ok(Answer {
        results: results.collect(),
    }))
}
