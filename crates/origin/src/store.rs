//! The store itself: prepares a request, tries it, says what came of it.
//!
//! One request of a client is one request to the origin; a further attempt is made only as
//! [`crate::retry`] allows, at an endpoint that [`crate::set`] chooses. What one attempt is stands
//! in [`crate::attempt`]; here is the one place that decides on another.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_s3::{code::Code, operation::Effect};
use forebay_store::{Body, Clock, Error, Request, Response, Store};
use forebay_telemetry::origin::OriginMetrics;
use http::StatusCode;
use tokio::time::Instant;

use crate::{
    address::Address,
    attempt::{Prepared, Sender},
    credentials::Signatory,
    dial::MachineNetwork,
    endpoint::EndpointId,
    exchange::AnswerBody,
    failure::Failure,
    headers,
    hedge::{Course, Hedging, Read},
    operator::OriginOperator,
    payload,
    pool::Want,
    read_back::{self, KEPT_BYTES_MAX, ReadBack},
    resolve::{Resolve, SystemResolver},
    resume::Resumer,
    retry::{self, Elsewhere, Price, Repeatable, StaleRepeat, Tries, Trouble, Verdict},
    set::{EndpointSet, Network},
    settings::{CredentialsSource, OriginSettings, PayloadSigning, Retries, SettingsError},
    upload::{Keep, Upload},
};

/// Longest wait for what reading back tells: the client has waited for the write already.
const READ_BACK_WAIT: Duration = Duration::from_secs(5);

/// An S3 service as a store.
#[derive(Debug)]
pub struct OriginStore {
    set: Arc<EndpointSet>,
    sender: Arc<Sender>,
    payload_signing: PayloadSigning,
    retries: Retries,
    budget: Arc<retry::Budget>,
    hedging: Option<Hedging>,
    resumer: Arc<Resumer>,
}

impl OriginStore {
    /// Makes the store; opens the CA file and the profile files, but no connection to the origin.
    /// Within a tokio runtime, credentials that expire are asked for in the background, and names
    /// are looked up; else with the first request. What runs in the background ends with the store.
    ///
    /// # Errors
    /// The first fault of the settings ([`OriginSettings::check`] finds all that need no file).
    pub fn new(
        settings: &OriginSettings,
        clock: Clock,
        metrics: OriginMetrics,
    ) -> Result<Self, SettingsError> {
        Self::with_resolver(settings, Arc::new(SystemResolver), clock, metrics)
    }

    /// The same, with names resolved by `resolver`.
    ///
    /// # Errors
    /// As [`OriginStore::new`].
    pub fn with_resolver(
        settings: &OriginSettings,
        resolver: Arc<dyn Resolve>,
        clock: Clock,
        metrics: OriginMetrics,
    ) -> Result<Self, SettingsError> {
        let dial = Arc::new(MachineNetwork);
        Self::with_network(settings, Network { resolver, dial }, clock, metrics)
    }

    pub(crate) fn with_network(
        settings: &OriginSettings,
        network: Network,
        clock: Clock,
        metrics: OriginMetrics,
    ) -> Result<Self, SettingsError> {
        if let Some(fault) = settings.check().into_iter().next() {
            return Err(fault);
        }
        let metrics = Arc::new(metrics);
        // Chunks are signed with credentials, or not at all.
        let payload_signing = match settings.credentials {
            CredentialsSource::Anonymous => PayloadSigning::Unsigned,
            CredentialsSource::Static(_) | CredentialsSource::Chain { .. } => {
                settings.payload_signing
            }
        };
        let hedging = settings.hedge.as_ref();
        let hedging = hedging.map(|hedge| Hedging::new(hedge, &metrics.hedge));
        let set = EndpointSet::new(settings, network, &metrics)?;
        let sender = Arc::new(Sender {
            signatory: Signatory::new(settings, clock.clone(), Arc::clone(&metrics))?,
            timeouts: settings.timeouts.clone(),
            probe_timeout: settings.health.probe_timeout,
            clock,
            metrics,
        });
        set.start(&sender);
        let budget = Arc::new(retry::Budget::new(sender.metrics.retry_budget.clone()));
        let resumer = Arc::new(Resumer {
            set: Arc::clone(&set),
            sender: Arc::clone(&sender),
            budget: Arc::clone(&budget),
            retries: settings.retries.clone(),
            stall: settings.hedge.as_ref().map(|hedge| hedge.stall),
        });
        Ok(Self {
            set,
            sender,
            payload_signing,
            retries: settings.retries.clone(),
            budget,
            hedging,
            resumer,
        })
    }

