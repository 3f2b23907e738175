//! The examples that AWS publishes for S3, and what each fault is answered with.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sha2::{Digest, Sha256};

use super::*;
use crate::code::Code;
use crate::time::AmzDate;

const KEY_ID: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const HOST: &str = "examplebucket.s3.amazonaws.com";
/// 2013-05-24T00:00:00Z, the time of all of AWS's examples.
const NOW: i64 = 1_369_353_600;
const BASIC: &str = "host;x-amz-content-sha256;x-amz-date";
const PRESIGNED: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F\
    20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400\
    &X-Amz-SignedHeaders=host&X-Amz-Signature=\
    aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

/// A request that a test can spoil.
#[derive(Clone)]
struct Example {
    method: Method,
    path: &'static str,
    query: Option<String>,
    host: &'static str,
    headers: HeaderMap,
}

impl Example {
    fn new(method: Method, path: &'static str, query: Option<&str>) -> Self {
        let query = query.map(str::to_owned);
        Self {
            method,
            path,
            query,
            host: HOST,
            headers: HeaderMap::new(),
        }
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap();
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    fn without(mut self, name: &str) -> Self {
        assert!(self.headers.remove(name).is_some(), "{name}");
        self
    }

    fn authorization(self, signed_headers: &str, signature: &str) -> Self {
        let scope = "20130524/us-east-1/s3/aws4_request";
        self.header(
            "authorization",
            &format!(
                "AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope},\
                 SignedHeaders={signed_headers},Signature={signature}"
            ),
        )
    }

    /// The headers that most examples share.
    fn basic(self) -> Self {
        self.header("x-amz-content-sha256", EMPTY_SHA256)
            .header("x-amz-date", "20130524T000000Z")
    }

    fn parts(&self) -> RequestParts<'_> {
        RequestParts {
            method: &self.method,
            path: self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            host: self.host,
        }
    }

    fn verify_at(&self, now: i64) -> Result<Verified<'_>, AuthError> {
        let parts = self.parts();
        let presented = Presented::from_request(&parts)?.expect("the request is signed");
        let expected = ExpectedScope {
            regions: Regions::OneOf(&["us-east-1"]),
            service: "s3",
        };
        presented
            .check(&parts, &expected, now)?
            .verify(&parts, &example_key())
    }

    /// The answer's code, which the table of codes must know.
    fn code_at(&self, now: i64) -> &'static str {
        let Err(error) = self.verify_at(now) else {
            return "accepted";
        };
        assert!(Code::parse(error.code()).is_some(), "{}", error.code());
        error.code()
    }
}

fn example_key() -> SigningKey {
    SigningKey::derive(&SecretKey::new(SECRET), "20130524", "us-east-1", "s3")
}

fn get_object() -> Example {
    Example::new(Method::GET, "/test.txt", None)
        .basic()
        .header("range", "bytes=0-9")
        .authorization(
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        )
}

fn put_object() -> Example {
    Example::new(Method::PUT, "/test$file.text", None)
        .header("date", "Fri, 24 May 2013 00:00:00 GMT")
        .header("x-amz-date", "20130524T000000Z")
        .header("x-amz-storage-class", "REDUCED_REDUNDANCY")
        .header(
            "x-amz-content-sha256",
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        )
        .authorization(
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        )
}

fn presigned() -> Example {
    Example::new(Method::GET, "/test.txt", Some(PRESIGNED))
}

