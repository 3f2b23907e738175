//! Which entry makes room.

use forebay_pages::PageBuf;

use super::{super::slots, *};

/// What an entry takes that [`put`] stores.
fn weight() -> u64 {
    slots::page_weight_bytes(0)
}

fn shard() -> Shard {
    Shard::new(DefaultHashBuilder::default())
}

fn named(name: u64) -> PageName {
    PageName::new(Vid(u128::from(name)), 0).unwrap()
}

fn store(shard: &mut Shard, name: u64, page: &'static [u8], target: Option<Target>, now_ms: i64) {
    let entry = Entry::Page {
        name: named(name),
        page: Bytes::from_static(page).into(),
    };
    let (hash, weight) = (named(name).hash(&shard.hasher), entry.weight_bytes());
    let replaced = shard.remove_like(hash, &entry);
    let ordinary = Target::Ordinary(replaced.map(|removed| removed.links));
    shard.insert(hash, entry, weight, target.unwrap_or(ordinary), now_ms);
}

fn put(shard: &mut Shard, name: u64, now_ms: i64) {
    store(shard, name, b"", None, now_ms);
}

fn page(shard: &mut Shard, name: u64, now_ms: i64) -> Option<Bytes> {
    let name = named(name);
    shard.page(name.hash(&shard.hasher), name, now_ms)
}

fn touch(shard: &mut Shard, name: u64, now_ms: i64) -> bool {
    page(shard, name, now_ms).is_some()
}

/// Weight and number of all entries.
fn audit(shard: &Shard) -> (u64, usize) {
    let queues = shard.audit();
    let add = |(weight, count), (w, c)| (weight + w, count + c);
    queues.into_iter().fold((0, 0), add)
}

/// Names of the entries that make room until no more than so many are kept.
fn evicted(shard: &mut Shard, count_max: u64) -> Vec<u64> {
    let mut names = Vec::new();
    while audit(shard).0 > count_max * weight() {
        match shard.evict().map(|removed| removed.entry) {
            Some(Entry::Page { name, .. }) => names.push(u64::try_from(name.vid.0).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    names
}

#[test]
fn what_is_used_again_stays_and_a_scan_goes() {
    let mut shard = shard();
    for name in 0..10 {
        put(&mut shard, name, 0);
    }
    for name in 0..10 {
        assert!(touch(&mut shard, name, 2000));
    }
    // A scan of a hundred entries, each used once, through a cache of ten.
    for name in 100..200 {
        put(&mut shard, name, 3000);
        for gone in evicted(&mut shard, 11) {
            assert!(gone >= 100, "{gone} was used twice");
        }
    }
    assert!((0..10).all(|name| touch(&mut shard, name, 4000)));
}

#[test]
fn uses_within_a_second_are_one() {
    let mut shard = shard();
    put(&mut shard, 1, 0);
    for now_ms in [1, 300, 600, 999] {
        assert!(touch(&mut shard, 1, now_ms));
    }
    put(&mut shard, 2, 1000);
    assert_eq!(
        evicted(&mut shard, 1),
        [1],
        "it was used only while it was new"
    );
}

#[test]
fn what_comes_back_soon_goes_to_main() {
    let mut shard = shard();
    put(&mut shard, 1, 0);
    assert_eq!(evicted(&mut shard, 0), [1]);
    put(&mut shard, 1, 1);
    for name in 2..12 {
        put(&mut shard, name, 2);
    }
    assert_eq!(evicted(&mut shard, 2), (2..11).collect::<Vec<_>>());
    assert!(touch(&mut shard, 1, 3));
}

#[test]
fn an_entry_of_the_same_name_is_replaced() {
    let mut shard = shard();
    put(&mut shard, 1, 0);
    store(&mut shard, 1, b"new", None, 0);
    assert_eq!(audit(&shard), (weight() + 3, 1));
    assert_eq!(page(&mut shard, 1, 0).unwrap(), "new");
    assert!(page(&mut shard, 2, 0).is_none());
}

#[test]
fn what_is_pinned_never_makes_room() {
    let mut shard = shard();
    for name in 0..4 {
        store(&mut shard, name, b"", Some(Target::Pinned), 0);
        put(&mut shard, 10 + name, 0);
    }
    assert_eq!(evicted(&mut shard, 4), [10, 11, 12, 13]);
    assert!(shard.evict().is_none());
    assert!((0..4).all(|name| touch(&mut shard, name, 0)));
}

#[test]
fn what_leaves_tells_whether_it_was_used_after_its_first_second() {
    let mut shard = shard();
    for (name, used_ms, expected) in [(1, 900, false), (2, 2000, true)] {
        put(&mut shard, name, 0);
        assert!(touch(&mut shard, name, used_ms));
        let removed = shard.evict().unwrap();
        assert_eq!(removed.links.was_hit(), expected, "used at {used_ms}");
    }
}

#[test]
fn nodes_are_used_again() {
    let mut shard = shard();
    for name in 0..1000 {
        put(&mut shard, name, 0);
        evicted(&mut shard, 10);
    }
    assert!(shard.slots.page_ids().count() <= 11);
}

#[test]
fn clocks_that_wrap_around_count_uses_still() {
    let mut shard = shard();
    let start = i64::from(u32::MAX) - 500;
    put(&mut shard, 1, start);
    put(&mut shard, 2, start);
    assert!(touch(&mut shard, 2, start + 1200));
    assert_eq!(evicted(&mut shard, 1), [1]);
}

/// Goal: what a page of 4 KiB takes besides its bytes is 64 bytes at most, and is counted.
/// Method: the allocations of a shard, at many fillings of its table, while others make room.
#[test]
fn a_page_takes_64_bytes_of_index_at_most_and_they_are_counted() {
    let mut shard = shard();
    let counted = weight() - PageBuf::OWNER_BYTES;
    for name in 0..60_000 {
        put(&mut shard, name, 0);
        if name % 3 == 0 {
            shard.evict();
        }
        if name > 3000 && name % 97 == 0 {
            let entries = shard.table.len() as u64;
            let bytes = shard.memory_bytes() as u64;
            assert!(bytes <= counted * entries, "{bytes} bytes of {entries}");
        }
    }
    assert!(counted <= 64);
}
