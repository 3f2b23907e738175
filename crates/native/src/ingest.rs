//! Digests of bytes that pass on their way into an engine: length, MD5, checksum.
//!
//! The edge has verified what the client declared, so a declared value is taken as it is and only
//! the rest is computed. Source: Amazon S3 User Guide, "Checking object integrity".

use forebay_s3::{
    checksum::{Algorithm, Checksum, Hasher},
    code::Code,
    etag::ETag,
};
use forebay_store::Error;
use http::HeaderMap;
use md5::{Digest as _, Md5};

use crate::{
    record::{Attributes, Choice, ObjectRecord, PartRecord, UploadChecksum},
    refuse,
};

/// Computes what a record needs to know of some bytes, piece by piece.
#[derive(Debug, Clone)]
pub struct Ingest {
    size_bytes: u64,
    md5: Md5Source,
    checksum: ChecksumSource,
}

#[derive(Debug, Clone)]
enum Md5Source {
    Given([u8; 16]),
    Computed(Md5),
}

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a request, and most of them are the large one"
)]
enum ChecksumSource {
    Given(Checksum),
    /// A trailer of the body will tell.
    Trailer(Algorithm),
    Computed(Hasher),
}

/// What came of an [`Ingest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingested {
    /// Bytes that passed.
    pub size_bytes: u64,
    /// Their MD5.
    pub md5: [u8; 16],
    /// Their checksum.
    pub checksum: Checksum,
}

impl Ingest {
    /// For the payload of a request with these headers.
    ///
    /// # Errors
    /// `InvalidRequest` on a checksum that can't be read or is of an unknown algorithm.
    pub fn of_request(headers: &HeaderMap) -> Result<Self, Error> {
        let checksum = match declared(headers)? {
            Some(source) => source,
            None => ChecksumSource::Computed(Hasher::new(
                named_algorithm(headers)?.unwrap_or(Algorithm::Crc64Nvme),
            )),
        };
        Ok(Self {
            size_bytes: 0,
            md5: md5_source(headers),
            checksum,
        })
    }

    /// For the payload of a part: its checksum is of the upload's algorithm.
    ///
    /// # Errors
    /// `InvalidRequest` when the part declares another algorithm than the client chose for the
    /// upload, or a checksum that can't be read.
    pub fn of_part(headers: &HeaderMap, upload: UploadChecksum) -> Result<Self, Error> {
        let checksum = match declared(headers)? {
            Some(source) if source.algorithm() == upload.algorithm => source,
            Some(_) if upload.choice == Choice::Client => {
                return Err(refuse::invalid_request(
                    "Checksum Type mismatch occurred: the part has another checksum than its \
                     upload.",
                ));
            }
            Some(_) | None => ChecksumSource::Computed(Hasher::new(upload.algorithm)),
        };
        Ok(Self {
            size_bytes: 0,
            md5: md5_source(headers),
            checksum,
        })
    }

    /// Computes everything, the checksum with `algorithm`.
    pub fn computing(algorithm: Algorithm) -> Self {
        Self {
            size_bytes: 0,
            md5: Md5Source::Computed(Md5::new()),
            checksum: ChecksumSource::Computed(Hasher::new(algorithm)),
        }
    }

    /// Adds bytes; blocks for as long as hashing them takes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        if let Md5Source::Computed(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let ChecksumSource::Computed(hasher) = &mut self.checksum {
            hasher.update(bytes);
        }
    }

    /// The digests of all bytes added; `trailers` are those that followed them.
    ///
    /// # Errors
    /// `MalformedTrailerError` when the trailer that was announced is not there.
    pub fn finish(self, trailers: Option<&HeaderMap>) -> Result<Ingested, Error> {
        let checksum = match self.checksum {
            ChecksumSource::Given(checksum) => checksum,
            ChecksumSource::Computed(hasher) => hasher.finish(),
            ChecksumSource::Trailer(algorithm) => trailers
                .and_then(|trailers| trailers.get(algorithm.header()))
                .and_then(|value| Checksum::from_base64(algorithm, value.to_str().ok()?))
                .ok_or_else(|| Error::refused(Code::MalformedTrailerError))?,
        };
        let md5 = match self.md5 {
            Md5Source::Given(md5) => md5,
            Md5Source::Computed(md5) => md5.finalize().into(),
        };
        Ok(Ingested {
            size_bytes: self.size_bytes,
            md5,
            checksum,
        })
    }
}

impl ChecksumSource {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Given(checksum) => checksum.algorithm(),
            Self::Trailer(algorithm) => *algorithm,
            Self::Computed(hasher) => hasher.algorithm(),
        }
    }
}

impl Ingested {
    /// The record of a single upload.
    ///
    /// # Panics
    /// Never: hex digits are a tag.
    pub fn into_object(self, attributes: Attributes, modified_ms: i64) -> ObjectRecord {
        ObjectRecord {
            etag: ETag::strong(&hex::encode(self.md5)).expect("hex digits are a tag"),
            size_bytes: self.size_bytes,
            modified_ms,
            attributes,
            checksum: Some(forebay_s3::checksum::ObjectChecksum {
                checksum: self.checksum,
                part_count: None,
            }),
            part_count: None,
            upload_id: None,
        }
    }

