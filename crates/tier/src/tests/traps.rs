//! What others fell into (each was seen red with the fault put in, which its comment names).

use super::{
    scene::{Scene, Yielding},
    *,
};
use forebay_store::{
    contract::requests::{delete, get, list_v2, put},
    faulty::Fault,
};

const SETTLE_SECONDS: u64 = 60;

fn prompt() -> TierSettings {
    TierSettings {
        demote_after: Duration::ZERO,
        ..TierSettings::default()
    }
}

async fn body_of(name: &str, store: &dyn Store) -> String {
    get("bucket", name).expect(200, store).await.text()
}

/// Goal: a mover that wakes up after all others have stopped to wait for it does no harm.
/// Method: nobody waits at all, so that another moves the next object under its eyes.
/// Fault: leave out `is_current` after the look.
#[tokio::test]
async fn a_mover_that_slept_past_its_lease_leaves_newer_data_alone() {
    for act in ["write", "delete"] {
        let (rig, _) = Rig::with_bucket().await;
        let scene = Scene::new(rig.cold.clone());
        let settings = TierSettings {
            settle: Duration::ZERO,
            ..prompt()
        };
        let sleeper = Arc::new(rig.gateway_before("g1", settings.clone(), scene.clone()));
        let other = rig.gateway("g2", settings);
        put("bucket", "k").body("v0").expect(200, &*rig.cold).await;
        rig.pass(10);
        put("bucket", "k").body("v1").expect(200, &*sleeper).await;
        if act == "delete" {
            delete("bucket", "k").expect(204, &*sleeper).await;
        }
        scene.hold_next();
        let mover = sleeper.mover();
        let turn = tokio::spawn(async move { mover.turn().await.unwrap() });
        scene.arrived.acquire().await.unwrap().forget();
        put("bucket", "k").body("v2").expect(200, &other).await;
        assert!(other.mover().turn().await.unwrap().is_idle);
        // So soon after `v1` that `v2` does not look newer by the clock.
        other.operator().flush().await.unwrap();
        assert_eq!(body_of("k", &*rig.cold).await, "v2");
        scene.may_go.add_permits(1);
        turn.await.unwrap();
        assert_eq!(body_of("k", &*rig.cold).await, "v2", "{act}");
        assert_eq!(body_of("k", &*sleeper).await, "v2", "{act}");
        assert!(!other.operator().has_dirty().await.unwrap());
    }
}

/// Fault: do not look at claims.
#[tokio::test]
async fn a_key_that_a_gateway_is_at_work_on_is_left_alone_by_others() {
    let (rig, _) = Rig::with_bucket().await;
    let scene = Scene::new(rig.cold.clone());
    let first = Arc::new(rig.gateway_before("g1", prompt(), scene.clone()));
    let second = rig.gateway("g2", prompt());
    put("bucket", "k").body("v1").expect(200, &*first).await;
    scene.hold_next();
    let mover = first.mover();
    let turn = tokio::spawn(async move { mover.turn().await.unwrap() });
    scene.arrived.acquire().await.unwrap().forget();
    put("bucket", "k").body("v2").expect(200, &second).await;
    second.operator().flush().await.unwrap();
    assert_eq!(get("bucket", "k").refusal(&*rig.cold).await, "NoSuchKey");
    scene.may_go.add_permits(1);
    turn.await.unwrap();
    assert_eq!(body_of("k", &*rig.cold).await, "v1");
    assert!(flushed(&second).await);
    assert_eq!(body_of("k", &*rig.cold).await, "v2");
}

/// Fault: let writes pass by whatever is lost.
#[tokio::test(start_paused = true)]
async fn nothing_passes_by_while_a_request_of_the_mover_may_still_arrive() {
    let (rig, _) = Rig::with_bucket().await;
    let scene = Scene::new(rig.cold.clone());
    let layer = rig.gateway_before("g1", prompt(), scene.clone());
    put("bucket", "k").body("v1").expect(200, &layer).await;
    scene.lose_next();
    layer.mover().turn().await.unwrap();
    let past = || {
        put("bucket", "k")
            .header("x-forebay-tier", "cold")
            .body("v2")
    };
    let refused = past().send(&layer).await;
    assert!(matches!(
        refused,
        Err(forebay_store::Error::SlowDown { .. })
    ));
    rig.pass(SETTLE_SECONDS);
    past().expect(200, &layer).await;
    assert_eq!(body_of("k", &layer).await, "v2");
}

