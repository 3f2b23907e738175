//! One attempt of a request at one endpoint.
//!
//! What a request is to every endpoint is in [`Prepared`]: method, operation, headers, payload.
//! What it is to one is made here, at the attempt: the target, since hosts and base paths differ,
//! and the signature, which covers the host. A payload's chunk signatures go on from that
//! signature; until its first byte was read it may be signed anew, for another endpoint.

use std::{sync::Arc, time::Duration};

use forebay_s3::{
    chunked::Framing,
    operation::{Effect, Operation},
    sigv4::{PayloadMode, Signer, Target as SignTarget},
    time::AmzDate,
};
use forebay_store::{Clock, Error, Query};
use forebay_telemetry::origin::OriginMetrics;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use crate::{
    address::Target,
    connect::ConnectError,
    credentials::Signatory,
    endpoint::{Endpoint, Picked, Report},
    exchange::{self, AnswerBody, Bounds, SendError},
    failure::{Attempt, Failure},
    health::Probed,
    payload::Plan,
    pool::{Age, LeaseError, Want},
    rate::Throttle,
    retry::Repeatable,
    settings::Timeouts,
    upload::{Outgoing, Upload, Waiting},
};

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// A request as it is to every endpoint.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub operation: Operation,
    pub method: Method,
    pub query: Query,
    /// All but `Host` and those of the signature.
    pub headers: HeaderMap,
    pub plan: Plan,
    pub upload: Option<Arc<Upload>>,
    pub effect: Effect,
    pub repeatable: Repeatable,
}

impl Prepared {
    /// A request without a payload, that changes nothing.
    pub(crate) fn head(operation: Operation, query: Query, headers: HeaderMap) -> Self {
        Self {
            operation,
            method: Method::HEAD,
            query,
            headers,
            plan: Plan::empty(),
            upload: None,
            effect: Effect::Read,
            repeatable: Repeatable::Yes,
        }
    }

    /// Makes it ready for another attempt, although it was sent whole; whether that can be.
    pub(crate) fn rewind(&self) -> bool {
        self.upload.as_deref().is_none_or(Upload::rewind)
    }

    /// The same request without a payload, with these headers.
    pub(crate) fn with_headers(&self, headers: HeaderMap) -> Self {
        Self {
            operation: self.operation.clone(),
            method: self.method.clone(),
            query: self.query.clone(),
            headers,
            plan: self.plan.clone(),
            upload: None,
            effect: self.effect,
            repeatable: self.repeatable,
        }
    }
}

/// What every attempt needs.
#[derive(Debug)]
pub(crate) struct Sender {
    pub signatory: Arc<Signatory>,
    pub timeouts: Timeouts,
    pub probe_timeout: Duration,
    pub clock: Clock,
    pub metrics: Arc<OriginMetrics>,
}

