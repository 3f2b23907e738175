//! Judges a payload by what its request declared, while the bytes pass.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use md5::Md5;
use sha2::{Digest, Sha256};

use super::{Algorithm, Checksum, Declaration, Expected, Hasher};
use crate::sigv4::hex;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// More or fewer bytes than declared.
    #[error("You did not provide the number of bytes specified by the Content-Length HTTP header")]
    Length {
        /// The declared length.
        expected: u64,
        /// The bytes seen so far.
        received: u64,
    },
    /// Not the bytes of `Content-MD5`.
    #[error("The Content-MD5 you specified did not match what we received.")]
    ContentMd5 {
        /// What was declared.
        expected: [u8; 16],
        /// What was received.
        received: [u8; 16],
    },
    /// Not the bytes of `x-amz-content-sha256`.
    #[error("The provided 'x-amz-content-sha256' header does not match what was computed.")]
    Sha256 {
        /// What was declared.
        expected: [u8; 32],
        /// What was received.
        received: [u8; 32],
    },
    /// Not the bytes of the checksum header or trailer.
    #[error("The {0} you specified did not match the calculated checksum.")]
    Checksum(Algorithm),
    /// The checksum's trailer did not come.
    #[error(
        "The request contained trailing data that was not well-formed or did not conform to our \
         published schema."
    )]
    TrailerMissing,
    /// The checksum's trailer does not hold a value of its algorithm.
    #[error("Value for {} trailing header is invalid.", .0.header())]
    TrailerInvalid(Algorithm),
}

impl PayloadError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Length { .. } => "IncompleteBody",
            Self::ContentMd5 { .. } | Self::Checksum(_) => "BadDigest",
            Self::Sha256 { .. } => "XAmzContentSHA256Mismatch",
            Self::TrailerMissing => "MalformedTrailerError",
            Self::TrailerInvalid(_) => "InvalidRequest",
        }
    }

    /// The elements that S3 adds to the error document of this code, by name.
    pub fn extras(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::ContentMd5 { expected, received } => vec![
                ("ExpectedDigest", STANDARD.encode(expected)),
                ("CalculatedDigest", STANDARD.encode(received)),
            ],
            Self::Sha256 { expected, received } => vec![
                ("ClientComputedContentSHA256", hex(expected).to_string()),
                ("S3ComputedContentSHA256", hex(received).to_string()),
            ],
            Self::Length { .. }
            | Self::Checksum(_)
            | Self::TrailerMissing
            | Self::TrailerInvalid(_) => Vec::new(),
        }
    }
}

/// What was computed of a payload that is as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Its length in bytes.
    pub length: u64,
    /// Its MD5, where declared or asked for.
    pub md5: Option<[u8; 16]>,
    /// Its checksum, where declared or asked for.
    pub checksum: Option<Checksum>,
}

/// Computes what a payload's declarations need, and nothing else.
#[derive(Clone, Debug)]
pub struct Verifier {
    expected: Expected,
    received: u64,
    md5: Option<Md5>,
    /// For the payload hash; shared with a SHA-256 checksum.
    sha256: Option<Sha256>,
    checksum: Option<Hasher>,
}

impl Verifier {
    /// Prepares for a payload.
    pub fn new(expected: Expected) -> Self {
        let algorithm = expected.checksum.as_ref().map(Declaration::algorithm);
        let mut verifier = Self {
            received: 0,
            md5: expected.content_md5.map(|_| Md5::new()),
            sha256: expected.payload_sha256.map(|_| Sha256::new()),
            checksum: None,
            expected,
        };
        if let Some(algorithm) = algorithm {
            verifier = verifier.with_checksum(algorithm);
        }
        verifier
    }

    /// Also computes the MD5, for an `ETag`.
    #[must_use]
    pub fn with_md5(mut self) -> Self {
        self.md5.get_or_insert_with(Md5::new);
        self
    }

    /// Also computes a checksum, where the request declared none.
    #[must_use]
    pub fn with_checksum(mut self, algorithm: Algorithm) -> Self {
        let is_shared = algorithm == Algorithm::Sha256 && self.sha256.is_some();
        if self.checksum.is_none() && !is_shared {
            self.checksum = Some(Hasher::new(algorithm));
        }
        self
    }

    /// What was declared.
    pub const fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Bytes seen so far.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Adds a piece of the payload.
    ///
    /// # Errors
    /// [`PayloadError::Length`] as soon as there are more bytes than declared.
    pub fn update(&mut self, piece: &[u8]) -> Result<(), PayloadError> {
        self.received += piece.len() as u64;
        if let Some(expected) = self.expected.length
            && self.received > expected
        {
            return Err(PayloadError::Length {
                expected,
                received: self.received,
            });
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(piece);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(piece);
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(piece);
        }
        Ok(())
    }

    /// Judges the payload once its end is reached; `trailers` are those that followed it.
    ///
    /// # Errors
    /// The first declaration that does not hold: length, payload hash, MD5, checksum.
    pub fn finish(self, trailers: &HeaderMap) -> Result<Digests, PayloadError> {
        let Self {
            expected,
            received,
            md5,
            sha256,
            checksum,
        } = self;
        if let Some(length) = expected.length
            && length != received
        {
            return Err(PayloadError::Length {
                expected: length,
                received,
            });
        }
        let sha256: Option<[u8; 32]> = sha256.map(|digest| digest.finalize().into());
        if let (Some(expected), Some(received)) = (expected.payload_sha256, sha256)
            && expected != received
        {
            return Err(PayloadError::Sha256 { expected, received });
        }
        let md5: Option<[u8; 16]> = md5.map(|digest| digest.finalize().into());
        if let (Some(expected), Some(received)) = (expected.content_md5, md5)
            && expected != received
        {
            return Err(PayloadError::ContentMd5 { expected, received });
        }
        let shared = || Checksum::new(Algorithm::Sha256, &sha256?);
        let computed = checksum.map(Hasher::finish).or_else(shared);
        if let Some(declaration) = expected.checksum {
            let declared = declared_value(declaration, trailers)?;
            if computed != Some(declared) {
                return Err(PayloadError::Checksum(declared.algorithm()));
            }
        }
        Ok(Digests {
            length: received,
            md5,
            checksum: computed,
        })
    }
}

