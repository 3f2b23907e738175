//! A long body, read straight from its connection.
//!
//! hyper reads an answer through the connection's buffer, which is small, so that hundreds of
//! uploads at once fit in memory; each of its pieces then costs a system call and a pass through
//! the state machine of HTTP. A body of known length needs nothing of HTTP but that length. So a
//! long one is read here, in larger pieces, and the connection goes back to hyper when the last
//! byte has come.
//!
//! Called by [`crate::exchange`]. A piece's memory is used again once its readers have dropped it,
//! by this body or another ([`crate::buffers`]).

use std::{
    collections::VecDeque,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{BufMut as _, Bytes};
use http::{Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::io::AsyncReadExt as _;

use crate::{
    buffers::{BUFFER_BYTES, BodyBuffer, Buffers},
    stream::Stream,
    wire::{Driver, Http1},
};

/// Bodies from this length on are worth the change of hands: through hyper they are four reads
/// and more. A guess, revisit with `make bench BENCH_ARGS="pass-through"`.
pub(crate) const DIRECT_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of one read when many bodies are under way.
const READ_BYTES_MIN: usize = 32 * 1024;
/// What the reads of all bodies under way may hold together, until they are at their smallest.
const ALL_READS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The rest of a body whose connection is ours.
#[derive(Debug)]
pub(crate) struct DirectBody {
    stream: Stream,
    /// What hyper had read already.
    read_ahead: VecDeque<Bytes>,
    /// Bytes that are still to be read from the stream.
    unread_bytes: u64,
    buffer: BodyBuffer,
    framing: Framing,
}

/// Whether what hyper had read fits the length of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Sound,
    /// More had come than the body has: nobody can say what it is the beginning of.
    Surplus,
}

/// What becomes of an HTTP/1.1 connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It carries another.
    Kept,
    /// The origin closes it.
    Closed,
}

impl After {
    /// What the head of the answer tells (RFC 9112 §9.3).
    pub(crate) fn of<B>(answer: &Response<B>) -> Self {
        let options = answer.headers().get_all(header::CONNECTION).iter();
        let closes = options
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|option| option.trim().eq_ignore_ascii_case("close"));
        if answer.version() == Version::HTTP_11 && !closes {
            Self::Kept
        } else {
            Self::Closed
        }
    }
}

impl DirectBody {
    /// Takes the connection over from hyper, in the middle of an answer whose body is `incoming`;
    /// gives both back when there is nothing to gain.
    pub(crate) fn take(
        http1: &mut Http1,
        incoming: Incoming,
        buffers: &Arc<Buffers>,
    ) -> Result<Self, Incoming> {
        let length = incoming.size_hint().exact();
        let Some(length) = length.filter(|length| *length >= DIRECT_BYTES_MIN) else {
            return Err(incoming);
        };
        let driver = std::mem::replace(&mut http1.driver, Driver::Ended);
        let Driver::Open(connection) = driver else {
            return Err(incoming);
        };
        let parts = connection.into_parts();
        // First what hyper had handed over, then what it had read and not yet handed over.
        let mut read_ahead = handed_over(incoming);
        read_ahead.push_back(parts.read_buf);
        let (mut unread_bytes, mut framing) = (length, Framing::Sound);
        for piece in &mut read_ahead {
            if piece.len() as u64 > unread_bytes {
                framing = Framing::Surplus;
            }
            piece.truncate(usize::try_from(unread_bytes).unwrap_or(usize::MAX));
            unread_bytes -= piece.len() as u64;
        }
        read_ahead.retain(|piece| !piece.is_empty());
        Ok(Self {
            stream: parts.io.into_inner(),
            read_ahead,
            unread_bytes,
            buffer: buffers.body(),
            framing,
        })
    }

    /// The next piece; not called once [`Self::left_bytes`] is none.
    ///
    /// # Errors
    /// The connection's, or `UnexpectedEof` when it ends too early.
    pub(crate) fn poll_piece(
        &mut self,
        bodies_under_way: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        if let Some(piece) = self.read_ahead.pop_front() {
            return Poll::Ready(Ok(piece));
        }
        let read_bytes = (ALL_READS_BYTES_MAX / bodies_under_way.max(1))
            .clamp(READ_BYTES_MIN, BUFFER_BYTES)
            .min(usize::try_from(self.unread_bytes).unwrap_or(usize::MAX));
        let buffer = self.buffer.room(read_bytes);
        let count = {
            let mut room = (&mut *buffer).limit(read_bytes);
            ready!(pin!(self.stream.read_buf(&mut room)).poll(cx))?
        };
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.unread_bytes -= count as u64;
        Poll::Ready(Ok(buffer.split().freeze()))
    }

    /// Bytes that are still to come.
    pub(crate) fn left_bytes(&self) -> u64 {
        let ahead_bytes: usize = self.read_ahead.iter().map(Bytes::len).sum();
        self.unread_bytes + ahead_bytes as u64
    }

    /// The connection, whose answer has been read to its end, if another can follow.
    pub(crate) fn into_stream(self) -> Option<Stream> {
        match self.framing {
            Framing::Sound => Some(self.stream),
            Framing::Surplus => None,
        }
    }
}

/// The pieces that wait in a body whose connection is gone.
fn handed_over(mut incoming: Incoming) -> VecDeque<Bytes> {
    let mut pieces = VecDeque::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut incoming).poll_frame(&mut cx) {
        pieces.extend(frame.into_data().ok());
    }
    pieces
}
