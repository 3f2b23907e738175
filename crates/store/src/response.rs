//! An answer to an S3 request.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Body, CacheStatus};

/// Status, headers and a body that may stream.
///
/// The edge adds what belongs to the connection: `Date`, `Content-Length` from the body's length,
/// a request id if there is none. For HEAD the store sets `Content-Length` itself.
#[derive(Debug, Default)]
pub struct Response {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers, without hop-by-hop ones.
    pub headers: HeaderMap,
    /// Payload.
    pub body: Body,
    /// What a cache did, printed by the edge as `Cache-Status`.
    pub cache: Option<CacheStatus>,
}

impl Response {
    /// An empty answer with this status.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Adds or replaces a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }
}
