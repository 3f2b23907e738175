//! Requests that may have to be sent twice: once to the hot store, and then to the cold one.

use bytes::Bytes;
use forebay_s3::operation::ObjectId;
use forebay_store::{Budget, Error, Request, Reservation};
use http::{HeaderMap, HeaderName, header};

/// A request whose payload is here.
pub(crate) struct Whole {
    request: Request,
    bytes: Bytes,
    _room: Reservation,
}

impl Whole {
    /// Reads the payload of a request, `bytes_max` at most.
    ///
    /// Checksums that came behind it become headers, so that they stay with it.
    ///
    /// # Errors
    /// The body's own; `SlowDown` when there is no memory for it.
    pub(crate) async fn read(
        mut request: Request,
        bytes_max: u64,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let body = std::mem::take(&mut request.body);
        let length = body.length().unwrap_or(bytes_max).min(bytes_max);
        let room = budget.reserve(length).await?;
        let (bytes, trailers) = body
            .collect(usize::try_from(bytes_max).unwrap_or(usize::MAX))
            .await?;
        take_checksums(&mut request.headers, trailers);
        request
            .headers
            .insert(header::CONTENT_LENGTH, bytes.len().into());
        Ok(Self {
            request,
            bytes,
            _room: room,
        })
    }

    /// The payload.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The request, to be sent once more.
    pub(crate) fn again(&self) -> Request {
        let mut request = copy_of(&self.request);
        request.body = self.bytes.clone().into();
        request
    }
}

/// A request without its body.
pub(crate) fn copy_of(request: &Request) -> Request {
    Request {
        operation: request.operation.clone(),
        method: request.method.clone(),
        headers: request.headers.clone(),
        query: request.query.clone(),
        body: forebay_store::Body::empty(),
        payload_proof: request.payload_proof,
        caller: request.caller.clone(),
    }
}

/// Makes headers of the checksums in trailers.
fn take_checksums(headers: &mut HeaderMap, trailers: Option<HeaderMap>) {
    let Some(trailers) = trailers else { return };
    headers.remove(HeaderName::from_static("x-amz-trailer"));
    for (name, value) in &trailers {
        if name.as_str().starts_with("x-amz-checksum-") {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// Whether a request names a version that only the cold store can know.
pub(crate) fn names_version(object: &ObjectId) -> bool {
    object
        .version
        .as_ref()
        .is_some_and(|version| version.as_str() != "null")
}
