//! A payload on its way to the origin: read from the client as hyper asks for it, never ahead.
//!
//! Two promises beside the bytes themselves:
//! - **The origin has the whole payload only if the client's is whole and verified.** The last
//!   piece (of a chunked one, the end mark) is held back until the body has ended without an
//!   error; a body that ends in one leaves the origin a request it must drop.
//! - **It is known how far things got**, which decides whether a failed request may be repeated and
//!   whom a silence is to be blamed on.
//!
//! hyper owns the [`Outgoing`] half while it sends; the attempt keeps the [`Upload`].

use std::{
    collections::VecDeque,
    num::NonZeroU64,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use forebay_s3::{
    checksum::Algorithm,
    chunked::{Encoder, Framing},
    code::Code,
};
use forebay_store::{Body, Error};
use forebay_telemetry::origin::OriginMetrics;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{payload::Plan, rate::Throttle};

/// A payload, shared between the attempt and hyper.
#[derive(Debug)]
pub(crate) struct Upload {
    state: Mutex<State>,
    payload_bytes: u64,
    chunk_bytes: NonZeroU64,
    keep: Keep,
    metrics: Arc<OriginMetrics>,
}

/// Whether a payload is kept until its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Whole,
    Nothing,
}

/// How far a payload got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was read.
    Untouched,
    /// Some was read, and so is gone.
    Sending,
    /// All of it was handed to the connection.
    Finished,
    /// It broke off.
    Failed,
}

/// Whom the payload waits for, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The client's next bytes.
    Client,
    /// The origin, to take more.
    Origin(Instant),
    /// The origin, which has everything.
    Answer(Instant),
}

#[derive(Debug)]
struct State {
    body: Body,
    coding: Coding,
    /// Pieces ready to go.
    ready: VecDeque<Bytes>,
    trailers: HeaderMap,
    trailers_expected: Vec<Algorithm>,
    phase: Phase,
    waiting: Waiting,
    sent_bytes: u64,
    fault: Option<Error>,
    /// What was read, if it is kept.
    kept: Vec<Bytes>,
    throttle: Option<Throttle>,
    /// Wakes whoever sends, when the upload is abandoned.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Coding {
    /// Bytes still to come, and the last piece, held back.
    Plain {
        left_bytes: u64,
        held: Option<Bytes>,
    },
    Chunked(Box<Encoder>),
    Ended,
}

/// The payload failed; the reason is with the [`Upload`].
#[derive(Debug, thiserror::Error)]
#[error("the payload broke off")]
pub(crate) struct BrokenOff;

impl Upload {
    /// Keeps `body` until an attempt begins.
    pub(crate) fn new(
        body: Body,
        plan: &Plan,
        keep: Keep,
        metrics: &Arc<OriginMetrics>,
    ) -> Arc<Self> {
        let state = State {
            body,
            coding: Coding::Ended,
            ready: VecDeque::new(),
            trailers: HeaderMap::new(),
            trailers_expected: plan.trailers.clone(),
            phase: Phase::Untouched,
            waiting: Waiting::Origin(Instant::now()),
            sent_bytes: 0,
            fault: None,
            kept: Vec::new(),
            throttle: None,
            waker: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            payload_bytes: plan.payload_bytes,
            chunk_bytes: plan.chunk_bytes,
            keep,
            metrics: Arc::clone(metrics),
        })
    }

    /// Prepares to send with this framing, if the payload is chunked: that of one attempt, whose
    /// signature it goes on from, at the rate of its endpoint. What was read from already stays as
    /// it is.
    pub(crate) fn begin(&self, framing: Option<Framing>, throttle: Option<Throttle>) {
        let mut state = self.state.lock();
        if state.phase != Phase::Untouched {
            return;
        }
        state.waiting = Waiting::Origin(Instant::now());
        state.throttle = throttle;
        state.coding = match framing {
            Some(framing) => Coding::Chunked(Box::new(Encoder::new(
                framing,
                self.payload_bytes,
                self.chunk_bytes,
            ))),
            None => Coding::Plain {
                left_bytes: self.payload_bytes,
                held: None,
            },
        };
    }

    /// The payload, if all of it was read and kept.
    pub(crate) fn kept_payload(&self) -> Option<Vec<Bytes>> {
        let state = self.state.lock();
        (self.keep == Keep::Whole && state.phase == Phase::Finished).then(|| state.kept.clone())
    }

    /// A trailer that was sent.
    pub(crate) fn trailer(&self, name: &HeaderName) -> Option<HeaderValue> {
        self.state.lock().trailers.get(name).cloned()
    }

    /// Whether what is read is kept, so that it can be sent once more.
    pub(crate) fn is_kept(&self) -> bool {
        self.keep == Keep::Whole
    }

    /// Begins again, with what was kept and what was not read yet; whether that can be. Nobody may
    /// be sending it any more.
    pub(crate) fn rewind(&self) -> bool {
        let mut state = self.state.lock();
        match (state.phase, self.keep) {
            (Phase::Untouched, _) => return true,
            (Phase::Sending | Phase::Finished, Keep::Whole) => {}
            (Phase::Sending | Phase::Finished, Keep::Nothing) | (Phase::Failed, _) => return false,
        }
        let pieces = std::mem::take(&mut state.kept).into();
        state.ready.clear();
        let trailers = std::mem::take(&mut state.trailers);
        let rest = match state.coding {
            Coding::Ended => None,
            Coding::Plain { .. } | Coding::Chunked(_) => Some(std::mem::take(&mut state.body)),
        };
        state.body = Body::stream(Kept {
            pieces,
            rest,
            trailers: (!trailers.is_empty()).then_some(trailers),
        });
        state.phase = Phase::Untouched;
        true
    }

    /// How far it got.
    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Whom it waits for.
    pub(crate) fn waiting(&self) -> Waiting {
        self.state.lock().waiting
    }

    /// Why it broke off, if it did; told once.
    pub(crate) fn take_fault(&self) -> Option<Error> {
        self.state.lock().fault.take()
    }

    /// Stops reading from the client for good, so that the origin's request ends unfinished.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Finished {
            return;
        }
        state.phase = Phase::Failed;
        let body = std::mem::take(&mut state.body);
        let waker = state.waker.take();
        drop(state);
        drop(body);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.metrics
            .sent_bytes
            .inc_by(self.state.get_mut().sent_bytes);
    }
}

