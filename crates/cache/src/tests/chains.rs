//! Caches behind caches: what the outer one tells of the inner one, and gets past it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_store::{
    Error, Request, Response, Store,
    contract::requests::{self, Answer},
};
use http::HeaderValue;

use super::origin::{Fixture, Setup};
use crate::{CacheLayer, Coherence};

const SECOND: Duration = Duration::from_secs(1);

/// A cache as it is seen over a network: what it did stands in a header.
struct OverHttp(Arc<CacheLayer>);

#[async_trait]
impl Store for OverHttp {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let mut response = self.0.call(request).await?;
        if let Some(status) = response.cache.take() {
            let value = HeaderValue::try_from(status.named("inner").to_string()).unwrap();
            response.headers.append("cache-status", value);
        }
        Ok(response)
    }
}

/// Two caches in a row before an origin.
async fn chain() -> (Fixture, CacheLayer) {
    let inner = Fixture::new().await;
    let setup = Setup {
        clock: inner.clock.clone(),
        ..Setup::default()
    };
    let outer = setup.over(Arc::new(OverHttp(Arc::clone(&inner.cache))));
    (inner, outer)
}

fn told(answer: &Answer) -> (&str, &str) {
    let own = answer.cache.as_deref().unwrap_or_default();
    (answer.header("cache-status"), own)
}

#[tokio::test]
async fn an_answer_names_the_caches_that_were_asked_for_it_and_no_others() {
    let (inner, outer) = chain().await;
    inner.put("key", 300_000).await;
    let get = || requests::get("bucket", "key");
    for (request, wait, expected) in [
        (
            get(),
            0,
            (
                "inner; fwd=uri-miss; fwd-status=200; stored",
                "forebay; fwd=uri-miss; fwd-status=200; stored",
            ),
        ),
        (get(), 1, ("", "forebay; hit; ttl=59")),
        (
            get(),
            60,
            (
                "inner; fwd=stale; fwd-status=304",
                "forebay; fwd=stale; fwd-status=304; stored",
            ),
        ),
        (
            requests::head("bucket", "key"),
            60,
            (
                "inner; fwd=stale; fwd-status=304",
                "forebay; fwd=stale; fwd-status=304; stored",
            ),
        ),
        (
            requests::get("bucket", "key").header("cache-control", "no-cache"),
            0,
            (
                "inner; fwd=request; fwd-status=304",
                "forebay; fwd=request; fwd-status=304; stored",
            ),
        ),
        (get(), 0, ("", "forebay; hit; ttl=60")),
    ] {
        inner.clock.advance(SECOND * wait);
        let answer = request.expect(200, &outer).await;
        inner.settle().await;
        assert_eq!(told(&answer), expected);
    }
}

#[tokio::test]
async fn ages_add_up_from_cache_to_cache() {
    let (inner, outer) = chain().await;
    inner.put("key", 1000).await;
    inner.get("key").await;
    inner.settle().await;
    let get = || requests::get("bucket", "key");
    for (wait, expected) in [(40, "40"), (19, "59"), (1, ""), (10, "10")] {
        inner.clock.advance(SECOND * wait);
        let answer = get().expect(200, &outer).await;
        assert_eq!(answer.header("age"), expected, "{:?}", told(&answer));
    }
}

#[tokio::test]
async fn who_wants_a_validation_gets_past_every_cache() {
    let (inner, outer) = chain().await;
    for request in [requests::get, requests::head, |bucket: &str, _: &str| {
        requests::list_v2(bucket)
    }] {
        inner.put("key", 1000).await;
        request("bucket", "key").expect(200, &outer).await;
        inner.settle().await;
        let new = inner.put("key", 2000).await;
        let asking = || request("bucket", "key").header("cache-control", "no-cache");
        let answer = asking().expect(200, &outer).await;
        let tag = inner.get("key").await.etag().to_owned();
        let listed = answer.text().contains(&format!("<Size>{}<", new.len()));
        assert!(listed || answer.etag() == tag);
    }
}

#[tokio::test]
async fn who_wants_a_validation_joins_no_question_that_a_cache_behind_may_answer() {
    let fixture = Setup::with(Coherence::Strict).build().await;
    fixture.put("key", 1000).await;
    fixture.get("key").await;
    fixture.settle().await;
    fixture.asked();
    let get = || requests::get("bucket", "key");
    let asking = || get().header("cache-control", "no-cache");
    // Polled one after the other, before any filler runs.
    tokio::join!(
        get().expect(200, &*fixture.cache),
        asking().expect(200, &*fixture.cache),
    );
    let mut asked = fixture.asked();
    asked.sort();
    let expected = [
        "GET key if-none-match",
        "GET key if-none-match cache-control",
    ];
    assert_eq!(asked, expected);
}