    /// The record of a part.
    pub fn into_part(self, number: u16, modified_ms: i64) -> PartRecord {
        let Self {
            size_bytes,
            md5,
            checksum,
        } = self;
        PartRecord {
            number,
            size_bytes,
            md5,
            checksum,
            modified_ms,
        }
    }
}

fn md5_source(headers: &HeaderMap) -> Md5Source {
    use base64::Engine as _;
    headers
        .get("content-md5")
        .and_then(|value| base64::engine::general_purpose::STANDARD.decode(value).ok())
        .and_then(|digest| digest.try_into().ok())
        .map_or_else(|| Md5Source::Computed(Md5::new()), Md5Source::Given)
}

/// The checksum that a header or a trailer carries.
fn declared(headers: &HeaderMap) -> Result<Option<ChecksumSource>, Error> {
    for (name, value) in headers {
        let Some(suffix) = name.as_str().strip_prefix("x-amz-checksum-") else {
            continue;
        };
        if matches!(suffix, "algorithm" | "type" | "mode") {
            continue;
        }
        let checksum = Algorithm::from_header(name.as_str())
            .and_then(|algorithm| Checksum::from_base64(algorithm, value.to_str().ok()?))
            .ok_or_else(|| refuse::invalid_request("The checksum header is invalid."))?;
        return Ok(Some(ChecksumSource::Given(checksum)));
    }
    let announced = headers
        .get_all("x-amz-trailer")
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(',').map(str::trim));
    let mut checksums = announced.filter(|name| name.starts_with("x-amz-checksum-"));
    let Some(name) = checksums.next() else {
        return Ok(None);
    };
    let algorithm = Algorithm::from_header(name).ok_or_else(|| {
        refuse::invalid_request("The value specified in x-amz-trailer is not supported")
    })?;
    Ok(Some(ChecksumSource::Trailer(algorithm)))
}

/// The algorithm that a request names without a value.
///
/// # Errors
/// `InvalidRequest` when it is unknown.
pub fn named_algorithm(headers: &HeaderMap) -> Result<Option<Algorithm>, Error> {
    let value = headers
        .get("x-amz-checksum-algorithm")
        .or_else(|| headers.get("x-amz-sdk-checksum-algorithm"));
    value
        .map(|value| {
            value
                .to_str()
                .ok()
                .and_then(Algorithm::from_name)
                .ok_or_else(|| {
                    refuse::invalid_request(
                        "Checksum algorithm provided is unsupported. Please try again with any of \
                     the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
                    )
                })
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_declared_checksum_is_kept_and_a_missing_one_computed() {
        for (pairs, trailers, expected) in [
            (&[][..], None, Checksum::of(Algorithm::Crc64Nvme, b"abc")),
            (
                &[("x-amz-sdk-checksum-algorithm", "sha1")],
                None,
                Checksum::of(Algorithm::Sha1, b"abc"),
            ),
            (
                &[("x-amz-checksum-crc32", "AAAAAA==")],
                None,
                Checksum::from_base64(Algorithm::Crc32, "AAAAAA==").unwrap(),
            ),
            (
                &[("x-amz-trailer", "x-amz-checksum-crc32c")],
                Some(headers(&[("x-amz-checksum-crc32c", "AAAAAQ==")])),
                Checksum::from_base64(Algorithm::Crc32c, "AAAAAQ==").unwrap(),
            ),
        ] {
            let mut ingest = Ingest::of_request(&headers(pairs)).unwrap();
            ingest.update(b"a");
            ingest.update(b"bc");
            let done = ingest.finish(trailers.as_ref()).unwrap();
            assert_eq!(done.checksum, expected, "{pairs:?}");
            assert_eq!(hex::encode(done.md5), "900150983cd24fb0d6963f7d28e17f72");
            assert_eq!(done.size_bytes, 3);
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for pairs in [
            [("x-amz-checksum-crc32", "short")],
            [("x-amz-checksum-xxhash", "AAAAAA==")],
            [("x-amz-trailer", "x-amz-checksum-xxhash")],
            [("x-amz-sdk-checksum-algorithm", "xxhash")],
        ] {
            assert!(Ingest::of_request(&headers(&pairs)).is_err(), "{pairs:?}");
        }
        let announced = headers(&[("x-amz-trailer", "x-amz-checksum-crc32")]);
        assert!(
            Ingest::of_request(&announced)
                .unwrap()
                .finish(None)
                .is_err()
        );
        let chosen = UploadChecksum {
            choice: Choice::Client,
            ..UploadChecksum::DEFAULT
        };
        let part = headers(&[("x-amz-checksum-crc32", "AAAAAA==")]);
        assert!(Ingest::of_part(&part, chosen).is_err());
        assert!(Ingest::of_part(&part, UploadChecksum::DEFAULT).is_ok());
    }
}
