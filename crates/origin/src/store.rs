//! The store itself: prepares a request, tries it, says what came of it.
//!
//! One request of a client is one request to the origin; a further attempt is made only as
//! [`crate::retry`] allows. The parts that belong to one endpoint are together in [`Endpoint`], so
//! that several of them, chosen and raced, fit beside each other.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_s3::{
    chunked::Framing,
    code::Code,
    operation::Effect,
    sigv4::{PayloadMode, Signer, Target as SignTarget},
    time::AmzDate,
};
use forebay_store::{Body, Clock, Error, Request, Response, Store};
use forebay_telemetry::origin::OriginMetrics;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use tokio::time::Instant;

use crate::{
    address::{Address, Target},
    connect::{ConnectError, Connector},
    credentials::Signatory,
    exchange::{self, AnswerBody, Bounds},
    failure::{Attempt, Failure},
    headers,
    payload::{self, Plan, Way},
    pool::{Pool, Want},
    retry::{self, Repeatable, StaleRepeat, Tries, Trouble, Verdict},
    settings::{
        CredentialsSource, OriginSettings, PayloadSigning, Retries, SettingsError, Timeouts,
    },
    upload::{Outgoing, Upload},
};

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// An S3 endpoint as a store.
#[derive(Debug)]
pub struct OriginStore {
    endpoint: Endpoint,
    signatory: Arc<Signatory>,
    payload_signing: PayloadSigning,
    timeouts: Timeouts,
    retries: Retries,
    budget: retry::Budget,
    clock: Clock,
    metrics: Arc<OriginMetrics>,
}

/// One address and its connections.
#[derive(Debug)]
struct Endpoint {
    address: Address,
    pool: Arc<Pool>,
    way: Way,
}

/// A request ready to be sent.
#[derive(Debug)]
struct Prepared {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    upload: Option<Arc<Upload>>,
    effect: Effect,
    repeatable: Repeatable,
}

