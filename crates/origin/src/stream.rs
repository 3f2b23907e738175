//! A socket to the origin, plain or under TLS.
//!
//! One peculiarity: **a failed write waits for what can be read**. An origin that refuses an upload
//! early answers and closes; the next write then fails while the answer lies unread in the socket.
//! So a write error is kept back and the write stays pending: reading goes on, gives the answer if
//! there is one, and then ends.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use forebay_telemetry::origin::OriginMetrics;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// A TCP socket as it was dialled.
#[derive(Debug)]
pub(crate) enum Tcp {
    /// The machine's.
    Machine(TcpStream),
    /// One of a simulated network.
    #[cfg(test)]
    Simulated(turmoil::net::TcpStream),
}

/// A TCP socket, counted while it is open.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: Tcp,
    writing: Writing,
    _open: Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    Works,
    Failed,
}

/// Counts a socket while it lives.
#[derive(Debug)]
pub(crate) struct Open {
    count: Arc<AtomicUsize>,
    metrics: Arc<OriginMetrics>,
}

impl Open {
    /// Counts one more.
    pub(crate) fn new(count: &Arc<AtomicUsize>, metrics: &Arc<OriginMetrics>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        metrics.connections.inc();
        Self {
            count: Arc::clone(count),
            metrics: Arc::clone(metrics),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.metrics.connections.dec();
    }
}

impl Socket {
    pub(crate) fn new(tcp: Tcp, open: Open) -> Self {
        Self {
            tcp,
            writing: Writing::Works,
            _open: open,
        }
    }

    fn poll_write_with(
        mut self: Pin<&mut Self>,
        write: impl FnOnce(Pin<&mut Tcp>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.writing == Writing::Failed {
            return Poll::Pending;
        }
        match write(Pin::new(&mut self.tcp)) {
            Poll::Ready(Err(_)) => {
                self.writing = Writing::Failed;
                Poll::Pending
            }
            other => other,
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Machine(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            #[cfg(test)]
            Self::Simulated(tcp) => Pin::new(tcp).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Machine(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            #[cfg(test)]
            Self::Simulated(tcp) => Pin::new(tcp).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Machine(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            #[cfg(test)]
            Self::Simulated(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Machine(tcp) => Pin::new(tcp).poll_flush(cx),
            #[cfg(test)]
            Self::Simulated(tcp) => Pin::new(tcp).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Machine(tcp) => Pin::new(tcp).poll_shutdown(cx),
            #[cfg(test)]
            Self::Simulated(tcp) => Pin::new(tcp).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|tcp| tcp.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|tcp| tcp.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Goal: what an origin said before it reset the connection is not lost to a failed write.
    /// Method: write, as hyper does with the rest of a payload, until the kernel says no; read.
    #[tokio::test]
    async fn a_failed_write_leaves_what_was_said_before_to_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tcp, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut peer, _) = accepted.unwrap();
        let (count, metrics) = (Arc::default(), Arc::new(OriginMetrics::default()));
        let mut socket = Socket::new(Tcp::Machine(tcp.unwrap()), Open::new(&count, &metrics));
        socket.write_all(b"unread").await.unwrap();
        peer.readable().await.unwrap();
        peer.write_all(b"refused").await.unwrap();
        // Closing with bytes unread resets the connection.
        drop(peer);
        // The reset is there when writing no longer works; that must not show as an error.
        while socket.writing == Writing::Works {
            let writing = std::future::poll_fn(|cx| {
                Poll::Ready(Pin::new(&mut socket).poll_write(cx, b"more"))
            });
            assert!(!matches!(writing.await, Poll::Ready(Err(_))));
            tokio::task::yield_now().await;
        }
        let mut said = [0; 7];
        socket.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"refused");
        // The kernel told the write of the reset, so reading just ends.
        assert_eq!(socket.read(&mut said).await.unwrap_or(0), 0);
        drop(socket);
        assert_eq!(
            (count.load(Ordering::Relaxed), metrics.connections.get()),
            (0, 0)
        );
    }
}
