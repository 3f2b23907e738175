//! Remembers for a moment that an object is missing.
//!
//! What is remembered is an origin's 404 to a read of an object's current version, for GET and HEAD
//! apart: its headers and the document, as the origin wrote it (`NoSuchKey` or `NoSuchBucket`; of a
//! delete marker its headers tell). A store in this process that refuses a read is asked again,
//! which costs no more than to look here.
//!
//! Looked up once the index has no record that may answer. A write of the object or its bucket
//! moves the counters on by which an entry is judged (`epochs`), so it answers no more and what was
//! asked for before the write never will; a client that wants a validation removes it.
//!
//! Invariant: an entry answers for `ttl_ms` from when the origin was asked, and never a request
//! whose condition could be refused instead.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use forebay_s3::{
    code::Code,
    operation::{ObjectId, Operation},
    xml,
};
use forebay_store::{Body, CacheStatus, Error, Request, Response};
use forebay_telemetry::cache::{KeptEvent, KeptMetrics};
use hashbrown::HashMap;
use http::{HeaderMap, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use crate::{
    answer,
    epochs::Stamp,
    headers,
    layer::Layer,
    plan::{Directive, Method, Plan},
    policy::Keep,
    read,
    settings::CacheSettings,
};

/// Most bytes of an error document that is kept; S3's have a few hundred.
const DOCUMENT_BYTES_MAX: usize = 4096;
/// The share of the cache's capacity that missing objects may take, as a divisor, and its bound:
/// some thousand of them. A guess: each is remembered for a second at most.
const SHARE_DIVISOR: u64 = 64;
const SHARE_BYTES_MAX: u64 = 1024 * 1024;
/// Memory of an entry beside text: an estimate, generous.
const ENTRY_BYTES: usize = 512;

/// The missing objects.
#[derive(Debug)]
pub(crate) struct Negatives {
    entries: Mutex<Entries>,
    capacity_bytes: u64,
    metrics: KeptMetrics,
}

#[derive(Debug, Default)]
struct Entries {
    of_get: HashMap<ObjectId, Arc<Missing>>,
    of_head: HashMap<ObjectId, Arc<Missing>>,
    /// In the order in which they were stored, those that were replaced included.
    turns: VecDeque<Arc<Missing>>,
    /// Of all in `turns`.
    used_bytes: u64,
}

/// What is known of a missing object.
#[derive(Debug)]
struct Missing {
    method: Method,
    object: ObjectId,
    stamp: Stamp,
    asked_ms: i64,
    ttl_ms: i64,
    headers: HeaderMap,
    document: Bytes,
}

/// Bytes of a cache's capacity that are for missing objects.
pub(crate) fn share_bytes(settings: &CacheSettings) -> u64 {
    let rules = settings.rules.iter().map(|rule| rule.policy.coherence);
    let mut modes = rules.chain([settings.coherence]);
    if modes.all(|mode| settings.kept.negative_ms(mode) == 0) {
        return 0;
    }
    (settings.capacity_bytes / SHARE_DIVISOR).min(SHARE_BYTES_MAX)
}

/// Answers a read that is no hit: as missing, or by [`read::read`].
pub(crate) async fn read(
    layer: Arc<Layer>,
    plan: Plan,
    request: Request,
) -> Result<Response, Error> {
    let Some(asked) = Asked::of(&layer, &plan, &request) else {
        return read::read(layer, plan, request).await;
    };
    if plan.directive == Directive::None {
        if let Some(response) = layer.negatives.hit(&layer, &asked) {
            return Ok(response);
        }
    } else {
        layer.negatives.forget(&asked);
    }
    let may_keep = plan.directive != Directive::NoStore;
    let response = read::read(Arc::clone(&layer), plan, request).await?;
    if !may_keep || !is_of_a_missing_object(&response) {
        return Ok(response);
    }
    asked.keep(&layer, response).await
}

/// A read whose 404 may be remembered.
struct Asked {
    method: Method,
    object: ObjectId,
    /// Taken before the origin is asked.
    stamp: Stamp,
    at_ms: i64,
    /// For how long it may be remembered.
    ttl_ms: i64,
}

impl Asked {
    fn of(layer: &Layer, plan: &Plan, request: &Request) -> Option<Self> {
        let (method, read) = match &request.operation {
            Operation::GetObject(read) => (Method::Get, read),
            Operation::HeadObject(read) => (Method::Head, read),
            _ => return None,
        };
        let may_refuse = plan.conditions.as_ref().is_some_and(|conditions| {
            conditions.if_match.is_some() || conditions.if_unmodified_since.is_some()
        });
        if may_refuse || read.object.version.is_some() {
            return None;
        }
        let ttl_ms = ttl_ms(layer, &read.object);
        if ttl_ms == 0 || is_unheard(layer, &read.object) {
            return None;
        }
        let noted = layer.asked(&read.object, layer.index.stamp(&read.object));
        // While a write of unknown outcome may still come, each read asks.
        (noted.doubt_until_ms <= noted.at_ms).then(|| Self {
            method,
            object: read.object.clone(),
            stamp: noted.stamp,
            at_ms: noted.at_ms,
            ttl_ms,
        })
    }

    /// Remembers an answer if its document says what it is.
    async fn keep(self, layer: &Layer, mut response: Response) -> Result<Response, Error> {
        let document = match self.method {
            Method::Head => Bytes::new(),
            Method::Get => {
                let body = std::mem::take(&mut response.body);
                match collect(body).await? {
                    Collected::Whole(document) => {
                        response.body = document.clone().into();
                        document
                    }
                    Collected::Longer(body) => {
                        response.body = body;
                        return Ok(response);
                    }
                }
            }
        };
        let says_missing = || {
            let told = xml::error_in(&document).and_then(|error| Code::parse(&error.code));
            matches!(told, Some(Code::NoSuchKey | Code::NoSuchBucket))
        };
        if self.method == Method::Get && !says_missing() {
            return Ok(response);
        }
        let headers = match self.method {
            Method::Get => headers::kept(&response.headers, document.len() as u64),
            Method::Head => headers::kept_of_head(&response.headers),
        };
        layer.negatives.store(Missing {
            method: self.method,
            object: self.object,
            stamp: self.stamp,
            asked_ms: self.at_ms,
            ttl_ms: self.ttl_ms,
            headers,
            document,
        });
        if let Some(status) = &mut response.cache {
            status.stored = true;
        }
        Ok(response)
    }
}

/// For how many milliseconds it may be remembered that an object is missing, whatever it would be
/// if it were there.
fn ttl_ms(layer: &Layer, object: &ObjectId) -> i64 {
    let ttls_ms = layer
        .policies
        .possible(object)
        .map(|policy| match policy.keep {
            Keep::No => 0,
            Keep::Yes | Keep::Pinned => layer.settings.kept.negative_ms(policy.coherence),
        });
    ttls_ms.min().unwrap_or(0)
}

/// Whether other gateways may have put it unheard, where that counts.
fn is_unheard(layer: &Layer, object: &ObjectId) -> bool {
    layer.others.is_unheard() && layer.policies.planned(object).is_exclusive
}

/// Whether the origin itself has said so for this request.
fn is_of_a_missing_object(response: &Response) -> bool {
    let missing = StatusCode::NOT_FOUND;
    let said = response.cache.and_then(|status| status.forward_status);
    response.status == missing
        && said == Some(missing.as_u16())
        && !response.headers.contains_key(header::SET_COOKIE)
        && !response.headers.contains_key(header::CONTENT_ENCODING)
}

impl Negatives {
    pub(crate) fn new(capacity_bytes: u64, metrics: KeptMetrics) -> Self {
        Self {
            entries: Mutex::default(),
            capacity_bytes,
            metrics,
        }
    }

    /// Bytes that the entries take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.entries.lock().used_bytes
    }

    fn hit(&self, layer: &Layer, asked: &Asked) -> Option<Response> {
        let found = self
            .entries
            .lock()
            .of(asked.method)
            .get(&asked.object)
            .cloned();
        let name = name(asked.method);
        let age_ms = |missing: &Missing| (asked.at_ms - missing.asked_ms).max(0);
        let may_answer = |missing: &Arc<Missing>| {
            age_ms(missing) < missing.ttl_ms && layer.index.is_current(&missing.stamp)
        };
        let Some(missing) = found.filter(may_answer) else {
            self.metrics.count(KeptEvent::Miss, name);
            return None;
        };
        self.metrics.count(KeptEvent::Hit, name);
        let mut response = Response::new(StatusCode::NOT_FOUND);
        response.headers = missing.headers.clone();
        answer::set_age(&mut response.headers, Some(age_ms(&missing) / 1000));
        let left_seconds = (missing.ttl_ms - age_ms(&missing)) / 1000;
        response.cache = Some(CacheStatus::hit(left_seconds));
        Some(response.with_body(missing.document.clone()))
    }

    fn forget(&self, asked: &Asked) {
        let mut entries = self.entries.lock();
        for method in [Method::Get, Method::Head] {
            entries.of(method).remove(&asked.object);
        }
    }

    fn store(&self, missing: Missing) {
        let weight = missing.weight();
        if weight > self.capacity_bytes {
            return;
        }
        let (method, now_ms) = (missing.method, missing.asked_ms);
        let missing = Arc::new(missing);
        let mut entries = self.entries.lock();
        entries
            .of(method)
            .insert(missing.object.clone(), Arc::clone(&missing));
        entries.turns.push_back(missing);
        entries.used_bytes += weight;
        while let Some(first) = entries.turns.front() {
            let is_over = now_ms - first.asked_ms >= first.ttl_ms;
            if !is_over && entries.used_bytes <= self.capacity_bytes {
                break;
            }
            if !is_over {
                self.metrics.count(KeptEvent::Evicted, name(first.method));
            }
            entries.drop_first();
        }
        self.metrics.count(KeptEvent::Stored, name(method));
    }
}

