//! What rules say is done, whenever it is known that they match.

use forebay_store::contract::requests;

use super::origin::{Fixture, KIB, Setup, settings};
use crate::{CacheSettings, Coherence, Keep, Matching, PageBytes, Policy, Rule};

fn policy() -> Policy {
    settings().policy()
}

async fn fixture(rules: Vec<(Matching, Policy)>) -> Fixture {
    let rules = rules.into_iter();
    Setup {
        settings: CacheSettings {
            rules: rules
                .map(|(matching, policy)| Rule { matching, policy })
                .collect(),
            ..settings()
        },
        ..Setup::default()
    }
    .build()
    .await
}

fn at_least(bytes: u64) -> Matching {
    Matching {
        size_bytes: Some(bytes..=u64::MAX),
        ..Matching::default()
    }
}

#[tokio::test]
async fn what_a_rule_of_names_keeps_out_passes() {
    let matching = Matching {
        prefix: Some("tmp/".to_owned()),
        ..Matching::default()
    };
    let keep = Keep::No;
    let fixture = fixture(vec![(matching, Policy { keep, ..policy() })]).await;
    for (key, expected) in [
        ("tmp/a", "forebay; fwd=bypass; fwd-status=200"),
        ("tmp", "forebay; hit; ttl=60"),
    ] {
        fixture.put(key, 1000).await;
        fixture.get(key).await;
        fixture.settle().await;
        let answer = fixture.get(key).await;
        assert_eq!(answer.cache.as_deref(), Some(expected), "{key}");
    }
}

#[tokio::test]
async fn what_a_rule_of_sizes_keeps_out_is_asked_for_once_and_not_stored() {
    let keep = Keep::No;
    let fixture = fixture(vec![(at_least(100 * KIB), Policy { keep, ..policy() })]).await;
    for (key, length, is_kept) in [("small", 90 * KIB, true), ("large", 300 * KIB, false)] {
        let bytes = fixture.put(key, length).await;
        let used = fixture.cache.used_bytes();
        for request in [
            requests::get("bucket", key).range("bytes=70000-70009"),
            requests::get("bucket", key),
            requests::head("bucket", key),
        ] {
            let answer = request.send(&*fixture.cache).await.unwrap();
            fixture.settle().await;
            assert!(answer.status.is_success());
            let whole = answer.body.len() as u64 == length;
            let expected = if whole {
                &bytes[..]
            } else {
                &bytes[70_000..70_010]
            };
            assert!(answer.body.is_empty() || answer.body == expected);
            if !is_kept {
                assert_eq!(fixture.asked().len(), 1, "one request asks once");
                assert_eq!(fixture.cache.used_bytes(), used);
            }
        }
        fixture.asked();
    }
}

#[tokio::test]
async fn a_rule_has_a_mode_of_its_own() {
    let coherence = Coherence::Strict;
    let matching = Matching {
        keys: vec!["*.lock".to_owned()],
        ..Matching::default()
    };
    let fixture = fixture(vec![(
        matching,
        Policy {
            coherence,
            ..policy()
        },
    )])
    .await;
    for (key, asked_count) in [("a.lock", 1), ("a", 0)] {
        fixture.put(key, 1000).await;
        fixture.get(key).await;
        fixture.settle().await;
        fixture.asked();
        fixture.get(key).await;
        assert_eq!(fixture.asked().len(), asked_count, "{key}");
    }
}

#[tokio::test]
async fn pages_of_each_size_serve_any_range() {
    let of_type = |content_type: &str| Matching {
        content_types: vec![content_type.to_owned()],
        ..Matching::default()
    };
    let pages = |bytes| Policy {
        page_bytes: PageBytes::new(bytes).unwrap(),
        ..policy()
    };
    let fixture = fixture(vec![
        (of_type("video/*"), pages(256 * KIB)),
        (of_type("text/*"), pages(128 * KIB)),
    ])
    .await;
    for content_type in ["video/mp4", "text/plain", "image/png"] {
        let bytes = fixture.put("key", 900 * KIB).await;
        requests::put("bucket", content_type)
            .header("content-type", content_type)
            .body(bytes.clone())
            .expect(200, &fixture.origin.store)
            .await;
        for (first, last) in [
            (500_000, 600_000),
            (0, 100),
            (921_000, 921_599),
            (1, 921_599),
        ] {
            let range = format!("bytes={first}-{last}");
            for _ in 0..2 {
                let answer = requests::get("bucket", content_type)
                    .range(&range)
                    .expect(206, &*fixture.cache)
                    .await;
                fixture.settle().await;
                assert!(answer.body == bytes[first..=last], "{content_type} {range}");
            }
        }
        fixture.asked();
        fixture.get(content_type).await;
        assert!(fixture.asked().is_empty(), "{content_type} is all here");
    }
}
