//! Bytes of segments, version 1. Pure; mirrored in docs/formats.md.
//!
//! All numbers are little-endian; checksums are CRC-64/NVME. A segment is a head and records; what
//! is not written yet is zero. A record is one batch: a head, and an item for each change. Records
//! and items begin at multiples of 8 bytes.
//!
//! Segment head, 72 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FBLOGSEG` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | | 0 |
//! | 16 | 8 | segment | number of the segment, at least 1 |
//! | 24 | 8 | sequence | the least that a batch in it can have |
//! | 32 | 8 | previous | number of the segment before it, 0 when there is none |
//! | 40 | 8 | previous end | where the records of that one end |
//! | 48 | 8 | chain | checksum of the last record head before this segment |
//! | 56 | 8 | salt | that nobody can foretell, so that no payload can pass for a record |
//! | 64 | 8 | checksum | of bytes 0 to 63 |
//!
//! Record head, 48 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `FBLR` |
//! | 4 | 4 | count | items |
//! | 8 | 4 | length | bytes of the record, this head included |
//! | 12 | 4 | group | where its group begins: all before that was durable when it was written |
//! | 16 | 8 | sequence | of the batch |
//! | 24 | 8 | chain | checksum of the record head before it, in whichever segment |
//! | 32 | 8 | salt | of the segment |
//! | 40 | 8 | checksum | of the segment's number and this offset, 8 bytes each, and bytes 0 to 39 |
//!
//! Item head, 40 bytes; the name, the value and perhaps the payload follow, and zeros up to the
//! next multiple of 8:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | 1 put, 2 delete, 3 add to a counter, 4 set a counter, 5 lost: damaged |
//! | 1 | 1 | payload | 0 there is none, 1 it follows, 2 it lies elsewhere |
//! | 2 | 2 | name length | |
//! | 4 | 4 | value length | |
//! | 8 | 8 | sequence | when the entry was changed: of a put that was moved, not the record's |
//! | 16 | 4 | payload segment | where the payload lies, whether here or elsewhere |
//! | 20 | 4 | payload offset | |
//! | 24 | 4 | payload length | |
//! | 28 | 4 | | 0 |
//! | 32 | 8 | checksum | of segment and offset as above, bytes 0 to 31, name and value |
//!
//! Behind a payload come 8 bytes: its checksum, in which the upper 32 bits are flipped by the
//! segment's number and the lower 32 by its offset.
//!
//! The value of an item for a counter is 8 bytes, signed.

use std::{
    num::NonZeroU32,
    ops::Range,
    time::{SystemTime, UNIX_EPOCH},
};

use crc_fast::{CrcAlgorithm, Digest};

/// The version of all that is described here.
pub(crate) const VERSION: u32 = 1;
/// Records and items begin at multiples of this.
pub(crate) const UNIT_BYTES: usize = 8;
/// Size of a segment's head.
pub(crate) const SEGMENT_HEAD_BYTES: usize = 72;
/// Size of a record's head.
pub(crate) const RECORD_HEAD_BYTES: usize = 48;
/// Size of an item's head.
pub(crate) const ITEM_HEAD_BYTES: usize = 40;
/// Size of what follows a payload.
pub(crate) const PAYLOAD_TAIL_BYTES: usize = 8;
/// What a record begins with.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"FBLR";

const SEGMENT_MAGIC: [u8; 8] = *b"FBLOGSEG";

/// Number of a segment.
pub(crate) type SegmentNumber = NonZeroU32;

/// Where bytes lie in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

impl Place {
    /// Where they end.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }
}

/// What an item does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
    /// Adds to a counter.
    Add,
    /// Sets a counter.
    Total,
    /// An entry of which only the name is known.
    Lost,
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) segment: SegmentNumber,
    pub(crate) sequence: u64,
    pub(crate) previous: Option<SegmentNumber>,
    pub(crate) previous_end: u64,
    pub(crate) chain: u64,
    pub(crate) salt: u64,
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) count: u32,
    pub(crate) length: u32,
    pub(crate) group: u32,
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
    pub(crate) salt: u64,
    pub(crate) checksum: u64,
}

/// The head of an item; name and value follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemHead {
    pub(crate) kind: Kind,
    pub(crate) name_bytes: u16,
    pub(crate) value_bytes: u32,
    pub(crate) sequence: u64,
    pub(crate) payload: Option<PayloadHead>,
}

/// The payload of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadHead {
    pub(crate) place: Place,
    pub(crate) is_here: Here,
}

