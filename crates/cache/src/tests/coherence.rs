//! How old an answer may be, and what is asked of the origin when.

use std::time::Duration;

use forebay_store::{Error, contract::requests, faulty::Fault};

use super::origin::{Fixture, KIB, Setup, settings, soon};
use crate::{CacheSettings, Coherence};

const TTL: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_stale_version_is_validated_and_its_pages_are_kept() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.clock.advance(Duration::from_secs(59));
    let hit = fixture.get("key").await;
    assert_eq!(
        (hit.cache.as_deref(), hit.header("age")),
        (Some("forebay; hit; ttl=1"), "59")
    );
    fixture.asked();
    for request in [
        || requests::get("bucket", "key"),
        || requests::get("bucket", "key").range("bytes=0-9"),
        || requests::head("bucket", "key"),
    ] {
        fixture.clock.advance(TTL);
        let answer = request().send(&*fixture.cache).await.unwrap();
        let status = "forebay; fwd=stale; fwd-status=304; stored";
        assert_eq!(answer.cache.as_deref(), Some(status));
        assert!(answer.body == bytes[..answer.body.len()]);
        assert_eq!(answer.header("age"), "");
        let again = request().send(&*fixture.cache).await.unwrap();
        assert_eq!(again.cache.as_deref(), Some("forebay; hit; ttl=60"));
    }
    let expected = [
        "GET key if-none-match",
        "GET key bytes=0-65535 if-none-match",
        "HEAD key if-none-match",
    ];
    assert_eq!(fixture.asked(), expected);
    assert_eq!(fixture.metrics().validated.get(), 3);
}

#[tokio::test]
async fn a_stale_version_that_has_changed_is_replaced_in_one_request() {
    let fixture = Fixture::new().await;
    for size_bytes in [300 * KIB, 400 * KIB, 1000, 200 * KIB] {
        let bytes = fixture.put("key", size_bytes).await;
        fixture.clock.advance(TTL);
        fixture.asked();
        assert!(fixture.get("key").await.body == bytes);
        assert_eq!(fixture.asked().len(), 1);
        fixture.settle().await;
        assert!(fixture.get("key").await.body == bytes);
        fixture.audit();
        let pages = size_bytes.div_ceil(64 * KIB);
        let entries = if pages > 1 { 1 + pages } else { 1 };
        let found = u64::try_from(fixture.metrics().entries.get()).unwrap();
        assert_eq!(found, entries, "nothing of the old version is kept");
    }
}

#[tokio::test]
async fn a_fill_that_takes_longer_than_the_ttl_is_joined_by_nobody_new() {
    let fixture = Fixture::new().await;
    fixture.put("key", 300 * KIB).await;
    fixture.origin.gate.close_at(150_000);
    let slow = requests::get("bucket", "key")
        .call(&*fixture.cache)
        .await
        .unwrap();
    fixture.put_bytes("key", vec![5; 1000]).await;
    fixture.clock.advance(TTL);
    let late = soon(fixture.get("key")).await;
    assert_eq!(late.body, vec![5; 1000]);
    drop(slow);
}

#[tokio::test]
async fn a_stale_version_that_is_gone_is_forgotten() {
    for method in [requests::get, requests::head] {
        let fixture = Fixture::new().await;
        fixture.put("key", 300 * KIB).await;
        fixture.get("key").await;
        fixture.settle().await;
        requests::delete("bucket", "key")
            .expect(204, &fixture.origin.store)
            .await;
        fixture.clock.advance(TTL);
        assert_eq!(
            method("bucket", "key").refusal(&*fixture.cache).await,
            "NoSuchKey"
        );
        fixture.settle().await;
        assert_eq!(fixture.metrics().entries.get(), 0);
    }
}

#[tokio::test]
async fn conditions_of_a_client_are_judged_by_the_validated_version() {
    let fixture = Fixture::new().await;
    fixture.put("key", 1000).await;
    let etag = fixture.get("key").await.etag().to_owned();
    fixture.settle().await;
    fixture.clock.advance(TTL);
    let unchanged = requests::get("bucket", "key").header("if-none-match", &etag);
    unchanged.expect(304, &*fixture.cache).await;
    let new = fixture.put("key", 2000).await;
    fixture.clock.advance(TTL);
    let changed = requests::get("bucket", "key").header("if-none-match", &etag);
    assert!(changed.expect(200, &*fixture.cache).await.body == new);
    let expected = ["GET key", "GET key if-none-match", "GET key if-none-match"];
    assert_eq!(fixture.asked(), expected);
}

#[tokio::test]
async fn tti_counts_from_the_last_use() {
    let tti = Duration::from_secs(10);
    let fixture = Setup::with_ttl(TTL, Some(tti)).build().await;
    fixture.put("key", 1000).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.asked();
    for _ in 0..4 {
        fixture.clock.advance(Duration::from_secs(9));
        fixture.get("key").await;
    }
    assert_eq!(fixture.asked(), [""; 0]);
    fixture.clock.advance(tti);
    fixture.get("key").await;
    assert_eq!(fixture.asked(), ["GET key if-none-match"]);
}

#[tokio::test]
async fn immutable_never_asks_again() {
    let settings = CacheSettings {
        coherence: Coherence::Immutable,
        ..settings()
    };
    let fixture = Setup {
        settings,
        ..Setup::default()
    }
    .build()
    .await;
    fixture.put("key", 1000).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.clock.advance(Duration::from_secs(1_000_000));
    let answer = fixture.get("key").await;
    assert_eq!(answer.cache.as_deref(), Some("forebay; hit"));
    assert_eq!(fixture.asked(), ["GET key"]);
}

