//! Fills: streaming through, collapsing, take-over, pacing, cancellation.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use forebay_store::{
    Body, Error, Response,
    contract::requests::{self, Builder},
    faulty::Fault,
};
use http::StatusCode;

use super::origin::{Fixture, KIB, MIB, Setup};
use crate::{
    fill::{Fill, Head, Purpose, Role},
    plan::Directive,
};

async fn open(fixture: &Fixture, request: Builder) -> Response {
    request.call(&*fixture.cache).await.unwrap()
}

async fn next(body: &mut Body) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

/// Reads until `length` bytes are there.
async fn read(body: &mut Body, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend_from_slice(&next(body).await);
    }
    bytes
}

/// Lets all other tasks run until nothing moves.
async fn idle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_first_bytes_leave_while_the_origin_still_sends() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    fixture.origin.gate.close_at(10_000);
    let mut response = open(&fixture, requests::get("bucket", "key")).await;
    assert_eq!(response.headers["content-length"], "307200");
    assert_eq!(next(&mut response.body).await, bytes[..10_000]);
    assert!(poll_once(response.body.frame()).is_none());
    fixture.origin.gate.open();
    let (rest, _) = response.body.collect(usize::MAX).await.unwrap();
    assert!(rest == bytes[10_000..]);
}

#[tokio::test]
async fn many_readers_of_one_cold_object_are_one_origin_request() {
    for size_bytes in [1000, 300 * KIB, 3 * MIB] {
        let fixture = Arc::new(Fixture::new().await);
        let bytes = fixture.put("key", size_bytes).await;
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let (fixture, bytes) = (Arc::clone(&fixture), bytes.clone());
                tokio::spawn(async move { assert!(fixture.get("key").await.body == bytes) })
            })
            .collect();
        for reader in readers {
            reader.await.unwrap();
        }
        assert_eq!(fixture.asked(), ["GET key"], "{size_bytes} bytes");
        fixture.settle().await;
        assert_eq!(fixture.metrics().collapsed.get(), 49);
        let hit = fixture.get("key").await;
        assert_eq!(hit.cache.as_deref(), Some("forebay; hit; ttl=60"));
    }
}

/// What a fill under way brings may be older than the question.
#[tokio::test]
async fn who_wants_no_cache_joins_no_fill_under_way() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    fixture.origin.gate.close_at(150_000);
    let mut first = open(&fixture, requests::get("bucket", "key")).await.body;
    assert_eq!(read(&mut first, 150_000).await, bytes[..150_000]);
    let fresh = requests::get("bucket", "key").header("cache-control", "no-cache");
    let second = open(&fixture, fresh).await.body;
    fixture.origin.gate.open();
    assert!(second.collect(usize::MAX).await.unwrap().0 == bytes);
    assert!(first.collect(usize::MAX).await.unwrap().0 == bytes[150_000..]);
    let expected = ["GET key", "GET key if-none-match cache-control"];
    assert_eq!(fixture.asked(), expected);
}

#[tokio::test]
async fn a_reader_that_comes_in_the_middle_gets_the_whole() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    fixture.origin.gate.close_at(150_000);
    let mut first = open(&fixture, requests::get("bucket", "key")).await.body;
    assert_eq!(read(&mut first, 150_000).await, bytes[..150_000]);
    let mut second = open(&fixture, requests::get("bucket", "key")).await.body;
    let mut third = open(
        &fixture,
        requests::get("bucket", "key").range("bytes=200000-"),
    )
    .await
    .body;
    assert_eq!(read(&mut second, 150_000).await, bytes[..150_000]);
    assert!(poll_once(third.frame()).is_none());
    fixture.origin.gate.open();
    assert!(second.collect(usize::MAX).await.unwrap().0 == bytes[150_000..]);
    assert!(third.collect(usize::MAX).await.unwrap().0 == bytes[200_000..]);
    assert!(first.collect(usize::MAX).await.unwrap().0 == bytes[150_000..]);
    assert_eq!(fixture.asked(), ["GET key"]);
}

