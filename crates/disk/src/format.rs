//! Bytes of segments, version 1. Pure; mirrored in docs/formats.md.
//!
//! All numbers are little-endian; checksums are CRC-64/NVME. A segment is a head, entries and, once
//! it is sealed, a footer: an item for each entry, and a trailer that ends the file. Heads, entries
//! and footers begin at multiples of 16 bytes.
//!
//! Segment head, 32 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FBDISKSG` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | | 0 |
//! | 16 | 8 | segment | number of the segment |
//! | 24 | 8 | checksum | of bytes 0 to 23 |
//!
//! Entry head, 64 bytes; the page follows, and zeros up to the next multiple of 16:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `FBPG` a page, `FBRM` a removal, which has no bytes |
//! | 4 | 4 | length | bytes of the page |
//! | 8 | 16 | content | of the id |
//! | 24 | 8 | index | of the id |
//! | 32 | 8 | segment | number of the segment |
//! | 40 | 8 | page checksum | of bytes 0 to 39 and of the page |
//! | 48 | 8 | head checksum | of bytes 0 to 47 |
//! | 56 | 8 | | 0 |
//!
//! Footer item, 32 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 16 | content | of the id |
//! | 16 | 8 | index | of the id |
//! | 24 | 4 | offset | of the entry, in units of 16 bytes |
//! | 28 | 4 | length | bytes of the page; all ones is a removal |
//!
//! Trailer, 32 bytes, the last of the file:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FBDISKFT` |
//! | 8 | 8 | count | items |
//! | 16 | 8 | segment | number of the segment |
//! | 24 | 8 | checksum | of all items and of bytes 0 to 23 |

use crc_fast::{CrcAlgorithm, Digest};

use crate::page_store::PageId;

/// The version of all that is described here.
pub(crate) const VERSION: u32 = 1;
/// Entries begin at multiples of this.
pub(crate) const UNIT_BYTES: u64 = 16;
/// Files are made in multiples of this, the block of most file systems.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// A segment without a footer is scanned when the store opens, and this much takes a moment.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Size of a segment's head.
pub(crate) const SEGMENT_HEAD_BYTES: u64 = 32;
/// Size of an entry's head.
pub(crate) const ENTRY_HEAD_BYTES: u64 = 64;
/// Size of an item of the footer.
pub(crate) const ITEM_BYTES: u64 = 32;
/// Size of the trailer.
pub(crate) const TRAILER_BYTES: u64 = 32;

const SEGMENT_MAGIC: [u8; 8] = *b"FBDISKSG";
const TRAILER_MAGIC: [u8; 8] = *b"FBDISKFT";
const PAGE_MAGIC: [u8; 4] = *b"FBPG";
const REMOVAL_MAGIC: [u8; 4] = *b"FBRM";
const REMOVAL_LENGTH: u32 = u32::MAX;

/// What an entry says of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// These many bytes.
    Page(u32),
    /// It was removed.
    Removal,
}

/// An entry, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: PageId,
    /// In the segment.
    pub(crate) offset: u64,
    pub(crate) kind: Kind,
}

impl Item {
    /// Bytes from the start of the entry to that of the next.
    pub(crate) fn entry_bytes(&self) -> u64 {
        padded(ENTRY_HEAD_BYTES + u64::from(self.kind.length()))
    }
}

impl Kind {
    fn length(self) -> u32 {
        match self {
            Self::Page(length) => length,
            Self::Removal => 0,
        }
    }
}

/// Why bytes are no segment head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// Of another version, which this program must leave alone.
    Version(u32),
    Damaged,
}

/// `bytes` up to the next unit.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT_BYTES)
}

/// A length within a segment, for memory.
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a segment is smaller than any address space")
}

/// Bytes of a footer with so many items.
pub(crate) fn footer_bytes(items: u64) -> u64 {
    items * ITEM_BYTES + TRAILER_BYTES
}

