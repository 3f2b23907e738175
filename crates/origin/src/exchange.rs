//! One request and its answer on one connection.
//!
//! [`send`] gives the answer's head as soon as it is there, also while the payload is still being
//! sent; [`AnswerBody`] then yields the bytes as they come, drives the rest of the payload, and
//! gives the connection back at the end. Whatever is dropped before its end closes the connection
//! (HTTP/1.1) or resets the stream (HTTP/2), so that the origin drops the request.
//!
//! Time: while the client is the one waited for, no clock runs here but the deadline; while the
//! origin is, `idle` does, and from the end of the payload `first_byte`.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use forebay_store::Error;
use forebay_telemetry::origin::OriginMetrics;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::{
    direct::{After, DirectBody},
    endpoint::{EndpointId, Picked, Report},
    failure::BodyTrouble,
    pool::{Lease, Wire},
    rate::Throttle,
    settings::Timeouts,
    upload::{Outgoing, Upload, Waiting},
};

/// Time bounds of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub timeouts: Timeouts,
    /// End of the attempt, or of the whole operation.
    pub until: Instant,
}

/// Why a request that was handed to a connection has no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Not a byte of it was written.
    Unsent,
    /// The connection ended before the first byte of an answer.
    Closed(hyper::Error),
    /// What came is not HTTP.
    Malformed(hyper::Error),
    /// The origin is silent.
    TimedOut,
    /// The attempt or the operation took too long.
    Late,
}

/// Drops the rest of a payload with the attempt it belongs to.
#[derive(Debug)]
struct UploadGuard(Option<Arc<Upload>>);

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if let Some(upload) = &self.0 {
            upload.abandon();
        }
    }
}

/// Sends a request and waits for the head of its answer.
pub(crate) async fn send(
    mut lease: Lease,
    request: Request<Outgoing>,
    bounds: &Bounds,
    metrics: &Arc<OriginMetrics>,
) -> Result<Response<AnswerBody>, SendError> {
    let mut upload = UploadGuard(match request.body() {
        Outgoing::Empty => None,
        Outgoing::Upload(upload) => Some(Arc::clone(upload)),
    });
    let is_http1 = matches!(lease.wire, Wire::Http1(_));
    let answered = {
        let exchange = pin!(exchange(&mut lease, request));
        within(exchange, upload.0.as_deref(), bounds).await
    };
    match answered {
        Ok(response) => {
            let idle_timeout = bounds.timeouts.idle;
            let after = After::of(&response);
            Ok(response.map(|incoming| {
                let source = Source::new(incoming, &mut lease, &upload, after);
                AnswerBody::new(
                    source,
                    Some(lease),
                    upload,
                    idle_timeout,
                    Arc::clone(metrics),
                )
            }))
        }
        // An unsent request's payload is whole: it may go with another attempt.
        Err(SendError::Unsent) => {
            upload.0 = None;
            Err(SendError::Unsent)
        }
        // Nor is one lost that is kept, when all that sent it ended with its connection.
        Err(SendError::Closed(error)) => {
            let is_kept = upload.0.as_deref().is_some_and(Upload::is_kept);
            if is_http1 && is_kept {
                upload.0 = None;
            }
            Err(SendError::Closed(error))
        }
        Err(error) => Err(error),
    }
}

async fn exchange(
    lease: &mut Lease,
    request: Request<Outgoing>,
) -> Result<Response<Incoming>, SendError> {
    let answered = match &mut lease.wire {
        Wire::Http1(http1) => {
            let mut answer = pin!(http1.sender.try_send_request(request));
            let driver = &mut http1.driver;
            std::future::poll_fn(|cx| {
                // What a connection that ended means for the request, its answer tells.
                let _ = driver.poll(cx);
                answer.as_mut().poll(cx)
            })
            .await
        }
        Wire::Http2(stream) => stream.sender.try_send_request(request).await,
    };
    answered.map_err(|mut failed| {
        if failed.take_message().is_some() {
            return SendError::Unsent;
        }
        let error = failed.into_error();
        if error.is_parse() {
            SendError::Malformed(error)
        } else {
            SendError::Closed(error)
        }
    })
}

