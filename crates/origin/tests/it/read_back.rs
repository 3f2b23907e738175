//! Writes of unknown outcome: their connection was lost after all of them was sent.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use forebay_store::{
    Error,
    contract::requests::{Builder, complete_upload, copy, delete, put},
};
use forebay_telemetry::origin::OriginMetrics;

use crate::scripted::{Scripted, Seen, failure, status, store_counting};

const MD5_OF_BYTES: &str = "\"4b3a6218bb3e3a7303e8a171a60fcf92\"";

/// An origin that says nothing to the first write and answers the rest; `found` is what a HEAD
/// finds, beside a `Date`.
async fn forgetful(found: &'static str) -> Scripted {
    let writes = Arc::new(AtomicUsize::new(0));
    Scripted::new(move |_, mut peer| {
        let writes = Arc::clone(&writes);
        async move {
            while let Some(seen) = peer.request().await {
                if seen.method == "HEAD" {
                    peer.write(format!("HTTP/1.1 {found}\r\n\r\n")).await;
                } else if writes.fetch_add(1, Ordering::SeqCst) == 0 {
                    return;
                } else {
                    peer.write(status(200)).await;
                }
            }
        }
    })
    .await
}

const DATE: &str = "date: Sat, 21 Nov 2026 12:00:10 GMT\r\ncontent-length: 5";
const OLD: &str = "last-modified: Sat, 21 Nov 2026 11:00:00 GMT";
const NEW: &str = "last-modified: Sat, 21 Nov 2026 12:00:10 GMT";

fn found(rows: &[&str]) -> &'static str {
    format!("200 OK\r\n{DATE}\r\n{}", rows.join("\r\n")).leak()
}

fn methods(origin: &Scripted) -> Vec<String> {
    let method = |seen: Seen| seen.method;
    origin.seen().into_iter().map(method).collect()
}

async fn indeterminate(request: Builder, origin: &Scripted) {
    let error = failure(request.send(&origin.store()).await);
    assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
}

#[tokio::test]
async fn a_put_that_has_happened_is_answered_with_its_tag() {
    let etag = format!("etag: {MD5_OF_BYTES}");
    let origin = forgetful(found(&[NEW, &etag, "x-amz-version-id: v1"])).await;
    let metrics = OriginMetrics::default();
    let store = store_counting(&origin.settings(), &metrics);
    let answer = put("bucket", "k").body("bytes").expect(200, &store).await;
    assert_eq!(
        (answer.header("etag"), answer.header("x-amz-version-id")),
        (MD5_OF_BYTES, "v1")
    );
    assert_eq!(methods(&origin), ["PUT", "HEAD"]);
    assert_eq!(metrics.read_backs.happened.get(), 1);
}

#[tokio::test]
async fn a_checksum_tells_as_well_as_a_tag() {
    let origin = forgetful(found(&[
        NEW,
        "etag: \"of-kms\"",
        "x-amz-checksum-crc32: sZlDzg==",
    ]))
    .await;
    let sent = put("bucket", "k")
        .header("x-amz-checksum-crc32", "sZlDzg==")
        .body("bytes");
    sent.expect(200, &origin.store()).await;
    assert_eq!(methods(&origin), ["PUT", "HEAD"]);
}

#[tokio::test]
async fn a_write_that_has_not_happened_is_sent_once_more() {
    let old = found(&[OLD, "etag: \"other\""]);
    let gone = "404 Not Found\r\ncontent-length: 0";
    for (request, found) in [
        (put("bucket", "k").body("bytes"), old),
        (put("bucket", "k").body("bytes"), gone),
        (delete("bucket", "k"), old),
        (copy(("bucket", "a"), ("bucket", "k")), old),
    ] {
        let origin = forgetful(found).await;
        let metrics = OriginMetrics::default();
        let store = store_counting(&origin.settings(), &metrics);
        request.expect(200, &store).await;
        let seen = origin.seen();
        assert_eq!((seen.len(), seen[1].method.as_str()), (3, "HEAD"));
        assert_eq!(
            (&seen[0].method, &seen[0].body),
            (&seen[2].method, &seen[2].body)
        );
        assert_eq!(metrics.read_backs.repeated.get(), 1);
    }
}

#[tokio::test]
async fn a_delete_that_has_happened_is_answered_204() {
    let origin = forgetful("404 Not Found\r\ncontent-length: 0").await;
    delete("bucket", "k").expect(204, &origin.store()).await;
    assert_eq!(methods(&origin), ["DELETE", "HEAD"]);
}

#[tokio::test]
async fn a_completed_upload_is_answered_with_the_tag_of_its_parts() {
    let part = "4b3a6218bb3e3a7303e8a171a60fcf92";
    // The MD5 of that MD5.
    let etag = "\"0b034e41e6cd53ddca775db50cc1ff6a-1\"";
    let origin = forgetful(found(&[NEW, &format!("etag: {etag}")])).await;
    let request = complete_upload("bucket", "k", "id", &[(1, part)]);
    let answer = request.expect(200, &origin.store()).await;
    let xml = answer.text().replace("&quot;", "\"");
    assert!(xml.contains(&format!("<ETag>{etag}</ETag>")), "{xml}");
    assert_eq!(methods(&origin), ["POST", "HEAD"]);
}

#[tokio::test]
async fn what_can_not_be_told_stays_unknown() {
    // Written since, by whomever.
    let other = found(&[NEW, "etag: \"other\""]);
    for request in [
        put("bucket", "k").body("bytes"),
        put("bucket", "k").body(vec![7; 100_000]),
        delete("bucket", "k"),
        copy(("bucket", "a"), ("bucket", "k")),
    ] {
        let origin = forgetful(other).await;
        indeterminate(request, &origin).await;
        assert_eq!(origin.seen().len(), 2);
    }
    // A payload that was not kept is not there to be sent again.
    let origin = forgetful(found(&[OLD, "etag: \"other\""])).await;
    indeterminate(put("bucket", "k").body(vec![7; 100_000]), &origin).await;
    assert_eq!(methods(&origin), ["PUT", "HEAD"]);
}

#[tokio::test]
async fn a_conditional_write_is_not_read_back() {
    let origin = forgetful(found(&[NEW, &format!("etag: {MD5_OF_BYTES}")])).await;
    let request = put("bucket", "k")
        .header("if-none-match", "*")
        .body("bytes");
    indeterminate(request, &origin).await;
    assert_eq!(methods(&origin), ["PUT"]);
}
