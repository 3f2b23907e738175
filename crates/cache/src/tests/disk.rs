//! The part of the cache that lies on disk: what gets there, what is found there, and that nothing
//! there outlives what is promised. (Its faults are those of a store that forgets: `forebay_disk`
//! tests what a disk does.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk::{PageId, PageStore, Put, Refusal, Stats, Unwritten, memory::MemoryPages};
use forebay_store::contract::requests;

use super::{
    origin::{Fixture, KIB, MIB, Setup, settings},
    schedules::Random,
};
use crate::{CacheSettings, Coherence, DiskPart, Matching, Place, Policy, Rule, Selection};

pub(super) fn part(store: Arc<dyn PageStore>) -> DiskPart {
    DiskPart {
        store,
        capacity_bytes: 1 << 30,
        index_bytes_max: 0,
        run: 1,
    }
}

/// A store of pages that loses pages, refuses some, and takes its time, in an order of its own that
/// is always the same.
#[derive(Debug, Default)]
pub(super) struct FlakyPages {
    pages: MemoryPages,
    calls: AtomicU64,
}

impl FlakyPages {
    fn one_in(&self, count: u64) -> bool {
        Random(self.calls.fetch_add(1, Ordering::Relaxed)).below(count) == 0
    }
}

#[async_trait]
impl PageStore for FlakyPages {
    async fn get(&self, id: PageId) -> Option<Bytes> {
        tokio::task::yield_now().await;
        let page = self.pages.get(id).await;
        if self.one_in(3) {
            self.pages.remove(id);
            return None;
        }
        page
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        if self.one_in(4) {
            self.pages.remove(id);
            return Put::Refused(Refusal::QueueFull);
        }
        self.pages.put(id, page)
    }

    fn contains(&self, id: PageId) -> bool {
        self.pages.contains(id)
    }

    fn remove(&self, id: PageId) {
        self.pages.remove(id);
    }

    fn stats(&self) -> Stats {
        self.pages.stats()
    }

    async fn flush(&self) -> Result<(), Unwritten> {
        self.pages.flush().await
    }

    async fn close(&self) -> Result<(), Unwritten> {
        self.pages.close().await
    }
}

/// Room for a dozen pages of 64 KiB in memory, beside what the disk part remembers.
fn small() -> CacheSettings {
    CacheSettings {
        capacity_bytes: 64 * 1024 * 4 + 800 * KIB,
        ..settings()
    }
}

async fn fixture(settings: CacheSettings) -> Fixture {
    Setup {
        settings,
        disk: Some(part(Arc::new(MemoryPages::new()))),
        ..Setup::default()
    }
    .build()
    .await
}

async fn status(fixture: &Fixture, key: &str, bytes: &Bytes) -> String {
    let answer = fixture.get(key).await;
    assert!(answer.body == *bytes, "{key}");
    fixture.settle().await;
    answer.cache.unwrap()
}

/// Fills memory with other things.
async fn push_out(fixture: &Fixture) {
    for n in 0..30 {
        let key = format!("other{n}");
        fixture.put(&key, 60 * KIB).await;
        fixture.get(&key).await;
        fixture.settle().await;
    }
    fixture.asked();
}

const FROM_DISK: &str = "forebay; hit; ttl=60; detail=disk";

#[tokio::test]
async fn what_comes_from_the_origin_twice_is_on_disk_and_what_comes_once_is_not() {
    for length in [1000, 300 * KIB] {
        let fixture = fixture(small()).await;
        let bytes = fixture.put("key", length).await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(status(&fixture, "key", &bytes).await);
            push_out(&fixture).await;
        }
        let asks = |status: &str| status.contains("fwd=");
        assert!(asks(&seen[0]) && asks(&seen[1]), "{length}: {seen:?}");
        assert_eq!(seen[2], FROM_DISK, "{length}");
    }
}

#[tokio::test]
async fn what_was_used_in_memory_goes_to_disk_when_it_leaves() {
    for length in [1000, 300 * KIB] {
        let fixture = fixture(small()).await;
        let bytes = fixture.put("key", length).await;
        status(&fixture, "key", &bytes).await;
        for _ in 0..4 {
            fixture.clock.advance(Duration::from_secs(2));
            assert!(status(&fixture, "key", &bytes).await.contains("hit"));
        }
        for _ in 0..6 {
            push_out(&fixture).await;
        }
        fixture.asked();
        let status = status(&fixture, "key", &bytes).await;
        assert_eq!(status, "forebay; hit; ttl=52; detail=disk", "{length}");
        assert!(fixture.asked().is_empty());
    }
}

/// Reads an object until it is on disk.
async fn settle_on_disk(fixture: &Fixture, key: &str, bytes: &Bytes) {
    for _ in 0..2 {
        status(fixture, key, bytes).await;
        push_out(fixture).await;
    }
}