impl State {
    fn poll_piece(
        &mut self,
        keep: Keep,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(piece)));
            }
            if matches!(self.coding, Coding::Ended) {
                return Poll::Ready(Ok(None));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(frame)) => match frame?.into_data() {
                    Ok(data) => {
                        if keep == Keep::Whole {
                            self.kept.push(data.clone());
                        }
                        self.take(data)?;
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers.extend(trailers);
                        }
                    }
                },
                Poll::Ready(None) => self.end()?,
            }
        }
    }

    fn take(&mut self, data: Bytes) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let ready = &mut self.ready;
        match &mut self.coding {
            Coding::Plain { left_bytes, held } => {
                *left_bytes = left_bytes
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| Error::refused(Code::IncompleteBody))?;
                if *left_bytes == 0 {
                    *held = Some(data);
                } else {
                    ready.push_back(data);
                }
                Ok(())
            }
            Coding::Chunked(encoder) => encoder
                .push(data, &mut |piece| ready.push_back(piece))
                .map_err(|_| Error::refused(Code::IncompleteBody)),
            Coding::Ended => Ok(()),
        }
    }

    /// The body has ended, and so is verified: what was held back may go.
    fn end(&mut self) -> Result<(), Error> {
        let ready = &mut self.ready;
        match std::mem::replace(&mut self.coding, Coding::Ended) {
            Coding::Plain {
                left_bytes: 0,
                held,
            } => {
                ready.extend(held);
                Ok(())
            }
            Coding::Plain { .. } => Err(Error::refused(Code::IncompleteBody)),
            Coding::Chunked(encoder) => {
                let trailers = expected_trailers(&self.trailers, &self.trailers_expected)?;
                encoder
                    .finish(&trailers, &mut |piece| ready.push_back(piece))
                    .map_err(|_| Error::refused(Code::IncompleteBody))
            }
            Coding::Ended => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.ready.is_empty() && matches!(self.coding, Coding::Ended)
    }
}

/// The announced trailers alone, each as long as was computed ahead.
fn expected_trailers(all: &HeaderMap, expected: &[Algorithm]) -> Result<HeaderMap, Error> {
    let mut trailers = HeaderMap::new();
    for algorithm in expected {
        let name = HeaderName::from_static(algorithm.header());
        let value = all
            .get(&name)
            .filter(|value| value.len() == algorithm.base64_bytes());
        let value = value.ok_or_else(|| Error::refused(Code::MalformedTrailerError))?;
        trailers.insert(name, value.clone());
    }
    Ok(trailers)
}

/// A payload that is sent once more.
#[derive(Debug)]
struct Kept {
    pieces: VecDeque<Bytes>,
    /// What was not read yet.
    rest: Option<Body>,
    trailers: Option<HeaderMap>,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(rest) = &mut self.rest {
            match ready!(Pin::new(rest).poll_frame(cx)) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None => self.rest = None,
            }
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }
}

/// What hyper sends.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// No bytes.
    Empty,
    /// A payload.
    Upload(Arc<Upload>),
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Self::Upload(upload) = &*self else {
            return Poll::Ready(None);
        };
        let mut state = upload.state.lock();
        match state.phase {
            Phase::Failed => return Poll::Ready(Some(Err(BrokenOff))),
            Phase::Finished => return Poll::Ready(None),
            Phase::Untouched | Phase::Sending => state.phase = Phase::Sending,
        }
        if let Some(throttle) = &mut state.throttle
            && throttle.poll_ready(cx).is_pending()
        {
            // Neither is to blame, so no clock runs, as while the client is waited for.
            state.waiting = Waiting::Client;
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let piece = match state.poll_piece(upload.keep, cx) {
            Poll::Ready(Ok(piece)) => piece,
            Poll::Ready(Err(fault)) => {
                state.phase = Phase::Failed;
                state.fault = Some(fault);
                return Poll::Ready(Some(Err(BrokenOff)));
            }
            Poll::Pending => {
                state.waiting = Waiting::Client;
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        let piece_bytes = piece.as_ref().map_or(0, Bytes::len);
        state.sent_bytes += piece_bytes as u64;
        if let Some(throttle) = &state.throttle {
            throttle.pass(piece_bytes);
        }
        if state.is_over() {
            state.phase = Phase::Finished;
            state.waiting = Waiting::Answer(Instant::now());
        } else {
            state.waiting = Waiting::Origin(Instant::now());
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Upload(upload) => upload.state.lock().is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Upload(_) => SizeHint::default(),
        }
    }
}
