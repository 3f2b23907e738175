//! Finds the bucket and key of a request in its host and path.
//!
//! Nothing is normalised: each segment of a key counts, empty ones and `..` too.

use std::borrow::Cow;

use super::{ClassifyError, Head, parse_bucket, parse_key};
use crate::{code::Code, operation::Target, uri};

/// The service, bucket or object that the request addresses.
pub(super) fn resolve(head: &Head<'_>, domains: &[String]) -> Result<Target, ClassifyError> {
    let path = match head.path {
        "" => "",
        // `OPTIONS *` asks about the server.
        "*" if *head.method == http::Method::OPTIONS => "",
        path => path
            .strip_prefix('/')
            .ok_or(ClassifyError::from(Code::InvalidURI))?,
    };
    if let Some(bucket) = bucket_of_host(head.host, domains) {
        return object_or_bucket(&bucket, path);
    }
    if path.is_empty() {
        return Ok(Target::Service);
    }
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    object_or_bucket(&decode(bucket)?, key)
}

fn object_or_bucket(bucket: &str, encoded_key: &str) -> Result<Target, ClassifyError> {
    let bucket = parse_bucket(bucket)?;
    if encoded_key.is_empty() {
        return Ok(Target::Bucket(bucket));
    }
    let key = decode(encoded_key)?;
    Ok(Target::Object(bucket, parse_key(&key)?))
}

fn decode(encoded: &str) -> Result<Cow<'_, str>, ClassifyError> {
    uri::decode_path(encoded).map_err(|_| Code::InvalidURI.into())
}

/// The bucket in a virtual-host style `Host`; `None` when the path names it.
///
/// Of the domains that fit, the longest decides: with `example.com` and `s3.example.com`, the host
/// `s3.example.com` is no bucket.
fn bucket_of_host<'a>(host: &'a str, domains: &[String]) -> Option<Cow<'a, str>> {
    if domains.is_empty() {
        return None;
    }
    let host = without_port(host);
    let mut longest: Option<&str> = None;
    for domain in domains {
        let fits = is_below(host, domain) || host.eq_ignore_ascii_case(domain);
        if fits && longest.is_none_or(|longest| longest.len() < domain.len()) {
            longest = Some(domain);
        }
    }
    let bucket = host.get(..host.len().checked_sub(longest?.len() + 1)?)?;
    // A host has no case; the bucket's true name is in lower case, or no host could name it.
    Some(if bucket.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(bucket.to_ascii_lowercase())
    } else {
        Cow::Borrowed(bucket)
    })
}

fn without_port(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        // The colons of `[::1]` are no port's.
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

fn is_below(host: &str, domain: &str) -> bool {
    let Some(at) = host.len().checked_sub(domain.len() + 1) else {
        return false;
    };
    // `at` may lie within a character of a host that is not ASCII.
    host.as_bytes()[at] == b'.'
        && at > 0
        && host
            .get(at + 1..)
            .is_some_and(|tail| tail.eq_ignore_ascii_case(domain))
}
