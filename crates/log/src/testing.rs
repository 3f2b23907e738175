//! What must hold of the bytes of the log, for whoever makes them up (`fuzz/`).

use std::num::NonZeroU32;

use bytes::Bytes;
use forebay_native::index::{Batch, Change, Payload};

use crate::{
    format::{SEGMENT_HEAD_BYTES, SegmentHead, SegmentNumber},
    group::{Group, Limits, Room, Start, Work},
    map::Map,
    scan::{self, Damage, Item, Scan},
    table::Table,
};

/// Batches of one segment.
const BATCHES_MAX: usize = 8;

/// Writes a segment that `data` tells of, changes a byte of it or cuts it off, and reads it again:
/// what is read is what was written, in its order, and the table of it reads the same. Then reads
/// `data` itself as a segment and as a table.
///
/// The input: where to change (2 bytes), what to flip there (0 cuts), then batches: kind, name,
/// length, bytes.
///
/// # Panics
/// When that does not hold.
pub fn check_log(data: &[u8]) {
    let segment = SegmentNumber::MIN;
    read_strange(data, segment);
    let Some((&[at, at_high, flip], rest)) = data.split_first_chunk() else {
        return;
    };
    let head = SegmentHead {
        segment,
        sequence: 1,
        previous: None,
        previous_end: 0,
        chain: 0,
        salt: 5,
    };
    let bytes = written(&head, rest);
    let end = bytes.len() as u64;
    let whole = scan::scan(&bytes, &head, end);
    assert_eq!(whole.damage, [], "what was written reads damaged");
    assert_eq!(u64::from(whole.end), end);
    check_table(&whole, segment);
    let mut damaged = bytes;
    let at = usize::from(u16::from_le_bytes([at, at_high])) % damaged.len();
    if flip == 0 {
        damaged.truncate(at);
    } else {
        damaged[at] ^= flip;
    }
    if SegmentHead::read(&damaged, segment) != Ok(head) {
        return;
    }
    for end_known in [0, end] {
        let scan = scan::scan(&damaged, &head, end_known);
        check_damaged(&scan, &whole, end_known);
    }
}

/// A segment with the batches of `data`, each a group of its own.
fn written(head: &SegmentHead, data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (head.write(), data);
    let (mut chain, mut sequence) = (0, 1);
    let limits = Limits {
        room: Room::Enough,
        index_bytes_max: u64::MAX,
    };
    let mut map = Map::default();
    for _ in 0..BATCHES_MAX {
        let [kind, name, length, after @ ..] = rest else {
            break;
        };
        let (content, left) = after.split_at(after.len().min(usize::from(*length)));
        rest = left;
        let start = Start {
            segment: head.segment,
            offset: u32::try_from(bytes.len()).expect("a few KiB"),
            chain,
            salt: head.salt,
            sequence,
        };
        let mut group = Group::new(start, Vec::new());
        let batch = batch(*kind, *name, content);
        let taken = group.take(&map, &Work::new(batch), limits);
        assert!(taken.is_ok(), "{taken:?}");
        bytes.append(&mut group.buffer);
        (chain, sequence) = (group.chain, group.sequence);
        group.publish(&mut map);
    }
    bytes
}

fn batch(kind: u8, name: u8, content: &[u8]) -> Batch {
    let (name, content) = (Bytes::from(vec![name]), Bytes::copy_from_slice(content));
    let put = |payload| Change::Put {
        name: name.clone(),
        value: content.slice(..content.len() / 2),
        payload,
    };
    let changes = match kind % 5 {
        0 => vec![put(Payload::Inline(content.clone()))],
        1 => vec![put(Payload::None)],
        2 => vec![put(Payload::Keep)],
        3 => vec![Change::Delete { name: name.clone() }],
        _ => vec![
            put(Payload::Inline(content.clone())),
            Change::Count {
                counter: name.clone(),
                by: i64::from(kind),
            },
        ],
    };
    Batch {
        expects: Vec::new(),
        changes,
    }
}

fn check_table(scan: &Scan, segment: SegmentNumber) {
    let mut table = Table {
        segment,
        previous: None,
        end: scan.end.into(),
        chain: scan.chain,
        sequence_next: scan.sequence_next,
        items: scan.items.clone(),
    };
    table.sort();
    let bytes = table.write();
    assert_eq!(Table::read(&bytes, segment).as_ref(), Some(&table));
    assert_eq!(Table::read(&bytes[..bytes.len() - 1], segment), None);
}

/// What is left is some of what was written, in its order; and where the end is known, nothing is
/// missing that was not told.
fn check_damaged(scan: &Scan, whole: &Scan, end_known: u64) {
    let mut expected = whole.items.iter();
    for item in &scan.items {
        let is_there = expected.any(|written: &Item| written == item);
        assert!(is_there, "{item:?} was not written there");
    }
    let is_told = scan.damage.iter().any(|damage| match damage {
        Damage::Unnamed(_) => true,
        Damage::Payload { .. } | Damage::Head { .. } => false,
    });
    let is_all = scan.items.len() == whole.items.len();
    assert!(end_known == 0 || is_all || is_told, "items are missing");
}

fn read_strange(data: &[u8], segment: SegmentNumber) {
    let head = SegmentHead {
        segment,
        sequence: 1,
        previous: NonZeroU32::new(7),
        previous_end: 9,
        chain: 0,
        salt: 5,
    };
    let _ = SegmentHead::read(data, segment);
    let mut bytes = vec![0; SEGMENT_HEAD_BYTES];
    bytes.extend_from_slice(data);
    let scan = scan::scan(&bytes, &head, 0);
    assert!(scan.end as usize <= bytes.len());
    let _ = scan::scan(data, &head, data.len() as u64);
    if let Some(table) = Table::read(data, segment) {
        assert_eq!(table.write(), data);
    }
}
