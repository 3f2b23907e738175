//! Percent-coding of paths and queries.
//!
//! S3 leaves `A–Z a–z 0–9 - . _ ~` as they are, and `/` within a key; any other byte is `%XX`.
//! In a query `+` means a space, as in HTML forms, and as S3 reads it.
//! Source: Amazon S3 API Reference, "Signature Calculations", `UriEncode`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// A `%` without two hex digits, or bytes that are no UTF-8 (S3: `InvalidURI`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse the specified URI")]
pub struct InvalidUri;

/// Decodes a path or a piece of one; `+` stays.
///
/// # Errors
/// [`InvalidUri`] when a `%` has no two hex digits after it or the result is not UTF-8.
pub fn decode_path(encoded: &str) -> Result<Cow<'_, str>, InvalidUri> {
    let Some(first) = memchr::memchr(b'%', encoded.as_bytes()) else {
        return Ok(Cow::Borrowed(encoded));
    };
    let mut escapes = encoded[first + 1..].split('%');
    let whole = |escape: &str| {
        escape
            .as_bytes()
            .get(..2)
            .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    if !escapes.all(whole) {
        return Err(InvalidUri);
    }
    percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| InvalidUri)
}

/// Encodes a key for a path: everything but unreserved bytes and `/`.
pub fn encode_path(key: &str) -> Cow<'_, str> {
    utf8_percent_encode(key, PATH).into()
}

/// Encodes a name or a value of a query: everything but unreserved bytes.
pub fn encode_query(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, UNRESERVED).into()
}

/// The decoded pairs of a query, in order; a name without `=` has an empty value.
///
/// Bytes that are no UTF-8 become U+FFFD: such a parameter is none that S3 knows.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_query(name), decode_query(value))
        })
}

fn decode_query(encoded: &str) -> Cow<'_, str> {
    if encoded.contains('+') {
        let spaced = encoded.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned());
    }
    percent_decode_str(encoded).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_slashes_and_pluses() {
        assert_eq!(encode_path("a b/c+d/é~"), "a%20b/c%2Bd/%C3%A9~");
        assert_eq!(decode_path("a%20b/c+d%2fe").unwrap(), "a b/c+d/e");
        assert_eq!(decode_path("%ff"), Err(InvalidUri));
        assert!(matches!(decode_path("a/b+c"), Ok(Cow::Borrowed("a/b+c"))));
        assert_eq!(decode_path("%00%2e%2E").unwrap(), "\0..");
        for broken in ["100%", "100%2", "%zz", "%2", "%2%30", "%é1"] {
            assert_eq!(decode_path(broken), Err(InvalidUri), "{broken}");
        }
    }

    #[test]
    fn queries_are_pairs_in_order() {
        let pairs: Vec<_> = query_pairs("delete&a=1%2B+2&&b==").collect();
        let expected = [("delete", ""), ("a", "1+ 2"), ("b", "=")];
        assert_eq!(pairs, expected.map(|(n, v)| (Cow::from(n), Cow::from(v))));
        assert_eq!(encode_query("a/b c"), "a%2Fb%20c");
    }
}
