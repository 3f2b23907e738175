//! Answers that are kept whole: listings and what is said of buckets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{
    Body, Error, Request, Response, Store,
    contract::requests::{self, Answer, Builder},
    faulty::Fault,
};
use forebay_telemetry::cache::KeptEvent;
use http::{HeaderValue, StatusCode, header};
use tokio::sync::oneshot;

use super::{
    origin::{Fixture, MIB, Setup, settings, soon},
    writes::Late,
};
use crate::{CacheSettings, Coherence, Directives, KeptSettings, Lasting, Matching, Policy, Rule};

mod model;

/// Each operation kept for this long.
fn all_for(ttl: Duration, tti: Option<Duration>) -> KeptSettings {
    let keep = Lasting::For { ttl, tti };
    KeptSettings {
        list_objects: keep,
        list_objects_v2: keep,
        list_object_versions: keep,
        head_bucket: keep,
        list_buckets: keep,
        ..KeptSettings::default()
    }
}

fn setup(coherence: Coherence, kept: KeptSettings) -> Setup {
    let settings = CacheSettings {
        coherence,
        kept,
        ..settings()
    };
    Setup {
        settings,
        ..Setup::default()
    }
}

/// A cache that keeps listings until a write, before some objects.
async fn exclusive() -> Fixture {
    let fixture = Setup::with(Coherence::Exclusive).build().await;
    for key in ["a/1", "a/2", "b/1", "c"] {
        fixture.put(key, 10).await;
    }
    fixture
}

fn listing(prefix: &str) -> Builder {
    requests::list_v2("bucket").query("prefix", prefix)
}

async fn keys(fixture: &Fixture, prefix: &str) -> Vec<String> {
    let answer = listing(prefix).expect(200, &*fixture.cache).await;
    answer.elements("Key")
}

/// How often the origin is asked for this.
async fn asks(fixture: &Fixture, builder: Builder) -> usize {
    fixture.asked();
    builder.expect(200, &*fixture.cache).await;
    fixture.asked().len()
}

#[tokio::test]
async fn exclusive_keeps_a_listing_until_a_write_that_may_change_it() {
    let fixture = exclusive().await;
    assert_eq!(keys(&fixture, "a/").await, ["a/1", "a/2"]);
    keys(&fixture, "").await;
    keys(&fixture, "b/").await;
    fixture.clock.advance(Duration::from_secs(1_000_000));
    let hit = listing("a/").expect(200, &*fixture.cache).await;
    assert_eq!(hit.cache.as_deref(), Some("forebay; hit"));
    assert_eq!(hit.header("age"), "1000000");
    let put = requests::put("bucket", "a/3").body("new");
    put.expect(200, &*fixture.cache).await;
    assert_eq!(asks(&fixture, listing("b/")).await, 0);
    assert_eq!(keys(&fixture, "a/").await, ["a/1", "a/2", "a/3"]);
    assert_eq!(keys(&fixture, "").await.len(), 5);
    assert_eq!(fixture.asked().len(), 2);
    fixture.cache.layer.kept.audit();
}

#[tokio::test]
async fn each_write_drops_the_listings_it_may_change() {
    type Write = fn() -> Builder;
    let writes: [(&str, Write, bool); 6] = [
        ("put", || requests::put("bucket", "a/1").body("new"), false),
        ("delete", || requests::delete("bucket", "a/1"), false),
        (
            "copy",
            || requests::copy(("bucket", "c"), ("bucket", "a/9")),
            false,
        ),
        (
            "delete many",
            || requests::delete_many("bucket", &["a/1", "x"]),
            false,
        ),
        (
            "tags",
            || requests::put_tags("bucket", "a/1", &[("a", "b")]),
            false,
        ),
        ("bucket", || requests::delete_bucket("bucket"), true),
    ];
    for (name, write, drops_all) in writes {
        let fixture = exclusive().await;
        for prefix in ["", "a", "a/1", "a/", "b/"] {
            keys(&fixture, prefix).await;
        }
        let delimited = || {
            listing("")
                .query("delimiter", "/")
                .query("start-after", "b")
        };
        delimited().expect(200, &*fixture.cache).await;
        drop(write().send(&*fixture.cache).await);
        for prefix in ["", "a", "a/"] {
            assert_eq!(asks(&fixture, listing(prefix)).await, 1, "{name} {prefix}");
        }
        assert_eq!(asks(&fixture, delimited()).await, 1, "{name}");
        let own_name = usize::from(name != "copy");
        let asked = asks(&fixture, listing("a/1")).await;
        assert_eq!(asked, own_name, "{name}: the key is the prefix");
        let elsewhere = asks(&fixture, listing("b/")).await;
        assert_eq!(elsewhere, usize::from(drops_all), "{name}");
        fixture.cache.layer.kept.audit();
    }
}

