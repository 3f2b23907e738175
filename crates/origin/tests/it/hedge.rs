//! Slow reads are sent again, and only what can be used wins.

use std::sync::Arc;

use forebay_origin::HedgeSettings;
use forebay_store::{
    Clock, Store as _,
    contract::requests::{get, head as head_object, list_v2},
};
use tokio::sync::Notify;

use crate::{
    scripted::{ok, status},
    stage::{Act, DELAY, Stage, eager, settle},
};

#[tokio::test(start_paused = true)]
async fn a_slow_read_is_answered_by_another_endpoint_and_the_first_is_let_go() {
    let mut stage = Stage::new(2, Some(eager())).await;
    stage.acts([Act::Stall(Vec::new()), Act::Say(ok(b"hedge"))]);
    let reading = stage.read(&[]);
    let primary = stage.arrived().await;
    stage.pass(DELAY.mul_f64(0.9)).await;
    assert_eq!(stage.hedges().issued.get(), 0, "not before its time");
    stage.pass(DELAY.mul_f64(0.2)).await;
    let hedge = stage.arrived().await;
    assert_ne!(primary.origin, hedge.origin);
    let answer = reading.await.unwrap().unwrap();
    assert_eq!(answer.body.collect(100).await.unwrap().0, "hedge");
    stage.closed().await;
    stage.assert_idle();
    let hedges = stage.hedges();
    assert_eq!((hedges.issued.get(), hedges.results.won.get()), (1, 1));
    assert_eq!(stage.metrics.retries.slow_down.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_is_asked_again_over_another_connection() {
    let mut stage = Stage::new(1, Some(eager())).await;
    assert_eq!(stage.origins[0].connections(), 1);
    stage.acts([Act::Stall(Vec::new())]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.pass(DELAY * 2).await;
    stage.arrived().await;
    let answer = reading.await.unwrap().unwrap();
    answer.body.collect(100).await.unwrap();
    assert_eq!(stage.origins[0].connections(), 2);
    stage.closed().await;
    stage.assert_idle();
}

/// Goal: what says that an endpoint has a fault does not win against one that may still answer.
/// Method: either arm fails, in every way, and was seen to; then the other answers.
#[tokio::test(start_paused = true)]
async fn a_quick_failure_does_not_win_over_a_slow_answer() {
    let failures = || {
        [
            Act::Say(status(503)),
            Act::Say(status(500)),
            Act::Say(status(429)),
            Act::End(Vec::new()),
            Act::Reset(Vec::new()),
            Act::Say(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
        ]
    };
    for failure in failures() {
        let mut stage = Stage::new(2, Some(eager())).await;
        let told = Arc::new(Notify::new());
        let slow = Act::Later(Vec::new(), Arc::clone(&told), ok(b"slow"));
        stage.acts([slow, failure]);
        let reading = stage.read(&[]);
        stage.arrived().await;
        stage.pass(DELAY * 2).await;
        stage.arrived().await;
        settle().await;
        assert!(!reading.is_finished());
        told.notify_one();
        let answer = reading.await.unwrap().unwrap();
        assert_eq!(answer.body.collect(100).await.unwrap().0, "slow");
        assert_eq!(stage.hedges().results.failed.get(), 1);
        stage.assert_idle();
    }
    for failure in failures() {
        let mut stage = Stage::new(2, Some(eager())).await;
        let (fail, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let failing = match failure {
            Act::Say(bytes) => Act::Later(Vec::new(), Arc::clone(&fail), bytes),
            // How else it fails makes no difference to a primary.
            _ => continue,
        };
        let slow = Act::Later(Vec::new(), Arc::clone(&told), ok(b"slow"));
        stage.acts([failing, slow]);
        let reading = stage.read(&[]);
        stage.arrived().await;
        stage.pass(DELAY * 2).await;
        stage.arrived().await;
        fail.notify_one();
        settle().await;
        assert!(!reading.is_finished());
        told.notify_one();
        let answer = reading.await.unwrap().unwrap();
        assert_eq!(answer.body.collect(100).await.unwrap().0, "slow");
        assert_eq!(stage.hedges().results.won.get(), 1);
        stage.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_endpoint_says_of_the_object_is_an_answer() {
    for code in [304, 403, 404, 412, 416] {
        let mut stage = Stage::new(2, Some(eager())).await;
        stage.acts([Act::Stall(Vec::new()), Act::Say(status(code))]);
        let reading = stage.read(&[]);
        stage.arrived().await;
        stage.pass(DELAY * 2).await;
        stage.arrived().await;
        assert_eq!(reading.await.unwrap().unwrap().status.as_u16(), code);
        assert_eq!(stage.hedges().results.won.get(), 1);
        stage.closed().await;
        stage.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn when_both_fail_it_is_tried_again() {
    let mut stage = Stage::new(2, Some(eager())).await;
    let told = Arc::new(Notify::new());
    let failing = Act::Later(Vec::new(), Arc::clone(&told), status(503));
    stage.acts([failing, Act::Say(status(503)), Act::Say(ok(b"third"))]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.pass(DELAY * 2).await;
    stage.arrived().await;
    told.notify_one();
    stage.arrived().await;
    let answer = reading.await.unwrap().unwrap();
    assert_eq!(answer.body.collect(100).await.unwrap().0, "third");
    assert_eq!(stage.metrics.retries.slow_down.get(), 1);
    stage.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_fails_before_its_time_is_retried_and_not_hedged() {
    let mut stage = Stage::new(2, Some(eager())).await;
    stage.acts([Act::Say(status(503))]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.arrived().await;
    assert_eq!(reading.await.unwrap().unwrap().status, 200);
    assert_eq!(stage.hedges().issued.get(), 0);
    assert_eq!(stage.metrics.retries.slow_down.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn both_arms_have_the_callers_range_and_condition() {
    let mut stage = Stage::new(2, Some(eager())).await;
    let headers = [("range", "bytes=4-9"), ("if-match", "\"one\"")];
    // Ranges are a kind of their own.
    for _ in 0..200 {
        stage
            .read(&headers)
            .await
            .unwrap()
            .unwrap()
            .body
            .collect(100)
            .await
            .unwrap();
        stage.arrived().await;
    }
    stage.acts([Act::Stall(Vec::new())]);
    let reading = stage.read(&headers);
    let primary = stage.arrived().await.seen;
    stage.pass(DELAY * 2).await;
    let hedge = stage.arrived().await.seen;
    for (name, value) in headers {
        assert_eq!(primary.header(name), Some(value));
        assert_eq!(hedge.header(name), Some(value));
    }
    let answer = reading.await.unwrap().unwrap();
    assert_eq!(answer.body.collect(100).await.unwrap().0, "object");
}

/// Lets `reading` wait far beyond any delay, then lets it end; tells how many hedges there were.
async fn hedges_of_a_stall(stage: &mut Stage, reading: impl Fn(&Stage)) -> u64 {
    let told = Arc::new(Notify::new());
    stage.acts([Act::Later(Vec::new(), Arc::clone(&told), ok(b""))]);
    let before = stage.hedges().issued.get();
    stage.forget();
    reading(stage);
    stage.arrived().await;
    for _ in 0..10 {
        stage.pass(DELAY * 2).await;
    }
    told.notify_one();
    settle().await;
    stage.hedges().issued.get() - before
}

#[tokio::test(start_paused = true)]
async fn without_budget_nothing_is_hedged() {
    let poor = HedgeSettings {
        share: 0.01,
        ..eager()
    };
    let mut stage = Stage::new(1, Some(poor)).await;
    let read = |stage: &Stage| drop(stage.read(&[]));
    assert_eq!(hedges_of_a_stall(&mut stage, read).await, 0);
    while stage.hedges().suppressed.budget.get() == 0 {
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_is_hedged_when_the_budget_has_grown() {
    let poor = HedgeSettings {
        share: 0.01,
        ..eager()
    };
    let mut stage = Stage::new(1, Some(poor)).await;
    stage.acts([Act::Stall(Vec::new())]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.pass(DELAY * 2).await;
    for _ in 0..100 {
        stage
            .read(&[])
            .await
            .unwrap()
            .unwrap()
            .body
            .collect(100)
            .await
            .unwrap();
        stage.arrived().await;
    }
    stage.pass(DELAY * 10).await;
    stage.arrived().await;
    reading.await.unwrap().unwrap();
    assert_eq!(stage.hedges().results.won.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_control_arm_waits() {
    let control = HedgeSettings {
        control_share: 0.5,
        ..eager()
    };
    let mut stage = Stage::new(1, Some(control)).await;
    let read = |stage: &Stage| drop(stage.read(&[]));
    let (mut kept, mut hedged) = (0, 0);
    for _ in 0..40 {
        let before = stage.hedges().suppressed.control.get();
        let sent = hedges_of_a_stall(&mut stage, read).await;
        if stage.hedges().suppressed.control.get() > before {
            assert_eq!(sent, 0);
            kept += 1;
        } else {
            assert_eq!(sent, 1);
            stage.arrived().await;
            hedged += 1;
        }
        // Earns what that cost.
        for _ in 0..5 {
            stage.read(&[]).await.unwrap().unwrap();
            stage.arrived().await;
        }
    }
    assert!(kept > 5 && hedged > 5, "{kept} kept, {hedged} hedged");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_hedged_while_requests_fail() {
    let mut stage = Stage::new(1, Some(eager())).await;
    for read in 0..200 {
        if read % 10 == 0 {
            stage.acts([Act::Say(status(500))]);
        }
        stage.read(&[]).await.unwrap().unwrap();
        stage.arrived().await;
    }
    let read = |stage: &Stage| drop(stage.read(&[]));
    assert_eq!(hedges_of_a_stall(&mut stage, read).await, 0);
    assert!(stage.hedges().suppressed.failures.get() > 0);
}

#[tokio::test(start_paused = true)]
async fn heads_are_hedged_and_listings_are_not() {
    let mut stage = Stage::new(1, Some(eager())).await;
    for _ in 0..50 {
        head_object("bucket", "k").expect(200, &*stage.store).await;
        stage.arrived().await;
        list_v2("bucket").expect(200, &*stage.store).await;
        stage.arrived().await;
    }
    let store = Arc::clone(&stage.store);
    let send = |request: forebay_store::Request| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.call(request).await });
    };
    let listing = |_: &Stage| send(list_v2("bucket").build());
    assert_eq!(hedges_of_a_stall(&mut stage, listing).await, 0);
    let head = |_: &Stage| send(head_object("bucket", "k").build());
    assert_eq!(hedges_of_a_stall(&mut stage, head).await, 1);
}

#[tokio::test(start_paused = true)]
async fn without_hedging_a_slow_read_waits() {
    let mut stage = Stage::new(2, None).await;
    let read = |stage: &Stage| drop(stage.read(&[]));
    assert_eq!(hedges_of_a_stall(&mut stage, read).await, 0);
    assert_eq!(
        stage.origins.iter().map(|o| o.seen().len()).sum::<usize>(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_takes_both_arms_with_it() {
    let mut stage = Stage::new(2, Some(eager())).await;
    stage.acts([Act::Stall(Vec::new()), Act::Stall(Vec::new())]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.pass(DELAY * 2).await;
    stage.arrived().await;
    reading.abort();
    stage.closed().await;
    stage.closed().await;
    stage.assert_idle();
    let results = &stage.hedges().results;
    assert_eq!(
        results.won.get() + results.wasted.get() + results.failed.get(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn no_hedge_is_sent_after_the_deadline() {
    let mut stage = Stage::new(2, Some(eager())).await;
    stage.acts([Act::Stall(Vec::new())]);
    let mut request = get("bucket", "k").build();
    request.caller.deadline = Clock::system().now() + DELAY / 2;
    let store = Arc::clone(&stage.store);
    let reading = tokio::spawn(async move { store.call(request).await });
    stage.arrived().await;
    stage.pass(DELAY * 2).await;
    reading.await.unwrap().unwrap_err();
    assert_eq!(stage.hedges().issued.get(), 0);
}
