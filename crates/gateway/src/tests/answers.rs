//! What clients are told: errors as S3 tells them, ids, and bodies that are whole or cut.

use std::time::Duration;

use bytes::Bytes;
use forebay_s3::code::Code;
use forebay_store::{CacheStatus, Error, Forward, Response};
use http::{HeaderValue, Method, StatusCode, header};

use super::harness::{Ask, Edge, ending, settings};
use crate::settings::{AccessLogFormat, AccessLogOutput, AccessLogSettings};

#[test]
fn every_error_of_a_store_has_its_answer() {
    type Make = fn() -> Error;
    let table: [(Make, u16, &str, Option<&str>); 7] = [
        (|| Error::refused(Code::NoSuchKey), 404, "NoSuchKey", None),
        (
            || Error::SlowDown { retry_after: None },
            503,
            "SlowDown",
            Some("1"),
        ),
        (
            || Error::SlowDown {
                retry_after: Some(Duration::from_secs(7)),
            },
            503,
            "SlowDown",
            Some("7"),
        ),
        (
            || Error::Unavailable {
                reason: "refused".into(),
            },
            503,
            "ServiceUnavailable",
            Some("1"),
        ),
        (
            || Error::Indeterminate {
                elapsed: Duration::from_secs(1),
            },
            500,
            "InternalError",
            None,
        ),
        (
            || Error::Cut {
                reason: "reset".into(),
            },
            503,
            "ServiceUnavailable",
            Some("1"),
        ),
        (
            || Error::internal("read page", "disk on fire"),
            500,
            "InternalError",
            None,
        ),
    ];
    for (make, status, code, retry_after) in table {
        let edge = Edge::start();
        edge.store.answers(move |_| Err(make()));
        let reply = edge.send(&Ask::get("/public/a%20key"));
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
        assert_eq!(reply.header("retry-after"), retry_after);
        assert_eq!(reply.header("content-type"), Some("application/xml"));
        assert!(!reply.text().contains("fire"), "{}", reply.text());
        let id = reply.header("x-amz-request-id").unwrap();
        assert!(
            reply
                .text()
                .contains(&format!("<RequestId>{id}</RequestId>"))
        );
        assert!(
            reply
                .text()
                .contains("<Resource>/public/a%20key</Resource>")
        );
        let head = edge.send(&Ask::new(Method::HEAD, "/public/a"));
        assert_eq!((head.status, head.header("content-length")), (status, None));
    }
}

#[test]
fn details_and_headers_of_a_refusal_are_told() {
    let edge = Edge::start();
    edge.store.answers(|_| {
        let mut error = Error::refused(Code::InvalidRange);
        if let Error::Refused(refusal) = &mut error {
            refusal.details.push(("ActualObjectSize", "3".to_owned()));
            let range = HeaderValue::from_static("bytes */3");
            refusal.headers.insert(header::CONTENT_RANGE, range);
        }
        Err(error)
    });
    let reply = edge.send(&Ask::get("/public/a"));
    assert_eq!(
        (reply.status, reply.header("content-range")),
        (416, Some("bytes */3"))
    );
    assert!(
        reply
            .text()
            .contains("<ActualObjectSize>3</ActualObjectSize>")
    );
}

#[test]
fn a_stores_answer_passes_as_it_is() {
    let edge = Edge::start();
    edge.store.answers(|_| {
        let mut response = Response::new(StatusCode::IM_A_TEAPOT).with_body("<Error/>");
        for (name, value) in [
            ("x-amz-request-id", "theirs"),
            ("x-of-tomorrow", "1"),
            ("cache-status", "behind; hit"),
        ] {
            response
                .headers
                .append(name, HeaderValue::from_static(value));
        }
        response.cache = Some(CacheStatus::forward(Forward::UriMiss));
        Ok(response)
    });
    let reply = edge.send(&Ask::get("/public/a"));
    assert_eq!((reply.status, reply.text().as_str()), (418, "<Error/>"));
    assert_eq!(reply.header("x-amz-request-id"), Some("theirs"));
    assert_eq!(reply.header("x-of-tomorrow"), Some("1"));
    let caches: Vec<_> = reply
        .headers
        .iter()
        .filter(|(name, _)| name == "cache-status")
        .collect();
    let [(_, behind), (_, own)] = caches[..] else {
        panic!("one value for each cache: {caches:?}");
    };
    assert_eq!(
        (behind.as_str(), own.as_str()),
        ("behind; hit", "edge; fwd=uri-miss")
    );
    assert!(reply.header("date").is_some());
}

