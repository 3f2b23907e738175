//! `DeleteObjects`: the body names the keys, so it is read here, each key is asked for, and the
//! same bytes go on.
//!
//! A key that is denied refuses the whole request, so that a denied key is never deleted. S3
//! deletes the others and lists the denied ones; docs/semantics.md says so.

use forebay_s3::{
    bucket::BucketName,
    xml::{DOCUMENT_BYTES_MAX, delete_keys},
};
use forebay_store::{Body, Error};
use http::request::Parts;

use super::{authenticate::Proof, authorize, upload};
use crate::server::Connection;

/// Reads the body, decides its keys, and gives a body of the same bytes.
pub(super) async fn authorized(
    connection: &Connection,
    head: &Parts,
    proof: &Proof,
    bucket: &BucketName,
    body: Body,
) -> Result<Body, Error> {
    let budget = &connection.worker.shared.budget;
    let room = budget
        .reserve(body.length().unwrap_or(DOCUMENT_BYTES_MAX as u64))
        .await?;
    let (bytes, trailers) = body.collect(DOCUMENT_BYTES_MAX).await?;
    let entries = delete_keys(&bytes)
        .map_err(|error| Error::refused_because(error.code(), error.to_string()))?;
    authorize::deletes(connection, head, proof, bucket, &entries)?;
    Ok(upload::replay(bytes, trailers).holding(room))
}
