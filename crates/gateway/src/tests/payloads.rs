//! What becomes of bodies: in every form that S3 has, good and bad.

use std::{fmt::Write as _, num::NonZeroU64};

use bytes::Bytes;
use forebay_s3::{
    checksum::{Algorithm, Checksum},
    chunked::{Encoder, Framing},
    sigv4::{EMPTY_SHA256, PayloadMode},
};
use forebay_store::PayloadProof;
use http::{HeaderMap, HeaderValue, Method};

use super::harness::{Ask, Edge, Reply};

const CHUNK_BYTES: NonZeroU64 = NonZeroU64::new(8 * 1024).unwrap();
const CRC: &str = "x-amz-checksum-crc32";

/// Bytes that do not repeat within a chunk.
fn payload(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 31 + i / 251).to_le_bytes()[0])
        .collect()
}

fn sha256(bytes: &[u8]) -> PayloadMode {
    let digest = Checksum::of(Algorithm::Sha256, bytes);
    PayloadMode::Sha256(digest.as_bytes().try_into().unwrap())
}

/// A PUT of `bytes` in the `aws-chunked` coding, before anybody has spoilt it.
fn chunked_put(edge: &Edge, mode: PayloadMode, bytes: &[u8], trailer: Option<&str>) -> Ask {
    let mut ask = Ask::new(Method::PUT, "/open/key")
        .payload(mode)
        .header("content-encoding", "aws-chunked,gzip")
        .header("x-amz-decoded-content-length", &bytes.len().to_string());
    let mut trailers = HeaderMap::new();
    if let Some(value) = trailer {
        ask = ask.header("x-amz-trailer", CRC);
        trailers.insert(CRC, HeaderValue::from_str(value).unwrap());
    }
    // The length of the body must be there when the headers are signed, but it is not signed.
    ask = ask.signed_by("ann");
    let (date, seed) = ask.sign(edge).unwrap();
    ask.signer = None;
    let framing = Ask::signing("ann", date, |signer| match mode {
        PayloadMode::StreamingSigned => Framing::Signed(signer.chunk_signer(seed)),
        PayloadMode::StreamingSignedTrailer => Framing::SignedTrailer(signer.chunk_signer(seed)),
        _ => Framing::UnsignedTrailer,
    });
    let mut encoder = Encoder::new(framing, bytes.len() as u64, CHUNK_BYTES);
    let mut body = Vec::new();
    let mut out = |piece: Bytes| body.extend_from_slice(&piece);
    encoder
        .push(Bytes::copy_from_slice(bytes), &mut out)
        .unwrap();
    encoder.finish(&trailers, &mut out).unwrap();
    let length = body.len().to_string();
    Ask { body, ..ask }.header("content-length", &length)
}

fn assert_refused(edge: &Edge, what: &str, reply: &Reply, code: &str) {
    assert_eq!(reply.code(), code, "{what}: {}", reply.text());
    assert!(edge.store.object("key").is_none(), "{what} was stored");
}

