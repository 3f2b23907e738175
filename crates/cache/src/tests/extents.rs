//! What is asked of the origin, and when, for objects of many pages.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_store::contract::requests;

use super::origin::{Fixture, KIB, MIB, Setup};

/// Lets all other tasks run until nothing moves.
async fn idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn range(fixture: &Fixture, start: u64, length: u64) -> Bytes {
    let text = format!("bytes={start}-{}", start + length - 1);
    let request = requests::get("bucket", "key").range(&text);
    request.expect(206, &*fixture.cache).await.body
}

fn slice(bytes: &Bytes, start: u64, length: u64) -> Bytes {
    let at = |offset| usize::try_from(offset).unwrap();
    bytes.slice(at(start)..at(start + length))
}

#[tokio::test]
async fn small_gaps_between_missing_pages_are_fetched_again_and_large_ones_are_not() {
    let page = 64 * KIB;
    for (present, expected) in [
        // One page, and four, which is the most.
        (
            6 * page..7 * page,
            &["GET key bytes=65536-1048575 if-match"][..],
        ),
        (
            6 * page..10 * page,
            &["GET key bytes=65536-1048575 if-match"],
        ),
        (
            6 * page..11 * page,
            &[
                "GET key bytes=65536-393215 if-match",
                "GET key bytes=720896-1048575 if-match",
            ],
        ),
        // At the end there is nothing behind it.
        (
            13 * page..16 * page,
            &["GET key bytes=65536-851967 if-match"],
        ),
    ] {
        let fixture = Fixture::new().await;
        let bytes = fixture.put("key", MIB).await;
        range(&fixture, 0, 1).await;
        range(&fixture, present.start, present.end - present.start).await;
        fixture.settle().await;
        fixture.asked();
        assert!(fixture.get("key").await.body == bytes);
        fixture.settle().await;
        assert_eq!(fixture.asked(), expected, "{present:?} were there");
    }
}

#[tokio::test]
async fn a_reader_of_ranges_in_a_row_finds_the_next_ones_here() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 20 * MIB).await;
    let length = 256 * KIB;
    let mut misses = 0;
    for start in (0..20 * MIB).step_by(256 * 1024) {
        let text = format!("bytes={start}-{}", start + length - 1);
        let request = requests::get("bucket", "key").range(&text);
        let answer = request.expect(206, &*fixture.cache).await;
        assert!(answer.body == slice(&bytes, start, length));
        misses += u32::from(answer.cache.as_deref() != Some("forebay; hit; ttl=60"));
        fixture.settle().await;
    }
    assert_eq!(misses, 3, "those before the row was noticed");
    let asked = fixture.asked();
    assert!(asked.len() < 12, "windows grow: {asked:?}");
    let fetched = fixture.metrics().fill_bytes.get();
    assert_eq!(fetched, 20 * MIB, "nothing twice");
}

#[tokio::test]
async fn ranges_here_and_there_fetch_their_own_pages_alone() {
    let fixture = Fixture::new().await;
    fixture.put("key", 20 * MIB).await;
    for n in 0..50_u64 {
        range(&fixture, (n * 7_340_033) % (20 * MIB - KIB), KIB).await;
        fixture.settle().await;
    }
    assert_eq!(fixture.metrics().read_ahead_bytes.get(), 0);
    assert!(fixture.metrics().fill_bytes.get() <= 51 * 2 * 64 * KIB);
}

/// Goal: where a connection is slow and the reader is not, the rest comes over several, every byte
/// right; where the reader is slow, or the origin fast, it is one request to the end.
/// Method: time passes only as each connection lets out another quarter of a MiB.
#[tokio::test]
async fn a_body_that_comes_slowly_is_fetched_over_several_connections() {
    for (step_ms, is_parallel) in [(10, true), (0, false)] {
        let fixture = Arc::new(Setup::default().build().await);
        let bytes = fixture.put("key", 40 * MIB).await;
        fixture.origin.gate.close_at(0);
        let reader = {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move { fixture.get("key").await.body })
        };
        let mut steps = 0;
        while !reader.is_finished() {
            idle().await;
            steps += 1;
            fixture.clock.advance(Duration::from_millis(step_ms));
            fixture.origin.gate.close_at(steps * 256 * KIB);
        }
        assert!(reader.await.unwrap() == bytes);
        fixture.settle().await;
        let asked = fixture.asked();
        assert_eq!(asked[0], "GET key");
        assert_eq!(asked.len() > 1, is_parallel, "{asked:?}");
        if is_parallel {
            assert!(asked[1..].iter().all(|line| line.ends_with(" if-match")));
            assert!(
                steps < 160 * 3 / 4,
                "{steps} steps; one connection takes 160"
            );
        }
        let hit = fixture.get("key").await;
        assert!(hit.body == bytes);
        assert!(fixture.asked().is_empty(), "all of it was kept");
    }
}

#[tokio::test]
async fn a_crowd_reads_a_body_that_comes_slowly_by_one_request() {
    let fixture = Arc::new(Setup::default().build().await);
    let bytes = fixture.put("key", 40 * MIB).await;
    fixture.origin.gate.close_at(0);
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move { fixture.get("key").await.body })
        })
        .collect();
    let mut steps = 0;
    while !readers.iter().all(tokio::task::JoinHandle::is_finished) {
        idle().await;
        steps += 1;
        fixture.clock.advance(Duration::from_millis(10));
        fixture.origin.gate.close_at(steps * 256 * KIB);
    }
    for reader in readers {
        assert!(reader.await.unwrap() == bytes);
    }
    assert_eq!(fixture.asked(), ["GET key"]);
}
