//! Answers whose head leaves before the store has answered.
//!
//! A store may work for minutes on a `CompleteMultipartUpload` or a copy, longer than clients bear
//! silence. Amazon S3 answers 200 then, sends white space until it knows the outcome, and ends with
//! the document, which may be an error; SDKs look for one in these operations. The gateway does the
//! same once a store has been silent for [`Limits::silence_max`], and for no other operation. What
//! comes in time passes as it came: the answer of a fast store, and that of an origin which sends
//! white space of its own.
//!
//! - The XML declaration leaves with the head and before the white space, since only the first
//!   bytes of a document may be one (XML 1.0 §2.8); that of the store's document is left out.
//! - The time counts from the end of the request's body: who sends slowly is told so by a status.
//! - Headers that came too late are lost; an answer that is no document becomes one.
//! - Counters and the access log tell the status that the answer would have had.
//! - When the client leaves, the store's future is dropped, as at any other time: the old object or
//!   the new one stands, whole, and the same completion can be sent again.
//!
//! Source: Amazon S3 API Reference, `CompleteMultipartUpload` (with the example of an error in a
//! 200: the declaration, white space, `<Error>`), `CopyObject`, `UploadPartCopy`.
//!
//! [`Limits::silence_max`]: crate::settings::Limits::silence_max

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use forebay_s3::{code::Code, operation::OperationName, xml::DOCUMENT_BYTES_MAX};
use forebay_store::{Body, Error, Request, Response};
use http::{HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use super::{exchange::Exchange, respond};

/// What a document begins with, before anything is known of it.
const DECLARATION: Bytes = Bytes::from_static(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
const WHITE_SPACE: Bytes = Bytes::from_static(b" ");
/// The longest declaration that is waited for: version, encoding and `standalone` take 60 bytes.
const DECLARATION_BYTES_MAX: usize = 256;

/// What a store is working on.
type Working = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

/// Whether clients know that an error may stand in a 200 of this operation.
pub(super) fn may_be_late(operation: OperationName) -> bool {
    matches!(
        operation,
        OperationName::CompleteMultipartUpload
            | OperationName::CopyObject
            | OperationName::UploadPartCopy
    )
}

/// Asks the store; when it is silent for too long, gives the head of the answer and leaves the
/// rest to the exchange.
pub(super) async fn call(exchange: &mut Exchange, mut request: Request) -> Result<Response, Error> {
    let connection = Arc::clone(exchange.connection());
    let silence_max = connection.worker.shared.settings.limits.silence_max;
    // Stores let go of a body that they have read, as it holds room in the budget.
    let (reading, read) = oneshot::channel::<()>();
    if request.body.is_end_stream() {
        drop(reading);
    } else {
        request.body = mem::take(&mut request.body).holding(reading);
    }
    let mut working: Working = Box::pin(async move { super::call(&connection, request).await });
    let silence = async {
        // Nothing is ever sent: it ends when the body is dropped.
        let _ = read.await;
        sleep(silence_max).await;
    };
    tokio::select! {
        biased;
        result = &mut working => return result,
        () = silence => {}
    }
    exchange.answers_late(LateAnswer::new(working, silence_max));
    let xml = HeaderValue::from_static("application/xml");
    Ok(Response::new(StatusCode::OK).with_header(header::CONTENT_TYPE, xml))
}

/// The rest of an answer whose head has left.
pub(super) struct LateAnswer {
    working: Working,
    silence: Pin<Box<Sleep>>,
    silence_max: Duration,
    is_declared: bool,
}

/// What comes next of a late answer.
pub(super) enum Next {
    /// Bytes that say nothing but that it goes on.
    Wait(Bytes),
    /// The outcome, after which there is nothing more here.
    Outcome(Result<Response, Error>),
}

impl LateAnswer {
    fn new(working: Working, silence_max: Duration) -> Self {
        Self {
            working: Box::pin(async move { as_document(working.await?).await }),
            silence: Box::pin(sleep(silence_max)),
            silence_max,
            is_declared: false,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        if !mem::replace(&mut self.is_declared, true) {
            return Poll::Ready(Next::Wait(DECLARATION));
        }
        if let Poll::Ready(result) = self.working.as_mut().poll(cx) {
            return Poll::Ready(Next::Outcome(result));
        }
        ready!(self.silence.as_mut().poll(cx));
        self.silence = Box::pin(sleep(self.silence_max));
        Poll::Ready(Next::Wait(WHITE_SPACE))
    }
}

impl fmt::Debug for LateAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateAnswer").finish_non_exhaustive()
    }
}

/// Makes the body that follows the declaration and the white space.
pub(super) fn conclude(exchange: &mut Exchange, result: Result<Response, Error>) -> Body {
    let response = result.unwrap_or_else(|error| respond::failed(exchange, error));
    exchange.turns_out(response.status, response.cache);
    Body::stream(Undeclared::new(response.body))
}

/// An answer that can follow a head of 200: an error must be a document that says so.
async fn as_document(mut response: Response) -> Result<Response, Error> {
    let status = response.status;
    if status.is_success() {
        return Ok(response);
    }
    let (bytes, _) = response.body.collect(DOCUMENT_BYTES_MAX).await?;
    let root = match declaration(&bytes) {
        Declaration::Ends(at) => &bytes[at..],
        Declaration::Absent | Declaration::Unknown => &bytes[..],
    };
    if root.trim_ascii_start().starts_with(b"<Error") {
        response.body = bytes.into();
        return Ok(response);
    }
    if status.is_server_error() {
        return Err(Error::Unavailable {
            reason: format!("it answered {status}").into(),
        });
    }
    let message = format!("The store behind this gateway answered {status}");
    Err(Error::refused_because(Code::InvalidRequest, message))
}

/// Where the declaration of a document is.
#[derive(Debug, PartialEq, Eq)]
enum Declaration {
    /// Before this place.
    Ends(usize),
    Absent,
    /// More bytes will tell.
    Unknown,
}

/// Looks for a declaration at the beginning of a document, behind white space if need be.
fn declaration(bytes: &[u8]) -> Declaration {
    const OPENING: &[u8] = b"<?xml";
    let text = bytes.trim_ascii_start();
    match text.get(OPENING.len()) {
        None if OPENING.starts_with(text) => return Declaration::Unknown,
        // Else it is another instruction, such as `<?xml-stylesheet`.
        Some(next) if text.starts_with(OPENING) && next.is_ascii_whitespace() => {}
        Some(_) | None => return Declaration::Absent,
    }
    match text.windows(2).position(|pair| pair == b"?>") {
        Some(at) => Declaration::Ends(bytes.len() - text.len() + at + 2),
        None if text.len() < DECLARATION_BYTES_MAX => Declaration::Unknown,
        None => Declaration::Absent,
    }
}

/// A document without its declaration.
struct Undeclared {
    body: Body,
    /// The beginning, while it may be of a declaration.
    held: BytesMut,
    is_past: bool,
}

impl Undeclared {
    fn new(body: Body) -> Self {
        Self {
            body,
            held: BytesMut::new(),
            is_past: false,
        }
    }

    /// What may leave now that these bytes have come.
    fn take(&mut self, bytes: &Bytes) -> Bytes {
        self.held.extend_from_slice(bytes);
        // White space of an origin keeps the connection as ours does.
        if self.held.trim_ascii_start().is_empty() {
            return self.held.split().freeze();
        }
        match declaration(&self.held) {
            Declaration::Unknown => return Bytes::new(),
            Declaration::Absent => {}
            Declaration::Ends(at) => drop(self.held.split_to(at)),
        }
        self.is_past = true;
        self.held.split().freeze()
    }
}

impl HttpBody for Undeclared {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        loop {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            if this.is_past {
                return Poll::Ready(frame);
            }
            let leaving = match &frame {
                Some(Ok(frame)) => match frame.data_ref() {
                    Some(bytes) => this.take(bytes),
                    // Trailers: of one that has sent its document.
                    None => continue,
                },
                Some(Err(_)) => return Poll::Ready(frame),
                None => {
                    this.is_past = true;
                    this.held.split().freeze()
                }
            };
            if !leaving.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(leaving))));
            }
            if frame.is_none() {
                return Poll::Ready(None);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests;
