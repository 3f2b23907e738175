//! Stale answers on purpose: when, for how long, how they are told, and when never.

use std::{sync::Arc, time::Duration};

use forebay_s3::code::Code;
use forebay_store::{
    Error, Request, Response, Store,
    contract::requests::{self, Builder},
    faulty::Fault,
};
use http::StatusCode;

use super::origin::{Fixture, KIB, Setup, soon};
use crate::{Coherence, StaleUse, revalidate::REVALIDATIONS_MAX};

const TTL: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

fn setup(while_revalidate_s: u64, if_error_s: u64) -> Setup {
    Setup::with(Coherence::Bounded {
        ttl: TTL,
        tti: None,
        stale: StaleUse {
            while_revalidate: Duration::from_secs(while_revalidate_s),
            if_error: Duration::from_secs(if_error_s),
        },
    })
}

async fn warm(fixture: &Fixture, length: u64) -> bytes::Bytes {
    let bytes = fixture.put("key", length).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.asked();
    bytes
}

/// Runs until what was begun in the background has ended.
async fn idle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

fn requests_of_key() -> [fn() -> Builder; 3] {
    [
        || requests::get("bucket", "key"),
        || requests::get("bucket", "key").range("bytes=0-9"),
        || requests::head("bucket", "key"),
    ]
}

#[tokio::test]
async fn stale_while_revalidate_answers_at_once_and_asks_in_the_background() {
    for length in [1000, 300 * KIB, 9 * 1024 * KIB] {
        let fixture = setup(10, 0).build().await;
        let bytes = warm(&fixture, length).await;
        for request in requests_of_key() {
            fixture.clock.advance(TTL + SECOND);
            fixture.origin.hold();
            for _ in 0..5 {
                let answer = soon(request().send(&*fixture.cache)).await.unwrap();
                let status = "forebay; hit; ttl=-1; detail=stale-while-revalidate";
                assert_eq!(answer.cache.as_deref(), Some(status));
                assert_eq!(answer.header("age"), "61");
                assert!(answer.body == bytes[..answer.body.len()]);
                idle().await;
            }
            assert_eq!(fixture.asked().len(), 1, "one for all of them");
            fixture.origin.let_go();
            idle().await;
            let answer = request().send(&*fixture.cache).await.unwrap();
            assert_eq!(answer.cache.as_deref(), Some("forebay; hit; ttl=60"));
            assert_eq!(fixture.asked(), [""; 0]);
        }
        assert_eq!(fixture.metrics().stale_while_revalidate.get(), 15);
    }
}

#[tokio::test]
async fn what_has_changed_is_shown_after_one_stale_answer() {
    for (length, changed) in [
        (1000, 300 * KIB),
        (300 * KIB, 1000),
        (1000, 20 * 1024 * KIB),
    ] {
        for request in requests_of_key() {
            let fixture = setup(10, 0).build().await;
            let old = warm(&fixture, length).await;
            let bytes = vec![5; usize::try_from(changed).unwrap()];
            let new = fixture.put_bytes("key", bytes).await;
            fixture.clock.advance(TTL);
            let stale = request().send(&*fixture.cache).await.unwrap();
            assert!(stale.body == old[..stale.body.len()]);
            idle().await;
            let answer = request().send(&*fixture.cache).await.unwrap();
            assert!(answer.body == new[..answer.body.len()]);
            assert!(fixture.get("key").await.body == new);
            fixture.settle().await;
        }
    }
}

#[tokio::test]
async fn stale_answers_end_at_their_bound() {
    for request in requests_of_key() {
        let fixture = setup(10, 20).build().await;
        warm(&fixture, 1000).await;
        let failing = || fixture.origin.store.script([Fault::Unavailable]);
        fixture.clock.advance(TTL + 9 * SECOND);
        failing();
        let answer = request().send(&*fixture.cache).await.unwrap();
        assert!(answer.cache.unwrap().starts_with("forebay; hit; ttl=-9"));
        idle().await;
        fixture.clock.advance(SECOND);
        failing();
        let answer = request().send(&*fixture.cache).await.unwrap();
        let status = "forebay; fwd=stale; ttl=-10; detail=stale-if-error";
        assert_eq!(answer.cache.as_deref(), Some(status));
        fixture.clock.advance(9 * SECOND);
        failing();
        let answer = request().send(&*fixture.cache).await.unwrap();
        assert!(answer.cache.unwrap().contains("ttl=-19"));
        // The bound passes while the origin takes its time to fail.
        *fixture.origin.takes.lock() = SECOND;
        failing();
        let answer = request().send(&*fixture.cache).await;
        assert!(
            matches!(answer, Err(Error::Unavailable { .. })),
            "{answer:?}"
        );
        assert_eq!(fixture.metrics().stale_if_error.get(), 2);
    }
}