async fn flushed(layer: &TierLayer) -> bool {
    let flushed = layer.operator().flush_and_wait(Duration::ZERO).await;
    flushed.unwrap()
}

#[tokio::test]
async fn the_lease_goes_to_another_gateway_when_its_holder_is_gone() {
    let (rig, _) = Rig::with_bucket().await;
    let (first, second) = (rig.gateway("g1", prompt()), rig.gateway("g2", prompt()));
    assert!(!first.mover().turn().await.unwrap().is_idle);
    put("bucket", "k").body("v").expect(200, &first).await;
    drop(first);
    assert!(second.mover().turn().await.unwrap().is_idle);
    rig.pass(16);
    assert_eq!(second.mover().turn().await.unwrap().done_count, 1);
    assert_eq!(body_of("k", &*rig.cold).await, "v");
}

#[tokio::test]
async fn what_is_dirty_is_read_and_listed_from_every_gateway() {
    let (rig, first) = Rig::with_bucket().await;
    let second = rig.gateway("g2", TierSettings::default());
    put("bucket", "k").body("v").expect(200, &first).await;
    for layer in [&first, &second] {
        assert_eq!(body_of("k", layer).await, "v");
        let listed = list_v2("bucket").expect(200, layer).await;
        assert_eq!(listed.elements("Key"), ["k"]);
    }
    delete("bucket", "k").expect(204, &second).await;
    assert_eq!(get("bucket", "k").refusal(&first).await, "NoSuchKey");
    assert_eq!(
        list_v2("bucket").expect(200, &first).await.elements("Key"),
        [""; 0]
    );
}

/// Fault: delete without waiting for what is lost.
#[tokio::test]
async fn an_upload_that_arrives_after_the_delete_does_not_bring_the_object_back() {
    let (rig, _) = Rig::with_bucket().await;
    let scene = Scene::new(rig.cold.clone());
    let layer = rig.gateway_before("g1", prompt(), scene.clone());
    put("bucket", "k").body("v").expect(200, &layer).await;
    scene.lose_next();
    rig.cold.script([Fault::Unavailable]);
    assert_eq!(layer.mover().turn().await.unwrap().failed_count, 1);
    delete("bucket", "k").expect(204, &layer).await;
    layer.operator().flush().await.unwrap();
    for answer in scene.deliver().await {
        answer.unwrap();
    }
    assert_eq!(body_of("k", &*rig.cold).await, "v");
    assert_eq!(get("bucket", "k").refusal(&layer).await, "NoSuchKey");
    assert_eq!(
        list_v2("bucket").expect(200, &layer).await.elements("Key"),
        [""; 0]
    );
    rig.pass(SETTLE_SECONDS);
    assert!(flushed(&layer).await);
    for store in [&layer as &dyn Store, &*rig.cold] {
        assert_eq!(get("bucket", "k").refusal(store).await, "NoSuchKey");
    }
}

/// Fault: forget a key as soon as it is deleted.
#[tokio::test]
async fn what_comes_after_a_delete_from_a_gateway_that_died_is_deleted_again() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "k").body("v").expect(200, &layer).await;
    delete("bucket", "k").expect(204, &layer).await;
    assert!(flushed(&layer).await);
    put("bucket", "k").body("v").expect(200, &*rig.cold).await;
    assert_eq!(get("bucket", "k").refusal(&layer).await, "NoSuchKey");
    rig.pass(SETTLE_SECONDS);
    layer.mover().turn().await.unwrap();
    for store in [&layer as &dyn Store, &*rig.cold] {
        assert_eq!(get("bucket", "k").refusal(store).await, "NoSuchKey");
    }
}