#[tokio::test]
async fn what_is_said_of_buckets_is_dropped_with_them() {
    let kept = all_for(Duration::from_hours(1), None);
    let fixture = setup(Coherence::Exclusive, kept).build().await;
    for expected in [1, 0] {
        assert_eq!(asks(&fixture, requests::list_buckets()).await, expected);
        let head = requests::head_bucket("bucket");
        assert_eq!(asks(&fixture, head).await, expected);
    }
    let put = requests::put("bucket", "key").body("new");
    put.expect(200, &*fixture.cache).await;
    let head = || requests::head_bucket("bucket");
    assert_eq!(asks(&fixture, head()).await, 0, "a write of a key");
    let create = requests::create_bucket("another");
    create.expect(200, &*fixture.cache).await;
    assert_eq!(asks(&fixture, head()).await, 0, "another bucket");
    let buckets = requests::list_buckets();
    let names = buckets.expect(200, &*fixture.cache).await.elements("Name");
    assert_eq!(names, ["another", "bucket"]);
    let delete = requests::delete_bucket("another");
    delete.expect(204, &*fixture.cache).await;
    let gone = requests::head_bucket("another").send(&*fixture.cache).await;
    assert!(gone.is_err(), "{gone:?}");
    assert_eq!(asks(&fixture, requests::list_buckets()).await, 1);
}

#[tokio::test]
async fn other_modes_keep_no_listing_unless_told_to() {
    for coherence in [
        Coherence::Strict,
        Coherence::Immutable,
        CacheSettings::default().coherence,
    ] {
        let fixture = Setup::with(coherence).build().await;
        for _ in 0..2 {
            let answer = listing("").expect(200, &*fixture.cache).await;
            assert_eq!(answer.cache.as_deref(), Some("forebay; fwd=bypass"));
        }
    }
    let kept = all_for(Duration::from_hours(1), None);
    let fixture = setup(Coherence::Strict, kept).build().await;
    for _ in 0..2 {
        assert_eq!(asks(&fixture, listing("")).await, 1, "never in strict");
    }
}

#[tokio::test]
async fn a_listing_is_no_older_than_its_ttl_and_its_tti() {
    let second = Duration::from_secs(1);
    let kept = all_for(10 * second, Some(4 * second));
    let fixture = setup(CacheSettings::default().coherence, kept)
        .build()
        .await;
    let cache_of = async || {
        let answer = listing("").expect(200, &*fixture.cache).await;
        (
            answer.cache.clone().unwrap(),
            answer.header("age").to_owned(),
        )
    };
    let first = "forebay; fwd=uri-miss; fwd-status=200; stored";
    assert_eq!(cache_of().await, (first.to_owned(), String::new()));
    fixture.put("new", 1).await;
    for (age, left) in [(3, 7), (6, 4), (9, 1)] {
        fixture.clock.advance(3 * second);
        let hit = format!("forebay; hit; ttl={left}");
        assert_eq!(cache_of().await, (hit, age.to_string()));
    }
    fixture.clock.advance(second);
    let stale = "forebay; fwd=stale; fwd-status=200; stored";
    assert_eq!(cache_of().await.0, stale, "by ttl");
    fixture.clock.advance(3 * second);
    assert_eq!(cache_of().await.0, "forebay; hit; ttl=7");
    fixture.clock.advance(4 * second);
    assert_eq!(cache_of().await.0, stale, "by tti");
}