/// Goal: the ttl counts from the question, as the origin may have changed at any moment after it.
#[tokio::test]
async fn the_time_an_answer_takes_counts_as_age() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 1000).await;
    *fixture.origin.takes.lock() = Duration::from_secs(20);
    fixture.get("key").await;
    fixture.settle().await;
    let hit = fixture.get("key").await;
    assert_eq!(
        (hit.cache.as_deref(), hit.header("age")),
        (Some("forebay; hit; ttl=40"), "20")
    );
    fixture.clock.advance(TTL);
    assert!(fixture.get("key").await.body == bytes);
    let hit = fixture.get("key").await;
    assert_eq!(hit.cache.as_deref(), Some("forebay; hit; ttl=40"));
    assert_eq!(fixture.asked(), ["GET key", "GET key if-none-match"]);
}

/// Goal: checksums that a range did not bring are not left out because the version was validated.
#[tokio::test]
async fn a_validated_version_lacks_no_checksums() {
    for method in [requests::get, requests::head] {
        let fixture = Fixture::new().await;
        requests::put("bucket", "key")
            .header("x-amz-checksum-crc32", "rQO6gw==")
            .body("checked")
            .expect(200, &fixture.origin.store)
            .await;
        let range = requests::get("bucket", "key").range("bytes=0-1");
        range.expect(206, &*fixture.cache).await;
        fixture.settle().await;
        fixture.clock.advance(TTL);
        let request = method("bucket", "key").header("x-amz-checksum-mode", "ENABLED");
        let answer = request.expect(200, &*fixture.cache).await;
        assert_eq!(answer.header("x-amz-checksum-crc32"), "rQO6gw==");
    }
}

#[tokio::test]
async fn the_age_of_what_is_answered_is_counted() {
    let fixture = Fixture::new().await;
    fixture.put("key", 1000).await;
    fixture.get("key").await;
    fixture.settle().await;
    for _ in 0..3 {
        fixture.get("key").await;
        fixture.clock.advance(Duration::from_secs(20));
    }
    fixture.get("key").await;
    let staleness = &fixture.metrics().staleness;
    let within = [0, 10_000, 30_000, 60_000].map(|ms| staleness.count_within(ms));
    assert_eq!(within, [3, 3, 4, 5], "0 s twice, 20 s, 40 s, and validated");
}

#[tokio::test]
async fn a_ttl_of_nothing_asks_every_time_and_moves_no_body() {
    let fixture = Setup::with_ttl(Duration::ZERO, None).build().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    for _ in 0..3 {
        assert!(fixture.get("key").await.body == bytes);
        fixture.settle().await;
    }
    assert_eq!(
        fixture.asked(),
        ["GET key", "GET key if-none-match", "GET key if-none-match"]
    );
    assert_eq!(fixture.metrics().fill_bytes.get(), 300 * KIB);
}

/// Goal: 412 to a fill begins the answer anew while nothing of it was sent, and cuts it after
/// that, whatever the mode.
#[tokio::test]
async fn a_conflict_is_a_restart_or_a_cut_in_every_mode() {
    let bounded = settings().coherence;
    for coherence in [
        Coherence::Strict,
        bounded,
        Coherence::Exclusive,
        Coherence::Immutable,
    ] {
        let range = |range| requests::get("bucket", "key").range(range);
        let fixture = Setup::with(coherence).build().await;
        fixture.put_bytes("key", vec![1; 300_000]).await;
        range("bytes=0-0").expect(206, &*fixture.cache).await;
        fixture.settle().await;
        let whole = requests::get("bucket", "key").call(&*fixture.cache).await;
        let mut body = whole.unwrap().body;
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, vec![1; 64 * 1024]);
        let new = fixture.put_bytes("key", vec![2; 300_000]).await;
        let rest = body.collect(usize::MAX).await;
        assert!(matches!(rest, Err(Error::Cut { .. })), "{coherence:?}");
        assert!(fixture.get("key").await.body == new, "{coherence:?}");

        let fixture = Setup::with(coherence).build().await;
        fixture.put_bytes("key", vec![1; 300_000]).await;
        range("bytes=0-0").expect(206, &*fixture.cache).await;
        fixture.settle().await;
        fixture.put_bytes("key", vec![2; 400_000]).await;
        let answer = range("bytes=290000-").expect(206, &*fixture.cache).await;
        assert_eq!(answer.header("content-range"), "bytes 290000-399999/400000");
        assert!(answer.body.iter().all(|byte| *byte == 2), "{coherence:?}");
        fixture.settle().await;
    }
}

#[tokio::test]
async fn errors_are_never_kept() {
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        assert_eq!(
            requests::get("bucket", "key")
                .refusal(&*fixture.cache)
                .await,
            "NoSuchKey"
        );
        assert_eq!(
            requests::head("bucket", "key")
                .refusal(&*fixture.cache)
                .await,
            "NoSuchKey"
        );
    }
    assert_eq!(fixture.asked().len(), 4);
    let bytes = fixture.put("key", 1000).await;
    assert!(
        fixture.get("key").await.body == bytes,
        "at once, though it was missing just now"
    );
    fixture.settle().await;
    fixture.clock.advance(TTL);
    fixture.origin.store.script([Fault::Unavailable]);
    assert!(
        requests::get("bucket", "key")
            .send(&*fixture.cache)
            .await
            .is_err()
    );
    assert!(
        fixture.get("key").await.body == bytes,
        "the next one asks again"
    );
}