#[test]
fn every_form_of_payload_arrives_byte_for_byte() {
    let edge = Edge::start();
    let crc = |bytes: &[u8]| Checksum::of(Algorithm::Crc32, bytes).to_base64();
    for length in [0, 1, 8 * 1024, 20_000, 300_000] {
        let bytes = payload(length);
        let crc = crc(&bytes);
        for mode in [
            PayloadMode::StreamingSigned,
            PayloadMode::StreamingSignedTrailer,
            PayloadMode::StreamingUnsignedTrailer,
        ] {
            let trailer = (mode != PayloadMode::StreamingSigned).then_some(crc.as_str());
            let reply = edge.send(&chunked_put(&edge, mode, &bytes, trailer));
            assert_eq!(reply.status, 200, "{mode:?} {length}: {}", reply.text());
            let asked = edge.store.asked().pop().unwrap();
            let (received, trailers) = asked.body.unwrap();
            assert_eq!(received, bytes, "{mode:?} {length}");
            let value = trailers.map(|map| map[CRC].to_str().unwrap().to_owned());
            assert_eq!(value.as_deref(), trailer);
            let proof = match mode {
                PayloadMode::StreamingUnsignedTrailer => PayloadProof::None,
                _ => PayloadProof::Chunks,
            };
            assert_eq!(asked.payload_proof, proof, "{mode:?}");
            assert_eq!(asked.headers["content-encoding"], "gzip");
            assert_eq!(asked.headers["content-length"], length.to_string().as_str());
            assert!(!asked.headers.contains_key("x-amz-decoded-content-length"));
            assert_eq!(
                asked.headers.contains_key("x-amz-trailer"),
                trailer.is_some()
            );
        }
        for mode in [sha256(&bytes), PayloadMode::Unsigned] {
            let put = Ask::put("/open/key", bytes.clone())
                .payload(mode)
                .header(CRC, &crc);
            let reply = edge.send(&put.signed_by("ann"));
            assert_eq!(reply.status, 200, "{mode:?} {length}: {}", reply.text());
            let asked = edge.store.asked().pop().unwrap();
            assert_eq!(asked.body.unwrap().0, bytes, "{mode:?} {length}");
            let proof = match mode {
                PayloadMode::Sha256(digest) => PayloadProof::Sha256(digest),
                _ => PayloadProof::None,
            };
            assert_eq!(asked.payload_proof, proof);
            assert_eq!(asked.headers[CRC], crc.as_str());
        }
    }
}

#[test]
fn a_payload_that_is_not_what_was_declared_is_refused_and_not_stored() {
    let edge = Edge::start();
    for bytes in [payload(100), payload(100_000)] {
        let put = || Ask::put("/open/key", bytes.clone());
        let other = payload(bytes.len() + 1);
        let wrong_crc = Checksum::of(Algorithm::Crc32, &other).to_base64();
        for (what, ask, code) in [
            (
                "hash",
                put().payload(sha256(&other)),
                "XAmzContentSHA256Mismatch",
            ),
            (
                "md5",
                put().header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
                "BadDigest",
            ),
            (
                "no md5",
                put().header("content-md5", "AAAA"),
                "InvalidDigest",
            ),
            ("crc", put().header(CRC, &wrong_crc), "BadDigest"),
            ("no crc", put().header(CRC, "?"), "InvalidRequest"),
        ] {
            let reply = edge.send(&ask.signed_by("ann"));
            assert_refused(&edge, what, &reply, code);
        }
        let right = Checksum::of(Algorithm::Crc32, &bytes).to_base64();
        let streamed = |mode, trailer: &str| chunked_put(&edge, mode, &bytes, Some(trailer));
        let spoilt = |ask: Ask, at: fn(&[u8]) -> usize| {
            let mut ask = ask;
            let at = at(&ask.body);
            ask.body[at] ^= 1;
            ask
        };
        let signed = PayloadMode::StreamingSignedTrailer;
        let unsigned = PayloadMode::StreamingUnsignedTrailer;
        let last_byte_of_trailer_signature = |body: &[u8]| body.len() - 5;
        for (what, ask, code) in [
            ("trailer", streamed(unsigned, &wrong_crc), "BadDigest"),
            ("signed trailer", streamed(signed, &wrong_crc), "BadDigest"),
            (
                "first chunk",
                spoilt(streamed(signed, &right), |_| 120),
                "SignatureDoesNotMatch",
            ),
            (
                "signature of the trailers",
                spoilt(streamed(signed, &right), last_byte_of_trailer_signature),
                "SignatureDoesNotMatch",
            ),
            (
                "framing",
                spoilt(streamed(unsigned, &right), |_| 0),
                "IncompleteBody",
            ),
        ] {
            let reply = edge.send(&ask);
            assert_refused(&edge, what, &reply, code);
        }
    }
    let empty = Ask::put("/open/key", "").payload(sha256(b"not empty"));
    let reply = edge.send(&empty.signed_by("ann"));
    assert_refused(&edge, "empty", &reply, "XAmzContentSHA256Mismatch");
    let get = Ask::get("/open/key").payload(sha256(b"not empty"));
    assert_eq!(
        edge.send(&get.signed_by("ann")).code(),
        "XAmzContentSHA256Mismatch"
    );
    let get = Ask::get("/open/key").payload(PayloadMode::parse(EMPTY_SHA256).unwrap());
    assert_eq!(edge.send(&get.signed_by("ann")).code(), "NoSuchKey");
}

