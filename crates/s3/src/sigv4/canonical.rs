//! The canonical request: the one text that both sides of a signature must agree on.
//!
//! It is written straight into a hash through a buffer on the stack, so that verifying a request
//! without a query allocates nothing. The same writer fills a string when a mismatch has to be
//! explained.
//!
//! How S3 differs from the general algorithm: the path is neither normalised nor encoded twice.
//! The canonical path is the decoded path with each byte encoded once and `/` kept; in the query
//! a `+` means a space.

use http::header::GetAll;
use http::{HeaderMap, HeaderValue, Method};
use sha2::{Digest, Sha256};

use super::presented::{AMZ_DATE, CONTENT_SHA256, pieces};

/// What is signed of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path as on the wire, percent-encoded.
    pub path: &'a str,
    /// The query as on the wire, without the `?`.
    pub query: Option<&'a str>,
    /// All headers; `host` need not be among them.
    pub headers: &'a HeaderMap,
    /// The `Host` header or the `:authority`.
    pub host: &'a str,
}

/// A signed header that the request does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AbsentHeader;

/// Which text stands for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathForm {
    /// Decoded and encoded once more: S3's rule.
    Canonical,
    /// As it stands on the wire. Some clients sign exactly the bytes that they send, though they
    /// encode fewer or more of them than S3's rule does.
    Verbatim,
}

/// Everything that goes into a canonical request.
pub(super) struct CanonicalRequest<'a> {
    pub(super) parts: &'a RequestParts<'a>,
    pub(super) path_form: PathForm,
    /// Names separated by `;`, in the order that was signed.
    pub(super) signed_headers: &'a str,
    pub(super) payload_hash: &'a str,
}

impl CanonicalRequest<'_> {
    /// SHA-256 of the canonical request.
    pub(super) fn digest(&self) -> Result<[u8; 32], AbsentHeader> {
        let mut sink = HashSink::new();
        self.write(&mut sink)?;
        Ok(sink.finish())
    }

    /// The canonical request itself, for a person to compare.
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::new();
        // What was written up to an absent header already shows where the two sides part.
        let _ = self.write(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn write(&self, sink: &mut impl Sink) -> Result<(), AbsentHeader> {
        let parts = self.parts;
        sink.put(parts.method.as_str().as_bytes());
        sink.put(b"\n");
        match self.path_form {
            PathForm::Canonical => put_path(sink, parts.path),
            PathForm::Verbatim => sink.put(parts.path.as_bytes()),
        }
        sink.put(b"\n");
        if let Some(query) = parts.query
            && !query.is_empty()
        {
            put_query(sink, query);
        }
        sink.put(b"\n");
        for name in pieces(self.signed_headers, b';') {
            put_header(sink, parts, name)?;
        }
        sink.put(b"\n");
        sink.put(self.signed_headers.as_bytes());
        sink.put(b"\n");
        sink.put(self.payload_hash.as_bytes());
        Ok(())
    }
}

fn put_path(sink: &mut impl Sink, path: &str) {
    if path.is_empty() {
        return sink.put(b"/");
    }
    put_encoded(sink, path.as_bytes(), Place::Path);
}

/// Writes `name:value` of a signed header; several of one name are joined with commas.
fn put_header(
    sink: &mut impl Sink,
    parts: &RequestParts<'_>,
    name: &str,
) -> Result<(), AbsentHeader> {
    sink.put(name.as_bytes());
    sink.put(b":");
    if name == "host" {
        put_collapsed(sink, parts.host.as_bytes());
    } else {
        let mut values = values(parts.headers, name).iter();
        put_collapsed(sink, values.next().ok_or(AbsentHeader)?.as_bytes());
        for value in values {
            sink.put(b",");
            put_collapsed(sink, value.as_bytes());
        }
    }
    sink.put(b"\n");
    Ok(())
}

/// The values of a header. The two that every request signs are known by name, which spares
/// parsing it.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> GetAll<'a, HeaderValue> {
    [AMZ_DATE, CONTENT_SHA256]
        .iter()
        .find(|known| known.as_str() == name)
        .map_or_else(|| headers.get_all(name), |known| headers.get_all(known))
}