impl OriginStore {
    /// Makes the store; opens the CA file and the profile files, but no connection to the origin.
    /// Within a tokio runtime, credentials that expire are asked for in the background.
    ///
    /// # Errors
    /// The first fault of the settings ([`OriginSettings::check`] finds all that need no file).
    pub fn new(
        settings: &OriginSettings,
        clock: Clock,
        metrics: OriginMetrics,
    ) -> Result<Self, SettingsError> {
        if let Some(fault) = settings.check().into_iter().next() {
            return Err(fault);
        }
        let metrics = Arc::new(metrics);
        let address = Address::new(
            &settings.endpoints[0],
            settings.addressing,
            settings.protocol,
        )?;
        let connector = Connector::new(settings, &address, &metrics)?;
        let is_safe = address.is_tls() || address.is_loopback();
        let pool = Pool::new(
            connector,
            settings.protocol,
            settings.pool.clone(),
            Arc::clone(&metrics),
        );
        let endpoint = Endpoint {
            address,
            pool,
            way: if is_safe { Way::Safe } else { Way::Open },
        };
        // Chunks are signed with credentials, or not at all.
        let payload_signing = match settings.credentials {
            CredentialsSource::Anonymous => PayloadSigning::Unsigned,
            CredentialsSource::Static(_) | CredentialsSource::Chain { .. } => {
                settings.payload_signing
            }
        };
        Ok(Self {
            endpoint,
            signatory: Signatory::new(settings, clock.clone(), Arc::clone(&metrics))?,
            payload_signing,
            timeouts: settings.timeouts.clone(),
            retries: settings.retries.clone(),
            budget: retry::Budget::new(),
            clock,
            metrics,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.endpoint.address
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn signatory(&self) -> &Arc<Signatory> {
        &self.signatory
    }

    /// Turns the client's request into the origin's.
    async fn prepare(&self, request: Request) -> Result<Prepared, Error> {
        let Request {
            operation,
            method,
            mut headers,
            query,
            mut body,
            payload_proof,
            ..
        } = request;
        let facts = payload::Facts {
            operation: operation.name(),
            method: &method,
            headers: &headers,
            body_bytes: body.length(),
            proof: payload_proof,
        };
        let plan = payload::plan(&facts, self.payload_signing, self.endpoint.way)?;
        if !plan.has_payload() {
            // Even of no bytes it may turn out that they are not what was signed.
            body = drained(body).await?;
        }
        headers::keep_end_to_end_of_request(&mut headers);
        let target = self.endpoint.address.target(&operation, &query)?;
        plan.put_headers(&mut headers);
        let framing = self.sign(&method, &target, &mut headers, &plan).await?;
        if target.uri.host().is_none() {
            headers.insert(header::HOST, target.host);
        }
        let repeatable = retry::repeatable(&operation, &method, &headers, plan.has_payload());
        let effect = if method.is_safe() {
            Effect::Read
        } else {
            operation.name().effect()
        };
        let upload = plan
            .has_payload()
            .then(|| Upload::new(body, &plan, framing, &self.metrics));
        Ok(Prepared {
            method,
            uri: target.uri,
            headers,
            upload,
            effect,
            repeatable,
        })
    }

    /// Signs, and gives what frames a chunked payload.
    async fn sign(
        &self,
        method: &Method,
        target: &Target,
        headers: &mut HeaderMap,
        plan: &Plan,
    ) -> Result<Option<Framing>, Error> {
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
            method,
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

    /// Tries until an answer can be passed on or the rules say stop.
    async fn attempts(
        &self,
        prepared: Prepared,
        deadline: Instant,
    ) -> Result<http::Response<AnswerBody>, Error> {
        let mut tries = Tries {
            attempts: 0,
            stale_repeat: StaleRepeat::Unused,
        };
        let mut want = Want::Any;
        loop {
            tries.attempts += 1;
            let failure = match self.attempt(&prepared, want, deadline).await {
                Ok(answer) => {
                    self.budget.earn();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let verdict =
                retry::verdict(failure.trouble, prepared.repeatable, tries, &self.retries);
            let pause = match verdict {
                Verdict::Stop => return failure.outcome.into_result(),
                Verdict::AtOnce => {
                    self.metrics.retries.stale.inc();
                    tries.stale_repeat = StaleRepeat::Used;
                    // That attempt tells of the connection, not of the origin.
                    tries.attempts -= 1;
                    want = Want::New;
                    continue;
                }
                Verdict::After(bound) => bound.mul_f64(fastrand::f64()),
            };
            if Instant::now() + pause >= deadline || !self.budget.pay() {
                return failure.outcome.into_result();
            }
            self.count_retry(failure.trouble);
            failure.outcome.discard().await;
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        prepared: &Prepared,
        want: Want,
        deadline: Instant,
    ) -> Result<http::Response<AnswerBody>, Failure> {
        let started = Instant::now();
        let until = match prepared.upload {
            Some(_) => deadline,
            None => deadline.min(started + self.timeouts.attempt),
        };
        let lease = match tokio::time::timeout_at(until, self.endpoint.pool.lease(want)).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => return Err(Failure::of_lease(error)),
            Err(_) => return Err(Failure::of_lease(ConnectError::TimedOut.into())),
        };
        let age = lease.age;
        let bounds = Bounds {
            timeouts: self.timeouts.clone(),
            until,
        };
        let request = prepared.request();
        match exchange::send(lease, request, &bounds, &self.metrics).await {
            Ok(mut answer) => {
                self.observe_first_byte(prepared.effect, started.elapsed());
                answer.body_mut().settle().await;
                if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                    return Err(Failure::of_refusal(answer));
                }
                Ok(answer)
            }
            Err(error) => {
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

    fn observe_first_byte(&self, effect: Effect, elapsed: Duration) {
        let histogram = match effect {
            Effect::Read => &self.metrics.first_byte_read,
            Effect::Write => &self.metrics.first_byte_write,
        };
        histogram.observe(elapsed.as_secs_f64());
    }

    fn count_retry(&self, trouble: Trouble) {
        let retries = &self.metrics.retries;
        match trouble {
            Trouble::StaleUnsent | Trouble::StaleClosed => retries.stale.inc(),
            Trouble::Unreachable | Trouble::Closed | Trouble::Final => retries.unreachable.inc(),
            Trouble::SlowDown(_) => retries.slow_down.inc(),
        };
    }

    fn count(&self, result: &Result<http::Response<AnswerBody>, Error>) {
        let requests = &self.metrics.requests;
        match result {
            Ok(answer) if answer.status().is_client_error() => requests.client_error.inc(),
            Ok(answer) if answer.status().is_server_error() => requests.server_error.inc(),
            Ok(_) => requests.success.inc(),
            Err(Error::SlowDown { .. }) => requests.busy.inc(),
            Err(Error::Indeterminate { .. }) => requests.indeterminate.inc(),
            Err(Error::Unavailable { .. } | Error::Cut { .. }) => requests.unavailable.inc(),
            Err(Error::Refused(_) | Error::ClientGone | Error::Internal { .. }) => {
                requests.refused.inc()
            }
        };
    }
}

#[async_trait]
impl Store for OriginStore {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let left = request
            .caller
            .deadline
            .saturating_duration_since(self.clock.now());
        let deadline = Instant::now() + left;
        let result = match self.prepare(request).await {
            Ok(prepared) => self.attempts(prepared, deadline).await,
            Err(error) => Err(error),
        };
        self.count(&result);
        let (parts, body) = result?.into_parts();
        let mut headers = parts.headers;
        headers::keep_end_to_end_of_response(&mut headers);
        let is_empty = http_body::Body::is_end_stream(&body);
        let body = if is_empty {
            Body::empty()
        } else {
            Body::stream(body)
        };
        Ok(Response {
            status: parts.status,
            headers,
            body,
            cache: None,
        })
    }
}

impl Prepared {
    /// The request for one attempt.
    fn request(&self) -> http::Request<Outgoing> {
        let body = match &self.upload {
            Some(upload) => Outgoing::Upload(Arc::clone(upload)),
            None => Outgoing::Empty,
        };
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
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

/// Reads a body of no bytes to its end, where it may tell that it is not what was signed.
async fn drained(mut body: Body) -> Result<Body, Error> {
    while let Some(frame) = body.frame().await {
        if frame?.data_ref().is_some_and(|data| !data.is_empty()) {
            return Err(Error::refused(Code::IncompleteBody));
        }
    }
    Ok(Body::empty())
}
