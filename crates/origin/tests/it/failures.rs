//! What the client is told when the origin fails, and what is tried again.

use std::time::Duration;

use bytes::Bytes;
use forebay_store::{
    Clock, Error, Store as _,
    contract::requests::{create_upload, delete, delete_bucket, get, put},
};
use forebay_telemetry::origin::OriginMetrics;
use tokio::net::TcpListener;

use crate::scripted::{PIECE, Scripted, failure, fed, ok, settings, status, store, store_counting};

/// An address where nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn an_origin_that_is_down_is_unavailable_at_once_and_the_payload_stays_unread() {
    let metrics = OriginMetrics::default();
    let store = store_counting(&settings(&nobody().await), &metrics);
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(metrics.connect_errors.get(), 3);
    let (feed, body) = fed(10);
    let error = failure(put("bucket", "k").body(body).send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(feed.taken(), 0);
    assert_eq!(metrics.requests.unavailable.get(), 2);
}

#[tokio::test]
async fn an_unresolvable_name_is_unavailable() {
    let error = failure(
        get("bucket", "k")
            .send(&store(&settings("http://no.invalid")))
            .await,
    );
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn slow_down_is_tried_again_and_in_the_end_passed_on() {
    let origin = Scripted::answering(|_| {
        b"HTTP/1.1 503 Slow Down\r\ncontent-length: 9\r\n\r\nSlow down".to_vec()
    })
    .await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    let answer = get("bucket", "k").expect(503, &store).await;
    assert_eq!(answer.text(), "Slow down");
    assert_eq!(origin.seen().len(), 3);
    assert_eq!(
        origin.connections(),
        1,
        "refusals leave the connection as good as it was"
    );
    // A payload is gone once it was read, so its refusal passes on at once.
    put("bucket", "k").body("bytes").expect(503, &store).await;
    assert_eq!(origin.seen().len(), 4);
    assert_eq!(metrics.retries.slow_down.get(), 2);
}

#[tokio::test]
async fn a_long_retry_after_is_left_to_the_client() {
    let origin = Scripted::answering(|_| {
        b"HTTP/1.1 503 X\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
    .await;
    let answer = get("bucket", "k").expect(503, &origin.store()).await;
    assert_eq!(
        (answer.header("retry-after"), origin.seen().len()),
        ("5", 1)
    );
}

#[tokio::test]
async fn other_errors_of_the_origin_are_not_repeated() {
    for code in [400, 403, 404, 412, 500, 501, 502, 504] {
        let origin = Scripted::answering(move |_| status(code)).await;
        get("bucket", "k").expect(code, &origin.store()).await;
        assert_eq!(origin.seen().len(), 1, "{code}");
    }
}

/// Goal: a request that met a silent close is repeated only if that can do no harm, and what may
/// have happened is called so.
#[tokio::test]
async fn a_close_before_the_answer_is_repeated_only_without_harm() {
    let closing = || {
        Scripted::new(|number, mut peer| async move {
            peer.request().await;
            if number == 1 {
                peer.write(ok(b"second")).await;
            }
        })
    };
    let (origin, again) = (closing().await, 2);
    let answer = get("bucket", "k").expect(200, &origin.store()).await;
    assert_eq!(
        (answer.text().as_str(), origin.seen().len()),
        ("second", again)
    );

    let origin = closing().await;
    delete_bucket("bucket").expect(200, &origin.store()).await;
    assert_eq!(origin.seen().len(), again);

    for request in [
        create_upload("bucket", "k"),
        delete("bucket", "k").header("if-match", "\"x\""),
        put("bucket", "k").header("if-none-match", "*"),
    ] {
        let origin = closing().await;
        let error = failure(request.send(&origin.store()).await);
        assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
        assert_eq!(origin.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_payload_that_was_not_whole_had_no_effect() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await;
        peer.body(5).await;
    })
    .await;
    // Larger than what is kept to be sent again.
    let (feed, body) = fed(64 * 1024 + 1);
    let store = origin.store();
    let sending = put("bucket", "k").body(body).send(&store);
    let (sent, _) = tokio::join!(sending, feed.data("first"));
    let error = failure(sent);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_unavailable() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await;
        peer.write("SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    })
    .await;
    let error = failure(get("bucket", "k").send(&origin.store()).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_silent_origin_is_given_up_after_the_first_byte_timeout() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.request().await;
        peer.rest().await;
    })
    .await;
    let mut settings = origin.settings();
    settings.timeouts.first_byte = Duration::from_millis(50);
    let store = store(&settings);
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = failure(put("bucket", "k").body("bytes").send(&store).await);
    assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
    let methods: Vec<String> = origin.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["GET", "PUT", "HEAD"], "neither is repeated");
}

#[tokio::test]
async fn the_clients_own_slowness_is_not_the_origins_silence() {
    let origin = Scripted::answering(|_| status(200)).await;
    let mut settings = origin.settings();
    settings.timeouts.first_byte = Duration::from_millis(50);
    settings.timeouts.idle = Duration::from_millis(50);
    let store = store(&settings);
    let (feed, body) = fed(4);
    let sending = put("bucket", "k").body(body).expect(200, &store);
    let feeding = async {
        for byte in ["a", "b", "c", "d"] {
            tokio::time::sleep(Duration::from_millis(120)).await;
            feed.data(byte).await;
        }
        tokio::time::sleep(Duration::from_millis(120)).await;
        drop(feed);
    };
    tokio::join!(sending, feeding);
    assert_eq!(origin.seen()[0].body, b"abcd");
}

#[tokio::test]
async fn an_origin_that_stops_reading_is_given_up() {
    let origin = Scripted::new(|_, peer| async move {
        let _peer = peer;
        std::future::pending::<()>().await;
    })
    .await;
    let mut settings = origin.settings();
    settings.timeouts.idle = Duration::from_millis(200);
    let store = store(&settings);
    let (feed, body) = fed(1 << 30);
    let feeding = tokio::spawn(async move { while feed.data(Bytes::from_static(&PIECE)).await {} });
    let error = failure(put("bucket", "k").body(body).send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    feeding.await.unwrap();
}

#[tokio::test]
async fn a_download_that_stalls_is_cut_but_a_reader_that_pauses_is_not() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst")
            .await;
        peer.rest().await;
    })
    .await;
    let mut settings = origin.settings();
    settings.timeouts.idle = Duration::from_millis(80);
    let mut body = get("bucket", "k")
        .call(&store(&settings))
        .await
        .unwrap()
        .body;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "first"
    );
    let error = failure(body.collect(100).await);
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
}

#[tokio::test]
async fn the_deadline_of_the_request_ends_it() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.request().await;
        peer.rest().await;
    })
    .await;
    let mut request = get("bucket", "k").build();
    request.caller.deadline = Clock::system().now() + Duration::from_millis(50);
    let error = failure(origin.store().call(request).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
