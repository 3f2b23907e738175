//! Takes a request body in, in pieces of a bounded size.
//!
//! An engine writes a piece at a time, so it holds no more of a body than one piece, and makes one
//! call to its disk for it. The buffers are the ones the body came in: nothing is copied.

use bytes::Bytes;
use forebay_s3::code::Code;
use forebay_store::{Body, Error};
use http::HeaderMap;

/// Most bytes of one upload or part: S3's limit of 5 GiB.
pub const UPLOAD_BYTES_MAX: u64 = 5 << 30;

/// A body, in pieces.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    piece_bytes_max: usize,
    left_bytes_max: u64,
    /// A frame that did not fit into the piece before.
    pending: Option<Bytes>,
}

/// Some bytes of a body.
#[derive(Debug, Default)]
pub struct Piece {
    /// The bytes, in order.
    pub chunks: Vec<Bytes>,
    /// What follows.
    pub then: Then,
}

/// What follows a piece.
#[derive(Debug, Default)]
pub enum Then {
    /// Another piece.
    #[default]
    More,
    /// Nothing, but for these trailers.
    End(Option<HeaderMap>),
}

impl Pieces {
    /// Reads `body` in pieces of about `piece_bytes_max` bytes: a frame is never cut.
    pub fn new(body: Body, piece_bytes_max: usize) -> Self {
        Self {
            body,
            piece_bytes_max,
            left_bytes_max: UPLOAD_BYTES_MAX,
            pending: None,
        }
    }

    /// The next piece.
    ///
    /// # Errors
    /// The body's own, or `EntityTooLarge` past S3's limit.
    ///
    /// # Cancel safety
    /// A dropped future loses the bytes it has read: do not go on after it.
    pub async fn next(&mut self) -> Result<Piece, Error> {
        let mut piece = Piece::default();
        let mut size_bytes = 0;
        if let Some(chunk) = self.pending.take() {
            size_bytes = chunk.len();
            piece.chunks.push(chunk);
        }
        let mut trailers = None;
        while let Some(frame) = self.body.frame().await {
            match frame?.into_data() {
                Ok(chunk) if chunk.is_empty() => {}
                Ok(chunk) => {
                    self.left_bytes_max = self
                        .left_bytes_max
                        .checked_sub(chunk.len() as u64)
                        .ok_or_else(|| Error::refused(Code::EntityTooLarge))?;
                    let fits = size_bytes + chunk.len() <= self.piece_bytes_max;
                    if !fits && size_bytes > 0 {
                        self.pending = Some(chunk);
                        return Ok(piece);
                    }
                    size_bytes += chunk.len();
                    piece.chunks.push(chunk);
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        piece.then = Then::End(trailers);
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_join_small_frames_and_never_cut_one() {
        let frames = ["ab", "", "cd", "efghij", "k"].map(Bytes::from);
        let mut pieces = Pieces::new(Body::pieces(frames.into()), 4);
        let mut seen = Vec::new();
        loop {
            let piece = pieces.next().await.unwrap();
            seen.push(piece.chunks.concat());
            if matches!(piece.then, Then::End(_)) {
                break;
            }
        }
        assert_eq!(seen, [&b"abcd"[..], b"efghij", b"k"]);
    }
}
