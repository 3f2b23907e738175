//! The rest of a body that broke off, or stalled, from elsewhere.
//!
//! [`SteadyBody`] is the body of a GET. As long as all is well it passes on what
//! [`AnswerBody`] yields. When that breaks off, ends too early, or is silent for
//! [`crate::HedgeSettings::stall`] while the client waits, the bytes that are missing are asked
//! for with `Range`, and with `If-Match`, so that they are the same version's:
//! - Only of an answer 200 or 206 with a strong `ETag` and a known length, to a request without
//!   `partNumber`. The conditions of the client were judged by the first answer, and are left out.
//! - What comes is taken if it is a 206 with that tag and exactly that range. Anything else but a
//!   failure means that the object is another by now: the body is cut, as it would have been.
//! - [`RESUMES_MAX`] times for one body, each paid for from the budget of retries.
//! - A stalled body is let go only once its rest has come; if it goes on by itself first, all is as
//!   it was. Without another answer it is given up after `timeouts.idle`.
//!
//! The deadline of the request does not count, as it does not for the body itself: each attempt has
//! its own, `timeouts.attempt`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use forebay_s3::{
    etag::{ETag, Strength},
    operation::Operation,
    range::ByteRange,
};
use forebay_store::{Body, Error};
use forebay_telemetry::hedge::ResumeResults;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::{
    attempt::{Prepared, Sender},
    endpoint::EndpointId,
    exchange::AnswerBody,
    failure::BodyTrouble,
    pool::Want,
    retry::{self, Trouble},
    set::EndpointSet,
    settings::Retries,
};

/// Attempts to continue one body. 3: as many as a request has.
const RESUMES_MAX: u32 = 3;

/// What of a request was for the first answer alone.
const REPLACED: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Continues bodies of one store.
#[derive(Debug)]
pub(crate) struct Resumer {
    pub set: Arc<EndpointSet>,
    pub sender: Arc<Sender>,
    pub budget: Arc<retry::Budget>,
    pub retries: Retries,
    /// Silence after which a body is looked for elsewhere; `None`: not before it is given up.
    pub stall: Option<Duration>,
}

/// A body that is continued elsewhere when it breaks off or stalls.
struct SteadyBody {
    resumer: Arc<Resumer>,
    answer: AnswerBody,
    endpoint: Option<EndpointId>,
    request: Request,
    /// Bytes that earlier answers gave.
    before_bytes: u64,
    /// Why the answer is of no use any more.
    lost: Option<BodyTrouble>,
    search: Option<Search>,
    resumes_left: u32,
    /// Bytes that the answer had given when it stalled last.
    stalled_at: Option<u64>,
}

type Search = Pin<Box<dyn Future<Output = Found> + Send>>;

/// What was asked, and what the first answer said it would give.
#[derive(Debug)]
struct Request {
    prepared: Prepared,
    etag: HeaderValue,
    content_range: Option<HeaderValue>,
    length: u64,
}

/// What a continuation must be.
#[derive(Debug)]
struct Wanted {
    etag: ETag,
    range: ByteRange,
    size_bytes: u64,
}

/// What an attempt to continue a body brought.
#[derive(Debug)]
enum Found {
    Rest(Box<AnswerBody>, EndpointId),
    /// The object is another by now.
    Changed,
    /// No answer to be used, of this endpoint.
    Failed(Option<EndpointId>),
}

impl Resumer {
    /// The body of an answer, continued elsewhere if need and right be.
    pub(crate) fn body(
        self: &Arc<Self>,
        prepared: Prepared,
        answer: Response<AnswerBody>,
    ) -> (http::response::Parts, Body) {
        let (head, answer) = answer.into_parts();
        if HttpBody::is_end_stream(&answer) {
            return (head, Body::empty());
        }
        let length = HttpBody::size_hint(&answer).exact();
        let (Some(length), Some(etag)) = (length, head.headers.get(header::ETAG)) else {
            return (head, Body::stream(answer));
        };
        if self.retries.attempts_max < 2 || !may_be_resumed(&prepared, head.status) {
            return (head, Body::stream(answer));
        }
        let body = SteadyBody {
            resumer: Arc::clone(self),
            endpoint: answer.endpoint(),
            answer,
            request: Request {
                prepared,
                etag: etag.clone(),
                content_range: head.headers.get(header::CONTENT_RANGE).cloned(),
                length,
            },
            before_bytes: 0,
            lost: None,
            search: None,
            resumes_left: RESUMES_MAX,
            stalled_at: None,
        };
        (head, Body::stream(body))
    }

