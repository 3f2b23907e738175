//! One request and its answer from beginning to end: counted, timed, logged.
//!
//! An [`Exchange`] begins with the head of a request and ends when it is dropped, which is when
//! the answer's last byte was handed to the connection, or when the client or the store broke
//! off. Counting is an add at a place found when the thread started; the access log costs nothing
//! unless it is on.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_s3::{
    code::Code,
    operation::{Operation, OperationName},
};
use forebay_store::{Body, CacheStatus, Caller, Error, Forward, Identity, RequestId};
use forebay_telemetry::gateway::{GatewayMetrics, Outcome};
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::late_answer::{self, LateAnswer, Next};
use crate::{access_log::Draft, server::Connection, settings::PUT_BYTES_MAX};

/// A request under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Arc<Connection>,
    id: RequestId,
    started: Instant,
    method: Method,
    uri: Uri,
    operation: OperationName,
    ending: Ending,
    cache: Option<CacheStatus>,
    /// What the store is working on although the answer's head has left.
    late: Option<Box<LateAnswer>>,
    /// Only when there is an access log.
    draft: Option<Box<Draft>>,
}

/// How far an exchange came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// No answer yet.
    Unanswered,
    /// An answer of this status is leaving.
    Leaving(StatusCode),
    /// It has left.
    Left(StatusCode),
}

