//! The API over endpoints of an S3 service, and over a mirror of stores in memory.

use forebay_mirror::{Gateways, MirrorParts, MirrorSettings, MirrorStore, Space};
use forebay_native::{
    hot::{HotDurability, Parts as Engine},
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_origin::{CredentialsSource, OriginSettings, OriginStore};
use forebay_telemetry::{mirror::MirrorMetrics, origin::OriginMetrics};

use super::*;
use crate::admin::{Mirror, Origin};

/// Two endpoints where nobody answers, and a mirror of two stores, written through and past it.
struct Steady {
    world: World,
    mirror: MirrorStore,
    members: [Arc<dyn Store>; 2],
    _origin: OriginStore,
}

impl Steady {
    async fn new() -> Self {
        let mut world = World::new().await;
        let endpoints = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
        let endpoints = endpoints.map(|text| text.parse().unwrap()).to_vec();
        let mut settings = OriginSettings::new(http::Uri::from_static("http://127.0.0.1:1"));
        settings.endpoints = endpoints;
        settings.credentials = CredentialsSource::Anonymous;
        let origin = OriginStore::new(&settings, Clock::system(), OriginMetrics::new()).unwrap();
        let member = || Arc::new(MemoryStore::new(Clock::system())) as Arc<dyn Store>;
        let members = [member(), member()];
        let parts = MirrorParts {
            members: vec![
                ("a".to_owned(), Arc::clone(&members[0])),
                ("b".to_owned(), Arc::clone(&members[1])),
            ],
            journal: Engine {
                index: Arc::new(MemoryIndex::new()),
                blobs: Arc::new(MemoryBlobs::new()),
                leases: Arc::new(MemoryLeases::new(Clock::system())),
                durability: HotDurability::Volatile,
            },
            space: Space::parse("mirror-m").unwrap(),
            gateways: Gateways::One,
            clock: Clock::system(),
            budget: Budget::new(64 * 1024 * 1024, Duration::from_secs(1)),
            metrics: MirrorMetrics::new(),
            holder: "test".to_owned(),
        };
        let mirror = MirrorStore::new(parts, MirrorSettings::default());
        world.api.operators.origins = vec![Origin {
            name: "cold".to_owned(),
            operator: origin.operator(),
        }];
        world.api.operators.mirrors = vec![Mirror {
            name: "m".to_owned(),
            journal: "j".to_owned(),
            space: "mirror-m".to_owned(),
            operator: mirror.operator(),
            repairer: mirror.repairer(),
        }];
        Self {
            world,
            mirror,
            members,
            _origin: origin,
        }
    }
}

#[tokio::test]
async fn endpoints_are_shown_taken_out_and_put_back() {
    let Steady { world, .. } = &Steady::new().await;
    let (status, answer) = world.get("/origin/status").await;
    assert_eq!(status, 200);
    let origin = &answer["origins"][0];
    assert_eq!(origin["store"], "cold");
    assert_eq!(origin["endpoints"].as_array().unwrap().len(), 2, "{answer}");
    let name = origin["endpoints"][1]["endpoint"].clone();
    assert_eq!(name, "http://127.0.0.1:2");
    let state = |answer: &Value| answer["origins"][0]["endpoints"][1]["state"].clone();
    for (order, expected) in [("eject", "held-out"), ("restore", "slow-start")] {
        let choice = json!({"store": "cold", "endpoint": name});
        let (status, answer) = world.post(&format!("/origin/{order}"), choice).await;
        assert_eq!((status, state(&answer)), (200, json!(expected)), "{answer}");
    }
    let choice = json!({"store": "cold", "endpoint": name});
    let (status, job) = world.post("/origin/drain", choice).await;
    assert_eq!((status, &job["state"]), (200, &json!("done")), "{job}");
    let (_, answer) = world.get("/origin/status?store=cold").await;
    assert_eq!(state(&answer), "draining");
}

#[tokio::test]
async fn an_unknown_endpoint_store_or_mirror_is_told() {
    let Steady { world, .. } = &Steady::new().await;
    let somewhere = json!({"store": "cold", "endpoint": "http://x"});
    let (status, answer) = world.post("/origin/eject", somewhere).await;
    assert_eq!(status, 404);
    assert!(
        answer["error"].as_str().unwrap().contains("http://x"),
        "{answer}"
    );
    let nowhere = json!({"store": "x", "endpoint": "http://127.0.0.1:2"});
    let (status, answer) = world.post("/origin/drain", nowhere).await;
    assert_eq!(status, 404);
    assert!(
        answer["error"].as_str().unwrap().contains("cold"),
        "{answer}"
    );
    assert_eq!(world.get("/origin/status?store=x").await.0, 404);
    assert_eq!(world.get("/origin/eject").await.0, 405);
    assert_eq!(world.get("/origin/other").await.0, 404);
    assert_eq!(
        world.post("/mirror/verify", json!({"store": "x"})).await.0,
        404
    );
    for wrong in [
        json!({"prefix": "a"}),
        json!({"bucket": "No_Bucket!"}),
        json!({"delete": true}),
        json!({"other": true}),
    ] {
        assert_eq!(
            world.post("/mirror/verify", wrong.clone()).await.0,
            400,
            "{wrong}"
        );
    }
}

/// Goal: differences are told by a verification, mended by a repair, and gone after it.
#[tokio::test]
async fn members_are_compared_and_made_equal() {
    let Steady {
        world,
        mirror,
        members,
        ..
    } = &Steady::new().await;
    requests::create_bucket("bucket").expect(200, mirror).await;
    for key in ["one", "two"] {
        requests::put("bucket", key)
            .body("same")
            .expect(200, mirror)
            .await;
    }
    let (status, answer) = world.get("/mirror/status").await;
    assert_eq!(status, 200);
    let found = &answer["mirrors"][0];
    assert_eq!(
        (&found["store"], &found["writes_min"]),
        (&json!("m"), &json!(2))
    );
    let (_, job) = world.post("/mirror/verify", json!({})).await;
    assert_eq!(job["state"], "done", "{job}");
    requests::put("bucket", "past")
        .body("one alone")
        .expect(200, &*members[1])
        .await;
    let (_, job) = world.post("/mirror/verify", json!({"store": "m"})).await;
    assert_eq!(job["state"], "failed", "{job}");
    assert_eq!(job["compared"]["missing"], 1);
    assert!(
        job["note"].as_str().unwrap().contains("bucket/past"),
        "{job}"
    );
    let elsewhere = json!({"bucket": "bucket", "prefix": "o"});
    let (_, job) = world.post("/mirror/verify", elsewhere).await;
    assert_eq!(job["state"], "done", "{job}");
    let (_, job) = world.post("/mirror/repair", json!({})).await;
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["compared"]["repaired"], 1);
    requests::get("bucket", "past")
        .expect(200, &*members[0])
        .await;
    let (_, job) = world.post("/mirror/verify", json!({})).await;
    assert_eq!(job["state"], "done", "{job}");
}
