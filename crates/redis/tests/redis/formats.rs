//! What version 1 kept in Redis is read by this one: `tests/fixtures/v1/commands.aof` is the log of
//! a server to which [`fill`] was done.
//!
//! `FOREBAY_REDIS_FIXTURE=FOLDER` makes a new log there, for the next version.

use bytes::Bytes;
use forebay_native::{
    blobs::{BlobId, Blobs},
    index::{Batch, Change, Index, Payload, Route, Want},
    leases::Leases,
};
use forebay_redis::RedisEngine;

use crate::{open, put, route, servers::Server, value, write};

/// Where a server keeps the commands since its start, in its folder.
const LOG: &str = "appendonlydir/appendonly.aof.1.incr.aof";

/// One of everything that is kept.
async fn fill(engine: &RedisEngine) -> BlobId {
    let index = engine.index();
    for name in ["object/a", "object/b", "object/gone"] {
        write(index, name, "kept by version 1").await.unwrap();
    }
    crate::delete(index, "object/gone").await.unwrap();
    let count = Change::Count {
        counter: "bytes".into(),
        by: 1_234,
    };
    let bucket = Batch {
        expects: Vec::new(),
        changes: vec![put("bucket", "in every place", Payload::None)],
    };
    index.apply(&Route::Every, bucket).await.unwrap();
    let counted = Batch {
        expects: Vec::new(),
        changes: vec![count],
    };
    index.apply(&route("object/a"), counted).await.unwrap();
    let mut writer = engine.blobs().create(&route("blob")).await.unwrap();
    writer.write(vec![b'v'; 1_000].into()).await.unwrap();
    let blob = writer.finish().await.unwrap();
    let named = BlobId(blob.0.clone());
    write(index, "blob", &blob.0).await.unwrap();
    let holder = Bytes::from_static(b"gateway");
    let day = std::time::Duration::from_hours(24);
    engine
        .leases()
        .acquire(&route("lease"), &holder, day)
        .await
        .unwrap()
        .unwrap();
    named
}

async fn check(engine: &RedisEngine) {
    let index = engine.index();
    assert_eq!(
        value(index, "object/a").await.as_deref(),
        Some("kept by version 1")
    );
    assert_eq!(value(index, "object/gone").await, None);
    let names = Bytes::from("object/")..Bytes::from("object0");
    let found = index.range(names, 10).await.unwrap();
    let found: Vec<&[u8]> = found.iter().map(|entry| entry.name.as_ref()).collect();
    assert_eq!(found, [&b"object/a"[..], b"object/b"]);
    let bucket = index
        .get(&Route::Every, b"bucket", Want::Value)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(bucket.value, "in every place");
    for number in 0..100 {
        let expecting = Batch {
            expects: vec![("bucket".into(), forebay_native::index::Expect::Present)],
            changes: Vec::new(),
        };
        let applied = index
            .apply(&route(&number.to_string()), expecting)
            .await
            .unwrap();
        assert!(
            matches!(applied, forebay_native::index::Applied::Done(_)),
            "{number}"
        );
    }
    assert_eq!(index.counter(b"bytes").await.unwrap(), 1_234);
    let blob = BlobId(value(index, "blob").await.unwrap());
    let body = engine
        .blobs()
        .read(&route("blob"), &blob, 0..1_000)
        .await
        .unwrap();
    assert_eq!(body.collect(1_000).await.unwrap().0, vec![b'v'; 1_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_version_1_kept_is_read() {
    let mut server = Server::start(&[]);
    if let Some(folder) = std::env::var_os("FOREBAY_REDIS_FIXTURE") {
        let engine = open(&server.settings()).await;
        fill(&engine).await;
        std::fs::copy(
            server.folder().join(LOG),
            std::path::Path::new(&folder).join("commands.aof"),
        )
        .unwrap();
        return;
    }
    // Read at a start, as the server's own log is: a server that is sent these commands removes at
    // once what was to live until a time that has passed, before the command that lets it stay.
    server.kill();
    let log = include_bytes!("../fixtures/v1/commands.aof");
    std::fs::write(server.folder().join(LOG), log).unwrap();
    server.restart();
    check(&open(&server.settings()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_now_is_read() {
    let server = Server::start(&[]);
    fill(&open(&server.settings()).await).await;
    check(&open(&server.settings()).await).await;
}