/// Whether a payload follows its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    Here,
    Elsewhere,
}

/// Where a record or an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: u32,
}

/// Why bytes are no segment head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// All zero: nothing was written.
    Unbegun,
    /// Of another version, which this program must leave alone.
    Version(u32),
    Damaged,
}

/// The salt of a segment that is begun at this moment.
pub(crate) fn salt(now: SystemTime, segment: SegmentNumber, chain: u64) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (nanos, segment) = (since.as_nanos().to_le_bytes(), segment.get().to_le_bytes());
    checksum(&[&nanos, &segment, &chain.to_le_bytes()])
}

/// `bytes` up to the next unit.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT_BYTES)
}

/// What stands behind a payload of this checksum, at that place.
pub(crate) fn payload_tail(checksum: u64, segment: SegmentNumber, offset: u32) -> u64 {
    checksum ^ (u64::from(segment.get()) << 32 | u64::from(offset))
}

/// The payload in the bytes of its place and what stands behind it; `None` when it is damaged.
pub(crate) fn payload_in(bytes: &[u8], segment: SegmentNumber, offset: u32) -> Option<&[u8]> {
    let (payload, tail) = bytes.split_last_chunk::<PAYLOAD_TAIL_BYTES>()?;
    let expected = payload_tail(checksum(&[payload]), segment, offset);
    (u64::from_le_bytes(*tail) == expected).then_some(payload)
}

/// A length within a segment, for memory.
pub(crate) fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("32 bits fit any address")
}

/// CRC-64/NVME of pieces in a row.
pub(crate) fn checksum(pieces: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

/// The same of a short piece and where it stands, in one call.
fn checksum_at(at: At, head: &[u8], rest: &[u8]) -> u64 {
    let mut seeded = [0; 16 + RECORD_HEAD_BYTES];
    seeded[..8].copy_from_slice(&u64::from(at.segment.get()).to_le_bytes());
    seeded[8..16].copy_from_slice(&u64::from(at.offset).to_le_bytes());
    seeded[16..16 + head.len()].copy_from_slice(head);
    checksum(&[&seeded[..16 + head.len()], rest])
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::Add => 3,
            Self::Total => 4,
            Self::Lost => 5,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::Put, Self::Delete, Self::Add, Self::Total, Self::Lost]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    /// Whether it is about a counter, which has a name of another kind.
    pub(crate) fn is_counter(self) -> bool {
        match self {
            Self::Add | Self::Total => true,
            Self::Put | Self::Delete | Self::Lost => false,
        }
    }
}

impl SegmentHead {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut head = SEGMENT_MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend([0; 4]);
        head.extend(u64::from(self.segment.get()).to_le_bytes());
        head.extend(self.sequence.to_le_bytes());
        let previous = self.previous.map_or(0, NonZeroU32::get);
        head.extend(u64::from(previous).to_le_bytes());
        head.extend(self.previous_end.to_le_bytes());
        head.extend(self.chain.to_le_bytes());
        head.extend(self.salt.to_le_bytes());
        head.extend(checksum(&[&head]).to_le_bytes());
        head
    }

    /// Reads the head of that segment.
    pub(crate) fn read(bytes: &[u8], segment: SegmentNumber) -> Result<Self, BadHead> {
        let head = bytes.get(..SEGMENT_HEAD_BYTES).ok_or(BadHead::Damaged)?;
        if head.iter().all(|byte| *byte == 0) {
            return Err(BadHead::Unbegun);
        }
        let at = |at| u64_at(head, at).ok_or(BadHead::Damaged);
        let is_whole = at(64)? == checksum(&[&head[..64]]);
        let version = u32_at(head, 8).ok_or(BadHead::Damaged)?;
        if !head.starts_with(&SEGMENT_MAGIC) || !is_whole {
            return Err(BadHead::Damaged);
        }
        if version != VERSION {
            return Err(BadHead::Version(version));
        }
        if at(16)? != u64::from(segment.get()) {
            return Err(BadHead::Damaged);
        }
        let previous = u32::try_from(at(32)?).map_err(|_| BadHead::Damaged)?;
        Ok(Self {
            segment,
            sequence: at(24)?,
            previous: NonZeroU32::new(previous),
            previous_end: at(40)?,
            chain: at(48)?,
            salt: at(56)?,
        })
    }
}

