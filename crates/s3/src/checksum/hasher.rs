//! One incremental checksum of any of S3's algorithms.

use crc_fast::CrcAlgorithm;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{Algorithm, Checksum};

/// Computes one checksum, piece by piece.
#[derive(Clone, Debug)]
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    /// Starts with no bytes.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match (algorithm, crc_algorithm(algorithm)) {
            (_, Some(crc)) => State::Crc(crc_fast::Digest::new(crc)),
            (Algorithm::Sha1, None) => State::Sha1(Sha1::new()),
            (_, None) => State::Sha256(Sha256::new()),
        };
        Self { algorithm, state }
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Crc(digest) => digest.update(bytes),
            State::Sha1(digest) => digest.update(bytes),
            State::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The checksum of all bytes added.
    pub fn finish(self) -> Checksum {
        match self.state {
            State::Crc(digest) => Checksum::from_crc(self.algorithm, digest.finalize()),
            State::Sha1(digest) => from_digest(self.algorithm, &digest.finalize()),
            State::Sha256(digest) => from_digest(self.algorithm, &digest.finalize()),
        }
    }
}

fn from_digest(algorithm: Algorithm, digest: &[u8]) -> Checksum {
    Checksum::new(algorithm, digest).expect("the digest is of this algorithm")
}

/// What `crc_fast` calls a CRC of S3; `None` for the hashes.
pub(super) const fn crc_algorithm(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}
