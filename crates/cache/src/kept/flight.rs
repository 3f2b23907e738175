//! One request to the origin for an answer that is to be kept, and all who wait for it.
//!
//! The leader, whose request it is, gets the answer as it comes. Followers get it when it is whole,
//! or learn that they have to ask for themselves: it was an error, or is too large to keep. The
//! answer is collected by a task of its own, so neither a slow leader nor one that leaves holds the
//! others up; the task ends when all have left.
//!
//! What is whole is stored before its last bytes leave: who has it all and asks again finds it.
//!
//! Units: an answer that is collected is `ANSWER_BYTES_MAX` bytes at most.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use forebay_store::{Body, Error, Request, Reservation, Response};
use http::{HeaderMap, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use super::{
    name::{Kind, Name},
    table::Kept,
};
use crate::{
    headers,
    layer::Layer,
    settings::{CacheSettings, Directives},
    version,
};

/// Most bytes of an answer that is kept: a listing of 1000 keys has 300 to 500 KiB.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// See the module.
pub(crate) struct Flight {
    pub name: Arc<Name>,
    /// When the origin was asked, on the layer's clock.
    pub asked_ms: i64,
    outcome: watch::Sender<Outcome>,
    state: Mutex<State>,
}

/// What followers learn.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Awaited,
    Whole(Arc<Kept>),
    /// There is nothing that can be shared.
    Declined,
}

/// What the task and the seats share.
#[derive(Default)]
struct State {
    seat_count: usize,
    /// Nobody can join any more.
    is_closed: bool,
    task: Option<AbortHandle>,
    head: Option<Head>,
    /// What has come of the body.
    pieces: VecDeque<Bytes>,
    end: Option<End>,
    leader: Option<Waker>,
}

/// What the leader is told first.
enum Head {
    /// An answer that is for nobody else.
    Own(Result<Response, Error>),
    /// One whose body comes through the flight, of this length if that is known.
    Shared(Response, Option<u64>),
}

/// How the body ends for the leader, after its pieces.
enum End {
    Whole,
    /// The rest is not collected.
    Rest(Body),
    Failed(Error),
}

/// A place at a flight, which ends when the last one is dropped.
pub(crate) struct Seat(Arc<Flight>);

impl Flight {
    /// A new flight, with the seat of its leader.
    pub(super) fn begin(name: Arc<Name>, asked_ms: i64) -> Seat {
        Seat(Arc::new(Self {
            name,
            asked_ms,
            outcome: watch::Sender::new(Outcome::Awaited),
            state: Mutex::new(State {
                seat_count: 1,
                ..State::default()
            }),
        }))
    }

    /// A seat at a flight that has not been given up.
    pub(super) fn join(self: &Arc<Self>) -> Option<Seat> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.seat_count += 1;
        Some(Seat(Arc::clone(self)))
    }

    /// Changes what the leader sees, and wakes it.
    fn tell(&self, change: impl FnOnce(&mut State)) {
        let leader = {
            let mut state = self.state.lock();
            change(&mut state);
            state.leader.take()
        };
        if let Some(leader) = leader {
            leader.wake();
        }
    }

    fn end(&self, piece: Bytes, end: End) {
        self.tell(|state| {
            state.pieces.push_back(piece);
            state.end = Some(end);
        });
    }
}

impl Seat {
    pub(super) fn flight(&self) -> &Arc<Flight> {
        &self.0
    }

    /// Starts the task that asks the origin; for the leader, once.
    pub(super) fn start(&self, layer: &Arc<Layer>, request: Request) {
        let task = tokio::spawn(run(Arc::clone(layer), Arc::clone(&self.0), request));
        self.0.state.lock().task = Some(task.abort_handle());
    }