#[test]
fn the_published_header_examples_verify() {
    let lifecycle = Example::new(Method::GET, "/", Some("lifecycle"))
        .basic()
        .authorization(
            BASIC,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
    let list = Example::new(Method::GET, "/", Some("max-keys=2&prefix=J"))
        .basic()
        .authorization(
            BASIC,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    for example in [get_object(), put_object(), lifecycle, list] {
        let verified = example.verify_at(NOW).unwrap();
        assert_eq!(verified.access_key_id(), KEY_ID);
        assert_eq!(verified.presented().region(), "us-east-1");
        assert!(matches!(verified.payload(), PayloadMode::Sha256(_)));
    }
}

#[test]
fn the_published_presigned_example_verifies() {
    let example = presigned();
    let verified = example.verify_at(NOW).unwrap();
    assert_eq!(verified.payload(), PayloadMode::Unsigned);
    assert_eq!(verified.presented().form(), Form::Query);
}

#[test]
fn a_mismatch_shows_both_texts_of_the_published_example() {
    let AuthError::SignatureDoesNotMatch(mismatch) = Example {
        path: "/test.tx",
        ..get_object()
    }
    .verify_at(NOW)
    .unwrap_err() else {
        panic!("another path is another signature");
    };
    assert!(
        mismatch.string_to_sign.starts_with(
            "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
        )
    );
    assert_eq!(
        mismatch.canonical_request,
        format!(
            "GET\n/test.tx\n\nhost:{HOST}\nrange:bytes=0-9\nx-amz-content-sha256:{EMPTY_SHA256}\n\
             x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n\
             {EMPTY_SHA256}"
        )
    );
}

#[test]
fn every_change_to_a_signed_request_is_noticed() {
    let changed: Vec<(&str, Example)> = vec![
        (
            "method",
            Example {
                method: Method::HEAD,
                ..get_object()
            },
        ),
        (
            "path",
            Example {
                path: "/test.txt/",
                ..get_object()
            },
        ),
        (
            "query",
            Example {
                query: Some("acl".into()),
                ..get_object()
            },
        ),
        (
            "host",
            Example {
                host: "other.s3.amazonaws.com",
                ..get_object()
            },
        ),
        (
            "value",
            get_object().without("range").header("range", "bytes=0-8"),
        ),
        ("second value", get_object().header("range", "bytes=0-8")),
        ("absent", get_object().without("range")),
        (
            "presigned method",
            Example {
                method: Method::PUT,
                ..presigned()
            },
        ),
        (
            "presigned query",
            Example {
                query: Some(format!("{PRESIGNED}&acl")),
                ..presigned()
            },
        ),
    ];
    for (what, example) in changed {
        assert_eq!(example.code_at(NOW), "SignatureDoesNotMatch", "{what}");
    }
}

#[test]
fn unsigned_amz_headers_and_an_unsigned_host_are_refused() {
    let added = get_object().header("x-amz-copy-source", "/other/secret");
    let error = added.verify_at(NOW).unwrap_err();
    assert_eq!(
        error,
        AuthError::HeadersNotSigned("x-amz-copy-source".into())
    );
    assert_eq!(error.code(), "AccessDenied");
    let added = presigned()
        .header("x-amz-tagging", "a=b")
        .header("x-amz-acl", "public-read");
    assert_eq!(
        added.verify_at(NOW).unwrap_err(),
        AuthError::HeadersNotSigned("x-amz-tagging, x-amz-acl".into())
    );
    let hostless = Example::new(Method::GET, "/", None)
        .basic()
        .authorization("x-amz-content-sha256;x-amz-date", &"0".repeat(64));
    assert_eq!(
        hostless.verify_at(NOW).unwrap_err(),
        AuthError::HeadersNotSigned("host".into())
    );
    // Tolerated, as S3 does, and only here.
    let hashed = presigned().header("x-amz-content-sha256", EMPTY_SHA256);
    assert_eq!(
        hashed.verify_at(NOW).unwrap().payload(),
        PayloadMode::empty()
    );
    // Other headers may be added freely.
    assert_eq!(
        get_object()
            .header("cache-control", "no-cache")
            .code_at(NOW),
        "accepted"
    );
}

#[test]
fn the_clock_may_differ_by_a_quarter_of_an_hour() {
    for (seconds, code) in [
        (0, "accepted"),
        (SKEW_SECONDS_MAX, "accepted"),
        (-SKEW_SECONDS_MAX, "accepted"),
        (SKEW_SECONDS_MAX + 1, "RequestTimeTooSkewed"),
        (-SKEW_SECONDS_MAX - 1, "RequestTimeTooSkewed"),
    ] {
        assert_eq!(get_object().code_at(NOW + seconds), code, "{seconds}");
    }
    let extras = get_object().verify_at(NOW + 3600).unwrap_err().extras();
    assert_eq!(extras[0], ("RequestTime", "20130524T000000Z".to_owned()));
    assert_eq!(extras[1], ("ServerTime", "2013-05-24T01:00:00Z".to_owned()));
    assert_eq!(
        extras[2],
        ("MaxAllowedSkewMilliseconds", "900000".to_owned())
    );
}

#[test]
fn a_presigned_url_lives_exactly_as_long_as_it_says() {
    assert_eq!(presigned().code_at(NOW + 86_400), "accepted");
    let expired = presigned().verify_at(NOW + 86_401).unwrap_err();
    assert_eq!(
        (expired.code(), expired.to_string().as_str()),
        ("AccessDenied", "Request has expired")
    );
    assert_eq!(presigned().code_at(NOW - SKEW_SECONDS_MAX), "accepted");
    assert_eq!(
        presigned()
            .verify_at(NOW - SKEW_SECONDS_MAX - 1)
            .unwrap_err(),
        AuthError::NotYetValid
    );
}

#[test]
fn malformed_authorization_headers_get_the_answers_of_s3() {
    let scope = "20130524/us-east-1/s3/aws4_request";
    let rest = format!("SignedHeaders={BASIC}, Signature=00");
    let table = [
        ("Bearer token".to_owned(), "InvalidArgument"),
        ("AWS AKID:c2ln".to_owned(), "InvalidRequest"),
        (
            format!("AWS4-ECDSA-P256-SHA256 Credential=AKID/{scope}, {rest}"),
            "InvalidRequest",
        ),
        (
            "AWS4-HMAC-SHA256".to_owned(),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Foo=1, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=a/b, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=/{scope}, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=A/201305/us-east-1/s3/aws4_request, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws5_request, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/ec2/aws4_request, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=A/20130525/us-east-1/s3/aws4_request, {rest}"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential=A/{scope}, {rest}"),
            "SignatureDoesNotMatch",
        ),
    ];
    for (value, code) in table {
        let example = Example::new(Method::GET, "/", None)
            .basic()
            .header("authorization", &value);
        assert_eq!(example.code_at(NOW), code, "{value}");
    }
}

#[test]
fn a_wrong_region_is_told_the_right_one() {
    let value = format!(
        "AWS4-HMAC-SHA256 Credential=A/20130524/eu-west-1/s3/aws4_request, \
         SignedHeaders={BASIC}, Signature=00"
    );
    let example = Example::new(Method::GET, "/", None)
        .basic()
        .header("authorization", &value);
    let error = example.verify_at(NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "The authorization header is malformed; the region 'eu-west-1' is wrong; expecting \
         'us-east-1'"
    );
    assert_eq!(error.extras(), [("Region", "us-east-1".to_owned())]);
}

#[test]
fn malformed_presigned_queries_get_the_answers_of_s3() {
    let query_error = "AuthorizationQueryParametersError";
    for (from, to, code) in [
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256&", "", query_error),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA512", query_error),
        (
            "AWS4-HMAC-SHA256",
            "AWS4-ECDSA-P256-SHA256",
            "InvalidRequest",
        ),
        ("X-Amz-Date=20130524T000000Z&", "", query_error),
        ("20130524T000000Z", "2013-05-24T00:00:00Z", query_error),
        ("X-Amz-Expires=86400&", "", query_error),
        ("86400", "604801", query_error),
        ("86400", "0", query_error),
        ("86400", "-1", query_error),
        ("86400", "soon", query_error),
        ("86400", "604800", "SignatureDoesNotMatch"),
        ("us-east-1", "eu-west-1", query_error),
        ("%2Faws4_request", "", query_error),
        ("&X-Amz-SignedHeaders=host", "", query_error),
        (
            "X-Amz-SignedHeaders=host",
            "X-Amz-SignedHeaders=",
            "AccessDenied",
        ),
        ("&X-Amz-Signature=", "&Dropped=", query_error),
        (
            "X-Amz-Algorithm",
            "AWSAccessKeyId=a&Signature",
            "InvalidRequest",
        ),
    ] {
        assert!(PRESIGNED.contains(from), "{from}");
        let query = PRESIGNED.replace(from, to);
        let example = Example {
            query: Some(query),
            ..presigned()
        };
        assert_eq!(example.code_at(NOW), code, "{from} -> {to}");
    }
}