/// Waits for `exchange` no longer than `bounds` allow.
async fn within<E>(
    mut exchange: Pin<&mut E>,
    upload: Option<&Upload>,
    bounds: &Bounds,
) -> Result<Response<Incoming>, SendError>
where
    E: Future<Output = Result<Response<Incoming>, SendError>>,
{
    let sent = Instant::now();
    let limit = || {
        let own = match upload.map(Upload::waiting) {
            None => Some(sent + bounds.timeouts.first_byte),
            Some(Waiting::Client) => None,
            Some(Waiting::Origin(since)) => Some(since + bounds.timeouts.idle),
            Some(Waiting::Answer(since)) => Some(since + bounds.timeouts.first_byte),
        };
        match own {
            Some(own) if own < bounds.until => (own, SendError::TimedOut),
            Some(_) | None => (bounds.until, SendError::Late),
        }
    };
    // What is waited for changes without waking this; so look again at least this often.
    let look_again = bounds.timeouts.idle.min(bounds.timeouts.first_byte);
    let soon = || Instant::now() + look_again;
    let mut timer = pin!(tokio::time::sleep_until(limit().0.min(soon())));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(answered) = exchange.as_mut().poll(cx) {
            return Poll::Ready(answered);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            let (at, error) = limit();
            if at <= Instant::now() {
                return Poll::Ready(Err(error));
            }
            timer.as_mut().reset(at.min(soon()));
        }
    })
    .await
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    source: Source,
    /// `None` once the connection was given back or closed.
    lease: Option<Lease>,
    /// The endpoint that sends it, where it is in flight as long as the lease lives.
    picked: Option<Picked>,
    /// Where the endpoint's bytes are limited.
    throttle: Option<Throttle>,
    /// Dropped with the answer, however far it got.
    _upload: UploadGuard,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Since when the origin has been waited for.
    waiting_since: Option<Instant>,
    received_bytes: u64,
    metrics: Arc<OriginMetrics>,
}

/// Where a body's bytes come from.
#[derive(Debug)]
enum Source {
    /// hyper, which drives the connection.
    Http(Incoming),
    /// Here: what an origin would have answered.
    Made(Bytes),
    /// The connection itself.
    Direct(DirectBody, After),
    /// Nowhere any more.
    Ended,
}

impl Source {
    /// Takes a long body over, unless a payload is still being sent beside it.
    fn new(incoming: Incoming, lease: &mut Lease, upload: &UploadGuard, after: After) -> Self {
        let buffers = Arc::clone(lease.buffers());
        match (&mut lease.wire, &upload.0) {
            (Wire::Http1(http1), None) => match DirectBody::take(http1, incoming, &buffers) {
                Ok(direct) => Self::Direct(direct, after),
                Err(incoming) => Self::Http(incoming),
            },
            (Wire::Http1(_) | Wire::Http2(_), _) => Self::Http(incoming),
        }
    }

    fn is_at_end(&self) -> bool {
        match self {
            Self::Http(incoming) => incoming.is_end_stream(),
            Self::Direct(direct, _) => direct.left_bytes() == 0,
            Self::Made(bytes) => bytes.is_empty(),
            Self::Ended => true,
        }
    }
}

