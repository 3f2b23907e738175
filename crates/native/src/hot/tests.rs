//! What a hot store promises, over the index in memory.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, etag::ETag, key::ObjectKey};
use forebay_store::Clock;

use super::*;
use crate::{
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
    record::Attributes,
};

fn parts() -> Parts {
    Parts {
        index: Arc::new(MemoryIndex::new()),
        blobs: Arc::new(MemoryBlobs::new()),
        leases: Arc::new(MemoryLeases::new(Clock::manual(SystemTime::UNIX_EPOCH))),
        durability: HotDurability::Local,
    }
}

fn space(name: &str) -> Space {
    Space::parse(name).unwrap()
}

fn key(bucket: &str, key: &str) -> HotKey {
    HotKey {
        bucket: BucketName::parse(bucket).unwrap(),
        key: ObjectKey::parse(key).unwrap(),
    }
}

fn record(write: &str, holding: Holding) -> HotRecord {
    HotRecord {
        write: write.to_owned(),
        acknowledged_ms: 1000,
        known: Vec::new(),
        doubt_ms: 0,
        late_ms: 0,
        holding,
    }
}

fn object(size_bytes: u64) -> Holding {
    Holding::Dirty(ObjectRecord {
        etag: ETag::strong("e").unwrap(),
        size_bytes,
        modified_ms: 1,
        attributes: Attributes::default(),
        checksum: None,
        part_count: None,
        upload_id: None,
    })
}

async fn put(hot: &IndexedHot, key: &HotKey, from: Option<&Held>, to: HotRecord, bytes: HotBytes) {
    let to = Some((to, bytes));
    let swapped = hot.swap(Swap { key, from, to }).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
}

async fn get(hot: &IndexedHot, key: &HotKey) -> Held {
    hot.get(key, Want::Payload).await.unwrap().unwrap()
}

#[tokio::test]
async fn record_queue_and_totals_change_together() {
    let hot = IndexedHot::new(parts(), space("a"));
    let k = key("bucket", "k\0\u{ff}");
    put(
        &hot,
        &k,
        None,
        record("1", object(3)),
        HotBytes::New(Bytes::from_static(b"abc")),
    )
    .await;
    let first = get(&hot, &k).await;
    assert_eq!(first.payload.as_deref(), Some(&b"abc"[..]));
    let aging = hot.queue(Queue::Aging, None, 10).await.unwrap();
    assert_eq!(
        aging,
        [Queued {
            at_ms: 1000,
            key: k.clone()
        }]
    );
    assert_eq!(hot.totals().await.unwrap().dirty_bytes, 3);
    // A second writer that saw nothing there changes nothing.
    let to = Some((record("2", object(9)), HotBytes::None));
    let swap = Swap {
        key: &k,
        from: None,
        to,
    };
    assert_eq!(hot.swap(swap).await.unwrap(), Swapped::Changed);
    put(
        &hot,
        &k,
        Some(&first),
        record("3", Holding::Tombstone),
        HotBytes::None,
    )
    .await;
    assert_eq!(hot.queue(Queue::Aging, None, 10).await.unwrap(), []);
    let totals = hot.totals().await.unwrap();
    assert_eq!(
        (
            totals.dirty_bytes,
            totals.dirty_count,
            totals.tombstones_count
        ),
        (0, 0, 1)
    );
    let now = get(&hot, &k).await;
    assert_eq!(now.payload, None);
    // Of what was read before, the bytes are gone.
    let unread = Held {
        payload: None,
        ..first
    };
    assert!(hot.bytes(&k, &unread, 0..3).await.unwrap().is_none());
    let swap = Swap {
        key: &k,
        from: Some(&now),
        to: None,
    };
    hot.swap(swap).await.unwrap();
    assert!(hot.totals().await.unwrap().is_clean());
    assert!(hot.get(&k, Want::Value).await.unwrap().is_none());
}

