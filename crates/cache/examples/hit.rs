//! What a hit costs inside the layer: one core, one object or many, no sockets.
//!
//! `cargo run --release -p forebay-cache --example hit`

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program that measures and prints"
)]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_cache::{CacheLayer, CacheSettings};
use forebay_native::MemoryStore;
use forebay_store::{Budget, Clock, Request, Store, contract::requests};
use forebay_telemetry::cache::CacheMetrics;

const ROUNDS: usize = 200_000;
const BATCH: usize = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!(
        "{:>9} {:>8} {:>10} {:>10}",
        "bytes", "objects", "ns/GET", "ns/HEAD"
    );
    for (size_bytes, object_count) in [
        (1 << 10, 1),
        (1 << 10, 2500),
        (100 << 10, 1),
        (1 << 20, 1),
        (1 << 20, 100),
        (8 << 20, 1),
    ] {
        let store = filled(size_bytes, object_count).await;
        let get = price(&store, object_count, |key| requests::get("bucket", key)).await;
        let head = price(&store, object_count, |key| requests::head("bucket", key)).await;
        println!("{size_bytes:>9} {object_count:>8} {get:>10.0} {head:>10.0}");
    }
}

async fn filled(size_bytes: usize, object_count: usize) -> Arc<dyn Store> {
    let origin = Arc::new(MemoryStore::new(Clock::system()));
    requests::create_bucket("bucket")
        .expect(200, &*origin)
        .await;
    let settings = CacheSettings {
        capacity_bytes: 1 << 30,
        ..CacheSettings::default()
    };
    let budget = Budget::new(64 << 20, Duration::from_secs(1));
    let metrics = CacheMetrics::default();
    let inner = Arc::clone(&origin) as Arc<dyn Store>;
    let cache = CacheLayer::new(inner, settings, Clock::system(), budget, metrics);
    for index in 0..object_count {
        let key = format!("some/prefix/object-{index}");
        requests::put("bucket", &key)
            .header("content-type", "image/jpeg")
            .header("x-amz-meta-origin", "camera-7")
            .body(vec![7; size_bytes])
            .expect(200, &*origin)
            .await;
        let is_hit = |answer: requests::Answer| answer.cache.is_some_and(|c| c.contains("hit"));
        while !is_hit(requests::get("bucket", &key).expect(200, &cache).await) {
            tokio::task::yield_now().await;
        }
    }
    Arc::new(cache)
}

/// Nanoseconds of one call; making the requests is not counted, dropping the answers is.
async fn price(
    store: &Arc<dyn Store>,
    object_count: usize,
    make: impl Fn(&str) -> requests::Builder,
) -> f64 {
    let mut elapsed = Duration::ZERO;
    let mut next = 0_usize;
    for _ in 0..ROUNDS / BATCH {
        let batch: Vec<Request> = (0..BATCH)
            .map(|_| {
                next = (next + 7919) % object_count;
                make(&format!("some/prefix/object-{next}"))
                    .header("user-agent", "aws-sdk-rust/1.0")
                    .header("accept", "*/*")
                    .header("amz-sdk-request", "attempt=1; max=3")
                    .build()
            })
            .collect();
        let started = Instant::now();
        for request in batch {
            black_box(store.call(request).await.is_ok());
        }
        elapsed += started.elapsed();
    }
    elapsed.as_secs_f64() * 1e9 / ROUNDS as f64
}
