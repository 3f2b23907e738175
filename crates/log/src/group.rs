//! Batches on their way into the log: judged one after another, and written as one.
//!
//! Called by the committer alone. A batch sees what those before it in its group did, readers see
//! all of a group or nothing. Calls no disk and no clock.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Change, Expect, Payload, Sequence};

use crate::{
    format::{
        self, At, Here, ItemHead, Kind, PAYLOAD_TAIL_BYTES, PayloadHead, Place, RECORD_HEAD_BYTES,
        RecordHead, SegmentNumber, UNIT_BYTES,
    },
    map::{ENTRY_BYTES, Map, Slot},
};

/// A batch, with what can be worked out before its turn comes.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) batch: Batch,
    /// Checksums of the payloads, in order.
    payload_checksums: Vec<u64>,
    /// Bytes of its record at most.
    pub(crate) bytes_max: usize,
    pub(crate) puts: Puts,
}

/// Whether a batch writes entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Puts {
    None,
    Some,
}

/// An entry that moves out of a segment that is to go.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) name: Box<[u8]>,
    /// Where it is; it moves only if it still is there.
    pub(crate) from: Slot,
    /// What it says, or `None` when that is damaged.
    pub(crate) found: Option<(Bytes, Option<Bytes>)>,
}

/// What writes may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Whether entries may be written at all.
    pub(crate) room: Room,
    pub(crate) index_bytes_max: u64,
}

/// Whether there is room on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// Only deletes are taken, and what moves.
    None,
}

/// Why a batch was not taken, for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Disk,
    Index,
}

/// Where a group begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: u32,
    /// Checksum of the last record head.
    pub(crate) chain: u64,
    /// Of the segment.
    pub(crate) salt: u64,
    /// Of the next batch.
    pub(crate) sequence: u64,
}

/// Records that are written and synced together.
#[derive(Debug)]
pub(crate) struct Group {
    start: Start,
    pub(crate) buffer: Vec<u8>,
    pub(crate) chain: u64,
    pub(crate) sequence: u64,
    pub(crate) count: u32,
    entries: BTreeMap<Box<[u8]>, Option<Slot>>,
    counters: HashMap<Box<[u8]>, i64>,
    names_new_bytes: u64,
}

/// A record being put together.
struct Open {
    start: usize,
    count: u32,
    sequence: u64,
}

impl Work {
    /// Takes a batch in; on the caller's thread, as it reads all payloads.
    pub(crate) fn new(batch: Batch) -> Self {
        let (mut payload_checksums, mut bytes_max) = (Vec::new(), RECORD_HEAD_BYTES);
        let mut puts = Puts::None;
        for change in &batch.changes {
            bytes_max += format::ITEM_HEAD_BYTES + UNIT_BYTES;
            match change {
                Change::Put {
                    name,
                    value,
                    payload,
                } => {
                    puts = Puts::Some;
                    bytes_max += name.len() + value.len();
                    if let Payload::Inline(bytes) = payload {
                        payload_checksums.push(format::checksum(&[bytes]));
                        bytes_max += bytes.len() + PAYLOAD_TAIL_BYTES;
                    }
                }
                Change::Delete { name } => bytes_max += name.len(),
                Change::Count { counter, .. } => bytes_max += counter.len() + 8,
            }
        }
        Self {
            batch,
            payload_checksums,
            bytes_max,
            puts,
        }
    }
}

impl Moved {
    /// Bytes of its item at most.
    pub(crate) fn bytes_max(&self) -> usize {
        let found = self.found.as_ref().map_or(0, |(value, payload)| {
            value.len() + payload.as_ref().map_or(0, Bytes::len)
        });
        format::ITEM_HEAD_BYTES + UNIT_BYTES + self.name.len() + found + PAYLOAD_TAIL_BYTES
    }
}

impl Group {
    /// A group that begins with these bytes, the head of a segment or none.
    pub(crate) fn new(start: Start, buffer: Vec<u8>) -> Self {
        Self {
            start,
            buffer,
            chain: start.chain,
            sequence: start.sequence,
            count: 0,
            entries: BTreeMap::new(),
            counters: HashMap::new(),
            names_new_bytes: 0,
        }
    }

