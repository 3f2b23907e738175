//! What an operator sees of a cache and does to it.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use forebay_s3::{bucket::BucketName, key::ObjectKey};
use forebay_store::{
    RequestId,
    contract::requests::{self, bucket_name, object},
};

use super::origin::{Fixture, KIB, MIB, Setup, settings, soon};
use crate::{
    CacheSettings, Coherence, FoundStanding, Pinned, Rank, Selection, StaleReason, WarmCounts,
    WarmEnd, WarmOrder, WarmProgress,
};

fn bucket() -> BucketName {
    bucket_name("bucket")
}

fn one(key: &str) -> Selection {
    Selection::Object(bucket(), ObjectKey::parse(key).unwrap())
}

fn prefix(prefix: &str) -> Selection {
    Selection::Prefix(bucket(), prefix.to_owned())
}

async fn is_hit(fixture: &Fixture, key: &str) -> bool {
    fixture.asked();
    requests::head("bucket", key)
        .expect(200, &*fixture.cache)
        .await;
    fixture.asked().is_empty()
}

async fn filled(fixture: &Fixture, key: &str, length: u64) {
    fixture.put(key, length).await;
    fixture.get(key).await;
    fixture.settle().await;
}

fn order(selections: Vec<Selection>) -> WarmOrder {
    WarmOrder {
        selections,
        concurrency: NonZeroUsize::new(3).unwrap(),
        remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        request_id: RequestId(1),
    }
}

async fn warmed(fixture: &Fixture, selections: Vec<Selection>) -> (WarmEnd, WarmCounts) {
    let progress = Arc::new(WarmProgress::default());
    let operator = fixture.cache.operator();
    let end = soon(operator.warm(order(selections), &progress)).await;
    (end.unwrap(), progress.counts())
}

#[tokio::test]
async fn a_lookup_tells_what_is_stored_and_is_no_use_of_it() {
    let fixture = Setup::with_ttl(Duration::from_mins(1), Some(Duration::from_secs(50)))
        .build()
        .await;
    let operator = fixture.cache.operator();
    let lookup = async |key| operator.lookup(&object("bucket", key)).await;
    assert_eq!(lookup("key").await, None);
    fixture.put("key", 200 * KIB).await;
    requests::get("bucket", "key")
        .range("bytes=0-9")
        .expect(206, &*fixture.cache)
        .await;
    fixture.settle().await;
    fixture.clock.advance(Duration::from_secs(40));
    fixture.asked();
    let found = lookup("key").await.unwrap();
    assert_eq!((found.pages_count, found.pages_total), (1, 4));
    assert_eq!(found.size_bytes, 200 * KIB);
    assert_eq!((found.age, found.hits_count), (Duration::from_secs(40), 0));
    let left = Duration::from_secs(20);
    assert_eq!(found.standing, FoundStanding::Fresh(Some(left)));
    // Not read for 50 s: the lookup did not count.
    fixture.clock.advance(Duration::from_secs(10));
    let idle = FoundStanding::Stale(StaleReason::Tti);
    assert_eq!(lookup("key").await.unwrap().standing, idle);
    fixture.clock.advance(Duration::from_secs(10));
    let old = FoundStanding::Stale(StaleReason::Ttl);
    assert_eq!(lookup("key").await.unwrap().standing, old);
    assert!(fixture.asked().is_empty());
    let strict = Setup::with(Coherence::Strict).build().await;
    filled(&strict, "key", 10).await;
    let operator = strict.cache.operator();
    let found = operator.lookup(&object("bucket", "key")).await;
    let standing = FoundStanding::Stale(StaleReason::Strict);
    assert_eq!(found.unwrap().standing, standing);
}

#[tokio::test]
async fn the_top_leads_by_bytes_or_by_hits() {
    let fixture = Fixture::new().await;
    for (key, length) in [("large", 300 * KIB), ("small", 10), ("middle", 60 * KIB)] {
        filled(&fixture, key, length).await;
    }
    for key in ["small", "small", "middle"] {
        fixture.clock.advance(Duration::from_secs(2));
        fixture.get(key).await;
    }
    let operator = fixture.cache.operator();
    let top = |count, rank| -> Vec<_> {
        let top = operator.top(count, rank).into_iter();
        top.map(|ranked| ranked.object.key.to_string()).collect()
    };
    assert_eq!(top(9, Rank::Bytes), ["large", "middle", "small"]);
    assert_eq!(top(2, Rank::Hits), ["small", "middle"]);
    assert_eq!(top(0, Rank::Hits), [""; 0]);
    let sum: u64 = operator.top(9, Rank::Bytes).iter().map(|r| r.bytes).sum();
    assert_eq!(sum, operator.stats().used_bytes);
}

