//! What a client gets, cold and warm.

use forebay_store::contract::{
    requests::{self, Answer, Builder},
    sample_bytes,
};

use super::origin::{Fixture, KIB, MIB, Setup, settings};
use crate::CacheSettings;

/// The same request to the origin and to the cache, cold and then warm, is answered alike.
async fn assert_transparent(fixture: &Fixture, request: impl Fn() -> Builder, what: &str) {
    let told = |answer: &Result<Answer, forebay_store::Error>| match answer {
        Ok(answer) => {
            let mut headers = answer.headers.clone();
            // A cache adds the age.
            headers.remove("age");
            format!("{} {:?}", answer.status, sorted(&headers))
        }
        Err(error) => format!("{error}"),
    };
    let direct = request().send(&fixture.origin.store).await;
    for round in ["cold", "warm"] {
        let cached = request().send(&*fixture.cache).await;
        assert_eq!(told(&cached), told(&direct), "{what}, {round}");
        if let (Ok(cached), Ok(direct)) = (&cached, &direct) {
            assert!(cached.body == direct.body, "{what}, {round}");
        }
        fixture.settle().await;
    }
}

fn sorted(headers: &http::HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers.iter().map(|(n, v)| format!("{n}: {v:?}")).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_client_can_not_tell_the_cache_from_the_origin() {
    for size_bytes in [0, 1, 1000, 64 * KIB, 64 * KIB + 1, 300 * KIB] {
        for range in [
            "",
            "bytes=0-",
            "bytes=0-0",
            "bytes=5-",
            "bytes=-1",
            "bytes=-70000",
            "bytes=65535-65536",
            "bytes=100-200000",
            "bytes=70000-",
            "bytes=999999-",
            "bytes=-0",
            "bytes=0-1,3-4",
        ] {
            let fixture = Fixture::new().await;
            fixture.put("key", size_bytes).await;
            let request = || match range {
                "" => requests::get("bucket", "key"),
                range => requests::get("bucket", "key").range(range),
            };
            let what = format!("{range:?} of {size_bytes} bytes");
            assert_transparent(&fixture, request, &what).await;
        }
    }
}

#[tokio::test]
async fn conditions_and_modes_are_answered_like_the_origin_does() {
    let etag = {
        let fixture = Fixture::new().await;
        fixture.put("key", 100 * KIB).await;
        requests::head("bucket", "key")
            .expect(200, &fixture.origin.store)
            .await
            .etag()
            .to_owned()
    };
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    let headers: [&[(&str, &str)]; 12] = [
        &[("if-match", &etag)],
        &[("if-match", "\"other\"")],
        &[("if-none-match", &etag)],
        &[("if-none-match", "\"other\"")],
        &[("if-modified-since", past)],
        &[("if-unmodified-since", past)],
        &[("if-range", &etag), ("range", "bytes=1-2")],
        &[("if-range", "\"other\""), ("range", "bytes=1-2")],
        &[("x-amz-checksum-mode", "ENABLED")],
        &[("x-amz-checksum-mode", "enabled")],
        &[("x-amz-checksum-mode", "ENABLED"), ("range", "bytes=1-2")],
        &[("x-amz-expected-bucket-owner", "1")],
    ];
    for headers in headers {
        for method in [requests::get, requests::head] {
            let fixture = Fixture::new().await;
            let body = fixture.put("key", 100 * KIB).await;
            requests::put("bucket", "key")
                .header("content-type", "text/x")
                .header("x-amz-meta-a", "b")
                .header("x-amz-checksum-algorithm", "CRC32")
                .body(body)
                .expect(200, &fixture.origin.store)
                .await;
            let request = || {
                headers
                    .iter()
                    .fold(method("bucket", "key"), |r, (name, value)| {
                        r.header(name, value)
                    })
            };
            assert_transparent(&fixture, request, &format!("{headers:?}")).await;
        }
    }
}

#[tokio::test]
async fn overrides_and_sub_resources_are_answered_like_the_origin_does() {
    let query: [&[(&str, &str)]; 5] = [
        &[
            ("response-content-type", "a/b"),
            ("response-cache-control", "no-store"),
        ],
        &[("response-expires", "later"), ("x-id", "GetObject")],
        &[("partNumber", "1")],
        &[("versionId", "null")],
        &[("versionId", "unknown")],
    ];
    for query in query {
        for method in [requests::get, requests::head] {
            let fixture = Fixture::new().await;
            fixture.put("key", 100 * KIB).await;
            let request = || {
                query
                    .iter()
                    .fold(method("bucket", "key"), |r, (n, v)| r.query(n, v))
            };
            assert_transparent(&fixture, request, &format!("{query:?}")).await;
            // None of it may have changed what a plain request gets.
            let plain = || requests::get("bucket", "key");
            assert_transparent(&fixture, plain, &format!("plain after {query:?}")).await;
        }
    }
}

#[tokio::test]
async fn one_read_is_one_origin_request_and_the_next_is_none() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 300 * KIB).await;
    let cold = fixture.get("key").await;
    assert_eq!(fixture.asked(), ["GET key"]);
    let status = "forebay; fwd=uri-miss; fwd-status=200; stored";
    assert_eq!(cold.cache.as_deref(), Some(status));
    fixture.settle().await;
    for request in [
        requests::get("bucket", "key"),
        requests::get("bucket", "key").range("bytes=65000-200000"),
        requests::head("bucket", "key"),
    ] {
        let warm = request.send(&*fixture.cache).await.unwrap();
        assert_eq!(warm.cache.as_deref(), Some("forebay; hit; ttl=60"));
        assert_eq!(warm.header("age"), "0");
    }
    assert_eq!(fixture.asked(), [""; 0]);
    assert!(fixture.get("key").await.body == bytes);
}

