//! Requests that are signed here: a byte that chooses form and change, then
//! `METHOD path?query`, a line with the host, headers.

use forebay_s3::sigv4::{
    AuthError, Credentials, ExpectedScope, PayloadMode, Presented, RequestParts, ScopedKey,
    SecretKey, Signer, Target,
};
use forebay_s3::time::AmzDate;
use http::{HeaderMap, HeaderValue, Method};

use crate::input::{Input, Request};

const NOW_UNIX_SECONDS: i64 = 1_369_353_600;
const EXPIRES_SECONDS: u32 = 600;

/// What is signed is believed; the same request with one thing changed is not.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let Some(mut request) = input.request() else {
        return;
    };
    // Names that the signature itself uses are the signer's to write.
    let is_taken =
        |name: &str| name.starts_with("X-Amz-") || name == "AWSAccessKeyId" || name == "Signature";
    let query = request.query.unwrap_or_default();
    let names = forebay_s3::uri::query_pairs(query).map(|(name, _)| name.into_owned());
    if names
        .chain(query.split(['&', '=']).map(str::to_owned))
        .any(|name| is_taken(&name))
    {
        return;
    }
    for name in ["authorization", "x-amz-security-token"] {
        request.headers.remove(name);
    }
    // In a query it names the payload, so it must be one of those that S3 knows, and one.
    let payloads: Vec<_> = request
        .headers
        .get_all("x-amz-content-sha256")
        .iter()
        .collect();
    let is_known = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|text| PayloadMode::parse(text).is_some())
    };
    if payloads.len() > 1 || !payloads.into_iter().all(is_known) {
        request.headers.remove("x-amz-content-sha256");
    }
    let form = if choice & 1 == 0 {
        Form::Header
    } else {
        Form::Query
    };
    let mut signed = Signed::new(&request, form);
    signed
        .verify(NOW_UNIX_SECONDS)
        .expect("the key's holder signed this");
    signed.change(choice >> 1);
    signed
        .verify(NOW_UNIX_SECONDS)
        .expect_err("the request was changed");
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Header,
    Query,
}

/// A request with its signature.
struct Signed {
    form: Form,
    method: Method,
    path: String,
    query: String,
    host: String,
    headers: HeaderMap,
}

fn scoped_key() -> ScopedKey {
    let date = AmzDate::from_unix(NOW_UNIX_SECONDS);
    ScopedKey::derive(&SecretKey::new("secret"), &date, "eu-central-1", "s3")
}

impl Signed {
    fn new(request: &Request<'_>, form: Form) -> Self {
        let key = scoped_key();
        let credentials = Credentials {
            access_key_id: "AKID".into(),
            secret_access_key: SecretKey::new("secret"),
            session_token: Some("a token/+=".into()),
        };
        let signer = Signer {
            credentials: &credentials,
            key: &key,
            now: AmzDate::from_unix(NOW_UNIX_SECONDS),
        };
        let target = Target {
            method: &request.method,
            path: request.path,
            query: request.query,
            host: request.host,
        };
        let mut headers = request.headers.clone();
        let mut query = request.query.unwrap_or_default().to_owned();
        match form {
            Form::Header => {
                let signature = signer.sign(&target, &mut headers, PayloadMode::empty());
                signature.expect("the credentials are plain");
            }
            Form::Query => {
                query = signer
                    .presign(&target, &headers, EXPIRES_SECONDS)
                    .expect("in its limits");
            }
        }
        Self {
            form,
            method: request.method.clone(),
            path: request.path.to_owned(),
            query,
            host: request.host.to_owned(),
            headers,
        }
    }

    fn verify(&self, now_unix_seconds: i64) -> Result<(), AuthError> {
        let parts = RequestParts {
            method: &self.method,
            path: &self.path,
            query: Some(&self.query),
            headers: &self.headers,
            host: &self.host,
        };
        let presented = Presented::from_request(&parts)?.expect("there is a signature");
        let expected = ExpectedScope {
            service: "s3",
            ..ExpectedScope::ANY_REGION
        };
        let checked = presented.check(&parts, &expected, now_unix_seconds)?;
        let verified = checked.verify(&parts, scoped_key().key())?;
        assert_eq!(verified.access_key_id(), "AKID");
        Ok(())
    }

    /// Changes one thing that the signature covers.
    fn change(&mut self, choice: u8) {
        match choice % 7 {
            0 => self.path.push('x'),
            1 => self.query.push_str("&x"),
            2 => self.host.push('x'),
            3 => {
                self.headers
                    .insert("x-amz-added", HeaderValue::from_static("x"));
                // It may have been there already, with this very value.
                self.headers
                    .append("x-amz-added", HeaderValue::from_static("y"));
            }
            4 => {
                self.method = match self.method {
                    Method::GET => Method::PUT,
                    _ => Method::GET,
                };
            }
            5 => match self.form {
                Form::Header => change_last(&mut self.headers, "authorization"),
                Form::Query => change_hex(&mut self.query),
            },
            _ => match self.form {
                Form::Header => change_last(&mut self.headers, "x-amz-security-token"),
                Form::Query => {
                    let longer = format!("X-Amz-Expires={}", EXPIRES_SECONDS + 1);
                    let query = self.query.replace("X-Amz-Expires=600", &longer);
                    self.query = query;
                }
            },
        }
    }
}

/// Changes the last byte of a header's value.
fn change_last(headers: &mut HeaderMap, name: &str) {
    let value = headers.get_mut(name).expect("the signer put it there");
    let mut text = value.to_str().expect("it is plain").to_owned();
    change_hex(&mut text);
    *value = HeaderValue::from_str(&text).expect("it stays plain");
}

fn change_hex(text: &mut String) {
    let last = text.pop();
    text.push(if last == Some('0') { '1' } else { '0' });
}
