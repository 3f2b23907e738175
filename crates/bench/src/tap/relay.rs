//! One client connection and its connection to the server.
//!
//! One task polls both directions, so that they share their state without a lock. Per direction:
//! bytes are read, framed (which request, which answer, payload or framing), queued with what the
//! plan of their request adds, and written. Nothing is changed on the way; a request that the tap
//! answers itself is swallowed whole.
//!
//! What is no HTTP/1.1 that can be followed turns the connection opaque: from then on bytes pass
//! both ways and only bytes are counted. A peer that vanishes is passed on: an end as an end, a
//! reset as a reset.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{io::AsyncWrite, net::TcpStream, time::Sleep};

use super::{
    InForce, Shared,
    counts::add,
    exchange::{Answerer, Exchange, Fate, Marks},
    framing::Body,
    lane::{Drained, Lane, ReadSize},
};

mod frames;

/// Requests of one connection that wait for their answer; beyond that it is not read.
const EXCHANGES_MAX: usize = 256;
/// How long a client may keep its side open once the server has closed its own.
const HALF_CLOSED_MAX: Duration = Duration::from_secs(30);
/// Bodies from here on are read in large pieces.
const BODY_BYTES_LARGE: u64 = 16 * 1024;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Reset,
}

/// A pair of connections.
#[derive(Debug)]
pub(super) struct Relay {
    shared: Arc<Shared>,
    in_force: Arc<InForce>,
    client: TcpStream,
    server: TcpStream,
    up: Lane,
    down: Lane,
    asks: Asks,
    answers: Answers,
    exchanges: VecDeque<Exchange>,
    /// The server takes no more; what the client still sends is dropped.
    is_server_deaf: bool,
    is_draining: bool,
    grace: Option<Pin<Box<Sleep>>>,
}

/// Where the client's bytes stand.
#[derive(Debug)]
enum Asks {
    Head,
    Body(Body, Fate),
    /// After a CONNECT: what follows depends on its answer.
    Paused,
    Opaque,
}

/// Where the server's bytes stand.
#[derive(Debug)]
enum Answers {
    Head,
    Body(Body, Marks),
    Opaque,
    /// The connection ends when the queue is written.
    Last,
}

impl Relay {
    pub(super) fn new(shared: Arc<Shared>, client: TcpStream, server: TcpStream) -> Self {
        let in_force = shared.in_force();
        let mut relay = Self {
            shared,
            in_force,
            client,
            server,
            up: Lane::default(),
            down: Lane::default(),
            asks: Asks::Head,
            answers: Answers::Head,
            exchanges: VecDeque::new(),
            is_server_deaf: false,
            is_draining: false,
            grace: None,
        };
        relay.set_paces();
        relay
    }

