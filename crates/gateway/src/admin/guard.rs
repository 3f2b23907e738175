//! Who may use the admin API.
//!
//! It listens on loopback, where every web page that the operator's browser shows can send
//! requests. So what a page can do is not enough to get in:
//!
//! - a page of another origin sends `Origin` or `Sec-Fetch-Site`: refused;
//! - a page whose name an attacker lets resolve to this address (DNS rebinding) sends that name as
//!   `Host`: without a token only addresses and `localhost` are taken;
//! - a form can't send `application/json`, which every change must.
//!
//! With a token, all of the API needs it. Health and metrics are not asked for here.
//!
//! Sources: WHATWG Fetch ("`Origin` header"); W3C Fetch Metadata Request Headers, §2; RFC 6750.

use std::net::IpAddr;

use forebay_s3::sigv4::SecretKey;
use http::{HeaderMap, HeaderName, Method, StatusCode, header, uri::Authority};
use subtle::ConstantTimeEq;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

const fn refusal(status: StatusCode, why: &'static str) -> Refusal {
    Refusal { status, why }
}

/// Judges a request by its headers.
pub(super) fn judge(
    method: &Method,
    headers: &HeaderMap,
    token: Option<&SecretKey>,
) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_one = headers.get_all(header::HOST).iter().count() == 1;
    let host = text(header::HOST).and_then(|host| host.parse::<Authority>().ok());
    let Some(host) = host.filter(|_| is_one) else {
        let why = "the request has no Host, or several";
        return Err(refusal(StatusCode::BAD_REQUEST, why));
    };
    if token.is_none() && !is_own_name(host.host()) {
        let why = "Host is a name: use an IP address or localhost, or set admin.token";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    if headers.contains_key(header::ORIGIN) && !is_same_origin(text(header::ORIGIN), &host) {
        let why = "requests from web pages are refused";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    if headers.contains_key(FETCH_SITE) && !matches!(text(FETCH_SITE), Some("none" | "same-origin"))
    {
        let why = "requests from other sites are refused";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    if let Some(token) = token {
        let given = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let is_right = given
            .is_some_and(|given| bool::from(given.as_bytes().ct_eq(token.expose().as_bytes())));
        if !is_right {
            let why = "this needs the token of admin.token: Authorization: Bearer TOKEN";
            return Err(refusal(StatusCode::UNAUTHORIZED, why));
        }
    }
    let kind = text(header::CONTENT_TYPE).map(|kind| kind.split(';').next().unwrap_or(kind).trim());
    if *method == Method::POST && kind != Some("application/json") {
        let why = "changes are application/json";
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    Ok(())
}

/// Whether a host can't be a name that somebody else has chosen.
fn is_own_name(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || address.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Whether the page is one of this listener's own.
fn is_same_origin(origin: Option<&str>, host: &Authority) -> bool {
    origin
        .and_then(|origin| origin.strip_prefix("http://"))
        .is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn judged(method: &Method, pairs: &[(&'static str, &'static str)], token: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let token = token.map(SecretKey::new);
        judge(method, &headers, token.as_ref()).map_or_else(|r| r.status.as_u16(), |()| 200)
    }

    #[test]
    fn what_a_web_page_can_send_is_refused() {
        const LOCAL: (&str, &str) = ("host", "127.0.0.1:9001");
        for (pairs, expected) in [
            (&[LOCAL][..], 200),
            (&[("host", "[::1]:9001")], 200),
            (&[("host", "LocalHost:9001")], 200),
            (&[("host", "10.1.2.3")], 200),
            (&[], 400),
            (&[("host", "evil.example:9001")], 403),
            (&[("host", "localhost.evil.example")], 403),
            (&[("host", "127.0.0.1.nip.io")], 403),
            (&[LOCAL, ("origin", "https://evil.example")], 403),
            (&[LOCAL, ("origin", "null")], 403),
            (&[LOCAL, ("origin", "http://127.0.0.1:3000")], 403),
            (&[LOCAL, ("origin", "http://127.0.0.1:9001")], 200),
            (&[LOCAL, ("sec-fetch-site", "cross-site")], 403),
            (&[LOCAL, ("sec-fetch-site", "same-site")], 403),
            (&[LOCAL, ("sec-fetch-site", "same-origin")], 200),
            (&[LOCAL, ("sec-fetch-site", "none")], 200),
        ] {
            assert_eq!(judged(&Method::GET, pairs, None), expected, "{pairs:?}");
        }
        for (kind, expected) in [
            ("application/json", 200),
            ("application/json; charset=utf-8", 200),
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
        ] {
            let pairs = [LOCAL, ("content-type", kind)];
            assert_eq!(judged(&Method::POST, &pairs, None), expected, "{kind}");
        }
        assert_eq!(judged(&Method::POST, &[LOCAL], None), 415);
        assert_eq!(judged(&Method::DELETE, &[LOCAL], None), 200);
    }

    #[test]
    fn a_token_is_needed_where_there_is_one() {
        const HOST: (&str, &str) = ("host", "cache.example.com");
        for (value, expected) in [
            (None, 401),
            (Some("Bearer secret"), 200),
            (Some("Bearer secre"), 401),
            (Some("Bearer secret2"), 401),
            (Some("Bearer "), 401),
            (Some("secret"), 401),
            (Some("Basic secret"), 401),
        ] {
            let pairs: Vec<_> = [HOST]
                .into_iter()
                .chain(value.map(|value| ("authorization", value)))
                .collect();
            let status = judged(&Method::GET, &pairs, Some("secret"));
            assert_eq!(status, expected, "{value:?}");
        }
    }
}
