//! The store that keeps nothing: `/dev/null` with plausible answers.
//!
//! It measures what stands before it. Every object exists, has [`NullStore::object_bytes`] zero
//! bytes and one fixed tag; every write is read to its end, verified and forgotten; every listing
//! is empty.

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{
    code::Code,
    operation::{Effect, Operation, ReadObject},
};
use http::{HeaderValue, StatusCode, header};

use crate::{Body, Error, Request, Response, Store};

/// MD5 of no bytes, the tag S3 gives an empty object.
const ETAG: &str = "\"d41d8cd98f00b204e9800998ecf8427e\"";
/// The epoch that RFC 9110 shows in its examples.
const LAST_MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// Zero bytes are sent in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Keeps nothing, see the module.
#[derive(Debug, Clone, Default)]
pub struct NullStore {
    /// Bytes in every object.
    pub object_bytes: u64,
}

impl NullStore {
    fn read(&self, read: &ReadObject, body: impl Fn(u64) -> Body) -> Result<Response, Error> {
        let (status, length, content_range) = match read.range {
            None => (StatusCode::OK, self.object_bytes, None),
            Some(range) => {
                let range = range
                    .resolve(self.object_bytes)
                    .map_err(|_| Error::refused(Code::InvalidRange))?;
                let content_range = range.content_range(self.object_bytes);
                (
                    StatusCode::PARTIAL_CONTENT,
                    range.len(),
                    Some(content_range),
                )
            }
        };
        let mut response = Response::new(status)
            .with_header(header::ETAG, HeaderValue::from_static(ETAG))
            .with_header(
                header::LAST_MODIFIED,
                HeaderValue::from_static(LAST_MODIFIED),
            )
            .with_header(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))
            .with_header(header::CONTENT_LENGTH, length.into())
            .with_body(body(length));
        if let Some(value) = content_range.and_then(|text| HeaderValue::try_from(text).ok()) {
            response.headers.insert(header::CONTENT_RANGE, value);
        }
        Ok(response)
    }
}

fn zeros(length: u64) -> Body {
    let mut pieces = std::collections::VecDeque::new();
    let mut left = length;
    while left > 0 {
        let piece = usize::try_from(left)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES);
        pieces.push_back(Bytes::from_static(&ZEROS[..piece]));
        left -= piece as u64;
    }
    Body::pieces(pieces)
}

fn listing(root: &str) -> Response {
    Response::new(StatusCode::OK)
        .with_header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/xml"),
        )
        .with_body(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>false</IsTruncated>\
             <KeyCount>0</KeyCount></{root}>"
        ))
}

#[async_trait]
impl Store for NullStore {
    async fn call(&self, mut request: Request) -> Result<Response, Error> {
        while let Some(frame) = request.body.frame().await {
            frame?;
        }
        match &request.operation {
            Operation::GetObject(read) => self.read(read, zeros),
            Operation::HeadObject(read) => self.read(read, |_| Body::empty()),
            Operation::ListObjects(_) | Operation::ListObjectsV2(_) => {
                Ok(listing("ListBucketResult"))
            }
            Operation::PutObject(_) | Operation::UploadPart(_) => {
                let etag = HeaderValue::from_static(ETAG);
                Ok(Response::new(StatusCode::OK).with_header(header::ETAG, etag))
            }
            Operation::DeleteObject(_)
            | Operation::DeleteBucket(_)
            | Operation::AbortMultipartUpload(_) => Ok(Response::new(StatusCode::NO_CONTENT)),
            Operation::HeadBucket(_) | Operation::CreateBucket(_) => {
                Ok(Response::new(StatusCode::OK))
            }
            other if other.name().effect() == Effect::Read => Err(Error::refused(Code::NoSuchKey)),
            _ => Err(Error::refused(Code::NotImplemented)),
        }
    }
}