impl RecordHead {
    /// Writes the head of the record at `at`, and gives its checksum.
    pub(crate) fn write(&self, at: At, out: &mut [u8]) -> u64 {
        out[..4].copy_from_slice(&RECORD_MAGIC);
        out[4..8].copy_from_slice(&self.count.to_le_bytes());
        out[8..12].copy_from_slice(&self.length.to_le_bytes());
        out[12..16].copy_from_slice(&self.group.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.chain.to_le_bytes());
        out[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = checksum_at(at, &out[..40], &[]);
        out[40..48].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Reads the head of a record at `at`, from there on; `None` when it is none.
    pub(crate) fn read(bytes: &[u8], at: At) -> Option<Self> {
        let head = bytes.get(..RECORD_HEAD_BYTES)?;
        if !head.starts_with(&RECORD_MAGIC)
            || u64_at(head, 40)? != checksum_at(at, &head[..40], &[])
        {
            return None;
        }
        Some(Self {
            count: u32_at(head, 4)?,
            length: u32_at(head, 8)?,
            group: u32_at(head, 12)?,
            sequence: u64_at(head, 16)?,
            chain: u64_at(head, 24)?,
            salt: u64_at(head, 32)?,
            checksum: u64_at(head, 40)?,
        })
    }
}

impl ItemHead {
    /// Bytes of head, name and value.
    pub(crate) fn item_bytes(&self) -> usize {
        ITEM_HEAD_BYTES + usize::from(self.name_bytes) + size(self.value_bytes)
    }

    /// Bytes of the item in its record, to the start of the next.
    pub(crate) fn bytes(&self) -> usize {
        let payload_bytes = match &self.payload {
            Some(payload) if payload.is_here == Here::Here => {
                size(payload.place.bytes) + PAYLOAD_TAIL_BYTES
            }
            Some(_) | None => 0,
        };
        padded(self.item_bytes() + payload_bytes)
    }

    /// Where the name lies in the bytes of the item.
    pub(crate) fn name(&self) -> Range<usize> {
        ITEM_HEAD_BYTES..ITEM_HEAD_BYTES + usize::from(self.name_bytes)
    }

    /// Where the value lies in the bytes of the item.
    pub(crate) fn value(&self) -> Range<usize> {
        self.name().end..self.item_bytes()
    }

    /// Appends head, name and value of the item at `at`.
    pub(crate) fn push(&self, at: At, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let code = match &self.payload {
            None => 0,
            Some(payload) if payload.is_here == Here::Here => 1,
            Some(_) => 2,
        };
        out.extend([self.kind.code(), code]);
        out.extend(self.name_bytes.to_le_bytes());
        out.extend(self.value_bytes.to_le_bytes());
        out.extend(self.sequence.to_le_bytes());
        let place = self.payload.map_or([0; 3], |PayloadHead { place, .. }| {
            [place.segment.get(), place.offset, place.bytes]
        });
        for number in place {
            out.extend(number.to_le_bytes());
        }
        out.extend([0; 12]);
        out.extend_from_slice(name);
        out.extend_from_slice(value);
        let (head, rest) = out[start..].split_at(ITEM_HEAD_BYTES);
        let sum = checksum_at(at, &head[..32], rest);
        out[start + 32..start + 40].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads head, name and value of the item at `at`, from there on; `None` when it is none, or
    /// damaged.
    pub(crate) fn read(bytes: &[u8], at: At) -> Option<Self> {
        let head = bytes.get(..ITEM_HEAD_BYTES)?;
        let kind = Kind::of(head[0])?;
        let (name_bytes, value_bytes) = (u16_at(head, 2)?, u32_at(head, 4)?);
        let end = ITEM_HEAD_BYTES
            .checked_add(usize::from(name_bytes))?
            .checked_add(size(value_bytes))?;
        let rest = bytes.get(ITEM_HEAD_BYTES..end)?;
        if u64_at(head, 32)? != checksum_at(at, &head[..32], rest) {
            return None;
        }
        let payload = match head[1] {
            0 => None,
            code @ (1 | 2) => Some(PayloadHead {
                place: Place {
                    segment: NonZeroU32::new(u32_at(head, 16)?)?,
                    offset: u32_at(head, 20)?,
                    bytes: u32_at(head, 24)?,
                },
                is_here: if code == 1 {
                    Here::Here
                } else {
                    Here::Elsewhere
                },
            }),
            _ => return None,
        };
        Some(Self {
            kind,
            name_bytes,
            value_bytes,
            sequence: u64_at(head, 8)?,
            payload,
        })
    }
}

#[cfg(test)]
mod tests;
