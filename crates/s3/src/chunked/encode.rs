//! Puts a payload into the `aws-chunked` coding, with the encoded length known ahead.
//!
//! Unsigned chunks pass through as they come: a chunk's line needs only its size, which follows
//! from the total. A signed chunk waits until its bytes are there, since its signature stands
//! before them; so at most one chunk is held, as the pieces it came in.

use std::num::NonZeroU64;

use bytes::Bytes;
use http::HeaderMap;
use sha2::{Digest, Sha256};

use super::decode::trailers_sha256;
use super::{Framing, TRAILER_SIGNATURE};
use crate::sigv4::{ChunkSigner, PayloadMode};

const SIGNATURE_EXTENSION: &str = ";chunk-signature=";
const SIGNATURE_BYTES: u64 = 64;

/// A payload that is not as long as was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload has {received} bytes, {expected} were announced")]
pub struct EncodeError {
    /// The announced length.
    pub expected: u64,
    /// The bytes pushed.
    pub received: u64,
}

/// Encodes one payload.
#[derive(Debug)]
pub struct Encoder {
    chunks: Chunks,
    chunk_bytes: NonZeroU64,
    expected_bytes: u64,
    received_bytes: u64,
    /// What the chunk that is being filled still lacks.
    missing_bytes: u64,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per request, and it stays put"
)]
enum Chunks {
    Unsigned,
    Signed {
        signer: ChunkSigner,
        trailers: TrailersSigned,
        hash: Sha256,
        pending: Vec<Bytes>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailersSigned {
    No,
    Yes,
}

impl Encoder {
    /// Prepares for a payload of `payload_bytes`, cut into chunks of `chunk_bytes` but for the
    /// last.
    pub fn new(framing: Framing, payload_bytes: u64, chunk_bytes: NonZeroU64) -> Self {
        let vouched = |signer, trailers| Chunks::Signed {
            signer,
            trailers,
            hash: Sha256::new(),
            pending: Vec::new(),
        };
        let chunks = match framing {
            Framing::Signed(signer) => vouched(signer, TrailersSigned::No),
            Framing::SignedTrailer(signer) => vouched(signer, TrailersSigned::Yes),
            Framing::UnsignedTrailer | Framing::Unchecked => Chunks::Unsigned,
        };
        Self {
            chunks,
            chunk_bytes,
            expected_bytes: payload_bytes,
            received_bytes: 0,
            missing_bytes: 0,
        }
    }

    /// Takes the next piece of the payload and gives what is ready to send to `out`.
    ///
    /// # Errors
    /// More bytes than announced.
    pub fn push(
        &mut self,
        mut piece: Bytes,
        out: &mut impl FnMut(Bytes),
    ) -> Result<(), EncodeError> {
        let received = self.received_bytes + piece.len() as u64;
        if received > self.expected_bytes {
            return Err(EncodeError {
                expected: self.expected_bytes,
                received,
            });
        }
        while !piece.is_empty() {
            if self.missing_bytes == 0 {
                self.missing_bytes = self
                    .chunk_bytes
                    .get()
                    .min(self.expected_bytes - self.received_bytes);
                if let Chunks::Unsigned = self.chunks {
                    out(format!("{:x}\r\n", self.missing_bytes).into());
                }
            }
            let len = usize::try_from(self.missing_bytes)
                .unwrap_or(usize::MAX)
                .min(piece.len());
            let part = piece.split_to(len);
            self.received_bytes += len as u64;
            self.missing_bytes -= len as u64;
            self.put(part, out);
        }
        Ok(())
    }

    /// Ends the payload: gives the last chunk and the trailers to `out`.
    ///
    /// # Errors
    /// Fewer bytes than announced.
    pub fn finish(
        self,
        trailers: &HeaderMap,
        out: &mut impl FnMut(Bytes),
    ) -> Result<(), EncodeError> {
        let (expected, received) = (self.expected_bytes, self.received_bytes);
        if received != expected {
            return Err(EncodeError { expected, received });
        }
        let mut end = Vec::new();
        match self.chunks {
            Chunks::Unsigned => {
                end.extend_from_slice(b"0\r\n");
                put_trailers(&mut end, trailers);
            }
            Chunks::Signed {
                mut signer,
                trailers: signed,
                ..
            } => {
                let signature = signer.sign_chunk(&Sha256::digest(b"").into());
                end.extend_from_slice(format!("0{SIGNATURE_EXTENSION}{signature}\r\n").as_bytes());
                match signed {
                    TrailersSigned::No => {}
                    TrailersSigned::Yes => {
                        put_trailers(&mut end, trailers);
                        let signature = signer.sign_trailers(&trailers_sha256(trailers));
                        let line = format!("{TRAILER_SIGNATURE}:{signature}\r\n");
                        end.extend_from_slice(line.as_bytes());
                    }
                }
            }
        }
        end.extend_from_slice(b"\r\n");
        out(end.into());
        Ok(())
    }

    /// Adds a part of the current chunk, and ends the chunk when it is full.
    fn put(&mut self, part: Bytes, out: &mut impl FnMut(Bytes)) {
        let is_full = self.missing_bytes == 0;
        match &mut self.chunks {
            Chunks::Unsigned => out(part),
            Chunks::Signed {
                signer,
                hash,
                pending,
                ..
            } => {
                hash.update(&part);
                pending.push(part);
                if !is_full {
                    return;
                }
                let size: usize = pending.iter().map(Bytes::len).sum();
                let signature = signer.sign_chunk(&hash.finalize_reset().into());
                out(format!("{size:x}{SIGNATURE_EXTENSION}{signature}\r\n").into());
                pending.drain(..).for_each(&mut *out);
            }
        }
        if is_full {
            out(Bytes::from_static(b"\r\n"));
        }
    }
}

fn put_trailers(end: &mut Vec<u8>, trailers: &HeaderMap) {
    for (name, value) in trailers {
        end.extend_from_slice(name.as_str().as_bytes());
        end.push(b':');
        end.extend_from_slice(value.as_bytes());
        end.extend_from_slice(b"\r\n");
    }
}

/// The length of a payload once encoded; of one that is not chunked, its own. Each trailer counts
/// with the lengths of its name and value.
pub fn encoded_bytes(
    mode: PayloadMode,
    payload_bytes: u64,
    chunk_bytes: NonZeroU64,
    trailers: &[(&str, usize)],
) -> u64 {
    let signature = SIGNATURE_EXTENSION.len() as u64 + SIGNATURE_BYTES;
    let trailer = |(name, value_bytes): &(&str, usize)| (name.len() + 1 + value_bytes + 2) as u64;
    let trailers: u64 = trailers.iter().map(trailer).sum();
    let (extension, trailers) = match mode {
        PayloadMode::Sha256(_) | PayloadMode::Unsigned => return payload_bytes,
        PayloadMode::StreamingSigned => (signature, 0),
        PayloadMode::StreamingSignedTrailer => (
            signature,
            trailers + TRAILER_SIGNATURE.len() as u64 + 1 + SIGNATURE_BYTES + 2,
        ),
        PayloadMode::StreamingUnsignedTrailer => (0, trailers),
    };
    let chunk = |size: u64| hex_digits(size) + extension + 2 + size + 2;
    let (full, rest) = (payload_bytes / chunk_bytes, payload_bytes % chunk_bytes);
    let rest = if rest == 0 { 0 } else { chunk(rest) };
    // The last chunk's two line ends enclose the trailers.
    full * chunk(chunk_bytes.get()) + rest + chunk(0) + trailers
}

/// How many hex digits a number takes.
const fn hex_digits(value: u64) -> u64 {
    match value {
        0 => 1,
        _ => (value.ilog2() / 4 + 1) as u64,
    }
}
