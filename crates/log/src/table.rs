//! Bytes of tables, version 1: what is in a sealed segment, without its values. Pure; mirrored in
//! docs/formats.md.
//!
//! When the log opens, the tables are read and the segments are not. A table that is damaged is
//! made anew from its segment; of a segment that is damaged, the table knows the names.
//!
//! Head, 56 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FBLOGTAB` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | count | items |
//! | 16 | 8 | segment | number of the segment |
//! | 24 | 8 | end | where its records end, which is the length of the file |
//! | 32 | 8 | chain | checksum of its last record head |
//! | 40 | 8 | sequence | the least that no batch in it or before it has |
//! | 48 | 8 | previous | number of the segment before it, 0 when there is none |
//!
//! Then the items, ordered by name and place, 40 bytes each, the name behind each:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | as in the segment |
//! | 1 | 1 | payload | 1 when there is one |
//! | 2 | 2 | name length | |
//! | 4 | 4 | length | bytes of the item's head, name and value |
//! | 8 | 4 | offset | of the item in the segment |
//! | 12 | 4, 4, 4 | payload | segment, offset and length |
//! | 24 | 8 | sequence | |
//! | 32 | 8 | amount | of a counter, signed |
//!
//! Then 8 bytes, the CRC-64/NVME of all before them.

use std::num::NonZeroU32;

use crate::{
    format::{self, Kind, Place, SegmentNumber, VERSION, u16_at, u32_at, u64_at},
    scan::Item,
};

const MAGIC: [u8; 8] = *b"FBLOGTAB";
const HEAD_BYTES: usize = 56;
const ITEM_BYTES: usize = 40;

/// What is in a sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) segment: SegmentNumber,
    pub(crate) previous: Option<SegmentNumber>,
    pub(crate) end: u64,
    pub(crate) chain: u64,
    pub(crate) sequence_next: u64,
    /// Those of a name in the order of the log.
    pub(crate) items: Vec<Item>,
}

impl Table {
    /// Orders the items; those of a counter stay apart from an entry of the same name.
    pub(crate) fn sort(&mut self) {
        self.items.sort_unstable_by(|a, b| {
            let key = |item: &Item| (item.kind.is_counter(), item.offset);
            a.name.cmp(&b.name).then_with(|| key(a).cmp(&key(b)))
        });
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let names: usize = self.items.iter().map(|item| item.name.len()).sum();
        let mut out = Vec::with_capacity(HEAD_BYTES + ITEM_BYTES * self.items.len() + names + 8);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        let count = u32::try_from(self.items.len()).expect("an item has more than one byte");
        out.extend(count.to_le_bytes());
        out.extend(u64::from(self.segment.get()).to_le_bytes());
        let previous = self.previous.map_or(0, NonZeroU32::get).into();
        for number in [self.end, self.chain, self.sequence_next, previous] {
            out.extend(number.to_le_bytes());
        }
        for item in &self.items {
            out.extend([item.kind.code(), u8::from(item.payload.is_some())]);
            let name_bytes = u16::try_from(item.name.len()).expect("names are checked");
            out.extend(name_bytes.to_le_bytes());
            let payload = item.payload.map_or([0; 3], |place| {
                [place.segment.get(), place.offset, place.bytes]
            });
            for number in [item.bytes, item.offset].into_iter().chain(payload) {
                out.extend(number.to_le_bytes());
            }
            out.extend(item.sequence.to_le_bytes());
            out.extend(item.amount.to_le_bytes());
            out.extend_from_slice(&item.name);
        }
        out.extend(format::checksum(&[&out]).to_le_bytes());
        out
    }

    /// Reads a whole table of that segment; `None` when it is none, or damaged.
    pub(crate) fn read(bytes: &[u8], segment: SegmentNumber) -> Option<Self> {
        let (covered, expected) = bytes.split_last_chunk::<8>()?;
        let is_ours = covered.starts_with(&MAGIC)
            && u32_at(covered, 8)? == VERSION
            && u64_at(covered, 16)? == u64::from(segment.get())
            && format::checksum(&[covered]) == u64::from_le_bytes(*expected);
        if !is_ours {
            return None;
        }
        let (mut items, mut rest) = (Vec::new(), covered.get(HEAD_BYTES..)?);
        while !rest.is_empty() {
            let (item, length) = read_item(rest)?;
            items.push(item);
            rest = &rest[length..];
        }
        let count = usize::try_from(u32_at(covered, 12)?).ok()?;
        (items.len() == count).then_some(Self {
            segment,
            previous: NonZeroU32::new(u32::try_from(u64_at(covered, 48)?).ok()?),
            end: u64_at(covered, 24)?,
            chain: u64_at(covered, 32)?,
            sequence_next: u64_at(covered, 40)?,
            items,
        })
    }
}

/// The item that `bytes` begin with, and its length.
fn read_item(bytes: &[u8]) -> Option<(Item, usize)> {
    let end = ITEM_BYTES + usize::from(u16_at(bytes, 2)?);
    let name = bytes.get(ITEM_BYTES..end)?;
    let payload = match bytes.get(1)? {
        0 => None,
        _ => Some(Place {
            segment: NonZeroU32::new(u32_at(bytes, 12)?)?,
            offset: u32_at(bytes, 16)?,
            bytes: u32_at(bytes, 20)?,
        }),
    };
    let item = Item {
        kind: Kind::of(*bytes.first()?)?,
        offset: u32_at(bytes, 8)?,
        bytes: u32_at(bytes, 4)?,
        name: name.into(),
        payload,
        sequence: u64_at(bytes, 24)?,
        amount: i64::from_le_bytes(*bytes.get(32..)?.first_chunk()?),
    };
    Some((item, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let item = |kind, offset, name: &[u8], payload| Item {
            kind,
            offset,
            bytes: 60,
            name: name.into(),
            payload,
            sequence: u64::from(offset) + 1,
            amount: -3,
        };
        let segment = NonZeroU32::new(5).unwrap();
        let place = Place {
            segment,
            offset: 300,
            bytes: 20,
        };
        Table {
            segment,
            previous: NonZeroU32::new(4),
            end: 4096,
            chain: 9,
            sequence_next: 1000,
            items: vec![
                item(Kind::Put, 240, b"b", Some(place)),
                item(Kind::Put, 104, b"b", None),
                item(Kind::Add, 160, b"b", None),
                item(Kind::Delete, 300, b"a", None),
                item(Kind::Lost, 400, b"", None),
            ],
        }
    }

    #[test]
    fn items_of_a_name_are_in_the_order_of_the_log() {
        let mut table = table();
        table.sort();
        let order: Vec<u32> = table.items.iter().map(|item| item.offset).collect();
        assert_eq!(order, [400, 300, 104, 240, 160]);
        assert_eq!(Table::read(&table.write(), table.segment), Some(table));
    }

    #[test]
    fn a_damaged_or_cut_table_is_none() {
        let table = table();
        let bytes = table.write();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Table::read(&flipped, table.segment), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Table::read(&bytes[..length], table.segment), None);
        }
        assert_eq!(Table::read(&bytes, NonZeroU32::new(6).unwrap()), None);
    }
}