/// Writes a header value trimmed, with each run of spaces inside as one space.
fn put_collapsed(sink: &mut impl Sink, value: &[u8]) {
    let mut rest = value.trim_ascii();
    if memchr::memchr(b' ', rest).is_none() {
        return sink.put(rest);
    }
    while let Some(at) = rest.windows(2).position(|pair| pair == b"  ") {
        sink.put(&rest[..=at]);
        let spaces = rest[at..].iter().take_while(|byte| **byte == b' ').count();
        rest = &rest[at + spaces..];
    }
    sink.put(rest);
}

/// Writes the canonical query: each parameter decoded and encoded once, sorted by name and value,
/// without the signature of the presigned form.
fn put_query(sink: &mut impl Sink, query: &str) {
    let mut encoded = Vec::with_capacity(query.len() + 16);
    let mut parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let start = encoded.len();
        put_encoded(&mut encoded, name.as_bytes(), Place::Query);
        let middle = encoded.len();
        if &encoded[start..] == b"X-Amz-Signature" {
            encoded.truncate(start);
            continue;
        }
        put_encoded(&mut encoded, value.as_bytes(), Place::Query);
        parameters.push((start..middle, middle..encoded.len()));
    }
    parameters.sort_by(|(a_name, a_value), (b_name, b_value)| {
        (&encoded[a_name.clone()], &encoded[a_value.clone()])
            .cmp(&(&encoded[b_name.clone()], &encoded[b_value.clone()]))
    });
    for (index, (name, value)) in parameters.into_iter().enumerate() {
        if index > 0 {
            sink.put(b"&");
        }
        sink.put(&encoded[name]);
        sink.put(b"=");
        sink.put(&encoded[value]);
    }
}

/// Where a text stands, which decides what `/` and `+` mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `/` is kept, `+` is itself.
    Path,
    /// `/` is encoded, `+` is a space.
    Query,
}

/// Writes `text` percent-decoded and encoded again, each byte once. A `%` that no two hex digits
/// follow stands for itself.
pub(super) fn put_encoded(sink: &mut impl Sink, text: &[u8], place: Place) {
    let is_plain = |byte: u8| is_unreserved(byte) || (byte == b'/' && place == Place::Path);
    let mut rest = text;
    while !rest.is_empty() {
        let plain_len = rest.iter().take_while(|byte| is_plain(**byte)).count();
        if plain_len > 0 {
            sink.put(&rest[..plain_len]);
            rest = &rest[plain_len..];
            continue;
        }
        let (byte, len) = decode_one(rest, place);
        if is_plain(byte) {
            sink.put(&[byte]);
        } else {
            sink.put(&escape(byte));
        }
        rest = &rest[len..];
    }
}

/// Appends `text` percent-encoded, as a value is put into a query.
pub(super) fn push_escaped(query: &mut String, text: &str) {
    for byte in text.bytes() {
        if is_unreserved(byte) {
            query.push(char::from(byte));
        } else {
            query.extend(escape(byte).map(char::from));
        }
    }
}

/// Decodes a query value; `None` when the bytes are not UTF-8.
pub(super) fn decode_query(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Some(text.into());
    }
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let (byte, len) = decode_one(rest, Place::Query);
        decoded.push(byte);
        rest = &rest[len..];
    }
    String::from_utf8(decoded).ok().map(Into::into)
}

