//! What clients see of objects on either side.

use super::*;
use forebay_store::contract::requests::{
    copy, delete, delete_many, get, get_tags, head, list_v2, put, put_tags,
};

#[tokio::test]
async fn a_small_object_is_hot_until_it_is_moved_and_answers_alike_on_both_sides() {
    let (rig, layer) = Rig::with_bucket().await;
    let written = put("bucket", "k")
        .header("content-type", "text/plain")
        .header("x-amz-meta-a", "1")
        .header("x-amz-tagging", "t=v")
        .header("cache-control", "no-cache")
        .body("hello")
        .expect(200, &layer)
        .await;
    assert_eq!(written.header("x-forebay-tier"), "hot");
    assert_eq!(written.header("x-forebay-durability"), "hot-local");
    assert_eq!(get("bucket", "k").refusal(&*rig.cold).await, "NoSuchKey");
    let hot = get("bucket", "k").expect(200, &layer).await;
    assert_eq!(
        (hot.text(), hot.header("x-forebay-tier")),
        ("hello".into(), "hot")
    );
    rig.pass(3600);
    let turn = layer.mover().turn().await.unwrap();
    assert_eq!((turn.done_count, turn.failed_count), (1, 0));
    let cold = get("bucket", "k").expect(200, &layer).await;
    assert_eq!(
        (cold.text(), cold.header("x-forebay-tier")),
        ("hello".into(), "cold")
    );
    assert_eq!(cold.header("x-forebay-durability"), "origin");
    for name in [
        "etag",
        "content-type",
        "x-amz-meta-a",
        "cache-control",
        "x-amz-tagging-count",
    ] {
        assert_eq!(cold.header(name), hot.header(name), "{name}");
    }
    let tags = get_tags("bucket", "k").expect(200, &*rig.cold).await;
    assert!(tags.text().contains("<Key>t</Key><Value>v</Value>"));
    assert!(!layer.operator().has_dirty().await.unwrap());
}

#[tokio::test]
async fn tags_ranges_and_conditions_are_answered_from_the_hot_store() {
    let (rig, layer) = Rig::with_bucket().await;
    let etag = put("bucket", "k").body("hello").expect(200, &layer).await;
    let etag = etag.etag().to_owned();
    let before = rig.cold.calls();
    let range = get("bucket", "k")
        .range("bytes=1-2")
        .expect(206, &layer)
        .await;
    assert_eq!(range.text(), "el");
    let unchanged = get("bucket", "k").header("if-none-match", &etag);
    unchanged.expect(304, &layer).await;
    put_tags("bucket", "k", &[("a", "b")])
        .expect(200, &layer)
        .await;
    let tags = get_tags("bucket", "k").expect(200, &layer).await;
    assert!(tags.text().contains("<Key>a</Key>"));
    let stale = put("bucket", "k").header("if-match", "\"x\"").body("no");
    assert_eq!(stale.refusal(&layer).await, "PreconditionFailed");
    put("bucket", "k")
        .header("if-match", &etag)
        .body("yes")
        .expect(200, &layer)
        .await;
    let again = put("bucket", "k").header("if-none-match", "*").body("no");
    assert_eq!(again.refusal(&layer).await, "PreconditionFailed");
    assert_eq!(get("bucket", "k").expect(200, &layer).await.text(), "yes");
    // The bucket is asked for once a minute, and nothing else.
    assert_eq!(rig.cold.calls(), before);
}

#[tokio::test]
async fn copies_go_from_and_to_either_side() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "hot")
        .header("x-amz-meta-a", "1")
        .body("h")
        .expect(200, &layer)
        .await;
    put("bucket", "cold")
        .header("x-forebay-tier", "cold")
        .body("c")
        .expect(200, &layer)
        .await;
    let to_cold = |name| copy(("bucket", "hot"), ("bucket", name)).header("x-forebay-tier", "cold");
    copy(("bucket", "hot"), ("bucket", "hot-hot"))
        .expect(200, &layer)
        .await;
    assert_eq!(head("bucket", "hot").refusal(&*rig.cold).await, "NoSuchKey");
    to_cold("hot-cold").expect(200, &layer).await;
    copy(("bucket", "cold"), ("bucket", "cold-cold"))
        .expect(200, &layer)
        .await;
    for (name, side, text) in [
        ("hot-hot", "hot", "h"),
        ("hot-cold", "cold", "h"),
        ("cold-cold", "cold", "c"),
    ] {
        let answer = get("bucket", name).expect(200, &layer).await;
        assert_eq!(
            (answer.text().as_str(), answer.header("x-forebay-tier")),
            (text, side)
        );
    }
    assert_eq!(
        head("bucket", "hot-hot")
            .expect(200, &layer)
            .await
            .header("x-amz-meta-a"),
        "1"
    );
    // Over a hot object.
    put("bucket", "target")
        .body("old")
        .expect(200, &layer)
        .await;
    copy(("bucket", "cold"), ("bucket", "target"))
        .expect(200, &layer)
        .await;
    assert_eq!(
        get("bucket", "target").expect(200, &layer).await.text(),
        "c"
    );
}