#[tokio::test]
async fn a_listing_asked_for_before_a_write_is_neither_kept_nor_joined_after_it() {
    let fixture = exclusive().await;
    fixture.origin.gate.close_at(10);
    let begun = listing("a/").call(&*fixture.cache).await.unwrap();
    fixture.asked();
    let put = requests::put("bucket", "a/3").body("new");
    put.expect(200, &*fixture.cache).await;
    let cache = Arc::clone(&fixture.cache);
    let later = tokio::spawn(async move { listing("a/").expect(200, &*cache).await });
    fixture.origin.was_asked(2).await;
    // The old one ends, and the new one, which is longer, does not yet.
    fixture.origin.gate.close_at(begun.body.length().unwrap());
    let (old, _) = begun.body.collect(usize::MAX).await.unwrap();
    assert!(!String::from_utf8_lossy(&old).contains("a/3"));
    let cache = Arc::clone(&fixture.cache);
    let joined = tokio::spawn(async move { listing("a/").expect(200, &*cache).await });
    while fixture.metrics().collapsed.get() == 0 && !joined.is_finished() {
        tokio::task::yield_now().await;
    }
    fixture.origin.gate.open();
    let keys_of = |answer: &Answer| answer.elements("Key").len();
    assert_eq!(keys_of(&later.await.unwrap()), 3);
    assert_eq!(keys_of(&joined.await.unwrap()), 3);
    assert_eq!(keys(&fixture, "a/").await.len(), 3);
    fixture.cache.layer.kept.audit();
}

#[tokio::test]
async fn a_listing_read_during_a_write_is_dropped_by_its_end() {
    let fixture = exclusive().await;
    fixture.asked();
    let (sender, receiver) = oneshot::channel();
    let put = requests::put("bucket", "a/3").body(Body::stream(Late(receiver)));
    let cache = Arc::clone(&fixture.cache);
    let write = tokio::spawn(async move { put.expect(200, &*cache).await });
    fixture.origin.was_asked(1).await;
    assert_eq!(keys(&fixture, "a/").await.len(), 2);
    assert_eq!(asks(&fixture, listing("a/")).await, 0);
    sender.send(()).unwrap();
    write.await.unwrap();
    assert_eq!(keys(&fixture, "a/").await.len(), 3);
}

#[tokio::test]
async fn those_who_list_the_same_are_one_request_and_no_slow_or_gone_client_holds_them_up() {
    let fixture = exclusive().await;
    fixture.asked();
    fixture.origin.gate.close_at(100);
    let mut first = listing("").call(&*fixture.cache).await.unwrap();
    let piece = first.body.frame().await.unwrap().unwrap();
    assert_eq!(piece.into_data().unwrap().len(), 100, "as they come");
    let followers: Vec<_> = (0..20)
        .map(|_| {
            let cache = Arc::clone(&fixture.cache);
            tokio::spawn(async move { listing("").expect(200, &*cache).await })
        })
        .collect();
    while fixture.metrics().collapsed.get() < 20 {
        tokio::task::yield_now().await;
    }
    drop(first);
    fixture.origin.gate.open();
    for follower in followers {
        let answer = soon(follower).await.unwrap();
        assert_eq!(answer.elements("Key").len(), 4);
        let status = "forebay; fwd=uri-miss; fwd-status=200; stored; collapsed";
        assert_eq!(answer.cache.as_deref(), Some(status));
    }
    assert_eq!(fixture.asked().len(), 1);
    assert_eq!(asks(&fixture, listing("")).await, 0, "it was kept");
}

