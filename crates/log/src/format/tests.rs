//! Heads are read as they were written, and not otherwise.

use super::*;

fn segment(number: u32) -> SegmentNumber {
    NonZeroU32::new(number).unwrap()
}

#[test]
fn heads_are_read_as_they_were_written_and_only_where_they_stand() {
    let head = SegmentHead {
        segment: segment(7),
        sequence: 5,
        previous: NonZeroU32::new(6),
        previous_end: 4096,
        chain: 99,
        salt: 17,
    };
    assert_eq!(SegmentHead::read(&head.write(), segment(7)), Ok(head));
    assert_eq!(
        SegmentHead::read(&head.write(), segment(8)),
        Err(BadHead::Damaged)
    );
    assert_eq!(
        SegmentHead::read(&[0; SEGMENT_HEAD_BYTES], segment(7)),
        Err(BadHead::Unbegun)
    );
    let at = At {
        segment: segment(7),
        offset: 64,
    };
    let mut bytes = [0; RECORD_HEAD_BYTES];
    let mut record = RecordHead {
        count: 2,
        length: 400,
        group: 64,
        sequence: 8,
        chain: 1,
        salt: 17,
        checksum: 0,
    };
    record.checksum = record.write(at, &mut bytes);
    assert_eq!(RecordHead::read(&bytes, at), Some(record));
    let elsewhere = At { offset: 72, ..at };
    assert_eq!(RecordHead::read(&bytes, elsewhere), None);
}

#[test]
fn every_flipped_bit_of_an_item_is_seen() {
    let at = At {
        segment: segment(3),
        offset: 104,
    };
    let item = ItemHead {
        kind: Kind::Put,
        name_bytes: 4,
        value_bytes: 5,
        sequence: 12,
        payload: Some(PayloadHead {
            place: Place {
                segment: segment(2),
                offset: 9,
                bytes: 100,
            },
            is_here: Here::Elsewhere,
        }),
    };
    let mut bytes = Vec::new();
    item.push(at, b"name", b"value", &mut bytes);
    assert_eq!(ItemHead::read(&bytes, at), Some(item));
    assert_eq!(&bytes[item.name()], b"name");
    assert_eq!(&bytes[item.value()], b"value");
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(ItemHead::read(&flipped, at), None, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(ItemHead::read(&bytes[..length], at), None, "{length} bytes");
    }
}
