//! What a request says about its payload: the value of `x-amz-content-sha256`.

use sha2::{Digest, Sha256};

use super::hex;
use crate::time::Text;

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const STREAMING_SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const STREAMING_SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const STREAMING_UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// How the payload of a request is framed and what vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadMode {
    /// Plain bytes with this SHA-256.
    Sha256([u8; 32]),
    /// Plain bytes that the signature does not cover.
    Unsigned,
    /// `aws-chunked`, each chunk signed.
    StreamingSigned,
    /// `aws-chunked`, each chunk and the trailers signed.
    StreamingSignedTrailer,
    /// `aws-chunked` with trailers, nothing of it signed.
    StreamingUnsignedTrailer,
}

impl PayloadMode {
    /// Reads the header's value; `None` when S3 would not know it.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            UNSIGNED => Some(Self::Unsigned),
            STREAMING_SIGNED => Some(Self::StreamingSigned),
            STREAMING_SIGNED_TRAILER => Some(Self::StreamingSignedTrailer),
            STREAMING_UNSIGNED_TRAILER => Some(Self::StreamingUnsignedTrailer),
            _ => parse_hex(value).map(Self::Sha256),
        }
    }

    /// The payload of a request without one.
    pub fn empty() -> Self {
        Self::Sha256(Sha256::digest(b"").into())
    }

    /// The header's value.
    pub fn value(&self) -> PayloadText {
        match self {
            Self::Sha256(digest) => PayloadText::Digest(hex(digest)),
            Self::Unsigned => PayloadText::Word(UNSIGNED),
            Self::StreamingSigned => PayloadText::Word(STREAMING_SIGNED),
            Self::StreamingSignedTrailer => PayloadText::Word(STREAMING_SIGNED_TRAILER),
            Self::StreamingUnsignedTrailer => PayloadText::Word(STREAMING_UNSIGNED_TRAILER),
        }
    }

    /// Whether the body on the wire is in the `aws-chunked` coding.
    pub const fn is_chunked(&self) -> bool {
        match self {
            Self::Sha256(_) | Self::Unsigned => false,
            Self::StreamingSigned
            | Self::StreamingSignedTrailer
            | Self::StreamingUnsignedTrailer => true,
        }
    }
}

/// The text of a payload mode, held without an allocation.
#[derive(Clone, Copy, Debug)]
pub enum PayloadText {
    /// The hex of a digest.
    Digest(Text<64>),
    /// One of the fixed words.
    Word(&'static str),
}

impl PayloadText {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Digest(text) => text.as_str(),
            Self::Word(word) => word,
        }
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let (mut digest, mut seen) = ([0; 32], 0);
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | low & 0x0F;
    }
    // Looked at once: a branch for each digit would be most of the time that this takes.
    (seen & NO_DIGIT == 0).then_some(digest)
}

/// What [`NIBBLES`] has for a byte that is no hex digit.
const NO_DIGIT: u8 = 0x80;

/// The value of each hex digit, in either case.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value as usize] as usize] = value;
        nibbles[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    nibbles
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_prints_what_it_parses() {
        for text in [
            UNSIGNED,
            STREAMING_SIGNED,
            STREAMING_SIGNED_TRAILER,
            STREAMING_UNSIGNED_TRAILER,
            crate::sigv4::EMPTY_SHA256,
        ] {
            let mode = PayloadMode::parse(text).unwrap();
            assert_eq!(mode.value().as_str(), text);
            assert_eq!(mode.is_chunked(), text.starts_with("STREAMING"));
        }
    }

    #[test]
    fn an_empty_payload_has_the_hash_of_nothing() {
        assert_eq!(
            PayloadMode::empty().value().as_str(),
            crate::sigv4::EMPTY_SHA256
        );
    }

    #[test]
    fn other_values_are_refused() {
        let almost = "g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for text in [
            "",
            "unsigned-payload",
            "e3b0",
            almost,
            "STREAMING-AWS4-ECDSA-P256-SHA256",
        ] {
            assert_eq!(PayloadMode::parse(text), None, "{text}");
        }
    }
}
