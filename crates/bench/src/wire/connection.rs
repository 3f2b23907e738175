//! One request after another on one connection, which is opened anew when it ended.
//!
//! A kept connection that turns out to be closed before any byte of the answer came is no fault of
//! the endpoint: the request is sent once more on a new one, and the time this takes is part of
//! the latency.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{io::ReadBuf, time::Instant};

use super::{
    Connector, Scheme, Sink, WireError,
    answer::{AnswerReader, Expects},
    connect::Stream,
    redis::{self, ReplyReader},
    timer::SilenceTimer,
};
use crate::content::Content;

/// What one read takes at most: large enough that a read's cost is copying, small enough to stay
/// in the second-level cache while it is checked.
const READ_BYTES: usize = 128 * 1024;
/// What one write offers at most.
const WRITE_BYTES: usize = 64 * 1024;

/// The buffers that all connections of a thread share: each is used within one poll only.
#[derive(Debug)]
pub(crate) struct Buffers {
    read: Box<[u8]>,
    write: Box<[u8]>,
}

pub(crate) type SharedBuffers = Rc<RefCell<Buffers>>;

impl Buffers {
    pub(crate) fn shared() -> SharedBuffers {
        Rc::new(RefCell::new(Self {
            read: vec![0; READ_BYTES].into(),
            write: vec![0; WRITE_BYTES].into(),
        }))
    }
}

/// What follows the head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Bytes(&'a [u8]),
    /// `len_bytes` bytes of an object from `start` on, made while they are sent.
    Content {
        content: Content,
        start: u64,
        len_bytes: u64,
    },
}

impl Body<'_> {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Content { len_bytes, .. } => *len_bytes,
        }
    }
}

/// A request as it goes over the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) body: Body<'a>,
    /// Sent after the body: RESP ends a value so.
    pub(crate) tail: &'static [u8],
    pub(crate) expects: Expects,
}

/// An answer that arrived whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchanged {
    /// For Redis: 200, 404 for a value that is not there, 400 for an error.
    pub(crate) status: u16,
    /// When its first byte arrived.
    pub(crate) first_byte: Instant,
    /// When its last byte arrived.
    pub(crate) done: Instant,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
}

impl Exchanged {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A connection to one endpoint, open or not.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Arc<Connector>,
    buffers: SharedBuffers,
    stream: Option<Stream>,
    timer: SilenceTimer,
    reader: Reader,
}

/// Reads answers of the protocol that the endpoint speaks.
#[derive(Debug)]
enum Reader {
    Http(AnswerReader),
    Redis(ReplyReader),
}

/// What sending came to.
enum Sent {
    Whole,
    /// The answer began before the request was sent to its end.
    Answered,
}

impl Connection {
    pub(crate) fn new(connector: Arc<Connector>, buffers: SharedBuffers) -> Self {
        let timer = SilenceTimer::new(connector.timeouts().silence);
        let reader = match connector.scheme() {
            Scheme::Http | Scheme::Https => Reader::Http(AnswerReader::new()),
            Scheme::Redis => Reader::Redis(ReplyReader::new()),
        };
        Self {
            connector,
            buffers,
            stream: None,
            timer,
            reader,
        }
    }

    /// The beginning of the body of the last answer, if that was no success.
    pub(crate) fn error_body(&self) -> &[u8] {
        self.reader.error_body()
    }

    /// Sends a request and reads its answer to the end.
    ///
    /// # Cancel safety
    /// Dropped midway, the connection is closed with the next request, for [`Stream`] is only put
    /// back when an answer was whole.
    pub(crate) async fn exchange(
        &mut self,
        request: &Outgoing<'_>,
        sink: &mut impl Sink,
    ) -> Result<Exchanged, WireError> {
        if let Some(stream) = self.stream.take() {
            let attempt = self.attempt(stream, request, sink).await;
            match attempt {
                Err(error) if error.may_be_idle_close() && self.reader.is_untouched() => {}
                other => return other,
            }
        }
        let connector = Arc::clone(&self.connector);
        let mut stream = connector.connect().await?;
        for command in connector.login() {
            stream = self.log_in(stream, command).await?;
        }
        self.attempt(stream, request, sink).await
    }

