//! Requests: `METHOD path?query`, a line with the host, headers.

use forebay_s3::bucket::BucketName;
use forebay_s3::classify::{Head, PART_NUMBER_MAX, classify};
use forebay_s3::key::KEY_BYTES_MAX;
use forebay_s3::operation::{Operation, OperationName};
use forebay_s3::policy::{Access, needs};
use forebay_s3::uri::{decode_path, encode_path};

use crate::input::{Input, Request};

/// What is named holds what its types promise, is what the path says, and needs something. The
/// same request with its path printed anew is the same operation.
pub fn check(data: &[u8]) {
    let Some(request) = Input(data).request() else {
        return;
    };
    let domains = ["example.com".to_owned(), "s3.example.com".to_owned()];
    let head = head_of(&request);
    let operation = match classify(&head, &domains) {
        Ok(operation) => operation,
        Err(refused) => {
            let status = refused.code.status();
            assert!(
                status.is_client_error() || status.as_u16() == 501,
                "{refused}"
            );
            return;
        }
    };
    check_fields(&operation);
    check_needs(&operation, &head);
    if operation.name() == OperationName::WriteGetObjectResponse {
        return;
    }
    if classify(&Head { host: "", ..head }, &[]).as_ref() == Ok(&operation) {
        check_path(&operation, request.path);
    }
    let path = match (operation.bucket(), operation.key()) {
        (Some(bucket), Some(key)) => format!("/{bucket}/{}", encode_path(key.as_str())),
        (Some(bucket), None) => format!("/{bucket}"),
        (None, _) => "/".to_owned(),
    };
    let printed = Head {
        host: "",
        path: &path,
        ..head
    };
    assert_eq!(classify(&printed, &domains), Ok(operation), "{path}");
}

fn head_of<'a>(request: &'a Request<'a>) -> Head<'a> {
    Head {
        method: &request.method,
        host: request.host,
        path: request.path,
        query: request.query.unwrap_or_default(),
        headers: &request.headers,
    }
}

fn check_fields(operation: &Operation) {
    if let Some(bucket) = operation.bucket() {
        assert_eq!(BucketName::parse(bucket.as_str()).as_ref(), Ok(bucket));
        assert!(!bucket.as_str().contains(['/', '\\', '\0', '%']));
    }
    if let Some(key) = operation.key() {
        assert!((1..=KEY_BYTES_MAX).contains(&key.as_str().len()));
        assert!(operation.bucket().is_some());
    }
    match operation {
        Operation::GetObject(read) | Operation::HeadObject(read) => {
            assert!(read.range.is_none() || read.part_number.is_none());
            assert!(
                read.part_number
                    .is_none_or(|number| (1..=PART_NUMBER_MAX).contains(&number))
            );
        }
        Operation::UploadPart(part) | Operation::UploadPartCopy(part, _) => {
            assert!((1..=PART_NUMBER_MAX).contains(&part.part_number));
            assert!(!part.upload.upload_id.is_empty());
        }
        _ => {}
    }
}

/// Everything but a preflight needs to be allowed, and on what it addresses.
fn check_needs(operation: &Operation, head: &Head<'_>) {
    match needs(operation, head) {
        Access::Free => assert_eq!(operation.name(), OperationName::Preflight),
        Access::NamedInBody => {
            let is_named = matches!(
                operation,
                Operation::DeleteObjects(_) | Operation::PostObject(_)
            );
            assert!(is_named, "{operation:?}");
        }
        Access::Needs(needs) => {
            let needs: Vec<_> = needs.into_iter().collect();
            let is_about = |need: &forebay_s3::policy::Need| {
                need.bucket.as_ref() == operation.bucket()
                    && (need.key.is_none() || need.key.as_ref() == operation.key())
            };
            assert!(needs.iter().any(is_about), "{operation:?} needs {needs:?}");
        }
    }
}

/// In path style, bucket and key are what the path decodes to, segment for segment.
fn check_path(operation: &Operation, path: &str) {
    let Some(path) = path.strip_prefix('/').filter(|path| !path.is_empty()) else {
        return assert!(operation.bucket().is_none());
    };
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let decoded = |text| decode_path(text).expect("it was read before").into_owned();
    assert_eq!(
        operation.bucket().map(ToString::to_string),
        Some(decoded(bucket))
    );
    let key = Some(decoded(key)).filter(|key| !key.is_empty());
    assert_eq!(operation.key().map(ToString::to_string), key);
}
