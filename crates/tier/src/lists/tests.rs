//! Listings of both sides, against the definition.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_s3::operation::Operation;
use forebay_store::{
    Error, Request, Response, Store,
    contract::requests::{
        Answer, Builder, create_bucket, delete, list_v1, list_v2, list_versions, put,
    },
};
use proptest::{collection::vec, prelude::*};

use crate::{TierLayer, TierSettings, tests::Rig};

/// A batch of a listing in words: keys, and common prefixes with a star.
fn names(answer: &Answer) -> Vec<String> {
    let text = answer.text();
    let document = forebay_native::fragments::read(&text).unwrap();
    let decode = |text: String| match document.text_of("EncodingType") {
        Some(_) => forebay_s3::uri::decode_path(&text).unwrap().into_owned(),
        None => text,
    };
    let mut names = Vec::new();
    for child in &document.children {
        match child.name {
            "Contents" | "Version" => names.push(decode(child.text_at(&["Key"]).unwrap())),
            "CommonPrefixes" => {
                names.push(decode(child.text_at(&["Prefix"]).unwrap()) + "*");
            }
            _ => {}
        }
    }
    names.sort();
    names
}

/// The listing by its definition.
fn expected(keys: &BTreeMap<String, Side>, prefix: &str, delimiter: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let live = keys.iter().filter(|(_, side)| **side != Side::Deleted);
    for (key, _) in live.filter(|(key, _)| key.starts_with(prefix)) {
        let end =
            delimiter.and_then(|d| Some(prefix.len() + key[prefix.len()..].find(d)? + d.len()));
        let name = end.map_or(key.clone(), |end| format!("{}*", &key[..end]));
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Cold,
    Hot,
    /// In the cold store, and written again since.
    Both,
    /// In the cold store, and deleted since.
    Deleted,
    /// Written through the tier, and moved.
    Moved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    V1,
    V2,
    Versions,
}

async fn fill(rig: &Rig, layer: &TierLayer, keys: &BTreeMap<String, Side>) {
    for (key, side) in keys.iter().filter(|(_, side)| **side == Side::Moved) {
        put("bucket", key)
            .body(format!("{side:?}"))
            .expect(200, layer)
            .await;
    }
    assert!(
        layer
            .operator()
            .flush_and_wait(Duration::ZERO)
            .await
            .unwrap()
    );
    for (key, side) in keys {
        if matches!(side, Side::Cold | Side::Both | Side::Deleted) {
            put("bucket", key).body("old").expect(200, &*rig.cold).await;
        }
        if matches!(side, Side::Hot | Side::Both | Side::Deleted) {
            put("bucket", key).body("new").expect(200, layer).await;
        }
        if *side == Side::Deleted {
            delete("bucket", key).expect(204, layer).await;
        }
    }
}

fn request(kind: Kind, prefix: &str, delimiter: Option<&str>, entries_max: usize) -> Builder {
    let request = match kind {
        Kind::V1 => list_v1("bucket"),
        Kind::V2 => list_v2("bucket"),
        Kind::Versions => list_versions("bucket"),
    };
    let request = request
        .query("prefix", prefix)
        .query("max-keys", &entries_max.to_string());
    match delimiter {
        Some(delimiter) => request.query("delimiter", delimiter),
        None => request,
    }
}

/// What asks for the next page.
fn next(kind: Kind, answer: &Answer) -> Option<(&'static str, String)> {
    let text = answer.text();
    let document = forebay_native::fragments::read(&text).unwrap();
    if document.text_of("IsTruncated").as_deref() != Some("true") {
        return None;
    }
    Some(match kind {
        Kind::V2 => (
            "continuation-token",
            document.text_of("NextContinuationToken").unwrap(),
        ),
        Kind::Versions => ("key-marker", document.text_of("NextKeyMarker").unwrap()),
        Kind::V1 => {
            let last = names(answer)
                .last()
                .unwrap()
                .trim_end_matches('*')
                .to_owned();
            ("marker", document.text_of("NextMarker").unwrap_or(last))
        }
    })
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![
        Just(Side::Cold),
        Just(Side::Hot),
        Just(Side::Both),
        Just(Side::Deleted),
        Just(Side::Moved),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: pages joined are the listing of both sides, whatever the page size, and also when
    /// everything hot is moved between two pages.
    /// Method: against the definition.
    #[test]
    fn pages_joined_are_the_whole_listing(
        keys in vec(("[ab/é&\u{1}]{1,4}", side()), 0..24),
        prefix in "[ab/]{0,2}",
        delimiter in proptest::option::of("/|b|a/"),
        entries_max in 1_usize..6,
        kind in prop_oneof![Just(Kind::V1), Just(Kind::V2), Just(Kind::Versions)],
        move_after in proptest::option::of(0_usize..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let keys: BTreeMap<String, Side> = keys.into_iter().collect();
        runtime.block_on(async {
            let (rig, layer) = Rig::with_bucket().await;
            fill(&rig, &layer, &keys).await;
            let delimiter = delimiter.as_deref();
            let mut place: Option<(&str, String)> = None;
            let mut joined: Vec<String> = Vec::new();
            for page in 0.. {
                if Some(page) == move_after {
                    layer.operator().flush_and_wait(Duration::ZERO).await.unwrap();
                }
                let mut request = request(kind, &prefix, delimiter, entries_max);
                if let Some((name, value)) = &place {
                    request = request.query(name, value);
                }
                let answer = request.expect(200, &layer).await;
                let found = names(&answer);
                prop_assert!(found.len() <= entries_max);
                if kind == Kind::V2 {
                    prop_assert_eq!(answer.element("KeyCount"), found.len().to_string());
                }
                joined.extend(found);
                place = next(kind, &answer);
                if place.is_none() {
                    break;
                }
                prop_assert!(page < 100, "no end");
            }
            prop_assert_eq!(joined, expected(&keys, &prefix, delimiter));
            Ok(())
        })?;
    }
}

/// A cold store that lists, and before it answers has something else done.
struct Meanwhile {
    rig: Rig,
    layer: tokio::sync::OnceCell<TierLayer>,
}

#[async_trait]
impl Store for Meanwhile {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let lists = matches!(request.operation, Operation::ListObjectsV2(_));
        let answer = self.rig.cold.call(request).await;
        if lists && let Some(layer) = self.layer.get() {
            layer.operator().flush().await.unwrap();
        }
        answer
    }
}

/// Fault: do not look for gaps.
#[tokio::test]
async fn an_object_that_moves_between_the_two_looks_is_listed() {
    let rig = Rig::new();
    create_bucket("bucket").expect(200, &*rig.cold).await;
    let mover = rig.gateway("g1", TierSettings::default());
    put("bucket", "k").body("v").expect(200, &mover).await;
    let parts = rig.parts.clone();
    let clock = rig.clock.clone();
    let cold = Arc::new(Meanwhile {
        rig,
        layer: tokio::sync::OnceCell::new(),
    });
    cold.layer.set(mover).ok();
    // The hot store is asked when the cold one has answered and the object has gone there.
    let slow = crate::tests::scene::SlowHot::new(parts);
    let layer = Rig::with(clock).gateway_over("g2", TierSettings::default(), (slow, cold));
    let answer = list_v2("bucket").expect(200, &layer).await;
    assert_eq!(names(&answer), ["k"]);
}

#[tokio::test]
async fn a_listing_without_hot_records_is_the_cold_stores_own() {
    let (rig, layer) = Rig::with_bucket().await;
    for key in ["a", "b/c"] {
        put("bucket", key).body("v").expect(200, &*rig.cold).await;
    }
    for request in [list_v1, list_v2, list_versions] {
        let request = || {
            request("bucket")
                .query("delimiter", "/")
                .query("fetch-owner", "true")
        };
        let own = request().expect(200, &*rig.cold).await;
        assert_eq!(request().expect(200, &layer).await.text(), own.text());
    }
}

#[tokio::test]
async fn hot_objects_are_listed_as_the_cold_store_lists_them() {
    let (rig, layer) = Rig::with_bucket().await;
    for request in [list_v1, list_v2, list_versions] {
        put("bucket", "a&\u{1}é")
            .body("v")
            .expect(200, &layer)
            .await;
        let request = || {
            let request = request("bucket").query("fetch-owner", "true");
            request.query("encoding-type", "url")
        };
        let hot = request().expect(200, &layer).await.text();
        assert!(
            layer
                .operator()
                .flush_and_wait(Duration::ZERO)
                .await
                .unwrap()
        );
        let cold = request().expect(200, &*rig.cold).await.text();
        let sorted = |text: &str| {
            let mut parts: Vec<String> = text.split('<').map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert_eq!(sorted(&hot), sorted(&cold));
        delete("bucket", "a&\u{1}é").expect(204, &*rig.cold).await;
        rig.pass(120);
        layer.mover().turn().await.unwrap();
    }
}
