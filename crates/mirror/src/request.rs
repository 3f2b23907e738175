//! Requests that are sent to more than one member.

use forebay_s3::{
    code::Code,
    operation::{ObjectId, Operation},
    uri,
};
use forebay_store::{Body, Caller, Error, PayloadProof, Query, Request};
use http::{HeaderMap, HeaderName, Method};

/// All of a request but its body, to be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) operation: Operation,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) payload_proof: PayloadProof,
    pub(crate) caller: Caller,
}

impl Head {
    /// A request, taken apart.
    pub(crate) fn split(request: Request) -> (Self, Body) {
        let Request {
            operation,
            method,
            headers,
            query,
            body,
            payload_proof,
            caller,
        } = request;
        let head = Self {
            operation,
            method,
            headers,
            query,
            payload_proof,
            caller,
        };
        (head, body)
    }

    /// The request with a body.
    pub(crate) fn with(&self, body: Body) -> Request {
        let Self {
            operation,
            method,
            headers,
            query,
            payload_proof,
            caller,
        } = self.clone();
        Request {
            operation,
            method,
            headers,
            query,
            body,
            payload_proof,
            caller,
        }
    }

    /// The same about an upload, for a member that knows it by another id.
    pub(crate) fn for_upload(&self, id: &str) -> Self {
        let mut head = self.clone();
        match &mut head.operation {
            Operation::UploadPart(part) | Operation::UploadPartCopy(part, _) => {
                id.clone_into(&mut part.upload.upload_id);
            }
            Operation::CompleteMultipartUpload(upload)
            | Operation::AbortMultipartUpload(upload)
            | Operation::ListParts(upload) => id.clone_into(&mut upload.upload_id),
            // No other operation is about an upload.
            _ => {}
        }
        let kept = self.query.as_str().split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            !pair.is_empty() && name != "uploadId"
        });
        let mut query = kept.collect::<Vec<_>>().join("&");
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str("uploadId=");
        query.push_str(&uri::encode_query(id));
        head.query = Query::new(query);
        head
    }
}

/// Makes headers of the checksums in trailers.
pub(crate) fn take_checksums(headers: &mut HeaderMap, trailers: Option<HeaderMap>) {
    let Some(trailers) = trailers else { return };
    headers.remove(HeaderName::from_static("x-amz-trailer"));
    for (name, value) in &trailers {
        if name.as_str().starts_with("x-amz-checksum-") {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// Refuses a write that names a version: each member names its own.
pub(crate) fn check_write_version(object: &ObjectId) -> Result<(), Error> {
    if names_version(object) {
        return Err(Error::refused_because(
            Code::NotImplemented,
            "A mirror does not keep versions, as independent stores name them differently.",
        ));
    }
    Ok(())
}

/// Answers a read that names a version as a store does that keeps none.
pub(crate) fn check_read_version(object: &ObjectId) -> Result<(), Error> {
    if names_version(object) {
        return Err(Error::refused(Code::NoSuchVersion));
    }
    Ok(())
}

fn names_version(object: &ObjectId) -> bool {
    let version = object.version.as_ref();
    version.is_some_and(|version| version.as_str() != "null")
}