    /// Judges a batch and takes it in.
    pub(crate) fn take(&mut self, map: &Map, work: &Work, limits: Limits) -> Result<Applied, Full> {
        if let Some(expect_index) = self.unexpected(map, &work.batch) {
            return Ok(Applied::Unexpected { expect_index });
        }
        let names_new_bytes = self.check_room(map, &work.batch, limits)?;
        let mut record = self.open();
        let mut checksums = work.payload_checksums.iter();
        for change in &work.batch.changes {
            match change {
                Change::Put {
                    name,
                    value,
                    payload,
                } => {
                    let payload = match payload {
                        Payload::None => New::None,
                        Payload::Keep => self
                            .get(map, name)
                            .and_then(|slot| slot.payload)
                            .map_or(New::None, New::Elsewhere),
                        Payload::Inline(bytes) => {
                            let sum = checksums.next().expect("one was made for each");
                            New::Here(bytes, *sum)
                        }
                    };
                    let sequence = record.sequence;
                    self.put(&mut record, name, value, payload, sequence);
                }
                Change::Delete { name } => self.delete(map, &mut record, name),
                Change::Count { counter, by } => {
                    let total = self.counter(map, counter).wrapping_add(*by);
                    self.push(&mut record, Kind::Add, counter, &by.to_le_bytes());
                    self.counters.insert(counter[..].into(), total);
                }
            }
        }
        let sequence = self.close(&record);
        self.names_new_bytes += names_new_bytes;
        Ok(Applied::Done(Sequence(sequence)))
    }

    /// Takes in those entries that are where they were, and sets these counters to what they are.
    /// Gives the number of entries.
    pub(crate) fn take_moved(
        &mut self,
        map: &Map,
        moved: &[Moved],
        counters: &[Box<[u8]>],
    ) -> usize {
        let mut record = self.open();
        let mut count = 0;
        for Moved { name, from, found } in moved {
            if self.get(map, name) != Some(*from) {
                continue;
            }
            count += 1;
            match found {
                Some((value, payload)) => {
                    let payload = payload.as_ref().map_or(New::None, |bytes| {
                        New::Here(bytes, format::checksum(&[bytes]))
                    });
                    self.put(&mut record, name, value, payload, from.sequence);
                }
                None => self.lose(&mut record, name, from.sequence),
            }
        }
        for counter in counters {
            let total = self.counter(map, counter);
            self.push(&mut record, Kind::Total, counter, &total.to_le_bytes());
        }
        self.close(&record);
        count
    }

    /// Makes all of it visible, once it is durable.
    pub(crate) fn publish(self, map: &mut Map) {
        for (name, slot) in self.entries {
            map.set(name, slot);
        }
        for (name, total) in self.counters {
            map.set_counter(&name, total);
        }
    }

    /// Whether nothing would be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The place in `expects` of the first that does not hold.
    fn unexpected(&self, map: &Map, batch: &Batch) -> Option<usize> {
        batch.expects.iter().position(|(name, expect)| {
            let holds = match expect {
                Expect::Absent => self.get(map, name).is_none(),
                Expect::Present => self.get(map, name).is_some(),
                Expect::At(sequence) => {
                    let found = self.get(map, name);
                    found.is_some_and(|slot| slot.sequence == sequence.0)
                }
                Expect::NoneBefore(end) => self.has_none(map, name, end),
            };
            !holds
        })
    }

    fn has_none(&self, map: &Map, start: &Bytes, end: &Bytes) -> bool {
        if start >= end {
            return true;
        }
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        let mut staged = self.entries.range::<[u8], _>(bounds);
        if staged.any(|(_, slot)| slot.is_some()) {
            return false;
        }
        let mut durable = map.range(&start[..]..&end[..]);
        durable.all(|(name, _)| self.entries.contains_key(name))
    }

    /// Refuses what there is no room for; gives the memory of names that are new.
    fn check_room(&self, map: &Map, batch: &Batch, limits: Limits) -> Result<u64, Full> {
        let mut names_new_bytes = 0;
        for change in &batch.changes {
            match change {
                Change::Put { name, .. } => {
                    if limits.room == Room::None {
                        return Err(Full::Disk);
                    }
                    if self.get(map, name).is_none() {
                        names_new_bytes += ENTRY_BYTES + name.len() as u64;
                    }
                }
                Change::Delete { .. } | Change::Count { .. } => {}
            }
        }
        let taken = map.memory_bytes() + self.names_new_bytes + names_new_bytes;
        if names_new_bytes > 0 && taken > limits.index_bytes_max {
            return Err(Full::Index);
        }
        Ok(names_new_bytes)
    }

    fn get(&self, map: &Map, name: &[u8]) -> Option<Slot> {
        match self.entries.get(name) {
            Some(staged) => *staged,
            None => map.get(name),
        }
    }

    fn counter(&self, map: &Map, name: &[u8]) -> i64 {
        let staged = self.counters.get(name).copied();
        staged.unwrap_or_else(|| map.counter(name))
    }

    /// Where the next byte goes.
    fn at(&self) -> At {
        let offset = self.start.offset as usize + self.buffer.len();
        At {
            segment: self.start.segment,
            offset: u32::try_from(offset).expect("a segment is left before it has 4 GiB"),
        }
    }

