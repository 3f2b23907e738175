//! Whatever the disk does, a client sees a miss, soon; and the store comes back by itself.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use super::{CAPACITY, Fixture, id, page, settings};
use crate::{
    DiskSettings, PageStore as _, Put, Refusal, Unwritten,
    shelf::NO_SPACE_PAUSE,
    sim::{Calls, Sim},
};

/// A store with pages 0 to 7 on its disk.
async fn filled() -> Fixture<Sim> {
    let fixture = Fixture::open(Arc::new(Sim::new()), settings());
    for index in 0..8 {
        fixture.store.put(id(index), page(index, 1000));
    }
    fixture.store.flush().await.unwrap();
    fixture
}

#[tokio::test]
async fn damage_anywhere_in_an_entry_is_a_miss_and_the_entry_is_gone() {
    let mut missed = 0;
    // Page 0 is behind the head of the first segment: head, page, and what fills up the unit.
    for at in 32..32 + 1072 {
        let fixture = filled().await;
        fixture
            .device
            .meddle(|image| image.get_mut(&0).unwrap()[at] ^= 4);
        let read = fixture.store.get(id(0)).await;
        let is_padding = (32 + 56..32 + 64).contains(&at) || at >= 32 + 1064;
        assert_eq!(read.is_some(), is_padding, "byte {at}");
        if !is_padding {
            missed += 1;
            assert!(!fixture.store.contains(id(0)));
            assert_eq!(fixture.metrics.reads_failed.corrupt.get(), 1);
        }
        assert_eq!(fixture.store.get(id(1)).await, Some(page(1, 1000)));
    }
    assert_eq!(missed, 1056);
}

#[tokio::test]
async fn another_pages_bytes_are_never_given() {
    let fixture = filled().await;
    fixture.device.meddle(|image| {
        let segment = image.get_mut(&0).unwrap();
        segment.copy_within(32 + 1072..32 + 2 * 1072, 32);
    });
    assert_eq!(fixture.store.get(id(0)).await, None);
    assert_eq!(fixture.store.get(id(1)).await, Some(page(1, 1000)));
    // Nor an entry of another segment, whole as it is.
    fixture.device.meddle(|image| {
        let copy = image[&0].clone();
        image.insert(1, copy);
    });
    fixture.store.put(id(1), page(7, 10));
    assert_eq!(fixture.store.get(id(1)).await, Some(page(7, 10)));
}

#[tokio::test]
async fn reads_that_fail_open_the_breaker_and_one_that_works_closes_it() {
    let fixture = filled().await;
    fixture.device.fail(Calls::Reads, ErrorKind::Other);
    for index in 0..5 {
        assert_eq!(fixture.store.get(id(index)).await, None);
    }
    let failed = &fixture.metrics.reads_failed;
    assert_eq!((failed.error.get(), failed.breaker.get()), (5, 0));
    assert_eq!(fixture.metrics.reads_broken.get(), 1);
    assert_eq!(fixture.store.get(id(5)).await, None);
    assert_eq!(
        (failed.error.get(), failed.breaker.get()),
        (5, 1),
        "it was not asked"
    );
    let put = fixture.store.put(id(20), page(20, 10));
    assert_eq!(put, Put::Refused(Refusal::Breaker));
    // One attempt, which fails; and later one that does not.
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(fixture.store.get(id(5)).await, None);
    assert_eq!(fixture.store.get(id(6)).await, None);
    assert_eq!((failed.error.get(), failed.breaker.get()), (6, 2));
    fixture.device.heal();
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(fixture.store.get(id(6)).await, Some(page(6, 1000)));
    assert_eq!(fixture.store.get(id(7)).await, Some(page(7, 1000)));
    assert_eq!(fixture.metrics.reads_broken.get(), 0);
    assert_eq!(fixture.store.put(id(20), page(20, 10)), Put::Taken);
}

#[tokio::test]
async fn a_store_that_has_lost_all_its_pages_to_errors_comes_back() {
    let fixture = filled().await;
    fixture.device.fail(Calls::Reads, ErrorKind::Other);
    for _ in 0..4 {
        for index in 0..8 {
            assert_eq!(fixture.store.get(id(index)).await, None);
        }
        fixture.clock.advance(Duration::from_secs(5));
    }
    assert_eq!(fixture.store.stats().entries, 0);
    fixture.device.heal();
    assert_eq!(fixture.store.put(id(1), page(1, 10)), Put::Taken);
    fixture.store.flush().await.unwrap();
    assert_eq!(fixture.store.get(id(1)).await, Some(page(1, 10)));
    assert_eq!(fixture.metrics.reads_broken.get(), 0);
}