#[tokio::test]
async fn a_client_that_leaves_disturbs_nobody() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    // One leaves before the origin answers, one in the middle of the body.
    let early = Box::pin(requests::get("bucket", "key").call(&*fixture.cache));
    let mut early = early;
    assert!(poll_once(early.as_mut()).is_none());
    fixture.origin.gate.close_at(100_000);
    let late = requests::get("bucket", "key").call(&*fixture.cache);
    let stays = requests::get("bucket", "key").call(&*fixture.cache);
    let (late, stays) = tokio::join!(late, async {
        drop(early);
        stays.await
    });
    let mut late = late.unwrap().body;
    next(&mut late).await;
    drop(late);
    fixture.origin.gate.open();
    assert!(stays.unwrap().body.collect(usize::MAX).await.unwrap().0 == bytes);
    assert_eq!(fixture.asked(), ["GET key"]);
}

#[tokio::test]
async fn a_slow_client_does_not_pull_a_large_object_into_memory() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 40 * MIB).await;
    let mut body = open(&fixture, requests::get("bucket", "key")).await.body;
    let first = next(&mut body).await;
    assert!(first == bytes[..first.len()]);
    idle().await;
    let ahead = fixture.origin.gate.passed();
    assert!(
        (4 * MIB..5 * MIB).contains(&ahead),
        "{ahead} bytes before one of 10,000"
    );
    let mut faster = open(&fixture, requests::get("bucket", "key")).await.body;
    let passed = read(&mut faster, 5_000_000).await;
    assert!(passed[..] == bytes[..passed.len()]);
    idle().await;
    let ahead = fixture.origin.gate.passed();
    assert!(
        (9 * MIB - 400 * KIB..10 * MIB).contains(&ahead),
        "the faster one sets the pace: {ahead}"
    );
    drop(faster);
    assert!(body.collect(usize::MAX).await.unwrap().0 == bytes[first.len()..]);
}

