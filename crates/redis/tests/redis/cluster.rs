//! Slots that move while they are used.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use forebay_native::index::{Batch, Change, Index, Payload, Want};
use forebay_store::{
    Error,
    changes::{Changes, Event},
};

use crate::{
    eventually, open, open_counted, put,
    servers::{Cluster, Server},
    value, write,
};

/// Moves every slot in which shards lie from one master to another, a few keys at a time.
async fn moved(cluster: &Cluster, from: usize, to: usize) {
    let (source, target) = (&cluster.servers[from], &cluster.servers[to]);
    let source_id: String = source.command(&["CLUSTER", "MYID"]).await;
    let target_id: String = target.command(&["CLUSTER", "MYID"]).await;
    for shard in 0..64 {
        let tag = format!("{{fb:forebay:{shard}}}");
        let slot: i64 = source.command(&["CLUSTER", "KEYSLOT", &tag]).await;
        let slot = slot.to_string();
        let keys: Vec<String> = source
            .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"])
            .await;
        if keys.is_empty() {
            continue;
        }
        let _: () = target
            .command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])
            .await;
        let _: () = source
            .command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id])
            .await;
        loop {
            let keys: Vec<String> = source
                .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])
                .await;
            if keys.is_empty() {
                break;
            }
            let port = target.port.to_string();
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            let _: String = source.command(&migrate).await;
        }
        for server in [target, source] {
            let _: () = server
                .command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id])
                .await;
        }
    }
}

/// Goal: slots move from one master to another under load, and nothing is lost or done twice.
/// Method: writers count in entries of their own by reading and writing; each acknowledged value is
/// the last that is read. Scripts meet `ASK` and `TRYAGAIN` while keys of a shard are on both
/// sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_stay_whole_while_their_slots_move() {
    let cluster = Cluster::start().await;
    let mut settings = cluster.settings();
    settings.timeouts.retry = crate::PATIENCE;
    let (engine, metrics) = open_counted(&settings).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (index, stop) = (Arc::clone(engine.index()), Arc::clone(&stop));
        writers.spawn(async move {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                for key in 0..8 {
                    let name = format!("w{writer}/k{key}");
                    write(&index, &name, &(last + 1).to_string())
                        .await
                        .expect("a write");
                    let found = value(&index, &name).await;
                    assert_eq!(found, Some((last + 1).to_string()), "{name}");
                }
                last += 1;
            }
            (writer, last)
        });
    }
    moved(&cluster, 0, 1).await;
    moved(&cluster, 1, 2).await;
    stop.store(true, Ordering::Relaxed);
    for (writer, last) in writers.join_all().await {
        for key in 0..8 {
            let found = value(engine.index(), &format!("w{writer}/k{key}")).await;
            assert_eq!(found, Some(last.to_string()), "writer {writer}");
        }
    }
    assert!(metrics.redirects.get() > 0, "nothing was sent on");
    // Another gateway finds everything at once.
    let other = open(&cluster.settings()).await;
    assert!(value(other.index(), "w0/k0").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_follow_the_channel_to_another_server() {
    let cluster = Cluster::start().await;
    let (first, second) = (
        open(&cluster.settings()).await,
        open(&cluster.settings()).await,
    );
    let mut events = second.changes().listen();
    while events.recv().await != Some(Event::Verified) {}
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        moved(&cluster, from, to).await;
    }
    let bucket = forebay_s3::bucket::BucketName::parse("photos").unwrap();
    let changed = forebay_store::changes::Changed::Object {
        bucket,
        key: "a".to_owned(),
    };
    eventually("it is heard where it is now", async || {
        first.changes().tell(changed.clone()).await.expect("told");
        let mut last = None;
        while let Ok(event) = events.try_recv() {
            last = Some(event);
        }
        last == Some(Event::Changed(changed.clone()))
    })
    .await;
}

/// Goal: a replica takes its master's place under load, and nothing is lost or done twice.
/// Method: a failover by hand, which loses nothing by itself; each acknowledged value is the last
/// that is read, and no write is of unknown outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_stay_whole_while_a_replica_takes_over() {
    let cluster = Cluster::start().await;
    let replica = cluster.replica(0).await;
    let mut settings = cluster.settings();
    settings.timeouts.retry = crate::PATIENCE;
    let engine = open(&settings).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (index, stop) = (Arc::clone(engine.index()), Arc::clone(&stop));
        writers.spawn(async move {
            let (name, mut last) = (format!("w{writer}"), 0);
            while !stop.load(Ordering::Relaxed) {
                last += 1;
                write(&index, &name, &last.to_string())
                    .await
                    .expect("a write");
                assert_eq!(value(&index, &name).await, Some(last.to_string()), "{name}");
            }
        });
    }
    let _: () = replica.command(&["CLUSTER", "FAILOVER"]).await;
    for (server, role) in [
        (&replica, "role:master"),
        (&cluster.servers[0], "role:slave"),
    ] {
        eventually("a failover", async || {
            let told: String = server.command(&["INFO", "replication"]).await;
            told.contains(role)
        })
        .await;
    }
    // Some more rounds with the new master.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
}

/// Goal: while the keys of a shard are on two servers, reads find what is on either side, and
/// batches are refused whole.
/// Method: the payload of an entry is moved, and the rest of its shard not yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_half_moved_is_read_on_both_sides_and_changed_on_none() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.settings()).await;
    let index = engine.index();
    let route = crate::route("half");
    let batch = |changes: Vec<Change>| Batch {
        expects: Vec::new(),
        changes,
    };
    let both = ["half", "other"].map(|name| put(name, "1", Payload::Inline("1".into())));
    index.apply(&route, batch(both.into())).await.unwrap();

    let mut from = 0;
    while keys_of(&cluster.servers[from], "half").await.is_empty() {
        from += 1;
    }
    let (source, target) = (&cluster.servers[from], &cluster.servers[(from + 1) % 3]);
    let key = keys_of(source, "half").await.remove(0);
    let slot: i64 = source.command(&["CLUSTER", "KEYSLOT", &key]).await;
    let slot = slot.to_string();
    let (source_id, target_id): (String, String) = (
        source.command(&["CLUSTER", "MYID"]).await,
        target.command(&["CLUSTER", "MYID"]).await,
    );
    let _: () = target
        .command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])
        .await;
    let _: () = source
        .command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id])
        .await;
    let port = target.port.to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
    let _: String = source.command(&migrate).await;

    let read = async |name: &str| {
        let entry = index
            .get(&route, name.as_bytes(), Want::Payload)
            .await
            .unwrap();
        entry.map(|entry| (entry.value, entry.payload.unwrap()))
    };
    let kept = Some(("1".into(), "1".into()));
    assert_eq!(
        [read("half").await, read("other").await],
        [kept.clone(), kept.clone()]
    );
    let change = batch(vec![
        Change::Delete {
            name: "other".into(),
        },
        put("new", "2", Payload::Inline("2".into())),
    ]);
    let refused = index.apply(&route, change.clone()).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!([read("other").await, read("new").await], [kept, None]);

    moved(&cluster, from, (from + 1) % 3).await;
    eventually("the slot has moved", async || {
        index.apply(&route, change.clone()).await.is_ok()
    })
    .await;
    assert_eq!(
        [read("other").await, read("new").await],
        [None, Some(("2".into(), "2".into()))]
    );
}

async fn keys_of(server: &Server, name: &str) -> Vec<String> {
    server
        .command(&["KEYS", &format!("*:payload:{name}")])
        .await
}