#[test]
fn a_body_that_ends_early_is_incomplete_and_not_stored() {
    let edge = Edge::start();
    for sent in [0, 10, 50_000] {
        let put = Ask::put("/open/key", payload(100_000)).signed_by("ann");
        let bytes = put.bytes(&edge);
        let head_bytes = bytes.len() - 100_000;
        let mut client = edge.connect();
        client.write(&bytes[..head_bytes + sent]);
        client.finish();
        let reply = client.reply();
        assert_refused(&edge, "short", &reply, "IncompleteBody");
    }
    let put = chunked_put(
        &edge,
        PayloadMode::StreamingUnsignedTrailer,
        &payload(10),
        Some("x"),
    );
    let cut = put.body.len() - 30;
    let mut short = Ask {
        body: put.body[..cut].to_vec(),
        ..put
    };
    short
        .headers
        .insert("content-length", HeaderValue::from(cut));
    assert_refused(&edge, "no end", &edge.send(&short), "IncompleteBody");
}

#[test]
fn a_put_says_its_length_ahead_and_stays_below_the_limit() {
    let edge = Edge::start();
    let put = |name: &str, value: &str| {
        let ask = Ask::new(Method::PUT, "/open/key").header(name, value);
        edge.send(&ask.signed_by("ann"))
    };
    assert_eq!(put("content-type", "x").code(), "MissingContentLength");
    let reply = put(
        "content-length",
        &(5 * 1024 * 1024 * 1024_u64 + 1).to_string(),
    );
    assert_refused(&edge, "too large", &reply, "EntityTooLarge");
    let text = "PUT /open/key HTTP/1.1\r\nhost: x\r\ncontent-length: 1x\r\n\r\n";
    assert_eq!(edge.send_text(text).status, 400);
    let chunked = Ask::new(Method::PUT, "/open/key").header("transfer-encoding", "chunked");
    let mut chunked = chunked.signed_by("ann");
    chunked.body = b"1\r\nx\r\n0\r\n\r\n".to_vec();
    assert_refused(
        &edge,
        "chunked",
        &edge.send(&chunked),
        "MissingContentLength",
    );
}

#[test]
fn who_waits_for_continue_sends_nothing_in_vain() {
    let edge = Edge::start();
    let put = |user| {
        let ask = Ask::put("/open/key", "hello")
            .header("expect", "100-continue")
            .signed_by(user);
        let bytes = ask.bytes(&edge);
        let body_at = bytes.len() - 5;
        (bytes[..body_at].to_vec(), bytes[body_at..].to_vec())
    };
    let mut client = edge.connect();
    let (head, _) = put("eve");
    let refused = client.send(&head);
    assert_eq!(refused.code(), "InvalidAccessKeyId");
    assert_eq!(refused.header("connection"), Some("close"));
    let mut client = edge.connect();
    let (head, body) = put("ann");
    assert_eq!(client.send(&head).status, 100);
    let stored = client.send(&body);
    assert_eq!((stored.status, stored.header("connection")), (200, None));
    assert_eq!(edge.store.object("key").unwrap(), "hello");
    assert!(!edge.store.asked()[0].headers.contains_key("expect"));
}

/// botocore applies the status of such an answer to the next request of the connection as well.
#[test]
fn an_answer_in_place_of_continue_ends_the_connection() {
    let edge = Edge::start();
    let put = Ask::put("/open/key", "")
        .header("expect", "100-continue")
        .signed_by("ann");
    let stored = edge.connect().send(&put.bytes(&edge));
    assert_eq!(
        (stored.status, stored.header("connection")),
        (200, Some("close"))
    );
}

#[test]
fn a_body_that_nobody_wants_is_drained_and_the_connection_lives() {
    let edge = Edge::start();
    let mut client = edge.connect();
    let refused = Ask::put("/open/key", payload(1024 * 1024)).signed_by("eve");
    assert_eq!(
        client.send(&refused.bytes(&edge)).code(),
        "InvalidAccessKeyId"
    );
    let good = Ask::put("/open/key", "hello").signed_by("ann");
    assert_eq!(client.send(&good.bytes(&edge)).status, 200);
}

