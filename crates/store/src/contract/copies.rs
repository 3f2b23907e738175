//! Copies: bytes, and what of the source comes along.

use super::{
    bucket,
    requests::{copy, get, get_tags, put},
    sample_bytes,
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    a_copy_has_bytes_and_metadata_of_its_source(store).await;
    directives_choose_what_comes_along(store).await;
    a_copy_onto_itself_must_change_something(store).await;
    conditions_on_the_source_hold(store).await;
}

async fn a_copy_has_bytes_and_metadata_of_its_source(store: &dyn Store) {
    let from = bucket(store, "contract-copy-from").await;
    let to = bucket(store, "contract-copy-to").await;
    let bytes = sample_bytes(300_000);
    let source = put(from, "ä b/c+d")
        .header("content-type", "text/plain")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-tagging", "t=1")
        .body(bytes.clone())
        .expect(200, store)
        .await;
    let copied = copy((from, "ä b/c+d"), (to, "k")).expect(200, store).await;
    assert_eq!(copied.element("ETag"), source.etag());
    assert!(forebay_s3::time::parse_rfc3339(&copied.element("LastModified")).is_some());
    let read = get(to, "k").expect(200, store).await;
    assert!(read.body == bytes, "bytes of the copy");
    assert_eq!(read.header("content-type"), "text/plain");
    assert_eq!(read.header("x-amz-meta-colour"), "blue");
    assert_eq!(read.header("x-amz-tagging-count"), "1");
    assert_eq!(
        copy((from, "gone"), (to, "k")).refusal(store).await,
        "NoSuchKey"
    );
    assert_eq!(
        copy(("contract-gone", "k"), (to, "k")).refusal(store).await,
        "NoSuchBucket"
    );
}

async fn directives_choose_what_comes_along(store: &dyn Store) {
    let b = bucket(store, "contract-copy-directive").await;
    put(b, "a")
        .header("content-type", "text/plain")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-tagging", "t=1")
        .body("x")
        .expect(200, store)
        .await;
    copy((b, "a"), (b, "replaced"))
        .header("x-amz-metadata-directive", "REPLACE")
        .header("x-amz-tagging-directive", "REPLACE")
        .header("x-amz-tagging", "u=2")
        .header("content-type", "text/html")
        .header("x-amz-meta-size", "xl")
        .expect(200, store)
        .await;
    let read = get(b, "replaced").expect(200, store).await;
    assert_eq!(read.header("content-type"), "text/html");
    assert_eq!(read.header("x-amz-meta-size"), "xl");
    assert_eq!(read.header("x-amz-meta-colour"), "");
    assert_eq!(
        get_tags(b, "replaced")
            .expect(200, store)
            .await
            .element("Key"),
        "u"
    );
    // Without the directive the request's own metadata does not count.
    copy((b, "a"), (b, "kept"))
        .header("x-amz-meta-size", "xl")
        .expect(200, store)
        .await;
    let read = get(b, "kept").expect(200, store).await;
    assert_eq!(
        (
            read.header("x-amz-meta-size"),
            read.header("x-amz-meta-colour")
        ),
        ("", "blue")
    );
    let unknown = copy((b, "a"), (b, "k")).header("x-amz-metadata-directive", "MERGE");
    assert_eq!(unknown.refusal(store).await, "InvalidArgument");
}

async fn a_copy_onto_itself_must_change_something(store: &dyn Store) {
    let b = bucket(store, "contract-copy-self").await;
    put(b, "a")
        .header("x-amz-meta-colour", "blue")
        .body("x")
        .expect(200, store)
        .await;
    assert_eq!(
        copy((b, "a"), (b, "a")).refusal(store).await,
        "InvalidRequest"
    );
    copy((b, "a"), (b, "a"))
        .header("x-amz-metadata-directive", "REPLACE")
        .header("x-amz-meta-colour", "red")
        .expect(200, store)
        .await;
    let read = get(b, "a").expect(200, store).await;
    assert_eq!(
        (read.text().as_str(), read.header("x-amz-meta-colour")),
        ("x", "red")
    );
}

async fn conditions_on_the_source_hold(store: &dyn Store) {
    let b = bucket(store, "contract-copy-cond").await;
    let etag = put(b, "a")
        .body("x")
        .expect(200, store)
        .await
        .etag()
        .to_owned();
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (name, value, holds) in [
        ("x-amz-copy-source-if-match", etag.as_str(), true),
        ("x-amz-copy-source-if-match", "\"other\"", false),
        ("x-amz-copy-source-if-none-match", &etag, false),
        ("x-amz-copy-source-if-none-match", "\"other\"", true),
        ("x-amz-copy-source-if-modified-since", past, true),
        ("x-amz-copy-source-if-unmodified-since", past, false),
    ] {
        let request = copy((b, "a"), (b, "k")).header(name, value);
        if holds {
            request.expect(200, store).await;
        } else {
            assert_eq!(
                request.refusal(store).await,
                "PreconditionFailed",
                "{name}: {value}"
            );
        }
    }
    let create = copy((b, "a"), (b, "k")).header("if-none-match", "*");
    assert_eq!(create.refusal(store).await, "PreconditionFailed");
}