#[test]
fn a_body_that_breaks_cuts_the_connection() {
    for length in [Some(10), None] {
        let edge = Edge::start();
        edge.store.answers(move |_| {
            let frames = vec![
                Ok(Bytes::from_static(b"12345")),
                Err(Error::Cut {
                    reason: "origin gone".into(),
                }),
            ];
            Ok(Response::new(StatusCode::OK).with_body(ending(frames, length)))
        });
        let mut client = edge.connect();
        let reply = client.send(&Ask::get("/public/a").bytes(&edge));
        // Nothing at all is as good a cut as the first bytes.
        assert!(!reply.is_whole && reply.body.len() < 10, "{length:?}");
        assert!(client.is_closed());
    }
}

#[test]
fn paths_and_methods_that_are_none_get_their_codes() {
    let edge = Edge::start();
    for (ask, status, code) in [
        (Ask::get("/UP"), 400, "InvalidBucketName"),
        (
            Ask::get(&format!("/open/{}", "k".repeat(1025))),
            400,
            "KeyTooLongError",
        ),
        (Ask::get("/open/%ff"), 400, "InvalidURI"),
        (
            Ask::new(Method::PATCH, "/open/key"),
            405,
            "MethodNotAllowed",
        ),
    ] {
        let reply = edge.send(&ask.clone().signed_by("ann"));
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{ask:?}"
        );
    }
    for key in [
        "..", "../..", "a//b", "a/", "%2E%2E/x", "a%2Fb", "%00", "%25",
    ] {
        let reply = edge.send(&Ask::get(&format!("/open/{key}")).signed_by("ann"));
        assert_eq!(reply.code(), "NoSuchKey", "{key}");
    }
    let keys: Vec<_> = edge
        .store
        .asked()
        .iter()
        .map(|a| a.operation.key().unwrap().to_string())
        .collect();
    assert_eq!(
        keys,
        ["..", "../..", "a//b", "a/", "../x", "a/b", "\0", "%"]
    );
}

#[test]
fn malformed_http_is_refused_without_a_panic() {
    let edge = Edge::start();
    for text in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: nonsense\r\n\r\n",
    ] {
        let reply = edge.send_text(text);
        assert!(
            (400..=505).contains(&reply.status),
            "{text:?}: {}",
            reply.status
        );
    }
    // HTTP/1.0 without a host, and an absolute URI.
    edge.store.put("key", "bytes");
    assert_eq!(
        edge.send_text("GET /public/key HTTP/1.0\r\n\r\n").text(),
        "bytes"
    );
    let absolute = "GET http://public.s3.test/key HTTP/1.1\r\nhost: other\r\n\r\n";
    assert_eq!(edge.send_text(absolute).text(), "bytes");
}

#[test]
fn every_request_is_counted_and_logged_once_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut settings = settings();
    settings.access_log = Some(AccessLogSettings {
        format: AccessLogFormat::Json,
        output: AccessLogOutput::File(path.clone()),
    });
    let metrics = {
        let edge = Edge::start_with(settings);
        edge.store.put("key", "bytes");
        edge.send(&Ask::get("/public/key").header("user-agent", "test \"1\""));
        edge.send(&Ask::get("/open/other").signed_by("bob"));
        edge.send(&Ask::put("/open/key", "12345678").signed_by("bob"));
        // Stops the gateway, which writes what is left of the log.
        edge.running.metrics_text()
    };
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, members) in lines.iter().zip([
        [
            "\"operation\":\"GetObject\"",
            "\"status\":200",
            "\"sent_bytes\":5",
            "test \\\"1\\\"",
        ],
        [
            "\"requester\":\"bob\"",
            "\"status\":404",
            "\"NoSuchKey\"",
            "\"key\":\"other\"",
        ],
        [
            "\"operation\":\"PutObject\"",
            "\"status\":403",
            "\"AccessDenied\"",
            "\"bucket\":\"open\"",
        ],
    ]) {
        for member in members {
            assert!(line.contains(member), "{member} in {line}");
        }
    }
    for line in [
        "forebay_requests_total{operation=\"GetObject\",status=\"2xx\"} 1",
        "forebay_requests_total{operation=\"GetObject\",status=\"4xx\"} 1",
        "forebay_requests_total{operation=\"PutObject\",status=\"4xx\"} 1",
        "forebay_requests_in_flight 0",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    }
}
