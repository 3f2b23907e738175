//! Objects: what is put comes back, whole or in ranges, with its headers.

use super::{
    bodies, bucket,
    requests::{delete, get, head, put},
    sample_bytes,
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    what_is_put_comes_back(store).await;
    an_overwrite_replaces_everything(store).await;
    headers_and_user_metadata_come_back(store).await;
    ranges_answer_their_bytes(store).await;
    a_query_replaces_headers_of_the_answer(store).await;
    bodies_of_any_size_and_cut_come_back(store).await;
    only_the_null_version_exists(store).await;
    what_cannot_be_promised_is_refused(store).await;
}

async fn what_is_put_comes_back(store: &dyn Store) {
    let b = bucket(store, "contract-objects-put").await;
    assert_eq!(get(b, "k").refusal(store).await, "NoSuchKey");
    assert_eq!(head(b, "k").refusal(store).await, "NoSuchKey");
    let written = put(b, "k").body("hello").expect(200, store).await;
    // MD5 of "hello".
    assert_eq!(written.etag(), "\"5d41402abc4b2a76b9719d911017c592\"");
    assert!(written.body.is_empty());
    let read = get(b, "k").expect(200, store).await;
    assert_eq!(read.text(), "hello");
    assert_eq!(read.etag(), written.etag());
    assert_eq!(read.header("content-length"), "5");
    assert_eq!(read.header("content-type"), "binary/octet-stream");
    assert_eq!(read.header("accept-ranges"), "bytes");
    assert!(forebay_s3::time::parse_http_date(read.header("last-modified")).is_some());
    let seen = head(b, "k").expect(200, store).await;
    assert!(seen.body.is_empty());
    for name in [
        "etag",
        "content-length",
        "content-type",
        "last-modified",
        "accept-ranges",
    ] {
        assert_eq!(seen.header(name), read.header(name), "{name} of HEAD");
    }
    delete(b, "k").expect(204, store).await;
    delete(b, "k").expect(204, store).await;
    assert_eq!(get(b, "k").refusal(store).await, "NoSuchKey");
    put(b, "empty").expect(200, store).await;
    let empty = get(b, "empty").expect(200, store).await;
    assert_eq!(
        (empty.text().as_str(), empty.header("content-length")),
        ("", "0")
    );
    assert_eq!(empty.etag(), "\"d41d8cd98f00b204e9800998ecf8427e\"");
}

async fn an_overwrite_replaces_everything(store: &dyn Store) {
    let b = bucket(store, "contract-objects-over").await;
    put(b, "k")
        .header("x-amz-meta-old", "1")
        .header("content-type", "text/plain")
        .header("x-amz-tagging", "a=b")
        .body("a longer first version")
        .expect(200, store)
        .await;
    put(b, "k").body("short").expect(200, store).await;
    let read = get(b, "k").expect(200, store).await;
    assert_eq!(read.text(), "short");
    assert_eq!(read.header("x-amz-meta-old"), "");
    assert_eq!(read.header("x-amz-tagging-count"), "");
    assert_eq!(read.header("content-type"), "binary/octet-stream");
}

async fn headers_and_user_metadata_come_back(store: &dyn Store) {
    let b = bucket(store, "contract-objects-meta").await;
    let headers = [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "max-age=60"),
        ("content-disposition", "attachment; filename=\"x.txt\""),
        ("content-encoding", "gzip"),
        ("content-language", "en"),
        ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
        ("x-amz-website-redirect-location", "/elsewhere"),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-meta-colour", "blue"),
        ("x-amz-meta-empty", ""),
        ("x-amz-meta-with-dash_and.dot", "a, b;c=d"),
    ];
    let mut request = put(b, "k").body("x").header("x-amz-tagging", "a=1&b=2");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.expect(200, store).await;
    for read in [
        get(b, "k").expect(200, store).await,
        head(b, "k").expect(200, store).await,
    ] {
        for (name, value) in headers {
            assert_eq!(read.header(name), value, "{name}");
        }
        assert_eq!(read.header("x-amz-tagging-count"), "2");
    }
    let unicode = "blå 😀";
    put(b, "u")
        .header("x-amz-meta-name", unicode)
        .expect(200, store)
        .await;
    let read = get(b, "u").expect(200, store).await;
    assert_eq!(
        read.headers["x-amz-meta-name"].as_bytes(),
        unicode.as_bytes()
    );
    assert_eq!(read.header("x-amz-storage-class"), "");
    let large = "x".repeat(2049);
    let refused = put(b, "l")
        .header("x-amz-meta-large", large)
        .refusal(store)
        .await;
    assert_eq!(refused, "MetadataTooLarge");
}

