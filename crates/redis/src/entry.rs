//! The bytes of an entry in Redis, which scripts and this module read alike.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sequence | number of the last change |
//! | 8 | 1 | payload | 0: none; 1: under the key of its name |
//! | 9 | 8 | checksum | CRC-64/NVME of the payload; 0 where there is none |
//! | 17 | | value | to the end |
//!
//! Numbers are big-endian. The checksum does two things: it finds damage, and it tells a payload
//! from that of another version, since entry and payload are read by two commands.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use forebay_native::index::Sequence;

/// Bytes before the value.
const HEAD_BYTES: usize = 17;

/// An entry, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) sequence: Sequence,
    /// Checksum of the payload, where there is one.
    pub(crate) payload: Option<u64>,
    pub(crate) value: Bytes,
}

/// Why bytes are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry in Redis is damaged")]
pub(crate) struct Damaged;

impl Packed {
    pub(crate) fn read(bytes: &Bytes) -> Result<Self, Damaged> {
        let (head, _) = bytes.split_at_checked(HEAD_BYTES).ok_or(Damaged)?;
        let number = |at: usize| {
            let bytes = head[at..at + 8].try_into().expect("eight bytes were cut");
            u64::from_be_bytes(bytes)
        };
        let payload = match head[8] {
            0 => None,
            1 => Some(number(9)),
            2.. => return Err(Damaged),
        };
        Ok(Self {
            sequence: Sequence(number(0)),
            payload,
            value: bytes.slice(HEAD_BYTES..),
        })
    }
}

/// Stands in place of 1 on the way to a script where the payload was sent before it.
pub(crate) const STAGED: u8 = 2;

/// What of an entry's head the writer knows: all but the sequence.
pub(crate) fn tail(payload: Option<&[u8]>) -> [u8; 9] {
    let mut tail = [0; 9];
    if let Some(bytes) = payload {
        tail[0] = 1;
        tail[1..].copy_from_slice(&checksum(bytes).to_be_bytes());
    }
    tail
}

/// The checksum of payloads and chunks.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for payload in [None, Some(&b""[..]), Some(&b"payload"[..])] {
            let mut bytes = 77_u64.to_be_bytes().to_vec();
            bytes.extend_from_slice(&tail(payload));
            bytes.extend_from_slice(b"value");
            let read = Packed::read(&bytes.into()).unwrap();
            assert_eq!(read.sequence, Sequence(77));
            assert_eq!(read.payload, payload.map(checksum));
            assert_eq!(read.value, "value");
        }
    }

    #[test]
    fn what_is_no_entry_is_told() {
        assert_eq!(Packed::read(&Bytes::from_static(&[0; 16])), Err(Damaged));
        let mut bytes = [0; 17];
        bytes[8] = 2;
        assert_eq!(Packed::read(&Bytes::copy_from_slice(&bytes)), Err(Damaged));
    }

    #[test]
    fn the_checksum_is_the_one_that_formats_md_names() {
        assert_eq!(checksum(b"123456789"), 0xAE8B_1486_0A79_9888);
    }
}