impl Exchange {
    /// Begins with a head that has just been read.
    pub(super) fn begin(connection: Arc<Connection>, incoming: &http::Request<Incoming>) -> Self {
        let worker = &connection.worker;
        connection.pulse.request_begins();
        worker.shard.requests_begun.fetch_add(1, Relaxed);
        let id = worker.next_request_id();
        let started = worker.shared.clock.now();
        let draft = worker.shared.access_log.is_some().then(|| {
            let wall = worker.shared.clock.wall();
            Box::new(Draft::new(&connection, id, wall, incoming))
        });
        Self {
            id,
            started,
            method: incoming.method().clone(),
            uri: incoming.uri().clone(),
            operation: OperationName::UnknownRead,
            ending: Ending::Unanswered,
            cache: None,
            late: None,
            draft,
            connection,
        }
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    pub(super) fn operation(&self) -> OperationName {
        self.operation
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Who asks, and until when: a body adds the time that it takes at the slowest pace.
    pub(super) fn caller(&self, identity: Identity, body_bytes: Option<u64>) -> Caller {
        let limits = &self.connection.worker.shared.settings.limits;
        let body_bytes = body_bytes.unwrap_or(PUT_BYTES_MAX);
        let body_time = Duration::from_secs(body_bytes / limits.rate_bytes_min.max(1));
        Caller {
            identity,
            request_id: self.id,
            remote: self.connection.remote,
            deadline: self.started + limits.request_timeout + body_time,
        }
    }

    pub(super) fn is_about(&mut self, operation: &Operation) {
        self.operation = operation.name();
        if let Some(draft) = &mut self.draft {
            draft.is_about(operation);
        }
    }

    pub(super) fn is_from(&mut self, identity: &Identity) {
        if let Some(draft) = &mut self.draft {
            draft.is_from(identity);
        }
    }

    pub(super) fn is_refused(&mut self, code: Code) {
        if let Some(draft) = &mut self.draft {
            draft.is_refused(code);
        }
    }

    pub(super) fn is_answered(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        cache: Option<CacheStatus>,
    ) {
        self.ending = Ending::Leaving(status);
        self.cache = cache;
        if let Some(draft) = &mut self.draft {
            let turn_around = self.connection.worker.shared.clock.now() - self.started;
            draft.is_answered(turn_around, headers, cache);
        }
    }

    /// Leaves the rest of an answer to its body.
    pub(super) fn answers_late(&mut self, answer: LateAnswer) {
        self.late = Some(Box::new(answer));
    }

    /// Tells what a late answer was in the end, whatever its head said.
    pub(super) fn turns_out(&mut self, status: StatusCode, cache: Option<CacheStatus>) {
        self.ending = Ending::Leaving(status);
        self.cache = cache;
        if let Some(draft) = &mut self.draft {
            draft.turns_out(cache);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let worker = &self.connection.worker;
        let elapsed = worker
            .shared
            .clock
            .now()
            .saturating_duration_since(self.started);
        let outcome = match self.ending {
            Ending::Left(status) => Outcome::Finished(status.as_u16()),
            Ending::Unanswered | Ending::Leaving(_) => Outcome::Cut,
        };
        worker
            .shard
            .request_ended(self.operation as usize, outcome, elapsed);
        if let Some(cache) = self.cache {
            worker.shard.cache_outcome(outcome_index(cache.forward));
        }
        self.connection.pulse.request_ends();
        if let (Some(draft), Some(log)) = (self.draft.take(), &worker.shared.access_log) {
            let status = match self.ending {
                Ending::Left(status) | Ending::Leaving(status) => Some(status),
                Ending::Unanswered => None,
            };
            if log.write(draft.finish(status, elapsed)).is_err() {
                worker.shard.access_log_dropped.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The body of an answer on its way out; the exchange ends with it.
#[derive(Debug)]
pub(crate) struct Sending {
    body: Body,
    exchange: Exchange,
    /// Bytes that must leave, when known.
    expected_bytes: Option<u64>,
    sent_bytes: u64,
    is_ended: bool,
    /// Whether the client has not yet asked for what comes next.
    is_offered: bool,
}

impl Sending {
    pub(super) fn new(body: Body, exchange: Exchange) -> Self {
        let is_ended = match exchange.ending {
            Ending::Leaving(status) => {
                exchange.method == Method::HEAD
                    || status == StatusCode::NOT_MODIFIED
                    || status == StatusCode::NO_CONTENT
            }
            Ending::Unanswered | Ending::Left(_) => false,
        };
        let expected_bytes = body.length().filter(|_| exchange.late.is_none());
        Self {
            body,
            exchange,
            expected_bytes,
            sent_bytes: 0,
            is_ended,
            is_offered: false,
        }
    }

    /// What comes of a late answer before its document; `None` once that is the body.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Option<Poll<Bytes>> {
        match self.exchange.late.as_mut()?.poll(cx) {
            Poll::Pending => Some(Poll::Pending),
            Poll::Ready(Next::Wait(bytes)) => Some(Poll::Ready(bytes)),
            Poll::Ready(Next::Outcome(result)) => {
                self.exchange.late = None;
                self.body = late_answer::conclude(&mut self.exchange, result);
                None
            }
        }
    }

    fn offer(&mut self) {
        if !self.is_offered {
            self.is_offered = true;
            self.exchange.connection.pulse.body_offers();
        }
    }

    fn is_taken(&mut self) {
        if self.is_offered {
            self.is_offered = false;
            self.exchange.connection.pulse.body_is_taken();
        }
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        this.is_taken();
        let frame = match this.poll_late(cx) {
            Some(late) => late.map(|bytes| Some(Ok(Frame::data(bytes)))),
            None => Pin::new(&mut this.body).poll_frame(cx),
        };
        match &frame {
            Poll::Pending => {}
            Poll::Ready(None) => this.is_ended = true,
            Poll::Ready(Some(Ok(frame))) => {
                this.sent_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if !this.is_end_stream() {
                    this.offer();
                }
            }
            Poll::Ready(Some(Err(error))) => {
                let request_id = this.exchange.id;
                tracing::warn!(%request_id, %error, "answer cut short");
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.late.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.exchange.late {
            None => self.body.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.is_taken();
        let worker = &self.exchange.connection.worker;
        worker
            .shard
            .response_body_bytes
            .fetch_add(self.sent_bytes, Relaxed);
        let is_whole =
            self.is_ended || self.is_end_stream() || self.expected_bytes == Some(self.sent_bytes);
        // The call ends before the request is counted as ended.
        if self.exchange.late.take().is_some() {
            // The head said 200, but nothing is known.
            self.exchange.ending = Ending::Unanswered;
        }
        if let Ending::Leaving(status) = self.exchange.ending
            && is_whole
        {
            self.exchange.ending = Ending::Left(status);
        }
        if let Some(draft) = &mut self.exchange.draft {
            draft.has_sent(self.sent_bytes);
        }
    }
}

/// What caches may do with a request, in the order of [`outcome_index`].
const OUTCOMES: [Option<Forward>; 9] = [
    None,
    Some(Forward::Bypass),
    Some(Forward::Method),
    Some(Forward::UriMiss),
    Some(Forward::VaryMiss),
    Some(Forward::Miss),
    Some(Forward::Request),
    Some(Forward::Stale),
    Some(Forward::Partial),
];

fn outcome_index(forward: Option<Forward>) -> usize {
    match forward {
        None => 0,
        Some(Forward::Bypass) => 1,
        Some(Forward::Method) => 2,
        Some(Forward::UriMiss) => 3,
        Some(Forward::VaryMiss) => 4,
        Some(Forward::Miss) => 5,
        Some(Forward::Request) => 6,
        Some(Forward::Stale) => 7,
        Some(Forward::Partial) => 8,
    }
}

/// The counters of a gateway with so many threads.
pub(crate) fn metrics(thread_count: usize) -> GatewayMetrics {
    let operations = OperationName::ALL.iter().map(|name| name.as_str());
    let outcomes = OUTCOMES.map(|outcome| outcome.map_or("hit", Forward::as_str));
    GatewayMetrics::new(operations, outcomes, thread_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_at_its_own_place() {
        for (index, outcome) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome_index(outcome), index);
        }
    }
}