#[tokio::test]
async fn a_purge_makes_unknown_what_it_names_and_nothing_else() {
    let keys = ["a/1", "a/2", "ab", "b"];
    for (selection, gone) in [
        (one("a/1"), &keys[..1]),
        (prefix("a/"), &keys[..2]),
        (prefix("a"), &keys[..3]),
        (prefix("x"), &keys[..0]),
        (Selection::Bucket(bucket()), &keys[..]),
        (Selection::Bucket(bucket_name("other")), &keys[..0]),
        (Selection::All, &keys[..]),
    ] {
        let fixture = Fixture::new().await;
        for key in keys {
            filled(&fixture, key, 200 * KIB).await;
        }
        let operator = fixture.cache.operator();
        let before_bytes = operator.stats().used_bytes;
        let removed = operator.purge(&selection);
        assert_eq!(removed.records, gone.len() as u64, "{selection:?}");
        let after_bytes = operator.stats().used_bytes;
        assert_eq!(before_bytes - removed.bytes, after_bytes, "{selection:?}");
        assert_eq!(after_bytes == 0, gone.len() == keys.len(), "{selection:?}");
        // Of 200 KiB, each has a record and four pages.
        assert_eq!(operator.stats().purged_count, 5 * gone.len() as u64);
        fixture.audit();
        for key in keys {
            let is_kept = !gone.contains(&key);
            assert_eq!(is_hit(&fixture, key).await, is_kept, "{selection:?} {key}");
        }
    }
}

#[tokio::test]
async fn what_a_fill_read_before_a_purge_is_not_stored_after_it() {
    let selections = [
        one("key"),
        prefix("k"),
        Selection::Bucket(bucket()),
        Selection::All,
    ];
    // Of one page, whose record is stored at the end, and of several.
    for (selection, length) in selections
        .iter()
        .flat_map(|selection| [(selection, 50 * KIB), (selection, 100 * KIB)])
    {
        let fixture = Fixture::new().await;
        fixture.put("key", length).await;
        fixture.origin.gate.close_at(20 * KIB);
        let cache = Arc::clone(&fixture.cache);
        let reader =
            tokio::spawn(async move { requests::get("bucket", "key").expect(200, &*cache).await });
        fixture.origin.was_asked(1).await;
        fixture.cache.operator().purge(selection);
        fixture.origin.gate.open();
        let answer = soon(reader).await.unwrap();
        assert_eq!(answer.body.len() as u64, length);
        soon(fixture.settle()).await;
        assert!(
            !is_hit(&fixture, "key").await,
            "{selection:?} of {length} bytes"
        );
    }
}

#[tokio::test]
async fn what_was_warmed_is_a_hit() {
    let fixture = Fixture::new().await;
    for index in 0..7 {
        fixture.put(&format!("a/{index}"), 100 * KIB).await;
    }
    fixture.put("b+ c/&", 10).await;
    filled(&fixture, "b2", 10).await;
    let selections = vec![prefix("a/"), prefix("b"), one("nothing")];
    let (end, counts) = warmed(&fixture, selections).await;
    let expected = WarmCounts {
        found: 10,
        is_all_found: true,
        read: 8,
        fresh: 1,
        missing: 1,
        bytes: 700 * KIB + 10,
        ..WarmCounts::default()
    };
    assert_eq!((end, counts), (WarmEnd::Complete, expected));
    fixture.asked();
    fixture.get("a/6").await;
    fixture.get("b+ c/&").await;
    assert_eq!(fixture.asked(), [""; 0]);
    let (_, again) = warmed(&fixture, vec![prefix("a/")]).await;
    assert_eq!((again.fresh, again.read), (7, 0));
    assert_eq!(fixture.asked(), ["GET "], "only the listing is asked for");
}

#[tokio::test]
async fn a_warm_reads_batch_after_batch() {
    let fixture = Fixture::new().await;
    for index in 0..1001 {
        fixture.put(&format!("{index}"), 1).await;
    }
    let (_, counts) = warmed(&fixture, vec![Selection::Bucket(bucket())]).await;
    assert_eq!((counts.found, counts.read), (1001, 1001));
}

