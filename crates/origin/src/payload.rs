//! Decides what vouches for a payload on its way to the origin, and how long it is there.
//!
//! | the client sent | the origin gets |
//! |---|---|
//! | nothing | the SHA-256 of nothing |
//! | a hash that it signed | that same hash, so that the origin verifies the client's own |
//! | a checksum in a trailer | `aws-chunked` with that same trailer |
//! | chunks that it signed | chunks that we sign, unless [`PayloadSigning::Unsigned`] is set |
//! | none of these, with an object or a part | as [`PayloadSigning`] says |
//! | none of these, with a document | `UNSIGNED-PAYLOAD`: S3 takes chunks of data only |
//!
//! Trailers go unsigned unless chunks are signed: the checksum is the client's, so a byte changed
//! on the way is found out either way, and over TLS no one is there to change both.
//!
//! `Content-Encoding: aws-chunked` is not sent: `x-amz-content-sha256` says that the payload is
//! coded, all services go by it, and some store a coding that they find there with the object.
//!
//! A length is always sent: S3 answers `MissingContentLength` to a payload without, and so do we.
//!
//! A pure decision: takes what is known of the request, returns a [`Plan`]. The bytes are
//! [`crate::upload`]'s. Sources: S3 API reference, "Signature Calculations for the Authorization
//! Header" and "Including Trailing Headers".

use std::num::NonZeroU64;

use forebay_s3::{
    checksum::Algorithm, chunked::encoded_bytes, code::Code, operation::OperationName,
    sigv4::PayloadMode,
};
use forebay_store::{Error, PayloadProof};
use http::{HeaderMap, HeaderName, Method, header};

use crate::settings::PayloadSigning;

const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// Chunk of an unsigned payload: its size costs no memory, since a chunk passes as it comes.
/// 1 MiB is what botocore sends; servers are known to refuse chunks above 16 MiB.
const UNSIGNED_CHUNK_BYTES: NonZeroU64 = NonZeroU64::new(1024 * 1024).expect("not zero");
/// Chunk of a signed payload, held until its signature is known. 64 KiB is what AWS's examples
/// and clients use; the least that S3 allows is 8 KiB.
const SIGNED_CHUNK_BYTES: NonZeroU64 = NonZeroU64::new(64 * 1024).expect("not zero");

/// Whether the way to the origin is safe from changes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// TLS, or this machine.
    Safe,
    /// A network without TLS.
    Open,
}

/// What is known of a request's payload.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub operation: OperationName,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    /// Length that the body itself knows.
    pub body_bytes: Option<u64>,
    pub proof: PayloadProof,
}

/// How a payload is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What the signature says about it.
    pub mode: PayloadMode,
    /// Its length before any coding.
    pub payload_bytes: u64,
    /// Its length on the wire; `None` for a method that has none, such as GET.
    pub sent_bytes: Option<u64>,
    /// Size of a chunk where the mode is chunked.
    pub chunk_bytes: NonZeroU64,
    /// Trailers that must come, all of them checksums.
    pub trailers: Vec<Algorithm>,
}

