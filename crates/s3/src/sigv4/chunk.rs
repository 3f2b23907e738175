//! The rolling signature of a streamed payload.
//!
//! Each chunk's signature covers the one before it, the first chunk covers the request's own
//! (seed) signature, and the trailers cover the last chunk's. Used by [`crate::chunked`] in both
//! directions.

use super::{EMPTY_SHA256, Signature, SigningKey, hex};
use crate::time::AmzDate;

/// Signs the chunks of one payload, in order.
#[derive(Clone, Debug)]
pub struct ChunkSigner {
    key: SigningKey,
    /// `timestamp\nscope\n`, the same for every chunk.
    context: Box<str>,
    previous: Signature,
}

impl ChunkSigner {
    /// Starts from the signature of the request that carries the payload.
    pub fn new(key: SigningKey, date: &AmzDate, scope: &str, seed: Signature) -> Self {
        Self {
            key,
            context: format!("{date}\n{scope}\n").into(),
            previous: seed,
        }
    }

    /// Signs a chunk by the SHA-256 of its bytes, and moves on to the next one.
    pub fn sign_chunk(&mut self, chunk_sha256: &[u8; 32]) -> Signature {
        let digest = hex(chunk_sha256);
        self.previous = self.key.sign(&[
            b"AWS4-HMAC-SHA256-PAYLOAD\n",
            self.context.as_bytes(),
            self.previous.as_bytes(),
            b"\n",
            EMPTY_SHA256.as_bytes(),
            b"\n",
            digest.as_bytes(),
        ]);
        self.previous
    }

    /// Signs the trailers by the SHA-256 of their lines, `name:value\n` each.
    pub fn sign_trailers(&mut self, trailers_sha256: &[u8; 32]) -> Signature {
        let digest = hex(trailers_sha256);
        self.previous = self.key.sign(&[
            b"AWS4-HMAC-SHA256-TRAILER\n",
            self.context.as_bytes(),
            self.previous.as_bytes(),
            b"\n",
            digest.as_bytes(),
        ]);
        self.previous
    }
}
