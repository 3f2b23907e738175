//! One body, given to several members at once.
//!
//! Pieces are shared, not copied. A member may be behind the quickest by [`PIECES_MAX`] pieces, so
//! at most so many are held; when one is so far behind that the others wait for it, for longer than
//! [`LAG_MAX`], it is cut off: its body ends in an error, and it does not get this write. A body
//! that ends in an error ends so for all of them.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use forebay_store::{Body, Error};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

/// Pieces that are held for the slowest member; of 64 KiB as they come, that is a MiB.
const PIECES_MAX: usize = 16;
/// Bytes of a piece at most.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are held at most.
pub(crate) const WINDOW_BYTES_MAX: u64 = (PIECES_MAX * PIECE_BYTES_MAX) as u64;
/// Time for which the others wait for a member that is behind. A stall of a healthy store (a
/// pause of its collector, a lost packet) is shorter; a guess.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(5);

/// What a member reads from.
struct Branch {
    pieces: mpsc::Receiver<Piece>,
    left: Option<u64>,
    is_over: bool,
}

enum Piece {
    Frame(Frame<Bytes>),
    /// The body is whole.
    End,
}

/// Gives a body out; to be driven beside those who read.
pub(crate) struct Tee {
    source: Body,
    branches: Vec<Option<mpsc::Sender<Piece>>>,
    alone_max: Duration,
}

impl Tee {
    /// Splits a body in so many; one that is left alone may stand still for `alone_max`.
    pub(crate) fn new(source: Body, count: usize, alone_max: Duration) -> (Self, Vec<Body>) {
        let length = source.length();
        let (senders, bodies) = (0..count)
            .map(|_| {
                let (sender, pieces) = mpsc::channel(PIECES_MAX);
                let branch = Branch {
                    pieces,
                    left: length,
                    is_over: false,
                };
                (Some(sender), Body::stream(branch))
            })
            .unzip();
        let tee = Self {
            source,
            branches: senders,
            alone_max,
        };
        (tee, bodies)
    }

    /// Gives all of it out.
    ///
    /// # Errors
    /// The body's own; all who read it have got one as well then.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        while let Some(frame) = self.source.frame().await {
            match frame?.into_data() {
                Ok(mut data) => {
                    while !data.is_empty() {
                        let piece = data.split_to(data.len().min(PIECE_BYTES_MAX));
                        self.give(|| Piece::Frame(Frame::data(piece.clone()))).await;
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.give(|| Piece::Frame(Frame::trailers(trailers.clone())))
                            .await;
                    }
                }
            }
            if self.branches.iter().all(Option::is_none) {
                return Ok(());
            }
        }
        self.give(|| Piece::End).await;
        Ok(())
    }

    /// Gives a piece to each who still reads.
    async fn give(&mut self, piece: impl Fn() -> Piece) {
        let has_others = self.branches.iter().flatten().count() > 1;
        for branch in &mut self.branches {
            let Some(sender) = branch else { continue };
            let lag_max = if has_others { LAG_MAX } else { self.alone_max };
            let sent = tokio::time::timeout(lag_max, sender.send(piece())).await;
            let sent = sent.is_ok_and(|sent| sent.is_ok());
            if !sent {
                *branch = None;
            }
        }
    }
}

impl HttpBody for Branch {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match std::task::ready!(self.pieces.poll_recv(cx)) {
            Some(Piece::Frame(frame)) => {
                if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
                    *left = left.saturating_sub(data.len() as u64);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Piece::End) => {
                self.is_over = true;
                Poll::Ready(None)
            }
            // The body broke off, or this member was too slow for the others.
            None => {
                self.is_over = true;
                Poll::Ready(Some(Err(Error::Cut {
                    reason: "the body of a write ended early".into(),
                })))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn source(pieces: usize) -> Body {
        let piece = Bytes::from(vec![7; PIECE_BYTES_MAX]);
        Body::pieces(VecDeque::from(vec![piece; pieces]))
    }

    #[tokio::test(start_paused = true)]
    async fn all_read_the_same_and_who_is_too_slow_is_cut_off() {
        let (tee, mut bodies) = Tee::new(source(PIECES_MAX * 2), 3, LAG_MAX);
        let slow = bodies.pop().unwrap();
        let readers = bodies.into_iter().map(|body| body.collect(usize::MAX));
        let (run, read) = tokio::join!(tee.run(), futures_util::future::join_all(readers));
        run.unwrap();
        for read in read {
            assert_eq!(read.unwrap().0.len(), PIECES_MAX * 2 * PIECE_BYTES_MAX);
        }
        let slow = slow.collect(usize::MAX).await;
        assert!(matches!(slow, Err(Error::Cut { .. })), "{slow:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_breaks_off_breaks_off_for_all_of_them() {
        let (whole, source_of_two) = (source(1), source(1));
        let (tee, broken) = Tee::new(source_of_two, 1, LAG_MAX);
        drop(tee);
        let broken = broken.into_iter().next().unwrap();
        let (tee, bodies) = Tee::new(broken, 2, LAG_MAX);
        let readers = bodies.into_iter().map(|body| body.collect(usize::MAX));
        let (run, read) = tokio::join!(tee.run(), futures_util::future::join_all(readers));
        assert!(run.is_err());
        assert!(
            read.iter()
                .all(|read| matches!(read, Err(Error::Cut { .. })))
        );
        let (tee, bodies) = Tee::new(whole, 2, LAG_MAX);
        assert_eq!(bodies[0].length(), Some(PIECE_BYTES_MAX as u64));
        drop((tee, bodies));
    }
}