fn checksum(pieces: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn id_at(bytes: &[u8], at: usize) -> Option<PageId> {
    Some(PageId {
        content: *bytes.get(at..)?.first_chunk()?,
        index: u64_at(bytes, at + 16)?,
    })
}

/// The head of a segment.
pub(crate) fn segment_head(segment: u64) -> Vec<u8> {
    let mut head = SEGMENT_MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend([0; 4]);
    head.extend(segment.to_le_bytes());
    head.extend(checksum(&[&head]).to_le_bytes());
    head
}

/// Whether bytes are the head of that segment.
pub(crate) fn check_segment_head(head: &[u8], segment: u64) -> Result<(), BadHead> {
    let magic = head.starts_with(&SEGMENT_MAGIC);
    match (magic, u32_at(head, 8)) {
        (true, Some(version)) if version != VERSION && version != 0 => {
            Err(BadHead::Version(version))
        }
        _ if head == segment_head(segment) => Ok(()),
        _ => Err(BadHead::Damaged),
    }
}

/// Appends an entry to `out`.
pub(crate) fn push_entry(out: &mut Vec<u8>, segment: u64, id: PageId, entry: Entry<'_>) {
    let start = out.len();
    let (magic, page) = match entry {
        Entry::Page(page) => (PAGE_MAGIC, page),
        Entry::Removal => (REMOVAL_MAGIC, &[][..]),
    };
    let length = u32::try_from(page.len()).expect("pages are checked when they are put");
    out.extend(magic);
    out.extend(length.to_le_bytes());
    out.extend(id.content);
    out.extend(id.index.to_le_bytes());
    out.extend(segment.to_le_bytes());
    out.extend(checksum(&[&out[start..], page]).to_le_bytes());
    out.extend(checksum(&[&out[start..]]).to_le_bytes());
    out.extend([0; 8]);
    out.extend_from_slice(page);
    let end = start + page.len() + size(ENTRY_HEAD_BYTES);
    out.resize(end.next_multiple_of(size(UNIT_BYTES)), 0);
}

/// What is to be written of an id.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry<'a> {
    Page(&'a [u8]),
    Removal,
}

/// Reads an entry's head, found at `offset` of the segment; `None` when it is none.
pub(crate) fn entry_head(head: &[u8], segment: u64, offset: u64) -> Option<Item> {
    let head = head.get(..size(ENTRY_HEAD_BYTES))?;
    if u64_at(head, 48)? != checksum(&[&head[..48]]) || u64_at(head, 32)? != segment {
        return None;
    }
    let kind = match *head.first_chunk()? {
        PAGE_MAGIC => Kind::Page(u32_at(head, 4)?),
        REMOVAL_MAGIC => Kind::Removal,
        _ => return None,
    };
    let id = id_at(head, 8)?;
    Some(Item { id, offset, kind })
}

/// Where the page lies in the bytes of an entry, once it is proved to be the page of `id`.
pub(crate) fn page_in(entry: &[u8], segment: u64, id: PageId) -> Option<std::ops::Range<usize>> {
    let item = entry_head(entry, segment, 0)?;
    let Kind::Page(length) = item.kind else {
        return None;
    };
    let start = size(ENTRY_HEAD_BYTES);
    let range = start..start.checked_add(usize::try_from(length).ok()?)?;
    let page = entry.get(range.clone())?;
    let is_whole = u64_at(entry, 40)? == checksum(&[&entry[..40], page]);
    (item.id == id && is_whole).then_some(range)
}

/// The footer of a segment.
pub(crate) fn footer(segment: u64, items: &[Item]) -> Vec<u8> {
    let mut out = Vec::with_capacity(size(footer_bytes(items.len() as u64)));
    for item in items {
        out.extend(item.id.content);
        out.extend(item.id.index.to_le_bytes());
        let units = u32::try_from(item.offset / UNIT_BYTES).expect("segments are small enough");
        out.extend(units.to_le_bytes());
        let length = match item.kind {
            Kind::Page(length) => length,
            Kind::Removal => REMOVAL_LENGTH,
        };
        out.extend(length.to_le_bytes());
    }
    out.extend(TRAILER_MAGIC);
    out.extend((items.len() as u64).to_le_bytes());
    out.extend(segment.to_le_bytes());
    out.extend(checksum(&[&out]).to_le_bytes());
    out
}

/// Reads from a trailer how many bytes its footer has; `None` when it is none of that segment.
pub(crate) fn footer_length(trailer: &[u8], segment: u64) -> Option<u64> {
    if !trailer.starts_with(&TRAILER_MAGIC) || u64_at(trailer, 16)? != segment {
        return None;
    }
    let count = u64_at(trailer, 8)?;
    count.checked_mul(ITEM_BYTES)?.checked_add(TRAILER_BYTES)
}

/// Reads the items of a whole footer; `None` when it is damaged.
pub(crate) fn items(footer: &[u8]) -> Option<Vec<Item>> {
    let (covered, expected) = footer.split_at_checked(footer.len().checked_sub(8)?)?;
    if u64_at(expected, 0)? != checksum(&[covered]) {
        return None;
    }
    let items = footer.get(..footer.len().checked_sub(size(TRAILER_BYTES))?)?;
    items
        .chunks_exact(size(ITEM_BYTES))
        .map(|item| {
            let kind = match u32_at(item, 28)? {
                REMOVAL_LENGTH => Kind::Removal,
                length => Kind::Page(length),
            };
            let offset = u64::from(u32_at(item, 24)?) * UNIT_BYTES;
            let id = id_at(item, 0)?;
            Some(Item { id, offset, kind })
        })
        .collect()
}
