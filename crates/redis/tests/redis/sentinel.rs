//! A master that dies, and the replica that sentinels put in its place.

use std::time::Duration;

use forebay_redis::settings::Mode;
use forebay_store::changes::{Changes, Event};

use crate::{eventually, open_counted, servers::Server, slow, value, write};

/// Goal: what was acknowledged with `replicas_min = 1` survives the loss of the master.
/// Method: a master, a replica, three sentinels; writers under load; `kill -9` of the master; after
/// the failover each entry has its last acknowledged value or a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_the_master() {
    if !slow() {
        return;
    }
    let mut master = Server::start(&[]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]);
    let sentinels = [0, 1, 2].map(|_| Server::sentinel(master.port));
    for sentinel in &sentinels {
        eventually("sentinels know each other", async || {
            let told: String = sentinel.command(&["INFO", "sentinel"]).await;
            told.contains("slaves=1,sentinels=3")
        })
        .await;
    }
    eventually("the replica has everything", async || {
        let told: String = master.command(&["INFO", "replication"]).await;
        told.contains("state=online")
    })
    .await;
    let mut settings = master.settings();
    settings.mode = Mode::Sentinel {
        master: "main".to_owned(),
    };
    settings.servers = sentinels.iter().map(Server::address).collect();
    settings.promise.replicas_min = 1;
    let (engine, _) = open_counted(&settings).await.unwrap();
    let mut events = engine.changes().listen();
    while events.recv().await != Some(Event::Verified) {}

    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let index = std::sync::Arc::clone(engine.index());
        writers.spawn(async move {
            let name = format!("writer-{writer}");
            let (mut acknowledged, mut asked) = (0_u64, 0_u64);
            loop {
                asked += 1;
                match write(&index, &name, &asked.to_string()).await {
                    Ok(_) => acknowledged = asked,
                    Err(_) => return (name, acknowledged, asked),
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    master.kill();
    let written = writers.join_all().await;
    assert_eq!(events.recv().await, Some(Event::Unverified));
    eventually("a new master", async || {
        let told: String = replica.command(&["INFO", "replication"]).await;
        told.contains("role:master")
    })
    .await;
    // There is no other replica now, so this gateway asks for none.
    settings.promise.replicas_min = 0;
    let mut after = None;
    eventually("sentinels name it", async || {
        after = open_counted(&settings).await.ok();
        after.is_some()
    })
    .await;
    let (after, _) = after.expect("it was opened");
    eventually("it takes writes", async || {
        write(after.index(), "after", "1").await.is_ok()
    })
    .await;
    for (name, acknowledged, asked) in written {
        let found: u64 = value(after.index(), &name)
            .await
            .expect("there")
            .parse()
            .unwrap();
        assert!(acknowledged > 0, "{name} wrote nothing");
        assert!(
            (acknowledged..=asked).contains(&found),
            "{name}: {acknowledged} {found} {asked}"
        );
    }
    // The gateway that was there before has followed, and hears the others again.
    while events.recv().await != Some(Event::Verified) {}
    assert!(value(engine.index(), "after").await.is_some());
}
