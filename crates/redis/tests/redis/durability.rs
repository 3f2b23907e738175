//! Which servers are used, and how safe what they acknowledge is called.

use forebay_redis::{
    Durability, OpenError, Unfit,
    settings::{Mode, Volatile},
};
use forebay_store::Error;

use crate::{delete, eventually, open, open_counted, servers::Server, value, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_log_is_refused_unless_that_is_allowed() {
    let server = Server::start_with(&["--appendonly", "no"]);
    let mut settings = server.settings();
    let refused = open_counted(&settings).await.err();
    let no_log = |error: &OpenError| {
        matches!(
            error,
            OpenError::Unfit {
                unfit: Unfit::NoLog,
                ..
            }
        )
    };
    assert!(refused.as_ref().is_some_and(no_log), "{refused:?}");
    settings.promise.volatile = Volatile::Allowed;
    let engine = open(&settings).await;
    write(engine.index(), "a", "1").await.unwrap();
    assert_eq!(engine.durability(), Durability::Volatile);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_refused_even_where_volatile_ones_are_allowed() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut settings = server.settings();
    settings.promise.volatile = Volatile::Allowed;
    let refused = open_counted(&settings).await.err();
    let Some(OpenError::Unfit { unfit, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(*unfit, Unfit::Evicts("allkeys-lru".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_its_log_while_it_is_used_is_refused_when_it_is_connected_to_again() {
    let mut server = Server::start_with(&["--appendonly", "yes"]);
    let (engine, metrics) = open_counted(&server.settings()).await.unwrap();
    write(engine.index(), "a", "1").await.unwrap();
    assert_eq!(engine.durability(), Durability::HotLocal);
    let port = server.port.to_string();
    server.kill();
    let lax = Server::start_at(&port, &["--appendonly", "no"]);
    eventually("a refusal", async || metrics.servers_refused.get() > 0).await;
    let refused = write(engine.index(), "a", "2").await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(engine.durability(), Durability::Volatile);
    drop(lax);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_in_another_format_is_refused_and_left_alone() {
    let server = Server::start(&[]);
    let key = "{fb:forebay:0}:format";
    let _: () = server
        .command(&["SET", key, "forebay-redis 1 shards 32"])
        .await;
    let refused = open_counted(&server.settings()).await.err();
    assert!(
        matches!(refused, Some(OpenError::OtherFormat { .. })),
        "{refused:?}"
    );
    let kept: String = server.command(&["GET", key]).await;
    assert_eq!(kept, "forebay-redis 1 shards 32");
    let mut other = server.settings();
    other.prefix = "another".to_owned();
    open(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_alone_is_not_taken_for_a_cluster() {
    let server = Server::start(&[]);
    let mut settings = server.settings();
    settings.mode = Mode::Cluster;
    let refused = open_counted(&settings).await.err();
    assert!(
        matches!(refused, Some(OpenError::NoLayout { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_takes_deletions_and_says_slow_down_to_the_rest() {
    let server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let index = engine.index();
    write(index, "a", "1").await.unwrap();
    let _: () = server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = write(index, "b", "1").await;
    assert!(
        matches!(refused, Err(Error::SlowDown { .. })),
        "{refused:?}"
    );
    assert_eq!(value(index, "b").await, None);
    assert_eq!(value(index, "a").await.as_deref(), Some("1"));
    delete(index, "a").await.unwrap();
    assert_eq!(value(index, "a").await, None);
    let _: () = server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    write(index, "b", "2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_enough_replicas_a_write_is_of_unknown_outcome() {
    let server = Server::start(&[]);
    let mut settings = server.settings();
    settings.promise.replicas_min = 1;
    settings.timeouts.replicate = std::time::Duration::from_millis(50);
    // The first write says what the store is.
    let refused = open_counted(&settings).await.err();
    let unknown =
        |error: &OpenError| matches!(error, OpenError::First(Error::Indeterminate { .. }));
    assert!(refused.as_ref().is_some_and(unknown), "{refused:?}");
    // It is there now, so opening needs no write.
    let (engine, metrics) = open_counted(&settings).await.unwrap();
    let unknown = write(engine.index(), "a", "1").await;
    assert!(
        matches!(unknown, Err(Error::Indeterminate { .. })),
        "{unknown:?}"
    );
    assert_eq!(value(engine.index(), "a").await.as_deref(), Some("1"));
    assert_eq!(metrics.failures.replicas.get(), 1);

    let port = server.port.to_string();
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {port}")]);
    let acknowledged = async || write(engine.index(), "a", "2").await.is_ok();
    eventually("a replica", acknowledged).await;
    assert_eq!(engine.durability(), Durability::HotReplicated);
    drop(replica);
}