#[tokio::test]
async fn a_head_is_remembered_and_does_not_hide_the_body() {
    let fixture = Fixture::new().await;
    let bytes = fixture.put("key", 1000).await;
    let head = requests::head("bucket", "key")
        .expect(200, &*fixture.cache)
        .await;
    assert_eq!(
        (head.header("content-length"), head.body.len()),
        ("1000", 0)
    );
    requests::head("bucket", "key")
        .expect(200, &*fixture.cache)
        .await;
    assert_eq!(fixture.asked(), ["HEAD key"]);
    assert!(fixture.get("key").await.body == bytes);
    fixture.settle().await;
    assert!(fixture.get("key").await.body == bytes);
    assert_eq!(fixture.asked(), ["GET key bytes=0-999 if-match"]);
}

#[tokio::test]
async fn a_range_of_an_unknown_object_is_one_request_for_whole_pages() {
    let fixture = Fixture::new().await;
    fixture.put("key", 300 * KIB).await;
    for (range, asked) in [
        ("bytes=100-200", "GET key bytes=0-65535"),
        ("bytes=-5", "GET key bytes=262144-307199 if-match"),
        ("bytes=60000-140000", "GET key bytes=65536-196607 if-match"),
    ] {
        let request = || requests::get("bucket", "key").range(range);
        let direct = request().expect(206, &fixture.origin.store).await;
        for expected in [&[asked][..], &[]] {
            let answer = request().expect(206, &*fixture.cache).await;
            assert!(answer.body == direct.body);
            assert_eq!(fixture.asked(), expected, "{range}");
            fixture.settle().await;
        }
    }
    let whole = fixture.get("key").await;
    assert_eq!(whole.cache.as_deref(), Some("forebay; fwd=partial; stored"));
    // The second, third and fourth pages are here; the one missing is asked for.
    assert_eq!(fixture.asked(), ["GET key bytes=196608-262143 if-match"]);
}

#[tokio::test]
async fn the_last_bytes_of_an_unknown_object_are_one_request_that_has_the_last_page() {
    let fixture = Fixture::new().await;
    fixture.put("key", 300 * KIB).await;
    for _ in 0..2 {
        requests::get("bucket", "key")
            .range("bytes=-8")
            .expect(206, &*fixture.cache)
            .await;
        fixture.settle().await;
    }
    requests::get("bucket", "key")
        .range("bytes=280000-")
        .expect(206, &*fixture.cache)
        .await;
    assert_eq!(fixture.asked(), ["GET key bytes=-65536"]);
}

