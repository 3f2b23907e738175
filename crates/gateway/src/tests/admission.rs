//! Who gets in: signatures, policies, and what they are told.

use http::Method;

use super::harness::{Ask, Edge, settings};
use crate::settings::Authentication;

/// A presigned life of a quarter of an hour.
const QUARTER: u32 = 900;

#[test]
fn a_signed_request_reaches_the_store_without_its_signature() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    let reply = edge.send(&Ask::get("/open/key?versionId=v1").signed_by("ann"));
    assert_eq!((reply.status, reply.text().as_str()), (200, "bytes"));
    let asked = &edge.store.asked()[0];
    assert_eq!(asked.query.as_str(), "versionId=v1");
    for name in [
        "host",
        "authorization",
        "x-amz-date",
        "x-amz-content-sha256",
    ] {
        assert!(!asked.headers.contains_key(name), "{name}");
    }
}

#[test]
fn a_presigned_request_reaches_the_store_without_its_signature() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    let get = Ask::get("/open/key?versionId=v1").presigned(&edge, "bob", 60, QUARTER);
    // bob may read objects, not versions.
    assert_eq!(edge.send(&get).code(), "AccessDenied");
    let get = Ask::get("/open/key?response-content-type=x").presigned(&edge, "bob", 60, QUARTER);
    assert_eq!(edge.send(&get).text(), "bytes");
    assert_eq!(
        edge.store.asked()[0].query.as_str(),
        "response-content-type=x"
    );
    let put = Ask::put("/open/new", "new bytes").presigned(&edge, "ann", 60, QUARTER);
    assert_eq!(edge.send(&put).status, 200);
    assert_eq!(edge.store.object("new").unwrap(), "new bytes");
}

#[test]
fn what_is_not_proved_gets_the_code_of_s3_and_reaches_no_store() {
    let edge = Edge::start();
    let get = || Ask::get("/open/key");
    let signed = |change: fn(&mut Ask)| {
        let mut ask = get().header("x-amz-meta-a", "1").signed_by("ann");
        ask.sign(&edge);
        ask.signer = None;
        change(&mut ask);
        ask
    };
    let authorization = |value: &str| get().header("authorization", value);
    let scope = "AKIA/20130524/eu-central-1/s3/aws4_request";
    for (what, ask, status, code) in [
        ("anonymous", get(), 403, "AccessDenied"),
        (
            "unknown key",
            get().signed_by("eve"),
            403,
            "InvalidAccessKeyId",
        ),
        (
            "signed too long ago",
            get().signed_before("ann", 901),
            403,
            "RequestTimeTooSkewed",
        ),
        (
            "signed in the future",
            get().signed_before("ann", -901),
            403,
            "RequestTimeTooSkewed",
        ),
        (
            "another key than was signed",
            signed(|ask| ask.target = "/open/other".to_owned()),
            403,
            "SignatureDoesNotMatch",
        ),
        (
            "a signed header that was changed",
            signed(|ask| *ask = ask.clone().header("x-amz-meta-a", "2")),
            403,
            "SignatureDoesNotMatch",
        ),
        (
            "an unsigned header of Amazon's",
            signed(|ask| *ask = ask.clone().header("x-amz-acl", "public-read")),
            403,
            "AccessDenied",
        ),
        (
            "an absent signed header",
            signed(|ask| drop(ask.headers.remove("x-amz-meta-a"))),
            403,
            "SignatureDoesNotMatch",
        ),
        (
            "expired",
            get().presigned(&edge, "ann", 901, QUARTER),
            403,
            "AccessDenied",
        ),
        (
            "nonsense",
            authorization("AWS4-HMAC-SHA256 x"),
            400,
            "AuthorizationHeaderMalformed",
        ),
        (
            "version two",
            authorization("AWS AKIA:c2ln"),
            400,
            "InvalidRequest",
        ),
        ("basic", authorization("Basic dTpw"), 400, "InvalidArgument"),
        (
            "no date",
            authorization(&format!(
                "AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=00"
            ))
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            403,
            "AccessDenied",
        ),
        (
            "two proofs",
            get().presigned(&edge, "ann", 0, QUARTER).signed_by("ann"),
            400,
            "InvalidArgument",
        ),
        (
            "a week and a second",
            {
                let ask = get().presigned(&edge, "ann", 0, 604_800);
                Ask {
                    target: ask.target.replace("=604800", "=604801"),
                    ..ask
                }
            },
            400,
            "AuthorizationQueryParametersError",
        ),
    ] {
        let reply = edge.send(&ask);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{what}"
        );
    }
    assert!(edge.store.asked().is_empty());
}