#[test]
fn dates_and_payload_hashes_are_demanded() {
    let example = get_object().without("x-amz-date");
    assert_eq!(example.verify_at(NOW).unwrap_err(), AuthError::DateMissing);
    let example = put_object().without("x-amz-date");
    // The HTTP date stands in, but the signed header is gone.
    assert_eq!(example.code_at(NOW), "SignatureDoesNotMatch");
    let example = get_object().without("x-amz-content-sha256");
    assert_eq!(
        example.verify_at(NOW).unwrap_err(),
        AuthError::ContentSha256Missing
    );
    let example = get_object()
        .without("x-amz-content-sha256")
        .header("x-amz-content-sha256", "nonsense");
    assert_eq!(example.code_at(NOW), "InvalidArgument");
}

#[test]
fn a_request_without_a_signature_is_anonymous_and_two_are_an_error() {
    let plain = Example::new(Method::GET, "/test.txt", Some("versionId=1"));
    assert!(Presented::from_request(&plain.parts()).unwrap().is_none());
    let both = Example {
        query: Some(PRESIGNED.into()),
        ..get_object()
    };
    let error = Presented::from_request(&both.parts()).unwrap_err();
    assert_eq!(
        (error.clone(), error.code()),
        (AuthError::TwoMechanisms, "InvalidArgument")
    );
}

