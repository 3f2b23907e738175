//! The bytes of an open file as a body, a piece at a time, each read on a blocking thread.

use std::{
    future::Future as _,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_store::{Body, Error};
use http_body::{Body as HttpBody, Frame, SizeHint};
use rustix::{fd::OwnedFd, io::Errno};
use tokio::task::JoinHandle;

use crate::fault;

/// Bytes read at once: large enough that a hop to a blocking thread does not count, small enough
/// that a thousand downloads fit into memory. A guess, revisit with `bench`.
pub(crate) const PIECE_BYTES: u64 = 256 * 1024;

/// The bytes `span` of `file`, of which `first` have been read already.
pub(crate) fn of_file(file: OwnedFd, span: Range<u64>, first: Bytes) -> Body {
    let position = span.start + first.len() as u64;
    if position == span.end {
        return first.into();
    }
    let first = Some(first).filter(|bytes| !bytes.is_empty());
    Body::stream(FileBody {
        file: Arc::new(file),
        position,
        end: span.end,
        first,
        reading: None,
    })
}

/// Reads the bytes `span` of a file, at most one piece of them.
pub(crate) fn read_piece(file: &OwnedFd, span: Range<u64>) -> Result<Bytes, Error> {
    let length = usize::try_from((span.end - span.start).min(PIECE_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let offset = span.start + bytes.len() as u64;
        let room = rustix::buffer::spare_capacity(&mut bytes);
        match rustix::io::pread(file, room, offset) {
            Ok(0) => {
                let reason = "the file became shorter while it was read";
                return Err(Error::Cut {
                    reason: reason.into(),
                });
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(fault::of_io("read a file", error)),
        }
    }
    bytes.truncate(length);
    Ok(bytes.into())
}

struct FileBody {
    file: Arc<OwnedFd>,
    position: u64,
    end: u64,
    first: Option<Bytes>,
    reading: Option<JoinHandle<Result<Bytes, Error>>>,
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.position == self.end {
            return Poll::Ready(None);
        }
        let span = self.position..self.end;
        let file = Arc::clone(&self.file);
        let reading = self
            .reading
            .get_or_insert_with(|| tokio::task::spawn_blocking(move || read_piece(&file, span)));
        let piece = match ready!(Pin::new(reading).poll(cx)) {
            Ok(piece) => piece,
            Err(panic) => Err(Error::internal("read a file", panic)),
        };
        self.reading = None;
        match &piece {
            Ok(bytes) => self.position += bytes.len() as u64,
            // Whoever asks again after an error gets the end, not the error again.
            Err(_) => self.position = self.end,
        }
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.position == self.end
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |bytes| bytes.len() as u64);
        SizeHint::with_exact(self.end - self.position + first)
    }
}
