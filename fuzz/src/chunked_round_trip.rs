//! `aws-chunked` bodies made here: a byte each for the framing, the pieces of the encoder, those
//! of the decoder, the chunk size, and the place (two bytes) and kind of a change; then the
//! payload.

use std::num::NonZeroU64;

use bytes::Bytes;
use forebay_s3::checksum::{Algorithm, Checksum};
use forebay_s3::chunked::{Decoder, Encoder, Framing, encoded_bytes};
use forebay_s3::sigv4::PayloadMode;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::chunked_body::framing_of;
use crate::input::{Input, pieces};

/// What is encoded decodes to itself, in any pieces, and is as long as was foretold. With one
/// byte changed it is refused, or the change meant nothing.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let (framing, encode_seed, decode_seed) = (input.byte(), input.byte(), input.byte());
    let chunk_bytes = NonZeroU64::MIN.saturating_add(u64::from(input.byte()));
    let place = usize::from(input.byte()) << 8 | usize::from(input.byte());
    let change = input.byte();
    let payload = input.0;
    let trailers = trailers_for(&framing_of(framing), payload);
    let mut body = encode(framing, payload, chunk_bytes, encode_seed, &trailers);

    let mode = match framing_of(framing) {
        Framing::Signed(_) => PayloadMode::StreamingSigned,
        Framing::SignedTrailer(_) => PayloadMode::StreamingSignedTrailer,
        Framing::UnsignedTrailer | Framing::Unchecked => PayloadMode::StreamingUnsignedTrailer,
    };
    let lengths = trailers
        .iter()
        .map(|(name, value)| (name.as_str(), value.len()));
    let lengths: Vec<_> = lengths.collect();
    let foretold = encoded_bytes(mode, payload.len() as u64, chunk_bytes, &lengths);
    assert_eq!(body.len() as u64, foretold);

    let decoded = decode(framing, &body, decode_seed, payload.len(), &trailers);
    assert_eq!(decoded, Some((payload.to_vec(), trailers.clone())));

    // Counted from either end, so that small numbers reach the trailers as well.
    let at = place % body.len();
    for at in [at, body.len() - 1 - at] {
        body[at] ^= change.max(1);
        let decoded = decode(framing, &body, decode_seed, payload.len(), &trailers);
        if let Some((decoded, decoded_trailers)) = decoded {
            check_harmless(framing, (&decoded, payload), (&decoded_trailers, &trailers));
        }
        body[at] ^= change.max(1);
    }
}

/// Judges what was taken of a changed body, by what vouches for it: each pair is what came and
/// what was sent.
fn check_harmless(framing: u8, payload: (&[u8], &[u8]), trailers: (&HeaderMap, &HeaderMap)) {
    match framing_of(framing) {
        Framing::Signed(_) => assert_eq!(payload.0, payload.1),
        Framing::SignedTrailer(_) => {
            assert_eq!(payload.0, payload.1);
            assert_eq!(trailers.0, trailers.1);
        }
        // Nothing here vouches for the bytes; the trailer does, and that is not judged here.
        Framing::UnsignedTrailer | Framing::Unchecked => {
            assert_eq!(payload.0.len(), payload.1.len());
        }
    }
}

/// A checksum, where trailers may follow.
fn trailers_for(framing: &Framing, payload: &[u8]) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    match framing {
        Framing::Signed(_) => {}
        Framing::SignedTrailer(_) | Framing::UnsignedTrailer | Framing::Unchecked => {
            let checksum = Checksum::of(Algorithm::Crc32c, payload).to_base64();
            let value = HeaderValue::from_str(&checksum).expect("base64 is plain");
            trailers.insert(HeaderName::from_static(Algorithm::Crc32c.header()), value);
        }
    }
    trailers
}

fn encode(
    framing: u8,
    payload: &[u8],
    chunk_bytes: NonZeroU64,
    seed: u8,
    trailers: &HeaderMap,
) -> Vec<u8> {
    let mut encoder = Encoder::new(framing_of(framing), payload.len() as u64, chunk_bytes);
    let mut body = Vec::new();
    let mut out = |piece: Bytes| body.extend_from_slice(&piece);
    for piece in pieces(payload, seed) {
        encoder
            .push(piece, &mut out)
            .expect("no more than announced");
    }
    encoder
        .finish(trailers, &mut out)
        .expect("as much as announced");
    body
}

/// Payload and trailers; `None` when the body is refused.
fn decode(
    framing: u8,
    body: &[u8],
    seed: u8,
    payload_bytes: usize,
    trailers: &HeaderMap,
) -> Option<(Vec<u8>, HeaderMap)> {
    let announced = trailers.keys().cloned().collect();
    let mut decoder = Decoder::new(framing_of(framing), payload_bytes as u64, announced);
    let mut payload = Vec::new();
    for mut piece in pieces(body, seed) {
        while let Some(released) = decoder.decode(&mut piece).ok()? {
            payload.extend_from_slice(&released);
        }
    }
    Some((payload, decoder.finish().ok()?))
}
