//! Bodies for tests: that break, that stall, that have trailers, that come in pieces.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};

use crate::{Body, Error};

/// What a scripted body does next.
#[derive(Debug)]
pub enum Step {
    /// Yields these bytes.
    Data(Bytes),
    /// Yields these trailers.
    Trailers(HeaderMap),
    /// Is pending once, and wakes itself.
    Wait,
    /// Fails.
    Fail(Error),
    /// Is pending for ever.
    Hang,
}

/// A body that does these things in order, then ends; it tells no length.
pub fn scripted(steps: impl IntoIterator<Item = Step>) -> Body {
    Body::stream(Scripted(steps.into_iter().collect()))
}

/// `bytes`, then an error as of a client that went away.
pub fn broken(bytes: &'static [u8]) -> Body {
    scripted([
        Step::Data(Bytes::from_static(bytes)),
        Step::Fail(Error::ClientGone),
    ])
}

/// `bytes`, then one trailer.
///
/// # Panics
/// When the trailer's name or value can't be one.
pub fn with_trailer(bytes: &'static [u8], name: &'static str, value: &str) -> Body {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, value.parse().expect("a header value"));
    scripted([
        Step::Data(Bytes::from_static(bytes)),
        Step::Trailers(trailers),
    ])
}

/// `bytes` in pieces of at most `piece_bytes`, with a pause before each.
pub fn in_pieces(bytes: &[u8], piece_bytes: usize) -> Body {
    scripted(
        bytes
            .chunks(piece_bytes)
            .flat_map(|piece| [Step::Wait, Step::Data(Bytes::copy_from_slice(piece))]),
    )
}

#[derive(Debug)]
struct Scripted(VecDeque<Step>);

impl HttpBody for Scripted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(Step::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Step::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Fail(error)) => Poll::Ready(Some(Err(error))),
            Some(Step::Hang) => {
                self.0.push_front(Step::Hang);
                Poll::Pending
            }
        }
    }
}
