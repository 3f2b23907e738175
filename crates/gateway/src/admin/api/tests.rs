//! The API over a cache before the memory store.

use std::{net::Ipv4Addr, time::Duration};

use forebay_cache::{CacheLayer, CacheSettings};
use forebay_native::MemoryStore;
use forebay_store::{Budget, Store, contract::requests};
use forebay_telemetry::cache::CacheMetrics;
use serde_json::{Value, json};

use super::*;
use crate::{
    admin::{Cache, Caches, Tiers},
    routes::{BucketPattern, Route, Routes},
};

mod steady;

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

struct World {
    api: Api,
    cache: Arc<CacheLayer>,
    health: Arc<Health>,
}

impl World {
    /// A cache for every bucket but those that begin with `plain`.
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::system()));
        let (clock, metrics) = (Clock::system(), CacheMetrics::default());
        let budget = Budget::new(64 * 1024 * 1024, Duration::from_secs(1));
        let settings = CacheSettings::default();
        let cache = CacheLayer::new(Arc::clone(&store), settings, clock, budget, metrics);
        let cache = Arc::new(cache);
        let route = |pattern, store| Route {
            buckets: vec![BucketPattern::new(pattern)],
            store,
        };
        let behind = Arc::clone(&cache) as Arc<dyn Store>;
        let caches = Caches {
            routes: Routes::new(vec![route("plain*", store), route("*", behind)]),
            list: vec![Cache {
                name: "1".to_owned(),
                route_index: 1,
                store: "default".to_owned(),
                buckets: vec!["*".to_owned()],
                operator: cache.operator(),
            }],
        };
        let health = Arc::new(Health::default());
        let api = Api::new(
            Operators {
                caches,
                tiers: Tiers::default(),
                origins: Vec::new(),
                mirrors: Vec::new(),
            },
            None,
            Arc::clone(&health),
            Clock::system(),
        );
        requests::create_bucket("bucket").expect(200, &*cache).await;
        Self { api, cache, health }
    }

    async fn put(&self, key: &str) {
        let put = requests::put("bucket", key).body("bytes");
        put.expect(200, &*self.cache).await;
    }

    async fn read(&self, key: &str) -> String {
        let answer = requests::get("bucket", key).expect(200, &*self.cache).await;
        answer.cache.unwrap_or_default()
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{API}{path}"))
            .header("host", "127.0.0.1:9001");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.api.answer(request.body(body).unwrap(), PEER).await;
        let status = response.status().as_u16();
        let (bytes, _) = response.into_body().collect(1024 * 1024).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, path, Some(body)).await
    }
}

#[tokio::test]
async fn what_a_cache_holds_is_shown() {
    let world = World::new().await;
    world.put("a/1").await;
    world.read("a/1").await;
    let warm = json!({"objects": ["bucket/a/1"]});
    assert_eq!(world.post("/cache/warm", warm).await.0, 200);
    let (status, answer) = world.get("/cache/stats").await;
    let cache = &answer["caches"][0];
    assert_eq!((status, &cache["cache"]), (200, &json!("1")));
    assert_eq!(
        (&cache["store"], &cache["entries"]),
        (&json!("default"), &json!(1))
    );
    assert_eq!(cache["ttl_seconds"], 60.0);
    let (_, top) = world.get("/cache/top?n=5&by=bytes").await;
    assert_eq!(top["objects"][0]["key"], "a/1");
    let (status, found) = world.get("/cache/lookup?bucket=bucket&key=a%2F1").await;
    assert_eq!((status, &found["stored"]["is_fresh"]), (200, &json!(true)));
    assert_eq!(found["stored"]["pages"], 1);
    let (status, found) = world.get("/cache/lookup?bucket=bucket&key=b").await;
    assert_eq!((status, &found["stored"]), (200, &Value::Null));
}

#[tokio::test]
async fn a_purge_is_done_when_it_is_answered() {
    let world = World::new().await;
    for (name, change) in [
        ("purge", json!({"objects": ["bucket/a/1"]})),
        ("purge", json!({"prefixes": ["bucket/a/"]})),
        ("purge", json!({"buckets": ["bucket"]})),
        ("purge", json!({"all": true})),
        ("flush", json!({"all": true})),
    ] {
        world.put("a/1").await;
        let warm = json!({"prefixes": ["bucket/a"]});
        let (_, warmed) = world.post("/cache/warm", warm).await;
        let counts = (&warmed["state"], &warmed["done"], &warmed["total"]);
        assert_eq!(counts, (&json!("done"), &json!(1), &json!(1)));
        assert!(world.read("a/1").await.contains("; hit"));
        let (status, purged) = world.post(&format!("/cache/{name}"), change.clone()).await;
        assert_eq!((status, &purged["done"]), (200, &json!(1)), "{change}");
        assert!(!world.read("a/1").await.contains("; hit"), "{change}");
    }
    let (_, jobs) = world.get("/jobs").await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 10);
    assert_eq!(jobs["jobs"][0]["kind"], "flush");
}