/// In real time: where it is paused, a read may be given up before a thread has begun it, and then
/// no thread hangs.
#[tokio::test]
async fn a_disk_that_hangs_costs_a_bounded_time_and_a_bounded_number_of_reads() {
    let read_timeout = Duration::from_millis(300);
    let settings = DiskSettings {
        reads_max: 3,
        read_timeout,
        ..settings()
    };
    let fixture = Fixture::open(Arc::new(Sim::new()), settings);
    for index in 0..8 {
        fixture.store.put(id(index), page(index, 1000));
    }
    fixture.store.flush().await.unwrap();
    fixture.device.hang(Calls::Reads);
    let began = tokio::time::Instant::now();
    for index in 0..3 {
        assert_eq!(fixture.store.get(id(index)).await, None);
    }
    assert!(began.elapsed() >= 3 * read_timeout);
    assert_eq!(fixture.metrics.reads_failed.timeout.get(), 3);
    // The two threads hang, the third read waits for one of them.
    assert_eq!(fixture.store.get(id(3)).await, None);
    assert_eq!(fixture.metrics.reads_failed.busy.get(), 1, "a miss at once");
    assert_eq!(fixture.metrics.reads_failed.timeout.get(), 3);
    assert!(fixture.store.contains(id(0)), "it may be there still");
    fixture.device.heal();
    // The threads come free; until they have, reads are misses at once.
    while fixture.store.get(id(3)).await.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.store.get(id(0)).await, Some(page(0, 1000)));
}

#[tokio::test(start_paused = true)]
async fn reads_that_come_late_open_the_breaker() {
    let fixture = filled().await;
    fixture.device.hang(Calls::Reads);
    for index in 0..5 {
        assert_eq!(fixture.store.get(id(index)).await, None);
    }
    assert_eq!(fixture.metrics.reads_broken.get(), 1);
    let began = tokio::time::Instant::now();
    assert_eq!(fixture.store.get(id(5)).await, None);
    assert_eq!(began.elapsed(), Duration::ZERO);
    fixture.device.heal();
}

#[tokio::test]
async fn puts_never_wait_for_a_disk_that_hangs() {
    let settings = DiskSettings {
        queue_bytes_max: 20_000,
        ..settings()
    };
    let fixture = Fixture::open(Arc::new(Sim::new()), settings);
    fixture.device.hang(Calls::Writes);
    let put = |index| fixture.store.put(id(index), page(index, 1000));
    let taken = (0..100)
        .take_while(|index| put(*index) == Put::Taken)
        .count();
    assert_eq!(taken, 15, "1256 bytes each");
    assert_eq!(put(50), Put::Refused(Refusal::QueueFull));
    assert_eq!(fixture.metrics.writes_refused.queue_full.get(), 2);
    fixture.device.wait_for_hanging(1);
    assert_eq!(
        fixture.store.get(id(3)).await,
        Some(page(3, 1000)),
        "from the queue"
    );
    fixture.store.remove(id(3));
    assert_eq!(fixture.store.get(id(3)).await, None);
    fixture.device.heal();
    fixture.store.flush().await.unwrap();
    assert_eq!(fixture.store.get(id(14)).await, Some(page(14, 1000)));
    assert_eq!(fixture.store.get(id(3)).await, None);
}

/// Goal: whichever call fails, what was replaced or removed is not shown, then or ever after.
/// Method: old pages are on the disk; new ones and removals fail; the disk heals; a restart.
#[tokio::test]
async fn what_failed_writes_replaced_is_never_shown_again() {
    for calls in [Calls::Writes, Calls::Syncs] {
        let fixture = filled().await;
        fixture.device.fail(calls, ErrorKind::Other);
        fixture.store.put(id(0), page(50, 900));
        fixture.store.remove(id(1));
        assert_eq!(fixture.store.flush().await, Err(Unwritten));
        assert_eq!(fixture.store.get(id(0)).await, None);
        assert_eq!(fixture.store.get(id(1)).await, None);
        assert_eq!(fixture.store.get(id(2)).await, Some(page(2, 1000)));
        fixture.device.heal();
        fixture.store.flush().await.unwrap();
        // What a crash would leave now.
        let count = fixture.device.count();
        let image = fixture.device.crashed(count, |_| crate::sim::Fate::Lost);
        let crashed = Fixture::open(Arc::new(Sim::of(image)), settings());
        fixture.store.close().await.unwrap();
        let restarted = Fixture::open(fixture.device, settings());
        for fixture in [crashed, restarted] {
            assert_eq!(fixture.store.get(id(0)).await, None, "{calls:?}");
            assert_eq!(fixture.store.get(id(1)).await, None, "{calls:?}");
            assert_eq!(
                fixture.store.get(id(2)).await,
                Some(page(2, 1000)),
                "{calls:?}"
            );
        }
    }
}

