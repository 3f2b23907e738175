//! `strict`: what the origin has when a read comes, or had later, and nothing from before.

use std::sync::Arc;

use forebay_store::{Error, contract::requests, faulty::Fault};

use super::origin::{Fixture, KIB, Setup, soon};
use crate::Coherence;

async fn strict() -> Arc<Fixture> {
    Arc::new(Setup::with(Coherence::Strict).build().await)
}

async fn warm(fixture: &Fixture, length: u64) -> bytes::Bytes {
    let bytes = fixture.put("key", length).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.asked();
    bytes
}

fn get(fixture: &Arc<Fixture>) -> tokio::task::JoinHandle<requests::Answer> {
    let fixture = Arc::clone(fixture);
    tokio::spawn(async move { fixture.get("key").await })
}

#[tokio::test]
async fn strict_asks_once_for_each_read_and_moves_no_body() {
    for length in [1000, 300 * KIB] {
        let fixture = strict().await;
        let bytes = warm(&fixture, length).await;
        for request in [
            || requests::get("bucket", "key"),
            || requests::get("bucket", "key").range("bytes=0-9"),
            || requests::head("bucket", "key"),
        ] {
            let answer = request().send(&*fixture.cache).await.unwrap();
            let status = "forebay; fwd=stale; fwd-status=304; stored";
            assert_eq!(answer.cache.as_deref(), Some(status));
            assert!(answer.body == bytes[..answer.body.len()]);
            assert_eq!(fixture.asked().len(), 1);
        }
        assert_eq!(fixture.metrics().fill_bytes.get(), length);
        assert_eq!(fixture.metrics().validated.get(), 3);
        assert_eq!(fixture.metrics().hit_bytes.get(), length + 10);
        assert_eq!(fixture.metrics().staleness.count_within(0), 4);
    }
}

#[tokio::test]
async fn strict_shows_what_others_wrote_at_once() {
    let fixture = strict().await;
    warm(&fixture, 300 * KIB).await;
    for length in [300 * KIB, 1000, 200 * KIB] {
        let byte = (length % 251).to_le_bytes()[0];
        let bytes = vec![byte; usize::try_from(length).unwrap()];
        let bytes = fixture.put_bytes("key", bytes).await;
        let range = requests::get("bucket", "key").range("bytes=0-9");
        assert!(range.expect(206, &*fixture.cache).await.body == bytes[..10]);
        assert!(fixture.get("key").await.body == bytes);
        let head = requests::head("bucket", "key");
        let head = head.expect(200, &*fixture.cache).await;
        assert_eq!(head.header("content-length"), length.to_string());
    }
    let delete = requests::delete("bucket", "key");
    delete.expect(204, &fixture.origin.store).await;
    for method in [requests::get, requests::head] {
        let refusal = method("bucket", "key").refusal(&*fixture.cache).await;
        assert_eq!(refusal, "NoSuchKey");
    }
    fixture.settle().await;
}

/// Goal: a validation that began before a reader came does not answer that reader.
/// Method: the origin's answer to the first is made, held back, and then outdated.
#[tokio::test]
async fn a_question_under_way_answers_nobody_who_comes_later() {
    for is_warm in [true, false] {
        let fixture = strict().await;
        let old = if is_warm {
            warm(&fixture, 300 * KIB).await
        } else {
            fixture.put("key", 300 * KIB).await
        };
        fixture.origin.hold();
        let early = get(&fixture);
        fixture.origin.was_asked(1).await;
        let new = fixture.put_bytes("key", vec![3; 1000]).await;
        let late = get(&fixture);
        tokio::task::yield_now().await;
        fixture.origin.let_go();
        let early = soon(early).await.unwrap().body;
        assert!(early == old || early == new, "either is from after it came");
        assert!(soon(late).await.unwrap().body == new, "warm: {is_warm}");
        fixture.settle().await;
    }
}

#[tokio::test]
async fn readers_that_come_before_the_question_is_sent_share_it() {
    let fixture = strict().await;
    let bytes = warm(&fixture, 300 * KIB).await;
    let readers: Vec<_> = (0..20).map(|_| get(&fixture)).collect();
    for reader in readers {
        assert!(soon(reader).await.unwrap().body == bytes);
    }
    assert_eq!(fixture.asked(), ["GET key if-none-match"]);
    assert_eq!(fixture.metrics().collapsed.get(), 19);
}

/// Goal: however many come for a cold object, and whenever, its body is fetched once.
#[tokio::test]
async fn strict_readers_of_one_cold_object_move_its_body_once() {
    for length in [1000, 300 * KIB] {
        let fixture = strict().await;
        let bytes = fixture.put("key", length).await;
        fixture.origin.hold();
        let mut readers = vec![get(&fixture)];
        fixture.origin.was_asked(1).await;
        readers.extend((0..20).map(|_| get(&fixture)));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        fixture.origin.let_go();
        for reader in readers {
            assert!(soon(reader).await.unwrap().body == bytes);
        }
        assert_eq!(fixture.asked(), ["GET key", "GET key if-none-match"]);
        assert_eq!(fixture.metrics().fill_bytes.get(), length);
        fixture.settle().await;
    }
}

#[tokio::test]
async fn strict_never_answers_for_an_origin_that_fails() {
    let fixture = strict().await;
    warm(&fixture, 1000).await;
    for method in [requests::get, requests::head] {
        fixture.origin.store.script([Fault::Unavailable]);
        let answer = method("bucket", "key").send(&*fixture.cache).await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })));
    }
}
