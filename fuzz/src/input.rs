//! Reads the parts of a fuzz input: bytes and lines from its front, and requests.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// What is left of an input.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte; zero at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// What stands before the next `end`, which is dropped; all of it without one.
    pub(crate) fn until(&mut self, end: &[u8]) -> &'a [u8] {
        let at = self.0.windows(end.len()).position(|window| window == end);
        let (taken, rest) = match at {
            Some(at) => (&self.0[..at], &self.0[at + end.len()..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        taken
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> &'a [u8] {
        self.until(b"\n")
    }

    /// The next line as text; empty when it is none.
    pub(crate) fn text_line(&mut self) -> &'a str {
        std::str::from_utf8(self.line()).unwrap_or_default()
    }

    /// Header lines up to an empty one; lines that no header can be are skipped.
    pub(crate) fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        while !self.0.is_empty() {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let mut field = Input(line);
            let name = HeaderName::from_bytes(field.until(b":"));
            let value = HeaderValue::from_bytes(field.0.trim_ascii());
            if let (Ok(name), Ok(value)) = (name, value)
                && headers.len() < 64
            {
                headers.append(name, value);
            }
        }
        headers
    }

    /// A request: `METHOD path?query`, host, headers. `None` when the lines are no text.
    pub(crate) fn request(&mut self) -> Option<Request<'a>> {
        let start = std::str::from_utf8(self.line()).ok()?;
        let (method, target) = start.split_once(' ').unwrap_or(("GET", start));
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Some(Request {
            method: Method::from_bytes(method.as_bytes()).ok()?,
            path,
            query,
            host: std::str::from_utf8(self.line()).ok()?,
            headers: self.headers(),
        })
    }
}

/// The head of a request.
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) host: &'a str,
    pub(crate) headers: HeaderMap,
}

/// Cuts `body` into pieces of `1..=16` bytes, in lengths that `seed` decides; seed zero leaves it
/// whole.
pub(crate) fn pieces(body: &[u8], seed: u8) -> Vec<Bytes> {
    let mut rest = Bytes::copy_from_slice(body);
    if seed == 0 {
        return vec![rest];
    }
    let mut pieces = Vec::new();
    let mut state = u32::from(seed);
    while !rest.is_empty() {
        // A linear congruential generator (Numerical Recipes); its high bits vary most.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = (state >> 28) as usize + 1;
        pieces.push(rest.split_to(len.min(rest.len())));
    }
    pieces
}