#[tokio::test]
async fn checksums_of_an_object_known_by_a_range_are_asked_for_once() {
    let fixture = Fixture::new().await;
    let body = fixture.put("key", 1000).await;
    requests::put("bucket", "key")
        .header("x-amz-checksum-algorithm", "CRC32")
        .body(body)
        .expect(200, &fixture.origin.store)
        .await;
    requests::get("bucket", "key")
        .range("bytes=1-2")
        .expect(206, &*fixture.cache)
        .await;
    fixture.settle().await;
    fixture.asked();
    for _ in 0..2 {
        let request = requests::get("bucket", "key").header("x-amz-checksum-mode", "ENABLED");
        let answer = request.expect(200, &*fixture.cache).await;
        assert!(
            !answer.header("x-amz-checksum-crc32").is_empty(),
            "{:?}",
            answer.headers
        );
        assert_eq!(answer.body.len(), 1000);
    }
    assert_eq!(fixture.asked(), ["HEAD key"]);
    let plain = fixture.get("key").await;
    assert_eq!(plain.header("x-amz-checksum-crc32"), "");
}

#[tokio::test]
async fn directives_of_the_client_are_honoured_unless_the_settings_say_no() {
    let ignoring = CacheSettings {
        client_directives: crate::Directives::Ignore,
        ..settings()
    };
    for (settings, directive, asked) in [
        (
            settings(),
            "no-cache",
            &["GET key if-none-match cache-control"][..],
        ),
        (
            settings(),
            "max-age=0",
            &["GET key if-none-match cache-control"],
        ),
        (settings(), "no-store", &["GET key cache-control"]),
        (settings(), "max-age=60", &[]),
        (ignoring, "no-cache, no-store", &[]),
    ] {
        let fixture = Setup {
            settings,
            ..Setup::default()
        }
        .build()
        .await;
        let bytes = fixture.put("key", 1000).await;
        fixture.get("key").await;
        fixture.settle().await;
        fixture.asked();
        let request = requests::get("bucket", "key").header("cache-control", directive);
        assert!(request.expect(200, &*fixture.cache).await.body == bytes);
        assert_eq!(fixture.asked(), asked, "{directive}");
    }
}

#[tokio::test]
async fn an_object_that_says_no_store_is_not_stored() {
    let fixture = Fixture::new().await;
    requests::put("bucket", "key")
        .header("cache-control", "private, no-store")
        .body("body")
        .expect(200, &fixture.origin.store)
        .await;
    for range in [None, Some("bytes=1-2")] {
        for _ in 0..2 {
            let request = requests::get("bucket", "key");
            let request = range.map_or(request, |r| requests::get("bucket", "key").range(r));
            let answer = request.send(&*fixture.cache).await.unwrap();
            assert_eq!(answer.body, if range.is_some() { "od" } else { "body" });
        }
    }
    assert_eq!(fixture.metrics().entries.get(), 0);
}

#[tokio::test]
async fn what_is_larger_than_the_cache_streams_through_and_the_capacity_holds() {
    let capacity_bytes = MIB;
    let settings = CacheSettings {
        capacity_bytes,
        ..settings()
    };
    let fixture = Setup {
        settings,
        ..Setup::default()
    }
    .build()
    .await;
    let bytes = fixture.put("key", 5 * MIB).await;
    for _ in 0..3 {
        assert!(fixture.get("key").await.body == bytes);
        fixture.settle().await;
        fixture.audit();
        assert!(fixture.cache.used_bytes() > capacity_bytes * 9 / 10);
        assert!(fixture.cache.layer.arena.used_bytes() <= capacity_bytes);
        assert_eq!(
            fixture.metrics().not_stored.get(),
            0,
            "there is always room for the next"
        );
    }
}

#[tokio::test]
async fn many_objects_share_the_capacity_and_the_account_is_right() {
    let settings = CacheSettings {
        capacity_bytes: MIB,
        ..settings()
    };
    let fixture = Setup {
        settings,
        ..Setup::default()
    }
    .build()
    .await;
    for round in 0..200 {
        let key = format!("key{}", round * 7 % 60);
        let bytes = sample_bytes(usize::try_from(round * 997 % 100_000).unwrap());
        requests::put("bucket", &key)
            .body(bytes.clone())
            .expect(200, &*fixture.cache)
            .await;
        assert!(fixture.get(&key).await.body == bytes);
        fixture.settle().await;
    }
    assert!(fixture.metrics().evictions.get() > 0);
}
