//! Goal: however fills take room, store and give up, the index stays within its capacity and its
//! accounts stay right.
//! Method: seeded steps of several fills, one at a time in any order, and then on threads.

use std::sync::Arc;

use bytes::Bytes;
use forebay_telemetry::cache::CacheMetrics;

use super::{origin::KIB, schedules::Random};
use crate::{
    PageBytes,
    index::{Index, Limits, Nobody, Room, Stored},
    version::Vid,
};

const CAPACITY_BYTES: u64 = 4000 * KIB;
const FILLS: usize = 8;
static PAGE: [u8; 64 * 1024] = [0; 64 * 1024];

fn index() -> Index {
    let limits = Limits {
        capacity_bytes: CAPACITY_BYTES,
        pin_bytes_max: 0,
        pins_max: 0,
    };
    let metrics = CacheMetrics::default();
    Index::new(limits, PageBytes::OF_TESTS, Arc::new(Nobody), metrics)
}

/// One step of a fill: takes room for a page, stores it, gives up, or looks for pages.
fn step<'a>(index: &'a Index, random: &mut Random, room: &mut Option<Room<'a>>) {
    let now_ms = i64::try_from(random.below(100_000)).unwrap();
    let vid = Vid(u128::from(random.below(40)));
    let page_index = random.below(4);
    match random.below(5) {
        0 => *room = None,
        1 => drop(index.page(vid, page_index, now_ms)),
        _ => match room.take() {
            None => *room = index.room_for_page(64 * KIB),
            Some(taken) => {
                let length = usize::try_from(1 + random.below(64 * KIB)).unwrap();
                let page = Bytes::from_static(&PAGE).slice(..length);
                let stored = index.put_page_in(taken, vid, page_index, page, now_ms);
                assert_eq!(stored, Stored::Yes);
            }
        },
    }
}

#[test]
fn rooms_taken_in_any_order_keep_within_the_capacity() {
    for seed in 0..50 {
        let (index, mut random) = (index(), Random(seed));
        let mut rooms: [Option<Room<'_>>; FILLS] = Default::default();
        for _ in 0..1000 {
            let fill = usize::try_from(random.below(FILLS as u64)).unwrap();
            step(&index, &mut random, &mut rooms[fill]);
            assert!(index.used_bytes() <= CAPACITY_BYTES, "seed {seed}");
        }
        assert!(index.used_bytes() > CAPACITY_BYTES / 2, "others make room");
        drop(rooms);
        index.audit();
    }
}

#[test]
fn rooms_taken_on_many_threads_keep_within_the_capacity() {
    let index = index();
    std::thread::scope(|threads| {
        for seed in 0..4 {
            let index = &index;
            threads.spawn(move || {
                let (mut random, mut room) = (Random(seed), None);
                for _ in 0..20_000 {
                    step(index, &mut random, &mut room);
                }
            });
        }
    });
    index.audit();
}