#[test]
fn only_a_policy_lets_the_anonymous_in() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    assert_eq!(edge.send(&Ask::get("/public/key")).text(), "bytes");
    assert_eq!(edge.send(&Ask::get("/open/key")).status, 403);
    assert_eq!(
        edge.send(&Ask::put("/public/key", "x")).code(),
        "AccessDenied"
    );
    assert_eq!(edge.send(&Ask::get("/")).code(), "AccessDenied");
    assert_eq!(edge.store.asked().len(), 1);
}

#[test]
fn a_user_may_what_their_policies_allow_and_no_more() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    for (method, target, status) in [
        (Method::GET, "/open/key", 200),
        (Method::HEAD, "/open/key", 200),
        (Method::GET, "/closed/key", 403),
        (Method::GET, "/open", 403),
        (Method::DELETE, "/open/key", 403),
        (Method::DELETE, "/open/mine/key", 200),
        (Method::GET, "/public/key", 200),
    ] {
        let reply = edge.send(&Ask::new(method.clone(), target).signed_by("bob"));
        assert_eq!(reply.status, status, "{method} {target}");
    }
}

#[test]
fn a_copy_needs_to_read_its_source() {
    let edge = Edge::start();
    let copy = |user, source| {
        edge.send(
            &Ask::put("/open/mine/a", "")
                .header("x-amz-copy-source", source)
                .signed_by(user),
        )
    };
    assert_eq!(copy("bob", "/open/key").code(), "AccessDenied");
    assert_eq!(copy("ann", "/open/key").status, 200);
}

#[test]
fn one_denied_key_refuses_a_whole_delete() {
    let edge = Edge::start();
    let delete = |keys: &[&str]| {
        let objects = keys.join("</Key></Object><Object><Key>");
        let objects = if keys.is_empty() {
            String::new()
        } else {
            format!("<Object><Key>{objects}</Key></Object>")
        };
        let body = format!("<Delete>{objects}</Delete>");
        let length = body.len().to_string();
        let ask = Ask {
            body: body.into_bytes(),
            ..Ask::new(Method::POST, "/open?delete")
        };
        edge.send(&ask.header("content-length", &length).signed_by("bob"))
    };
    assert_eq!(delete(&["mine/a", "other/b"]).code(), "AccessDenied");
    assert!(edge.store.asked().is_empty());
    assert_eq!(delete(&["mine/a", "mine/b"]).status, 200);
    let (body, _) = edge.store.asked()[0].body.clone().unwrap();
    assert!(body.ends_with(b"<Key>mine/b</Key></Object></Delete>"));
    assert_eq!(delete(&[]).code(), "MalformedXML");
}

#[test]
fn the_browsers_question_passes_unsigned() {
    let edge = Edge::start();
    let ask = Ask::new(Method::OPTIONS, "/open/key")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "PUT");
    assert_eq!(edge.send(&ask).status, 200);
    assert_eq!(
        edge.store.asked()[0].headers["origin"],
        "https://example.com"
    );
}

#[test]
fn a_listener_without_authentication_gives_everybody_one_identity() {
    for (identity, status) in [
        (forebay_store::Identity::User("bob".into()), 200),
        (forebay_store::Identity::Anonymous, 403),
    ] {
        let mut settings = settings();
        settings.listeners[0].authentication = Authentication::Off { identity };
        let edge = Edge::start_with(settings);
        edge.store.put("key", "bytes");
        assert_eq!(edge.send(&Ask::get("/open/key")).status, status);
        // A signature is not looked at, whosever it is.
        assert_eq!(
            edge.send(&Ask::get("/open/key").signed_by("eve")).status,
            status
        );
        assert_eq!(
            edge.send(&Ask::get("/closed/key").signed_by("ann")).status,
            403
        );
    }
}

#[test]
fn exchanged_users_count_from_the_next_request_on() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    let mut client = edge.connect();
    let get = Ask::get("/open/key").signed_by("ann");
    assert_eq!(client.send(&get.bytes(&edge)).status, 200);
    edge.running
        .replace_users(crate::users::Users::new([], vec![]).unwrap());
    assert_eq!(client.send(&get.bytes(&edge)).code(), "InvalidAccessKeyId");
}

#[test]
fn a_bucket_may_be_a_host_name() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    let ask = Ask {
        host: "open.s3.test:9000".to_owned(),
        ..Ask::get("/key")
    };
    assert_eq!(edge.send(&ask.signed_by("bob")).text(), "bytes");
    assert_eq!(
        edge.store.asked()[0].operation.bucket().unwrap().as_str(),
        "open"
    );
}
