//! Signature Version 4: ours against `aws-sigv4`, both directions, all forms that it speaks.
//!
//! Method: generate requests; what theirs signs, ours must verify; what ours signs, theirs must
//! sign alike.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use aws_credential_types::Credentials as TheirCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SessionTokenMode, SignableBody, SignableRequest,
    SignatureLocation, SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::identity::Identity;
use aws_smithy_runtime_api::http::Headers;
use bytes::Bytes;
use forebay_s3::sigv4::{
    ChunkSigner, Credentials, ExpectedScope, PayloadMode, Presented, RequestParts, ScopedKey,
    SecretKey, Signer, SigningKey, Target, Verified,
};
use forebay_s3::time::{AmzDate, system_time};
use http::{HeaderName, HeaderValue, Method, Request};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const KEY_ID: &str = "AKIAIOSFODNN7EXAMPLE";
const HOST: &str = "bucket.s3.eu-central-1.amazonaws.com";
const REGION: &str = "eu-central-1";

/// A request before it is signed.
#[derive(Clone, Debug)]
struct Plain {
    method: Method,
    path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
    payload: PayloadMode,
    secret: String,
    session_token: Option<String>,
    now_unix_seconds: i64,
}

impl Plain {
    fn uri(&self) -> String {
        let query = self
            .query
            .as_deref()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        format!("https://{HOST}{}{query}", self.path)
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.uri());
        for (name, value) in &self.headers {
            request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request.body(()).unwrap()
    }

    fn identity(&self) -> Identity {
        let token = self.session_token.clone();
        TheirCredentials::new(KEY_ID, &self.secret, token, None, "oracle").into()
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            access_key_id: KEY_ID.into(),
            secret_access_key: SecretKey::new(self.secret.as_str()),
            session_token: self.session_token.as_deref().map(Into::into),
        }
    }

    fn key(&self) -> ScopedKey {
        let date = AmzDate::from_unix(self.now_unix_seconds);
        ScopedKey::derive(&SecretKey::new(self.secret.as_str()), &date, REGION, "s3")
    }

    /// Signs with theirs: the whole request as it goes out, and the signature.
    fn signed_by_theirs(
        &self,
        settings: SigningSettings,
        body: SignableBody<'_>,
    ) -> (Request<()>, String) {
        let identity = self.identity();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("s3")
            .time(system_time(self.now_unix_seconds))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let mut request = self.request();
        let uri = self.uri();
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let signable = SignableRequest::new(self.method.as_str(), &uri, headers, body).unwrap();
        let (instructions, signature) = sign(signable, &params).unwrap().into_parts();
        instructions.apply_to_request_http1x(&mut request);
        (request, signature)
    }

    fn body(&self) -> SignableBody<'static> {
        SignableBody::Precomputed(self.payload.value().as_str().to_owned())
    }
}

/// How S3 clients use the oracle.
fn s3_settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.session_token_mode = SessionTokenMode::Include;
    settings
}

/// S3's `UriEncode` of a generated text.
fn encode(text: &str, keep: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let character = char::from(byte);
        if character.is_ascii_alphanumeric()
            || "-._~".contains(character)
            || keep.contains(character)
        {
            encoded.push(character);
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        encoded
    })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9/._~-]{0,30}",
        "[ -~]{0,20}",
        "[ +%=&?;,/äß你🦀\u{7f}]{0,10}",
        any::<String>(),
    ]
}

fn any_query() -> impl Strategy<Value = Option<String>> {
    let pairs = prop::collection::vec(("[a-z-]{1,12}", prop::option::of(any_text())), 1..6);
    prop::option::of(pairs.prop_map(|pairs| {
        let pair = |(name, value): (String, Option<String>)| match value {
            None => name,
            Some(value) => format!("{name}={}", encode(&value, "")),
        };
        pairs.into_iter().map(pair).collect::<Vec<_>>().join("&")
    }))
}

fn any_headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let amz =
        prop::collection::btree_map("x-amz-meta-[a-z]{1,8}", "[!-~äß][ -~äß]{0,20}[!-~ß]", 0..5);
    let typed = prop::option::of("[a-z]{1,9}/[a-z]{1,9}; charset=utf-8");
    (amz, typed).prop_map(|(amz, typed)| {
        let typed = typed.map(|value| ("content-type".to_owned(), value));
        amz.into_iter().chain(typed).collect()
    })
}