fn declared_value(
    declaration: Declaration,
    trailers: &HeaderMap,
) -> Result<Checksum, PayloadError> {
    match declaration {
        Declaration::Value(checksum) => Ok(checksum),
        Declaration::Trailer(algorithm) => trailers
            .get(algorithm.header())
            .ok_or(PayloadError::TrailerMissing)?
            .to_str()
            .ok()
            .and_then(|text| Checksum::from_base64(algorithm, text))
            .ok_or(PayloadError::TrailerInvalid(algorithm)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TEXT: &[u8] = b"123456789";

    fn judge(expected: Expected, payload: &[u8]) -> Result<Digests, PayloadError> {
        let mut verifier = Verifier::new(expected);
        for piece in payload.chunks(2) {
            verifier.update(piece)?;
        }
        verifier.finish(&HeaderMap::new())
    }

    fn declared(checksum: Checksum) -> Expected {
        Expected {
            checksum: Some(Declaration::Value(checksum)),
            ..Expected::default()
        }
    }

    #[test]
    fn a_flipped_byte_is_noticed_by_every_declaration() {
        let md5: [u8; 16] = Md5::digest(TEXT).into();
        let sha256: [u8; 32] = Sha256::digest(TEXT).into();
        let mut table = vec![
            (
                Expected {
                    content_md5: Some(md5),
                    ..Expected::default()
                },
                "BadDigest",
            ),
            (
                Expected {
                    payload_sha256: Some(sha256),
                    ..Expected::default()
                },
                "XAmzContentSHA256Mismatch",
            ),
        ];
        for algorithm in Algorithm::ALL {
            table.push((declared(Checksum::of(algorithm, TEXT)), "BadDigest"));
        }
        for (expected, code) in table {
            assert_eq!(judge(expected.clone(), TEXT).unwrap().length, 9);
            let error = judge(expected.clone(), b"123456788").unwrap_err();
            assert!(crate::code::Code::parse(code).is_some(), "{code}");
            assert_eq!(error.code(), code, "{expected:?}");
        }
    }

    #[test]
    fn length_is_exact_and_excess_is_noticed_at_once() {
        let expected = Expected {
            length: Some(9),
            ..Expected::default()
        };
        assert!(judge(expected.clone(), TEXT).is_ok());
        assert_eq!(
            judge(expected.clone(), b"12345678").unwrap_err().code(),
            "IncompleteBody"
        );
        let mut verifier = Verifier::new(expected);
        verifier.update(TEXT).unwrap();
        let excess = PayloadError::Length {
            expected: 9,
            received: 10,
        };
        assert_eq!(verifier.update(b"0"), Err(excess));
    }

    #[test]
    fn a_trailing_checksum_must_come_and_match() {
        let finish = |value: Option<&'static str>| {
            let checksum = Some(Declaration::Trailer(Algorithm::Crc32));
            let mut verifier = Verifier::new(Expected {
                checksum,
                ..Expected::default()
            });
            verifier.update(TEXT).unwrap();
            let trailer = |value| ("x-amz-checksum-crc32".parse().unwrap(), value);
            verifier.finish(
                &value
                    .map(HeaderValue::from_static)
                    .map(trailer)
                    .into_iter()
                    .collect(),
            )
        };
        assert!(finish(Some("y/Q5Jg==")).is_ok());
        assert_eq!(
            finish(Some("y/Q5Jw==")),
            Err(PayloadError::Checksum(Algorithm::Crc32))
        );
        assert_eq!(
            finish(Some("y/Q5")),
            Err(PayloadError::TrailerInvalid(Algorithm::Crc32))
        );
        assert_eq!(finish(None), Err(PayloadError::TrailerMissing));
    }

    #[test]
    fn asked_for_digests_are_given_whatever_was_declared() {
        let sha256: [u8; 32] = Sha256::digest(TEXT).into();
        let expected = Expected {
            payload_sha256: Some(sha256),
            ..Expected::default()
        };
        for algorithm in Algorithm::ALL {
            let mut verifier = Verifier::new(expected.clone())
                .with_md5()
                .with_checksum(algorithm);
            verifier.update(TEXT).unwrap();
            let digests = verifier.finish(&HeaderMap::new()).unwrap();
            assert_eq!(digests.checksum, Some(Checksum::of(algorithm, TEXT)));
            assert_eq!(digests.md5, Some(Md5::digest(TEXT).into()));
        }
        // A declared checksum is not replaced by the one that is asked for.
        let crc = Checksum::of(Algorithm::Crc32, TEXT);
        let mut verifier = Verifier::new(declared(crc)).with_checksum(Algorithm::Sha1);
        verifier.update(TEXT).unwrap();
        assert_eq!(
            verifier.finish(&HeaderMap::new()).unwrap().checksum,
            Some(crc)
        );
    }
}
