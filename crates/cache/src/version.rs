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
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
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
    freshness::{self, Against, Ages, Freshness, Moment},
    headers,
    plan::Method,
    policy::{self, Place, Policies, Policy},
    purges::Generation,
    settings::Directives,
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
    /// Where the counts of purges stood when it was learned.
    pub generation: Generation,
    /// What is done with it.
    pub policy: Arc<Policy>,
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
    /// Until then a write of unknown outcome may still come (`doubts`).
    doubt_until_ms: i64,
    moments: Moments,
}

/// A question to the origin: what was noted before it was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Where the write counters stood.
    pub stamp: Stamp,
    /// Where the counts of purges stood, or those that the version asked for was made with.
    pub generation: Generation,
    /// When it was sent: an answer vouches for this moment and none after it.
    pub at_ms: i64,
    /// Until when a write of unknown outcome may still come to the object.
    pub doubt_until_ms: i64,
}

/// What is known of an object's checksums.
#[derive(Debug, Clone)]
pub(crate) enum Checksums {
    /// These are all.
    Known(Vec<(HeaderName, HeaderValue)>),
    /// The answer that told of the version was for a range, which carries none.
    Unknown,
}

/// What changes of a record. In milliseconds of the layer's clock.
#[derive(Debug)]
struct Moments {
    validated_ms: AtomicI64,
    used_ms: AtomicI64,
    /// Seconds in which it answered.
    hits: AtomicU32,
    /// The last question to which the origin would not say that it is current.
    refused_ms: AtomicI64,
    /// It is being validated in the background.
    is_revalidated: AtomicBool,
}

/// The moments of a record, as they lie on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "each is a moment in milliseconds"
)]
pub(crate) struct Noted {
    pub validated_ms: i64,
    pub used_ms: i64,
    pub doubt_until_ms: i64,
}

impl Noted {
    /// Those of a record of an earlier run, whose clock nobody knows.
    pub(crate) const NEVER_VALIDATED: Self = Self {
        validated_ms: i64::MIN / 2,
        used_ms: 0,
        doubt_until_ms: i64::MIN,
    };
}

impl Moments {
    fn at(validated_ms: i64, used_ms: i64) -> Self {
        Self {
            validated_ms: validated_ms.into(),
            used_ms: used_ms.into(),
            hits: 0.into(),
            refused_ms: i64::MIN.into(),
            is_revalidated: false.into(),
        }
    }

    fn copied(&self) -> Self {
        let copied = |moment: &AtomicI64| moment.load(Ordering::Relaxed).into();
        Self {
            validated_ms: copied(&self.validated_ms),
            used_ms: copied(&self.used_ms),
            hits: self.hits.load(Ordering::Relaxed).into(),
            refused_ms: copied(&self.refused_ms),
            is_revalidated: false.into(),
        }
    }
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
/// `no-store` and the settings honour that. Whether a rule lets it be kept is in the record.
pub(crate) fn learn(
    method: Method,
    object: &ObjectId,
    asked: Asked,
    response: &Response,
    policies: &Policies,
) -> Option<Learned> {
    let answer = &response.headers;
    let text = |name: HeaderName| answer.get(name).and_then(|value| value.to_str().ok());
    let forbidden = policies.origin_directives == Directives::Honour
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
    let told = policy::Told {
        size_bytes,
        content_type: text(header::CONTENT_TYPE),
    };
    let policy = Arc::clone(policies.of(object, told));
    let version = Version {
        object: object.clone(),
        stamp: asked.stamp,
        vid: Vid::of(
            object,
            &etag,
            size_bytes,
            answer.get("x-amz-version-id"),
            (&policy, asked.generation),
        ),
        generation: asked.generation,
        policy,
        etag,
        size_bytes,
        modified,
        headers: headers::kept(answer, size_bytes),
        checksums,
        page: None,
        doubt_until_ms: asked.doubt_until_ms,
        moments: Moments::at(asked.at_ms - told_age_ms(answer), asked.at_ms),
    };
    Some(Learned { version, covers })
}

/// What the origin says of its answer's age, when it is a cache itself.
pub(crate) fn told_age_ms(answer: &HeaderMap) -> i64 {
    let text = answer
        .get(header::AGE)
        .and_then(|value| value.to_str().ok());
    let age_s = text.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    i64::from(age_s) * 1000
}

/// What an answer to a request for anything but a stored version tells of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is still the current one.
    Unchanged,
    /// Another is, or none.
    Superseded,
    /// The request was refused, with 403 for example: nothing may answer in the place of that.
    Refused,
    /// The origin is in trouble: the errors of RFC 5861 §4, or no answer at all.
    Failed,
    /// Nothing.
    Nothing,
}

/// Reads what an answer tells of the stored version, and notes it in its record. `found` is the
/// version that the answer is of.
pub(crate) fn validate(
    stored: &Version,
    asked: Asked,
    answer: &Result<Response, Error>,
    found: Option<&Version>,
) -> Told {
    let told = if status(answer) == Some(StatusCode::NOT_MODIFIED) {
        Told::Unchanged
    } else if is_superseded(stored, answer, found) {
        Told::Superseded
    } else if is_failure(answer) {
        Told::Failed
    } else if status(answer).is_some_and(|status| status.is_client_error()) {
        Told::Refused
    } else {
        Told::Nothing
    };
    match told {
        Told::Unchanged => {
            let age_ms = answer.as_ref().map_or(0, |told| told_age_ms(&told.headers));
            stored.validated(asked.at_ms - age_ms);
        }
        Told::Superseded | Told::Refused => {
            let refused_ms = &stored.moments.refused_ms;
            refused_ms.fetch_max(asked.at_ms, Ordering::Relaxed);
        }
        Told::Failed | Told::Nothing => {}
    }
    told
}