prop_compose! {
    fn any_request()(
        method in prop::sample::select([Method::GET, Method::PUT, Method::DELETE].to_vec()),
        path in any_text(),
        query in any_query(),
        headers in any_headers(),
        payload in prop_oneof![
            Just(PayloadMode::empty()),
            Just(PayloadMode::Unsigned),
            Just(PayloadMode::StreamingSigned),
            Just(PayloadMode::StreamingUnsignedTrailer),
            any::<[u8; 32]>().prop_map(PayloadMode::Sha256),
        ],
        secret in "[a-zA-Z0-9/+]{1,80}",
        session_token in prop::option::of("[a-zA-Z0-9/+=]{1,100}"),
        now_unix_seconds in 0_i64..4_000_000_000,
    ) -> Plain {
        let path = format!("/{}", encode(&path, "/"));
        Plain {
            method, path, query, headers, payload, secret, session_token, now_unix_seconds,
        }
    }
}

/// Verifies with ours a request as it would arrive.
fn verify<R>(
    request: &Request<()>,
    key: &SigningKey,
    now_unix_seconds: i64,
    use_it: impl FnOnce(Verified<'_>) -> R,
) -> R {
    let parts = RequestParts {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query(),
        headers: request.headers(),
        host: HOST,
    };
    let presented = Presented::from_request(&parts)
        .unwrap()
        .expect("it is signed");
    let checked = presented
        .check(&parts, &ExpectedScope::ANY_REGION, now_unix_seconds)
        .unwrap();
    use_it(checked.verify(&parts, key).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_theirs_signs_in_headers_ours_verifies(plain in any_request()) {
        let (request, signature) = plain.signed_by_theirs(s3_settings(), plain.body());
        let now = plain.now_unix_seconds;
        verify(&request, plain.key().key(), now, |verified| {
            assert_eq!(verified.payload(), plain.payload);
            assert_eq!(verified.presented().session_token(), plain.session_token.as_deref());
            assert_eq!(verified.presented().region(), REGION);
        });
        let authorization = request.headers()["authorization"].to_str().unwrap();
        prop_assert!(authorization.ends_with(&signature));
    }

    #[test]
    fn what_theirs_presigns_ours_verifies(plain in any_request(), expires in 1_u64..=604_800) {
        let mut settings = s3_settings();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(expires));
        settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        let (request, _) = plain.signed_by_theirs(settings, SignableBody::UnsignedPayload);
        let last = plain.now_unix_seconds + i64::try_from(expires).unwrap();
        for now in [plain.now_unix_seconds, last] {
            verify(&request, plain.key().key(), now, |verified| {
                assert_eq!(verified.payload(), PayloadMode::Unsigned);
                assert_eq!(verified.presented().session_token(), plain.session_token.as_deref());
            });
        }
    }

    #[test]
    fn what_ours_signs_in_headers_theirs_signs_alike(plain in any_request()) {
        let (credentials, key) = (plain.credentials(), plain.key());
        let now = AmzDate::from_unix(plain.now_unix_seconds);
        let signer = Signer { credentials: &credentials, key: &key, now };
        let target = Target {
            method: &plain.method,
            path: &plain.path,
            query: plain.query.as_deref(),
            host: HOST,
        };
        let mut headers = plain.request().headers().clone();
        let ours = signer.sign(&target, &mut headers, plain.payload).unwrap();
        let (request, theirs) = plain.signed_by_theirs(s3_settings(), plain.body());
        prop_assert_eq!(ours.as_str(), theirs);
        let without_spaces = |value: &HeaderValue| value.to_str().unwrap().replace(' ', "");
        prop_assert_eq!(
            without_spaces(&headers["authorization"]),
            without_spaces(&request.headers()["authorization"])
        );
    }

    #[test]
    fn what_ours_presigns_theirs_presigns_alike(
        plain in any_request(),
        expires in 1_u32..=604_800,
    ) {
        let (credentials, key) = (plain.credentials(), plain.key());
        let now = AmzDate::from_unix(plain.now_unix_seconds);
        let signer = Signer { credentials: &credentials, key: &key, now };
        let target = Target {
            method: &plain.method,
            path: &plain.path,
            query: plain.query.as_deref(),
            host: HOST,
        };
        let ours = signer.presign(&target, plain.request().headers(), expires).unwrap();
        let mut settings = s3_settings();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(expires.into()));
        settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        let (_, theirs) = plain.signed_by_theirs(settings, SignableBody::UnsignedPayload);
        let end = format!("X-Amz-Signature={theirs}");
        prop_assert!(ours.ends_with(&end));
    }

    #[test]
    fn chunks_and_trailers_are_signed_alike(
        plain in any_request(),
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..5),
        checksum in "[a-zA-Z0-9+/]{6}==",
    ) {
        let (credentials, key) = (plain.credentials(), plain.key());
        let now = AmzDate::from_unix(plain.now_unix_seconds);
        let signer = Signer { credentials: &credentials, key: &key, now };
        let target = Target { method: &Method::PUT, path: "/k", query: None, host: HOST };
        let mode = PayloadMode::StreamingSignedTrailer;
        let seed = signer.sign(&target, &mut http::HeaderMap::new(), mode).unwrap();
        let mut ours: ChunkSigner = signer.chunk_signer(seed);

        let identity = plain.identity();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("s3")
            .time(system_time(plain.now_unix_seconds))
            .settings(())
            .build()
            .unwrap();
        let mut running = seed.as_str().to_owned();
        for chunk in chunks {
            let digest = Sha256::digest(&chunk).into();
            running = v4::sign_chunk(&Bytes::from(chunk), &running, &params)
                .unwrap()
                .signature()
                .to_owned();
            let signature = ours.sign_chunk(&digest);
            prop_assert_eq!(signature.as_str(), &running);
        }
        let mut trailers = Headers::new();
        trailers.insert("x-amz-checksum-crc32c", checksum.clone());
        let theirs = v4::sign_trailer(&trailers, &running, &params).unwrap();
        let digest = Sha256::digest(format!("x-amz-checksum-crc32c:{checksum}\n")).into();
        let signature = ours.sign_trailers(&digest);
        prop_assert_eq!(signature.as_str(), theirs.signature());
    }

    /// Goal: a signature is good for one request only.
    #[test]
    fn a_signed_request_that_is_changed_is_refused(
        plain in any_request(),
        name in prop_oneof![Just("x-amz-date"), Just("x-amz-content-sha256"), Just("path")],
        flip in 0_usize..64,
    ) {
        let (mut request, _) = plain.signed_by_theirs(s3_settings(), plain.body());
        if name == "path" {
            let query = plain.query.map_or(String::new(), |query| format!("?{query}"));
            let uri = format!("{}x{query}", plain.path);
            *request.uri_mut() = uri.parse().unwrap();
        } else {
            let mut value = request.headers()[name].as_bytes().to_vec();
            let at = flip % value.len();
            value[at] = if value[at] == b'0' { b'1' } else { b'0' };
            let value = HeaderValue::from_bytes(&value).unwrap();
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        let parts = RequestParts {
            method: request.method(),
            path: request.uri().path(),
            query: request.uri().query(),
            headers: request.headers(),
            host: HOST,
        };
        let key = ScopedKey::derive(
            &SecretKey::new(plain.secret.as_str()),
            &AmzDate::from_unix(plain.now_unix_seconds),
            REGION,
            "s3",
        );
        let outcome = Presented::from_request(&parts).and_then(|presented| {
            let presented = presented.expect("the header is still there");
            let now = plain.now_unix_seconds;
            presented.check(&parts, &ExpectedScope::ANY_REGION, now)?.verify(&parts, key.key())
        });
        prop_assert!(outcome.is_err());
    }
}

/// Goal: the texts that a client may send without encoding them all the same verify.
#[test]
fn paths_that_are_barely_encoded_verify() {
    for path in [
        "/a!b(c)'d*e",
        "/a%2fb",
        "/a%2Fb",
        "/@:$,;=+",
        "/a%7Eb",
        "/a%7eb",
    ] {
        let plain = Plain {
            method: Method::GET,
            path: path.to_owned(),
            query: None,
            headers: Vec::new(),
            payload: PayloadMode::empty(),
            secret: "secret".to_owned(),
            session_token: None,
            now_unix_seconds: 1_000_000_000,
        };
        let (request, _) = plain.signed_by_theirs(s3_settings(), plain.body());
        verify(&request, plain.key().key(), 1_000_000_000, |verified| {
            assert_eq!(Cow::from(verified.access_key_id()), KEY_ID);
        });
    }
}
