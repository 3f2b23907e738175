//! The body of a request: bounded, decoded, and verified while it passes.
//!
//! A store reads a plain payload and may trust it once it has read it to the end: the *last* piece
//! is held back until every hash, checksum, chunk signature and trailer has been judged, so a
//! store that counts bytes never has them all of a payload that turns out wrong. A payload that
//! is wrong ends in an error, and whoever was storing it stores nothing.
//!
//! Memory: a body in flight reserves [`IN_FLIGHT_BYTES`] at most from the global budget; hyper
//! reads no further ahead than one buffer.
//!
//! A body that nobody reads to its end is drained for a while ([`Unread`]), so that a client that
//! sends before it reads still gets the answer; one that waits for `100 Continue` never sends it.

mod awaited;
mod pace;
mod unread;

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_s3::{
    checksum::ChecksumHeader,
    chunked::{Intake, IntakeError},
    code::Code,
    operation::OperationName,
    sigv4::{ChunkSigner, PayloadMode},
    xml::DOCUMENT_BYTES_MAX,
};
use forebay_store::{Body, Error, PayloadProof, Reservation};
use http::{HeaderMap, header, request::Parts};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{post_object::FormFile, respond::refusal};
use crate::{
    server::Connection,
    settings::{PUT_BYTES_MAX, READ_BUFFER_BYTES},
};
use pace::Pace;

pub(super) use awaited::Awaited;
pub(super) use unread::Unread;

/// What one body in flight holds at most: the buffer being read into, and the one before it that
/// is on its way to the store.
const IN_FLIGHT_BYTES: u64 = 2 * READ_BUFFER_BYTES as u64;
/// Whether the operation is one whose payload must be declared even when it is empty.
pub(super) fn is_expected(operation: OperationName) -> bool {
    matches!(
        operation,
        OperationName::PutObject | OperationName::UploadPart
    )
}

/// Refuses a request without a body whose client signed one.
pub(super) fn check_absent(proof: PayloadProof) -> Result<(), Error> {
    match proof {
        PayloadProof::None | PayloadProof::Chunks => Ok(()),
        PayloadProof::Sha256(digest) if PayloadMode::Sha256(digest) == EMPTY => Ok(()),
        PayloadProof::Sha256(_) => Err(Error::refused(Code::XAmzContentSHA256Mismatch)),
    }
}

/// The payload of a request without one.
const EMPTY: PayloadMode = PayloadMode::Sha256([
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
]);

/// Makes the body that a store reads, and sets `Content-Length` to its length.
pub(super) async fn take(
    unread: Unread,
    head: &mut Parts,
    operation: OperationName,
    payload: PayloadMode,
    chunk_signer: Option<Box<ChunkSigner>>,
    connection: &Connection,
) -> Result<Body, Error> {
    let about = match operation {
        OperationName::CompleteMultipartUpload => ChecksumHeader::OfObject,
        _ => ChecksumHeader::OfPayload,
    };
    let intake = Intake::new(
        &head.headers,
        payload,
        about,
        chunk_signer.map(|signer| *signer),
    )
    .map_err(|error| refuse(&error))?;
    let mut length = intake.expected().length;
    if length.is_none() && unread.is_empty() && head.version == http::Version::HTTP_2 {
        // There the end of the stream is as good as a length.
        length = Some(0);
    }
    if length.is_none() && is_expected(operation) {
        return Err(Error::refused(Code::MissingContentLength));
    }
    if length.is_some_and(|length| length > PUT_BYTES_MAX) {
        return Err(too_large(length));
    }
    if let Some(length) = length {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let mut upload = Upload::new(Source::Plain(unread), intake, length, connection);
    if length == Some(0) {
        // A store may not look at an empty body, so it is judged here.
        let trailers = upload.finish_empty().await?;
        return Ok(replay(Bytes::new(), trailers));
    }
    let budget = &connection.worker.shared.budget;
    if let Some(length) = length {
        let room = budget.reserve(length.min(IN_FLIGHT_BYTES)).await?;
        return Ok(Body::stream(upload.holding(room)));
    }
    // Of what is no object, only documents have bodies; stores want to know their length.
    let room = budget.reserve(DOCUMENT_BYTES_MAX as u64).await?;
    let (bytes, trailers) = Body::stream(upload).collect(DOCUMENT_BYTES_MAX).await?;
    head.headers
        .insert(header::CONTENT_LENGTH, bytes.len().into());
    Ok(replay(bytes, trailers).holding(room))
}

fn too_large(length: Option<u64>) -> Error {
    let mut error = Error::refused(Code::EntityTooLarge);
    if let Error::Refused(refusal) = &mut error {
        refusal
            .details
            .push(("MaxSizeAllowed", PUT_BYTES_MAX.to_string()));
        refusal
            .details
            .extend(length.map(|length| ("ProposedSize", length.to_string())));
    }
    error
}

/// The S3 error of a refused payload.
pub(super) fn refuse(error: &IntakeError) -> Error {
    refusal(error.code(), error.to_string(), error.extras())
}

/// Where the bytes come from.
#[derive(Debug)]
pub(super) enum Source {
    /// The body as it is.
    Plain(Unread),
    /// The file in a form.
    Form(FormFile),
}

impl Source {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        match self {
            Self::Plain(unread) => unread.poll_bytes(cx),
            Self::Form(file) => file.poll_bytes(cx),
        }
    }

    fn abandon(&mut self) {
        match self {
            Self::Plain(unread) => unread.abandon(),
            Self::Form(file) => file.abandon(),
        }
    }
}