/// The first decoded byte of a non-empty text, and how many bytes it took.
fn decode_one(text: &[u8], place: Place) -> (u8, usize) {
    match text {
        [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (hex_value(*high) << 4 | hex_value(*low), 3)
        }
        [b'+', ..] if place == Place::Query => (b' ', 1),
        [byte, ..] => (*byte, 1),
        [] => unreachable!("callers check that there is a byte"),
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// `%` and two upper-case hex digits.
const fn escape(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [
        b'%',
        DIGITS[(byte >> 4) as usize],
        DIGITS[(byte & 15) as usize],
    ]
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Where canonical text goes.
pub(super) trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Most canonical requests are 300 to 700 bytes, so one flush is the rule.
const SINK_BYTES: usize = 1024;

/// A hash behind a buffer: a canonical request is written in dozens of small pieces, and SHA-256
/// is quickest on many blocks at once.
struct HashSink {
    hash: Sha256,
    buffer: [u8; SINK_BYTES],
    used: usize,
}

impl HashSink {
    fn new() -> Self {
        Self {
            hash: Sha256::new(),
            buffer: [0; SINK_BYTES],
            used: 0,
        }
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer[..self.used]);
        self.used = 0;
    }

    fn finish(mut self) -> [u8; 32] {
        self.flush();
        self.hash.finalize().into()
    }
}

impl Sink for HashSink {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > SINK_BYTES - self.used {
            self.flush();
        }
        if bytes.len() > SINK_BYTES {
            return self.hash.update(bytes);
        }
        self.buffer[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn paths_are_decoded_and_encoded_once() {
        for (wire, canonical) in [
            ("", "/"),
            ("/", "/"),
            ("/a/b.txt", "/a/b.txt"),
            ("/a//b/../c", "/a//b/../c"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a+b", "/a%2Bb"),
            ("/%7euser", "/~user"),
            ("/%e4%BD%a0", "/%E4%BD%A0"),
            ("/ä", "/%C3%A4"),
            ("/a%2fb", "/a/b"),
            ("/100%", "/100%25"),
            ("/%zz", "/%25zz"),
            ("/test$file.text", "/test%24file.text"),
            ("/(1)!*'", "/%281%29%21%2A%27"),
        ] {
            assert_eq!(written(|sink| put_path(sink, wire)), canonical, "{wire}");
        }
    }

    #[test]
    fn queries_are_sorted_and_the_signature_left_out() {
        for (wire, canonical) in [
            ("lifecycle", "lifecycle="),
            ("max-keys=2&prefix=J", "max-keys=2&prefix=J"),
            ("prefix=J&max-keys=2", "max-keys=2&prefix=J"),
            ("a=2&a=1&a", "a=&a=1&a=2"),
            ("prefix=a+b", "prefix=a%20b"),
            ("prefix=a%2Bb", "prefix=a%2Bb"),
            ("prefix=a/b", "prefix=a%2Fb"),
            ("&&a=b&", "a=b"),
            ("a=b=c", "a=b%3Dc"),
            ("X-Amz-Signature=abc&X-Amz-Date=d", "X-Amz-Date=d"),
            ("a-b=1&a=2", "a=2&a-b=1"),
        ] {
            assert_eq!(written(|sink| put_query(sink, wire)), canonical, "{wire}");
        }
    }

    #[test]
    fn header_values_are_trimmed_and_runs_of_spaces_collapse() {
        for (value, canonical) in [
            ("  a   b  c ", "a b c"),
            ("a", "a"),
            ("", ""),
            ("   ", ""),
            ("\ta b\t", "a b"),
        ] {
            assert_eq!(
                written(|sink| put_collapsed(sink, value.as_bytes())),
                canonical
            );
        }
    }

    #[test]
    fn values_of_one_name_are_joined_each_trimmed() {
        let headers: HeaderMap = [" a  b ", "c", "  d  e"]
            .map(|value| ("x-amz-meta-n".parse().unwrap(), value.parse().unwrap()))
            .into_iter()
            .collect();
        let parts = RequestParts {
            method: &Method::GET,
            path: "/",
            query: None,
            headers: &headers,
            host: " h ",
        };
        let line = |name| {
            let mut bytes = Vec::new();
            put_header(&mut bytes, &parts, name).map(|()| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(line("x-amz-meta-n").unwrap(), "x-amz-meta-n:a b,c,d e\n");
        assert_eq!(line("host").unwrap(), "host:h\n");
        assert_eq!(line("x-amz-date"), Err(AbsentHeader));
        assert_eq!(line("not a name"), Err(AbsentHeader));
    }

    #[test]
    fn the_sink_hashes_what_it_is_given_whatever_the_pieces() {
        let text: Vec<u8> = (0..10_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for piece in [1, 63, 64, 1000, 1024, 1025, 5000] {
            let mut sink = HashSink::new();
            text.chunks(piece).for_each(|bytes| sink.put(bytes));
            assert_eq!(
                sink.finish(),
                <[u8; 32]>::from(Sha256::digest(&text)),
                "{piece}"
            );
        }
    }
}
