//! `aws-chunked` bodies as a stranger may send them: a byte for the framing, a byte for the
//! pieces, a byte for the announced trailers, a line with the decoded length, then the body.

use forebay_s3::checksum::Algorithm;
use forebay_s3::chunked::{ChunkedError, Decoder, Framing};
use forebay_s3::sigv4::{ChunkSigner, SecretKey, SigningKey};
use forebay_s3::time::AmzDate;
use http::{HeaderMap, HeaderName};

use crate::input::{Input, pieces};

/// The outcome does not depend on how the body arrives; no more is released than was declared.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let (framing, seed, announced) = (input.byte(), input.byte(), input.byte());
    let expected_bytes: u64 = input.text_line().parse().unwrap_or(5);
    let decoder = || Decoder::new(framing_of(framing), expected_bytes, trailers_of(announced));
    let whole = decode(decoder(), input.0, 0, expected_bytes);
    let split = decode(decoder(), input.0, seed.max(1), expected_bytes);
    assert_eq!(whole, split);
    if let Ok((payload, trailers)) = whole {
        assert_eq!(payload.len() as u64, expected_bytes);
        assert_eq!(trailers.len(), trailers_of(announced).len());
    }
}

fn decode(
    mut decoder: Decoder,
    body: &[u8],
    seed: u8,
    expected_bytes: u64,
) -> Result<(Vec<u8>, HeaderMap), ChunkedError> {
    let mut payload = Vec::new();
    for mut piece in pieces(body, seed) {
        while let Some(released) = decoder.decode(&mut piece)? {
            assert!(!released.is_empty());
            payload.extend_from_slice(&released);
            assert!(payload.len() as u64 <= expected_bytes);
        }
        assert!(piece.is_empty());
    }
    Ok((payload, decoder.finish()?))
}

/// One of the four framings.
pub(crate) fn framing_of(byte: u8) -> Framing {
    match byte % 4 {
        0 => Framing::UnsignedTrailer,
        1 => Framing::Unchecked,
        2 => Framing::Signed(chunk_signer()),
        _ => Framing::SignedTrailer(chunk_signer()),
    }
}

/// What signs chunks, always with the same key.
fn chunk_signer() -> ChunkSigner {
    let key = SigningKey::derive(&SecretKey::new("secret"), "20130524", "us-east-1", "s3");
    let date = AmzDate::from_unix(1_369_353_600);
    let seed = key.sign(&[b"seed"]);
    ChunkSigner::new(key, &date, "20130524/us-east-1/s3/aws4_request", seed)
}

fn trailers_of(bits: u8) -> Vec<HeaderName> {
    let announced = |(index, algorithm): (usize, Algorithm)| {
        let name = HeaderName::from_static(algorithm.header());
        (bits >> index & 1 == 1).then_some(name)
    };
    Algorithm::ALL
        .into_iter()
        .enumerate()
        .filter_map(announced)
        .collect()
}
