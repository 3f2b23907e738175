//! Which entry makes room.

use super::*;

const WEIGHT: u64 = 1000;

fn vid(name: u64) -> Vid {
    Vid(u128::from(name))
}

fn put(shard: &mut Shard, name: u64, now_ms: i64) {
    let entry = Entry::Page {
        vid: vid(name),
        page_index: 0,
        page: Bytes::new(),
    };
    shard.insert(name << 20, entry, WEIGHT, now_ms);
}

fn touch(shard: &mut Shard, name: u64, now_ms: i64) -> bool {
    shard.page(name << 20, vid(name), 0, now_ms).is_some()
}

/// Names of the entries that make room until `bytes_max` is kept.
fn evicted(shard: &mut Shard, bytes_max: u64) -> Vec<u64> {
    let mut names = Vec::new();
    while shard.audit().0 > bytes_max {
        match shard.evict() {
            Some((Entry::Page { vid, .. }, WEIGHT)) => names.push(u64::try_from(vid.0).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    names
}

#[test]
fn what_is_used_again_stays_and_a_scan_goes() {
    let mut shard = Shard::default();
    for name in 0..10 {
        put(&mut shard, name, 0);
    }
    for name in 0..10 {
        assert!(touch(&mut shard, name, 2000));
    }
    // A scan of a hundred entries, each used once, through a cache of ten.
    for name in 100..200 {
        put(&mut shard, name, 3000);
        for gone in evicted(&mut shard, 11 * WEIGHT) {
            assert!(gone >= 100, "{gone} was used twice");
        }
    }
    assert!((0..10).all(|name| touch(&mut shard, name, 4000)));
}

#[test]
fn uses_within_a_second_are_one() {
    let mut shard = Shard::default();
    put(&mut shard, 1, 0);
    for now_ms in [1, 300, 600, 999] {
        assert!(touch(&mut shard, 1, now_ms));
    }
    put(&mut shard, 2, 1000);
    assert_eq!(
        evicted(&mut shard, WEIGHT),
        [1],
        "it was used only while it was new"
    );
}

#[test]
fn what_comes_back_soon_goes_to_main() {
    let mut shard = Shard::default();
    put(&mut shard, 1, 0);
    assert_eq!(evicted(&mut shard, 0), [1]);
    put(&mut shard, 1, 1);
    for name in 2..12 {
        put(&mut shard, name, 2);
    }
    assert_eq!(evicted(&mut shard, 2 * WEIGHT), (2..11).collect::<Vec<_>>());
    assert!(touch(&mut shard, 1, 3));
}

#[test]
fn an_entry_of_the_same_name_is_replaced() {
    let mut shard = Shard::default();
    put(&mut shard, 1, 0);
    let entry = Entry::Page {
        vid: vid(1),
        page_index: 0,
        page: Bytes::from_static(b"new"),
    };
    let replaced = shard.insert(1 << 20, entry, 7, 0);
    assert!(matches!(replaced, Some((_, WEIGHT))));
    assert_eq!(shard.audit(), (7, 1));
    assert_eq!(shard.page(1 << 20, vid(1), 0, 0).unwrap(), "new");
    assert!(shard.page(1 << 20, vid(1), 1, 0).is_none());
}

#[test]
fn clocks_that_wrap_around_count_uses_still() {
    let mut shard = Shard::default();
    let start = i64::from(u32::MAX) - 500;
    put(&mut shard, 1, start);
    put(&mut shard, 2, start);
    assert!(touch(&mut shard, 2, start + 1200));
    assert_eq!(evicted(&mut shard, WEIGHT), [1]);
}
