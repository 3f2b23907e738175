//! Capacity, second chances, the bound on entries, and the budget of writes.

use std::{sync::Arc, time::Duration};

use super::{CAPACITY, Fixture, id, page, settings};
use crate::{DiskSettings, OpenError, PageStore as _, Put, Refusal, sim::Sim};

const MIB: u64 = 1024 * 1024;

#[tokio::test]
async fn the_capacity_is_used_to_99_per_cent_and_never_exceeded() {
    for page_bytes in [300, 1024, 5000, 8192] {
        let settings = DiskSettings {
            capacity_bytes: 4 * MIB,
            page_bytes_max: 8192,
            ..settings()
        };
        let fixture = Fixture::open(Arc::new(Sim::new()), settings);
        let count = 8 * MIB / page_bytes;
        for index in 0..count {
            let length = usize::try_from(page_bytes).unwrap();
            while fixture.store.put(id(index), page(index, length)) != Put::Taken {
                fixture.store.flush().await.unwrap();
            }
            if index % (count / 50) == 0 {
                fixture.store.flush().await.unwrap();
                let bytes: usize = fixture.device.image().values().map(Vec::len).sum();
                assert_eq!(bytes as u64, fixture.store.stats().used_bytes);
                assert!(bytes as u64 <= 4 * MIB);
                if index > count / 2 {
                    assert!(
                        bytes as u64 >= 4 * MIB * 99 / 100,
                        "{bytes} of {page_bytes}"
                    );
                }
            }
        }
        assert!(fixture.metrics.evicted_entries.get() > 0);
        assert_eq!(fixture.store.get(id(0)).await, None);
        let last = fixture.store.get(id(count - 1)).await;
        assert!(last.is_some());
    }
}

#[tokio::test]
async fn a_smaller_capacity_holds_from_the_start_and_keeps_the_newest() {
    let fixture = Fixture::open(Arc::new(Sim::new()), settings());
    for index in 0..20 {
        fixture.store.put(id(index), page(index, 4000));
    }
    fixture.store.close().await.unwrap();
    let smaller = DiskSettings {
        capacity_bytes: CAPACITY / 2,
        ..settings()
    };
    let fixture = Fixture::open(fixture.device, smaller);
    assert!(fixture.store.stats().used_bytes <= CAPACITY / 2);
    assert_eq!(fixture.store.get(id(19)).await, Some(page(19, 4000)));
    let kept = (0..20)
        .filter(|index| fixture.store.contains(id(*index)))
        .count();
    assert!((5..10).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_capacity_too_small_for_its_pages_is_refused() {
    let settings = DiskSettings {
        capacity_bytes: 16 * 1024,
        ..settings()
    };
    let clock = forebay_store::Clock::system();
    let metrics = forebay_telemetry::disk::DiskMetrics::new();
    let opened = crate::DiskPages::open_on(Arc::new(Sim::new()), settings, clock, metrics);
    assert!(matches!(
        opened,
        Err(OpenError::TooSmall {
            least_bytes: 32_768,
            ..
        })
    ));
}

#[tokio::test]
async fn a_page_in_use_outlives_many_others() {
    let fixture = Fixture::open(Arc::new(Sim::new()), settings());
    fixture.store.put(id(1000), page(1000, 1500));
    fixture.store.put(id(1001), page(1001, 1500));
    for index in 0..200 {
        fixture.store.put(id(index), page(index, 1500));
        fixture.store.flush().await.unwrap();
        let read = fixture.store.get(id(1000)).await;
        assert_eq!(read, Some(page(1000, 1500)), "after {index} others");
    }
    assert!(!fixture.store.contains(id(1001)), "nobody has asked for it");
    assert!(fixture.metrics.rewritten_bytes.get() > 0);
    // What is written once more is not counted twice, and is there after a restart.
    fixture.store.close().await.unwrap();
    let entries = fixture.store.stats().entries;
    let fixture = Fixture::open(fixture.device, settings());
    assert_eq!(fixture.store.stats().entries, entries);
    assert_eq!(fixture.store.get(id(1000)).await, Some(page(1000, 1500)));
}

#[tokio::test]
async fn pages_that_are_all_in_use_still_make_room_for_new_ones() {
    let fixture = Fixture::open(Arc::new(Sim::new()), settings());
    for index in 0..120 {
        fixture.store.put(id(index), page(index, 1500));
        fixture.store.flush().await.unwrap();
        for other in 0..=index {
            let _ = fixture.store.get(id(other)).await;
        }
        assert_eq!(fixture.store.get(id(index)).await, Some(page(index, 1500)));
    }
    let [written, rewritten] = [
        &fixture.metrics.written_bytes,
        &fixture.metrics.rewritten_bytes,
    ];
    assert!(rewritten.get() > 0);
    assert!(
        rewritten.get() * 4 <= written.get() * 4 / 3,
        "at most a quarter of each segment"
    );
}

#[tokio::test]
async fn there_are_never_more_entries_than_may_be() {
    let settings = DiskSettings {
        entries_max: 300,
        ..settings()
    };
    let fixture = Fixture::open(Arc::new(Sim::new()), settings.clone());
    for index in 0..2000 {
        fixture.store.put(id(index), page(index, 10));
        if index % 50 == 0 {
            fixture.store.flush().await.unwrap();
            assert!(fixture.store.stats().entries <= 300);
        }
    }
    assert_eq!(fixture.store.get(id(1999)).await, Some(page(1999, 10)));
    fixture.store.close().await.unwrap();
    let fewer = DiskSettings {
        entries_max: 100,
        ..settings
    };
    let fixture = Fixture::open(fixture.device, fewer);
    assert!(fixture.store.stats().entries <= 100);
}

#[tokio::test]
async fn no_more_is_written_in_a_day_than_may_be() {
    let settings = DiskSettings {
        written_bytes_per_day_max: Some(24 * 10_000),
        ..settings()
    };
    let fixture = Fixture::open(Arc::new(Sim::new()), settings);
    // Each entry is 1024 bytes; ten fit an hour's share, and the last may go beyond it.
    let put = |index| fixture.store.put(id(index), page(index, 960));
    let taken = (0..100)
        .take_while(|index| put(*index) == Put::Taken)
        .count();
    assert_eq!(taken, 10);
    assert_eq!(put(50), Put::Refused(Refusal::Budget));
    assert_eq!(fixture.metrics.writes_refused.budget.get(), 2);
    fixture.clock.advance(Duration::from_mins(30));
    let taken = (100..200)
        .take_while(|index| put(*index) == Put::Taken)
        .count();
    assert_eq!(taken, 5, "of what came, what was overdrawn is paid first");
    fixture.clock.advance(Duration::from_hours(48));
    let taken = (200..300)
        .take_while(|index| put(*index) == Put::Taken)
        .count();
    assert_eq!(taken, 10, "no more is saved up than an hour's share");
}