fn name(method: Method) -> &'static str {
    match method {
        Method::Get => "GetObject",
        Method::Head => "HeadObject",
    }
}

impl Entries {
    fn of(&mut self, method: Method) -> &mut HashMap<ObjectId, Arc<Missing>> {
        match method {
            Method::Get => &mut self.of_get,
            Method::Head => &mut self.of_head,
        }
    }

    fn drop_first(&mut self) {
        let Some(first) = self.turns.pop_front() else {
            return;
        };
        self.used_bytes -= first.weight();
        let found = self.of(first.method);
        let is_same = |other: &Arc<Missing>| Arc::ptr_eq(other, &first);
        if found.get(&first.object).is_some_and(is_same) {
            found.remove(&first.object);
        }
    }
}

impl Missing {
    fn weight(&self) -> u64 {
        let name = self.object.bucket.as_str().len() + self.object.key.as_str().len();
        let text = 2 * name + headers::footprint_bytes(&self.headers);
        (ENTRY_BYTES + text + self.document.len()) as u64
    }
}

enum Collected {
    Whole(Bytes),
    /// More than is kept: the body as it was.
    Longer(Body),
}

/// Reads a document, in memory of its own.
async fn collect(mut body: Body) -> Result<Collected, Error> {
    let (mut pieces, mut length) = (VecDeque::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else {
            continue;
        };
        length += piece.len();
        pieces.push_back(piece);
        if length > DOCUMENT_BYTES_MAX {
            return Ok(Collected::Longer(Body::stream(Chained {
                pieces: Body::pieces(pieces),
                rest: body,
            })));
        }
    }
    let mut document = BytesMut::with_capacity(length);
    for piece in &pieces {
        document.extend_from_slice(piece);
    }
    Ok(Collected::Whole(document.freeze()))
}

/// What was read already, and then the rest.
struct Chained {
    pieces: Body,
    rest: Body,
}

impl HttpBody for Chained {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match Pin::new(&mut self.pieces).poll_frame(cx) {
            Poll::Ready(None) => Pin::new(&mut self.rest).poll_frame(cx),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_end_stream() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let pieces = self.pieces.length().unwrap_or(0);
        self.rest.length().map_or_else(SizeHint::default, |rest| {
            SizeHint::with_exact(pieces + rest)
        })
    }
}