#[tokio::test]
async fn a_payload_too_large_for_the_index_is_a_blob_and_goes_with_its_record() {
    let blobs = Arc::new(MemoryBlobs::new());
    let parts = Parts {
        blobs: blobs.clone(),
        ..parts()
    };
    let hot = IndexedHot::new(parts.clone(), space("a"));
    let large = Bytes::from(vec![7; parts.index.payload_bytes_max() + 1]);
    let size = large.len() as u64;
    let k = key("bucket", "k");
    put(
        &hot,
        &k,
        None,
        record("1", object(size)),
        HotBytes::New(large),
    )
    .await;
    let first = get(&hot, &k).await;
    assert_eq!((first.payload.clone(), blobs.ids().len()), (None, 1));
    let body = hot.bytes(&k, &first, 2..5).await.unwrap().unwrap();
    assert_eq!(body.collect(9).await.unwrap().0, vec![7; 3]);
    put(
        &hot,
        &k,
        Some(&first),
        record("2", object(size)),
        HotBytes::Kept,
    )
    .await;
    let second = get(&hot, &k).await;
    assert!(hot.bytes(&k, &second, 0..size).await.unwrap().is_some());
    let mut references = crate::indexed::References::new();
    let mut named = Vec::new();
    while let Some(found) = references.next(&*parts.index).await.unwrap() {
        named.extend(found);
    }
    assert_eq!(named, blobs.ids());
    put(
        &hot,
        &k,
        Some(&second),
        record("3", object(1)),
        HotBytes::New("x".into()),
    )
    .await;
    assert_eq!(blobs.ids(), []);
    assert!(hot.bytes(&k, &second, 0..1).await.unwrap().is_none());
}

#[tokio::test]
async fn ranges_keep_to_their_bucket_and_space() {
    let parts = parts();
    let hot = IndexedHot::new(parts.clone(), space("a"));
    let other = IndexedHot::new(parts, space("ab"));
    for (bucket, name) in [
        ("bucket", "a"),
        ("bucket", "b"),
        ("bucket", "\u{10ffff}"),
        ("bucket2", "a"),
    ] {
        put(
            &hot,
            &key(bucket, name),
            None,
            record("1", object(1)),
            HotBytes::None,
        )
        .await;
    }
    put(
        &other,
        &key("bucket", "c"),
        None,
        record("1", object(1)),
        HotBytes::None,
    )
    .await;
    let bucket = BucketName::parse("bucket").unwrap();
    let range = |from: &str, to: Vec<u8>| hot.range(&bucket, from.into()..to, 10);
    let keys = |found: Vec<(ObjectKey, Held)>| {
        found
            .into_iter()
            .map(|(key, _)| key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(range("", vec![0xff]).await.unwrap()),
        ["a", "b", "\u{10ffff}"]
    );
    assert_eq!(keys(range("a\0", b"b".to_vec()).await.unwrap()), [""; 0]);
    assert_eq!(keys(range("b", b"c".to_vec()).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn spaces_that_no_tier_uses_are_found_while_they_hold_what_is_dirty() {
    let parts = parts();
    let k = key("bucket", "k");
    for name in ["a", "b", "c"] {
        let hot = IndexedHot::new(parts.clone(), space(name));
        put(&hot, &k, None, record("1", object(5)), HotBytes::None).await;
    }
    let c = IndexedHot::new(parts.clone(), space("c"));
    let held = get(&c, &k).await;
    put(
        &c,
        &k,
        Some(&held),
        record("2", Holding::Settling(9)),
        HotBytes::None,
    )
    .await;
    let found = stranded(&parts, &[space("a")]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0.as_str(), found[0].1.dirty_bytes), ("b", 5));
}

#[test]
fn values_are_read_back_as_they_were() {
    for holding in [
        object(7),
        Holding::Tombstone,
        Holding::Buried(5),
        Holding::Settling(6),
    ] {
        let mut before = record("w", holding);
        before.known.push("\"x\"".into());
        (before.doubt_ms, before.late_ms) = (4, 5);
        let value = names::Value {
            record: before.clone(),
            blob: Some("b".into()),
        };
        let text = serde_json::to_string(&value).unwrap();
        let after: names::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (after.record, after.blob.as_deref()),
            (before, Some("b")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_space_is_one_cold_stores_until_nothing_in_it_is_to_be_moved() {
    let parts = parts();
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
    let (first, moved) = (names(&["http://a"]), names(&["http://a", "http://b"]));
    let (later, other) = (names(&["http://b"]), names(&["http://c"]));
    let space = space("s");
    let hot = IndexedHot::new(parts.clone(), space.clone());
    for ours in [&first, &first, &moved, &later] {
        let home = take_home(&parts, &space, ours).await.unwrap();
        assert_eq!(home, Home::Ours, "{ours:?}");
    }
    // Nothing is in it yet, so it changes hands.
    assert_eq!(take_home(&parts, &space, &other).await.unwrap(), Home::Ours);
    let key = key("bucket", "key");
    put(
        &hot,
        &key,
        None,
        record("w", object(1)),
        HotBytes::New("x".into()),
    )
    .await;
    assert_eq!(
        take_home(&parts, &space, &first).await.unwrap(),
        Home::Other {
            cold: other.clone()
        }
    );
    assert_eq!(take_home(&parts, &space, &other).await.unwrap(), Home::Ours);
    let elsewhere = Space::parse("t").unwrap();
    assert_eq!(
        take_home(&parts, &elsewhere, &first).await.unwrap(),
        Home::Ours
    );
}