#[tokio::test]
async fn a_request_that_all_have_left_is_given_up() {
    let fixture = exclusive().await;
    fixture.origin.gate.close_at(100);
    let first = listing("").call(&*fixture.cache).await.unwrap();
    drop(first);
    soon(async {
        while fixture.cache.layer.kept.place_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixture.origin.gate.open();
    assert_eq!(asks(&fixture, listing("")).await, 1);
    assert_eq!(asks(&fixture, listing("")).await, 0);
}

#[tokio::test]
async fn when_the_first_fails_the_next_takes_over() {
    let fixture = exclusive().await;
    fixture.asked();
    fixture
        .origin
        .store
        .script([Fault::Unavailable, Fault::CutAfter(20)]);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let cache = Arc::clone(&fixture.cache);
            tokio::spawn(async move { listing("").send(&*cache).await })
        })
        .collect();
    let mut failed = 0;
    for reader in readers {
        match soon(reader).await.unwrap() {
            Ok(answer) => assert_eq!(answer.elements("Key").len(), 4),
            Err(_) => failed += 1,
        }
    }
    assert_eq!((failed, fixture.asked().len()), (2, 3));
}

/// Answers each request with a text of its own, of this length.
struct Telling {
    calls: AtomicU64,
    status: StatusCode,
    length: usize,
}

#[async_trait]
impl Store for Telling {
    async fn call(&self, _: Request) -> Result<Response, Error> {
        tokio::task::yield_now().await;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let text = format!("{call}{}", "x".repeat(self.length));
        Ok(Response::new(self.status)
            .with_header(header::DATE, HeaderValue::from_static("today"))
            .with_header(header::SERVER, HeaderValue::from_static("origin"))
            .with_body(text))
    }
}

/// The texts of answers to some readers that come together.
async fn told(origin: Arc<Telling>, readers: usize) -> (Vec<Bytes>, u64) {
    let cache = Arc::new(Setup::with(Coherence::Exclusive).over(origin));
    let readers: Vec<_> = (0..readers)
        .map(|_| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move { listing("").send(&*cache).await.unwrap().body })
        })
        .collect();
    let mut texts = Vec::new();
    for reader in readers {
        texts.push(soon(reader).await.unwrap());
    }
    texts.sort();
    texts.dedup();
    (texts, cache.used_bytes())
}

#[tokio::test]
async fn only_a_200_that_is_not_too_large_is_kept_and_shared() {
    for (status, length, is_shared) in [
        (StatusCode::OK, 1000, true),
        (StatusCode::OK, 2 << 20, false),
        (StatusCode::FORBIDDEN, 10, false),
        (StatusCode::NOT_FOUND, 10, false),
        (StatusCode::SERVICE_UNAVAILABLE, 10, false),
    ] {
        let origin = Arc::new(Telling {
            calls: AtomicU64::new(0),
            status,
            length,
        });
        let (texts, used_bytes) = told(origin, 10).await;
        let expected = if is_shared { 1 } else { 10 };
        assert_eq!(texts.len(), expected, "{status} of {length}");
        assert!(texts.iter().all(|text| text.len() == length + 1));
        assert_eq!(used_bytes > 0, is_shared, "{status} of {length}");
    }
}

#[tokio::test]
async fn what_belongs_to_one_answer_is_not_kept() {
    let origin = Arc::new(Telling {
        calls: AtomicU64::new(0),
        status: StatusCode::OK,
        length: 10,
    });
    let cache = Setup::with(Coherence::Exclusive).over(origin);
    let first = listing("").expect(200, &cache).await;
    assert_eq!(first.header("date"), "today");
    let second = listing("").expect(200, &cache).await;
    let headers = ["date", "server", "content-length", "age"];
    let expected = ["", "origin", "11", "0"];
    assert_eq!(headers.map(|name| second.header(name)), expected);
    assert_eq!(first.body, second.body);
}

#[tokio::test]
async fn directives_of_the_client_are_honoured_for_listings_too() {
    let fixture = exclusive().await;
    keys(&fixture, "").await;
    fixture.put("new", 1).await;
    let directed = |value| listing("").header("cache-control", value);
    let answer = directed("no-store").expect(200, &*fixture.cache).await;
    assert_eq!(answer.elements("Key").len(), 5);
    assert_eq!(keys(&fixture, "").await.len(), 4, "nothing of it is kept");
    let answer = directed("no-cache").expect(200, &*fixture.cache).await;
    let status = "forebay; fwd=request; fwd-status=200; stored";
    assert_eq!(answer.cache.as_deref(), Some(status));
    assert_eq!(keys(&fixture, "").await.len(), 5);
    let mut setup = Setup::with(Coherence::Exclusive);
    setup.settings.client_directives = Directives::Ignore;
    let fixture = setup.build().await;
    keys(&fixture, "").await;
    assert_eq!(asks(&fixture, directed("no-cache")).await, 0);
}

