//! A version record: all that is known of one version of an object, but for pages of its own.
//!
//! [`learn`] makes one of an origin's answer, or refuses; `answer` makes answers of it. A record
//! never changes but for its two moments. The one page of a small object is part of its record,
//! so that answering it is one lookup.
//!
//! Invariant: the size is that of the whole object; it comes from a whole answer's length or from
//! a `Content-Range`, and no request for a part (`partNumber`) gets here.
//! Not here: whether the record may be stored (`index`) or is fresh (`freshness`).

use std::{
    ops::Range,
    sync::atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use forebay_pages::Arena;
use forebay_s3::{
    etag::{ETag, Strength},
    operation::ObjectId,
    range::ByteRange,
    time,
};
use forebay_store::{Error, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use crate::{
    epochs::Stamp,
    freshness::Ages,
    headers,
    plan::Method,
    settings::{CacheSettings, Directives},
};

/// Names the bytes of one version, anywhere and for ever: pages are found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Vid(pub u128);

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Version {
    /// What was asked for; `version` is `None` for "the current one".
    pub object: ObjectId,
    /// Where the write counters stood before the origin was asked.
    pub stamp: Stamp,
    pub vid: Vid,
    pub etag: ETag,
    pub size_bytes: u64,
    /// `Last-Modified`, Unix seconds.
    pub modified: i64,
    /// As they will be sent with the whole object, but for checksums.
    pub headers: HeaderMap,
    /// `x-amz-checksum-*`, sent only to whoever asks.
    pub checksums: Checksums,
    /// The whole object, when it is one page and in memory.
    pub page: Option<Bytes>,
    moments: Moments,
}

/// What is known of an object's checksums.
#[derive(Debug, Clone)]
pub(crate) enum Checksums {
    /// These are all.
    Known(Vec<(HeaderName, HeaderValue)>),
    /// The answer that told of the version was for a range, which carries none.
    Unknown,
}

/// In milliseconds of the layer's clock.
#[derive(Debug)]
struct Moments {
    validated_ms: AtomicI64,
    used_ms: AtomicI64,
}

/// What an answer told.
#[derive(Debug)]
pub(crate) struct Learned {
    pub version: Version,
    /// Bytes of the object that its body has.
    pub covers: Range<u64>,
}

/// Makes a record of the origin's answer to a read of `object`; `None` when the answer is
/// none that may be kept: an error, no strong tag, no date, no length, or the object says
/// `no-store` and the settings honour that.
pub(crate) fn learn(
    method: Method,
    object: &ObjectId,
    stamp: Stamp,
    response: &Response,
    settings: &CacheSettings,
    now_ms: i64,
) -> Option<Learned> {
    let answer = &response.headers;
    let text = |name: HeaderName| answer.get(name).and_then(|value| value.to_str().ok());
    let forbidden = settings.origin_directives == Directives::Honour
        && text(header::CACHE_CONTROL).is_some_and(|v| headers::has_directive(v, "no-store"));
    if forbidden || answer.contains_key(header::SET_COOKIE) {
        return None;
    }
    let (covers, size_bytes, checksums) = match response.status {
        StatusCode::OK => {
            let told = text(header::CONTENT_LENGTH).and_then(|v| v.parse().ok());
            let size_bytes = match method {
                Method::Get => response.body.length().or(told)?,
                Method::Head => told?,
            };
            (
                0..size_bytes,
                size_bytes,
                Checksums::Known(headers::checksums(answer)),
            )
        }
        StatusCode::PARTIAL_CONTENT => {
            let (range, size_bytes) = ByteRange::parse_content_range(text(header::CONTENT_RANGE)?)?;
            (range.start()..range.end(), size_bytes, Checksums::Unknown)
        }
        _ => return None,
    };
    let etag = ETag::parse(text(header::ETAG)?).ok()?;
    if etag.strength() != Strength::Strong {
        return None;
    }
    let modified = time::parse_http_date(text(header::LAST_MODIFIED)?)?;
    let age_s = text(header::AGE)
        .and_then(|v| v.parse::<u32>().ok())
        .unwrap_or(0);
    let version = Version {
        object: object.clone(),
        stamp,
        vid: Vid::of(
            object,
            &etag,
            size_bytes,
            answer.get("x-amz-version-id"),
            settings,
        ),
        etag,
        size_bytes,
        modified,
        headers: headers::kept(answer, size_bytes),
        checksums,
        page: None,
        moments: Moments {
            validated_ms: AtomicI64::new(now_ms - i64::from(age_s) * 1000),
            used_ms: AtomicI64::new(now_ms),
        },
    };
    Some(Learned { version, covers })
}

/// The status of an answer, also of a refusal that is an error still.
pub(crate) fn status(answer: &Result<Response, Error>) -> Option<StatusCode> {
    match answer {
        Ok(response) => Some(response.status),
        Err(Error::Refused(refusal)) => Some(refusal.code.status()),
        Err(_) => None,
    }
}

/// Whether an answer to a request for a stored version tells that it is no longer the current one:
/// another is, or none.
pub(crate) fn is_superseded(
    stored: &Version,
    answer: &Result<Response, Error>,
    found: Option<&Version>,
) -> bool {
    let tells = status(answer).is_some_and(|status| {
        status.is_success()
            || status == StatusCode::NOT_FOUND
            || status == StatusCode::PRECONDITION_FAILED
    });
    tells && found.is_none_or(|found| found.vid != stored.vid)
}

impl Vid {
    /// Two versions have the same id only if their bytes are the same: the tag is strong, and the
    /// hash can't be made to collide.
    fn of(
        object: &ObjectId,
        etag: &ETag,
        size_bytes: u64,
        version_id: Option<&HeaderValue>,
        settings: &CacheSettings,
    ) -> Self {
        let mut hash = Sha256::new();
        let version_id = version_id.map_or(&b""[..], HeaderValue::as_bytes);
        let texts = [object.bucket.as_str(), object.key.as_str(), etag.value()];
        for field in texts.map(str::as_bytes).into_iter().chain([version_id]) {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        hash.update(size_bytes.to_le_bytes());
        hash.update(settings.page_bytes.get().to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        Self(u128::from_le_bytes(std::array::from_fn(|i| digest[i])))
    }
}

impl Version {
    /// The same version with its one page.
    pub(crate) fn with_page(&self, page: Bytes) -> Self {
        debug_assert_eq!(page.len() as u64, self.size_bytes);
        Self {
            object: self.object.clone(),
            stamp: self.stamp,
            vid: self.vid,
            etag: self.etag.clone(),
            size_bytes: self.size_bytes,
            modified: self.modified,
            headers: self.headers.clone(),
            checksums: self.checksums.clone(),
            page: Some(page),
            moments: Moments {
                validated_ms: AtomicI64::new(self.moments.validated_ms.load(Ordering::Relaxed)),
                used_ms: AtomicI64::new(self.moments.used_ms.load(Ordering::Relaxed)),
            },
        }
    }

    /// Its ages at `now_ms`.
    pub(crate) fn ages(&self, now_ms: i64) -> Ages {
        Ages {
            validated_ms: now_ms - self.moments.validated_ms.load(Ordering::Relaxed),
            used_ms: now_ms - self.moments.used_ms.load(Ordering::Relaxed),
        }
    }

    /// The origin vouched for it at `now_ms`.
    pub(crate) fn validated(&self, now_ms: i64) {
        self.moments.validated_ms.store(now_ms, Ordering::Relaxed);
        self.moments.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// It answers at `now_ms`. Uses within a second are noted once, so that cores that read one
    /// object do not fight over its record.
    pub(crate) fn used(&self, now_ms: i64) {
        if now_ms - self.moments.used_ms.load(Ordering::Relaxed) >= 1000 {
            self.moments.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Memory that the record takes, its page included, if it has one; the index not.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let texts = self.object.bucket.as_str().len()
            + self.object.key.as_str().len()
            + self
                .object
                .version
                .as_ref()
                .map_or(0, |id| id.as_str().len())
            + self.etag.value().len();
        let checksums = match &self.checksums {
            Checksums::Known(list) => list.iter().map(|(_, v)| 64 + v.len()).sum(),
            Checksums::Unknown => 0,
        };
        let page = self
            .page
            .as_ref()
            .map_or(0, |page| Arena::footprint_bytes(page.len() as u64));
        let own = size_of::<Self>() + texts + checksums + headers::footprint_bytes(&self.headers);
        own as u64 + page
    }
}