#[tokio::test]
async fn a_warm_reads_no_more_than_the_cache_holds() {
    let setup = Setup {
        settings: CacheSettings {
            capacity_bytes: MIB,
            ..settings()
        },
        ..Setup::default()
    };
    let fixture = setup.build().await;
    for index in 0..20 {
        fixture.put(&format!("{index:02}"), 100 * KIB).await;
    }
    let (end, counts) = warmed(&fixture, vec![Selection::Bucket(bucket())]).await;
    assert_eq!(end, WarmEnd::Full);
    assert_eq!((counts.bytes, counts.read), (1000 * KIB, 10));
}

#[tokio::test]
async fn a_warm_that_is_dropped_asks_no_more() {
    let fixture = Fixture::new().await;
    for index in 0..20 {
        fixture.put(&format!("{index:02}"), 100 * KIB).await;
    }
    fixture.asked();
    // Room for the listing, but not for an object.
    fixture.origin.gate.close_at(50_000);
    let operator = fixture.cache.operator();
    let warm = tokio::spawn(async move {
        let order = order(vec![Selection::Bucket(bucket())]);
        operator.warm(order, &Arc::default()).await
    });
    // The listing, and as many objects as are read at once.
    fixture.origin.was_asked(4).await;
    warm.abort();
    assert!(soon(warm).await.unwrap_err().is_cancelled());
    fixture.origin.gate.open();
    soon(fixture.settle()).await;
    assert_eq!(fixture.asked().len(), 4);
    let (_, counts) = warmed(&fixture, vec![one("05")]).await;
    assert_eq!(counts.read, 1, "another is not disturbed");
}

#[tokio::test]
async fn what_can_not_be_warmed_is_told() {
    let fixture = Fixture::new().await;
    let operator = fixture.cache.operator();
    for (selection, told) in [
        (Selection::All, "name a bucket to warm"),
        (Selection::Bucket(bucket_name("nowhere")), "list nowhere/: "),
    ] {
        let error = operator.warm(order(vec![selection]), &Arc::default()).await;
        let error = error.unwrap_err();
        assert!(error.starts_with(told), "{error}");
    }
}

#[tokio::test]
async fn a_pinned_object_stays_when_others_need_the_room() {
    let setup = Setup {
        settings: CacheSettings {
            capacity_bytes: 2 * MIB,
            ..settings()
        },
        ..Setup::default()
    };
    let fixture = setup.build().await;
    let operator = fixture.cache.operator();
    let key = ObjectKey::parse("pinned").unwrap();
    filled(&fixture, "pinned", 20 * KIB).await;
    let Pinned::Kept { pinned_bytes, .. } = operator.pin(&bucket(), &key) else {
        panic!("there is room for one name");
    };
    assert!(pinned_bytes >= 20 * KIB);
    assert_eq!(operator.stats().pinned_bytes, pinned_bytes);
    let pinned = object("bucket", "pinned");
    assert_eq!(operator.pinned(), std::slice::from_ref(&pinned));
    let fill_up = async || {
        for index in 0..60 {
            filled(&fixture, &format!("{index}"), 60 * KIB).await;
        }
    };
    fill_up().await;
    assert_eq!(
        operator.lookup(&pinned).await.unwrap().queue,
        Some("pinned")
    );
    operator.unpin(&bucket(), &key);
    fill_up().await;
    assert_eq!(operator.lookup(&pinned).await, None);
    assert_eq!(operator.stats().pinned_count, 0);
}

#[tokio::test]
async fn a_fill_is_settled_once_what_it_read_is_stored() {
    let fixture = Fixture::new().await;
    fixture.put("key", 300 * KIB).await;
    fixture.origin.gate.close_at(10);
    let cache = Arc::clone(&fixture.cache);
    let reader =
        tokio::spawn(async move { requests::get("bucket", "key").expect(200, &*cache).await });
    fixture.origin.was_asked(1).await;
    let layer = &fixture.cache.layer;
    let name_hash = layer
        .index
        .name_hash(&bucket(), &ObjectKey::parse("key").unwrap());
    let mut settled = pin!(layer.fills.settled(name_hash));
    let first = poll_fn(|cx| Poll::Ready(settled.as_mut().poll(cx))).await;
    assert_eq!(first, Poll::Pending);
    fixture.origin.gate.open();
    soon(settled).await;
    assert!(is_hit(&fixture, "key").await);
    let stored = layer.index.standing_of(&object("bucket", "key")).unwrap().0;
    assert!(layer.has_pages(&stored, &(0..300 * KIB)));
    soon(reader).await.unwrap();
}