/// Decides how a payload is sent.
///
/// # Errors
/// `MissingContentLength` for a payload of unknown length; `InvalidRequest` for a trailer that is
/// no checksum.
pub(crate) fn plan(facts: &Facts<'_>, signing: PayloadSigning, way: Way) -> Result<Plan, Error> {
    let trailers = trailers(facts.headers)?;
    let known_bytes = facts.body_bytes.or_else(|| declared_bytes(facts.headers));
    let Some(payload_bytes) = known_bytes else {
        return Err(Error::refused(Code::MissingContentLength));
    };
    let takes_chunks = matches!(
        facts.operation,
        OperationName::PutObject | OperationName::UploadPart
    );
    let signs_chunks = takes_chunks
        && match (signing, way) {
            (PayloadSigning::Chunks, _) | (PayloadSigning::Auto, Way::Open) => true,
            (PayloadSigning::Auto, Way::Safe) => facts.proof == PayloadProof::Chunks,
            (PayloadSigning::Unsigned, _) => false,
        };
    let mode = match (facts.proof, trailers.is_empty(), signs_chunks) {
        (PayloadProof::Sha256(sha256), true, _) => PayloadMode::Sha256(sha256),
        (_, false, true) => PayloadMode::StreamingSignedTrailer,
        (_, false, false) => PayloadMode::StreamingUnsignedTrailer,
        (_, true, _) if payload_bytes == 0 => PayloadMode::empty(),
        (_, true, true) => PayloadMode::StreamingSigned,
        (_, true, false) => PayloadMode::Unsigned,
    };
    let chunk_bytes = match mode {
        PayloadMode::StreamingSigned | PayloadMode::StreamingSignedTrailer => SIGNED_CHUNK_BYTES,
        PayloadMode::StreamingUnsignedTrailer | PayloadMode::Sha256(_) | PayloadMode::Unsigned => {
            UNSIGNED_CHUNK_BYTES
        }
    };
    let lengths: Vec<(&str, usize)> = trailers
        .iter()
        .map(|algorithm| (algorithm.header(), algorithm.base64_bytes()))
        .collect();
    let sent_bytes = encoded_bytes(mode, payload_bytes, chunk_bytes, &lengths);
    let has_length = sent_bytes > 0 || matches!(*facts.method, Method::PUT | Method::POST);
    Ok(Plan {
        mode,
        payload_bytes,
        sent_bytes: has_length.then_some(sent_bytes),
        chunk_bytes,
        trailers,
    })
}

impl Plan {
    /// Of a request that never has a payload.
    pub(crate) fn empty() -> Self {
        Self {
            mode: PayloadMode::empty(),
            payload_bytes: 0,
            sent_bytes: None,
            chunk_bytes: UNSIGNED_CHUNK_BYTES,
            trailers: Vec::new(),
        }
    }

    /// Whether there are bytes to send.
    pub(crate) fn has_payload(&self) -> bool {
        self.sent_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Sets the headers of framing and length, which the signature covers.
    pub(crate) fn put_headers(&self, headers: &mut HeaderMap) {
        if let Some(bytes) = self.sent_bytes {
            headers.insert(header::CONTENT_LENGTH, bytes.into());
        }
        if self.mode.is_chunked() {
            headers.insert(DECODED_LENGTH, self.payload_bytes.into());
        }
    }
}

fn trailers(headers: &HeaderMap) -> Result<Vec<Algorithm>, Error> {
    let mut found = Vec::new();
    for value in headers.get_all(TRAILER) {
        for name in value.to_str().unwrap_or("?").split(',') {
            let name = name.trim().to_ascii_lowercase();
            let algorithm = Algorithm::from_header(&name).ok_or_else(|| {
                Error::refused_because(
                    Code::InvalidRequest,
                    "The value specified in the x-amz-trailer header is not supported",
                )
            })?;
            if !found.contains(&algorithm) {
                found.push(algorithm);
            }
        }
    }
    Ok(found)
}

fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn planned(
        (method, bytes, proof): (Method, Option<u64>, PayloadProof),
        trailer: Option<&'static str>,
        (signing, way): (PayloadSigning, Way),
    ) -> Result<Plan, Error> {
        let mut headers = HeaderMap::new();
        if let Some(trailer) = trailer {
            headers.insert(TRAILER, HeaderValue::from_static(trailer));
        }
        let facts = Facts {
            operation: OperationName::PutObject,
            method: &method,
            headers: &headers,
            body_bytes: bytes,
            proof,
        };
        plan(&facts, signing, way)
    }