/// Fields of a form and its file, in order.
fn form(fields: &[(&str, &str)], file: &[u8], after: &[(&str, &str)]) -> Ask {
    let mut body = Vec::new();
    let mut part = |name: &str, value: &[u8]| {
        let filename = if name == "file" {
            "; filename=\"a.txt\""
        } else {
            ""
        };
        let head =
            format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    };
    for (name, value) in fields {
        part(name, value.as_bytes());
    }
    part("file", file);
    for (name, value) in after {
        part(name, value.as_bytes());
    }
    body.extend_from_slice(b"--XX--\r\n");
    let length = body.len().to_string();
    let ask = Ask::new(Method::POST, "/open").header("content-length", &length);
    Ask { body, ..ask }.header("content-type", "multipart/form-data; boundary=XX")
}

/// A form that `user` has signed, for a file of at most 9,000,000 bytes.
fn signed_form(
    edge: &Edge,
    user: &'static str,
    more: &[(&str, &str)],
    file: &[u8],
    after: &[(&str, &str)],
) -> Ask {
    use base64::Engine as _;
    let date = forebay_s3::time::AmzDate::from_unix(edge.clock.unix_seconds());
    let credential = format!(
        "{}/{}/eu-central-1/s3/aws4_request",
        user.to_uppercase(),
        date.date_stamp()
    );
    let mut conditions = String::new();
    for (name, value) in more {
        let _ = write!(conditions, "{{\"{name}\": \"{value}\"}},");
    }
    let policy = format!(
        r#"{{"expiration": "2099-01-01T00:00:00Z", "conditions": [{conditions}
        {{"bucket": "open"}}, ["starts-with", "$key", "mine/"],
        {{"x-amz-algorithm": "AWS4-HMAC-SHA256"}}, {{"x-amz-credential": "{credential}"}},
        {{"x-amz-date": "{date}"}}, ["content-length-range", 1, 9000000]]}}"#
    );
    let policy = base64::engine::general_purpose::STANDARD.encode(policy);
    let signature = Ask::signing(user, date, |signer| {
        signer.key.key().sign(&[policy.as_bytes()])
    });
    let mut fields = vec![
        ("key", "mine/${filename}"),
        ("policy", &policy),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", &credential),
        ("x-amz-date", date.as_str()),
        ("x-amz-signature", signature.as_str()),
    ];
    fields.extend_from_slice(more);
    form(&fields, file, after)
}

#[test]
fn a_form_becomes_a_put() {
    let edge = Edge::start();
    let more = [("x-amz-meta-color", "blue"), ("content-type", "text/plain")];
    let after = [("submit", "Upload")];
    let reply = edge.send(&signed_form(&edge, "ann", &more, b"the file", &after));
    assert_eq!((reply.status, reply.text().as_str()), (204, ""));
    assert_eq!(
        reply.header("location"),
        Some("http://gateway.test/open/mine/a.txt")
    );
    assert_eq!(reply.header("etag"), Some("\"etag\""));
    let asked = &edge.store.asked()[0];
    assert_eq!(asked.body.clone().unwrap().0, "the file");
    assert_eq!(asked.headers["x-amz-meta-color"], "blue");
    assert_eq!(asked.headers["content-type"], "text/plain");
    assert_eq!(asked.headers["content-length"], "8");
    assert!(!asked.headers.contains_key("x-amz-signature"));
    for (status, body) in [("200", ""), ("201", "<Key>mine/a.txt</Key>")] {
        let more = [("success_action_status", status)];
        let reply = edge.send(&signed_form(&edge, "ann", &more, b"x", &[]));
        assert_eq!(reply.status.to_string(), status);
        assert!(reply.text().contains(body), "{}", reply.text());
    }
    let more = [("success_action_redirect", "http://a/?b")];
    let reply = edge.send(&signed_form(&edge, "ann", &more, b"x", &[]));
    let location = "http://a/?b&bucket=open&key=mine%2Fa.txt&etag=%22etag%22";
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some(location))
    );
}

