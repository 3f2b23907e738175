//! What the records of a segment say, and where they end. Pure.
//!
//! Called when a segment is sealed, and when the log opens for segments that were not. The bytes
//! behind the last whole record are either what a crash left of a group that was never synced, or
//! damage to what was: each record says where its group began, and all before that was durable
//! when it was written. So a bad place is damage when a whole record behind it belongs to a later
//! group, or when the next segment knows that there were records. Else it is the end.

use std::ops::Range;

use crate::format::{
    self, At, Here, ItemHead, Kind, PAYLOAD_TAIL_BYTES, Place, RECORD_HEAD_BYTES, RECORD_MAGIC,
    RecordHead, SEGMENT_HEAD_BYTES, SegmentHead, SegmentNumber, UNIT_BYTES,
};

/// An item, without what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// In its segment.
    pub(crate) offset: u32,
    /// Bytes of head, name and value.
    pub(crate) bytes: u32,
    pub(crate) name: Box<[u8]>,
    pub(crate) payload: Option<Place>,
    pub(crate) sequence: u64,
    /// Of a counter.
    pub(crate) amount: i64,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    /// In the order of the log.
    pub(crate) items: Vec<Item>,
    /// Where the records end.
    pub(crate) end: u32,
    /// Checksum of the last record head.
    pub(crate) chain: u64,
    /// Where the last group begins: what may have been written and not synced. 0 when the head of
    /// the segment is part of it.
    pub(crate) group: u32,
    /// The least sequence that no record has.
    pub(crate) sequence_next: u64,
    pub(crate) damage: Vec<Damage>,
}

/// A place that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The payload of this entry.
    Payload { name: Box<[u8]> },
    /// Something whose names are not known.
    Unnamed(Range<u32>),
    /// The head of a record, whose items are all there.
    Head { offset: u32 },
}

/// Items in a row.
struct Walk {
    items: Vec<Item>,
    /// Where the next item would be.
    end: usize,
    /// Names of payloads that are damaged.
    damaged: Vec<Box<[u8]>>,
}

/// Reads the records of a whole segment, of which so many bytes are known to be records.
pub(crate) fn scan(bytes: &[u8], head: &SegmentHead, end_known: u64) -> Scan {
    let start = offset_of(SEGMENT_HEAD_BYTES);
    let mut scan = Scan {
        items: Vec::new(),
        end: start,
        chain: head.chain,
        group: 0,
        sequence_next: head.sequence,
        damage: Vec::new(),
    };
    loop {
        let at = At {
            segment: head.segment,
            offset: scan.end,
        };
        if let Some((record, items)) = whole_record(bytes, at)
            && (record.chain, record.salt) == (scan.chain, head.salt)
        {
            scan.take(&record, items);
            continue;
        }
        let next = next_head(bytes, at, head.salt);
        let was_durable =
            end_known > u64::from(at.offset) || has_later_group(bytes, next, at, head.salt);
        if !was_durable {
            return scan;
        }
        let end = next.map_or_else(
            || {
                offset_of(
                    bytes
                        .len()
                        .min(usize::try_from(end_known).unwrap_or(usize::MAX)),
                )
            },
            |(offset, _)| offset,
        );
        scan.salvage(bytes, at, end.max(at.offset));
        let Some((offset, record)) = next else {
            if end_known > u64::from(scan.end) {
                let end = u32::try_from(end_known).unwrap_or(u32::MAX);
                scan.damage.push(Damage::Unnamed(scan.end..end));
            }
            return scan;
        };
        (scan.end, scan.chain) = (offset, record.chain);
    }
}

impl Scan {
    fn take(&mut self, record: &RecordHead, items: Vec<Item>) {
        self.items.extend(items);
        self.end += record.length;
        self.chain = record.checksum;
        self.group = record.group;
        self.sequence_next = self.sequence_next.max(record.sequence + 1);
    }

    /// Takes what is whole of a damaged stretch, and says what is not.
    fn salvage(&mut self, bytes: &[u8], at: At, end: u32) {
        let stretch = &bytes[..format::size(end).min(bytes.len())];
        let first = format::size(at.offset) + RECORD_HEAD_BYTES;
        let walk = walk(stretch, at, first, u32::MAX);
        let is_all = walk.end == stretch.len() && walk.end > first;
        if !is_all {
            let from = if walk.items.is_empty() {
                at.offset
            } else {
                offset_of(walk.end)
            };
            self.damage.push(Damage::Unnamed(from..end));
        } else if walk.damaged.is_empty() {
            self.damage.push(Damage::Head { offset: at.offset });
        }
        for name in walk.damaged {
            self.damage.push(Damage::Payload { name });
        }
        for item in walk.items {
            // Those that compaction moved have older ones, which does no harm.
            self.sequence_next = self.sequence_next.max(item.sequence + 1);
            self.items.push(item);
        }
        self.end = end;
    }
}

