//! Tags of objects.

use super::{
    bucket,
    requests::{delete_tags, get, get_tags, head, put, put_tags},
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    let b = bucket(store, "contract-tags").await;
    put(b, "k")
        .header("x-amz-tagging", "a=1&b=x%20y")
        .body("x")
        .expect(200, store)
        .await;
    let before = head(b, "k").expect(200, store).await;
    let tags = get_tags(b, "k").expect(200, store).await;
    assert_eq!(tags.elements("Key"), ["a", "b"]);
    assert_eq!(tags.elements("Value"), ["1", "x y"]);

    put_tags(b, "k", &[("c", "<&>"), ("ä", "")])
        .expect(200, store)
        .await;
    let tags = get_tags(b, "k").expect(200, store).await;
    assert_eq!(tags.elements("Key"), ["c", "ä"]);
    assert_eq!(tags.elements("Value"), ["<&>", ""]);
    let after = get(b, "k").expect(200, store).await;
    assert_eq!(after.text(), "x");
    assert_eq!(
        after.header("last-modified"),
        before.header("last-modified")
    );
    assert_eq!(after.etag(), before.etag());

    delete_tags(b, "k").expect(204, store).await;
    assert_eq!(
        get_tags(b, "k").expect(200, store).await.elements("Key"),
        [""; 0]
    );
    assert_eq!(
        head(b, "k")
            .expect(200, store)
            .await
            .header("x-amz-tagging-count"),
        ""
    );

    the_largest_tags_fit(store, b).await;

    let twice = put_tags(b, "k", &[("a", "1"), ("a", "2")])
        .refusal(store)
        .await;
    assert_eq!(twice, "InvalidTag");
    assert_eq!(
        put_tags(b, "k", &[])
            .body("<Tagging/>")
            .refusal(store)
            .await,
        "MalformedXML"
    );
    for request in [
        get_tags(b, "gone"),
        put_tags(b, "gone", &[]),
        delete_tags(b, "gone"),
    ] {
        assert_eq!(request.refusal(store).await, "NoSuchKey");
    }
}

async fn the_largest_tags_fit(store: &dyn Store, b: &str) {
    // The largest set there can be: more than 8 KB in UTF-8, twice what an attribute of ext4 holds.
    let large: Vec<(String, String)> = (0..10)
        .map(|n| (format!("{n}{}", "é".repeat(127)), "é".repeat(256)))
        .collect();
    let large: Vec<(&str, &str)> = large
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    put_tags(b, "k", &large).expect(200, store).await;
    let tags = get_tags(b, "k").expect(200, store).await;
    assert_eq!(
        tags.elements("Value"),
        large.iter().map(|(_, value)| *value).collect::<Vec<_>>()
    );
    put_tags(b, "k", &[("small", "again")])
        .expect(200, store)
        .await;
    assert_eq!(
        get_tags(b, "k").expect(200, store).await.elements("Key"),
        ["small"]
    );
}
