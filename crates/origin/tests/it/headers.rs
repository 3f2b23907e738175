//! What passes: method, path, query and headers, in both directions.

use std::collections::BTreeMap;

use forebay_origin::{Addressing, CredentialsSource};
use forebay_s3::{
    operation::{OperationName, Target},
    sigv4::{ExpectedScope, Presented, Regions, RequestParts, SecretKey, SigningKey},
};
use forebay_store::{
    Clock,
    contract::requests::{
        Builder, bucket_name, copy, delete_many, get, head, list_v2, object_key, other, put,
    },
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use crate::scripted::{Scripted, Seen, ok, settings, status, store};

/// Sends a request to an origin that answers `200`, and gives what the origin saw.
async fn seen(request: Builder) -> Seen {
    let origin = Scripted::answering(|_| status(200)).await;
    request.expect(200, &origin.store()).await;
    let mut seen = origin.seen();
    assert_eq!(seen.len(), 1, "one client request is one origin request");
    seen.pop().unwrap()
}

/// Verifies the signature of what the origin saw, as an S3 service does.
fn verify(seen: &Seen) {
    let mut headers = HeaderMap::new();
    for (name, value) in &seen.headers {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    let method: Method = seen.method.parse().unwrap();
    let (path, query) = match seen.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*seen.target, None),
    };
    let host = seen.header("host").unwrap();
    let parts = RequestParts {
        method: &method,
        path,
        query,
        headers: &headers,
        host,
    };
    let presented = Presented::from_request(&parts)
        .unwrap()
        .expect("a signature");
    assert_eq!(presented.access_key_id(), "AKIDORIGIN");
    let scope = ExpectedScope {
        regions: Regions::OneOf(&["us-east-1"]),
        service: "s3",
    };
    let checked = presented
        .check(&parts, &scope, Clock::system().unix_seconds())
        .unwrap();
    let date = &seen.header("x-amz-date").unwrap()[..8];
    let key = SigningKey::derive(&SecretKey::new("origin-secret"), date, "us-east-1", "s3");
    checked.verify(&parts, &key).unwrap();
}

#[tokio::test]
async fn every_operation_passes_with_its_method_path_and_query_and_is_signed() {
    let target = Target::Object(bucket_name("bucket"), object_key("a b/ü+&=?"));
    let unknown = other(Method::PATCH, OperationName::UnknownWrite, target).query("x-new", "1/2 3");
    let path = "/bucket/a%20b/%C3%BC%2B%26%3D%3F";
    let rows = [
        (get("bucket", "a b/ü+&=?"), "GET", path.to_owned()),
        (
            head("bucket", "k").query("versionId", "v 1"),
            "HEAD",
            "/bucket/k?versionId=v%201".into(),
        ),
        (
            list_v2("bucket").query("prefix", "a/b"),
            "GET",
            "/bucket?list-type=2&prefix=a%2Fb".into(),
        ),
        (
            delete_many("bucket", &["k"]),
            "POST",
            "/bucket?delete".into(),
        ),
        (unknown, "PATCH", format!("{path}?x-new=1%2F2%203")),
    ];
    for (request, method, target) in rows {
        let seen = seen(request).await;
        assert_eq!(seen.method, method);
        assert_eq!(seen.target.replace("delete=", "delete"), target);
        verify(&seen);
    }
}

#[tokio::test]
async fn the_source_of_a_copy_passes_as_it_is() {
    let request =
        copy(("source", "k é"), ("target", "k")).header("x-amz-metadata-directive", "REPLACE");
    let source = request_source(&request.build().headers);
    let request =
        copy(("source", "k é"), ("target", "k")).header("x-amz-metadata-directive", "REPLACE");
    let seen = seen(request).await;
    assert_eq!(seen.header("x-amz-copy-source"), Some(&*source));
    assert_eq!(seen.header("x-amz-metadata-directive"), Some("REPLACE"));
    assert_eq!(seen.header("content-length"), Some("0"));
    verify(&seen);
}