    fn open(&mut self) -> Open {
        let start = self.buffer.len();
        self.buffer.resize(start + RECORD_HEAD_BYTES, 0);
        Open {
            start,
            count: 0,
            sequence: self.sequence,
        }
    }

    /// Writes the head of a record, or takes one without items back; gives its sequence.
    fn close(&mut self, record: &Open) -> u64 {
        self.sequence += 1;
        if record.count == 0 {
            self.buffer.truncate(record.start);
            return record.sequence;
        }
        let length = self.buffer.len() - record.start;
        let head = RecordHead {
            count: record.count,
            length: u32::try_from(length).expect("batches are limited"),
            group: self.start.offset,
            sequence: record.sequence,
            chain: self.chain,
            salt: self.start.salt,
            checksum: 0,
        };
        let offset = self.start.offset as usize + record.start;
        let at = At {
            offset: u32::try_from(offset).expect("it is before the end, which fits"),
            segment: self.start.segment,
        };
        let out = &mut self.buffer[record.start..record.start + RECORD_HEAD_BYTES];
        self.chain = head.write(at, out);
        self.count += 1;
        record.sequence
    }

    fn put(
        &mut self,
        record: &mut Open,
        name: &[u8],
        value: &[u8],
        payload: New<'_>,
        sequence: u64,
    ) {
        let at = self.at();
        let item_bytes = format::ITEM_HEAD_BYTES + name.len() + value.len();
        let item_bytes = u32::try_from(item_bytes).expect("names and values are limited");
        let here = |bytes: &[u8]| Place {
            segment: at.segment,
            offset: at.offset + item_bytes,
            bytes: u32::try_from(bytes.len()).expect("payloads are limited"),
        };
        let head = match payload {
            New::None => None,
            New::Here(bytes, _) => Some((here(bytes), Here::Here)),
            New::Elsewhere(place) => Some((place, Here::Elsewhere)),
        };
        let item = ItemHead {
            kind: Kind::Put,
            name_bytes: u16::try_from(name.len()).expect("names are limited"),
            value_bytes: u32::try_from(value.len()).expect("values are limited"),
            sequence,
            payload: head.map(|(place, is_here)| PayloadHead { place, is_here }),
        };
        item.push(at, name, value, &mut self.buffer);
        if let New::Here(bytes, sum) = payload {
            self.buffer.extend_from_slice(bytes);
            let tail = format::payload_tail(sum, at.segment, at.offset + item_bytes);
            self.buffer.extend(tail.to_le_bytes());
        }
        let slot = Slot {
            sequence,
            item: Place {
                segment: at.segment,
                offset: at.offset,
                bytes: item_bytes,
            },
            payload: head.map(|(place, _)| place),
        };
        self.end_item(record);
        self.entries.insert(name.into(), Some(slot));
    }

    fn delete(&mut self, map: &Map, record: &mut Open, name: &[u8]) {
        // Of one that is not there, the log need not know.
        if self.get(map, name).is_some() {
            self.push(record, Kind::Delete, name, &[]);
            self.entries.insert(name.into(), None);
        }
    }

    /// An entry of which only the name is left.
    fn lose(&mut self, record: &mut Open, name: &[u8], sequence: u64) {
        let at = self.at();
        let item = ItemHead {
            kind: Kind::Lost,
            name_bytes: u16::try_from(name.len()).expect("names are limited"),
            value_bytes: 0,
            sequence,
            payload: None,
        };
        item.push(at, name, &[], &mut self.buffer);
        self.end_item(record);
        let item = Place {
            segment: at.segment,
            offset: at.offset,
            bytes: u32::try_from(item.item_bytes()).expect("names are limited"),
        };
        let slot = Slot {
            sequence,
            item,
            payload: None,
        };
        self.entries.insert(name.into(), Some(slot));
    }

    /// An item that leaves no entry.
    fn push(&mut self, record: &mut Open, kind: Kind, name: &[u8], value: &[u8]) {
        let item = ItemHead {
            kind,
            name_bytes: u16::try_from(name.len()).expect("names are limited"),
            value_bytes: u32::try_from(value.len()).expect("values are limited"),
            sequence: record.sequence,
            payload: None,
        };
        item.push(self.at(), name, value, &mut self.buffer);
        self.end_item(record);
    }

    fn end_item(&mut self, record: &mut Open) {
        record.count += 1;
        // Segments are units from their start, and so is what is written to them.
        let end = self.buffer.len().next_multiple_of(UNIT_BYTES);
        self.buffer.resize(end, 0);
    }
}

/// The payload of an entry that is written.
#[derive(Clone, Copy)]
enum New<'a> {
    None,
    /// With its checksum.
    Here(&'a [u8], u64),
    Elsewhere(Place),
}
