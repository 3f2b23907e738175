//! What vouches for a payload on the wire, and that the origin never has a whole unverified one.

use bytes::Bytes;
use forebay_origin::PayloadSigning;
use forebay_s3::{
    checksum::{Algorithm, Checksum},
    code::Code,
    sigv4::EMPTY_SHA256,
};
use forebay_store::{
    Error, PayloadProof, Store as _,
    contract::requests::{get, put},
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::scripted::{Scripted, failure, fed, status, store};

fn trailer(algorithm: Algorithm, value: &str) -> HeaderMap {
    let name = HeaderName::from_static(algorithm.header());
    [(name, HeaderValue::from_str(value).unwrap())]
        .into_iter()
        .collect()
}

#[tokio::test]
async fn a_hash_that_the_client_signed_is_what_the_origin_verifies() {
    let origin = Scripted::answering(|_| status(200)).await;
    let mut request = put("bucket", "k").body("bytes").build();
    request.payload_proof = PayloadProof::Sha256([0xab; 32]);
    let answer = origin.store().call(request).await.unwrap();
    assert_eq!(answer.status, 200);
    let seen = &origin.seen()[0];
    assert_eq!(seen.header("x-amz-content-sha256"), Some(&*"ab".repeat(32)));
    assert_eq!(
        (seen.header("content-length"), &*seen.body),
        (Some("5"), &b"bytes"[..])
    );
}

#[tokio::test]
async fn a_trailer_of_the_client_reaches_the_origin() {
    let origin = Scripted::answering(|_| status(200)).await;
    let value = Checksum::of(Algorithm::Crc32, b"bytes").to_base64();
    let (feed, body) = fed(5);
    let sending = put("bucket", "k")
        .header("x-amz-trailer", "x-amz-checksum-crc32")
        .header("x-amz-sdk-checksum-algorithm", "CRC32")
        .header("content-encoding", "gzip")
        .body(body);
    let store = origin.store();
    let feeding = async {
        feed.data("by").await;
        feed.data("tes").await;
        feed.trailers(trailer(Algorithm::Crc32, &value)).await;
        drop(feed);
    };
    let (answer, ()) = tokio::join!(sending.expect(200, &store), feeding);
    assert_eq!(answer.status, 200);
    let seen = &origin.seen()[0];
    let expected = format!("5\r\nbytes\r\n0\r\nx-amz-checksum-crc32:{value}\r\n\r\n");
    assert_eq!(String::from_utf8_lossy(&seen.body), expected);
    assert_eq!(
        seen.header("x-amz-content-sha256"),
        Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    );
    assert_eq!(seen.header("x-amz-decoded-content-length"), Some("5"));
    assert_eq!(seen.header("content-encoding"), Some("gzip"));
    assert_eq!(seen.header("x-amz-trailer"), Some("x-amz-checksum-crc32"));
}

#[tokio::test]
async fn a_trailer_that_does_not_come_fails_the_request() {
    let origin = Scripted::answering(|_| status(200)).await;
    let sent = put("bucket", "k")
        .header("x-amz-trailer", "x-amz-checksum-crc32")
        .body("bytes");
    let error = failure(sent.send(&origin.store()).await);
    assert!(
        matches!(&error, Error::Refused(refusal) if refusal.code == Code::MalformedTrailerError),
        "{error:?}"
    );
    assert!(origin.seen().is_empty());
}

#[tokio::test]
async fn without_a_hash_the_setting_decides() {
    for (setting, mode, body) in [
        (PayloadSigning::Auto, "UNSIGNED-PAYLOAD", "bytes"),
        (
            PayloadSigning::Chunks,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "5;chunk-signature=",
        ),
    ] {
        let origin = Scripted::answering(|_| status(200)).await;
        let mut settings = origin.settings();
        settings.payload_signing = setting;
        let store = store(&settings);
        put("bucket", "k").body("bytes").expect(200, &store).await;
        get("bucket", "k").expect(200, &store).await;
        let seen = origin.seen();
        assert_eq!(seen[0].header("x-amz-content-sha256"), Some(mode));
        assert!(seen[0].body.starts_with(body.as_bytes()));
        assert_eq!(seen[1].header("x-amz-content-sha256"), Some(EMPTY_SHA256));
    }
}

#[tokio::test]
async fn a_payload_of_unknown_length_is_refused() {
    let origin = Scripted::answering(|_| status(200)).await;
    let (_feed, body) = fed(None);
    let error = failure(put("bucket", "k").body(body).send(&origin.store()).await);
    assert!(matches!(&error, Error::Refused(r) if r.code == Code::MissingContentLength));
    assert_eq!(origin.connections(), 0);
}

/// Goal: a payload that turns out wrong at its very end never becomes an object.
/// Method: all bytes come, then the error; the origin must see an unfinished request.
#[tokio::test]
async fn the_last_bytes_wait_for_the_verdict() {
    let (told, mut heard) = tokio::sync::mpsc::channel(1);
    let origin = Scripted::new(move |_, mut peer| {
        let told = told.clone();
        async move {
            let seen = peer.head().await.unwrap();
            let got = peer.body(seen.length()).await;
            told.send((seen.length(), got.len())).await.unwrap();
        }
    })
    .await;
    let (feed, body) = fed(6);
    let store = origin.store();
    let sending = put("bucket", "k").body(body).send(&store);
    let feeding = async {
        feed.data("abc").await;
        feed.data("def").await;
        feed.error(Error::refused(Code::BadDigest)).await;
    };
    let (sent, ()) = tokio::join!(sending, feeding);
    let error = failure(sent);
    assert!(
        matches!(&error, Error::Refused(r) if r.code == Code::BadDigest),
        "{error:?}"
    );
    assert_eq!(heard.recv().await.unwrap(), (6, 3));
}

#[tokio::test]
async fn an_empty_payload_that_is_not_what_was_signed_sends_nothing() {
    let origin = Scripted::answering(|_| status(200)).await;
    let (feed, body) = fed(0);
    let store = origin.store();
    let sending = put("bucket", "k").body(body).send(&store);
    let (sent, ()) = tokio::join!(sending, feed.error(Error::refused(Code::BadDigest)));
    assert!(matches!(failure(sent), Error::Refused(_)));
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_payload_of_another_length_than_announced_is_no_object() {
    for (length, piece) in [(10, "short"), (3, "longer")] {
        let origin = Scripted::answering(|_| status(200)).await;
        let (feed, body) = fed(length);
        let store = origin.store();
        let sending = put("bucket", "k").body(body).send(&store);
        let feeding = async {
            feed.data(Bytes::from_static(piece.as_bytes())).await;
            drop(feed);
        };
        let (sent, ()) = tokio::join!(sending, feeding);
        let error = failure(sent);
        assert!(
            matches!(&error, Error::Refused(r) if r.code == Code::IncompleteBody),
            "{error:?}"
        );
        assert!(origin.seen().is_empty());
    }
}

/// Goal: a write whose connection is lost before its end had no effect, and is no client's business
/// as long as its payload is here.
/// Method: the first connection ends after a half; the second must see the whole.
#[tokio::test]
async fn a_small_payload_that_broke_off_on_its_way_is_sent_once_more() {
    for (length, is_kept) in [(6, true), (64 * 1024 + 1, false)] {
        let (told, mut heard) = tokio::sync::mpsc::channel(1);
        let origin = Scripted::new(move |number, mut peer| {
            let told = told.clone();
            async move {
                if number == 0 {
                    peer.head().await.unwrap();
                    assert_eq!(peer.body(3).await, b"abc");
                    drop(peer);
                    told.send(()).await.unwrap();
                } else {
                    peer.request().await.unwrap();
                    peer.write(status(200)).await;
                }
            }
        })
        .await;
        let (feed, body) = fed(length);
        let store = origin.store();
        let sending = put("bucket", "k").body(body).send(&store);
        let feeding = async {
            feed.data("abc").await;
            heard.recv().await.unwrap();
            feed.data("def").await;
            drop(feed);
        };
        let (sent, ()) = tokio::join!(sending, feeding);
        if is_kept {
            assert_eq!(sent.unwrap().status, 200);
            assert_eq!(origin.seen()[0].body, b"abcdef");
            assert_eq!(origin.connections(), 2);
        } else {
            let error = failure(sent);
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert_eq!(origin.connections(), 1);
        }
    }
}
