//! What a miss costs inside the layer: objects that come once, through a cache too small for them,
//! against the store alone. No sockets; processor time of all threads.
//!
//! `cargo run --release -p forebay-cache --example miss [BYTES]`

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program that measures and prints"
)]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cache::{CacheLayer, CacheSettings};
use forebay_store::{Body, Budget, Clock, Error, Request, Response, Store, contract::requests};
use forebay_telemetry::cache::CacheMetrics;
use http::{HeaderName, HeaderValue, StatusCode, header};

/// Small beside what passes through it, as the memory is in front of a large set.
const CAPACITY_BYTES: u64 = 8 << 20;
/// What an HTTP client reads at once.
const PIECE_BYTES: usize = 32 << 10;
/// Objects asked for before those are waited for that are still being stored: few enough that all
/// of them find room.
const BATCH: usize = 4;
const RUNS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("microseconds of processor time for a GET; least and most of {RUNS} runs");
    println!(
        "{:>9} {:>17} {:>17} {:>7}",
        "bytes", "store alone", "with the cache", "more"
    );
    let only = std::env::args().nth(1).and_then(|text| text.parse().ok());
    for (size_bytes, round_count) in [(4 << 10, 100 << 10), (64 << 10, 24 << 10), (1 << 20, 2048)] {
        if only.is_some_and(|only: usize| only != size_bytes) {
            continue;
        }
        let alone: Arc<dyn Store> = Arc::new(Origin::new(size_bytes));
        let metrics = CacheMetrics::default();
        let cached = cached(&alone, metrics.clone());
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for run in 0..RUNS {
            without.push(price(&alone, run, round_count, || true).await);
            let all_done =
                || metrics.fills.get() == metrics.stored.get() + metrics.not_stored.get();
            with.push(price(&cached, run, round_count, all_done).await);
        }
        assert_eq!(metrics.stored.get(), (RUNS * round_count) as u64);
        without.sort_by(f64::total_cmp);
        with.sort_by(f64::total_cmp);
        let more = with[RUNS / 2] - without[RUNS / 2];
        let spread = |all: &[f64]| format!("{:.2} to {:.2}", all[0], all[RUNS - 1]);
        let (without, with) = (spread(&without), spread(&with));
        println!("{size_bytes:>9} {without:>17} {with:>17} {more:>7.2}");
    }
}

fn cached(origin: &Arc<dyn Store>, metrics: CacheMetrics) -> Arc<dyn Store> {
    let settings = CacheSettings {
        capacity_bytes: CAPACITY_BYTES,
        ..CacheSettings::default()
    };
    let budget = Budget::new(64 << 20, Duration::from_secs(1));
    let inner = Arc::clone(origin);
    let clock = Clock::system();
    Arc::new(CacheLayer::new(inner, settings, clock, budget, metrics))
}

/// Microseconds of one GET, its request made and its body read to the end.
async fn price(
    store: &Arc<dyn Store>,
    run: usize,
    round_count: usize,
    all_done: impl Fn() -> bool,
) -> f64 {
    let started = processor_time();
    for index in 0..round_count {
        let request = requests::get("bucket", &format!("some/prefix/object-{run}-{index}"))
            .header("user-agent", "aws-sdk-rust/1.0")
            .header("accept", "*/*")
            .build();
        let answer = store.call(request).await.expect("the origin answers");
        let mut body = answer.body;
        while let Some(frame) = body.frame().await {
            frame.expect("the origin sends all bytes");
        }
        while (index + 1) % BATCH == 0 && !all_done() {
            tokio::task::yield_now().await;
            // Waits without work, as this thread's time is counted.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let used = processor_time().saturating_sub(started);
    used.as_secs_f64() * 1e6 / round_count as f64
}

/// Processor time that the threads of this process have had.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// An origin that has every object, all of the same bytes.
#[derive(Debug)]
struct Origin {
    pieces: Vec<Bytes>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Origin {
    fn new(size_bytes: usize) -> Self {
        let whole = Bytes::from(vec![7; size_bytes]);
        let pieces = whole.chunks(PIECE_BYTES).map(|c| whole.slice_ref(c));
        let value = HeaderValue::from_static;
        let headers = vec![
            (header::CONTENT_LENGTH, size_bytes.into()),
            (header::CONTENT_TYPE, value("image/jpeg")),
            (header::DATE, value("Thu, 01 Jan 2026 00:00:00 GMT")),
            (header::ETAG, value("\"0123456789abcdef0123456789abcdef\"")),
            (
                header::LAST_MODIFIED,
                value("Wed, 31 Dec 2025 00:00:00 GMT"),
            ),
            (header::ACCEPT_RANGES, value("bytes")),
            (header::SERVER, value("AmazonS3")),
            (
                HeaderName::from_static("x-amz-request-id"),
                value("0123456789ABCDEF"),
            ),
            (
                HeaderName::from_static("x-amz-meta-origin"),
                value("camera-7"),
            ),
        ];
        Self {
            pieces: pieces.collect(),
            headers,
        }
    }
}

#[async_trait]
impl Store for Origin {
    async fn call(&self, _request: Request) -> Result<Response, Error> {
        let pieces = self.pieces.iter().cloned().collect();
        let mut answer = Response::new(StatusCode::OK).with_body(Body::pieces(pieces));
        for (name, value) in &self.headers {
            answer = answer.with_header(name.clone(), value.clone());
        }
        Ok(answer)
    }
}