#[tokio::test]
async fn deletes_of_many_reach_both_sides() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "hot&1").body("h").expect(200, &layer).await;
    for name in ["cold1", "cold2"] {
        put("bucket", name).body("c").expect(200, &*rig.cold).await;
    }
    let keys = ["cold1", "hot&1", "never", "cold2"];
    let answer = delete_many("bucket", &keys).expect(200, &layer).await;
    let mut told = contract::requests::elements(&answer.text(), "Key");
    told.sort();
    assert_eq!(told, ["cold1", "cold2", "hot&1", "never"]);
    for name in keys {
        assert_eq!(
            get("bucket", name).refusal(&layer).await,
            "NoSuchKey",
            "{name}"
        );
    }
    assert_eq!(
        head("bucket", "cold1").refusal(&*rig.cold).await,
        "NoSuchKey"
    );
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    let listed = list_v2("bucket").expect(200, &*rig.cold).await;
    assert_eq!(listed.element("KeyCount"), "0");
}

#[tokio::test]
async fn an_upload_over_a_hot_object_leaves_the_old_one_when_it_fails() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "k").body("old").expect(200, &layer).await;
    let cut = || {
        let body = contract::bodies::broken(b"half");
        put("bucket", "k")
            .header("x-forebay-tier", "cold")
            .body(body)
    };
    assert!(cut().send(&layer).await.is_err());
    assert_eq!(get("bucket", "k").expect(200, &layer).await.text(), "old");
    put("bucket", "k")
        .header("x-forebay-tier", "cold")
        .body("new")
        .expect(200, &layer)
        .await;
    assert_eq!(get("bucket", "k").expect(200, &layer).await.text(), "new");
    assert_eq!(
        get("bucket", "k").expect(200, &*rig.cold).await.text(),
        "new"
    );
}

#[tokio::test]
async fn a_bucket_with_hot_objects_is_not_empty_and_goes_after_its_deletes() {
    let (rig, layer) = Rig::with_bucket().await;
    let remove = || contract::requests::delete_bucket("bucket");
    put("bucket", "k").body("x").expect(200, &layer).await;
    assert_eq!(remove().refusal(&layer).await, "BucketNotEmpty");
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    delete("bucket", "k").expect(204, &layer).await;
    assert_eq!(get("bucket", "k").expect(200, &*rig.cold).await.text(), "x");
    remove().expect(204, &layer).await;
    assert_eq!(
        put("bucket", "k").body("x").refusal(&layer).await,
        "NoSuchBucket"
    );
}

/// Gives every object the same address.
struct OneAddress;

#[async_trait::async_trait]
impl crate::Presigner for OneAddress {
    async fn presign(
        &self,
        object: &forebay_s3::operation::ObjectId,
        _: &forebay_store::Query,
    ) -> Option<String> {
        Some(format!("https://origin/{}/{}", object.bucket, object.key))
    }
}

#[tokio::test]
async fn a_client_that_says_it_can_is_sent_to_the_cold_store_for_a_large_object() {
    let rig = Rig::new();
    create_bucket("bucket").expect(200, &*rig.cold).await;
    let hot = IndexedHot::new(rig.parts.clone(), Space::parse("test").unwrap());
    let parts = TierParts {
        hot: Arc::new(hot),
        cold: rig.cold.clone(),
        presigner: Some(Arc::new(OneAddress)),
        clock: rig.clock.clone(),
        budget: Budget::new(64 << 20, Duration::ZERO),
        metrics: TierMetrics::new(),
        holder: "g1".to_owned(),
    };
    let settings = TierSettings {
        redirect_bytes_min: Some(100),
        ..TierSettings::default()
    };
    let layer = TierLayer::new(parts, settings);
    for (name, length) in [("large", 100), ("small", 99)] {
        put("bucket", name)
            .body(vec![1; length])
            .expect(200, &*rig.cold)
            .await;
    }
    let able = |name| get("bucket", name).header("x-forebay-redirect", "allow");
    let sent = able("large").range("bytes=1-2").expect(307, &layer).await;
    assert_eq!(sent.header("location"), "https://origin/bucket/large");
    able("small").expect(200, &layer).await;
    get("bucket", "large").expect(200, &layer).await;
    put("bucket", "large")
        .body(vec![1; 200])
        .expect(200, &layer)
        .await;
    able("large").expect(200, &layer).await;
    assert_eq!(able("gone").refusal(&layer).await, "NoSuchKey");
}