    #[test]
    fn what_the_client_vouched_for_is_kept_and_the_rest_is_as_the_setting_says() {
        use PayloadMode as M;
        use PayloadSigning::{Auto, Chunks, Unsigned};
        let (hash, no) = ([7; 32], PayloadProof::None);
        let hashed = PayloadProof::Sha256(hash);
        let crc = Some("x-amz-checksum-crc32");
        let rows = [
            (hashed, None, (Auto, Way::Safe), M::Sha256(hash)),
            (hashed, None, (Chunks, Way::Open), M::Sha256(hash)),
            (no, crc, (Auto, Way::Safe), M::StreamingUnsignedTrailer),
            (no, crc, (Unsigned, Way::Open), M::StreamingUnsignedTrailer),
            (no, crc, (Auto, Way::Open), M::StreamingSignedTrailer),
            (no, crc, (Chunks, Way::Safe), M::StreamingSignedTrailer),
            (no, None, (Auto, Way::Safe), M::Unsigned),
            (no, None, (Auto, Way::Open), M::StreamingSigned),
            (no, None, (Unsigned, Way::Open), M::Unsigned),
            (no, None, (Chunks, Way::Safe), M::StreamingSigned),
            (
                PayloadProof::Chunks,
                None,
                (Auto, Way::Safe),
                M::StreamingSigned,
            ),
            (
                PayloadProof::Chunks,
                crc,
                (Auto, Way::Safe),
                M::StreamingSignedTrailer,
            ),
            (
                PayloadProof::Chunks,
                None,
                (Unsigned, Way::Safe),
                M::Unsigned,
            ),
        ];
        for (proof, trailer, setting, mode) in rows {
            let plan = planned((Method::PUT, Some(10), proof), trailer, setting).unwrap();
            assert_eq!(plan.mode, mode, "{trailer:?} {setting:?}");
            assert_eq!(plan.mode.is_chunked(), plan.sent_bytes != Some(10));
        }
    }

    #[test]
    fn a_request_without_payload_is_signed_as_empty_in_every_setting() {
        let open = (PayloadSigning::Chunks, Way::Open);
        for (method, sent) in [
            (Method::GET, None),
            (Method::HEAD, None),
            (Method::DELETE, None),
            (Method::PUT, Some(0)),
            (Method::POST, Some(0)),
        ] {
            let plan = planned((method, Some(0), PayloadProof::None), None, open).unwrap();
            assert_eq!((plan.mode, plan.sent_bytes), (PayloadMode::empty(), sent));
        }
    }

    #[test]
    fn an_empty_payload_keeps_its_trailer() {
        let safe = (PayloadSigning::Auto, Way::Safe);
        let crc = Some("x-amz-checksum-crc64nvme, x-amz-checksum-sha1");
        let plan = planned((Method::PUT, Some(0), PayloadProof::None), crc, safe).unwrap();
        assert_eq!(plan.trailers, [Algorithm::Crc64Nvme, Algorithm::Sha1]);
        let text = "0\r\nx-amz-checksum-crc64nvme:xxxxxxxxxxxx\r\n\
                    x-amz-checksum-sha1:xxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n";
        assert_eq!(plan.sent_bytes, Some(text.len() as u64));
        let mut headers = HeaderMap::new();
        plan.put_headers(&mut headers);
        assert_eq!(headers[DECODED_LENGTH], "0");
    }

    #[test]
    fn unknown_lengths_and_trailers_are_refused() {
        let safe = (PayloadSigning::Auto, Way::Safe);
        let code = |result: Result<Plan, Error>| match result {
            Err(Error::Refused(refusal)) => refusal.code,
            other => panic!("{other:?}"),
        };
        let unknown = planned((Method::PUT, None, PayloadProof::None), None, safe);
        assert_eq!(code(unknown), Code::MissingContentLength);
        let foreign = planned(
            (Method::PUT, Some(1), PayloadProof::None),
            Some("x-foreign"),
            safe,
        );
        assert_eq!(code(foreign), Code::InvalidRequest);
    }

    #[test]
    fn a_document_is_never_cut_into_chunks() {
        let headers = HeaderMap::new();
        let facts = Facts {
            operation: OperationName::CompleteMultipartUpload,
            method: &Method::POST,
            headers: &headers,
            body_bytes: Some(10),
            proof: PayloadProof::None,
        };
        let plan = plan(&facts, PayloadSigning::Chunks, Way::Open).unwrap();
        assert_eq!(plan.mode, PayloadMode::Unsigned);
    }

    #[test]
    fn a_declared_length_stands_in_for_a_body_that_knows_none() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("12"));
        let facts = Facts {
            operation: OperationName::PutObject,
            method: &Method::PUT,
            headers: &headers,
            body_bytes: None,
            proof: PayloadProof::None,
        };
        let plan = plan(&facts, PayloadSigning::Unsigned, Way::Safe).unwrap();
        assert_eq!((plan.payload_bytes, plan.sent_bytes), (12, Some(12)));
    }
}