#[tokio::test]
async fn a_write_of_unknown_outcome_keeps_its_bucket_from_being_listed_from_memory() {
    let fixture = exclusive().await;
    fixture.origin.store.script([Fault::AnswerLost]);
    let put = requests::put("bucket", "a/3").body("new");
    drop(put.send(&*fixture.cache).await);
    for _ in 0..2 {
        assert_eq!(asks(&fixture, listing("")).await, 1);
    }
    fixture.clock.advance(Duration::from_mins(15));
    for expected in [1, 0] {
        assert_eq!(asks(&fixture, listing("")).await, expected);
    }
}

#[tokio::test]
async fn kept_answers_have_a_bounded_part_of_the_capacity_and_the_used_stay() {
    let settings = CacheSettings {
        capacity_bytes: MIB,
        coherence: Coherence::Exclusive,
        ..settings()
    };
    let fixture = Setup {
        settings,
        ..Setup::default()
    }
    .build()
    .await;
    let often = || listing("often");
    often().expect(200, &*fixture.cache).await;
    for index in 0..300 {
        keys(&fixture, &format!("prefix{index}")).await;
        assert_eq!(asks(&fixture, often()).await, 0, "{index}");
    }
    let used_bytes = fixture.cache.layer.kept.used_bytes();
    assert!(
        used_bytes > MIB / 32 && used_bytes <= MIB / 16,
        "{used_bytes}"
    );
    assert_eq!(asks(&fixture, listing("prefix299")).await, 0);
    assert_eq!(asks(&fixture, listing("prefix0")).await, 1);
    fixture.cache.layer.kept.audit();
    let kept = &fixture.metrics().kept;
    let count = |event| kept.total(event, "ListObjectsV2");
    assert!(count(KeptEvent::Evicted) > 200);
    assert_eq!(count(KeptEvent::Hit), 301);
    assert_eq!(count(KeptEvent::Miss), 302);
    assert_eq!(
        u64::try_from(kept.used.get()).unwrap(),
        fixture.cache.layer.kept.used_bytes()
    );
    let delete = requests::delete_bucket("bucket");
    drop(delete.send(&*fixture.cache).await);
    assert_eq!(fixture.cache.layer.kept.used_bytes(), 0);
    assert!(count(KeptEvent::Invalidated) > 10);
}

#[tokio::test]
async fn a_bucket_whose_objects_may_change_around_the_gateway_is_not_kept_until_a_write() {
    let rule = |buckets: &str, prefix: Option<&str>, coherence| Rule {
        matching: Matching {
            buckets: vec![buckets.to_owned()],
            prefix: prefix.map(str::to_owned),
            ..Matching::default()
        },
        policy: Policy {
            coherence,
            ..settings().policy()
        },
    };
    let bounded = settings().coherence;
    for (rules, coherence, is_kept) in [
        (
            vec![rule("bucket", None, Coherence::Strict)],
            Coherence::Exclusive,
            false,
        ),
        (
            vec![rule("b*", Some("a/"), bounded)],
            Coherence::Exclusive,
            false,
        ),
        (
            vec![rule("other", None, Coherence::Strict)],
            Coherence::Exclusive,
            true,
        ),
        (
            vec![rule("bucket", None, Coherence::Exclusive)],
            bounded,
            true,
        ),
        (
            vec![rule("bucket", Some("a/"), Coherence::Exclusive)],
            bounded,
            false,
        ),
    ] {
        let mut setup = setup(coherence, KeptSettings::default());
        setup.settings.rules.clone_from(&rules);
        let fixture = setup.build().await;
        keys(&fixture, "").await;
        let asked = asks(&fixture, listing("")).await;
        assert_eq!(asked, usize::from(!is_kept), "{rules:?}");
    }
}