#[test]
fn a_form_that_its_policy_or_its_signers_rights_do_not_cover_is_refused() {
    let edge = Edge::start();
    let mut other_key = signed_form(&edge, "ann", &[], b"x", &[]);
    let at = other_key
        .body
        .windows(7)
        .position(|w| w == b"mine/${")
        .unwrap();
    other_key.body[at..at + 4].copy_from_slice(b"your");
    let mut resigned = signed_form(&edge, "ann", &[], b"x", &[]);
    let at = resigned
        .body
        .windows(3)
        .rposition(|w| w == b"ann")
        .unwrap_or_default();
    assert_eq!(at, 0, "no secret in a form");
    let at = resigned
        .body
        .windows(15)
        .position(|w| w == b"x-amz-signature")
        .unwrap();
    resigned.body[at + 25] ^= 1;
    for (what, ask, code) in [
        (
            "anonymous",
            form(&[("key", "a")], b"x", &[]),
            "AccessDenied",
        ),
        (
            "no right",
            signed_form(&edge, "bob", &[], b"x", &[]),
            "AccessDenied",
        ),
        (
            "no such key id",
            signed_form(&edge, "eve", &[], b"x", &[]),
            "InvalidAccessKeyId",
        ),
        ("another key", other_key, "AccessDenied"),
        ("wrong signature", resigned, "SignatureDoesNotMatch"),
        (
            "too small",
            signed_form(&edge, "ann", &[], b"", &[]),
            "EntityTooSmall",
        ),
        (
            "too large",
            signed_form(&edge, "ann", &[], &payload(9_000_001), &[]),
            "EntityTooLarge",
        ),
        ("no key", form(&[], b"x", &[]), "InvalidArgument"),
    ] {
        let reply = edge.send(&ask);
        assert_eq!(reply.code(), code, "{what}: {}", reply.text());
    }
    assert!(edge.store.object("mine/a.txt").is_none());
}

#[test]
fn a_large_form_streams_and_must_end_with_its_file() {
    let edge = Edge::start();
    let file = payload(8_900_000);
    let reply = edge.send(&signed_form(&edge, "ann", &[], &file, &[]));
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(edge.store.object("mine/a.txt").unwrap(), file);
    assert_eq!(edge.store.asked()[0].headers["content-length"], "8900000");
    let edge = Edge::start();
    let reply = edge.send(&signed_form(
        &edge,
        "ann",
        &[],
        &file,
        &[("submit", "Upload")],
    ));
    assert_eq!(reply.code(), "IncompleteBody");
    assert!(edge.store.object("mine/a.txt").is_none());
}

/// Goal: nothing that ends in an error was ever given whole to a store.
/// Method: payloads whose fault shows at their end; the store counts what it was given.
#[test]
fn the_last_piece_is_held_back_until_all_is_judged() {
    let edge = Edge::start();
    let crc = Checksum::of(Algorithm::Crc32, b"x").to_base64();
    for bytes in [payload(1), payload(100_000)] {
        let streamed = |mode| chunked_put(&edge, mode, &bytes, Some(&crc));
        let put = || Ask::put("/open/key", bytes.clone());
        for ask in [
            put().payload(sha256(b"x")).signed_by("ann"),
            put().header(CRC, &crc).signed_by("ann"),
            streamed(PayloadMode::StreamingUnsignedTrailer),
            streamed(PayloadMode::StreamingSignedTrailer),
        ] {
            assert_eq!(edge.send(&ask).status, 400);
            let asked = edge.store.asked().pop().unwrap();
            assert!(asked.body.is_err() && asked.given_bytes < bytes.len());
        }
    }
}

#[test]
fn a_document_of_unknown_length_gets_one() {
    let edge = Edge::start();
    let mut ask = Ask::new(Method::POST, "/open/key?uploadId=1")
        .header("transfer-encoding", "chunked")
        .signed_by("ann");
    ask.body = b"3\r\n<a>\r\n4\r\n</a>\r\n0\r\n\r\n".to_vec();
    assert_eq!(edge.send(&ask).status, 200);
    let asked = edge.store.asked().pop().unwrap();
    assert_eq!(asked.body.unwrap().0, "<a></a>");
    assert_eq!(asked.headers["content-length"], "7");
    assert!(!asked.headers.contains_key("transfer-encoding"));
}