#[tokio::test]
async fn after_a_restart_the_origin_vouches_once_and_sends_no_body() {
    for coherence in [
        settings().coherence,
        Coherence::Immutable,
        Coherence::Exclusive,
    ] {
        for length in [1000, 300 * KIB] {
            let mut fixture = fixture(CacheSettings {
                coherence,
                ..small()
            })
            .await;
            let bytes = fixture.put("key", length).await;
            settle_on_disk(&fixture, "key", &bytes).await;
            fixture.restart();
            let first = status(&fixture, "key", &bytes).await;
            assert!(first.contains("fwd=stale; fwd-status=304"), "{first}");
            assert_eq!(fixture.asked(), ["GET key if-none-match"], "{length}");
            assert_eq!(fixture.metrics().fill_bytes.get(), 0);
            assert!(status(&fixture, "key", &bytes).await.contains("hit"));
            assert!(fixture.asked().is_empty());
        }
    }
}

#[tokio::test]
async fn what_was_overwritten_before_a_restart_is_not_shown_after_it() {
    for coherence in [
        settings().coherence,
        Coherence::Immutable,
        Coherence::Exclusive,
    ] {
        let mut fixture = fixture(CacheSettings {
            coherence,
            ..small()
        })
        .await;
        let bytes = fixture.put("key", 1000).await;
        settle_on_disk(&fixture, "key", &bytes).await;
        fixture.restart();
        let newer = fixture.put_bytes("key", vec![7; 1000]).await;
        assert!(
            status(&fixture, "key", &newer)
                .await
                .contains("fwd-status=200")
        );
    }
}

#[tokio::test]
async fn what_is_read_often_is_on_disk_once_the_layer_is_closed() {
    let mut fixture = fixture(small()).await;
    let bytes = fixture.put("key", 300 * KIB).await;
    let small = fixture.put("small", 100).await;
    for _ in 0..3 {
        status(&fixture, "key", &bytes).await;
        status(&fixture, "small", &small).await;
        fixture.clock.advance(Duration::from_secs(2));
    }
    for version in fixture.cache.layer.used_versions() {
        fixture.cache.layer.keep_on_disk(&version).await;
    }
    fixture.restart();
    fixture.asked();
    for (key, bytes) in [("key", &bytes), ("small", &small)] {
        assert!(
            status(&fixture, key, bytes)
                .await
                .contains("fwd-status=304"),
            "{key}"
        );
    }
    assert_eq!(fixture.metrics().fill_bytes.get(), 0);
}

#[tokio::test]
async fn a_write_removes_what_is_on_disk_at_once() {
    for coherence in [
        settings().coherence,
        Coherence::Immutable,
        Coherence::Exclusive,
    ] {
        for length in [1000, 300 * KIB] {
            let fixture = fixture(CacheSettings {
                coherence,
                ..small()
            })
            .await;
            let bytes = fixture.put("key", length).await;
            settle_on_disk(&fixture, "key", &bytes).await;
            let newer = Bytes::from(vec![7; usize::try_from(length).unwrap()]);
            let put = requests::put("bucket", "key").body(newer.clone());
            put.expect(200, &*fixture.cache).await;
            assert!(status(&fixture, "key", &newer).await.contains("fwd="));
            requests::delete("bucket", "key")
                .expect(204, &*fixture.cache)
                .await;
            let gone = requests::get("bucket", "key").send(&*fixture.cache).await;
            assert!(gone.is_err() || gone.unwrap().status == 404);
        }
    }
}

#[tokio::test]
async fn after_a_purge_nothing_from_before_it_is_found_on_disk() {
    let bucket = || requests::bucket_name("bucket");
    for selection in [
        Selection::Object(bucket(), requests::object_key("key")),
        Selection::Prefix(bucket(), "k".to_owned()),
        Selection::Bucket(bucket()),
        Selection::All,
    ] {
        for length in [1000, 300 * KIB] {
            let mut fixture = fixture(CacheSettings {
                coherence: Coherence::Immutable,
                ..small()
            })
            .await;
            let bytes = fixture.put("key", length).await;
            settle_on_disk(&fixture, "key", &bytes).await;
            fixture.restart();
            status(&fixture, "key", &bytes).await;
            push_out(&fixture).await;
            fixture.cache.operator().purge(&selection);
            let first = status(&fixture, "key", &bytes).await;
            assert!(first.contains("fwd=uri-miss"), "{selection:?} {first}");
            push_out(&fixture).await;
            let second = status(&fixture, "key", &bytes).await;
            assert!(second.contains("fwd="), "{selection:?} {length} {second}");
        }
    }
}