impl Sender {
    /// Sends the request to the endpoint picked, and waits for the head of its answer. Reports to
    /// the endpoint how that went, and gives a 500, 502, 503 or 504 as a failure.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection (HTTP/1.1) or resets the stream (HTTP/2), and
    /// gives up the payload. Nothing is reported then but that the place is free.
    pub(crate) async fn attempt(
        &self,
        prepared: &Prepared,
        mut picked: Picked,
        want: Want,
        deadline: Instant,
    ) -> Result<http::Response<AnswerBody>, Failure> {
        let started = Instant::now();
        let until = match prepared.upload {
            Some(_) => deadline,
            None => deadline.min(started + self.timeouts.attempt),
        };
        let request = self
            .request(prepared, picked.endpoint())
            .await
            .map_err(Failure::of_request)?;
        let leasing = picked.endpoint().pool.lease(want);
        let lease = match tokio::time::timeout_at(until, leasing).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => return Err(failed_lease(&mut picked, error)),
            Err(_) => return Err(failed_lease(&mut picked, ConnectError::TimedOut.into())),
        };
        if prepared.upload.is_none() {
            picked.waits(started);
        }
        let age = lease.age;
        let bounds = Bounds {
            timeouts: self.timeouts.clone(),
            until,
        };
        match exchange::send(lease, request, &bounds, &self.metrics).await {
            Ok(mut answer) => {
                self.observe_first_byte(prepared.effect, started.elapsed());
                picked.report(report_of(answer.status(), prepared, started));
                answer.body_mut().hold(picked);
                answer.body_mut().settle().await;
                match answer.status() {
                    StatusCode::SERVICE_UNAVAILABLE => Err(Failure::of_refusal(answer)),
                    StatusCode::INTERNAL_SERVER_ERROR
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::GATEWAY_TIMEOUT => Err(Failure::of_server_error(answer)),
                    _ => Ok(answer),
                }
            }
            Err(error) => {
                match error {
                    // What it tells is how long the connection was idle, or the client's deadline.
                    SendError::Unsent => picked.forget(),
                    SendError::Closed(_) if age == Age::Reused => picked.forget(),
                    // Dropped unreported, it counts for the time that it took.
                    SendError::Late => {}
                    SendError::Closed(_) | SendError::Malformed(_) | SendError::TimedOut => {
                        picked.report(Report::Unreachable);
                    }
                }
                let attempt = Attempt {
                    effect: prepared.effect,
                    upload: prepared.upload.as_deref(),
                    age,
                    elapsed: started.elapsed(),
                };
                Err(Failure::of_send(&error, &attempt))
            }
        }
    }

    /// Asks an endpoint whether it is there: HEAD of the service, signed, on a new connection.
    pub(crate) async fn probe(&self, endpoint: &Endpoint) -> Probed {
        let status = tokio::time::timeout(self.probe_timeout, self.probe_status(endpoint)).await;
        match status {
            Ok(Some(StatusCode::NOT_IMPLEMENTED)) => Probed::Alive,
            Ok(Some(status)) if status.is_server_error() => Probed::InTrouble,
            Ok(Some(_)) => Probed::Alive,
            Ok(None) | Err(_) => Probed::Dead,
        }
    }

    async fn probe_status(&self, endpoint: &Endpoint) -> Option<StatusCode> {
        let (query, headers) = (Query::default(), HeaderMap::new());
        let prepared = Prepared::head(Operation::ListBuckets, query, headers);
        let request = self.request(&prepared, endpoint).await.ok()?;
        let lease = endpoint.pool.lease(Want::New).await.ok()?;
        let bounds = Bounds {
            timeouts: self.timeouts.clone(),
            until: Instant::now() + self.probe_timeout,
        };
        let sent = exchange::send(lease, request, &bounds, &self.metrics).await;
        let mut answer = sent.ok()?;
        answer.body_mut().settle().await;
        Some(answer.status())
    }

    /// The request to one endpoint, signed for it.
    async fn request(
        &self,
        prepared: &Prepared,
        endpoint: &Endpoint,
    ) -> Result<http::Request<Outgoing>, Error> {
        let target = endpoint
            .address
            .target(&prepared.operation, &prepared.query)?;
        let mut headers = prepared.headers.clone();
        let framing = self.sign(prepared, &target, &mut headers).await?;
        if target.uri.host().is_none() {
            headers.insert(header::HOST, target.host);
        }
        let body = match &prepared.upload {
            Some(upload) => {
                let bucket = endpoint.bucket.as_ref();
                let throttle = bucket.map(|bucket| Throttle::new(Arc::clone(bucket)));
                upload.begin(framing, throttle);
                Outgoing::Upload(Arc::clone(upload))
            }
            None => Outgoing::Empty,
        };
        let mut request = http::Request::new(body);
        *request.method_mut() = prepared.method.clone();
        *request.uri_mut() = target.uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Signs, and gives what frames a chunked payload.
    async fn sign(
        &self,
        prepared: &Prepared,
        target: &Target,
        headers: &mut HeaderMap,
    ) -> Result<Option<Framing>, Error> {
        let plan = &prepared.plan;
        let now = AmzDate::from_unix(self.clock.unix_seconds());
        let Some(signing) = self.signatory.signing(&now).await? else {
            sign_nothing(headers, plan);
            return Ok(unsigned_framing(plan));
        };
        let signer = Signer {
            credentials: &signing.credentials,
            key: &signing.key,
            now,
        };
        let sign_target = SignTarget {
            method: &prepared.method,
            path: target.uri.path(),
            query: target.uri.query(),
            host: target.host_text(),
        };
        let seed = signer
            .sign(&sign_target, headers, plan.mode)
            .map_err(|error| Error::internal("sign a request to the origin", error))?;
        Ok(match plan.mode {
            PayloadMode::StreamingSigned => Some(Framing::Signed(signer.chunk_signer(seed))),
            PayloadMode::StreamingSignedTrailer => {
                Some(Framing::SignedTrailer(signer.chunk_signer(seed)))
            }
            PayloadMode::StreamingUnsignedTrailer
            | PayloadMode::Sha256(_)
            | PayloadMode::Unsigned => unsigned_framing(plan),
        })
    }

    fn observe_first_byte(&self, effect: Effect, elapsed: Duration) {
        let histogram = match effect {
            Effect::Read => &self.metrics.first_byte_read,
            Effect::Write => &self.metrics.first_byte_write,
        };
        histogram.observe(elapsed.as_secs_f64());
    }
}

fn failed_lease(picked: &mut Picked, error: LeaseError) -> Failure {
    match error {
        // The limit is ours; and one connect that failed is one failure, however many shared it.
        LeaseError::Busy | LeaseError::SharedFailure => {}
        LeaseError::Connect(_) => picked.report(Report::Unreachable),
    }
    Failure::of_lease(error)
}

/// What the head of an answer tells of its endpoint.
fn report_of(status: StatusCode, prepared: &Prepared, started: Instant) -> Report {
    if status == StatusCode::SERVICE_UNAVAILABLE {
        return Report::SlowDown;
    }
    // With 501 it says that it does not know this request: it is well.
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        return Report::ServerError;
    }
    // The endpoint's own time: without the client's, to send its payload.
    match prepared.upload.as_deref().map(Upload::waiting) {
        None => Report::FirstByte(started.elapsed()),
        Some(Waiting::Answer(since)) => Report::FirstByte(since.elapsed()),
        Some(Waiting::Client | Waiting::Origin(_)) => Report::Early,
    }
}

/// Without a signature the origin still needs to know how the payload is framed, and may check
/// its hash.
fn sign_nothing(headers: &mut HeaderMap, plan: &Plan) {
    match plan.mode {
        PayloadMode::Unsigned => {}
        PayloadMode::Sha256(_) if !plan.has_payload() => {}
        PayloadMode::Sha256(_)
        | PayloadMode::StreamingUnsignedTrailer
        | PayloadMode::StreamingSigned
        | PayloadMode::StreamingSignedTrailer => {
            let value = HeaderValue::from_str(plan.mode.value().as_str())
                .expect("hex digits and words are visible ASCII");
            headers.insert(CONTENT_SHA256, value);
        }
    }
}

fn unsigned_framing(plan: &Plan) -> Option<Framing> {
    plan.mode.is_chunked().then_some(Framing::UnsignedTrailer)
}
