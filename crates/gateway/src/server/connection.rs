//! One connection: TLS or not, HTTP/1 or HTTP/2, and its end.
//!
//! On a plain listener the first bytes tell HTTP/2 with prior knowledge from HTTP/1; they are
//! peeked at, so that nothing stands between the socket and hyper. On TLS, ALPN tells.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};

use super::{
    Phase, Worker,
    pulse::{Order, Protocol as WatchedProtocol, Pulse, Watch},
    socket::Socket,
    thread::BoundTo,
    tls::TlsSocket,
};
use crate::{
    request,
    settings::{Authentication, READ_BUFFER_BYTES},
};

/// What an HTTP/2 connection begins with (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause while a preface arrives in pieces: it leaves a client in one segment, so this is rare.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// Bytes that a client may send on one stream ahead of the store; bounds what is buffered.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for a connection with all its streams.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Response bytes that may wait on one stream.
const SEND_BUFFER_BYTES_MAX: usize = 256 * 1024;
/// Streams reset by the client before they were served ("rapid reset"), and streams that we reset
/// because of the client's errors, until the connection is closed: h2's own defaults, stated.
const RESETS_PENDING_MAX: usize = 20;
const RESETS_LOCAL_MAX: usize = 1024;

/// What a connection's requests have in common.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) remote: SocketAddr,
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) security: Security,
    pub(crate) protocol: Protocol,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Whatever ended it, a panic included, the watchdog need not look after it any more.
        self.pulse.close();
    }
}

/// What protects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    /// Nothing.
    Plain,
    /// TLS.
    Tls {
        cipher: rustls::CipherSuite,
        version: rustls::ProtocolVersion,
    },
}

/// The HTTP that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) worker: Arc<Worker>,
    pub(super) stream: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) bound: BoundTo,
}

/// Serves a connection to its end.
pub(super) async fn serve(accepted: Accepted, mut phase: watch::Receiver<Phase>) {
    let Accepted {
        worker,
        stream,
        remote,
        bound,
    } = accepted;
    let header_timeout = worker.shared.settings.limits.header_timeout;
    let pulse = Arc::new(Pulse::default());
    let opening = tokio::time::timeout(header_timeout, open(stream, &bound, &pulse));
    let opened = tokio::select! {
        opened = opening => opened,
        // Nothing was asked yet, so there is nothing to finish.
        _ = phase.wait_for(|phase| *phase != Phase::Run) => return,
    };
    let (transport, protocol) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%remote, %error, "connection not opened"),
        Err(_) => {
            worker.shard.connections_cut.fetch_add(1, Ordering::Relaxed);
            return tracing::debug!(%remote, "connection not opened in time");
        }
    };
    let connection = Arc::new(Connection {
        worker,
        pulse,
        remote,
        authentication: bound.authentication,
        security: transport.security(),
        protocol,
    });
    let result = match transport {
        Transport::Plain(socket) => speak(&connection, socket, &phase).await,
        Transport::Tls(socket, _) => speak(&connection, *socket, &phase).await,
    };
    if let Err(error) = result {
        tracing::debug!(%remote, %error, "connection ended early");
    }
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// What carries the bytes.
enum Transport {
    Plain(Socket),
    Tls(Box<TlsSocket<TlsStream>>, Security),
}

impl Transport {
    fn security(&self) -> Security {
        match self {
            Self::Plain(_) => Security::Plain,
            Self::Tls(_, security) => *security,
        }
    }
}

/// Finds out what is spoken, with a TLS handshake where there is one.
async fn open(
    stream: TcpStream,
    bound: &BoundTo,
    pulse: &Arc<Pulse>,
) -> io::Result<(Transport, Protocol)> {
    let Some(certificate) = &bound.certificate else {
        let protocol = peek(&stream).await?;
        return Ok((
            Transport::Plain(Socket::new(stream, Arc::clone(pulse))),
            protocol,
        ));
    };
    let stream = certificate.acceptor().accept(stream).await?;
    let (_, session) = stream.get_ref();
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let security = match (
        session.negotiated_cipher_suite(),
        session.protocol_version(),
    ) {
        (Some(suite), Some(version)) => Security::Tls {
            cipher: suite.suite(),
            version,
        },
        _ => return Err(io::Error::other("handshake without a cipher suite")),
    };
    let socket = Box::new(TlsSocket::new(stream, Arc::clone(pulse)));
    Ok((Transport::Tls(socket, security), protocol))
}

/// Looks at the first bytes without taking them.
async fn peek(stream: &TcpStream) -> io::Result<Protocol> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen_bytes = stream.peek(&mut first).await?;
        if first[..seen_bytes] != PREFACE[..seen_bytes] {
            return Ok(Protocol::Http1);
        }
        if seen_bytes == PREFACE.len() {
            return Ok(Protocol::Http2);
        }
        if seen_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

/// Speaks HTTP until the connection ends.
async fn speak<S>(
    connection: &Arc<Connection>,
    socket: S,
    phase: &watch::Receiver<Phase>,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let worker = &connection.worker;
    let limits = &worker.shared.settings.limits;
    let pulse = Arc::clone(&connection.pulse);
    let watched = match connection.protocol {
        Protocol::Http1 => WatchedProtocol::Http1,
        Protocol::Http2 => WatchedProtocol::Http2,
    };
    worker.watch(
        Arc::clone(&pulse),
        Watch::new(watched, worker.shared.clock.now()),
    );
    if *phase.borrow() != Phase::Run {
        pulse.give(Order::Drain);
    }
    let io = TokioIo::new(socket);
    let service = service_fn({
        let connection = Arc::clone(connection);
        move |incoming: http::Request<Incoming>| request::serve(Arc::clone(&connection), incoming)
    });
    match connection.protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder
                .max_buf_size(READ_BUFFER_BYTES)
                .max_headers(limits.header_count_max)
                .writev(true);
            drive(
                builder.serve_connection(io, service),
                http1::Connection::graceful_shutdown,
                &pulse,
            )
            .await
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let header_bytes_max = u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX);
            builder
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_concurrent_streams(limits.streams_max)
                .max_header_list_size(header_bytes_max)
                .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
                .max_local_error_reset_streams(RESETS_LOCAL_MAX)
                .max_send_buf_size(SEND_BUFFER_BYTES_MAX);
            drive(
                builder.serve_connection(io, service),
                http2::Connection::graceful_shutdown,
                &pulse,
            )
            .await
        }
    }
}

/// Runs a connection, carrying out the orders that its pulse is given.
async fn drive<C>(
    connection: C,
    drain: impl Fn(Pin<&mut C>),
    pulse: &Pulse,
) -> Result<(), hyper::Error>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = pin!(connection);
    let (mut is_registered, mut is_draining) = (false, false);
    poll_fn(|cx| {
        if !is_registered {
            pulse.runs_in(cx.waker());
            is_registered = true;
        }
        match pulse.order() {
            Order::Serve => {}
            Order::Drain if is_draining => {}
            Order::Drain => {
                is_draining = true;
                drain(connection.as_mut());
            }
            Order::Cut => return Poll::Ready(Ok(())),
        }
        connection.as_mut().poll(cx)
    })
    .await
}
