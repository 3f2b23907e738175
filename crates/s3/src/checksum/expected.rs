//! What a request declares about its payload, read from its headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use super::{Algorithm, Checksum};
use crate::sigv4::PayloadMode;

const CONTENT_MD5: &str = "content-md5";
const CHECKSUM_PREFIX: &str = "x-amz-checksum-";
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";
const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
const TRAILER: &str = "x-amz-trailer";

/// What an `x-amz-checksum-*` header of this operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumHeader {
    /// The payload: `PutObject`, `UploadPart`, `DeleteObjects` and the rest.
    OfPayload,
    /// The object that results: `CompleteMultipartUpload`, whose payload is a list of parts.
    OfObject,
}

/// Where the checksum of the payload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// In a header, so it is known now.
    Value(Checksum),
    /// In a trailer that follows the payload.
    Trailer(Algorithm),
}

impl Declaration {
    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Value(checksum) => checksum.algorithm(),
            Self::Trailer(algorithm) => *algorithm,
        }
    }
}

/// What a payload must turn out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The length of the payload itself, without any `aws-chunked` framing.
    pub length: Option<u64>,
    /// `Content-MD5`.
    pub content_md5: Option<[u8; 16]>,
    /// `x-amz-content-sha256`, where it is a hash.
    pub payload_sha256: Option<[u8; 32]>,
    /// The checksum in a header or trailer.
    pub checksum: Option<Declaration>,
    /// Trailers announced by `x-amz-trailer`, checksum included.
    pub trailers: Vec<HeaderName>,
    /// A checksum header of an algorithm that is not known here. Whoever passes the request on
    /// keeps it for the origin to judge; whoever stores the object itself has to refuse it.
    pub unknown_checksum: Option<HeaderName>,
}

/// A declaration that contradicts itself or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// `Content-MD5` is not the base64 of sixteen bytes.
    #[error("The Content-MD5 you specified was invalid.")]
    ContentMd5,
    /// A checksum header that does not hold a value of its algorithm.
    #[error("Value for {0} header is invalid.")]
    Checksum(String),
    /// More than one checksum of the payload.
    #[error("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")]
    SeveralChecksums,
    /// An SDK names an algorithm, and sends no checksum or another one.
    #[error(
        "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or \
         x-amz-trailer headers were found."
    )]
    SdkAlgorithm,
    /// `x-amz-trailer` announces something other than a checksum.
    #[error("The value specified in the x-amz-trailer header is not supported")]
    Trailer,
    /// A streamed payload without `x-amz-decoded-content-length`.
    #[error("You must provide the Content-Length HTTP header.")]
    LengthMissing,
    /// A length that is not a number.
    #[error("The {0} header is not a valid length.")]
    Length(&'static str),
}

impl DeclarationError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ContentMd5 => "InvalidDigest",
            Self::Checksum(_) | Self::SeveralChecksums | Self::SdkAlgorithm | Self::Trailer => {
                "InvalidRequest"
            }
            Self::LengthMissing => "MissingContentLength",
            Self::Length(_) => "InvalidArgument",
        }
    }
}

impl Expected {
    /// Reads the declarations of a request whose payload is framed as `payload` says.
    ///
    /// # Errors
    /// The first declaration that is malformed or contradicts another.
    pub fn from_headers(
        headers: &HeaderMap,
        payload: PayloadMode,
        about: ChecksumHeader,
    ) -> Result<Self, DeclarationError> {
        let mut expected = Self {
            length: read_length(headers, payload)?,
            content_md5: read_md5(headers)?,
            payload_sha256: match payload {
                PayloadMode::Sha256(digest) => Some(digest),
                PayloadMode::Unsigned
                | PayloadMode::StreamingSigned
                | PayloadMode::StreamingSignedTrailer
                | PayloadMode::StreamingUnsignedTrailer => None,
            },
            ..Self::default()
        };
        match about {
            ChecksumHeader::OfPayload => expected.read_checksums(headers)?,
            ChecksumHeader::OfObject => {}
        }
        if matches!(
            payload,
            PayloadMode::StreamingSignedTrailer | PayloadMode::StreamingUnsignedTrailer
        ) {
            expected.read_trailers(headers)?;
        }
        if about == ChecksumHeader::OfPayload {
            expected.check_sdk_algorithm(headers)?;
        }
        Ok(expected)
    }

