//! What is remembered of missing objects, for how long, and what ends it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_s3::{code::Code, xml::ErrorDocument};
use forebay_store::{
    Error, Request, Response, Store,
    changes::Changed,
    contract::requests::{self, Answer, Builder},
    faulty::Fault,
};
use forebay_telemetry::cache::{CacheMetrics, KeptEvent};
use http::{HeaderValue, Method, header};
use parking_lot::Mutex;

use super::{
    origin::{Fixture, MIB, Origin, Setup, settings, soon},
    others::hub::Hub,
};
use crate::{CacheLayer, CacheSettings, Coherence, Keep, KeptSettings, Matching, Policy, Rule};

/// Answers refusals as an S3 service does: with a document, and none to a HEAD.
struct Service {
    origin: Arc<Origin>,
    /// In the place of the code that is due.
    code: Mutex<Option<Code>>,
    /// White space after the document.
    filler: Mutex<usize>,
}

#[async_trait]
impl Store for Service {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let is_head = request.method == Method::HEAD;
        let refusal = match self.origin.call(request).await {
            Err(Error::Refused(refusal)) => refusal,
            other => return other,
        };
        let code = self.code.lock().unwrap_or(refusal.code);
        let document = ErrorDocument {
            code,
            message: &refusal.message,
            resource: "/bucket/key",
            request_id: "1",
            host_id: "",
            details: &[],
        };
        let response = Response::new(code.status())
            .with_header(header::DATE, HeaderValue::from_static("today"))
            .with_header(header::SERVER, HeaderValue::from_static("origin"));
        if is_head {
            return Ok(response.with_header(header::CONTENT_LENGTH, 272.into()));
        }
        let filler = " ".repeat(*self.filler.lock());
        Ok(response.with_body(document.to_xml() + &filler))
    }
}

/// A cache before a service.
struct Before {
    cache: CacheLayer,
    service: Arc<Service>,
    fixture: Fixture,
    metrics: CacheMetrics,
}

impl Before {
    async fn with(settings: CacheSettings) -> Self {
        Self::of(Setup {
            settings,
            ..Setup::default()
        })
        .await
    }

    async fn of(setup: Setup) -> Self {
        let fixture = Fixture::new().await;
        let service = Arc::new(Service {
            origin: Arc::clone(&fixture.origin),
            code: Mutex::default(),
            filler: Mutex::default(),
        });
        let setup = Setup {
            clock: fixture.clock.clone(),
            ..setup
        };
        let cache = setup.over(Arc::clone(&service) as Arc<dyn Store>);
        let metrics = cache.layer.metrics.clone();
        Self {
            cache,
            service,
            fixture,
            metrics,
        }
    }

    async fn new() -> Self {
        Self::with(settings()).await
    }

    async fn send(&self, builder: Builder) -> Answer {
        builder.send(&self.cache).await.unwrap()
    }

    /// The status of the answer, and how often the origin was asked for it.
    async fn asks(&self, builder: Builder) -> (u16, usize) {
        self.fixture.asked();
        let status = self.send(builder).await.status.as_u16();
        while self.cache.layer.fills.count() > 0 {
            tokio::task::yield_now().await;
        }
        (status, self.fixture.asked().len())
    }
}

fn get() -> Builder {
    requests::get("bucket", "key")
}

fn head() -> Builder {
    requests::head("bucket", "key")
}

#[tokio::test]
async fn a_missing_object_is_remembered_for_a_second_as_the_origin_told_it() {
    let before = Before::new().await;
    for request in [get, head] {
        let told = before.send(request()).await;
        let status = "forebay; fwd=uri-miss; fwd-status=404; stored";
        assert_eq!(told.cache.as_deref(), Some(status));
        before.fixture.clock.advance(Duration::from_millis(999));
        before.fixture.asked();
        let again = before.send(request()).await;
        assert_eq!((again.status, &again.body), (told.status, &told.body));
        assert_eq!(again.cache.as_deref(), Some("forebay; hit; ttl=0"));
        let headers = ["server", "date", "age"].map(|name| again.header(name));
        assert_eq!(headers, ["origin", "", "0"]);
        let length = match again.body.len() {
            0 => "272".to_owned(),
            length => length.to_string(),
        };
        assert_eq!(again.header("content-length"), length, "also of a HEAD");
        let range = request().header("if-none-match", "\"tag\"");
        assert_eq!(before.send(range).await.status, 404);
        assert!(before.fixture.asked().is_empty());
        before.fixture.clock.advance(Duration::from_millis(1));
        assert_eq!(before.asks(request()).await, (404, 1));
    }
    let hits = |name| before.metrics.kept.total(KeptEvent::Hit, name);
    assert_eq!((hits("GetObject"), hits("HeadObject")), (2, 2));
}

