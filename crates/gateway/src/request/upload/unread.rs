//! A body as it arrives, and what becomes of one that nobody reads to its end.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use forebay_s3::code::Code;
use forebay_store::Error;
use http::{header, request::Parts};
use http_body::Body as HttpBody;
use hyper::body::Incoming;

use crate::server::{Connection, Protocol};

/// Bytes of an unwanted body that are read and dropped before the connection is closed.
const DRAIN_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How long that may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A body that arrives; drained when it is dropped before its end.
#[derive(Debug)]
pub(in crate::request) struct Unread {
    /// `None` once it has ended or failed, or when there is none.
    incoming: Option<Incoming>,
    /// `None` when there is no body.
    connection: Option<Arc<Connection>>,
    /// Whether the client sends nothing before it is told to go on.
    is_awaited: bool,
}

impl Unread {
    pub(in crate::request) fn new(
        incoming: Incoming,
        head: &Parts,
        connection: &Arc<Connection>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self {
                incoming: None,
                connection: None,
                is_awaited: false,
            };
        }
        let is_awaited = head.headers.contains_key(header::EXPECT);
        let connection = Some(Arc::clone(connection));
        Self {
            incoming: Some(incoming),
            connection,
            is_awaited,
        }
    }

    pub(in crate::request) fn is_empty(&self) -> bool {
        self.incoming.is_none()
    }

    /// The next bytes, `None` at the end.
    pub(in crate::request) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Some(incoming) = &mut self.incoming else {
                return Poll::Ready(None);
            };
            // Asking is what makes hyper send `100 Continue`.
            self.is_awaited = false;
            let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
            match frame {
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else {
                        continue;
                    };
                    if incoming.is_end_stream() {
                        self.incoming = None;
                    }
                    if let Some(connection) = &self.connection {
                        let shard = &connection.worker.shard;
                        shard
                            .request_body_bytes
                            .fetch_add(bytes.len() as u64, Relaxed);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) => {
                    self.incoming = None;
                    return Poll::Ready(Some(Err(broken(&error))));
                }
                None => self.incoming = None,
            }
        }
    }

    /// Gives up on what has not come: nothing is drained, the connection ends with the answer.
    pub(in crate::request) fn abandon(&mut self) {
        self.incoming = None;
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let (Some(mut incoming), Some(connection)) = (self.incoming.take(), self.connection.take())
        else {
            return;
        };
        // On HTTP/2 the stream alone is reset.
        if self.is_awaited || connection.protocol == Protocol::Http2 {
            return;
        }
        // Outside of a runtime there is no connection left either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let drain = async move {
            let mut left_bytes = DRAIN_BYTES_MAX;
            let next =
                |incoming: &mut Incoming, cx: &mut Context<'_>| Pin::new(incoming).poll_frame(cx);
            while let Some(Ok(frame)) = std::future::poll_fn(|cx| next(&mut incoming, cx)).await {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                match left_bytes.checked_sub(bytes) {
                    Some(left) => left_bytes = left,
                    None => return,
                }
            }
        };
        // Owned by the connection: it ends with the body, which ends with the connection.
        runtime.spawn(async move {
            // Too slow is as good as too long: the connection is closed by dropping the body.
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
        });
    }
}

/// What a broken body means: the client closed its side early, or is gone.
fn broken(error: &hyper::Error) -> Error {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::UnexpectedEof => Error::refused(Code::IncompleteBody),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                    Error::refused_because(Code::InvalidRequest, "malformed transfer coding")
                }
                _ => Error::ClientGone,
            };
        }
        source = cause.source();
    }
    Error::ClientGone
}
