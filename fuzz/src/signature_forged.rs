//! Requests of whoever has no key: `METHOD path?query`, a line with the host, headers.
//!
//! The clock stands at midnight of 24 May 2013, when AWS's published examples were signed.

use forebay_s3::sigv4::{ExpectedScope, Form, Presented, RequestParts, SKEW_SECONDS_MAX};
use forebay_s3::sigv4::{SecretKey, SigningKey};

use crate::input::Input;

const NOW_UNIX_SECONDS: i64 = 1_369_353_600;

/// No request is believed that the holder of the key did not sign, and each refusal can be told.
pub fn check(data: &[u8]) {
    let Some(request) = Input(data).request() else {
        return;
    };
    let parts = RequestParts {
        method: &request.method,
        path: request.path,
        query: request.query,
        headers: &request.headers,
        host: request.host,
    };
    let presented = match Presented::from_request(&parts) {
        Ok(Some(presented)) => presented,
        Ok(None) => return assert!(!request.headers.contains_key("authorization")),
        Err(refused) => return check_told(&refused),
    };
    let date = presented.date();
    let secret = SecretKey::new("a secret that no input holds");
    let (stamp, region) = (
        presented.date_stamp().to_owned(),
        presented.region().to_owned(),
    );
    let checked = match presented.check(&parts, &ExpectedScope::ANY_REGION, NOW_UNIX_SECONDS) {
        Ok(checked) => checked,
        Err(refused) => return check_told(&refused),
    };
    assert_eq!(stamp, date.date_stamp());
    assert!(date.unix_seconds() <= NOW_UNIX_SECONDS + SKEW_SECONDS_MAX);
    if checked.presented().form() == Form::Header {
        assert!(date.unix_seconds() >= NOW_UNIX_SECONDS - SKEW_SECONDS_MAX);
    }
    let key = SigningKey::derive(&secret, &stamp, &region, "s3");
    let refused = checked
        .verify(&parts, &key)
        .expect_err("the key's holder did not sign this");
    assert_eq!(refused.code(), "SignatureDoesNotMatch");
    check_told(&refused);
}

fn check_told(refused: &forebay_s3::sigv4::AuthError) {
    assert!(
        forebay_s3::code::Code::parse(refused.code()).is_some(),
        "{refused}"
    );
    assert!(!refused.to_string().is_empty());
    assert!(refused.extras().iter().all(|(name, _)| !name.is_empty()));
}