    /// A handle on its endpoints, for the admin interface.
    pub fn operator(&self) -> OriginOperator {
        OriginOperator::new(Arc::clone(&self.set))
    }

    pub(crate) fn address(&self) -> &Address {
        self.set.address()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.sender.clock
    }

    pub(crate) fn signatory(&self) -> &Arc<Signatory> {
        &self.sender.signatory
    }

    fn metrics(&self) -> &OriginMetrics {
        &self.sender.metrics
    }

    /// Turns the client's request into the origin's, as it is to every endpoint.
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
        let plan = payload::plan(&facts, self.payload_signing, self.set.way())?;
        if !plan.has_payload() {
            // Even of no bytes it may turn out that they are not what was signed.
            body = drained(body).await?;
        }
        headers::keep_end_to_end_of_request(&mut headers);
        plan.put_headers(&mut headers);
        let repeatable = retry::repeatable(&operation, &method, &headers, plan.has_payload());
        let effect = if method.is_safe() {
            Effect::Read
        } else {
            operation.name().effect()
        };
        let keep = if plan.payload_bytes <= KEPT_BYTES_MAX
            && read_back::is_readable(&operation, &headers)
        {
            Keep::Whole
        } else {
            Keep::Nothing
        };
        let upload = plan
            .has_payload()
            .then(|| Upload::new(body, &plan, keep, &self.sender.metrics));
        Ok(Prepared {
            operation,
            method,
            query,
            headers,
            plan,
            upload,
            effect,
            repeatable,
        })
    }

    /// Tries until an answer can be passed on or the rules say stop.
    async fn attempts(
        &self,
        prepared: &Prepared,
        deadline: Instant,
    ) -> Result<http::Response<AnswerBody>, Error> {
        let course = Course {
            set: &self.set,
            sender: &self.sender,
            prepared,
            deadline,
        };
        let hedging = self.hedging.as_ref();
        let mut read = hedging.and_then(|hedging| hedging.begin(prepared));
        let mut tries = Tries {
            attempts: 0,
            stale_repeat: StaleRepeat::Unused,
        };
        let mut want = Want::Any;
        // Without a failure nothing is avoided, and nothing allocated.
        let mut avoid = Vec::new();
        let mut picked = self.set.choose(&avoid).await?;
        let started = Instant::now();
        loop {
            tries.attempts += 1;
            let endpoint = picked.id();
            let attempted = match &mut read {
                None => course.attempt(picked, want).await,
                Some(read) => read.race(course, picked, want).await,
            };
            let failure = match attempted {
                Ok(answer) => {
                    self.budget.earn();
                    if let Some(read) = &read {
                        read.answered();
                    }
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            avoid.push(endpoint);
            avoid.extend(read.as_mut().and_then(Read::take_hedged_at));
            let elsewhere = if self.set.has_other(&avoid) {
                Elsewhere::Some
            } else {
                Elsewhere::None
            };
            let so_far = (tries, elsewhere);
            let verdict = if failure.is_indeterminate() {
                let times = (started, deadline);
                match self
                    .read_back(prepared, &failure, (so_far, &avoid), times)
                    .await
                {
                    Ok(answer) => return Ok(answer),
                    Err(verdict) => verdict,
                }
            } else {
                let repeatable = match failure.trouble {
                    // A payload that broke off before its end had no effect.
                    Trouble::StaleClosed | Trouble::Closed if prepared.rewind() => Repeatable::Yes,
                    Trouble::StaleClosed
                    | Trouble::Closed
                    | Trouble::StaleUnsent
                    | Trouble::Unreachable
                    | Trouble::Unanswered
                    | Trouble::SlowDown(_)
                    | Trouble::ServerError
                    | Trouble::Silent
                    | Trouble::Final => prepared.repeatable,
                };
                retry::verdict(failure.trouble, repeatable, so_far, &self.retries)
            };
            let (pause, price) = match verdict {
                Verdict::Stop => return failure.outcome.into_result(),
                Verdict::AtOnce => {
                    tries.stale_repeat = StaleRepeat::Used;
                    // That attempt tells of the connection, not of the origin.
                    tries.attempts -= 1;
                    want = Want::New;
                    (Duration::ZERO, Price::Free)
                }
                Verdict::Elsewhere(price) => (Duration::ZERO, price),
                Verdict::After { at_least, jitter } => {
                    (at_least + jitter.mul_f64(fastrand::f64()), Price::Paid)
                }
            };
            let is_affordable = match price {
                Price::Free => true,
                Price::Paid => self.budget.pay(),
            };
            if Instant::now() + pause >= deadline || !is_affordable {
                return failure.outcome.into_result();
            }
            self.count_retry(failure.trouble);
            failure.outcome.discard().await;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            picked = self.set.choose(&avoid).await?;
        }
    }

    /// Asks whether a write of unknown outcome has happened: gives its answer, or what to do.
    async fn read_back(
        &self,
        prepared: &Prepared,
        failure: &Failure,
        (so_far, avoid): ((Tries, Elsewhere), &[EndpointId]),
        (started, deadline): (Instant, Instant),
    ) -> Result<http::Response<AnswerBody>, Verdict> {
        let trouble = failure.trouble;
        if !read_back::is_readable(&prepared.operation, &prepared.headers) {
            let repeatable = prepared.repeatable;
            return Err(retry::verdict(trouble, repeatable, so_far, &self.retries));
        }
        let counts = &self.metrics().read_backs;
        let Some(found) = self.head(prepared, avoid, deadline).await else {
            counts.unknown.inc();
            return Err(Verdict::Stop);
        };
        let left = read_back::left(prepared);
        let (status, headers) = (found.status(), found.headers());
        match read_back::judge(&left, status, headers, started.elapsed()) {
            ReadBack::Happened => {
                counts.happened.inc();
                let (status, headers, document) = read_back::answer(&prepared.operation, headers);
                let metrics = Arc::clone(&self.sender.metrics);
                let mut answer = http::Response::new(AnswerBody::made(document, metrics));
                *answer.status_mut() = status;
                *answer.headers_mut() = headers;
                Ok(answer)
            }
            // What the origin is silent about it may still be at work on.
            ReadBack::NotHappened if trouble != Trouble::Silent && prepared.rewind() => {
                counts.repeated.inc();
                let verdict = retry::verdict(trouble, Repeatable::Yes, so_far, &self.retries);
                Err(verdict)
            }
            ReadBack::NotHappened | ReadBack::Unknown => {
                counts.unknown.inc();
                Err(Verdict::Stop)
            }
        }
    }

    /// The head of the object that a write is about, by one attempt that the budget pays for.
    async fn head(
        &self,
        write: &Prepared,
        avoid: &[EndpointId],
        deadline: Instant,
    ) -> Option<http::Response<AnswerBody>> {
        let head = read_back::head_of(write)?;
        if Instant::now() >= deadline || !self.budget.pay() {
            return None;
        }
        let picked = self.set.choose(avoid).await.ok()?;
        let deadline = deadline.min(Instant::now() + READ_BACK_WAIT);
        let attempt = self.sender.attempt(&head, picked, Want::New, deadline);
        attempt.await.ok()
    }

    fn count_retry(&self, trouble: Trouble) {
        let retries = &self.metrics().retries;
        match trouble {
            Trouble::StaleUnsent | Trouble::StaleClosed => retries.stale.inc(),
            Trouble::Unreachable
            | Trouble::Unanswered
            | Trouble::Closed
            | Trouble::Silent
            | Trouble::Final => retries.unreachable.inc(),
            Trouble::SlowDown(_) => retries.slow_down.inc(),
            Trouble::ServerError => retries.server_error.inc(),
        };
    }

    fn count(&self, result: Result<StatusCode, &Error>) {
        let requests = &self.metrics().requests;
        match result {
            Ok(status) if status.is_client_error() => requests.client_error.inc(),
            Ok(status) if status.is_server_error() => requests.server_error.inc(),
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
            .saturating_duration_since(self.sender.clock.now());
        let deadline = Instant::now() + left;
        let prepared = self
            .prepare(request)
            .await
            .inspect_err(|error| self.count(Err(error)))?;
        let result = self.attempts(&prepared, deadline).await;
        self.count(result.as_ref().map(http::Response::status));
        let (parts, body) = self.resumer.body(prepared, result?);
        let mut headers = parts.headers;
        headers::keep_end_to_end_of_response(&mut headers);
        Ok(Response {
            status: parts.status,
            headers,
            body,
            cache: None,
        })
    }
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