    /// Ends as soon as no request waits for its answer.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Passes bytes on until the connection has ended.
    pub(super) async fn run(&mut self) -> End {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Ends both connections.
    pub(super) fn finish(self, end: End) {
        if end == End::Reset {
            // A socket that is gone already has no use for it.
            let _ = self.client.set_zero_linger();
            let _ = self.server.set_zero_linger();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let steps = [self.poll_up(cx), self.poll_down(cx), self.pass_ends_on(cx)];
            let mut has_moved = false;
            for step in steps {
                match step {
                    Ok(moved) => has_moved |= moved,
                    Err(end) => return Poll::Ready(end),
                }
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    /// Client to server: whether anything moved.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut has_moved = false;
        if self.up.may_fill() {
            let size = match &self.asks {
                Asks::Body(body, _) => read_size(body),
                Asks::Opaque => ReadSize::Large,
                Asks::Head | Asks::Paused => ReadSize::Small,
            };
            if let Poll::Ready(read) = self.up.poll_fill(&mut self.client, size, cx) {
                read.map_err(|_| End::Reset)?;
                has_moved = true;
            }
        }
        if self.is_server_deaf {
            self.up.discard();
            return Ok(has_moved);
        }
        self.frame_requests()?;
        let tolls = self.shared.tolls_up(&self.in_force);
        match self.up.poll_drain(&mut self.server, &tolls, cx) {
            Poll::Ready(Ok(Drained::Some)) => has_moved = true,
            Poll::Ready(Ok(Drained::Cut)) => return Err(End::Reset),
            Poll::Ready(Ok(Drained::Empty)) | Poll::Pending => {}
            Poll::Ready(Err(_)) => {
                // Its answer may be on the way all the same: a refusal, and then the end.
                self.is_server_deaf = true;
                self.up.is_shut = true;
                has_moved = true;
            }
        }
        Ok(has_moved)
    }

    /// Server to client: whether anything moved.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut has_moved = false;
        if self.down.may_fill() {
            let size = match &self.answers {
                Answers::Body(body, _) => read_size(body),
                Answers::Opaque => ReadSize::Large,
                Answers::Head | Answers::Last => ReadSize::Small,
            };
            if let Poll::Ready(read) = self.down.poll_fill(&mut self.server, size, cx) {
                read.map_err(|_| End::Reset)?;
                has_moved = true;
            }
        }
        has_moved |= self.frame_answers();
        let tolls = self.shared.tolls_down(&self.in_force);
        match self.down.poll_drain(&mut self.client, &tolls, cx) {
            Poll::Ready(Ok(Drained::Some)) => has_moved = true,
            Poll::Ready(Ok(Drained::Cut) | Err(_)) => return Err(End::Reset),
            Poll::Ready(Ok(Drained::Empty)) | Poll::Pending => {}
        }
        Ok(has_moved)
    }

    /// Passes the end of one side on to the other; an error is the end of the connection.
    fn pass_ends_on(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut has_moved = false;
        if self.up.has_ended && self.up.is_empty() && !self.up.is_shut {
            self.up.is_shut = true;
            has_moved = true;
            let _ = Pin::new(&mut self.server).poll_shutdown(cx);
        }
        let tap_answers =
            matches!(self.exchanges.front(), Some(e) if e.answerer != Answerer::Server);
        if self.down.has_ended && self.down.is_empty() && !self.down.is_shut && !tap_answers {
            self.down.is_shut = true;
            has_moved = true;
            let _ = Pin::new(&mut self.client).poll_shutdown(cx);
            self.grace = Some(Box::pin(tokio::time::sleep(HALF_CLOSED_MAX)));
        }
        let is_over = self.up.is_shut && self.up.has_ended && self.down.is_shut;
        let is_last_written = matches!(self.answers, Answers::Last) && !self.down.has_queued();
        if is_over || is_last_written || (self.is_draining && self.is_idle()) {
            return Err(End::Closed);
        }
        if let Some(grace) = &mut self.grace
            && grace.as_mut().poll(cx).is_ready()
        {
            return Err(End::Reset);
        }
        if self.is_idle() {
            self.up.release_memory();
            self.down.release_memory();
        }
        Ok(has_moved)
    }

    fn is_idle(&self) -> bool {
        self.exchanges.is_empty()
            && matches!(self.asks, Asks::Head)
            && matches!(self.answers, Answers::Head)
            && self.up.is_empty()
            && self.down.is_empty()
    }

    fn turn_opaque(&mut self) {
        if !matches!(self.asks, Asks::Opaque) {
            add(&self.shared.counters.connections_opaque, 1);
        }
        self.asks = Asks::Opaque;
        self.answers = Answers::Opaque;
        self.exchanges.clear();
    }

    fn set_paces(&mut self) {
        self.up.pace.rate = self.in_force.faults.bandwidth;
        self.down.pace.rate = self.in_force.faults.bandwidth;
    }
}

fn read_size(body: &Body) -> ReadSize {
    match body.length() {
        Some(length) if length < BODY_BYTES_LARGE => ReadSize::Small,
        _ => ReadSize::Large,
    }
}
