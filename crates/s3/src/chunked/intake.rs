//! All that a payload goes through at the edge: decoded where it is `aws-chunked`, and judged by
//! everything that its request declares.

use bytes::Bytes;
use http::HeaderMap;

use super::Framing;
use super::decode::{ChunkedError, Decoder};
use crate::checksum::{
    Algorithm, ChecksumHeader, DeclarationError, Digests, Expected, PayloadError, Verifier,
};
use crate::sigv4::{ChunkSigner, PayloadMode};

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// Its declarations cannot be read, or contradict one another.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// Its coding is broken or its chunks are not what was signed.
    #[error(transparent)]
    Chunked(#[from] ChunkedError),
    /// It is not what was declared.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl IntakeError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Declaration(error) => error.code(),
            Self::Chunked(error) => error.code(),
            Self::Payload(error) => error.code(),
        }
    }

    /// The elements that S3 adds to the error document of this code, by name.
    pub fn extras(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Declaration(_) | Self::Chunked(_) => Vec::new(),
            Self::Payload(error) => error.extras(),
        }
    }
}

/// What came, once all of it came and was as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What was computed of it.
    pub digests: Digests,
    /// The trailers that followed it, without their signature.
    pub trailers: HeaderMap,
}

/// Takes one payload in. Bytes that it gave on are only good once [`Intake::finish`] says so.
#[derive(Debug)]
pub struct Intake {
    /// `None` for a payload that is not `aws-chunked`.
    decoder: Option<Decoder>,
    verifier: Verifier,
}

impl Intake {
    /// Reads what `headers` declare about the payload. `signer` is the request's
    /// [`crate::sigv4::Verified::chunk_signer`]; without one (a request that is anonymous, or a
    /// listener that checks no signatures) chunk signatures are not looked at.
    ///
    /// # Errors
    /// A declaration that cannot be read or contradicts another.
    pub fn new(
        headers: &HeaderMap,
        payload: PayloadMode,
        about: ChecksumHeader,
        signer: Option<ChunkSigner>,
    ) -> Result<Self, IntakeError> {
        let expected = Expected::from_headers(headers, payload, about)?;
        let framing = match (payload, signer) {
            (PayloadMode::Sha256(_) | PayloadMode::Unsigned, _) => None,
            (PayloadMode::StreamingSigned, Some(signer)) => Some(Framing::Signed(signer)),
            (PayloadMode::StreamingSignedTrailer, Some(signer)) => {
                Some(Framing::SignedTrailer(signer))
            }
            (PayloadMode::StreamingUnsignedTrailer, _) => Some(Framing::UnsignedTrailer),
            (PayloadMode::StreamingSigned | PayloadMode::StreamingSignedTrailer, None) => {
                Some(Framing::Unchecked)
            }
        };
        let length = expected.length.unwrap_or_default();
        let decoder =
            framing.map(|framing| Decoder::new(framing, length, expected.trailers.clone()));
        Ok(Self {
            decoder,
            verifier: Verifier::new(expected),
        })
    }

    /// Also computes the MD5, for an `ETag`.
    #[must_use]
    pub fn with_md5(mut self) -> Self {
        self.verifier = self.verifier.with_md5();
        self
    }

    /// Also computes a checksum, where the request declared none.
    #[must_use]
    pub fn with_checksum(mut self, algorithm: Algorithm) -> Self {
        self.verifier = self.verifier.with_checksum(algorithm);
        self
    }

    /// What the request declared.
    pub const fn expected(&self) -> &Expected {
        self.verifier.expected()
    }

    /// Takes from the front of `input` and gives the next piece of the payload; `None` when
    /// `input` is used up. Call until then, with each piece of the body.
    ///
    /// # Errors
    /// What can be told before the end: broken coding, chunk signatures, too many bytes.
    pub fn take(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, IntakeError> {
        let piece = match &mut self.decoder {
            Some(decoder) => decoder.decode(input)?,
            None if input.is_empty() => None,
            None => Some(std::mem::take(input)),
        };
        if let Some(piece) = &piece {
            self.verifier.update(piece)?;
        }
        Ok(piece)
    }

    /// Judges the payload at its end.
    ///
    /// # Errors
    /// Whatever is missing or not as declared. The request must then fail, and nothing be stored.
    pub fn finish(self) -> Result<Received, IntakeError> {
        let trailers = self
            .decoder
            .map_or_else(|| Ok(HeaderMap::new()), Decoder::finish)?;
        let digests = self.verifier.finish(&trailers)?;
        Ok(Received { digests, trailers })
    }
}
