//! Whether a write of unknown outcome has happened: by reading back what it would have left.
//!
//! Asked when an attempt of a write had no answer although the origin may have had all of it. One
//! HEAD of the object tells:
//!
//! | write | it has happened if | it has not if |
//! |---|---|---|
//! | `PutObject` | `ETag` is its payload's MD5, or its checksum is there | none, or one older |
//! | `CompleteMultipartUpload` | `ETag` is that of the parts that it names | the same |
//! | `CopyObject` | (can't be known) | the same |
//! | `DeleteObject` | there is no object | one older than the attempt |
//!
//! An object is older than the attempt by its `Last-Modified` beside the `Date` of the same answer:
//! both are the origin's own clock. Anything else is unknown: the write, or another client's after
//! it. Nor is a write with a condition read back: another's with the same content would look like
//! it.
//!
//! MD5s cost nothing on the way: `Content-MD5` is there, or a payload of up to [`KEPT_BYTES_MAX`]
//! is kept until its answer, and hashed only when asked for.
//!
//! Pure: takes headers, returns a verdict. Called by [`crate::store`].

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use forebay_s3::{
    checksum::Algorithm,
    operation::{ObjectId, Operation, ReadObject},
    time::parse_http_date,
    uri,
    xml::push_escaped,
};
use forebay_store::Query;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use md5::{Digest as _, Md5};

use crate::{attempt::Prepared, retry};

/// A payload up to this size is kept until it is answered. It came in a few pieces that the
/// connection's buffer held anyway, and 350 uploads at once add 22 MiB at most.
pub(crate) const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// `ETag` and `Last-Modified` have whole seconds, and may be rounded either way.
const ROUNDING: Duration = Duration::from_secs(1);

/// Headers of a write without which its object can't be read.
const PASSED: [&str; 3] = [
    "x-amz-server-side-encryption-customer-",
    "x-amz-expected-bucket-owner",
    "x-amz-request-payer",
];
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// What a write would have left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No object.
    Nothing,
    /// An object that has one of these headers.
    Object(Vec<(HeaderName, String)>),
}

/// What reading back told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadBack {
    Happened,
    NotHappened,
    Unknown,
}

/// Whether a write could be read back, so that its payload is worth keeping.
pub(crate) fn is_readable(operation: &Operation, headers: &HeaderMap) -> bool {
    !retry::is_conditional(headers) && object_of(operation).is_some()
}

/// The object that tells.
pub(crate) fn object_of(operation: &Operation) -> Option<&ObjectId> {
    if let Operation::PutObject(object) | Operation::DeleteObject(object) = operation {
        Some(object)
    } else if let Operation::CompleteMultipartUpload(upload) = operation {
        Some(&upload.object)
    } else if let Operation::CopyObject(copy) = operation {
        Some(&copy.object)
    } else {
        None
    }
}

/// What `prepared` would have left.
pub(crate) fn left(prepared: &Prepared) -> Left {
    let payload = prepared
        .upload
        .as_ref()
        .and_then(|upload| upload.kept_payload());
    let mut signs: Vec<(HeaderName, String)> = Vec::new();
    let mut add_etag = |etag: Option<String>| {
        signs.extend(etag.map(|etag| (header::ETAG, format!("\"{etag}\""))));
    };
    if let Operation::DeleteObject(_) = prepared.operation {
        return Left::Nothing;
    }
    if let Operation::CompleteMultipartUpload(_) = prepared.operation {
        add_etag(payload.as_deref().and_then(multipart_etag));
    }
    if let Operation::PutObject(_) = prepared.operation {
        let told = content_md5(&prepared.headers).map(|md5| hex(&md5));
        add_etag(told.or_else(|| payload.as_deref().map(|pieces| hex(&md5_of(pieces)))));
        for algorithm in Algorithm::ALL {
            let name = HeaderName::from_static(algorithm.header());
            let of_header = prepared.headers.get(&name).cloned();
            let value = of_header.or_else(|| prepared.upload.as_ref()?.trailer(&name));
            if let Some(value) = value.as_ref().and_then(|value| value.to_str().ok()) {
                signs.push((name, value.to_owned()));
            }
        }
    }
    Left::Object(signs)
}

