//! The plain TCP socket of a connection: one `writev` for head and body, and `sendfile` for what
//! lies in a file.
//!
//! hyper hands over its head and the body's pieces as slices. A piece that [`forebay_pages`]
//! finds in an arena leaves by `sendfile`, so its bytes are not copied; what stands before it
//! leaves first. Everything else is one `writev`.
//!
//! `MSG_MORE`, which would put the head into the same segment as the first bytes from the file,
//! is left out: at 100 KiB, on loopback, it doubled the CPU time of a request (30 against 16 µs).
//!
//! Why bytes in flight may be trusted not to change: see `forebay_pages`.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::pulse::Pulse;

/// A slice this long is worth a `sendfile` of its own: arenas keep nothing shorter either
/// (`forebay_pages::arena::STORED_BYTES_MIN`, where the measurement is), but a range of a page
/// may be.
const SENDFILE_BYTES_MIN: usize = 32 * 1024;

/// A client's socket that notes its signs of life.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    pulse: Arc<Pulse>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }

    /// Sends some of the slices, as much as the socket takes at once.
    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let located = slices
            .iter()
            .enumerate()
            .filter(|(_, slice)| slice.len() >= SENDFILE_BYTES_MIN)
            .find_map(|(index, slice)| Some((index, forebay_pages::locate(slice)?)));
        let sent_bytes = match located {
            Some((0, found)) => {
                let mut offset = found.offset;
                rustix::fs::sendfile(&self.stream, found.fd, Some(&mut offset), slices[0].len())?
            }
            Some((index, _)) => rustix::io::writev(&self.stream, &slices[..index])?,
            None => rustix::io::writev(&self.stream, slices)?,
        };
        Ok(sent_bytes)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.pulse.read();
        Poll::Ready(result)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_write_ready(cx) else {
                self.pulse.write_is_blocked();
                return Poll::Pending;
            };
            ready?;
            match self.stream.try_io(Interest::WRITABLE, || self.send(slices)) {
                Ok(sent_bytes) => {
                    self.pulse.wrote(sent_bytes);
                    return Poll::Ready(Ok(sent_bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