/// Why the bytes of a body ended early.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum BodyError {
    Http(#[from] hyper::Error),
    Direct(#[from] std::io::Error),
}

impl AnswerBody {
    fn new(
        source: Source,
        lease: Option<Lease>,
        upload: UploadGuard,
        idle_timeout: Duration,
        metrics: Arc<OriginMetrics>,
    ) -> Self {
        metrics.in_flight.inc();
        Self {
            source,
            lease,
            picked: None,
            throttle: None,
            _upload: upload,
            idle_timeout,
            timer: None,
            waiting_since: None,
            received_bytes: 0,
            metrics,
        }
    }

    /// A body that no origin sends.
    pub(crate) fn made(bytes: Bytes, metrics: Arc<OriginMetrics>) -> Self {
        let source = Source::Made(bytes);
        Self::new(source, None, UploadGuard(None), Duration::ZERO, metrics)
    }

    /// The endpoint that it is in flight at.
    pub(crate) fn endpoint(&self) -> Option<EndpointId> {
        self.picked.as_ref().map(Picked::id)
    }

    /// Bytes that it has given so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Counts as in flight at the endpoint from now on, until the body ends.
    pub(crate) fn hold(&mut self, picked: Picked) {
        let bucket = picked.endpoint().bucket.as_ref();
        self.throttle = bucket.map(|bucket| Throttle::new(Arc::clone(bucket)));
        self.picked = Some(picked);
    }

    /// The body broke off, or will not come: the connection is closed, the endpoint told.
    pub(crate) fn cut(&mut self) {
        self.lease = None;
        self.metrics.bodies_cut.inc();
        if let Some(mut picked) = self.picked.take() {
            picked.report(Report::Unreachable);
        }
    }

    /// Gives the connection back if the answer has no body, as most writes' have none.
    ///
    /// # Cancel safety
    /// Ready at once.
    pub(crate) async fn settle(&mut self) {
        if self.source.is_at_end() {
            std::future::poll_fn(|cx| {
                self.finish(cx);
                Poll::Ready(())
            })
            .await;
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let incoming = match &mut self.source {
            Source::Http(incoming) => incoming,
            Source::Ended => return Poll::Ready(None),
            Source::Made(bytes) => {
                let bytes = std::mem::take(bytes);
                let piece = (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)));
                return Poll::Ready(piece);
            }
            Source::Direct(direct, _) => {
                let under_way = usize::try_from(self.metrics.in_flight.get()).unwrap_or(1);
                let piece = ready!(direct.poll_piece(under_way, cx));
                return Poll::Ready(Some(piece.map(Frame::data).map_err(BodyError::from)));
            }
        };
        let mut incoming = Pin::new(incoming);
        if let Poll::Ready(frame) = incoming.as_mut().poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        let Some(Lease {
            wire: Wire::Http1(http1),
            ..
        }) = &mut self.lease
        else {
            return Poll::Pending;
        };
        if http1.driver.poll(cx).is_ready() {
            self.lease = None;
        }
        incoming
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| Ok(frame?)))
    }

    /// The answer is complete: keeps the connection if the request is, too. What is left of a
    /// payload goes only if it can at once.
    fn finish(&mut self, cx: &mut Context<'_>) {
        self.timer = None;
        self.picked = None;
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Http(_)
            | Source::Made(_)
            | Source::Ended
            | Source::Direct(_, After::Closed) => {}
            Source::Direct(direct, After::Kept) => {
                if let Some(stream) = direct.into_stream() {
                    lease.resume(stream);
                }
            }
        }
        let is_idle = match &mut lease.wire {
            Wire::Http1(http1) => http1.is_idle(cx),
            Wire::Http2(..) => true,
        };
        if is_idle {
            lease.give_back();
        }
    }

    /// Whether the origin has been waited for longer than `patience`.
    fn poll_silence(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        let at = since + patience;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        // The timer may stand for an earlier wait: it is moved when it fires, not at each byte.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }

    /// The next frame; `Silent` once the origin was waited for as long as `patience`, and at the
    /// latest as long as `timeouts.idle`. What is silent may be polled again; what is broken not.
    pub(crate) fn poll_next(
        &mut self,
        patience: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyTrouble>>> {
        if let Some(throttle) = &mut self.throttle {
            // Meanwhile the origin is not waited for.
            ready!(throttle.poll_ready(cx));
        }
        let Poll::Ready(frame) = self.poll_source(cx) else {
            let patience = patience.map_or(self.idle_timeout, |own| own.min(self.idle_timeout));
            ready!(self.poll_silence(patience, cx));
            return Poll::Ready(Some(Err(BodyTrouble::Silent(patience))));
        };
        self.waiting_since = None;
        match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.received_bytes += data.len() as u64;
                    if let Some(throttle) = &self.throttle {
                        throttle.pass(data.len());
                    }
                }
                if self.source.is_at_end() {
                    self.finish(cx);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "answer of the origin broke off");
                Poll::Ready(Some(Err(BodyTrouble::Broken)))
            }
            None => {
                self.finish(cx);
                Poll::Ready(None)
            }
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let next = self.poll_next(None, cx);
        next.map_err(|trouble| {
            self.cut();
            trouble.into()
        })
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http(incoming) => incoming.size_hint(),
            Source::Direct(direct, _) => SizeHint::with_exact(direct.left_bytes()),
            Source::Made(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.received_bytes.inc_by(self.received_bytes);
    }
}
