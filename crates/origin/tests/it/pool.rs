//! Connections: reused, bounded, fresh when they must be.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use forebay_store::{
    Error, Store,
    contract::requests::{create_upload, get, put},
};
use forebay_telemetry::origin::OriginMetrics;

use crate::scripted::{Scripted, failure, fed, ok, status, store, store_counting};

#[tokio::test]
async fn one_connection_carries_one_request_after_another() {
    let origin = Scripted::answering(|_| ok(b"bytes")).await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    for _ in 0..5 {
        get("bucket", "k").expect(200, &store).await;
        put("bucket", "k").body("bytes").expect(200, &store).await;
    }
    assert_eq!((origin.connections(), origin.seen().len()), (1, 10));
    assert_eq!((metrics.connections.get(), metrics.in_flight.get()), (1, 0));
    assert_eq!(
        (metrics.received_bytes.get(), metrics.sent_bytes.get()),
        (50, 25)
    );
    drop(store);
    assert_eq!(metrics.connections.get(), 0);
}

#[tokio::test]
async fn a_connection_whose_answer_was_not_read_to_its_end_is_not_used_again() {
    let origin = Scripted::answering(|_| ok(&vec![7; 100_000])).await;
    let store = origin.store();
    drop(get("bucket", "k").call(&store).await.unwrap());
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_the_origin_closes_is_not_used_again() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nbytes")
            .await;
    })
    .await;
    let store = origin.store();
    for _ in 0..3 {
        assert_eq!(get("bucket", "k").expect(200, &store).await.text(), "bytes");
    }
    assert_eq!(origin.connections(), 3);
}

/// Goal: a pooled connection that the origin closes at the very moment of a request costs the
/// client nothing, where repeating is safe.
/// Method: each connection serves one request and closes on reading the second.
#[tokio::test]
async fn a_stale_connection_is_replaced_once() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.request().await;
        peer.write(ok(b"bytes")).await;
        peer.head().await;
    })
    .await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    for _ in 0..3 {
        get("bucket", "k").expect(200, &store).await;
    }
    assert_eq!((origin.connections(), metrics.retries.stale.get()), (3, 2));
    let error = failure(create_upload("bucket", "k").send(&store).await);
    assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_meanwhile_is_not_even_tried() {
    let close = Arc::new(tokio::sync::Notify::new());
    let closing = Arc::clone(&close);
    let origin = Scripted::new(move |_, mut peer| {
        let close = Arc::clone(&closing);
        async move {
            peer.request().await;
            peer.write(ok(b"bytes")).await;
            close.notified().await;
        }
    })
    .await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    for _ in 0..3 {
        // An upload can't be repeated, so this works only when the close is seen before.
        put("bucket", "k").body("bytes").expect(200, &store).await;
        assert_eq!(metrics.connections.get(), 1, "it is kept");
        close.notify_one();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((origin.connections(), metrics.retries.stale.get()), (3, 0));
}

#[tokio::test]
async fn connections_in_use_are_bounded_and_who_waits_too_long_is_told_to_slow_down() {
    let origin = Scripted::answering(|_| ok(&vec![7; 100_000])).await;
    let mut settings = origin.settings();
    settings.pool.connections_max = 2;
    settings.pool.wait_max = Duration::from_millis(300);
    let metrics = OriginMetrics::default();
    let store = store_counting(&settings, &metrics);
    let held = get("bucket", "k").call(&store).await.unwrap();
    let also_held = get("bucket", "k").call(&store).await.unwrap();
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(
        matches!(
            error,
            Error::SlowDown {
                retry_after: Some(_)
            }
        ),
        "{error:?}"
    );
    let waiting = get("bucket", "k").expect(200, &store);
    let freeing = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        held.body.collect(100_000).await.unwrap();
    };
    tokio::join!(waiting, freeing);
    drop(also_held);
    assert_eq!((origin.connections(), metrics.pool_waits.get()), (2, 2));
    assert_eq!(metrics.requests.busy.get(), 1);
}

#[tokio::test]
async fn a_burst_stays_within_the_limit_and_all_are_served() {
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let origin = Scripted::new({
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |_, mut peer| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                while peer.request().await.is_some() {
                    peer.write(status(200)).await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    let mut settings = origin.settings();
    settings.pool.connections_max = 4;
    let store = Arc::new(store(&settings));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let store = Arc::clone(&store);
        all.spawn(async move { put("bucket", "k").body("bytes").expect(200, &store).await });
    }
    assert_eq!(all.join_all().await.len(), 64);
    assert_eq!(origin.seen().len(), 64);
    assert!(
        most.load(Ordering::SeqCst) <= 4,
        "{most:?} connections at once"
    );
}

#[tokio::test]
async fn idle_connections_are_closed_in_time_and_in_number() {
    let origin = Scripted::answering(|_| ok(&vec![7; 100_000])).await;
    let mut settings = origin.settings();
    settings.pool.idle_connections_max = 2;
    settings.pool.idle_timeout = Duration::from_millis(100);
    let metrics = OriginMetrics::default();
    let store = store_counting(&settings, &metrics);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(get("bucket", "k").call(&store).await.unwrap());
    }
    assert_eq!(metrics.connections.get(), 4);
    for response in held {
        response.body.collect(100_000).await.unwrap();
    }
    assert_eq!(metrics.connections.get(), 2);
    while metrics.connections.get() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(origin.connections(), 5);
}

/// Goal: each runtime uses its own connections, and takes another's only at the limit.
#[tokio::test]
async fn runtimes_have_their_own_connections() {
    let origin = Scripted::answering(|_| ok(b"bytes")).await;
    let mut settings = origin.settings();
    settings.pool.connections_max = 2;
    let store = Arc::new(store(&settings));
    let runtimes: Vec<Serving> = (0..3).map(|_| Serving::new()).collect();
    let get = |number: usize| {
        let store = Arc::clone(&store);
        runtimes[number]
            .handle
            .spawn(async move { get("bucket", "k").expect(200, &store).await })
    };
    for _ in 0..3 {
        get(0).await.unwrap();
        get(1).await.unwrap();
    }
    assert_eq!(origin.connections(), 2);
    get(2).await.unwrap();
    assert_eq!(
        origin.connections(),
        2,
        "at the limit an idle one is borrowed"
    );
}

/// A current-thread runtime on a thread of its own, as the gateway has them.
struct Serving {
    handle: tokio::runtime::Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || drop(runtime.block_on(stopped)));
        Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[tokio::test]
async fn a_dropped_request_frees_its_connection() {
    let origin = Scripted::new(|_, mut peer| async move {
        let seen = peer.request().await.unwrap();
        if seen.target.ends_with("fast") {
            peer.write(ok(b"bytes")).await;
        }
        peer.rest().await;
    })
    .await;
    let mut settings = origin.settings();
    settings.pool.connections_max = 1;
    let metrics = OriginMetrics::default();
    let store = Arc::new(store_counting(&settings, &metrics));
    let slow = tokio::spawn({
        let store: Arc<dyn Store> = store.clone();
        async move { get("bucket", "slow").send(&*store).await }
    });
    while origin.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    get("bucket", "fast").expect(200, &*store).await;
    let (feed, body) = fed(10);
    drop(put("bucket", "k").body(body).build());
    feed.dropped().await;
}
