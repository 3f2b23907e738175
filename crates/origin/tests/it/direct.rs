//! Long bodies, which are read past HTTP: right to the byte, and their connections used again.

use forebay_store::{Error, contract::requests::get};
use forebay_telemetry::origin::OriginMetrics;

use crate::scripted::{Scripted, failure, ok, store_counting};

/// Long enough to be read directly, and no multiple of anything.
const LONG_BYTES: usize = 3_000_017;

/// Bytes in which every place looks different from those around it.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect()
}

fn head(length: usize, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{more}\r\n")
}

#[tokio::test]
async fn one_connection_carries_one_long_body_after_another() {
    let body = pattern(LONG_BYTES);
    let origin = Scripted::answering({
        let body = body.clone();
        move |_| ok(&body)
    })
    .await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    for _ in 0..3 {
        let got = get("bucket", "k").expect(200, &store).await;
        assert!(got.body[..] == body[..]);
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!((metrics.connections.get(), metrics.in_flight.get()), (1, 0));
    assert_eq!(metrics.received_bytes.get(), 3 * LONG_BYTES as u64);
    drop(store);
    assert_eq!(metrics.connections.get(), 0);
}

/// Goal: no byte is lost or doubled where a body changes hands.
/// Method: the origin sends the head and so many bytes with it, waits until they were read, then
/// sends the rest.
#[tokio::test]
async fn a_body_is_whole_wherever_its_first_read_ended() {
    let body = pattern(LONG_BYTES);
    for first_bytes in [0, 1, 4096, 8192, 100_000, LONG_BYTES] {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let gone = std::sync::Mutex::new(Some(gone));
        let sent = body.clone();
        let origin = Scripted::new(move |_, mut peer| {
            let (gone, sent) = (gone.lock().unwrap().take().unwrap(), sent.clone());
            async move {
                peer.head().await.unwrap();
                let mut first = head(LONG_BYTES, "").into_bytes();
                first.extend_from_slice(&sent[..first_bytes]);
                peer.write(first).await;
                gone.await.unwrap();
                peer.write(&sent[first_bytes..]).await;
            }
        })
        .await;
        let mut answer = get("bucket", "k").call(&origin.store()).await.unwrap().body;
        assert_eq!(answer.length(), Some(LONG_BYTES as u64));
        let mut got = Vec::new();
        while got.len() < first_bytes {
            got.extend_from_slice(answer.frame().await.unwrap().unwrap().data_ref().unwrap());
            assert_eq!(answer.length(), Some((LONG_BYTES - got.len()) as u64));
        }
        go.send(()).unwrap();
        while let Some(frame) = answer.frame().await {
            got.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        assert!(got == body, "{first_bytes} bytes came first");
    }
}

#[tokio::test]
async fn a_connection_that_the_origin_closes_after_a_long_body_is_not_used_again() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.request().await;
        peer.write(head(LONG_BYTES, "connection: x, Close\r\n"))
            .await;
        peer.write(pattern(LONG_BYTES)).await;
        // Left open: that it is not used again must come from what the head said.
        peer.request().await;
    })
    .await;
    let store = origin.store();
    for _ in 0..2 {
        get("bucket", "k").expect(200, &store).await;
    }
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn a_long_body_that_breaks_off_is_an_error_never_a_short_body() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await.unwrap();
        peer.write(head(LONG_BYTES, "")).await;
        peer.write(pattern(LONG_BYTES - 1)).await;
    })
    .await;
    let body = get("bucket", "k").call(&origin.store()).await.unwrap().body;
    let error = failure(body.collect(LONG_BYTES).await);
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
}

#[tokio::test]
async fn a_long_body_that_stops_coming_is_cut_in_time() {
    let (_open, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    let origin = Scripted::new(move |_, mut peer| {
        let wait = wait.lock().unwrap().take();
        async move {
            peer.head().await.unwrap();
            peer.write(head(LONG_BYTES, "")).await;
            peer.write(pattern(1000)).await;
            let _ = wait.unwrap().await;
        }
    })
    .await;
    let mut settings = origin.settings();
    settings.timeouts.idle = std::time::Duration::from_millis(50);
    let store = crate::scripted::store(&settings);
    let body = get("bucket", "k").call(&store).await.unwrap().body;
    let error = failure(body.collect(LONG_BYTES).await);
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
}

#[tokio::test]
async fn a_long_body_that_nobody_reads_to_its_end_closes_its_connection() {
    let origin = Scripted::answering(|_| ok(&pattern(LONG_BYTES))).await;
    let store = origin.store();
    let mut body = get("bucket", "k").call(&store).await.unwrap().body;
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(origin.connections(), 2);
}

/// Goal: bytes that follow a long body unasked are never taken for the next answer.
/// Method: the origin sends a second answer behind the first; on a new connection, the right one.
#[tokio::test]
async fn what_follows_a_long_body_unasked_answers_nothing() {
    let origin = Scripted::new(|number, mut peer| async move {
        peer.request().await;
        if number == 0 {
            let mut answers = ok(&pattern(LONG_BYTES));
            answers.extend_from_slice(&ok(b"wrong"));
            peer.write(answers).await;
            peer.request().await;
        } else {
            peer.write(ok(b"right")).await;
        }
    })
    .await;
    let store = origin.store();
    let first = get("bucket", "k").expect(200, &store).await;
    assert!(first.body[..] == pattern(LONG_BYTES)[..]);
    let next = get("bucket", "k").expect(200, &store).await;
    assert_eq!((next.text().as_ref(), origin.connections()), ("right", 2));
}