    /// The leader's answer.
    ///
    /// # Errors
    /// Those of the origin.
    ///
    /// # Cancel safety
    /// A dropped future leaves the flight.
    pub(super) async fn answer(self) -> Result<Response, Error> {
        let head = poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if let Some(head) = state.head.take() {
                return Poll::Ready(Ok(head));
            }
            if state.end.is_some() {
                return Poll::Ready(Err(given_up()));
            }
            state.leader = Some(cx.waker().clone());
            Poll::Pending
        });
        match head.await? {
            Head::Own(answer) => answer,
            Head::Shared(response, left) => Ok(response.with_body(Body::stream(Led {
                seat: self,
                left,
                rest: None,
            }))),
        }
    }

    /// Waits until all is there or it is known that nothing comes; for a follower.
    ///
    /// # Cancel safety
    /// A dropped future leaves the flight.
    pub(super) async fn outcome(self) -> Outcome {
        let mut outcome = self.0.outcome.subscribe();
        let told = outcome.wait_for(|outcome| !matches!(outcome, Outcome::Awaited));
        told.await
            .map_or(Outcome::Declined, |outcome| outcome.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let task = {
            let mut state = self.0.state.lock();
            state.seat_count -= 1;
            if state.seat_count > 0 {
                return;
            }
            state.is_closed = true;
            state.task.take()
        };
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// Ends a flight, however its task ends.
struct Ending {
    layer: Arc<Layer>,
    flight: Arc<Flight>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.layer.kept.end(&self.flight);
        self.flight.outcome.send_if_modified(|outcome| {
            let is_awaited = matches!(outcome, Outcome::Awaited);
            if is_awaited {
                *outcome = Outcome::Declined;
            }
            is_awaited
        });
        self.flight.tell(|state| {
            state.end.get_or_insert_with(|| End::Failed(given_up()));
        });
    }
}

fn given_up() -> Error {
    let reason = "the request that was to answer this was given up".into();
    Error::Unavailable { reason }
}

/// Asks the origin and collects what it answers.
async fn run(layer: Arc<Layer>, flight: Arc<Flight>, request: Request) {
    let ending = Ending { layer, flight };
    let (layer, flight) = (&ending.layer, &ending.flight);
    let mut response = match layer.inner.call(request).await {
        Ok(response) if may_be_kept(&response, &layer.settings) => response,
        answer => return flight.tell(|state| state.head = Some(Head::Own(answer))),
    };
    let mut body = mem::take(&mut response.body);
    let length = body.length();
    let told = Told::of(&response, flight.name.kind);
    let mut head = Some(Head::Shared(response, length));
    let (mut bytes, mut rooms) = (BytesMut::new(), Vec::new());
    let last = loop {
        if body.is_end_stream() {
            break Bytes::new();
        }
        if let Some(head) = head.take() {
            flight.tell(|state| state.head = Some(head));
        }
        let piece = match body.frame().await {
            None => break Bytes::new(),
            Some(Err(error)) => return flight.end(Bytes::new(), End::Failed(error)),
            // Answers that are kept have no trailers.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let Some(room) = room(layer, bytes.len(), &piece) else {
            return flight.end(piece, End::Rest(body));
        };
        rooms.push(room);
        bytes.extend_from_slice(&piece);
        if body.is_end_stream() {
            break piece;
        }
        flight.tell(|state| state.pieces.push_back(piece));
    };
    let kept = Arc::new(told.kept(flight, bytes.freeze()));
    layer.kept.store(flight, &kept);
    flight.outcome.send_replace(Outcome::Whole(kept));
    flight.tell(|state| {
        if let Some(head) = head {
            state.head = Some(head);
        }
        state.pieces.push_back(last);
        state.end = Some(End::Whole);
    });
}

/// Room for one piece more, in its place and in what is collected.
fn room(layer: &Layer, collected: usize, piece: &Bytes) -> Option<Reservation> {
    let fits = (collected + piece.len()) as u64 <= ANSWER_BYTES_MAX;
    let room = || layer.budget.try_reserve(2 * piece.len() as u64);
    fits.then(room).flatten()
}

/// Whether an answer may be kept and shared: a 200, and nothing in it forbids it.
pub(super) fn may_be_kept(response: &Response, settings: &CacheSettings) -> bool {
    let answer = &response.headers;
    let forbidden = settings.origin_directives == Directives::Honour
        && answer
            .get(header::CACHE_CONTROL)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| headers::has_directive(value, "no-store"));
    let is_too_large = response.body.length().is_some_and(|l| l > ANSWER_BYTES_MAX);
    response.status == StatusCode::OK
        && !forbidden
        && !is_too_large
        && !answer.contains_key(header::SET_COOKIE)
        && !answer.contains_key(header::CONTENT_ENCODING)
}

/// What the head of an answer tells that is kept.
struct Told {
    headers: HeaderMap,
    age_ms: i64,
}

impl Told {
    fn of(response: &Response, kind: Kind) -> Self {
        let headers = match kind {
            Kind::HeadBucket => headers::kept_of_head(&response.headers),
            Kind::ListBuckets
            | Kind::ListObjects
            | Kind::ListObjectsV2
            | Kind::ListObjectVersions => headers::kept(&response.headers, 0),
        };
        Self {
            headers,
            age_ms: version::told_age_ms(&response.headers),
        }
    }

    fn kept(self, flight: &Flight, body: Bytes) -> Kept {
        let Self {
            mut headers,
            age_ms,
        } = self;
        if flight.name.kind != Kind::HeadBucket {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        let name = Arc::clone(&flight.name);
        Kept::new(name, headers, body, flight.asked_ms - age_ms)
    }
}

/// The body of the leader's answer.
struct Led {
    seat: Seat,
    /// Bytes left of the pieces, if that is known.
    left: Option<u64>,
    rest: Option<Body>,
}

impl HttpBody for Led {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.rest.is_none() {
            let step = {
                let mut state = self.seat.0.state.lock();
                match (state.pieces.pop_front(), state.end.take()) {
                    (Some(piece), end) => {
                        state.end = end;
                        Step::Piece(piece)
                    }
                    (None, Some(End::Rest(rest))) => Step::Rest(rest),
                    (None, Some(End::Failed(error))) => Step::Failed(error),
                    (None, Some(End::Whole)) => {
                        state.end = Some(End::Whole);
                        Step::Whole
                    }
                    (None, None) => {
                        state.leader = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            match step {
                Step::Piece(piece) if piece.is_empty() => return self.poll_frame(cx),
                Step::Piece(piece) => {
                    self.left = self.left.map(|l| l.saturating_sub(piece.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Step::Failed(error) => return Poll::Ready(Some(Err(error))),
                Step::Whole => return Poll::Ready(None),
                Step::Rest(rest) => self.rest = Some(rest),
            }
        }
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        Pin::new(rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        if let Some(rest) = &self.rest {
            return rest.is_end_stream();
        }
        let state = self.seat.0.state.lock();
        state.pieces.iter().all(Bytes::is_empty) && matches!(state.end, Some(End::Whole))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Some(rest) => HttpBody::size_hint(rest),
            None => self
                .left
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// What the leader finds.
enum Step {
    Piece(Bytes),
    Rest(Body),
    Failed(Error),
    Whole,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.0.name).finish()
    }
}
