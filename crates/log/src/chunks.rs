//! Bytes of blobs, version 1. Pure; mirrored in docs/formats.md.
//!
//! A blob is a file of chunks of [`CHUNK_BYTES`], the last one perhaps shorter, each followed by 8
//! bytes: the CRC-64/NVME of the blob's number and the chunk's, 8 bytes each, little-endian, and
//! the chunk. The blob's id has its number and its length: `NNNNNNNNNNNNNNNN-LENGTH`, in hex.

use std::ops::Range;

use crate::format;

/// What is read and checked to read one byte: a compromise of small ranges, and of checksums.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
const TAIL_BYTES: u64 = 8;

/// A blob: its number, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) number: u64,
    pub(crate) length: u64,
}

impl Blob {
    pub(crate) fn id(&self) -> String {
        format!("{:016x}-{:x}", self.number, self.length)
    }

    /// The blob of an id, if it is one.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let (number, length) = id.split_once('-')?;
        let blob = Self {
            number: u64::from_str_radix(number, 16).ok()?,
            length: u64::from_str_radix(length, 16).ok()?,
        };
        (blob.id() == id).then_some(blob)
    }

    /// Bytes of its file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.length + self.length.div_ceil(CHUNK_BYTES) * TAIL_BYTES
    }

    /// Where so many of its chunks from `first` on lie in its file.
    pub(crate) fn chunks_at(&self, first: u64, count: u64) -> Range<u64> {
        let start = first * (CHUNK_BYTES + TAIL_BYTES);
        let end = (first + count) * (CHUNK_BYTES + TAIL_BYTES);
        start.min(self.file_bytes())..end.min(self.file_bytes())
    }
}

/// Numbers of what looks like ids in bytes of any form.
pub(crate) fn numbers_in(bytes: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memchr_iter(b'-', bytes).filter_map(move |at| {
        let digits = std::str::from_utf8(bytes.get(at.checked_sub(16)?..at)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    })
}

/// The length of a blob whose file has so many bytes; `None` when none has.
pub(crate) fn length_of(file_bytes: u64) -> Option<u64> {
    let chunks = file_bytes.div_ceil(CHUNK_BYTES + TAIL_BYTES);
    let length = file_bytes.checked_sub(chunks * TAIL_BYTES)?;
    (length.div_ceil(CHUNK_BYTES) == chunks).then_some(length)
}

/// Appends chunks to `out`; all but the last of a blob are full.
pub(crate) fn push(out: &mut Vec<u8>, number: u64, first: u64, bytes: &[u8]) {
    let chunk_bytes = usize::try_from(CHUNK_BYTES).expect("it is 64 KiB");
    for (index, chunk) in (first..).zip(bytes.chunks(chunk_bytes)) {
        out.extend_from_slice(chunk);
        out.extend(tail(number, index, chunk).to_le_bytes());
    }
}

/// Where the chunks lie in the bytes of some from `first` on; `None` when one is damaged.
pub(crate) fn read(bytes: &[u8], number: u64, first: u64) -> Option<Vec<Range<usize>>> {
    let step = usize::try_from(CHUNK_BYTES + TAIL_BYTES).expect("it is 64 KiB and a little");
    let mut chunks = Vec::new();
    for (index, piece) in (first..).zip(bytes.chunks(step)) {
        let (chunk, expected) = piece.split_last_chunk::<8>()?;
        if tail(number, index, chunk) != u64::from_le_bytes(*expected) {
            return None;
        }
        let start = chunks.len() * step;
        chunks.push(start..start + chunk.len());
    }
    Some(chunks)
}

fn tail(number: u64, index: u64, chunk: &[u8]) -> u64 {
    format::checksum(&[&number.to_le_bytes(), &index.to_le_bytes(), chunk])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_read_as_written_and_no_flipped_bit_is() {
        let bytes: Vec<u8> = (0..150_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let blob = Blob {
            number: 7 << 32,
            length: bytes.len() as u64,
        };
        let mut file = Vec::new();
        push(&mut file, blob.number, 0, &bytes);
        assert_eq!(file.len() as u64, blob.file_bytes());
        assert_eq!(length_of(blob.file_bytes()), Some(blob.length));
        let chunks = read(&file, blob.number, 0).unwrap();
        let joined: Vec<u8> = chunks
            .into_iter()
            .flat_map(|at| file[at].to_vec())
            .collect();
        assert_eq!(joined, bytes);
        let at = blob.chunks_at(1, 1);
        let second = &file[usize::try_from(at.start).unwrap()..usize::try_from(at.end).unwrap()];
        assert!(read(second, blob.number, 1).is_some());
        assert!(read(second, blob.number, 2).is_none(), "another chunk's");
        assert!(read(second, 8, 1).is_none(), "another blob's");
        for at in (0..second.len()).step_by(997).chain([second.len() - 1]) {
            let mut flipped = second.to_vec();
            flipped[at] ^= 4;
            assert!(read(&flipped, blob.number, 1).is_none(), "byte {at}");
        }
    }

    #[test]
    fn ids_are_printable_and_of_one_form() {
        let blob = Blob {
            number: 0x1_0000_0002,
            length: 0x1_f4,
        };
        assert_eq!(blob.id(), "0000000100000002-1f4");
        assert_eq!(Blob::of(&blob.id()), Some(blob));
        let text = format!("\u{1}{{\"blob\":\"{}\"}} -x 0000000000000007-a", blob.id());
        let numbers: Vec<u64> = numbers_in(text.as_bytes()).collect();
        assert_eq!(numbers, [blob.number, 7]);
        for other in [
            "",
            "1-1",
            "0000000100000002-01f4",
            "0000000100000002",
            "x-1",
        ] {
            assert_eq!(Blob::of(other), None, "{other}");
        }
    }
}
