//! The checksums that S3 keeps beside an object, and the proof that a payload is what it says.
//!
//! [`Algorithm`], [`Checksum`] and [`ObjectChecksum`] are the values; [`Hasher`] computes one;
//! [`Expected`] reads what a request declares about its payload (hash, `Content-MD5`, checksum
//! header or trailer, length) and [`Verifier`] judges the payload by it while the bytes pass.
//!
//! A multipart object has either a checksum of its parts' checksums ([`composite`]) or that of
//! all its bytes, which a CRC lets one compute from the parts' ([`combine`]).
//!
//! Used by the gateway on every payload, by native stores, and by the origin store for trailers.
//! Not here: the `aws-chunked` framing ([`crate::chunked`], whose `Intake` joins both).
//!
//! Sources: "Checking object integrity in Amazon S3" of the user guide; error texts as S3 sends
//! them.

mod expected;
mod hasher;
mod verifier;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use expected::{ChecksumHeader, Declaration, DeclarationError, Expected};
pub use hasher::Hasher;
pub use verifier::{Digests, PayloadError, Verifier};

/// A checksum algorithm of S3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// CRC-32 of ISO HDLC, as in zip and gzip.
    Crc32,
    /// CRC-32C (Castagnoli), as in iSCSI.
    Crc32c,
    /// CRC-64/NVME; always of the full object.
    Crc64Nvme,
    /// SHA-1; of a multipart object always composite.
    Sha1,
    /// SHA-256; of a multipart object always composite.
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    /// The name, as `x-amz-checksum-algorithm` and XML carry it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header (or trailer) that carries the value, in lower case.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The element that carries the value in XML.
    pub const fn xml_element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// The algorithm of a name, in any case, as S3 reads it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The algorithm of a lower-case header name.
    pub fn from_header(header: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.header() == header)
    }

    /// The length of a value.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The length of a value in base64, padding included.
    pub const fn base64_bytes(self) -> usize {
        self.digest_bytes().div_ceil(3) * 4
    }

    /// What a multipart object's checksum is when the upload did not say: of its parts, but for
    /// CRC64NVME.
    pub const fn default_kind(self) -> Kind {
        match self {
            Self::Crc64Nvme => Kind::FullObject,
            Self::Crc32 | Self::Crc32c | Self::Sha1 | Self::Sha256 => Kind::Composite,
        }
    }

    /// Whether S3 knows this algorithm with multipart checksums of that kind.
    pub const fn allows(self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Crc32 | Self::Crc32c, _)
            | (Self::Crc64Nvme, Kind::FullObject)
            | (Self::Sha1 | Self::Sha256, Kind::Composite) => true,
            (Self::Crc64Nvme, Kind::Composite) | (Self::Sha1 | Self::Sha256, Kind::FullObject) => {
                false
            }
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the checksum of a multipart object is computed over (`x-amz-checksum-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// All bytes of the object.
    FullObject,
    /// The checksums of its parts.
    Composite,
}

impl Kind {
    /// `FULL_OBJECT` or `COMPOSITE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }

    /// Reads a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::FullObject, Self::Composite]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// The checksum of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: Algorithm,
    /// The first [`Algorithm::digest_bytes`] count, the rest is zero.
    bytes: [u8; 32],
}

impl Checksum {
    /// Takes a value in network byte order; `None` unless it has the algorithm's length.
    pub fn new(algorithm: Algorithm, value: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        if value.len() != algorithm.digest_bytes() {
            return None;
        }
        bytes[..value.len()].copy_from_slice(value);
        Some(Self { algorithm, bytes })
    }

    /// Reads base64; `None` unless it is padded, canonical and of the algorithm's length.
    pub fn from_base64(algorithm: Algorithm, text: &str) -> Option<Self> {
        Self::new(algorithm, &STANDARD.decode(text).ok()?)
    }

    /// Computes the checksum of bytes that are all at hand.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The value in network byte order.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_bytes()]
    }

    /// The value as headers and XML carry it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.as_bytes())
    }

    /// The value of a CRC as a number; `None` for the others.
    fn to_crc(self) -> Option<u64> {
        let bytes = &self.bytes;
        match self.algorithm {
            Algorithm::Crc32 | Algorithm::Crc32c => Some(u64::from(u32::from_be_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3],
            ]))),
            Algorithm::Crc64Nvme => Some(
                bytes[..8]
                    .iter()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte)),
            ),
            Algorithm::Sha1 | Algorithm::Sha256 => None,
        }
    }

    /// Takes the value of a CRC, which stands in the low bits.
    fn from_crc(algorithm: Algorithm, value: u64) -> Self {
        let bytes = value.to_be_bytes();
        Self::new(algorithm, &bytes[8 - algorithm.digest_bytes().min(8)..])
            .expect("called for CRCs, which have at most eight bytes")
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.to_base64())
    }
}

/// The checksum of an object as `x-amz-checksum-*` shows it: a composite one ends in `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectChecksum {
    /// The value.
    pub checksum: Checksum,
    /// The number of parts whose checksums it covers; `None` when it covers the bytes.
    pub part_count: Option<u32>,
}

