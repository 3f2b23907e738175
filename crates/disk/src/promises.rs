//! What must hold of the bytes of segments, for whoever makes them up (`fuzz/`).

use crate::{
    format::{self, ENTRY_HEAD_BYTES, Entry, Item, Kind, SEGMENT_HEAD_BYTES, TRAILER_BYTES, size},
    page_store::PageId,
};

/// Entries of one segment.
const ENTRIES_MAX: usize = 16;

/// Prints a segment that `data` tells of, changes a byte of it or cuts it off, and reads it again:
/// what is read is what was printed, and no page is given out as that of another id. Then reads
/// `data` itself as each part of a segment.
///
/// The input: segment, where to change (2 bytes), what to flip there, then entries: id, length (255
/// is a removal), bytes.
///
/// # Panics
/// When that does not hold.
pub fn check_segment(data: &[u8]) {
    read_strange(data);
    let Some((&[segment, at, at_high, flip], mut rest)) = data.split_first_chunk() else {
        return;
    };
    let segment = u64::from(segment);
    let mut printed = Printed {
        bytes: format::segment_head(segment),
        items: Vec::new(),
    };
    while let [id, length, after @ ..] = rest
        && printed.items.len() < ENTRIES_MAX
    {
        let (page, left) = match *length {
            u8::MAX => (None, after),
            length => {
                let (page, left) = after.split_at(after.len().min(usize::from(length)));
                (Some(page), left)
            }
        };
        rest = left;
        printed.push(segment, *id, page);
    }
    let footer = format::footer(segment, &printed.items);
    printed.check(segment, &printed.bytes, Damage::None);
    assert_eq!(format::items(&footer).as_ref(), Some(&printed.items));
    let trailer = &footer[footer.len() - size(TRAILER_BYTES)..];
    assert_eq!(
        format::footer_length(trailer, segment),
        Some(footer.len() as u64)
    );
    assert_eq!(format::footer_length(trailer, segment + 1), None);
    let at = usize::from(u16::from_le_bytes([at, at_high]));
    let damaged = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let at = at % bytes.len();
        if flip == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= flip;
        }
        bytes
    };
    printed.check(segment, &damaged(&printed.bytes), Damage::Some);
    assert_eq!(format::items(&damaged(&footer)), None, "a damaged footer");
}

/// What was printed, to compare with.
struct Printed {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Whether anything was done to the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    Some,
}

impl Printed {
    fn push(&mut self, segment: u64, id: u8, page: Option<&[u8]>) {
        let id = PageId {
            content: [id; 16],
            index: u64::from(id) << 32,
        };
        let offset = self.bytes.len() as u64;
        let (entry, kind) = match page {
            Some(page) => (
                Entry::Page(page),
                Kind::Page(u32::try_from(page.len()).unwrap_or(0)),
            ),
            None => (Entry::Removal, Kind::Removal),
        };
        format::push_entry(&mut self.bytes, segment, id, entry);
        self.items.push(Item { id, offset, kind });
    }

    /// Scans `bytes` as a store does that has no footer, and reads each page.
    fn check(&self, segment: u64, bytes: &[u8], damage: Damage) {
        let is_head = format::check_segment_head(
            bytes.get(..size(SEGMENT_HEAD_BYTES)).unwrap_or_default(),
            segment,
        );
        assert!(is_head.is_ok() || damage == Damage::Some);
        for item in &self.items {
            let entry = bytes.get(size(item.offset)..).unwrap_or_default();
            let head = format::entry_head(entry, segment, item.offset);
            assert!(
                head.is_none_or(|head| head == *item),
                "{head:?}, not {item:?}"
            );
            assert_eq!(format::entry_head(entry, segment + 1, item.offset), None);
            for other in self.items.iter().filter(|other| other.id != item.id) {
                assert_eq!(
                    format::page_in(entry, segment, other.id),
                    None,
                    "of another id"
                );
            }
            let page = format::page_in(entry, segment, item.id).map(|range| &entry[range]);
            let start = size(item.offset + ENTRY_HEAD_BYTES);
            let expected = match item.kind {
                Kind::Page(length) => Some(&self.bytes[start..][..size(u64::from(length))]),
                Kind::Removal => None,
            };
            assert!(page.is_none() || page == expected, "torn");
            if damage == Damage::None {
                assert_eq!((head, page), (Some(*item), expected));
            }
        }
    }
}

/// Bytes that nobody printed are hardly ever anything; if they are, they print and read the same.
fn read_strange(data: &[u8]) {
    let segment = data
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if format::check_segment_head(data, segment).is_ok() {
        assert_eq!(data, format::segment_head(segment));
    }
    let _ = format::footer_length(data, segment);
    if let Some(items) = format::items(data) {
        assert_eq!(format::items(&format::footer(segment, &items)), Some(items));
    }
    if let Some(item) = format::entry_head(data, segment, 0)
        && let Some(range) = format::page_in(data, segment, item.id)
    {
        let mut out = Vec::new();
        format::push_entry(&mut out, segment, item.id, Entry::Page(&data[range]));
        assert_eq!(format::entry_head(&out, segment, 0), Some(item));
    }
}

#[cfg(test)]
mod tests {
    /// Two pages and a removal; a byte of the second page is changed, then it is cut off.
    #[test]
    fn segments_keep_their_promises() {
        for (at, flip) in [(0, 1), (100, 1), (180, 9), (180, 0), (60, 128)] {
            let mut input = vec![3, at, 0, flip];
            input.extend(b"a\x20 twenty and some bytes of a page");
            input.extend(b"b\x05bytes");
            input.extend(b"a\xff");
            super::check_segment(&input);
        }
    }
}