#[test]
fn key_ids_may_contain_slashes() {
    let credential = Credential::parse("a/b/20130524/r/s3/aws4_request".into()).unwrap();
    assert_eq!(credential.access_key_id(), "a/b");
    assert_eq!(credential.scope(), "20130524/r/s3/aws4_request");
    assert_eq!((credential.region(), credential.service()), ("r", "s3"));
}

fn sha256_of_a(count: usize) -> [u8; 32] {
    Sha256::digest(vec![b'a'; count]).into()
}

/// The request of both streaming examples, but for what vouches for it.
fn put_in_chunks(content_sha256: &str) -> Example {
    Example {
        host: "s3.amazonaws.com",
        ..Example::new(Method::PUT, "/examplebucket/chunkObject.txt", None)
    }
    .header("x-amz-date", "20130524T000000Z")
    .header("x-amz-storage-class", "REDUCED_REDUNDANCY")
    .header("x-amz-content-sha256", content_sha256)
    .header("content-encoding", "aws-chunked")
    .header("x-amz-decoded-content-length", "66560")
    .header("content-length", "66824")
}

/// Signs the chunks of both examples: 65536, 1024 and no times `a`.
fn assert_chunks(signer: &mut ChunkSigner, signatures: [&str; 3]) {
    for (count, signature) in [65_536, 1024, 0].into_iter().zip(signatures) {
        let computed = signer.sign_chunk(&sha256_of_a(count));
        assert_eq!(computed.as_str(), signature, "{count}");
    }
}

#[test]
fn the_published_streaming_example_verifies_chunk_by_chunk() {
    let example = put_in_chunks("STREAMING-AWS4-HMAC-SHA256-PAYLOAD").authorization(
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;\
         x-amz-decoded-content-length;x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    );
    let verified = example.verify_at(NOW).unwrap();
    assert_eq!(verified.payload(), PayloadMode::StreamingSigned);
    assert_chunks(
        &mut verified.chunk_signer(&example_key()),
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ],
    );
}

