//! An S3 request, parsed once at the edge.

use std::{borrow::Cow, fmt, net::SocketAddr, sync::Arc, time::Instant};

use forebay_s3::{operation::Operation, uri};
use http::{HeaderMap, Method};

use crate::Body;

/// A request as stores and layers see it: authenticated, authorized, decoded.
///
/// The edge has removed what belongs to one connection or one signature: hop-by-hop headers,
/// `Host`, `Authorization`, `X-Amz-Date`, `X-Amz-Security-Token`, `X-Amz-Content-Sha256`, the
/// signing parameters of the query, and the `aws-chunked` coding with its
/// `X-Amz-Decoded-Content-Length`. `Content-Length` is that of the decoded body. All other
/// headers are as the client sent them; `X-Amz-Trailer` stays and names the trailers that the
/// body will yield. The body verifies itself: reading it to its end without an error means that
/// every hash, checksum and signature the client sent with it has matched.
#[derive(Debug)]
pub struct Request {
    /// What is asked for.
    pub operation: Operation,
    /// Method as sent.
    pub method: Method,
    /// Headers, see above.
    pub headers: HeaderMap,
    /// Query without its signing parameters, still encoded.
    pub query: Query,
    /// Payload.
    pub body: Body,
    /// What the client signed of the payload.
    pub payload_proof: PayloadProof,
    /// Who asks.
    pub caller: Caller,
}

/// What a client signed of a payload. The body verifies it; it is known here so that a store that
/// sends the payload on can vouch for it as strongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadProof {
    /// Nothing.
    None,
    /// The SHA-256 of the whole.
    Sha256([u8; 32]),
    /// Each chunk.
    Chunks,
}

/// Who asks, from where, and until when the answer is of use.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who was authenticated.
    pub identity: Identity,
    /// Id of the request in logs and answers.
    pub request_id: RequestId,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// When the gateway gives up on the request.
    pub deadline: Instant,
}

/// Who was authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Nobody: the request was not signed.
    Anonymous,
    /// A user of the config, by name.
    User(Arc<str>),
}

/// Id of one request: 64 random bits, printed as 16 upper-case hex digits like S3's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The printed id, without an allocation.
    pub fn to_text(self) -> [u8; 16] {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let bytes = self.0.to_be_bytes();
        std::array::from_fn(|i| DIGITS[usize::from(bytes[i / 2] >> (4 - 4 * (i % 2)) & 15)])
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

/// The query of a request, still percent-encoded, without the `?`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(String);

impl Query {
    /// Keeps `encoded` as it is.
    pub fn new(encoded: impl Into<String>) -> Self {
        Self(encoded.into())
    }

    /// The encoded text; empty when there is no query.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The decoded value of the first parameter `name`; empty for one without `=`.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        uri::query_pairs(&self.0)
            .find(|(n, _)| n == name)
            .map(|(_, value)| value)
    }

    /// Whether there is a parameter `name`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_print_alike_both_ways() {
        let id = RequestId(0x0123_4567_89AB_CDEF);
        assert_eq!(id.to_text(), *b"0123456789ABCDEF");
        assert_eq!(id.to_string().as_bytes(), id.to_text());
    }

    #[test]
    fn parameters_are_found_by_their_decoded_name() {
        let query = Query::new("uploads&prefix=a%2Fb+c&prefix=later&x%2Dy=1");
        assert_eq!(query.get("prefix").as_deref(), Some("a/b c"));
        assert_eq!(query.get("uploads").as_deref(), Some(""));
        assert!(query.has("x-y") && !query.has("x"));
    }
}