#[tokio::test]
async fn writes_that_fail_open_a_breaker_of_their_own() {
    let fixture = filled().await;
    fixture.device.fail(Calls::Writes, ErrorKind::Other);
    // A page and the flush after it may be one attempt or two: five of them are enough.
    let mut index = 20;
    while fixture.metrics.writes_broken.get() == 0 {
        assert!(index < 25, "five attempts have failed");
        assert_eq!(fixture.store.put(id(index), page(index, 100)), Put::Taken);
        assert_eq!(fixture.store.flush().await, Err(Unwritten));
        index += 1;
    }
    assert_eq!(fixture.metrics.writes_broken.get(), 1);
    let put = fixture.store.put(id(30), page(30, 100));
    assert_eq!(put, Put::Refused(Refusal::Breaker));
    assert_eq!(
        fixture.store.get(id(4)).await,
        Some(page(4, 1000)),
        "reads go on"
    );
    fixture.device.heal();
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(fixture.store.put(id(30), page(30, 100)), Put::Taken);
    fixture.store.flush().await.unwrap();
    assert_eq!(fixture.metrics.writes_broken.get(), 0);
    assert_eq!(fixture.store.get(id(30)).await, Some(page(30, 100)));
}

#[tokio::test]
async fn a_full_disk_makes_the_store_smaller_and_then_pauses_it() {
    let fixture = filled().await;
    // Others have taken half of what it may have.
    fixture.device.room(Some(CAPACITY / 2));
    for index in 0..100 {
        assert_eq!(fixture.store.put(id(index), page(index, 4000)), Put::Taken);
        fixture.store.flush().await.unwrap();
        assert!(fixture.store.stats().used_bytes <= CAPACITY / 2);
    }
    assert_eq!(fixture.store.get(id(99)).await, Some(page(99, 4000)));
    // And now all of it.
    fixture.device.room(Some(0));
    let mut index = 100;
    while fixture.store.put(id(index), page(index, 4000)) == Put::Taken {
        let _ = fixture.store.flush().await;
        index += 1;
        assert!(index < 110);
    }
    let put = fixture.store.put(id(1), page(1, 10));
    assert_eq!(put, Put::Refused(Refusal::NoSpace));
    assert!(fixture.metrics.writes_refused.no_space.get() >= 1);
    fixture.device.room(None);
    fixture.clock.advance(NO_SPACE_PAUSE);
    assert_eq!(fixture.store.put(id(1), page(1, 10)), Put::Taken);
    fixture.store.flush().await.unwrap();
    assert_eq!(fixture.store.get(id(1)).await, Some(page(1, 10)));
}

/// Goal: damage forgets, and never shows what it was that the damaged segment replaced.
/// Method: each id has two pages, the second in a later segment; each segment is overwritten.
#[tokio::test]
async fn a_segment_that_cannot_be_read_takes_all_older_ones_with_it() {
    let fixture = filled().await;
    for index in 0..12 {
        fixture.store.put(id(index / 2), page(100 + index, 3000));
        fixture.store.flush().await.unwrap();
    }
    fixture.store.close().await.unwrap();
    let image = fixture.device.image();
    let newest = *image.last_key_value().unwrap().0;
    for damaged in image.keys().copied() {
        let mut image = image.clone();
        image.get_mut(&damaged).unwrap().fill(0xff);
        let fixture = Fixture::open(Arc::new(Sim::of(image)), settings());
        for index in 0..6 {
            let read = fixture.store.get(id(index)).await;
            let last = page(101 + 2 * index, 3000);
            let is_known = read.is_none() || read == Some(last);
            assert!(
                is_known || damaged == newest,
                "{index} with {damaged} damaged"
            );
        }
    }
}