#[tokio::test]
async fn an_object_that_is_put_is_not_missing_any_more() {
    let before = Before::new().await;
    for (key, write) in [
        ("key", requests::put("bucket", "key").body("new")),
        (
            "copied",
            requests::copy(("bucket", "key"), ("bucket", "copied")),
        ),
    ] {
        let request = || requests::get("bucket", key);
        assert_eq!(before.asks(request()).await, (404, 1));
        assert_eq!(before.asks(request()).await, (404, 0));
        before.send(write).await;
        assert_eq!(before.asks(request()).await, (200, 1));
    }
    let delete = requests::delete("bucket", "key");
    before.send(delete).await;
    assert_eq!(before.asks(get()).await, (404, 1));
}

#[tokio::test]
async fn an_object_of_a_bucket_that_is_made_is_not_missing_any_more() {
    let before = Before::new().await;
    let request = || requests::get("another", "key");
    assert_eq!(before.asks(request()).await, (404, 1));
    let told = before.send(request()).await;
    assert_eq!(told.element("Code"), "NoSuchBucket");
    assert_eq!(told.cache.as_deref(), Some("forebay; hit; ttl=1"));
    before.send(requests::create_bucket("another")).await;
    assert_eq!(before.send(request()).await.element("Code"), "NoSuchKey");
}

#[tokio::test]
async fn an_object_that_was_missing_before_a_write_is_not_after_it() {
    let before = Arc::new(Before::new().await);
    before.fixture.origin.hold();
    let read = tokio::spawn({
        let before = Arc::clone(&before);
        async move { before.send(get()).await.status }
    });
    before.fixture.origin.was_asked(1).await;
    let write = tokio::spawn({
        let before = Arc::clone(&before);
        async move {
            before
                .send(requests::put("bucket", "key").body("new"))
                .await
        }
    });
    before.fixture.origin.was_asked(2).await;
    before.fixture.origin.let_go();
    assert_eq!(read.await.unwrap(), 404);
    write.await.unwrap();
    assert_eq!(before.asks(get()).await, (200, 1));
}

#[tokio::test]
async fn what_asks_for_more_than_the_current_object_is_never_told_from_memory() {
    let before = Before::new().await;
    for request in [
        || get().query("versionId", "1"),
        || get().header("if-match", "\"tag\""),
        || get().header("x-amz-request-payer", "requester"),
        || get().header("cache-control", "no-cache"),
        || get().header("cache-control", "no-store"),
    ] {
        before.send(get()).await;
        for _ in 0..2 {
            let (_, asked) = before.asks(request()).await;
            assert_eq!(asked, 1);
        }
    }
}

#[tokio::test]
async fn a_validation_ends_what_was_remembered() {
    let before = Before::new().await;
    before.send(get()).await;
    before.fixture.put("key", 10).await;
    assert_eq!(before.asks(get()).await, (404, 0), "within its second");
    let answer = before.asks(get().header("cache-control", "no-store")).await;
    assert_eq!(answer, (200, 1));
    assert_eq!(before.asks(get()).await, (200, 1), "never 404 after 200");
}

#[tokio::test]
async fn strict_and_a_time_of_zero_remember_nothing() {
    let none = KeptSettings {
        negative_ttl: Duration::ZERO,
        ..KeptSettings::default()
    };
    for (coherence, kept) in [
        (Coherence::Strict, KeptSettings::default()),
        (settings().coherence, none),
    ] {
        let settings = CacheSettings {
            coherence,
            kept,
            ..settings()
        };
        let before = Before::with(settings).await;
        for request in [get, head, get, head] {
            assert_eq!(before.asks(request()).await, (404, 1), "{coherence:?}");
        }
        assert_eq!(before.cache.used_bytes(), 0);
    }
}