/// Fault: write while something is lost.
#[tokio::test]
async fn an_upload_that_arrives_after_the_next_one_changes_nothing() {
    let (rig, _) = Rig::with_bucket().await;
    let scene = Scene::new(rig.cold.clone());
    let layer = rig.gateway_before("g1", prompt(), scene.clone());
    put("bucket", "k").body("v1").expect(200, &layer).await;
    scene.lose_next();
    rig.cold.script([Fault::Unavailable]);
    assert_eq!(layer.mover().turn().await.unwrap().failed_count, 1);
    put("bucket", "k").body("v2").expect(200, &layer).await;
    assert!(!flushed(&layer).await);
    for answer in scene.deliver().await {
        answer.unwrap();
    }
    assert_eq!(body_of("k", &layer).await, "v2");
    rig.pass(SETTLE_SECONDS);
    assert!(flushed(&layer).await);
    assert_eq!(body_of("k", &*rig.cold).await, "v2");
}

/// Fault: write while something is lost.
#[tokio::test]
async fn a_tag_that_comes_back_waits_for_latecomers() {
    let (rig, _) = Rig::with_bucket().await;
    let scene = Scene::new(rig.cold.clone());
    let layer = rig.gateway_before("g1", prompt(), scene.clone());
    let write = async |text: &'static str| {
        put("bucket", "k").body(text).expect(200, &layer).await;
    };
    write("a").await;
    layer.mover().turn().await.unwrap();
    write("b").await;
    scene.lose_next();
    rig.cold.script([Fault::Unavailable]);
    assert_eq!(layer.mover().turn().await.unwrap().failed_count, 1);
    write("a").await;
    layer.operator().flush().await.unwrap();
    // `b` was to replace `a`, which is there again; it may arrive for a minute.
    scene.deliver().await;
    assert_eq!(body_of("k", &layer).await, "a");
    rig.pass(SETTLE_SECONDS);
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    assert_eq!(body_of("k", &*rig.cold).await, "a");
    assert_eq!(body_of("k", &layer).await, "a");
}

/// Fault: take an answer that was lost for a failure.
#[tokio::test]
async fn an_answer_that_is_lost_is_looked_for_and_not_sent_twice() {
    let (rig, _) = Rig::with_bucket().await;
    let layer = rig.gateway("g1", prompt());
    put("bucket", "k").body("v").expect(200, &layer).await;
    let calls = rig.cold.calls();
    rig.cold.script([Fault::AnswerLost]);
    assert_eq!(layer.mover().turn().await.unwrap().done_count, 1);
    assert_eq!(rig.cold.calls(), calls + 2);
    assert!(!layer.operator().has_dirty().await.unwrap());
}

/// Fault: judge by the tag alone.
#[tokio::test]
async fn metadata_moves_even_where_the_bytes_are_there_already() {
    let (rig, _) = Rig::with_bucket().await;
    let layer = rig.gateway("g1", prompt());
    put("bucket", "k")
        .header("x-amz-meta-a", "1")
        .body("v")
        .expect(200, &*rig.cold)
        .await;
    rig.pass(10);
    put("bucket", "k")
        .header("x-amz-meta-a", "2")
        .body("v")
        .expect(200, &layer)
        .await;
    layer.mover().turn().await.unwrap();
    let moved = get("bucket", "k").expect(200, &*rig.cold).await;
    assert_eq!(moved.header("x-amz-meta-a"), "2");
}

/// Fault: replace whatever is found.
#[tokio::test]
async fn what_another_has_written_since_is_a_conflict_until_an_operator_decides() {
    let (rig, layer) = Rig::with_bucket().await;
    let operator = layer.operator();
    for (name, ours_stays) in [("retry", true), ("discard", false)] {
        put("bucket", name).body("ours").expect(200, &layer).await;
        rig.pass(10);
        put("bucket", name)
            .body("theirs")
            .expect(200, &*rig.cold)
            .await;
        assert!(operator.flush_and_wait(Duration::ZERO).await.unwrap());
        assert_eq!(body_of(name, &*rig.cold).await, "theirs");
        assert_eq!(body_of(name, &layer).await, "ours");
        assert_eq!(operator.conflicts(10).await.unwrap().len(), 1);
        assert!(operator.has_dirty().await.unwrap());
        let decided = if ours_stays {
            operator.retry(&key(name)).await
        } else {
            operator.discard(&key(name)).await
        };
        assert!(decided.unwrap());
        assert!(operator.flush_and_wait(Duration::ZERO).await.unwrap());
        let expected = if ours_stays { "ours" } else { "theirs" };
        for store in [&layer as &dyn Store, &*rig.cold] {
            assert_eq!(body_of(name, store).await, expected);
        }
        assert!(!operator.has_dirty().await.unwrap());
    }
}