impl ObjectChecksum {
    /// Reads `base64` or `base64-N`.
    pub fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let (value, part_count) = match text.split_once('-') {
            None => (text, None),
            Some((value, count)) => (value, Some(count.parse().ok().filter(|count| *count > 0)?)),
        };
        Some(Self {
            checksum: Checksum::from_base64(algorithm, value)?,
            part_count,
        })
    }

    /// What it covers.
    pub const fn kind(&self) -> Kind {
        match self.part_count {
            None => Kind::FullObject,
            Some(_) => Kind::Composite,
        }
    }
}

impl fmt::Display for ObjectChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.checksum.to_base64())?;
        self.part_count
            .map_or(Ok(()), |count| write!(f, "-{count}"))
    }
}

/// The composite checksum of a multipart object: the checksum of its parts' checksums in order.
///
/// `None` without parts, or when a part has another algorithm.
pub fn composite(algorithm: Algorithm, parts: &[Checksum]) -> Option<ObjectChecksum> {
    let part_count = u32::try_from(parts.len()).ok().filter(|count| *count > 0)?;
    let mut hasher = Hasher::new(algorithm);
    for part in parts {
        if part.algorithm != algorithm {
            return None;
        }
        hasher.update(part.as_bytes());
    }
    Some(ObjectChecksum {
        checksum: hasher.finish(),
        part_count: Some(part_count),
    })
}

/// The checksum of two runs of bytes joined, from the checksum of each and the second's length.
///
/// `None` unless both are the same CRC: hashes do not combine.
pub fn combine(first: &Checksum, second: &Checksum, second_bytes: u64) -> Option<Checksum> {
    if first.algorithm != second.algorithm {
        return None;
    }
    let crc = hasher::crc_algorithm(first.algorithm)?;
    let value = crc_fast::checksum_combine(crc, first.to_crc()?, second.to_crc()?, second_bytes);
    Some(Checksum::from_crc(first.algorithm, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the CRC catalogue and of FIPS 180 for `123456789`.
    #[test]
    fn known_checksums_of_the_nine_digits() {
        for (algorithm, base64) in [
            (Algorithm::Crc32, "y/Q5Jg=="),
            (Algorithm::Crc32c, "4waSgw=="),
            (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
            (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (
                Algorithm::Sha256,
                "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
            ),
        ] {
            let checksum = Checksum::of(algorithm, b"123456789");
            assert_eq!(checksum.to_base64(), base64, "{algorithm}");
            assert_eq!(base64.len(), algorithm.base64_bytes());
            assert_eq!(Checksum::from_base64(algorithm, base64), Some(checksum));
        }
    }

    #[test]
    fn names_headers_and_kinds_go_both_ways() {
        for algorithm in Algorithm::ALL {
            assert_eq!(
                Algorithm::from_name(&algorithm.name().to_lowercase()),
                Some(algorithm)
            );
            assert_eq!(Algorithm::from_header(algorithm.header()), Some(algorithm));
            assert!(algorithm.allows(algorithm.default_kind()));
            let suffix = algorithm.header().trim_start_matches("x-amz-checksum-");
            assert_eq!(suffix.to_uppercase(), algorithm.name());
        }
        assert_eq!(Algorithm::from_name("MD5"), None);
        assert_eq!(Kind::from_name("FULL_OBJECT"), Some(Kind::FullObject));
        assert_eq!(Kind::from_name("full_object"), None);
        assert!(!Algorithm::Crc64Nvme.allows(Kind::Composite));
        assert!(!Algorithm::Sha256.allows(Kind::FullObject));
    }

    #[test]
    fn values_of_the_wrong_length_or_alphabet_are_refused() {
        for text in [
            "",
            "y/Q5Jg",
            "y/Q5Jg=",
            "y_Q5Jg==",
            "4waSgwA=",
            "y/Q5Jh==",
            " y/Q5Jg==",
        ] {
            assert_eq!(
                Checksum::from_base64(Algorithm::Crc32, text),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn composite_checksums_show_their_part_count() {
        let parts = [b"one", b"two"].map(|part| Checksum::of(Algorithm::Sha256, part));
        let joined = [parts[0].as_bytes(), parts[1].as_bytes()].concat();
        let whole = composite(Algorithm::Sha256, &parts).unwrap();
        assert_eq!(whole.checksum, Checksum::of(Algorithm::Sha256, &joined));
        let shown = whole.to_string();
        assert!(shown.ends_with("=-2"), "{shown}");
        assert_eq!(
            ObjectChecksum::parse(Algorithm::Sha256, &shown),
            Some(whole)
        );
        assert_eq!(whole.kind(), Kind::Composite);
        assert_eq!(composite(Algorithm::Sha256, &[]), None);
        assert_eq!(composite(Algorithm::Crc32, &parts), None);
        assert_eq!(ObjectChecksum::parse(Algorithm::Crc32, "y/Q5Jg==-0"), None);
    }

    #[test]
    fn crcs_combine_and_hashes_do_not() {
        let text: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        for algorithm in Algorithm::ALL {
            for split in [0, 1, 4711, text.len()] {
                let (left, right) = text.split_at(split);
                let combined = combine(
                    &Checksum::of(algorithm, left),
                    &Checksum::of(algorithm, right),
                    right.len() as u64,
                );
                match algorithm {
                    Algorithm::Sha1 | Algorithm::Sha256 => assert_eq!(combined, None),
                    Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme => {
                        assert_eq!(combined, Some(Checksum::of(algorithm, &text)), "{split}");
                    }
                }
            }
        }
    }
}