    fn read_checksums(&mut self, headers: &HeaderMap) -> Result<(), DeclarationError> {
        for (name, value) in headers {
            let Some(suffix) = name.as_str().strip_prefix(CHECKSUM_PREFIX) else {
                continue;
            };
            if matches!(suffix, "algorithm" | "type" | "mode") {
                continue;
            }
            if self.checksum.is_some() || self.unknown_checksum.is_some() {
                return Err(DeclarationError::SeveralChecksums);
            }
            let Some(algorithm) = Algorithm::from_header(name.as_str()) else {
                self.unknown_checksum = Some(name.clone());
                continue;
            };
            let checksum = value
                .to_str()
                .ok()
                .and_then(|text| Checksum::from_base64(algorithm, text))
                .ok_or_else(|| DeclarationError::Checksum(name.as_str().to_owned()))?;
            self.checksum = Some(Declaration::Value(checksum));
        }
        Ok(())
    }

    fn read_trailers(&mut self, headers: &HeaderMap) -> Result<(), DeclarationError> {
        for value in headers.get_all(TRAILER) {
            let text = value.to_str().map_err(|_| DeclarationError::Trailer)?;
            for name in text
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
            {
                let name = HeaderName::from_bytes(name.as_bytes())
                    .map_err(|_| DeclarationError::Trailer)?;
                if !name.as_str().starts_with(CHECKSUM_PREFIX) {
                    return Err(DeclarationError::Trailer);
                }
                if self.checksum.is_some() || self.unknown_checksum.is_some() {
                    return Err(DeclarationError::SeveralChecksums);
                }
                match Algorithm::from_header(name.as_str()) {
                    Some(algorithm) => self.checksum = Some(Declaration::Trailer(algorithm)),
                    None => self.unknown_checksum = Some(name.clone()),
                }
                self.trailers.push(name);
            }
        }
        Ok(())
    }

    /// An SDK that names an algorithm must also send its checksum: else a proxy has dropped it.
    fn check_sdk_algorithm(&self, headers: &HeaderMap) -> Result<(), DeclarationError> {
        let Some(value) = headers.get(SDK_ALGORITHM) else {
            return Ok(());
        };
        let named = value.to_str().ok().and_then(Algorithm::from_name);
        let is_sent = match &self.checksum {
            Some(declaration) => named == Some(declaration.algorithm()),
            None => named.is_none() && self.unknown_checksum.is_some(),
        };
        if is_sent {
            Ok(())
        } else {
            Err(DeclarationError::SdkAlgorithm)
        }
    }
}

fn read_length(headers: &HeaderMap, payload: PayloadMode) -> Result<Option<u64>, DeclarationError> {
    let parse = |name: &'static str| match headers.get(name) {
        None => Ok(None),
        Some(value) => {
            let text = value.to_str().ok();
            // `parse` alone would also take a leading `+`.
            text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse().ok())
                .map(Some)
                .ok_or(DeclarationError::Length(name))
        }
    };
    if payload.is_chunked() {
        parse(DECODED_LENGTH)?
            .map(Some)
            .ok_or(DeclarationError::LengthMissing)
    } else {
        parse("content-length")
    }
}