/// Whether an answer says that the origin is in trouble, not what there is.
pub(crate) fn is_failure(answer: &Result<Response, Error>) -> bool {
    match answer {
        Ok(_) | Err(Error::Refused(_)) => {
            matches!(status(answer).map(|s| s.as_u16()), Some(500 | 502..=504))
        }
        Err(
            Error::SlowDown { .. }
            | Error::Unavailable { .. }
            | Error::Indeterminate { .. }
            | Error::Cut { .. }
            | Error::Internal { .. },
        ) => true,
        Err(Error::ClientGone) => false,
    }
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
        (policy, generation): (&Policy, Generation),
    ) -> Self {
        let mut hash = Sha256::new();
        let version_id = version_id.map_or(&b""[..], HeaderValue::as_bytes);
        let texts = [object.bucket.as_str(), object.key.as_str(), etag.value()];
        for field in texts.map(str::as_bytes).into_iter().chain([version_id]) {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        hash.update(size_bytes.to_le_bytes());
        hash.update(policy.page_bytes.get().to_le_bytes());
        for count in [generation.all, generation.bucket, generation.key] {
            hash.update(count.to_le_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let hash = u128::from_le_bytes(std::array::from_fn(|i| digest[i]));
        Self(match policy.place {
            Place::Memory => hash | 1,
            Place::Everywhere | Place::Disk => hash & !1,
        })
    }

    /// Whether pages of this version may be written to disk: the lowest bit says so, since a page
    /// that leaves memory has no more than its name.
    pub(crate) fn may_lie_on_disk(self) -> bool {
        self.0 & 1 == 0
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
            generation: self.generation,
            policy: Arc::clone(&self.policy),
            etag: self.etag.clone(),
            size_bytes: self.size_bytes,
            modified: self.modified,
            headers: self.headers.clone(),
            checksums: self.checksums.clone(),
            page: Some(page),
            doubt_until_ms: self.doubt_until_ms,
            moments: self.moments.copied(),
        }
    }

    /// Whether it may answer.
    pub(crate) fn freshness(&self, moment: Moment) -> Freshness {
        freshness::judge(self.policy.coherence, self.ages(moment))
    }

    /// What a record on disk says of its moments.
    pub(crate) fn noted(&self) -> Noted {
        let at = |moment: &AtomicI64| moment.load(Ordering::Relaxed);
        Noted {
            validated_ms: at(&self.moments.validated_ms),
            used_ms: at(&self.moments.used_ms),
            doubt_until_ms: self.doubt_until_ms,
        }
    }

    /// Takes the moments of a record on disk.
    pub(crate) fn note(&mut self, noted: Noted) {
        self.moments = Moments::at(noted.validated_ms, noted.used_ms);
        self.doubt_until_ms = noted.doubt_until_ms;
    }

    /// What it is judged by.
    pub(crate) fn ages(&self, moment: Moment) -> Ages {
        let now_ms = moment.now_ms;
        let validated_ms = self.moments.validated_ms.load(Ordering::Relaxed);
        let against = if validated_ms == Noted::NEVER_VALIDATED.validated_ms {
            Against::Restored
        } else if self.moments.refused_ms.load(Ordering::Relaxed) >= validated_ms {
            Against::Refused
        } else if validated_ms < self.doubt_until_ms {
            Against::Doubt
        } else if validated_ms < moment.heard_since_ms {
            Against::Unheard
        } else {
            Against::Nothing
        };
        Ages {
            validated_ms: now_ms.saturating_sub(validated_ms),
            used_ms: now_ms - self.moments.used_ms.load(Ordering::Relaxed),
            against,
        }
    }

    /// The origin vouched for it as of `at_ms`. Of two answers that come in the wrong order the
    /// later question counts.
    fn validated(&self, at_ms: i64) {
        self.moments
            .validated_ms
            .fetch_max(at_ms, Ordering::Relaxed);
        self.moments.used_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Notes that it is being validated in the background; `false` when it is already.
    pub(crate) fn begin_revalidation(&self) -> bool {
        !self.moments.is_revalidated.swap(true, Ordering::AcqRel)
    }

    /// It is no longer.
    pub(crate) fn end_revalidation(&self) {
        self.moments.is_revalidated.store(false, Ordering::Release);
    }

    /// It answers at `now_ms`. Uses within a second are noted once, so that cores that read one
    /// object do not fight over its record.
    pub(crate) fn used(&self, now_ms: i64) {
        if now_ms - self.moments.used_ms.load(Ordering::Relaxed) >= 1000 {
            self.moments.used_ms.store(now_ms, Ordering::Relaxed);
            self.moments.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it has answered; uses within a second count once.
    pub(crate) fn hits(&self) -> u32 {
        self.moments.hits.load(Ordering::Relaxed)
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