#[tokio::test]
async fn only_a_404_that_says_so_and_is_not_too_large_is_remembered() {
    for (code, filler, remembered) in [
        (Code::NoSuchKey, 0, true),
        (Code::NoSuchKey, 5000, false),
        (Code::NoSuchVersion, 0, false),
        (Code::AccessDenied, 0, false),
        (Code::ServiceUnavailable, 0, false),
    ] {
        let before = Before::new().await;
        *before.service.code.lock() = Some(code);
        *before.service.filler.lock() = filler;
        let told = before.send(get()).await;
        assert_eq!(told.element("Code"), code.as_str());
        assert!(told.body.len() > filler, "all of it");
        let (_, asked) = before.asks(get()).await;
        assert_eq!(asked, usize::from(!remembered), "{code:?} {filler}");
    }
}

#[tokio::test]
async fn a_write_of_unknown_outcome_keeps_an_object_from_being_missing_from_memory() {
    let before = Before::with(CacheSettings {
        coherence: Coherence::Exclusive,
        ..settings()
    })
    .await;
    before.fixture.origin.store.script([Fault::AnswerLost]);
    let delete = requests::delete("bucket", "key");
    drop(delete.send(&before.cache).await);
    for _ in 0..2 {
        assert_eq!(before.asks(get()).await, (404, 1));
    }
    let other = || requests::get("bucket", "other");
    assert_eq!(before.asks(other()).await, (404, 1));
    assert_eq!(before.asks(other()).await, (404, 0));
}

#[tokio::test]
async fn missing_objects_have_a_bounded_part_of_the_capacity() {
    let before = Before::with(CacheSettings {
        capacity_bytes: 4 * MIB,
        ..settings()
    })
    .await;
    let request = |index: usize| requests::get("bucket", &format!("key{index}"));
    for index in 0..200 {
        before.send(request(index)).await;
        assert!(before.cache.used_bytes() <= 64 * 1024);
    }
    assert_eq!(before.asks(request(199)).await, (404, 0));
    assert_eq!(before.asks(request(0)).await, (404, 1));
    let evicted = before.metrics.kept.total(KeptEvent::Evicted, "GetObject");
    assert!(evicted > 100, "{evicted}");
    before.fixture.clock.advance(Duration::from_secs(1));
    before.send(request(0)).await;
    assert!(before.cache.used_bytes() < 2000, "what is over is let go");
}

#[tokio::test]
async fn rules_say_which_objects_are_never_told_missing_from_memory() {
    let policy = settings().policy();
    let strict = Policy {
        coherence: Coherence::Strict,
        ..policy
    };
    let unkept = Policy {
        keep: Keep::No,
        ..policy
    };
    let of = |prefix: &str, least_bytes: u64, policy| Rule {
        matching: Matching {
            prefix: Some(prefix.to_owned()),
            size_bytes: Some(least_bytes..=u64::MAX),
            ..Matching::default()
        },
        policy,
    };
    let before = Before::with(CacheSettings {
        rules: vec![of("strict/", 0, strict), of("unkept/", 1000, unkept)],
        ..settings()
    })
    .await;
    for (key, expected) in [("strict/a", 1), ("unkept/a", 1), ("a", 0)] {
        let request = || requests::get("bucket", key);
        before.send(request()).await;
        assert_eq!(before.asks(request()).await, (404, expected), "{key}");
    }
}

/// Goal: what another gateway puts is not missing here, and nothing is while that one is not heard.
#[tokio::test]
async fn an_object_that_another_gateway_puts_is_not_missing_any_more() {
    let (hub, there) = (Arc::new(Hub::default()), 1);
    let before = Before::of(Setup {
        changes: Some(hub.place()),
        ..Setup::with(Coherence::Exclusive)
    })
    .await;
    drop(hub.place());
    hub.join(0);
    soon(hub.heard()).await;
    assert_eq!(before.asks(get()).await, (404, 1));
    assert_eq!(before.asks(get()).await, (404, 0));
    before.fixture.put("key", 10).await;
    let bucket = requests::bucket_name("bucket");
    let key = "key".to_owned();
    hub.pass_on(there, &Changed::Object { bucket, key });
    soon(hub.heard()).await;
    assert_eq!(before.asks(get()).await, (200, 1));
    let gone = || requests::get("bucket", "gone");
    assert_eq!(before.asks(gone()).await, (404, 1));
    hub.cut(0);
    soon(hub.heard()).await;
    assert_eq!(
        before.asks(gone()).await,
        (404, 1),
        "it may be there unheard"
    );
    assert_eq!(before.asks(gone()).await, (404, 1));
    hub.join(0);
    soon(hub.heard()).await;
    assert_eq!(before.asks(gone()).await, (404, 1));
    assert_eq!(before.asks(gone()).await, (404, 0));
}
