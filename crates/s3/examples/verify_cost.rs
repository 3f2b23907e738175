//! What verifying one signed request costs: `cargo run --release -p forebay-s3 --example
//! verify_cost`. Prints nanoseconds per request for the header and the presigned form.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement reads the clock and prints what it found"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use forebay_s3::sigv4::{
    Credentials, ExpectedScope, PayloadMode, Presented, RequestParts, ScopedKey, SecretKey, Signer,
    SigningKey, Target,
};
use forebay_s3::time::AmzDate;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

const NOW: i64 = 1_700_000_000;
const HOST: &str = "bucket.s3.eu-central-1.amazonaws.com";
const PATH: &str = "/photos/2024/05/img-0001.jpg";
const ROUNDS: u32 = 200_000;
const REPEATS: usize = 5;

fn main() {
    let credentials = Credentials {
        access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
        secret_access_key: SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        session_token: None,
    };
    let now = AmzDate::from_unix(NOW);
    let key = ScopedKey::derive(&credentials.secret_access_key, &now, "eu-central-1", "s3");
    let signer = Signer {
        credentials: &credentials,
        key: &key,
        now,
    };
    let target = Target {
        method: &Method::GET,
        path: PATH,
        query: None,
        host: HOST,
    };

    let mut headers: HeaderMap = [
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("user-agent", "aws-sdk-rust/1.3.7 os/linux lang/rust/1.95.0"),
        (
            "amz-sdk-invocation-id",
            "7b8cdd0f-3a5f-4dbb-a7a5-0f5a0c9c1d6e",
        ),
        ("x-amz-checksum-mode", "ENABLED"),
    ]
    .map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    })
    .into_iter()
    .collect();
    let presigned = signer
        .presign(&target, &HeaderMap::new(), 3600)
        .expect("an hour is allowed");
    signer
        .sign(&target, &mut headers, PayloadMode::empty())
        .expect("plain text signs");

    let parts = RequestParts {
        method: &Method::GET,
        path: PATH,
        query: None,
        headers: &headers,
        host: HOST,
    };
    report("header form", || verify(&parts, key.key()));
    let none = HeaderMap::new();
    let parts = RequestParts {
        query: Some(&presigned),
        headers: &none,
        ..parts
    };
    report("presigned form", || verify(&parts, key.key()));
    report("key derivation", || {
        let secret = &credentials.secret_access_key;
        black_box(SigningKey::derive(
            secret,
            now.date_stamp(),
            "eu-central-1",
            "s3",
        ));
    });
}

fn verify(parts: &RequestParts<'_>, key: &SigningKey) {
    let presented = Presented::from_request(black_box(parts))
        .expect("well-formed")
        .expect("signed");
    let checked = presented
        .check(parts, &ExpectedScope::ANY_REGION, NOW)
        .expect("in time");
    black_box(checked.verify(parts, key).expect("signed with this key"));
}

/// Prints the fastest of some repeats: what disturbs a run only makes it slower.
fn report(what: &str, work: impl Fn()) {
    let time = || {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        start.elapsed()
    };
    let fastest = (0..REPEATS).map(|_| time()).min().unwrap_or(Duration::ZERO);
    println!("{what}: {} ns", fastest.as_nanos() / u128::from(ROUNDS));
}