    async fn log_in(&mut self, stream: Stream, command: &[u8]) -> Result<Stream, WireError> {
        let request = Outgoing {
            head: command,
            body: Body::None,
            tail: b"",
            expects: Expects::Body,
        };
        let exchanged = self.attempt(stream, &request, &mut redis::Ignored).await?;
        match self.stream.take() {
            Some(stream) if exchanged.is_success() => Ok(stream),
            _ => Err(WireError::MalformedAnswer("the server refused the login")),
        }
    }

    async fn attempt(
        &mut self,
        mut stream: Stream,
        request: &Outgoing<'_>,
        sink: &mut impl Sink,
    ) -> Result<Exchanged, WireError> {
        self.reader.begin(request.expects);
        self.timer.moved(Instant::now());
        let mut progress = Progress::default();
        let sent =
            poll_fn(|cx| self.poll_send(cx, &mut stream, request, &mut progress, sink)).await;
        let is_whole = match sent {
            Ok(Sent::Whole) => true,
            // A server that refuses early may close before it has read everything; its answer is
            // there all the same.
            Ok(Sent::Answered) | Err(WireError::ConnectionReset) => false,
            Err(error) => return Err(error),
        };
        poll_fn(|cx| self.poll_receive(cx, &mut stream, &mut progress, sink)).await?;
        if is_whole && self.reader.keeps_alive() {
            self.stream = Some(stream);
        }
        let done = progress.last_read.unwrap_or_else(Instant::now);
        Ok(Exchanged {
            status: self.reader.status(),
            first_byte: progress.first_read.unwrap_or(done),
            done,
            body_bytes: self.reader.body_bytes(),
        })
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        request: &Outgoing<'_>,
        progress: &mut Progress,
        sink: &mut impl Sink,
    ) -> Poll<Result<Sent, WireError>> {
        let total = request.len_bytes();
        while progress.sent_bytes < total {
            let written = if request.is_head_only() {
                #[expect(clippy::cast_possible_truncation, reason = "within a slice")]
                stream.poll_write(cx, &request.head[progress.sent_bytes as usize..])
            } else {
                let mut buffers = self.buffers.borrow_mut();
                let piece = request.copy_from(progress.sent_bytes, &mut buffers.write);
                stream.poll_write(cx, piece)
            };
            match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(WireError::ConnectionReset)),
                Poll::Ready(Ok(count)) => {
                    progress.sent_bytes += count as u64;
                    if progress.sent_bytes < total {
                        self.timer.moved(Instant::now());
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(&error))),
                Poll::Pending => return self.poll_early_answer(cx, stream, progress, sink),
            }
        }
        match stream.poll_flush(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(Sent::Whole)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(broken(&error))),
            Poll::Pending => self.poll_early_answer(cx, stream, progress, sink),
        }
    }

    /// Looks for an answer that comes while the request can't be sent on.
    fn poll_early_answer(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        progress: &mut Progress,
        sink: &mut impl Sink,
    ) -> Poll<Result<Sent, WireError>> {
        loop {
            let read = ready!(self.poll_read_once(cx, stream, progress, sink));
            match read {
                Ok(()) if self.reader.has_answer() => return Poll::Ready(Ok(Sent::Answered)),
                // An interim answer: go on sending.
                Ok(()) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        progress: &mut Progress,
        sink: &mut impl Sink,
    ) -> Poll<Result<(), WireError>> {
        while !self.reader.is_done() {
            if let Err(error) = ready!(self.poll_read_once(cx, stream, progress, sink)) {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read_once(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        progress: &mut Progress,
        sink: &mut impl Sink,
    ) -> Poll<Result<(), WireError>> {
        let mut buffers = self.buffers.borrow_mut();
        let mut piece = ReadBuf::new(&mut buffers.read);
        match stream.poll_read(cx, &mut piece) {
            Poll::Ready(Ok(())) if piece.filled().is_empty() => Poll::Ready(self.reader.end()),
            Poll::Ready(Ok(())) => {
                let now = Instant::now();
                progress.first_read.get_or_insert(now);
                progress.last_read = Some(now);
                self.timer.moved(now);
                Poll::Ready(self.reader.feed(piece.filled(), sink))
            }
            Poll::Ready(Err(error)) => Poll::Ready(match (broken(&error), self.reader.end()) {
                // Some TLS servers end a body of unknown length without the goodbye.
                (WireError::ShortBody, end) => end,
                (error, _) => Err(error),
            }),
            Poll::Pending => {
                drop(buffers);
                self.timer.poll_silent(cx).map(|()| Err(WireError::Timeout))
            }
        }
    }
}

/// How far a request and its answer have come.
#[derive(Debug, Default)]
struct Progress {
    sent_bytes: u64,
    first_read: Option<Instant>,
    last_read: Option<Instant>,
}

impl Outgoing<'_> {
    fn is_head_only(&self) -> bool {
        matches!(self.body, Body::None) && self.tail.is_empty()
    }

    fn len_bytes(&self) -> u64 {
        self.head.len() as u64 + self.body.len_bytes() + self.tail.len() as u64
    }

    /// Puts what comes from byte `at` of the request on into `buffer`, and gives what that filled.
    fn copy_from<'b>(&self, at: u64, buffer: &'b mut [u8]) -> &'b [u8] {
        let mut filled = copy_rest(self.head, at, buffer);
        let body_at = at.saturating_sub(self.head.len() as u64);
        filled += self.copy_body(body_at, &mut buffer[filled..]);
        let tail_at = body_at.saturating_sub(self.body.len_bytes());
        if at + filled as u64 >= self.head.len() as u64 + self.body.len_bytes() {
            filled += copy_rest(self.tail, tail_at, &mut buffer[filled..]);
        }
        &buffer[..filled]
    }

    fn copy_body(&self, at: u64, buffer: &mut [u8]) -> usize {
        match self.body {
            Body::None => 0,
            Body::Bytes(bytes) => copy_rest(bytes, at, buffer),
            Body::Content {
                content,
                start,
                len_bytes,
            } => {
                let left_bytes = len_bytes.saturating_sub(at);
                let count =
                    usize::try_from(left_bytes).map_or(buffer.len(), |n| n.min(buffer.len()));
                content.fill(start + at, &mut buffer[..count]);
                count
            }
        }
    }
}

/// Copies what `from` holds from byte `at` on, as far as there is room; gives how much.
fn copy_rest(from: &[u8], at: u64, buffer: &mut [u8]) -> usize {
    let at = usize::try_from(at).map_or(from.len(), |at| at.min(from.len()));
    let count = (from.len() - at).min(buffer.len());
    buffer[..count].copy_from_slice(&from[at..at + count]);
    count
}

fn broken(error: &io::Error) -> WireError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => WireError::ShortBody,
        _ => WireError::ConnectionReset,
    }
}

