//! The bytes of a request or a response: what is there already, or a stream.
//!
//! The variants keep a cache hit lean: bytes in memory are handed to hyper as they are, with no
//! boxed stream and no copy. An error in a body means that the rest will never come; whoever reads
//! it must not take the bytes before it for the whole.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::Error;

/// A body that streams.
type BoxStream = Pin<Box<dyn HttpBody<Data = Bytes, Error = Error> + Send>>;

/// Bytes of a request or a response; yields data frames, then perhaps one frame of trailers.
#[derive(Default)]
pub struct Body {
    inner: Inner,
    /// Dropped with the body: a reservation of memory, a count of work in flight.
    guard: Option<Box<dyn Send>>,
}

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    /// One piece, the usual hit.
    Whole(Bytes),
    /// Pieces in order, and the bytes left in them.
    Pieces(VecDeque<Bytes>, u64),
    Stream(BoxStream),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Pieces in order, which together are the body.
    pub fn pieces(pieces: VecDeque<Bytes>) -> Self {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self {
            inner: Inner::Pieces(pieces, length),
            guard: None,
        }
    }

    /// A body that streams; its size hint, when exact, becomes the `Content-Length`.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes, Error = Error> + Send + 'static,
    {
        Self {
            inner: Inner::Stream(Box::pin(body)),
            guard: None,
        }
    }

    /// Keeps `guard` until the body is dropped, beside any guard it has already.
    #[must_use]
    pub fn holding(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(match self.guard.take() {
            Some(earlier) => Box::new((earlier, guard)),
            None => Box::new(guard),
        });
        self
    }

    /// Bytes left, when known.
    pub fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Reads the body to its end, up to `bytes_max` bytes, and the trailers, if any.
    ///
    /// # Errors
    /// The body's own error, or `EntityTooLarge` when it is longer.
    pub async fn collect(self, bytes_max: usize) -> Result<(Bytes, Option<HeaderMap>), Error> {
        let mut body = self;
        // Room for all of it at once: growing would copy what is there again and again.
        let room = body
            .length()
            .and_then(|length| usize::try_from(length).ok());
        let room = room.unwrap_or(0).min(bytes_max);
        let (mut first, mut joined, mut trailers) = (Bytes::new(), Vec::new(), None);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    if first.len().max(joined.len()) + data.len() > bytes_max {
                        return Err(Error::too_large(bytes_max));
                    }
                    if first.is_empty() {
                        first = data;
                    } else {
                        if joined.is_empty() {
                            joined.reserve_exact(room.max(first.len() + data.len()));
                            joined.extend_from_slice(&first);
                        }
                        joined.extend_from_slice(&data);
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Ok((
            if joined.is_empty() {
                first
            } else {
                joined.into()
            },
            trailers,
        ))
    }

    /// The next frame, or `None` at the end.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.inner {
            Inner::Empty => Poll::Ready(None),
            Inner::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.inner = Inner::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Inner::Pieces(pieces, left) => Poll::Ready(pieces.pop_front().map(|piece| {
                *left -= piece.len() as u64;
                Ok(Frame::data(piece))
            })),
            Inner::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Empty => true,
            Inner::Whole(_) => false,
            Inner::Pieces(pieces, _) => pieces.is_empty(),
            Inner::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Pieces(_, left) => SizeHint::with_exact(*left),
            Inner::Stream(stream) => stream.size_hint(),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        let inner = if bytes.is_empty() {
            Inner::Empty
        } else {
            Inner::Whole(bytes)
        };
        Self { inner, guard: None }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.inner {
            Inner::Empty => "empty",
            Inner::Whole(_) => "whole",
            Inner::Pieces(..) => "pieces",
            Inner::Stream(_) => "stream",
        };
        f.debug_struct("Body")
            .field("kind", &kind)
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_knows_its_length_and_gives_its_pieces_in_order() {
        let pieces = VecDeque::from([Bytes::from_static(b"ab"), Bytes::from_static(b"cde")]);
        let mut body = Body::pieces(pieces);
        assert_eq!(body.length(), Some(5));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((&first[..], body.length()), (&b"ab"[..], Some(3)));
        assert_eq!(body.collect(3).await.unwrap().0, "cde");
    }

    #[tokio::test]
    async fn collecting_more_than_the_limit_is_refused() {
        let body = || Body::from("abcd");
        assert_eq!(body().collect(4).await.unwrap().0, "abcd");
        assert!(matches!(body().collect(3).await, Err(Error::Refused(_))));
    }

    #[test]
    fn guards_live_as_long_as_the_body() {
        let counter = std::sync::Arc::new(());
        let body = Body::empty()
            .holding(counter.clone())
            .holding(counter.clone());
        assert_eq!(std::sync::Arc::strong_count(&counter), 3);
        drop(body);
        assert_eq!(std::sync::Arc::strong_count(&counter), 1);
    }
}
