//! The `aws-chunked` coding: chunks of a payload, each perhaps signed, with trailers after them.
//!
//! ```text
//! 10000;chunk-signature=<64 hex digits>\r\n    the size in hex; signed where the mode says so
//! <65536 bytes>\r\n
//! 0;chunk-signature=<64 hex digits>\r\n        the last chunk is empty
//! x-amz-checksum-crc32c:sOO8/Q==\r\n           trailers, where the mode has them
//! x-amz-trailer-signature:<64 hex digits>\r\n  where they are signed
//! \r\n
//! ```
//!
//! [`Decoder`] takes the body as it arrives and gives the payload on without a copy. A chunk is
//! never collected whole: its bytes are released before its signature is judged, so **an error
//! may come after bytes were released, and the request must then fail**. [`Encoder`] is the other
//! direction, with the exact length known ahead ([`encoded_bytes`]). [`Intake`] joins the decoder
//! with [`crate::checksum::Verifier`]: it is all that a payload goes through at the edge.
//!
//! S3 demands chunks of at least 8 KiB but for the last; that is not enforced here, since nothing
//! depends on it: the coding ends at the gateway.
//!
//! Sources: the pages "Transferring Payload in Multiple Chunks" and "Including Trailing Headers"
//! of the S3 API reference.

mod decode;
mod encode;
mod intake;
#[cfg(test)]
mod tests;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};

pub use decode::{ChunkedError, Decoder};
pub use encode::{EncodeError, Encoder, encoded_bytes};
pub use intake::{Intake, IntakeError, Received};

use crate::sigv4::ChunkSigner;

/// The longest line before a chunk: 16 hex digits, a signature, and room for an extension.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// The most that all trailers may take. S3's are checksums: at most some hundred bytes.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// The trailer that signs the others.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// How a payload is cut into chunks and what vouches for them.
#[derive(Clone, Debug)]
pub enum Framing {
    /// Each chunk is signed; no trailers.
    Signed(ChunkSigner),
    /// Each chunk is signed, and so are the trailers.
    SignedTrailer(ChunkSigner),
    /// Nothing is signed; trailers follow.
    UnsignedTrailer,
    /// Signatures may be there and are not looked at: for listeners whose signature check is
    /// switched off. Encodes like [`Framing::UnsignedTrailer`].
    Unchecked,
}

/// Takes `aws-chunked` out of `Content-Encoding`: it is a coding of the transfer, and must be
/// neither stored nor passed on. What else the header names stays; an empty one goes.
pub fn remove_aws_chunked(headers: &mut HeaderMap) {
    let is_coded = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| {
            text.split(',')
                .any(|coding| coding.trim().eq_ignore_ascii_case("aws-chunked"))
        })
    };
    if !headers.get_all(CONTENT_ENCODING).iter().any(is_coded) {
        return;
    }
    let kept: Vec<HeaderValue> = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .filter_map(|coding| HeaderValue::from_str(coding).ok())
        .collect();
    headers.remove(CONTENT_ENCODING);
    for coding in kept {
        headers.append(CONTENT_ENCODING, coding);
    }
}