/// The request for the head of the object that tells.
pub(crate) fn head_of(write: &Prepared) -> Option<Prepared> {
    let object = object_of(&write.operation)?.clone();
    let query = match &object.version {
        Some(version) => Query::new(format!("versionId={}", uri::encode_query(version.as_str()))),
        None => Query::default(),
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &write.headers {
        if PASSED
            .iter()
            .any(|prefix| name.as_str().starts_with(prefix))
        {
            headers.append(name, value.clone());
        }
    }
    headers.insert(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"));
    let read = ReadObject {
        object,
        range: None,
        part_number: None,
    };
    Some(Prepared::head(Operation::HeadObject(read), query, headers))
}

/// Judges the answer to a HEAD of the object, `elapsed` after the write was begun.
pub(crate) fn judge(
    left: &Left,
    status: StatusCode,
    headers: &HeaderMap,
    elapsed: Duration,
) -> ReadBack {
    match (left, status) {
        (Left::Nothing, StatusCode::NOT_FOUND) => ReadBack::Happened,
        (Left::Object(_), StatusCode::NOT_FOUND) => ReadBack::NotHappened,
        (_, status) if !status.is_success() => ReadBack::Unknown,
        (left, _) => match (left, is_older(headers, elapsed)) {
            (_, Some(true)) => ReadBack::NotHappened,
            (_, None) | (Left::Nothing, Some(false)) => ReadBack::Unknown,
            (Left::Object(signs), Some(false)) => {
                let has = |(name, value): &(HeaderName, String)| {
                    headers.get(name).is_some_and(|found| found == value)
                };
                if signs.iter().any(has) {
                    ReadBack::Happened
                } else {
                    ReadBack::Unknown
                }
            }
        },
    }
}

/// Whether the object was there before the write was begun; `None` if that can't be told.
fn is_older(headers: &HeaderMap, elapsed: Duration) -> Option<bool> {
    let date = |name| parse_http_date(headers.get(name)?.to_str().ok()?);
    let modified = date(header::LAST_MODIFIED)?;
    let since = i64::try_from((elapsed + ROUNDING).as_secs()).ok()?;
    Some(modified < date(header::DATE)?.checked_sub(since)?)
}

/// The answer that the write would have had: headers of what is there, and a document.
pub(crate) fn answer(operation: &Operation, found: &HeaderMap) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    if let Operation::DeleteObject(_) = operation {
        return (StatusCode::NO_CONTENT, headers, Bytes::new());
    }
    let document = if let Operation::CompleteMultipartUpload(upload) = operation {
        let etag = found.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        completed(&upload.object, etag.unwrap_or_default())
    } else {
        String::new()
    };
    for (name, value) in found {
        let is_told = *name == header::ETAG && document.is_empty()
            || *name == "x-amz-version-id"
            || name.as_str().starts_with("x-amz-server-side-encryption")
            || name.as_str().starts_with("x-amz-checksum-");
        if is_told {
            headers.append(name, value.clone());
        }
    }
    if !document.is_empty() {
        let xml = HeaderValue::from_static("application/xml");
        headers.insert(header::CONTENT_TYPE, xml);
    }
    headers.insert(header::CONTENT_LENGTH, document.len().into());
    (StatusCode::OK, headers, document.into())
}

fn completed(object: &ObjectId, etag: &str) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult \
         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    let location = format!("/{}/{}", object.bucket, object.key);
    for (name, text) in [
        ("Location", location.as_str()),
        ("Bucket", object.bucket.as_str()),
        ("Key", object.key.as_str()),
        ("ETag", etag),
    ] {
        xml.push('<');
        xml.push_str(name);
        xml.push('>');
        push_escaped(&mut xml, text);
        xml.push_str("</");
        xml.push_str(name);
        xml.push('>');
    }
    xml.push_str("</CompleteMultipartUploadResult>");
    xml
}

fn md5_of(pieces: &[Bytes]) -> [u8; 16] {
    let mut md5 = Md5::new();
    for piece in pieces {
        md5.update(piece);
    }
    md5.finalize().into()
}

/// The tag of the object that a document of parts makes; `None` unless each part's tag is an MD5.
fn multipart_etag(document: &[Bytes]) -> Option<String> {
    let document = document.concat();
    let document = std::str::from_utf8(&document).ok()?;
    let mut md5 = Md5::new();
    let mut count = 0;
    for piece in document.split("<ETag>").skip(1) {
        let (tag, _) = piece.split_once("</ETag>")?;
        let tag = tag.replace("&quot;", "").replace("&#34;", "");
        md5.update(bytes_of_hex(tag.trim().trim_matches('"'))?);
        count += 1;
    }
    (count > 0).then(|| format!("{}-{count}", hex(&md5.finalize())))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of_hex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

fn content_md5(headers: &HeaderMap) -> Option<[u8; 16]> {
    STANDARD
        .decode(headers.get(CONTENT_MD5)?)
        .ok()?
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests;
