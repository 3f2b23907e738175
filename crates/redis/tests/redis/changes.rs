//! What gateways tell each other, and what they are told when they can't hear each other.

use std::time::Duration;

use forebay_redis::RedisSettings;
use forebay_s3::bucket::BucketName;
use forebay_store::changes::{Changed, Changes, Event};
use tokio::{sync::mpsc::Receiver, time::Instant};

use crate::{PATIENCE, open, open_counted, proxy::Proxy, servers::Server};

fn object(key: &str) -> Changed {
    Changed::Object {
        bucket: BucketName::parse("photos").unwrap(),
        key: key.to_owned(),
    }
}

async fn next(events: &mut Receiver<Event>) -> Event {
    let event = tokio::time::timeout(PATIENCE, events.recv()).await;
    event.expect("an event").expect("the store is there")
}

/// Reads until a listener is told that it hears everything.
async fn verified(events: &mut Receiver<Event>) {
    while next(events).await != Event::Verified {}
}

fn through(proxy: &Proxy) -> RedisSettings {
    let mut settings = RedisSettings::single("127.0.0.1", proxy.port);
    settings.timeouts.ping = Duration::from_millis(50);
    settings.timeouts.silence_max = Duration::from_millis(200);
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_gateway_tells_all_others_hear_in_order_and_it_does_not() {
    let server = Server::start(&[]);
    let (first, second) = (
        open(&server.settings()).await,
        open(&server.settings()).await,
    );
    let mut own = first.changes().listen();
    let mut others = [second.changes().listen(), second.changes().listen()];
    assert_eq!(next(&mut own).await, Event::Unverified);
    verified(&mut own).await;
    for events in &mut others {
        verified(events).await;
    }
    let prefix = Changed::Prefix {
        bucket: BucketName::parse("photos").unwrap(),
        prefix: "2026/".to_owned(),
    };
    let told = [object("a"), prefix, object("b")];
    for changed in &told {
        first.changes().tell(changed.clone()).await.unwrap();
    }
    for events in &mut others {
        for changed in &told {
            assert_eq!(next(events).await, Event::Changed(changed.clone()));
        }
    }
    second.changes().tell(object("c")).await.unwrap();
    assert_eq!(
        next(&mut own).await,
        Event::Changed(object("c")),
        "nothing of its own before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_cut_off_is_told_and_told_again_when_it_hears() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let (engine, metrics) = open_counted(&through(&proxy)).await.unwrap();
    let mut events = engine.changes().listen();
    verified(&mut events).await;
    proxy.cut_all();
    assert_eq!(next(&mut events).await, Event::Unverified);
    assert_eq!(next(&mut events).await, Event::Verified);
    let teller = open(&server.settings()).await;
    teller.changes().tell(object("a")).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Changed(object("a")));
    assert_eq!(metrics.changes_unverified.get(), 1);
}

/// Goal: a connection that is dead without anybody saying so is noticed within the stated time.
/// Method: a relay holds all bytes, as a broken network does; the listener is told before a change
/// that it missed is as old as `ping` and `silence_max` together, with patience for a slow machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_told_within_the_stated_time() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let settings = through(&proxy);
    let stated = settings.timeouts.ping + settings.timeouts.silence_max;
    let engine = open(&settings).await;
    let teller = open(&server.settings()).await;
    let mut events = engine.changes().listen();
    verified(&mut events).await;
    proxy.hold();
    let begun = Instant::now();
    teller.changes().tell(object("missed")).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Unverified);
    let took = begun.elapsed();
    // Four times as long is a machine that does not get on, not a rule that is broken.
    assert!(
        took < stated * 4,
        "told after {took:?}, stated are {stated:?}"
    );
    proxy.let_go();
    verified(&mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_does_not_read_is_told_that_it_missed_some() {
    let server = Server::start(&[]);
    let mut settings = server.settings();
    settings.timeouts.ping = Duration::from_millis(50);
    let engine = open(&settings).await;
    let teller = open(&server.settings()).await;
    let (mut lazy, mut eager) = (engine.changes().listen(), engine.changes().listen());
    verified(&mut lazy).await;
    verified(&mut eager).await;
    let count = 5000;
    let reader = tokio::spawn(async move {
        for _ in 0..count {
            assert!(matches!(next(&mut eager).await, Event::Changed(_)));
        }
    });
    for number in 0..count {
        teller
            .changes()
            .tell(object(&number.to_string()))
            .await
            .unwrap();
    }
    reader.await.unwrap();
    let mut heard = 0;
    loop {
        match next(&mut lazy).await {
            Event::Changed(changed) => {
                assert_eq!(
                    changed,
                    object(&heard.to_string()),
                    "in order, up to the end"
                );
                heard += 1;
            }
            Event::Unverified => break,
            Event::Verified => panic!("it was verified already"),
        }
    }
    assert!(heard > 1000 && heard < count, "{heard}");
    assert_eq!(next(&mut lazy).await, Event::Verified);
    teller.changes().tell(object("after")).await.unwrap();
    assert_eq!(next(&mut lazy).await, Event::Changed(object("after")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_understands_counts_as_a_change_that_was_missed() {
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let mut events = engine.changes().listen();
    verified(&mut events).await;
    let heard: i64 = server
        .command(&["SPUBLISH", "{fb:forebay:0}:changes", "2\nnews"])
        .await;
    assert_eq!(heard, 1);
    assert_eq!(next(&mut events).await, Event::Unverified);
    assert_eq!(next(&mut events).await, Event::Verified);
}
