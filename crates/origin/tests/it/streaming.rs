//! Both directions stream: nothing is read ahead of who takes it, and who goes away is noticed.

use std::time::Duration;

use bytes::Bytes;
use forebay_store::{
    Error,
    contract::requests::{get, put},
};
use tokio::sync::mpsc;

use crate::scripted::{PIECE, Scripted, failure, fed, status};

const PIECE_BYTES: usize = PIECE.len();
const PIECES: usize = 512;

/// What two sockets and the buffers between may hold; the rest must wait at its source.
const IN_FLIGHT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Goal: an origin that reads slowly slows the client down; memory stays bounded.
/// Method: it reads nothing until told; count the pieces taken from the client by then.
#[tokio::test]
async fn an_upload_is_read_no_faster_than_the_origin_takes_it() {
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let gone = std::sync::Mutex::new(Some(gone));
    let origin = Scripted::new(move |_, mut peer| {
        let gone = gone.lock().unwrap().take();
        async move {
            let seen = peer.head().await.unwrap();
            gone.unwrap().await.unwrap();
            assert_eq!(peer.body(seen.length()).await.len(), PIECES * PIECE_BYTES);
            peer.write(status(200)).await;
        }
    })
    .await;
    let (feed, body) = fed((PIECES * PIECE_BYTES) as u64);
    let store = origin.store();
    let sending = put("bucket", "k").body(body).expect(200, &store);
    let feeder = feed.clone();
    let feeding = tokio::spawn(async move {
        for _ in 0..PIECES {
            feed.data(Bytes::from_static(&PIECE)).await;
        }
    });
    let watching = async {
        let mut before = usize::MAX;
        // Quiet for a while: everything that could move has moved.
        while before != feeder.taken() {
            before = feeder.taken();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(before > 0);
        assert!(
            before * PIECE_BYTES <= IN_FLIGHT_BYTES_MAX,
            "{before} pieces were taken"
        );
        drop(feeder);
        go.send(()).unwrap();
    };
    tokio::join!(sending, watching);
    feeding.await.unwrap();
}

/// Goal: a client that reads slowly slows the origin down.
/// Method: read one frame, then nothing; count what the origin could write.
#[tokio::test]
async fn a_download_is_read_no_faster_than_the_client_takes_it() {
    let (told, mut heard) = mpsc::unbounded_channel();
    let origin = Scripted::new(move |_, mut peer| {
        let told = told.clone();
        async move {
            peer.head().await.unwrap();
            let length = PIECES * PIECE_BYTES;
            peer.write(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
            ))
            .await;
            for _ in 0..PIECES {
                peer.write(&PIECE).await;
                told.send(()).unwrap();
            }
        }
    })
    .await;
    let response = get("bucket", "k").call(&origin.store()).await.unwrap();
    let mut body = response.body;
    let mut read = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap()
        .len();
    let mut written = 0;
    while tokio::time::timeout(Duration::from_millis(200), heard.recv())
        .await
        .is_ok()
    {
        written += 1;
    }
    assert!(
        written * PIECE_BYTES <= IN_FLIGHT_BYTES_MAX,
        "{written} pieces were written"
    );
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(read, PIECES * PIECE_BYTES);
}

#[tokio::test]
async fn the_first_bytes_of_an_answer_do_not_wait_for_the_last() {
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let gone = std::sync::Mutex::new(Some(gone));
    let origin = Scripted::new(move |_, mut peer| {
        let gone = gone.lock().unwrap().take();
        async move {
            peer.head().await.unwrap();
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst")
                .await;
            gone.unwrap().await.unwrap();
            peer.write("-last").await;
        }
    })
    .await;
    let mut body = get("bucket", "k").call(&origin.store()).await.unwrap().body;
    assert_eq!(body.length(), Some(10));
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "first"
    );
    go.send(()).unwrap();
    assert_eq!(body.collect(100).await.unwrap().0, "-last");
}

#[tokio::test]
async fn an_origin_gone_in_mid_download_is_an_error_never_a_short_body() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await.unwrap();
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst")
            .await;
    })
    .await;
    let body = get("bucket", "k").call(&origin.store()).await.unwrap().body;
    let error = failure(body.collect(100).await);
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
}

#[tokio::test]
async fn a_chunked_answer_without_its_end_is_an_error() {
    let origin = Scripted::new(|_, mut peer| async move {
        peer.head().await.unwrap();
        peer.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            .await;
    })
    .await;
    let response = get("bucket", "k").call(&origin.store()).await.unwrap();
    assert!(!response.headers.contains_key("transfer-encoding"));
    let error = failure(response.body.collect(100).await);
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
}

/// Goal: a client gone in mid-upload leaves the origin an unfinished request on a closed
/// connection, also when the request is just dropped.
#[tokio::test]
async fn an_abandoned_upload_ends_at_the_origin() {
    for how in ["the body ends in an error", "the request is dropped"] {
        let (told, mut heard) = mpsc::unbounded_channel();
        let origin = Scripted::new(move |_, mut peer| {
            let told = told.clone();
            async move {
                peer.head().await.unwrap();
                peer.body(5).await;
                told.send(0).unwrap();
                told.send(peer.rest().await).unwrap();
            }
        })
        .await;
        let (feed, body) = fed(100);
        let store = origin.store();
        let sending = tokio::spawn(async move { put("bucket", "k").body(body).send(&store).await });
        feed.data("first").await;
        assert_eq!(heard.recv().await, Some(0), "{how}");
        if how == "the request is dropped" {
            sending.abort();
            feed.dropped().await;
        } else {
            feed.error(Error::ClientGone).await;
            let error = failure(sending.await.unwrap());
            assert!(matches!(error, Error::ClientGone), "{error:?}");
        }
        assert_eq!(heard.recv().await, Some(0), "{how}: no byte more came");
    }
}

/// Goal: a refusal that comes while the payload is still on its way reaches the client, whether
/// the origin then waits, closes, or resets.
#[tokio::test]
async fn an_early_refusal_is_heard() {
    for then in ["waits", "closes", "resets"] {
        let origin = Scripted::new(move |_, mut peer| async move {
            peer.head().await.unwrap();
            peer.body(5).await;
            peer.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 8\r\n\r\n<Error/>")
                .await;
            match then {
                "waits" => {
                    peer.rest().await;
                }
                "closes" => {}
                _ => peer.stream.set_zero_linger().unwrap(),
            }
        })
        .await;
        let (feed, body) = fed(1 << 30);
        let store = origin.store();
        let watch = feed.clone();
        let feeding =
            tokio::spawn(async move { while feed.data(Bytes::from_static(&PIECE)).await {} });
        let answer = put("bucket", "k").body(body).expect(403, &store).await;
        assert_eq!(answer.text(), "<Error/>", "{then}");
        // The rest of the payload is not read any more.
        watch.dropped().await;
        feeding.await.unwrap();
    }
}