#[tokio::test]
async fn nothing_stale_is_used_unless_it_was_set() {
    let fixture = setup(0, 0).build().await;
    warm(&fixture, 1000).await;
    fixture.clock.advance(TTL);
    fixture.origin.store.script([Fault::Unavailable]);
    let answer = requests::get("bucket", "key").send(&*fixture.cache).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn what_is_gone_is_never_answered_stale() {
    for request in requests_of_key() {
        let fixture = setup(100, 100).build().await;
        warm(&fixture, 1000).await;
        let delete = requests::delete("bucket", "key");
        delete.expect(204, &fixture.origin.store).await;
        fixture.clock.advance(TTL);
        assert!(
            request().send(&*fixture.cache).await.is_ok(),
            "not known yet"
        );
        idle().await;
        for _ in 0..2 {
            let refusal = request().refusal(&*fixture.cache).await;
            assert_eq!(refusal, "NoSuchKey");
        }
        fixture.origin.store.script([Fault::Unavailable]);
        let answer = request().send(&*fixture.cache).await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })));
    }
}

/// The memory store, until it is told to answer with a status or a refusal of its own.
struct Moody {
    store: Fixture,
    mood: parking_lot::Mutex<Option<Mood>>,
}

#[derive(Clone, Copy)]
enum Mood {
    Answers(StatusCode),
    Refuses(Code),
}

#[async_trait::async_trait]
impl Store for Moody {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        match *self.mood.lock() {
            Some(Mood::Answers(status)) => return Ok(Response::new(status)),
            Some(Mood::Refuses(code)) => return Err(Error::refused(code)),
            None => {}
        }
        self.store.origin.call(request).await
    }
}

/// Goal: of all that an origin may answer, only its troubles are hidden by something stale; a
/// refusal ends stale use until the origin has vouched for the object again.
#[tokio::test]
async fn errors_of_the_origin_are_hidden_and_refusals_are_not() {
    for (mood, hidden) in [
        (Mood::Answers(StatusCode::INTERNAL_SERVER_ERROR), true),
        (Mood::Answers(StatusCode::BAD_GATEWAY), true),
        (Mood::Answers(StatusCode::SERVICE_UNAVAILABLE), true),
        (Mood::Answers(StatusCode::GATEWAY_TIMEOUT), true),
        (Mood::Refuses(Code::InternalError), true),
        (Mood::Answers(StatusCode::NOT_IMPLEMENTED), false),
        (Mood::Answers(StatusCode::FORBIDDEN), false),
        (Mood::Answers(StatusCode::UNAUTHORIZED), false),
        (Mood::Answers(StatusCode::TOO_MANY_REQUESTS), false),
        (Mood::Refuses(Code::AccessDenied), false),
        (Mood::Refuses(Code::NoSuchKey), false),
    ] {
        for request in requests_of_key() {
            let setup = setup(0, 100);
            let clock = setup.clock.clone();
            let store = Fixture::new().await;
            store.put("key", 1000).await;
            let mood_of = parking_lot::Mutex::new(None);
            let origin = Arc::new(Moody {
                store,
                mood: mood_of,
            });
            let cache = setup.over(Arc::clone(&origin) as Arc<dyn Store>);
            requests::get("bucket", "key").expect(200, &cache).await;
            idle().await;
            clock.advance(TTL);
            let ask = async |mood| {
                *origin.mood.lock() = mood;
                let answer = request().send(&cache).await;
                let cache = answer
                    .ok()
                    .and_then(|answer| answer.cache)
                    .unwrap_or_default();
                cache.contains("stale-if-error")
            };
            assert_eq!(ask(Some(mood)).await, hidden);
            // 503 after a refusal is not hidden, after another error it is.
            let busy = Mood::Answers(StatusCode::SERVICE_UNAVAILABLE);
            let not_implemented =
                matches!(mood, Mood::Answers(status) if status == StatusCode::NOT_IMPLEMENTED);
            assert_eq!(ask(Some(busy)).await, hidden || not_implemented);
            // Once the origin has vouched for it again it may be.
            clock.advance(SECOND);
            assert!(!ask(None).await);
            idle().await;
            clock.advance(TTL);
            assert!(ask(Some(busy)).await);
        }
    }
}

