//! A Redis store against real servers, which each test starts on free loopback ports, in folders of
//! their own, and stops by their handles.
//!
//! What takes longer than some seconds runs only with `FOREBAY_REDIS_SLOW=1` (`make test-all`).
#![allow(
    clippy::unwrap_used,
    reason = "all of it is tests, functions that are none too"
)]

mod changes;
mod cluster;
mod contracts;
mod crash;
mod durability;
mod faults;
mod formats;
mod proxy;
mod sentinel;
mod servers;
mod tls;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Change, Entry, Index, Payload, Route, Sequence, Want};
use forebay_redis::{OpenError, RedisEngine, RedisIndex, RedisSettings};
use forebay_store::{Clock, Error};
use forebay_telemetry::redis::RedisMetrics;
use tokio::runtime::Handle;

/// Longest that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a store, and gives its counters too.
async fn open_counted(
    settings: &RedisSettings,
) -> Result<(RedisEngine, Arc<RedisMetrics>), OpenError> {
    let metrics = Arc::new(RedisMetrics::new());
    let engine = RedisEngine::open(settings, Clock::system(), &metrics, Handle::current()).await?;
    Ok((engine, metrics))
}

async fn open(settings: &RedisSettings) -> RedisEngine {
    open_counted(settings).await.expect("a store").0
}

fn route(name: &str) -> Route {
    Route::One(Bytes::copy_from_slice(name.as_bytes()))
}

fn put(name: &str, value: &str, payload: Payload) -> Change {
    Change::Put {
        name: Bytes::copy_from_slice(name.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        payload,
    }
}

/// Writes an entry whose payload is its value, in the route of its name.
async fn write(index: &RedisIndex, name: &str, value: &str) -> Result<Sequence, Error> {
    let payload = Payload::Inline(Bytes::copy_from_slice(value.as_bytes()));
    let batch = Batch {
        expects: Vec::new(),
        changes: vec![put(name, value, payload)],
    };
    match index.apply(&route(name), batch).await? {
        Applied::Done(sequence) => Ok(sequence),
        Applied::Unexpected { .. } => panic!("nothing was expected"),
    }
}

async fn delete(index: &RedisIndex, name: &str) -> Result<Applied, Error> {
    let name_bytes = Bytes::copy_from_slice(name.as_bytes());
    let batch = Batch {
        expects: Vec::new(),
        changes: vec![Change::Delete { name: name_bytes }],
    };
    index.apply(&route(name), batch).await
}

async fn entry(index: &RedisIndex, name: &str) -> Result<Option<Entry>, Error> {
    index
        .get(&route(name), name.as_bytes(), Want::Payload)
        .await
}

/// The value of an entry, whose payload must be the same.
async fn value(index: &RedisIndex, name: &str) -> Option<String> {
    let entry = entry(index, name).await.expect("an answer")?;
    assert_eq!(entry.payload.as_ref(), Some(&entry.value));
    Some(String::from_utf8(entry.value.to_vec()).expect("text"))
}

/// Tries until it comes true.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain: {what}");
}

fn slow() -> bool {
    std::env::var_os("FOREBAY_REDIS_SLOW").is_some()
}