/// A payload on its way to a store.
#[derive(Debug)]
pub(super) struct Upload {
    source: Source,
    /// `None` once the payload has been judged, or has failed.
    intake: Option<Intake>,
    /// Bytes from the source that are not decoded yet.
    input: Bytes,
    /// The last piece so far, held back until something follows it or all is judged.
    held: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// Decoded bytes so far.
    received_bytes: u64,
    /// Bytes not yet given, when known.
    left_bytes: Option<u64>,
    /// Whether an error was given, after which nothing comes but errors.
    is_failed: bool,
    pace: Pace,
    reservation: Option<Reservation>,
}

impl Upload {
    pub(super) fn new(
        source: Source,
        intake: Intake,
        length: Option<u64>,
        connection: &Connection,
    ) -> Self {
        Self {
            source,
            intake: Some(intake),
            input: Bytes::new(),
            held: None,
            trailers: None,
            received_bytes: 0,
            left_bytes: length,
            is_failed: false,
            pace: Pace::new(connection),
            reservation: None,
        }
    }

    /// Keeps room in the budget while the payload is in flight.
    pub(super) fn holding(mut self, reservation: Reservation) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// Reads a payload that must be empty to its end; its trailers.
    async fn finish_empty(&mut self) -> Result<Option<HeaderMap>, Error> {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
        match frame.transpose()?.map(Frame::into_trailers) {
            None => Ok(None),
            Some(Ok(trailers)) => Ok(Some(trailers)),
            Some(Err(_)) => Err(Error::refused(Code::IncompleteBody)),
        }
    }

    /// The next piece, `None` when the payload is complete and as declared.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            let Some(intake) = &mut self.intake else {
                return Poll::Ready(Ok(self.held.take()));
            };
            let piece = intake
                .take(&mut self.input)
                .map_err(|error| refuse(&error))?;
            if let Some(piece) = piece {
                self.received_bytes += piece.len() as u64;
                let expected_bytes = intake.expected().length;
                let may_be_last = expected_bytes.is_none_or(|bytes| self.received_bytes >= bytes);
                let ready = if may_be_last {
                    self.held.replace(piece)
                } else {
                    Some(piece)
                };
                match ready.filter(|piece| !piece.is_empty()) {
                    Some(piece) => return Poll::Ready(Ok(Some(piece))),
                    None => continue,
                }
            }
            match self.source.poll_bytes(cx) {
                Poll::Pending => {
                    ready!(self.pace.poll_stalled(cx));
                    self.source.abandon();
                    return Poll::Ready(Err(Error::refused(Code::RequestTimeout)));
                }
                Poll::Ready(Some(bytes)) => {
                    self.input = bytes?;
                    self.pace.moved(self.input.len());
                }
                Poll::Ready(None) => {
                    if let Some(intake) = self.intake.take() {
                        let received = intake.finish().map_err(|error| refuse(&error))?;
                        self.trailers =
                            Some(received.trailers).filter(|trailers| !trailers.is_empty());
                    }
                }
            }
        }
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.is_failed {
            return Poll::Ready(Some(Err(Error::refused(Code::IncompleteBody))));
        }
        match ready!(this.poll_piece(cx)) {
            Ok(Some(piece)) => {
                if let Some(left_bytes) = &mut this.left_bytes {
                    *left_bytes -= piece.len() as u64;
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Ok(None) => Poll::Ready(this.trailers.take().map(|map| Ok(Frame::trailers(map)))),
            Err(error) => {
                this.is_failed = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.is_failed && self.intake.is_none() && self.held.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left_bytes
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A body of bytes that were read and judged already, with the trailers that followed them.
pub(super) fn replay(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    match trailers {
        None => bytes.into(),
        Some(trailers) => Body::stream(Replayed {
            bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            trailers: Some(trailers),
        }),
    }
}

/// See [`replay`].
struct Replayed {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl HttpBody for Replayed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let data = self.bytes.take().map(Frame::data);
        Poll::Ready(
            data.or_else(|| self.trailers.take().map(Frame::trailers))
                .map(Ok),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}