#[tokio::test]
async fn without_readers_a_fill_ends_soon_or_at_its_end() {
    let fixture = Fixture::new().await;
    fixture.put("large", 40 * MIB).await;
    let mut body = open(&fixture, requests::get("bucket", "large")).await.body;
    next(&mut body).await;
    drop(body);
    fixture.settle().await;
    assert!(
        fixture.origin.gate.passed() < 6 * MIB,
        "it stops: most is missing"
    );
    let small = fixture.put("small", 300 * KIB).await;
    let mut body = open(&fixture, requests::get("bucket", "small")).await.body;
    next(&mut body).await;
    drop(body);
    fixture.settle().await;
    fixture.asked();
    let hit = fixture.get("small").await;
    assert!(hit.body == small);
    assert_eq!(fixture.asked(), [""; 0], "it went on: little was missing");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_resumed_twice() {
    for (cuts, whole) in [(1, true), (2, true), (3, false)] {
        let fixture = Fixture::new().await;
        let bytes = fixture.put("key", 300 * KIB).await;
        fixture
            .origin
            .store
            .script((0..cuts).map(|_| Fault::CutAfter(100_000)));
        let cache = Arc::clone(&fixture.cache);
        // A task of its own, as a connection is: it runs whenever the filler lets it.
        let request = requests::get("bucket", "key");
        let answer = tokio::spawn(async move { request.send(&*cache).await });
        let answer = answer.await.unwrap();
        if whole {
            assert!(answer.unwrap().body == bytes, "{cuts} cuts");
        } else {
            assert!(matches!(answer, Err(Error::Cut { .. })), "{cuts} cuts");
        }
        let asked = fixture.asked();
        assert_eq!(
            asked[..2],
            ["GET key", "GET key bytes=65536-307199 if-match"]
        );
        assert_eq!(asked.len(), 1 + cuts.min(2));
        fixture.settle().await;
        assert!(
            fixture.get("key").await.body == bytes,
            "nothing broken was stored"
        );
    }
}

#[tokio::test]
async fn one_of_those_who_wait_takes_over_when_the_first_fails() {
    let fixture = Arc::new(Fixture::new().await);
    let bytes = fixture.put("key", 300 * KIB).await;
    fixture
        .origin
        .store
        .script([Fault::Unavailable, Fault::Unavailable]);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            let request = requests::get("bucket", "key");
            tokio::spawn(async move { request.send(&*fixture.cache).await })
        })
        .collect();
    let mut failed = Vec::new();
    for (index, reader) in readers.into_iter().enumerate() {
        match reader.await.unwrap() {
            Ok(answer) => assert!(answer.body == bytes),
            Err(Error::Unavailable { .. }) => failed.push(index),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(failed.len(), 2, "only those whose own request failed");
    assert_eq!(
        failed[0], 0,
        "the first of them is the one that asked first"
    );
    fixture.settle().await;
}

/// Whoever is woken first: the one that asked gets the answer, and those who waited none.
#[tokio::test]
async fn an_answer_that_cannot_be_shared_is_for_the_one_that_asked() {
    let fixture = Fixture::new().await;
    let object = requests::object("bucket", "key");
    let stamp = fixture.cache.layer.index.stamp(&object);
    let fill = Fill::new(
        object,
        Purpose::Learn {
            stale: None,
            directive: Directive::None,
        },
        stamp,
    );
    let follower = fill.attach(0, Role::Follower);
    let leader = fill.attach(0, Role::Leader);
    fill.conclude(
        Head::Declined,
        Some(Ok(Response::new(StatusCode::FORBIDDEN))),
    );
    assert!(matches!(follower.head().await, Head::Declined));
    assert!(follower.take_own_answer().is_none(), "it asks for itself");
    assert!(matches!(leader.head().await, Head::Declined));
    let own_answer = leader.take_own_answer().unwrap().unwrap();
    assert_eq!(own_answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn those_who_wait_for_an_origin_that_only_fails_are_told_soon() {
    let fixture = Arc::new(Fixture::new().await);
    fixture.put("key", 1000).await;
    fixture
        .origin
        .store
        .script((0..100).map(|_| Fault::Unavailable));
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            let request = requests::get("bucket", "key");
            tokio::spawn(async move { request.send(&*fixture.cache).await })
        })
        .collect();
    for reader in readers {
        assert!(matches!(
            reader.await.unwrap(),
            Err(Error::Unavailable { .. })
        ));
    }
    fixture.settle().await;
    assert_eq!(fixture.metrics().entries.get(), 0);
}

#[tokio::test]
async fn an_object_overwritten_between_two_pages_is_one_version_or_a_cut() {
    let fixture = Fixture::new().await;
    let old = fixture.put_bytes("key", vec![1; 300_000]).await;
    let range = |range| requests::get("bucket", "key").range(range);
    range("bytes=0-0").expect(206, &*fixture.cache).await;
    fixture.settle().await;
    let new = fixture.put_bytes("key", vec![2; 300_000]).await;
    // The first page is here and sent before the second turns out to be another version's.
    let cut = requests::get("bucket", "key").send(&*fixture.cache).await;
    assert!(matches!(cut, Err(Error::Cut { .. })));
    assert!(
        fixture.get("key").await.body == new,
        "what was found out is remembered"
    );
    fixture.settle().await;
    let old_again = fixture.put_bytes("key", old.to_vec()).await;
    assert!(fixture.get("key").await.body == new, "fresh still");
    // Nothing was sent when it turns out that the wanted page is missing: begun anew.
    let fixture = Fixture::new().await;
    fixture.put_bytes("key", vec![1; 300_000]).await;
    range("bytes=0-0").expect(206, &*fixture.cache).await;
    fixture.settle().await;
    fixture.put_bytes("key", vec![2; 400_000]).await;
    let answer = range("bytes=290000-").expect(206, &*fixture.cache).await;
    assert_eq!(answer.header("content-range"), "bytes 290000-399999/400000");
    assert!(answer.body.iter().all(|byte| *byte == 2));
    drop(old_again);
    fixture.settle().await;
}

#[tokio::test]
async fn an_object_deleted_between_two_pages_is_not_found() {
    let fixture = Fixture::new().await;
    fixture.put("key", 300 * KIB).await;
    let range = |range| requests::get("bucket", "key").range(range);
    range("bytes=0-0").expect(206, &*fixture.cache).await;
    fixture.settle().await;
    requests::delete("bucket", "key")
        .expect(204, &fixture.origin.store)
        .await;
    assert_eq!(
        range("bytes=200000-").refusal(&*fixture.cache).await,
        "NoSuchKey"
    );
    fixture.settle().await;
    assert_eq!(fixture.metrics().entries.get(), 0);
}

#[tokio::test]
async fn without_room_in_the_budget_bytes_pass_uncached() {
    let setup = Setup {
        budget_bytes: 64 * KIB,
        ..Setup::default()
    };
    let fixture = setup.build().await;
    let room = fixture.cache.layer.budget.try_reserve(64 * KIB).unwrap();
    let bytes = fixture.put("key", 3 * MIB).await;
    for _ in 0..2 {
        assert!(fixture.get("key").await.body == bytes);
        let range = requests::get("bucket", "key").range("bytes=100000-2000000");
        assert!(range.expect(206, &*fixture.cache).await.body == bytes[100_000..2_000_001]);
        fixture.settle().await;
    }
    assert!(fixture.metrics().fills_unbudgeted.get() >= 4);
    assert_eq!(fixture.metrics().stored.get(), 0);
    drop(room);
    fixture.put("small", 1000).await;
    fixture.get("small").await;
    fixture.settle().await;
    assert_eq!(fixture.metrics().stored.get(), 1);
}

#[tokio::test]
async fn all_memory_in_flight_is_given_back() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 3 * MIB).await;
    let mut body = open(&fixture, requests::get("bucket", "key")).await.body;
    let first = next(&mut body).await;
    assert!(fixture.cache.layer.budget.used_bytes() >= 3 * MIB);
    assert!(body.collect(usize::MAX).await.unwrap().0 == bytes[first.len()..]);
    fixture.settle().await;
    assert_eq!(fixture.cache.layer.budget.used_bytes(), 0);
}