#[tokio::test]
async fn pins_are_counted() {
    let world = World::new().await;
    world.put("a").await;
    world.read("a").await;
    let a = json!({"objects": ["bucket/a"]});
    let pinned = async || world.get("/cache/stats").await.1["caches"][0]["pinned"].clone();
    let (status, job) = world.post("/cache/pin", a.clone()).await;
    assert_eq!((status, &job["state"]), (200, &json!("done")));
    assert_eq!(pinned().await, 1);
    world.post("/cache/unpin", a).await;
    assert_eq!(pinned().await, 0);
}

#[tokio::test]
async fn what_can_not_be_done_is_told() {
    let world = World::new().await;
    for (path, body, status, told) in [
        ("/cache/purge", json!({}), 400, "name objects"),
        (
            "/cache/purge",
            json!({"objects": ["plain/a"]}),
            404,
            "no cache is for bucket plain",
        ),
        ("/cache/purge", json!("all"), 400, "invalid type"),
        (
            "/cache/flush",
            json!({"buckets": ["bucket"]}),
            400,
            "a flush is of all",
        ),
        (
            "/cache/warm",
            json!({"all": true}),
            400,
            "name a bucket to warm",
        ),
        (
            "/cache/warm",
            json!({"buckets": ["bucket"], "concurrency": 0}),
            400,
            "concurrency: 1",
        ),
        (
            "/cache/pin",
            json!({"buckets": ["bucket"]}),
            400,
            "pins are for objects",
        ),
        (
            "/cache/stats",
            json!({}),
            405,
            "this path has another method",
        ),
        ("/jobs", json!({}), 405, "this path has another method"),
        ("/cache/shrink", json!({}), 404, "no such path"),
    ] {
        let (found, answer) = world.post(path, body.clone()).await;
        let error = answer["error"].as_str().unwrap();
        assert_eq!(found, status, "{path} {body}");
        assert!(error.starts_with(told), "{path} {body}: {error}");
    }
    for (path, status) in [
        ("/cache/top?n=0", 400),
        ("/cache/top?n=1001", 400),
        ("/cache/top?by=age", 400),
        ("/cache/lookup?bucket=bucket", 400),
        ("/cache/lookup?bucket=plain&key=a", 404),
        ("/jobs/1", 404),
        ("/jobs/x", 404),
        ("", 404),
    ] {
        assert_eq!(world.get(path).await.0, status, "{path}");
    }
    let failed = json!({"buckets": ["nowhere"]});
    let (_, job) = world.post("/cache/warm", failed).await;
    assert_eq!(job["state"], "failed");
    assert!(job["note"].as_str().unwrap().starts_with("list nowhere/: "));
    world.health.begin_drain();
    let (status, _) = world.post("/cache/purge", json!({"all": true})).await;
    assert_eq!(status, 503);
}

#[tokio::test]
async fn a_web_page_can_not_change_a_cache() {
    let world = World::new().await;
    world.put("a").await;
    let warm = json!({"objects": ["bucket/a"]});
    world.post("/cache/warm", warm).await;
    let ask = async |name: &'static str, value: &'static str, kind: &'static str| {
        let mut request = Request::post(format!("{API}/cache/flush"))
            .header("host", "127.0.0.1:9001")
            .header("content-type", kind)
            .body(Body::from("{\"all\":true}"))
            .unwrap();
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(name, value);
        world.api.answer(request, PEER).await.status().as_u16()
    };
    let evil = "https://evil.example";
    assert_eq!(ask("origin", evil, "application/json").await, 403);
    assert_eq!(
        ask("sec-fetch-site", "cross-site", "application/json").await,
        403
    );
    assert_eq!(ask("host", "evil.example", "application/json").await, 403);
    assert_eq!(ask("x-a", "b", "text/plain").await, 415);
    assert!(
        world.read("a").await.contains("; hit"),
        "nothing was changed"
    );
    assert_eq!(ask("x-a", "b", "application/json").await, 200);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let world = World::new().await;
    let long = "x".repeat(BODY_BYTES_MAX);
    let (status, _) = world.post("/cache/purge", json!({"objects": [long]})).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn without_the_token_nothing_is_told() {
    let mut world = World::new().await;
    world.api.token = Some(SecretKey::new("a long random text"));
    let (status, answer) = world.get("/cache/stats").await;
    assert_eq!(status, 401);
    assert!(answer["error"].as_str().unwrap().contains("admin.token"));
    let request = Request::get(format!("{API}/cache/stats"))
        .header("host", "cache.example.com")
        .header("authorization", "Bearer a long random text")
        .body(Body::empty());
    let response = world.api.answer(request.unwrap(), PEER).await;
    assert_eq!(response.status(), 200);
}
