//! `exclusive`: as the writes through this gateway left it.

use std::time::Duration;

use forebay_store::{contract::requests, faulty::Fault};

use super::origin::{Fixture, Setup};
use crate::Coherence;

/// Longer than a write of unknown outcome is waited for.
const CERTAIN_AFTER: Duration = Duration::from_mins(15);

async fn exclusive() -> Fixture {
    Setup::with(Coherence::Exclusive).build().await
}

#[tokio::test]
async fn exclusive_never_asks_again_until_a_write_passes() {
    let fixture = exclusive().await;
    fixture.put("key", 1000).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.clock.advance(Duration::from_secs(1_000_000));
    let hit = fixture.get("key").await;
    assert_eq!(hit.cache.as_deref(), Some("forebay; hit"));
    assert_eq!(fixture.asked(), ["GET key"]);
    let put = requests::put("bucket", "key").body("new");
    put.expect(200, &*fixture.cache).await;
    assert_eq!(fixture.get("key").await.body, "new");
    fixture.settle().await;
    let hit = fixture.get("key").await;
    assert_eq!(hit.cache.as_deref(), Some("forebay; hit"));
    let delete = requests::delete("bucket", "key");
    delete.expect(204, &*fixture.cache).await;
    let refusal = requests::get("bucket", "key");
    assert_eq!(refusal.refusal(&*fixture.cache).await, "NoSuchKey");
}

/// Goal: a write that the origin carries out after the gateway has given up on it is not hidden
/// for ever by what was read in between.
#[tokio::test]
async fn a_write_of_unknown_outcome_is_seen_when_it_comes_late() {
    let fixture = exclusive().await;
    fixture.put("key", 1000).await;
    fixture.put("other", 1000).await;
    fixture.origin.hold();
    {
        let mut left = Box::pin(
            requests::put("bucket", "key")
                .body("lost")
                .call(&*fixture.cache),
        );
        let polled = poll_once(&mut left).await;
        assert!(polled.is_none(), "the client leaves before the answer");
    }
    fixture.origin.let_go();
    for key in ["key", "other"] {
        fixture.get(key).await;
        fixture.settle().await;
    }
    fixture.asked();
    // The origin carries it out only now.
    fixture.put_bytes("key", b"late".to_vec()).await;
    assert_eq!(fixture.get("key").await.body, "late");
    fixture.settle().await;
    fixture.get("other").await;
    assert_eq!(
        fixture.asked(),
        ["GET key if-none-match"],
        "no other is in doubt"
    );
    fixture.clock.advance(CERTAIN_AFTER);
    for _ in 0..3 {
        assert_eq!(fixture.get("key").await.body, "late");
        fixture.settle().await;
    }
    assert_eq!(
        fixture.asked(),
        ["GET key if-none-match"],
        "then certain again"
    );
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn only_writes_of_unknown_outcome_leave_a_doubt() {
    for (fault, asks) in [
        (Fault::None, false),
        (Fault::Unavailable, false),
        (Fault::SlowDown, false),
        (Fault::AnswerLost, true),
    ] {
        let fixture = exclusive().await;
        fixture.put("key", 1000).await;
        fixture.origin.store.script([fault]);
        let put = requests::put("bucket", "key").body("new");
        drop(put.send(&*fixture.cache).await);
        for _ in 0..2 {
            fixture.get("key").await;
            fixture.settle().await;
        }
        fixture.asked();
        fixture.get("key").await;
        assert_eq!(!fixture.asked().is_empty(), asks, "{fault:?}");
    }
}