impl Reader {
    fn begin(&mut self, expects: Expects) {
        match self {
            Self::Http(reader) => reader.begin(expects),
            Self::Redis(reader) => reader.begin(),
        }
    }

    fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), WireError> {
        match self {
            Self::Http(reader) => reader.feed(bytes, sink),
            Self::Redis(reader) => reader.feed(bytes, sink),
        }
    }

    fn end(&mut self) -> Result<(), WireError> {
        match self {
            Self::Http(reader) => reader.end(),
            Self::Redis(_) => Err(WireError::ShortBody),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Http(reader) => reader.is_done(),
            Self::Redis(reader) => reader.is_done(),
        }
    }

    /// Whether the head of the answer is there; of Redis, any byte.
    fn has_answer(&self) -> bool {
        self.status() != 0
    }

    fn is_untouched(&self) -> bool {
        match self {
            Self::Http(reader) => reader.is_untouched(),
            Self::Redis(reader) => reader.is_untouched(),
        }
    }

    fn keeps_alive(&self) -> bool {
        match self {
            Self::Http(reader) => reader.keeps_alive(),
            Self::Redis(reader) => reader.keeps_alive(),
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Http(reader) => reader.status(),
            Self::Redis(reader) => reader.status(),
        }
    }

    fn body_bytes(&self) -> u64 {
        match self {
            Self::Http(reader) => reader.body_bytes(),
            Self::Redis(reader) => reader.body_bytes(),
        }
    }

    fn error_body(&self) -> &[u8] {
        match self {
            Self::Http(reader) => reader.error_body(),
            Self::Redis(reader) => reader.error_body(),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Tls(_) => "Tls",
        })
    }
}
