//! The end of a connection whose client waits for `100 Continue` and gets its answer instead.
//!
//! Such an answer must say that the connection closes (RFC 9110 §10.1.1): what a client sends next
//! would be taken for the body it held back. It is also what botocore needs where there is no body
//! to wait for: it keeps the status of an answer that came in place of `100 Continue` for the next
//! request of the connection, and then waits for ever (`AWSConnection.request`, 1.43).

use http::{HeaderValue, Response, StatusCode, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;

/// What the client of a request waits for before it sends the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::request) enum Awaited {
    /// Nothing.
    Nothing,
    /// To be told to go on, with no body to send then.
    ContinueInVain,
    /// To be told to go on.
    Continue,
}

impl Awaited {
    pub(in crate::request) fn of(incoming: &http::Request<Incoming>) -> Self {
        if incoming.version() != Version::HTTP_11
            || !incoming.headers().contains_key(header::EXPECT)
        {
            return Self::Nothing;
        }
        if incoming.body().is_end_stream() {
            Self::ContinueInVain
        } else {
            Self::Continue
        }
    }

    /// Has the connection end with an answer that came, or may have come, in place of the word to
    /// go on. An answer of success has read the body, so that word came first.
    pub(in crate::request) fn end<B>(self, answer: &mut Response<B>) {
        let ends = match self {
            Self::Nothing => false,
            Self::ContinueInVain => true,
            Self::Continue => answer.status() >= StatusCode::MULTIPLE_CHOICES,
        };
        if ends {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
    }
}