#[tokio::test]
async fn long_ranges_are_read_in_extents_one_before_the_other() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 20 * MIB).await;
    let range = || requests::get("bucket", "key").range("bytes=100000-");
    assert!(range().expect(206, &*fixture.cache).await.body == bytes[100_000..]);
    let expected = [
        "GET key bytes=65536-8454143",
        "GET key bytes=8454144-16842751 if-match",
        "GET key bytes=16842752-20971519 if-match",
    ];
    assert_eq!(fixture.asked(), expected);
    fixture.settle().await;
    assert!(range().expect(206, &*fixture.cache).await.body == bytes[100_000..]);
    assert_eq!(fixture.asked(), [""; 0]);
}

#[tokio::test]
async fn answers_under_way_outlive_their_layer_and_fills_without_readers_do_not() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 3 * MIB).await;
    fixture.put("other", 3 * MIB).await;
    fixture.origin.gate.close_at(100_000);
    let body = open(&fixture, requests::get("bucket", "key")).await.body;
    drop(open(&fixture, requests::get("bucket", "other")).await);
    let (cache, origin) = (Arc::clone(&fixture.cache), Arc::clone(&fixture.origin));
    drop(fixture);
    let layer = Arc::clone(&cache.layer);
    assert_eq!(layer.fills.count(), 2);
    drop(cache);
    while layer.fills.count() > 1 {
        tokio::task::yield_now().await;
    }
    origin.gate.open();
    assert!(body.collect(usize::MAX).await.unwrap().0 == bytes);
}