#[tokio::test]
async fn what_is_stale_and_not_whole_in_memory_is_not_used() {
    let fixture = setup(100, 100).build().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    let range = |range| requests::get("bucket", "key").range(range);
    range("bytes=0-9").expect(206, &*fixture.cache).await;
    fixture.settle().await;
    fixture.clock.advance(TTL);
    fixture.origin.store.script([Fault::Unavailable]);
    let answer = range("bytes=200000-200009").send(&*fixture.cache).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })));
    let answer = range("bytes=200000-200009")
        .expect(206, &*fixture.cache)
        .await;
    assert!(answer.body == bytes[200_000..200_010]);
    assert!(answer.cache.unwrap().contains("fwd=stale; fwd-status=304"));
}

#[tokio::test]
async fn a_client_that_wants_a_validation_gets_nothing_stale() {
    let fixture = setup(100, 100).build().await;
    warm(&fixture, 1000).await;
    fixture.clock.advance(TTL);
    fixture.origin.store.script([Fault::Unavailable]);
    let request = requests::get("bucket", "key").header("cache-control", "no-cache");
    let answer = request.send(&*fixture.cache).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn a_refusal_is_never_made_of_what_is_stale() {
    let fixture = setup(100, 100).build().await;
    warm(&fixture, 1000).await;
    let new = fixture.put("key", 2000).await;
    fixture.clock.advance(TTL);
    let range = requests::get("bucket", "key").range("bytes=1500-1509");
    let answer = range.expect(206, &*fixture.cache).await;
    assert!(answer.body == new[1500..1510], "416 of the old one");
}

/// Goal: those who wait for a question that fails get what is stale as well, and at once.
#[tokio::test]
async fn followers_of_a_failed_validation_are_answered_by_it() {
    let fixture = Arc::new(setup(0, 100).build().await);
    warm(&fixture, 1000).await;
    fixture.clock.advance(TTL);
    fixture.origin.store.script([Fault::Unavailable]);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move { fixture.get("key").await })
        })
        .collect();
    for reader in readers {
        let answer = soon(reader).await.unwrap();
        assert!(answer.cache.unwrap().contains("stale-if-error"));
    }
    assert_eq!(fixture.asked(), ["GET key if-none-match"]);
}

#[tokio::test]
async fn validations_in_the_background_are_bounded_in_number() {
    let fixture = setup(100, 0).build().await;
    let key = |index| format!("key{index}");
    for index in 0..=REVALIDATIONS_MAX {
        fixture.put(&key(index), 1000).await;
        fixture.get(&key(index)).await;
    }
    fixture.settle().await;
    fixture.asked();
    fixture.clock.advance(TTL);
    fixture.origin.hold();
    for index in 0..REVALIDATIONS_MAX {
        let answer = soon(fixture.get(&key(index))).await;
        assert!(answer.cache.unwrap().contains("hit"));
    }
    fixture.origin.was_asked(REVALIDATIONS_MAX).await;
    let last = key(REVALIDATIONS_MAX);
    let (answer, ()) = tokio::join!(fixture.get(&last), async {
        fixture.origin.was_asked(REVALIDATIONS_MAX + 1).await;
        fixture.origin.let_go();
    });
    let status = "forebay; fwd=stale; fwd-status=304; stored";
    assert_eq!(answer.cache.as_deref(), Some(status), "it asks by itself");
    assert_eq!(fixture.metrics().revalidations_refused.get(), 1);
    idle().await;
    fixture.clock.advance(TTL);
    let answer = fixture.get(&last).await;
    assert!(answer.cache.unwrap().contains("hit"), "there is room again");
}

#[tokio::test]
async fn a_stale_answer_is_no_use_of_the_object() {
    let setup = Setup::with(Coherence::Bounded {
        ttl: TTL,
        tti: Some(10 * SECOND),
        stale: StaleUse {
            while_revalidate: 10 * SECOND,
            if_error: Duration::ZERO,
        },
    });
    let fixture = setup.build().await;
    warm(&fixture, 1000).await;
    fixture.origin.hold();
    fixture.clock.advance(15 * SECOND);
    for _ in 0..2 {
        let answer = soon(fixture.get("key")).await;
        assert!(answer.cache.unwrap().contains("ttl=-5; detail"));
    }
    fixture.origin.let_go();
}
