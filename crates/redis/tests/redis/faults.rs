//! Connections that are cut, servers that hang, scripts and chunks that are not there.

use std::time::Duration;

use bytes::Bytes;
use forebay_native::{blobs::Blobs, leases::Leases};
use forebay_redis::RedisSettings;
use forebay_store::Error;

use crate::{
    entry, eventually, open, open_counted,
    proxy::{Cut, Proxy},
    route,
    servers::Server,
    value, write,
};

/// Settings for a relay: quick to give up.
fn through(proxy: &Proxy) -> RedisSettings {
    let mut settings = RedisSettings::single("127.0.0.1", proxy.port);
    settings.timeouts.command = Duration::from_millis(300);
    settings.timeouts.replicate = Duration::from_millis(100);
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_of_unknown_outcome_and_is_not_sent_again() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let engine = open(&through(&proxy)).await;
    let index = engine.index();
    write(index, "counted", "1").await.unwrap();
    for (cut, happened) in [(Cut::Answer, true), (Cut::Request, false)] {
        let name = format!("name-{cut:?}");
        proxy.cut(&name, cut);
        let written = write(index, &name, "v").await;
        assert!(
            matches!(written, Err(Error::Indeterminate { .. })),
            "{cut:?}: {written:?}"
        );
        assert_eq!(value(index, &name).await.is_some(), happened, "{cut:?}");
    }
    // The connections come back by themselves.
    write(index, "counted", "2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_answer_is_lost_is_asked_again() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let (engine, metrics) = open_counted(&through(&proxy)).await.unwrap();
    write(engine.index(), "name", "v").await.unwrap();
    for cut in [Cut::Answer, Cut::Request] {
        proxy.cut("name", cut);
        assert_eq!(
            value(engine.index(), "name").await.as_deref(),
            Some("v"),
            "{cut:?}"
        );
    }
    assert_eq!(metrics.failures.unanswered.get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_not_sent_is_unavailable_and_works_once_the_server_is_back() {
    let mut server = Server::start(&[]);
    let (engine, metrics) = open_counted(&server.settings()).await.unwrap();
    let index = engine.index();
    write(index, "a", "1").await.unwrap();
    server.kill();
    eventually("connections end", async || metrics.connections.get() == 0).await;
    let refused = write(index, "a", "2").await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    let refused = entry(index, "a").await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    server.restart();
    eventually("it is back", async || entry(index, "a").await.is_ok()).await;
    assert_eq!(value(index, "a").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_a_timeout_and_its_connections() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let (engine, metrics) = open_counted(&through(&proxy)).await.unwrap();
    let index = engine.index();
    write(index, "a", "1").await.unwrap();
    proxy.hold();
    let unknown = write(index, "a", "2").await;
    assert!(
        matches!(unknown, Err(Error::Indeterminate { .. })),
        "{unknown:?}"
    );
    eventually("it is given up", async || {
        metrics.connections_lost.get() > 0
    })
    .await;
    proxy.let_go();
    eventually("it is back", async || write(index, "a", "3").await.is_ok()).await;
    assert_eq!(value(index, "a").await.as_deref(), Some("3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_commands_wait_than_may_be() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port).await;
    let mut settings = through(&proxy);
    settings.pool.connections = 1;
    settings.pool.pending_max = 4;
    let (engine, metrics) = open_counted(&settings).await.unwrap();
    write(engine.index(), "a", "1").await.unwrap();
    proxy.hold();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..10 {
        let index = std::sync::Arc::clone(engine.index());
        writers.spawn(async move { write(&index, &format!("w{number}"), "v").await });
    }
    let busy = |result: &Result<_, Error>| matches!(result, Err(Error::SlowDown { .. }));
    let refused = writers
        .join_all()
        .await
        .iter()
        .filter(|result| busy(result))
        .count();
    assert_eq!((refused, metrics.failures.busy.get()), (6, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_scripts_learns_them_again() {
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    write(engine.index(), "a", "1").await.unwrap();
    let holder = Bytes::from_static(b"holder");
    let minute = Duration::from_mins(1);
    let lease = engine
        .leases()
        .acquire(&route("a"), &holder, minute)
        .await
        .unwrap()
        .unwrap();
    let _: () = server.command(&["SCRIPT", "FLUSH"]).await;
    write(engine.index(), "a", "2").await.unwrap();
    assert!(engine.leases().renew(&lease, minute).await.unwrap());
    assert_eq!(value(engine.index(), "a").await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_and_never_given() {
    let server = Server::start(&[]);
    let (engine, metrics) = open_counted(&server.settings()).await.unwrap();
    write(engine.index(), "name", "value").await.unwrap();
    let keys: Vec<String> = server.command(&["KEYS", "*:payload:name"]).await;
    let _: i64 = server.command(&["SETRANGE", &keys[0], "2", "X"]).await;
    let found = entry(engine.index(), "name").await;
    assert!(matches!(found, Err(Error::Internal { .. })), "{found:?}");

    let mut writer = engine.blobs().create(&route("b")).await.unwrap();
    writer.write(vec![7; 700_000].into()).await.unwrap();
    let blob = writer.finish().await.unwrap();
    let keys: Vec<String> = server.command(&["KEYS", "*:chunk:*:1"]).await;
    let _: i64 = server.command(&["SETRANGE", &keys[0], "5000", "X"]).await;
    let body = engine
        .blobs()
        .read(&route("b"), &blob, 0..700_000)
        .await
        .unwrap();
    assert!(body.collect(700_000).await.is_err());
    let body = engine
        .blobs()
        .read(&route("b"), &blob, 0..200_000)
        .await
        .unwrap();
    assert_eq!(body.collect(200_000).await.unwrap().0, vec![7; 200_000]);
    assert!(metrics.failures.damaged.get() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_without_a_finished_blob_go_by_themselves_and_finished_ones_stay() {
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let mut dropped = engine.blobs().create(&route("b")).await.unwrap();
    dropped.write(vec![1; 600_000].into()).await.unwrap();
    drop(dropped);
    let keys: Vec<String> = server.command(&["KEYS", "*:chunk:*"]).await;
    assert_eq!(keys.len(), 2, "whole chunks");
    for key in &keys {
        let seconds: i64 = server.command(&["TTL", key]).await;
        assert!((1..=3600).contains(&seconds), "{key}: {seconds}");
    }
    let _: () = server.command(&["FLUSHALL"]).await;
    let mut writer = engine.blobs().create(&route("b")).await.unwrap();
    writer.write(vec![1; 600_000].into()).await.unwrap();
    let blob = writer.finish().await.unwrap();
    let keys: Vec<String> = server.command(&["KEYS", "*:chunk:*"]).await;
    assert_eq!(keys.len(), 3);
    for key in &keys {
        let seconds: i64 = server.command(&["TTL", key]).await;
        assert_eq!(seconds, -1, "{key} stays");
    }
    engine.blobs().remove(&route("b"), &blob).await.unwrap();
    for key in &keys {
        let seconds: i64 = server.command(&["TTL", key]).await;
        assert!((1..=300).contains(&seconds), "{key}: {seconds}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_nobody_names_are_swept_and_named_and_young_ones_stay() {
    let server = Server::start(&[]);
    let wall = std::time::UNIX_EPOCH + Duration::from_hours(500_000);
    let clock = forebay_store::Clock::manual(wall);
    let metrics = std::sync::Arc::new(forebay_telemetry::redis::RedisMetrics::new());
    let runtime = tokio::runtime::Handle::current();
    let engine =
        forebay_redis::RedisEngine::open(&server.settings(), clock.clone(), &metrics, runtime)
            .await
            .unwrap();
    let blob = async |name: &str| {
        let mut writer = engine.blobs().create(&route(name)).await.unwrap();
        writer.write(vec![1; 300_000].into()).await.unwrap();
        writer.finish().await.unwrap()
    };
    let (named, unnamed) = (blob("named").await, blob("unnamed").await);
    clock.advance(Duration::from_mins(61));
    let young = blob("young").await;
    let mut sweep = engine.blobs().sweep().await.unwrap();
    sweep.keep([&named]);
    assert_eq!(sweep.finish().await.unwrap(), 1);
    let read = async |name: &str, blob| match engine.blobs().read(&route(name), blob, 0..9).await {
        Ok(body) => body.collect(9).await.is_ok(),
        Err(_) => false,
    };
    assert!(read("named", &named).await);
    assert!(read("young", &young).await);
    assert!(!read("unnamed", &unnamed).await);
    assert_eq!(metrics.blobs_swept.get(), 1);
}

/// Goal: a number is never given twice, also where a failover has lost the last changes: whoever
/// holds an old number must not take a new entry for the old one.
/// Method: the keys that hold the last numbers are deleted, as if they had never been replicated.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_not_given_twice_where_the_last_ones_were_lost() {
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let (holder, time) = (Bytes::from_static(b"holder"), Duration::from_mins(1));
    let mut last = (0, 0);
    for _ in 0..3 {
        let sequence = write(engine.index(), "a", "1").await.unwrap();
        let lease = engine
            .leases()
            .acquire(&route("a"), &holder, time)
            .await
            .unwrap()
            .unwrap();
        assert!(
            sequence.0 > last.0 && lease.fence.0 > last.1,
            "after {last:?}"
        );
        last = (sequence.0, lease.fence.0);
        for kind in ["sequence", "fence"] {
            let keys: Vec<String> = server.command(&["KEYS", &format!("*:{kind}")]).await;
            let deleted: i64 = server.command(&["DEL", &keys[0]]).await;
            assert_eq!((keys.len(), deleted), (1, 1), "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_demoted_is_unavailable_until_it_is_a_master_again() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let engine = open(&server.settings()).await;
    write(engine.index(), "a", "1").await.unwrap();
    let port = other.port.to_string();
    let _: () = server.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    let refused = write(engine.index(), "a", "2").await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    let _: () = server.command(&["REPLICAOF", "NO", "ONE"]).await;
    eventually("it takes writes", async || {
        write(engine.index(), "a", "3").await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_payload_is_there_with_its_entry_and_leaves_nothing_else() {
    use forebay_native::index::{Applied, Batch, Expect, Index, Payload};
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let text = |letter: &str| letter.repeat(100_000);
    write(engine.index(), "name", &text("a")[..50_000])
        .await
        .unwrap();
    let large = |letter| {
        let small = crate::put("name/small", "v", Payload::Inline("small".into()));
        let large = crate::put("name", "v", Payload::Inline(text(letter).into()));
        Batch {
            expects: vec![("name".into(), Expect::Present)],
            changes: vec![small, large],
        }
    };
    let applied = engine
        .index()
        .apply(&route("name"), large("b"))
        .await
        .unwrap();
    assert!(matches!(applied, Applied::Done(_)));
    let mut refused = large("c");
    refused.expects.push(("name".into(), Expect::Absent));
    let applied = engine.index().apply(&route("name"), refused).await.unwrap();
    assert_eq!(applied, Applied::Unexpected { expect_index: 1 });
    let there = entry(engine.index(), "name").await.unwrap().unwrap();
    assert_eq!(there.payload.unwrap(), text("b"));
    let keys: Vec<String> = server.command(&["KEYS", "*:payload:name"]).await;
    let seconds: i64 = server.command(&["TTL", &keys[0]]).await;
    assert_eq!(seconds, -1, "it stays");
    let keys: Vec<String> = server.command(&["KEYS", "*:staged:*"]).await;
    assert_eq!(keys, [""; 0]);
}