async fn ranges_answer_their_bytes(store: &dyn Store) {
    let b = bucket(store, "contract-objects-range").await;
    let bytes = sample_bytes(700_000);
    put(b, "k").body(bytes.clone()).expect(200, store).await;
    for (range, span) in [
        ("bytes=0-", 0..700_000),
        ("bytes=0-0", 0..1),
        ("bytes=10-99", 10..100),
        ("bytes=262100-262200", 262_100..262_201),
        ("bytes=-5", 699_995..700_000),
        ("bytes=-900000", 0..700_000),
        ("bytes=699999-700000", 699_999..700_000),
    ] {
        let read = get(b, "k").range(range).expect(206, store).await;
        assert!(read.body == bytes[span.clone()], "bytes of {range}");
        let content_range = format!("bytes {}-{}/700000", span.start, span.end - 1);
        assert_eq!(read.header("content-range"), content_range);
        assert_eq!(read.header("content-length"), span.len().to_string());
        let seen = head(b, "k").range(range).expect(206, store).await;
        assert_eq!(seen.header("content-range"), content_range, "HEAD {range}");
        assert_eq!(
            seen.header("content-length"),
            span.len().to_string(),
            "HEAD {range}"
        );
    }
    for ignored in ["bytes=5-4", "bytes=0-1,5-6", "lines=0-1", "bytes=a-b"] {
        let read = get(b, "k").range(ignored).expect(200, store).await;
        assert_eq!(read.body.len(), 700_000, "{ignored}");
    }
    assert_eq!(
        get(b, "k").range("bytes=700000-").refusal(store).await,
        "InvalidRange"
    );
    assert_eq!(
        get(b, "k").range("bytes=-0").refusal(store).await,
        "InvalidRange"
    );
    put(b, "empty").expect(200, store).await;
    assert_eq!(
        get(b, "empty").range("bytes=0-").refusal(store).await,
        "InvalidRange"
    );
}

async fn a_query_replaces_headers_of_the_answer(store: &dyn Store) {
    let b = bucket(store, "contract-objects-query").await;
    put(b, "k")
        .header("content-type", "text/plain")
        .body("x")
        .expect(200, store)
        .await;
    let read = get(b, "k")
        .query("response-content-type", "text/html")
        .query(
            "response-content-disposition",
            "attachment; filename=a b.txt",
        )
        .expect(200, store)
        .await;
    assert_eq!(read.header("content-type"), "text/html");
    assert_eq!(
        read.header("content-disposition"),
        "attachment; filename=a b.txt"
    );
    assert_eq!(
        get(b, "k").expect(200, store).await.header("content-type"),
        "text/plain"
    );
}

async fn bodies_of_any_size_and_cut_come_back(store: &dyn Store) {
    let b = bucket(store, "contract-objects-size").await;
    for (size, piece) in [(1, 1), (4096, 100), (131_072, 131_072), (1_000_003, 65_536)] {
        let bytes = sample_bytes(size);
        put(b, "k")
            .body(bodies::in_pieces(&bytes, piece))
            .expect(200, store)
            .await;
        let read = get(b, "k").expect(200, store).await;
        assert!(read.body == bytes, "{size} bytes in pieces of {piece}");
    }
}

async fn only_the_null_version_exists(store: &dyn Store) {
    let b = bucket(store, "contract-objects-version").await;
    put(b, "k").body("x").expect(200, store).await;
    get(b, "k")
        .query("versionId", "null")
        .expect(200, store)
        .await;
    let other = get(b, "k")
        .query("versionId", "0123456789abcdef")
        .refusal(store)
        .await;
    assert_eq!(other, "NoSuchVersion");
}

async fn what_cannot_be_promised_is_refused(store: &dyn Store) {
    let b = bucket(store, "contract-objects-promise").await;
    for (name, value, code) in [
        ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
        ("x-amz-acl", "public-read", "AccessControlListNotSupported"),
        ("x-amz-storage-class", "nonsense", "InvalidStorageClass"),
        ("x-amz-tagging", "a=1&a=2", "InvalidTag"),
    ] {
        let refused = put(b, "k")
            .header(name, value)
            .body("x")
            .refusal(store)
            .await;
        assert_eq!(refused, code, "{name}");
    }
    assert_eq!(get(b, "k").refusal(store).await, "NoSuchKey");
}
