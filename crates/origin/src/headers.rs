//! Which headers go through, in both directions: all but those of one connection or one signature.
//!
//! Sources: RFC 9110 §7.6.1 (Connection and what it names), §10.1.1 (Expect), §7.6.2, §11.7.2
//! (Proxy-Authorization).

use http::{HeaderMap, HeaderName, header};

/// Headers of one connection, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];

/// Headers of a request that are made anew for the origin.
///
/// `Expect` is not passed on: hyper's client sends a body without waiting for `100 Continue`. An
/// origin that refuses early is heard all the same, while the body is still being sent.
const REMADE: [HeaderName; 8] = [
    header::HOST,
    header::EXPECT,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amz-decoded-content-length"),
];

/// Leaves in `headers` of a request what the origin is to see.
pub(crate) fn keep_end_to_end_of_request(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    for name in REMADE {
        headers.remove(name);
    }
}

/// Leaves in `headers` of an answer what the client is to see.
pub(crate) fn keep_end_to_end_of_response(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|token| HeaderName::from_bytes(token.trim().as_bytes()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn what_connection_names_goes_with_it() {
        let mut headers = map(&[
            ("connection", "close, X-Private"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("x-amz-meta-a", "1"),
            ("x-amz-meta-a", "2"),
            ("trailer", "x"),
        ]);
        keep_end_to_end_of_response(&mut headers);
        assert_eq!(
            headers,
            map(&[
                ("x-amz-meta-a", "1"),
                ("x-amz-meta-a", "2"),
                ("trailer", "x")
            ])
        );
    }

    #[test]
    fn the_clients_signature_and_framing_do_not_reach_the_origin() {
        let kept = [
            ("x-amz-copy-source", "/b/k"),
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let mut headers = map(&kept);
        headers.extend(map(&[
            ("host", "gateway"),
            ("expect", "100-continue"),
            ("content-length", "5"),
            ("authorization", "AWS4-HMAC-SHA256 …x"),
            ("x-amz-date", "20260101T000000Z"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("x-amz-security-token", "t"),
            ("x-amz-decoded-content-length", "5"),
        ]
        .map(|(name, value)| (name, if value.is_ascii() { value } else { "x" }))));
        keep_end_to_end_of_request(&mut headers);
        assert_eq!(headers, map(&kept));
    }
}
