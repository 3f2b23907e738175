//! What a request declares about its payload, and whether it holds: a byte for the pieces,
//! headers, an empty line, the body. `x-amz-content-sha256` says how the body is framed.

use bytes::Bytes;
use forebay_s3::checksum::{Algorithm, Checksum, ChecksumHeader, Declaration, Expected};
use forebay_s3::chunked::{Intake, IntakeError, Received};
use forebay_s3::sigv4::PayloadMode;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};

use crate::input::{Input, pieces};

/// A payload is taken only if its length, hash and checksum are as declared, computed here once
/// more; what is declared rightly is taken; and neither depends on how the body arrives.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let seed = input.byte();
    let mut headers = input.headers();
    let body = input.0;
    let mode = headers
        .get("x-amz-content-sha256")
        .and_then(|value| value.to_str().ok());
    let mode = mode
        .and_then(PayloadMode::parse)
        .unwrap_or(PayloadMode::Unsigned);
    let whole = take(&headers, mode, body, 0);
    assert_eq!(whole, take(&headers, mode, body, seed.max(1)));
    if let Ok((payload, received)) = &whole {
        check_held(&headers, mode, payload, received);
        let kept = Expected::from_headers(&headers, mode, ChecksumHeader::OfObject);
        assert!(kept.is_ok_and(|expected| {
            expected
                .length
                .is_none_or(|length| length == payload.len() as u64)
        }));
    }
    check_declared_rightly(&mut headers, body, seed);
}

type Taken = (Vec<u8>, Received);

fn take(
    headers: &HeaderMap,
    mode: PayloadMode,
    body: &[u8],
    seed: u8,
) -> Result<Taken, IntakeError> {
    let mut intake = Intake::new(headers, mode, ChecksumHeader::OfPayload, None)?;
    let mut payload = Vec::new();
    let mut overrun = None;
    for mut piece in pieces(body, seed) {
        loop {
            match intake.take(&mut piece) {
                Ok(Some(released)) => payload.extend_from_slice(&released),
                Ok(None) => break,
                // How many bytes too many there are shows later the larger the pieces.
                Err(IntakeError::Payload(fault)) => {
                    overrun = Some(fault);
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        if overrun.is_some() {
            break;
        }
    }
    if overrun.is_some() {
        return Err(forebay_s3::checksum::PayloadError::TrailerMissing.into());
    }
    intake.finish().map(|received| (payload, received))
}

fn check_held(headers: &HeaderMap, mode: PayloadMode, payload: &[u8], received: &Received) {
    let expected = Expected::from_headers(headers, mode, ChecksumHeader::OfPayload);
    let expected = expected.expect("the intake read it before");
    assert_eq!(received.digests.length, payload.len() as u64);
    assert!(
        expected
            .length
            .is_none_or(|length| length == payload.len() as u64)
    );
    if let PayloadMode::Sha256(digest) = mode {
        assert_eq!(Sha256::digest(payload)[..], digest);
    }
    assert_eq!(
        received.digests.md5.is_some(),
        expected.content_md5.is_some()
    );
    let Some(declaration) = expected.checksum else {
        return;
    };
    let computed = compute(declaration.algorithm(), payload);
    match declaration {
        Declaration::Value(checksum) => assert_eq!(checksum, computed),
        Declaration::Trailer(algorithm) => {
            let sent = received
                .trailers
                .get(algorithm.header())
                .expect("it is demanded");
            assert_eq!(sent.as_bytes(), computed.to_base64().as_bytes());
        }
    }
    assert_eq!(received.digests.checksum, Some(computed));
}

/// Declares the right values of a plain body; then, with a byte changed, nothing may pass.
fn check_declared_rightly(headers: &mut HeaderMap, body: &[u8], seed: u8) {
    headers.clear();
    let algorithm = Algorithm::ALL[usize::from(seed) % Algorithm::ALL.len()];
    let value = |text: String| HeaderValue::from_str(&text).expect("digits and base64 are plain");
    headers.insert("content-length", value(body.len().to_string()));
    headers.insert(
        algorithm.header(),
        value(compute(algorithm, body).to_base64()),
    );
    let taken = take(headers, PayloadMode::Unsigned, body, seed);
    let (payload, _) = taken.expect("all that is declared holds");
    assert_eq!(payload, body);
    if let Some(at) = body.len().checked_sub(1) {
        let mut changed = body.to_vec();
        changed[at] ^= 1;
        take(headers, PayloadMode::Unsigned, &changed, seed).expect_err("the bytes are others");
    }
}

/// The CRCs bit by bit; the hashes have no second implementation here, but get all bytes at once.
fn compute(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
    let value = match algorithm {
        Algorithm::Crc32 => crc(0xEDB8_8320, u64::from(u32::MAX), bytes),
        Algorithm::Crc32c => crc(0x82F6_3B78, u64::from(u32::MAX), bytes),
        Algorithm::Crc64Nvme => crc(0x9A6C_9329_AC4B_C9B5, u64::MAX, bytes),
        Algorithm::Sha1 => return Checksum::of(algorithm, bytes),
        Algorithm::Sha256 => {
            let digest = Sha256::digest(bytes);
            return Checksum::new(algorithm, &digest).expect("the digest is of this algorithm");
        }
    };
    let value = Bytes::copy_from_slice(&value.to_be_bytes());
    let value = &value[8 - algorithm.digest_bytes()..];
    Checksum::new(algorithm, value).expect("the value is of this algorithm")
}

/// A reflected CRC whose start and final exclusive-or are all ones.
fn crc(polynomial: u64, ones: u64, bytes: &[u8]) -> u64 {
    let mut crc = ones;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ polynomial
            } else {
                crc >> 1
            };
        }
    }
    crc ^ ones
}