#[test]
fn the_published_trailer_example_verifies_chunk_by_chunk() {
    let example = put_in_chunks("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
        .header("x-amz-trailer", "x-amz-checksum-crc32c")
        .authorization(
            "content-encoding;host;x-amz-content-sha256;x-amz-date;\
             x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        );
    let verified = example.verify_at(NOW).unwrap();
    assert_eq!(verified.payload(), PayloadMode::StreamingSignedTrailer);
    let mut signer = verified.chunk_signer(&example_key());
    assert_chunks(
        &mut signer,
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ],
    );
    let trailers = Sha256::digest(b"x-amz-checksum-crc32c:sOO8/Q==\n").into();
    assert_eq!(
        signer.sign_trailers(&trailers).as_str(),
        "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"
    );
}

fn credentials(session_token: Option<&str>) -> Credentials {
    Credentials {
        access_key_id: KEY_ID.into(),
        secret_access_key: SecretKey::new(SECRET),
        session_token: session_token.map(Into::into),
    }
}

#[test]
fn what_is_signed_here_verifies_here_in_both_forms() {
    let now = AmzDate::from_unix(NOW);
    let key = ScopedKey::derive(&SecretKey::new(SECRET), &now, "us-east-1", "s3");
    for token in [None, Some("token/+=")] {
        let credentials = credentials(token);
        let signer = Signer {
            credentials: &credentials,
            key: &key,
            now,
        };
        let target = Target {
            method: &Method::PUT,
            path: "/b/a%20b+(c)/ü",
            query: Some("partNumber=1&uploadId=x%2Fy"),
            host: HOST,
        };
        let mut example = Example::new(Method::PUT, "/b/a%20b+(c)/ü", target.query)
            .header("x-amz-meta-a", "  two   spaces ")
            .header("content-type", "text/plain")
            .header("range", "bytes=0-9")
            .header("authorization", "stale");
        signer
            .sign(&target, &mut example.headers, PayloadMode::Unsigned)
            .unwrap();
        let verified = example.verify_at(NOW).unwrap();
        assert_eq!(verified.presented().session_token(), token);
        assert!(
            !example.headers["authorization"]
                .to_str()
                .unwrap()
                .contains("range")
        );

        let example =
            Example::new(Method::PUT, "/b/a%20b+(c)/ü", target.query).header("x-amz-meta-a", "1");
        let query = signer.presign(&target, &example.headers, 60).unwrap();
        let example = Example {
            query: Some(query),
            ..example
        };
        let verified = example.verify_at(NOW).unwrap();
        assert_eq!(verified.presented().session_token(), token);
        assert_eq!(example.code_at(NOW + 61), "AccessDenied");
    }
}

#[test]
fn presigning_gives_the_published_query() {
    let now = AmzDate::from_unix(NOW);
    let key = ScopedKey::derive(&SecretKey::new(SECRET), &now, "us-east-1", "s3");
    let signer = Signer {
        credentials: &credentials(None),
        key: &key,
        now,
    };
    let target = Target {
        method: &Method::GET,
        path: "/test.txt",
        query: None,
        host: HOST,
    };
    let presign = |seconds| signer.presign(&target, &HeaderMap::new(), seconds);
    assert_eq!(presign(86_400).unwrap(), PRESIGNED);
    assert_eq!(presign(0), Err(SignError::Expires(0)));
    assert_eq!(
        presign(EXPIRES_SECONDS_MAX + 1),
        Err(SignError::Expires(604_801))
    );
}

#[test]
fn a_client_that_signs_the_bytes_it_sends_is_accepted() {
    // `!` and `(` unencoded on the wire and in the client's canonical request.
    let example = Example::new(Method::GET, "/a!(b)", None).basic();
    let canonical = format!(
        "GET\n/a!(b)\n\nhost:{HOST}\nx-amz-content-sha256:{EMPTY_SHA256}\n\
         x-amz-date:20130524T000000Z\n\n{BASIC}\n{EMPTY_SHA256}"
    );
    let digest = hex(&Sha256::digest(canonical).into());
    let signature = example_key().sign(&[
        b"AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n",
        digest.as_bytes(),
    ]);
    assert_eq!(
        example
            .authorization(BASIC, signature.as_str())
            .code_at(NOW),
        "accepted"
    );
}

/// Goal: a URL presigned with a payload hash among its headers is good for just that.
#[test]
fn a_presigned_payload_hash_is_signed_as_such() {
    let signed = presigned_with_hash();
    assert!(matches!(
        signed.verify_at(NOW).unwrap().payload(),
        PayloadMode::Sha256(_)
    ));
    let other = signed.without("x-amz-content-sha256");
    let other = other.header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    assert_eq!(other.code_at(NOW), "SignatureDoesNotMatch");
}

fn presigned_with_hash() -> Example {
    let credentials = Credentials {
        access_key_id: KEY_ID.into(),
        secret_access_key: SecretKey::new(SECRET),
        session_token: None,
    };
    let now = AmzDate::from_unix(NOW);
    let key = ScopedKey::derive(&credentials.secret_access_key, &now, "us-east-1", "s3");
    let signer = Signer {
        credentials: &credentials,
        key: &key,
        now,
    };
    let mut example =
        Example::new(Method::PUT, "/test.txt", None).header("x-amz-content-sha256", EMPTY_SHA256);
    let target = Target {
        method: &example.method,
        path: example.path,
        query: None,
        host: HOST,
    };
    let query = signer.presign(&target, &example.headers, 60).unwrap();
    example.query = Some(query);
    example
}