fn read_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, DeclarationError> {
    let Some(value) = headers.get(CONTENT_MD5) else {
        return Ok(None);
    };
    let bytes = STANDARD
        .decode(value.as_bytes())
        .map_err(|_| DeclarationError::ContentMd5)?;
    bytes
        .try_into()
        .map(Some)
        .map_err(|_| DeclarationError::ContentMd5)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    fn read(pairs: &[(&'static str, &str)]) -> Result<Expected, DeclarationError> {
        let payload = match pairs
            .iter()
            .find(|(name, _)| *name == "x-amz-content-sha256")
        {
            Some((_, value)) => PayloadMode::parse(value).unwrap(),
            None => PayloadMode::Unsigned,
        };
        Expected::from_headers(&headers(pairs), payload, ChecksumHeader::OfPayload)
    }

    #[test]
    fn all_declarations_are_read() {
        let expected = read(&[
            ("content-length", "9"),
            ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
            ("x-amz-content-sha256", crate::sigv4::EMPTY_SHA256),
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-algorithm", "CRC32"),
            ("x-amz-sdk-checksum-algorithm", "crc32"),
        ])
        .unwrap();
        assert_eq!(expected.length, Some(9));
        assert_eq!(expected.content_md5.unwrap()[0], 0x25);
        assert_eq!(expected.payload_sha256.unwrap()[0], 0xe3);
        let checksum = Checksum::of(Algorithm::Crc32, b"123456789");
        assert_eq!(expected.checksum, Some(Declaration::Value(checksum)));
    }

    #[test]
    fn a_trailer_is_announced_and_the_decoded_length_counts() {
        let expected = read(&[
            ("content-length", "55"),
            ("x-amz-decoded-content-length", "9"),
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-trailer", "X-Amz-Checksum-Crc64nvme"),
            ("x-amz-sdk-checksum-algorithm", "CRC64NVME"),
        ])
        .unwrap();
        assert_eq!(expected.length, Some(9));
        assert_eq!(
            expected.checksum,
            Some(Declaration::Trailer(Algorithm::Crc64Nvme))
        );
        assert_eq!(expected.trailers, ["x-amz-checksum-crc64nvme"]);
    }

    /// Headers, and the code that they are answered with.
    type Row<'a> = (&'a [(&'static str, &'a str)], &'static str);

    #[test]
    fn contradictions_and_nonsense_are_refused() {
        let streaming = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        let length = ("x-amz-decoded-content-length", "9");
        let crc32 = ("x-amz-checksum-crc32", "y/Q5Jg==");
        let table: [Row<'_>; 12] = [
            (&[("content-md5", "short")], "InvalidDigest"),
            (&[("content-md5", "y/Q5Jg==")], "InvalidDigest"),
            (&[("x-amz-checksum-crc32", "nonsense")], "InvalidRequest"),
            (&[("x-amz-checksum-sha256", "y/Q5Jg==")], "InvalidRequest"),
            (
                &[crc32, ("x-amz-checksum-crc32c", "4waSgw==")],
                "InvalidRequest",
            ),
            (
                &[crc32, ("x-amz-sdk-checksum-algorithm", "SHA1")],
                "InvalidRequest",
            ),
            (
                &[("x-amz-sdk-checksum-algorithm", "CRC32")],
                "InvalidRequest",
            ),
            (
                &[streaming, length, ("x-amz-trailer", "expires")],
                "InvalidRequest",
            ),
            (
                &[streaming, length, crc32, ("x-amz-trailer", crc32.0)],
                "InvalidRequest",
            ),
            (&[streaming], "MissingContentLength"),
            (
                &[streaming, ("x-amz-decoded-content-length", "+9")],
                "InvalidArgument",
            ),
            (
                &[("content-length", "99999999999999999999")],
                "InvalidArgument",
            ),
        ];
        for (pairs, code) in table {
            assert!(crate::code::Code::parse(code).is_some(), "{code}");
            assert_eq!(read(pairs).unwrap_err().code(), code, "{pairs:?}");
        }
    }

    #[test]
    fn unknown_algorithms_and_checksums_of_objects_are_left_to_others() {
        let expected = read(&[("x-amz-checksum-xxhash64", "AAAAAAAAAAA=")]).unwrap();
        assert_eq!(
            expected.unknown_checksum.unwrap(),
            "x-amz-checksum-xxhash64"
        );
        let complete = headers(&[("x-amz-checksum-crc32", "y/Q5Jg==-2")]);
        let expected =
            Expected::from_headers(&complete, PayloadMode::Unsigned, ChecksumHeader::OfObject);
        assert_eq!(expected.unwrap().checksum, None);
    }
}
