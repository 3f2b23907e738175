//! Answers as tests look at them: read to the end, with the elements of their documents.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A response read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// All bytes of the body.
    pub body: Bytes,
    /// What a cache said, printed.
    pub cache: Option<String>,
}

impl Answer {
    /// A header's text; empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or("(not text)"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The entity tag with its quotes; empty when absent.
    pub fn etag(&self) -> &str {
        self.header("etag")
    }

    /// Contents of every `<name>…</name>` of the body in order, unescaped.
    pub fn elements(&self, name: &str) -> Vec<String> {
        elements(&self.text(), name)
    }

    /// Contents of the first `<name>` of the body; empty when absent.
    pub fn element(&self, name: &str) -> String {
        self.elements(name).into_iter().next().unwrap_or_default()
    }
}

/// Contents of every `<name>…</name>` of `xml` in order, unescaped; for documents made by programs.
pub fn elements(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    let mut found = Vec::new();
    while let Some(start) = rest.find(&open) {
        let inner = &rest[start + open.len()..];
        let Some(end) = inner.find(&close) else { break };
        found.push(unescape(&inner[..end]));
        rest = &inner[end + close.len()..];
    }
    found
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let end = rest.find(';').expect("a reference ends in a semicolon");
        plain.push(match &rest[..end] {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => number
                .strip_prefix("#x")
                .map_or_else(|| number[1..].parse(), |hex| u32::from_str_radix(hex, 16))
                .ok()
                .and_then(char::from_u32)
                .expect("a numeric reference names a character"),
        });
        rest = &rest[end + 1..];
    }
    plain + rest
}
