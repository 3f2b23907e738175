//! Headers and query as stores get them: without what belongs to one connection or one signature.
//!
//! Source of the hop-by-hop rule: RFC 9110 §7.6.1.

use forebay_s3::chunked::remove_aws_chunked;
use forebay_store::Query;
use http::{HeaderMap, HeaderName, header, request::Parts};

/// Whether a header ends at the gateway.
fn is_removed(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        // Of one connection; RFC 9110 §7.6.1 names those that are so without being listed.
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "expect"
            | "host"
            // Of one signature.
            | "authorization"
            | "x-amz-date"
            | "x-amz-security-token"
            | "x-amz-content-sha256"
            // Of the `aws-chunked` coding.
            | "x-amz-decoded-content-length"
    )
}

/// Parameters of a presigned query, which end at the gateway as well.
const REMOVED_PARAMETERS: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
];

/// The host that a request is for: of an absolute URI or `:authority`, else the `Host` header.
pub(super) fn host(head: &Parts) -> &str {
    head.uri.authority().map_or_else(
        || {
            head.headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default()
        },
        http::uri::Authority::as_str,
    )
}

/// Removes what ends at the gateway.
pub(super) fn strip(headers: &mut HeaderMap) {
    // First the headers that these two are about, while they are there.
    if headers.keys().any(|name| name == header::CONNECTION) {
        strip_connection(headers);
    }
    if headers.keys().any(|name| name == header::CONTENT_ENCODING) {
        remove_aws_chunked(headers);
    }
    // Most of what a GET brings ends here, so keeping the rest costs less than removing that.
    let mut keeps = None;
    for (name, value) in std::mem::take(headers) {
        // Only the first value of a name comes with it.
        if let Some(name) = name {
            keeps = Some(name).filter(|name| !is_removed(name));
        }
        if let Some(name) = &keeps {
            headers.append(name, value);
        }
    }
}

/// Removes the headers that `Connection` names. It cannot name one that has a meaning for S3.
fn strip_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-amz-")
        || name.starts_with("content-")
        || name.starts_with("if-")
        || matches!(name, "range" | "cache-control")
}

/// The query without the parameters of a signature.
pub(super) fn query(head: &Parts) -> Query {
    let query = head.uri.query().unwrap_or_default();
    if !query.contains("X-Amz-") {
        return Query::new(query);
    }
    let is_kept = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        !REMOVED_PARAMETERS.contains(&name)
    };
    Query::new(
        query
            .split('&')
            .filter(is_kept)
            .collect::<Vec<_>>()
            .join("&"),
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn what_ends_at_the_gateway_is_removed_and_all_else_kept() {
        let mut headers = map(&[
            ("host", "h"),
            ("connection", "close, x-hop, x-amz-acl"),
            ("x-hop", "1"),
            ("authorization", "AWS4-HMAC-SHA256"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-decoded-content-length", "3"),
            ("expect", "100-continue"),
            ("x-amz-acl", "private"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("content-type", "text/plain"),
            ("x-of-tomorrow", "kept"),
        ]);
        headers.append("x-of-tomorrow", HeaderValue::from_static("twice"));
        headers.append("authorization", HeaderValue::from_static("twice"));
        strip(&mut headers);
        let mut kept = map(&[
            ("x-amz-acl", "private"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("content-type", "text/plain"),
            ("x-of-tomorrow", "kept"),
            ("content-encoding", "gzip"),
        ]);
        kept.append("x-of-tomorrow", HeaderValue::from_static("twice"));
        assert_eq!(headers, kept);
    }

    #[test]
    fn a_query_loses_its_signature_only() {
        for (sent, kept) in [
            ("", ""),
            ("prefix=a%2Fb&list-type=2", "prefix=a%2Fb&list-type=2"),
            (
                "X-Amz-Algorithm=A&versionId=1&X-Amz-Signature=s&X-Amz-Expires=1&x=X-Amz-Date",
                "versionId=1&x=X-Amz-Date",
            ),
            ("X-Amz-Signature=s", ""),
        ] {
            let uri = format!("/b/k?{sent}");
            let (head, ()) = http::Request::get(uri).body(()).unwrap().into_parts();
            assert_eq!(query(&head).as_str(), kept);
        }
    }
}