    fn results(&self) -> &ResumeResults {
        &self.sender.metrics.hedge.resumes
    }

    /// Makes one attempt, and one more where a pooled connection turns out to be closed.
    async fn attempt(self: Arc<Self>, prepared: Prepared, wanted: Wanted, plan: Plan) -> Found {
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause).await;
        }
        let mut want = Want::Any;
        loop {
            let Ok(picked) = self.set.choose(&plan.avoid).await else {
                return Found::Failed(None);
            };
            let endpoint = picked.id();
            let deadline = Instant::now() + self.sender.timeouts.attempt;
            let attempt = self.sender.attempt(&prepared, picked, want, deadline);
            match attempt.await {
                Ok(answer) => return wanted.found(answer, endpoint),
                Err(failure) => {
                    let is_stale =
                        matches!(failure.trouble, Trouble::StaleUnsent | Trouble::StaleClosed);
                    if !is_stale || want == Want::New {
                        return Found::Failed(Some(endpoint));
                    }
                    want = Want::New;
                }
            }
        }
    }
}

/// How an attempt to continue is made.
#[derive(Debug)]
struct Plan {
    avoid: Vec<EndpointId>,
    pause: Duration,
}

/// Whether the rest of an answer's body can be asked for by its range.
fn may_be_resumed(prepared: &Prepared, status: StatusCode) -> bool {
    let Operation::GetObject(read) = &prepared.operation else {
        return false;
    };
    prepared.method == Method::GET
        && read.part_number.is_none()
        && (status == StatusCode::OK || status == StatusCode::PARTIAL_CONTENT)
}

impl Request {
    /// What is missing of the body after `given` bytes; `None` when it can't be named.
    fn wanted(&self, given: u64) -> Option<Wanted> {
        let etag = ETag::parse(self.etag.to_str().ok()?).ok()?;
        if etag.strength() == Strength::Weak {
            return None;
        }
        let (whole, size_bytes) = match &self.content_range {
            None => (ByteRange::new(0, self.length)?, self.length),
            Some(value) => ByteRange::parse_content_range(value.to_str().ok()?)?,
        };
        let range = ByteRange::new(whole.start() + given, whole.end())?;
        (whole.len() == self.length).then_some(Wanted {
            etag,
            range,
            size_bytes,
        })
    }

    /// The request for what is missing.
    fn prepared(&self, wanted: &Wanted) -> Option<Prepared> {
        let mut headers = self.prepared.headers.clone();
        for name in REPLACED {
            headers.remove(name);
        }
        let range = format!("bytes={}-{}", wanted.range.start(), wanted.range.end() - 1);
        headers.insert(header::RANGE, HeaderValue::from_str(&range).ok()?);
        headers.insert(header::IF_MATCH, self.etag.clone());
        Some(self.prepared.with_headers(headers))
    }
}

impl Wanted {
    /// What an answer is worth.
    fn found(&self, answer: Response<AnswerBody>, endpoint: EndpointId) -> Found {
        match answer.status() {
            StatusCode::PARTIAL_CONTENT if self.is_rest(&answer) => {
                Found::Rest(Box::new(answer.into_body()), endpoint)
            }
            StatusCode::PARTIAL_CONTENT
            | StatusCode::OK
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::RANGE_NOT_SATISFIABLE
            | StatusCode::NOT_FOUND => Found::Changed,
            _ => Found::Failed(Some(endpoint)),
        }
    }