#[tokio::test]
async fn a_lookup_tells_what_is_on_disk() {
    let fixture = fixture(small()).await;
    let bytes = fixture.put("key", 300 * KIB).await;
    settle_on_disk(&fixture, "key", &bytes).await;
    for _ in 0..4 {
        push_out(&fixture).await;
    }
    let operator = fixture.cache.operator();
    let object = requests::object("bucket", "key");
    let found = operator.lookup(&object).await.unwrap();
    assert_eq!(found.disk_pages_count, 5);
    assert_eq!((found.pages_total, found.size_bytes), (5, 300 * KIB));
    assert!(operator.stats().disk.unwrap().entries_count >= 6);
    assert!(fixture.asked().is_empty());
}

/// A store whose third page of everything turns out to be damaged.
#[derive(Debug, Default)]
struct DamagedPages(MemoryPages);

#[async_trait]
impl PageStore for DamagedPages {
    async fn get(&self, id: PageId) -> Option<Bytes> {
        if id.index == 2 {
            self.0.remove(id);
        }
        self.0.get(id).await
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        self.0.put(id, page)
    }

    fn contains(&self, id: PageId) -> bool {
        self.0.contains(id)
    }

    fn remove(&self, id: PageId) {
        self.0.remove(id);
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    async fn flush(&self) -> Result<(), Unwritten> {
        self.0.flush().await
    }

    async fn close(&self) -> Result<(), Unwritten> {
        self.0.close().await
    }
}

#[tokio::test]
async fn what_is_damaged_in_the_middle_comes_from_the_origin() {
    let mut fixture = Setup {
        settings: small(),
        disk: Some(part(Arc::new(DamagedPages::default()))),
        ..Setup::default()
    }
    .build()
    .await;
    let bytes = fixture.put("key", 500 * KIB).await;
    settle_on_disk(&fixture, "key", &bytes).await;
    fixture.restart();
    let first = status(&fixture, "key", &bytes).await;
    assert!(first.contains("fwd-status=304"), "{first}");
    let rest = "GET key bytes=131072-511999 if-match";
    assert_eq!(fixture.asked(), ["GET key if-none-match", rest]);
    assert_eq!(fixture.metrics().fills_failed.get(), 0);
}

#[tokio::test]
async fn readers_of_one_object_on_disk_read_it_once() {
    let fixture = Arc::new(fixture(small()).await);
    let bytes = fixture.put("key", 30 * KIB).await;
    settle_on_disk(&fixture, "key", &bytes).await;
    let before = fixture.metrics().disk_hit_bytes.get();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let (fixture, bytes) = (Arc::clone(&fixture), bytes.clone());
            tokio::spawn(async move { assert!(fixture.get("key").await.body == bytes) })
        })
        .collect();
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(fixture.metrics().disk_hit_bytes.get() - before, 30 * KIB);
    assert!(fixture.asked().is_empty());
}

#[tokio::test]
async fn rules_keep_objects_in_memory_or_on_disk_alone() {
    let of = |prefix: &str, place| Rule {
        matching: Matching {
            prefix: Some(prefix.to_owned()),
            ..Matching::default()
        },
        policy: Policy {
            place,
            ..settings().policy()
        },
    };
    let fixture = fixture(CacheSettings {
        rules: vec![of("memory", Place::Memory), of("disk", Place::Disk)],
        ..small()
    })
    .await;
    for length in [1000, 300 * KIB] {
        let key = format!("memory{length}");
        let bytes = fixture.put(&key, length).await;
        for _ in 0..3 {
            assert!(status(&fixture, &key, &bytes).await.contains("fwd="));
            push_out(&fixture).await;
        }
        let key = format!("disk{length}");
        let bytes = fixture.put(&key, length).await;
        assert!(status(&fixture, &key, &bytes).await.contains("fwd="));
        let used = fixture.cache.used_bytes();
        assert_eq!(status(&fixture, &key, &bytes).await, FROM_DISK, "{length}");
        assert!(fixture.cache.used_bytes() <= used + 4 * KIB, "{length}");
    }
    fixture.audit();
    assert!(fixture.cache.used_bytes() < 2 * MIB);
}

#[tokio::test]
async fn what_lies_on_disk_alone_is_vouched_for_once() {
    let policy = Policy {
        place: Place::Disk,
        ..settings().policy()
    };
    for length in [0, 1000, 300 * KIB] {
        let mut fixture = fixture(CacheSettings {
            rules: vec![Rule {
                matching: Matching::default(),
                policy,
            }],
            ..small()
        })
        .await;
        let bytes = fixture.put("key", length).await;
        status(&fixture, "key", &bytes).await;
        fixture.restart();
        for _ in 0..2 {
            fixture.asked();
            let first = status(&fixture, "key", &bytes).await;
            assert!(
                first.contains("fwd=stale; fwd-status=304"),
                "{length}: {first}"
            );
            assert_eq!(fixture.asked(), ["GET key if-none-match"], "{length}");
            for _ in 0..2 {
                assert!(status(&fixture, "key", &bytes).await.contains("hit"));
            }
            assert!(fixture.asked().is_empty(), "{length}");
            fixture.clock.advance(Duration::from_mins(1));
        }
    }
}