fn request_source(headers: &HeaderMap) -> String {
    headers["x-amz-copy-source"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn headers_of_one_hop_stay_behind() {
    let seen = seen(
        put("bucket", "k")
            .header("connection", "close, x-hop")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=1")
            .header("te", "trailers")
            .header("expect", "100-continue")
            .header("x-amz-meta-a", "ü\t1".as_bytes())
            .header("content-type", "text/plain")
            .header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
    )
    .await;
    for gone in ["connection", "x-hop", "keep-alive", "te", "expect"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-amz-meta-a"), Some("ü\t1"));
    assert_eq!(seen.header("content-type"), Some("text/plain"));
    verify(&seen);
}

#[tokio::test]
async fn answers_pass_whole_and_errors_are_answers() {
    let origin = Scripted::answering(|_| {
        b"HTTP/1.1 403 Go Away\r\nETag: \"x\"\r\nx-amz-request-id: 1\r\nx-amz-request-id: 2\r\n\
          connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=1\r\ncontent-length: 8\r\n\
          x-odd: \xfc\r\n\r\n<Error/>"
            .to_vec()
    })
    .await;
    let answer = get("bucket", "k").expect(403, &origin.store()).await;
    assert_eq!(answer.text(), "<Error/>");
    let all = |name: &str| answer.headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(all("x-amz-request-id"), ["1", "2"]);
    assert_eq!(answer.headers["x-odd"].as_bytes(), b"\xfc");
    assert_eq!(answer.header("content-length"), "8");
    assert!(
        ["connection", "x-hop", "keep-alive"]
            .iter()
            .all(|n| all(n).is_empty())
    );
}

#[tokio::test]
async fn head_keeps_the_length_of_what_is_not_sent() {
    let origin = Scripted::answering(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\netag: \"x\"\r\n\r\n".to_vec()
    })
    .await;
    let store = origin.store();
    for _ in 0..2 {
        let answer = head("bucket", "k").expect(200, &store).await;
        assert_eq!(
            (answer.header("content-length"), answer.body.len()),
            ("12345", 0)
        );
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn the_bucket_may_stand_in_the_host_and_all_buckets_share_a_connection() {
    let origin = Scripted::answering(|_| status(200)).await;
    let mut settings = settings(&format!("http://localhost:{}", origin.address.port()));
    settings.addressing = Addressing::VirtualHost;
    let store = store(&settings);
    get("first", "k").expect(200, &store).await;
    get("second.with.dots", "k").expect(200, &store).await;
    let hosts: Vec<_> = origin
        .seen()
        .iter()
        .map(|s| s.header("host").unwrap().to_owned())
        .collect();
    let port = origin.address.port();
    assert_eq!(
        hosts,
        [
            format!("first.localhost:{port}"),
            format!("second.with.dots.localhost:{port}")
        ]
    );
    origin.seen().iter().for_each(verify);
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn an_anonymous_store_does_not_sign() {
    let origin = Scripted::answering(|_| status(200)).await;
    let mut settings = origin.settings();
    settings.credentials = CredentialsSource::Anonymous;
    put("bucket", "k")
        .body("bytes")
        .expect(200, &store(&settings))
        .await;
    let seen = &origin.seen()[0];
    assert_eq!(
        (seen.header("authorization"), &*seen.body),
        (None, &b"bytes"[..])
    );
}

/// Header names that a client may choose, as few as make repeats likely.
fn any_header() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        "x-amz-meta-[a-z0-9]{1,3}",
        "x-[a-z]{1,2}",
        Just("cache-control".to_owned()),
        Just("content-language".to_owned()),
        Just("if-none-match".to_owned()),
        Just("x-amz-tagging".to_owned()),
    ];
    (name, "[!-~]([ -~]{0,20}[!-~])?")
}

fn by_name<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut map: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in headers {
        map.entry(name.to_owned()).or_default().push(value.to_vec());
    }
    map
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Goal: no header is lost, changed or invented on the way, in either direction.
    /// Method: send random headers to an origin that sends them back, and compare both hops.
    #[test]
    fn headers_survive_both_ways(headers in proptest::collection::vec(any_header(), 0..12)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let origin = Scripted::answering(|seen| {
                let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".to_vec();
                for (name, value) in &seen.headers {
                    if !["host", "content-length"].contains(&&**name) {
                        answer.extend_from_slice(name.as_bytes());
                        answer.extend_from_slice(b": ");
                        answer.extend_from_slice(value);
                        answer.extend_from_slice(b"\r\n");
                    }
                }
                answer.extend_from_slice(b"\r\n");
                answer
            })
            .await;
            let mut request = put("bucket", "k").body("bytes");
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            let answer = request.expect(200, &origin.store()).await;
            let seen = &origin.seen()[0];
            verify(seen);
            let sent = by_name(headers.iter().map(|(n, v)| (&**n, v.as_bytes())));
            let ours = ["host", "content-length", "authorization", "x-amz-date",
                "x-amz-content-sha256"];
            let arrived = by_name(seen.headers.iter().map(|(n, v)| (&**n, &**v))
                .filter(|(name, _)| !ours.contains(name)));
            let returned = by_name(answer.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes()))
                .filter(|(name, _)| !ours.contains(name)));
            assert_eq!(arrived, sent);
            assert_eq!(returned, sent);
        });
    }
}

#[tokio::test]
async fn a_large_body_comes_whole() {
    let body: Vec<u8> = (0..1_000_003_u32).map(|i| (i % 251) as u8).collect();
    let answer = ok(&body);
    let origin = Scripted::answering(move |_| answer.clone()).await;
    let got = get("bucket", "k").expect(200, &origin.store()).await;
    assert!(got.body == body, "the bytes differ");
}