/// An offset in a segment.
fn offset_of(offset: usize) -> u32 {
    u32::try_from(offset).expect("segments are smaller than 4 GiB")
}

/// The record at `at` with its items, if all of it is whole.
pub(crate) fn whole_record(bytes: &[u8], at: At) -> Option<(RecordHead, Vec<Item>)> {
    let start = format::size(at.offset);
    let head = RecordHead::read(bytes.get(start..)?, at)?;
    let end = start.checked_add(format::size(head.length))?;
    let record = bytes.get(..end)?;
    let walk = walk(record, at, start + RECORD_HEAD_BYTES, head.count);
    let is_whole =
        walk.end == end && walk.damaged.is_empty() && walk.items.len() == format::size(head.count);
    is_whole.then_some((head, walk.items))
}

/// Up to `count_max` items in a row, from `start` to the end of `bytes` or the first that is none.
fn walk(bytes: &[u8], record: At, start: usize, count_max: u32) -> Walk {
    let mut walk = Walk {
        items: Vec::new(),
        end: start,
        damaged: Vec::new(),
    };
    for _ in 0..count_max {
        let Some(rest) = bytes.get(walk.end..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        let Ok(offset) = u32::try_from(walk.end) else {
            break;
        };
        let at = At { offset, ..record };
        let Some(head) = ItemHead::read(rest, at) else {
            break;
        };
        let name = &rest[head.name()];
        if let Some(payload) = head.payload.filter(|payload| payload.is_here == Here::Here) {
            let start = head.item_bytes();
            let end = start + format::size(payload.place.bytes) + PAYLOAD_TAIL_BYTES;
            let Place {
                segment, offset, ..
            } = payload.place;
            let found = rest.get(start..end);
            if found
                .and_then(|found| format::payload_in(found, segment, offset))
                .is_none()
            {
                walk.damaged.push(name.into());
            }
        }
        walk.items.push(item(&head, rest, offset));
        walk.end += head.bytes();
        if walk.end > bytes.len() {
            // Its payload is cut.
            walk.end = bytes.len();
            break;
        }
    }
    walk
}

fn item(head: &ItemHead, bytes: &[u8], offset: u32) -> Item {
    let value = &bytes[head.value()];
    Item {
        kind: head.kind,
        offset,
        bytes: offset_of(head.item_bytes()),
        name: bytes[head.name()].into(),
        payload: head.payload.map(|payload| payload.place),
        sequence: head.sequence,
        amount: value
            .first_chunk()
            .map_or(0, |first| i64::from_le_bytes(*first)),
    }
}

/// The first whole record head behind `at`.
fn next_head(bytes: &[u8], at: At, salt: u64) -> Option<(u32, RecordHead)> {
    let first = format::size(at.offset) + UNIT_BYTES;
    heads(bytes, first, at).find(|(_, head)| head.salt == salt)
}

/// The salt of the first record of a segment whose head is damaged.
pub(crate) fn first_salt(bytes: &[u8], segment: SegmentNumber) -> Option<u64> {
    let at = At {
        segment,
        offset: offset_of(SEGMENT_HEAD_BYTES),
    };
    let head = RecordHead::read(bytes.get(SEGMENT_HEAD_BYTES..)?, at)?;
    Some(head.salt)
}

/// What looks like record heads from `start` on, wherever they are.
fn heads(bytes: &[u8], start: usize, at: At) -> impl Iterator<Item = (u32, RecordHead)> {
    let rest = bytes.get(start..).unwrap_or_default();
    memchr::memmem::find_iter(rest, &RECORD_MAGIC).filter_map(move |found| {
        let offset = u32::try_from(start + found).ok()?;
        if !(start + found).is_multiple_of(UNIT_BYTES) {
            return None;
        }
        let head = RecordHead::read(&rest[found..], At { offset, ..at })?;
        Some((offset, head))
    })
}

/// Whether a record behind `at` belongs to a group that was begun when all there was durable.
fn has_later_group(bytes: &[u8], next: Option<(u32, RecordHead)>, at: At, salt: u64) -> bool {
    next.is_some_and(|(first, _)| {
        heads(bytes, format::size(first), at)
            .any(|(_, head)| head.salt == salt && head.group > at.offset)
    })
}
