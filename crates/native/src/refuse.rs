//! The refusals that stores give often, with the details that S3 adds to each.

use forebay_s3::{bucket::BucketName, code::Code, key::ObjectKey};
use forebay_store::Error;

fn with_detail(code: Code, name: &'static str, value: impl Into<String>) -> Error {
    let mut error = Error::refused(code);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push((name, value.into()));
    }
    error
}

/// `NoSuchBucket`.
pub fn no_such_bucket(bucket: &BucketName) -> Error {
    with_detail(Code::NoSuchBucket, "BucketName", bucket.as_str())
}

/// `NoSuchKey`.
pub fn no_such_key(key: &ObjectKey) -> Error {
    with_detail(Code::NoSuchKey, "Key", key.as_str())
}

/// `NoSuchUpload`.
pub fn no_such_upload(upload_id: &str) -> Error {
    with_detail(Code::NoSuchUpload, "UploadId", upload_id)
}

/// `BucketNotEmpty`.
pub fn bucket_not_empty(bucket: &BucketName) -> Error {
    with_detail(Code::BucketNotEmpty, "BucketName", bucket.as_str())
}

/// `BucketAlreadyOwnedByYou`.
pub fn bucket_exists(bucket: &BucketName) -> Error {
    with_detail(Code::BucketAlreadyOwnedByYou, "BucketName", bucket.as_str())
}

/// `PreconditionFailed`, naming the header that did not hold.
pub fn precondition_failed(header: &'static str) -> Error {
    with_detail(Code::PreconditionFailed, "Condition", header)
}

/// `InvalidArgument` about a parameter or header.
pub fn invalid_argument(name: &'static str, value: &str, message: &'static str) -> Error {
    let mut error = Error::refused_because(Code::InvalidArgument, message);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push(("ArgumentName", name.to_owned()));
        refusal.details.push(("ArgumentValue", value.to_owned()));
    }
    error
}

/// `InvalidRequest` with a message of its own.
pub fn invalid_request(message: &'static str) -> Error {
    Error::refused_because(Code::InvalidRequest, message)
}