#[tokio::test]
async fn what_the_cold_store_has_from_before_is_replaced() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "k")
        .body("older")
        .expect(200, &*rig.cold)
        .await;
    rig.pass(10);
    put("bucket", "k").body("ours").expect(200, &layer).await;
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    assert_eq!(body_of("k", &*rig.cold).await, "ours");
}

/// Goal: a mover that is dropped at any of its waits leaves a key that the next one brings home.
/// Method: poll a turn so many times and drop it, for each number; then let another gateway do it.
#[tokio::test]
async fn a_turn_that_is_dropped_anywhere_loses_nothing() {
    for act in ["write", "overwrite", "delete"] {
        for polls in 0..40 {
            let (rig, _) = Rig::with_bucket().await;
            let slow = Arc::new(Yielding(rig.cold.clone()));
            let layer = rig.gateway_before("g1", prompt(), slow);
            if act != "write" {
                put("bucket", "k").body("v0").expect(200, &*rig.cold).await;
            }
            put("bucket", "k").body("v1").expect(200, &layer).await;
            if act == "delete" {
                delete("bucket", "k").expect(204, &layer).await;
            }
            let mover = layer.mover();
            let mut turn = Box::pin(mover.turn());
            for _ in 0..polls {
                let polled = |cx: &mut std::task::Context<'_>| {
                    std::task::Poll::Ready(turn.as_mut().poll(cx).is_ready())
                };
                if std::future::poll_fn(polled).await {
                    break;
                }
            }
            drop(turn);
            // What the turn was at work on is left alone until nothing of it can arrive.
            rig.pass(SETTLE_SECONDS);
            let other = rig.gateway("g2", prompt());
            assert!(
                other
                    .operator()
                    .flush_and_wait(Duration::ZERO)
                    .await
                    .unwrap()
            );
            for store in [&other as &dyn Store, &*rig.cold] {
                if act == "delete" {
                    assert_eq!(
                        get("bucket", "k").refusal(store).await,
                        "NoSuchKey",
                        "{polls}"
                    );
                } else {
                    assert_eq!(body_of("k", store).await, "v1", "{act} {polls}");
                }
            }
        }
    }
}

/// A store that does not look at conditions of writes.
struct Careless(Arc<ColdStore>);

#[async_trait::async_trait]
impl Store for Careless {
    async fn call(
        &self,
        mut request: forebay_store::Request,
    ) -> Result<forebay_store::Response, forebay_store::Error> {
        for name in ["if-match", "if-none-match"] {
            request.headers.remove(name);
        }
        self.0.call(request).await
    }
}

#[tokio::test]
async fn before_a_store_that_ignores_conditions_the_mover_looks_first() {
    let (rig, _) = Rig::with_bucket().await;
    let settings = TierSettings {
        conditions: crate::Conditions::Ignored,
        ..TierSettings::default()
    };
    let careless = Arc::new(Careless(rig.cold.clone()));
    let layer = rig.gateway_before("g1", settings, careless);
    put("bucket", "theirs")
        .body("ours")
        .expect(200, &layer)
        .await;
    put("bucket", "ours").body("ours").expect(200, &layer).await;
    rig.pass(10);
    put("bucket", "theirs")
        .body("theirs")
        .expect(200, &*rig.cold)
        .await;
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    assert_eq!(body_of("theirs", &*rig.cold).await, "theirs");
    assert_eq!(body_of("ours", &*rig.cold).await, "ours");
}