    fn is_rest(&self, answer: &Response<AnswerBody>) -> bool {
        let text = |name| answer.headers().get(name)?.to_str().ok();
        let etag = text(header::ETAG).and_then(|text| ETag::parse(text).ok());
        let range = text(header::CONTENT_RANGE).and_then(ByteRange::parse_content_range);
        etag.is_some_and(|etag| etag.matches_strongly(&self.etag))
            && range == Some((self.range, self.size_bytes))
            && HttpBody::size_hint(answer.body()).exact() == Some(self.range.len())
    }
}

impl SteadyBody {
    fn given_bytes(&self) -> u64 {
        self.before_bytes + self.answer.received_bytes()
    }

    /// How long the answer may be silent before something is done; `None`: until it is given up.
    fn patience(&self) -> Option<Duration> {
        let is_first_look = self.stalled_at != Some(self.answer.received_bytes());
        let may_search = self.search.is_none() && self.resumes_left > 0;
        self.resumer.stall.filter(|_| is_first_look && may_search)
    }

    /// Looks for the rest elsewhere, if that can be asked for and paid.
    fn begin_search(&mut self) {
        if self.search.is_some() || self.resumes_left == 0 {
            return;
        }
        let Some(wanted) = self.request.wanted(self.given_bytes()) else {
            return;
        };
        let Some(prepared) = self.request.prepared(&wanted) else {
            return;
        };
        if !self.resumer.budget.pay() {
            self.resumer.results().budget.inc();
            return;
        }
        // The first attempt is made at once: it goes elsewhere.
        let pause = match RESUMES_MAX - self.resumes_left {
            0 => Duration::ZERO,
            before => retry::pause_max(before, self.resumer.retries.backoff),
        };
        let plan = Plan {
            avoid: self.endpoint.into_iter().collect(),
            pause: pause.mul_f64(fastrand::f64()),
        };
        self.resumes_left -= 1;
        let resumer = Arc::clone(&self.resumer);
        self.search = Some(Box::pin(resumer.attempt(prepared, wanted, plan)));
    }

    /// Acts on what a search brought.
    fn settle(&mut self, found: Found) {
        self.search = None;
        let results = self.resumer.results();
        match found {
            Found::Rest(answer, endpoint) => {
                results.resumed.inc();
                self.before_bytes += self.answer.received_bytes();
                if self.lost.take().is_none() {
                    self.answer.cut();
                }
                self.answer = *answer;
                self.endpoint = Some(endpoint);
                self.stalled_at = None;
            }
            Found::Changed => {
                results.changed.inc();
                self.resumes_left = 0;
            }
            Found::Failed(endpoint) => {
                results.failed.inc();
                self.endpoint = endpoint.or(self.endpoint);
                if self.lost.is_some() {
                    self.begin_search();
                }
            }
        }
    }

    /// The next frame of the answer; pending also when it has to come from elsewhere.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        while self.lost.is_none() {
            let patience = self.patience();
            match ready!(self.answer.poll_next(patience, cx)) {
                Some(Err(BodyTrouble::Silent(_))) if patience.is_some() => {
                    self.stalled_at = Some(self.answer.received_bytes());
                    self.begin_search();
                    // Once more, so that it wakes us when it goes on or is to be given up.
                }
                Some(Err(trouble)) => {
                    self.answer.cut();
                    self.lost = Some(trouble);
                    self.begin_search();
                }
                Some(Ok(frame)) => {
                    // It goes on by itself.
                    self.search = None;
                    return Poll::Ready(Some(Ok(frame)));
                }
                None => return Poll::Ready(None),
            }
        }
        Poll::Pending
    }
}

impl HttpBody for SteadyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if let Poll::Ready(frame) = self.poll_answer(cx) {
                return Poll::Ready(frame);
            }
            let Some(search) = &mut self.search else {
                let lost = self.lost.map(|trouble| Some(Err(trouble.into())));
                return lost.map_or(Poll::Pending, Poll::Ready);
            };
            let found = ready!(search.as_mut().poll(cx));
            self.settle(found);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lost.is_none() && self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.request.length.saturating_sub(self.given_bytes()))
    }
}
