//! The body of a blob: its chunks in order, two asked for ahead of whoever reads.

use std::{
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use forebay_store::Error;
use futures_util::{
    future::BoxFuture,
    stream::{FuturesOrdered, Stream as _},
};
use http_body::{Frame, SizeHint};

use super::{Named, RedisBlobs, Turn};
use crate::keys::Shard;

/// Chunks of one body that are asked for ahead of its reader.
const AHEAD_MAX: usize = 2;

/// A blob being read.
pub(super) struct Reader {
    pub(super) blobs: RedisBlobs,
    pub(super) shard: Shard,
    pub(super) named: Arc<Named>,
    /// Chunks that were not asked for yet.
    pub(super) chunks: Range<u64>,
    /// The first chunk, until it is given.
    pub(super) first: Option<Bytes>,
    /// Bytes of the next chunk that are before what is read.
    pub(super) skip: usize,
    pub(super) left: u64,
    pub(super) ahead: FuturesOrdered<BoxFuture<'static, Result<Bytes, Error>>>,
}

impl Reader {
    fn ask_ahead(&mut self) {
        while self.ahead.len() < AHEAD_MAX && !self.chunks.is_empty() {
            let index = self.chunks.start;
            self.chunks.start += 1;
            let (blobs, shard, named) = (self.blobs.clone(), self.shard, self.named.clone());
            let asking = async move { blobs.chunk(shard, &named, index, Turn::Later).await };
            self.ahead.push_back(Box::pin(asking));
        }
    }
}

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.ask_ahead();
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.ahead).poll_next(cx),
        };
        match next {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => {
                self.left = 0;
                self.ahead = FuturesOrdered::new();
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(Some(Ok(mut chunk))) => {
                let skip = std::mem::take(&mut self.skip);
                let mut chunk = chunk.split_off(skip.min(chunk.len()));
                chunk.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= chunk.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
