//! Requests for tests, made as the edge makes them: decoded, authenticated, typed.
//!
//! ```text
//! let answer = put("bucket", "key").body("bytes").send(&store).await?;
//! let answer = get("bucket", "key").range("bytes=0-1").send(&store).await?;
//! let page = list_v2("bucket").query("delimiter", "/").send(&store).await?;
//! ```
//!
//! Arguments that are no bucket name, key, header or range panic: the test is wrong.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use forebay_s3::{
    bucket::BucketName,
    key::{ObjectKey, VersionId},
    operation::{
        CopyObject, Listing, ObjectId, Operation, OperationName, ReadObject, Target, Upload,
        UploadPart,
    },
    range::RangeHeader,
    uri,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

pub use super::answers::{Answer, elements};
use crate::{
    Body, Caller, Clock, Error, Identity, PayloadProof, Query, Request, RequestId, Response, Store,
};

/// A test gives up on a request after this time.
const DEADLINE: Duration = Duration::from_mins(1);

/// A request being made.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    operation: Operation,
    method: Method,
    headers: HeaderMap,
    query: String,
    body: Body,
    identity: Identity,
}

impl Builder {
    /// A request for `operation`, with no headers, query or body.
    pub fn new(method: Method, operation: Operation) -> Self {
        Self {
            operation,
            method,
            headers: HeaderMap::new(),
            query: String::new(),
            body: Body::empty(),
            identity: Identity::User("test".into()),
        }
    }

    /// Adds a header.
    ///
    /// # Panics
    /// When the name or the value can't be one.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::try_from(name).expect("a header name");
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a header value");
        self.headers.append(name, value);
        self
    }

    /// Adds a `Range` header.
    pub fn range(self, value: &str) -> Self {
        self.header("range", value)
    }

    /// Adds a parameter to the query; both are encoded here.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        let separator = if self.query.is_empty() { "" } else { "&" };
        let (name, value) = (uri::encode_query(name), uri::encode_query(value));
        let _ = write!(self.query, "{separator}{name}={value}");
        self
    }

    /// Sets the body, and `Content-Length` when its length is known.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        if let Some(length) = self.body.length() {
            self.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        self
    }

    /// Asks as nobody.
    pub fn anonymous(mut self) -> Self {
        self.identity = Identity::Anonymous;
        self
    }

    /// The request, with what its operation takes from headers and query filled in.
    ///
    /// # Panics
    /// When `versionId` or `partNumber` of the query is none.
    pub fn build(mut self) -> Request {
        let query = Query::new(self.query);
        if let Operation::GetObject(read) | Operation::HeadObject(read) = &mut self.operation {
            let range = self
                .headers
                .get(header::RANGE)
                .and_then(|value| value.to_str().ok());
            read.range = range.and_then(RangeHeader::parse);
            read.part_number = query
                .get("partNumber")
                .map(|text| text.parse().expect("a part number"));
        }
        if let Some(version) = query.get("versionId") {
            let version = VersionId::parse(&version).expect("a version id");
            set_version(&mut self.operation, version);
        }
        if let Operation::ListObjects(listing)
        | Operation::ListObjectsV2(listing)
        | Operation::ListObjectVersions(listing)
        | Operation::ListMultipartUploads(listing) = &mut self.operation
        {
            listing.prefix = query.get("prefix").unwrap_or_default().into_owned();
        }
        Request {
            operation: self.operation,
            method: self.method,
            headers: self.headers,
            query,
            body: self.body,
            payload_proof: PayloadProof::None,
            caller: Caller {
                identity: self.identity,
                request_id: RequestId(1),
                remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                deadline: Clock::system().now() + DEADLINE,
            },
        }
    }

    /// Sends the request.
    ///
    /// # Errors
    /// The store's own.
    pub async fn call<S: Store + ?Sized>(self, store: &S) -> Result<Response, Error> {
        store.call(self.build()).await
    }

    /// Sends the request and reads the answer to its end.
    ///
    /// # Errors
    /// The store's own, or the body's.
    pub async fn send<S: Store + ?Sized>(self, store: &S) -> Result<Answer, Error> {
        let response = self.call(store).await?;
        let cache = response.cache.map(|status| status.to_string());
        let (body, _) = response.body.collect(usize::MAX).await?;
        Ok(Answer {
            status: response.status,
            headers: response.headers,
            body,
            cache,
        })
    }

    /// Sends the request, reads the answer, and insists on its status.
    ///
    /// # Panics
    /// When the answer is an error or has another status.
    pub async fn expect<S: Store + ?Sized>(self, status: u16, store: &S) -> Answer {
        let what = format!("{:?} ?{}", self.operation, self.query);
        let answer = self
            .send(store)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text());
        answer
    }

    /// Sends the request and insists that it is refused: the S3 code of the refusal, whether the
    /// store refused it itself or passed on another's error document.
    ///
    /// # Panics
    /// When the request succeeds, or fails in another way.
    pub async fn refusal<S: Store + ?Sized>(self, store: &S) -> String {
        let what = format!("{:?} ?{}", self.operation, self.query);
        match self.send(store).await {
            Err(Error::Refused(refusal)) => refusal.code.as_str().to_owned(),
            Err(other) => panic!("{what}: {other}"),
            Ok(answer) => {
                let failed = answer.status.is_client_error() || answer.status.is_server_error();
                assert!(failed, "{what} was not refused: {}", answer.status);
                answer.element("Code")
            }
        }
    }
}

fn set_version(operation: &mut Operation, version: VersionId) {
    let (Operation::GetObject(ReadObject { object, .. })
    | Operation::HeadObject(ReadObject { object, .. })
    | Operation::GetObjectAttributes(object)
    | Operation::DeleteObject(object)
    | Operation::GetObjectTagging(object)
    | Operation::PutObjectTagging(object)
    | Operation::DeleteObjectTagging(object)) = operation
    else {
        return;
    };
    object.version = Some(version);
}

/// A bucket's name.
///
/// # Panics
/// When `name` is none.
pub fn bucket_name(name: &str) -> BucketName {
    BucketName::parse(name).expect("a bucket name")
}

/// An object's key.
///
/// # Panics
/// When `key` is none.
pub fn object_key(key: &str) -> ObjectKey {
    ObjectKey::parse(key).expect("an object key")
}

/// An object by bucket and key.
pub fn object(bucket: &str, key: &str) -> ObjectId {
    ObjectId {
        bucket: bucket_name(bucket),
        key: object_key(key),
        version: None,
    }
}

fn read_of(bucket: &str, key: &str) -> ReadObject {
    ReadObject {
        object: object(bucket, key),
        range: None,
        part_number: None,
    }
}

fn listing(bucket: &str) -> Listing {
    Listing {
        bucket: bucket_name(bucket),
        prefix: String::new(),
    }
}

fn upload_of(bucket: &str, key: &str, upload_id: &str) -> Upload {
    Upload {
        object: object(bucket, key),
        upload_id: upload_id.to_owned(),
    }
}

/// `ListBuckets`.
pub fn list_buckets() -> Builder {
    Builder::new(Method::GET, Operation::ListBuckets)
}

/// `CreateBucket`.
pub fn create_bucket(bucket: &str) -> Builder {
    Builder::new(Method::PUT, Operation::CreateBucket(bucket_name(bucket)))
}

/// `HeadBucket`.
pub fn head_bucket(bucket: &str) -> Builder {
    Builder::new(Method::HEAD, Operation::HeadBucket(bucket_name(bucket)))
}

/// `DeleteBucket`.
pub fn delete_bucket(bucket: &str) -> Builder {
    Builder::new(Method::DELETE, Operation::DeleteBucket(bucket_name(bucket)))
}

/// `GetObject`.
pub fn get(bucket: &str, key: &str) -> Builder {
    Builder::new(Method::GET, Operation::GetObject(read_of(bucket, key)))
}

/// `HeadObject`.
pub fn head(bucket: &str, key: &str) -> Builder {
    Builder::new(Method::HEAD, Operation::HeadObject(read_of(bucket, key)))
}

/// `PutObject`.
pub fn put(bucket: &str, key: &str) -> Builder {
    Builder::new(Method::PUT, Operation::PutObject(object(bucket, key)))
}

/// `DeleteObject`.
pub fn delete(bucket: &str, key: &str) -> Builder {
    Builder::new(Method::DELETE, Operation::DeleteObject(object(bucket, key)))
}

/// `CopyObject` from `source` to `target`, each a bucket and a key.
pub fn copy(source: (&str, &str), target: (&str, &str)) -> Builder {
    let copy = CopyObject {
        object: object(target.0, target.1),
        source: object(source.0, source.1),
    };
    Builder::new(Method::PUT, Operation::CopyObject(copy)).header(
        "x-amz-copy-source",
        format!("{}/{}", source.0, uri::encode_path(source.1)),
    )
}

/// `DeleteObjects` of these keys.
pub fn delete_many(bucket: &str, keys: &[&str]) -> Builder {
    let mut xml = String::from("<Delete>");
    for key in keys {
        let _ = write!(xml, "<Object><Key>{}</Key></Object>", escape(key));
    }
    xml.push_str("</Delete>");
    Builder::new(Method::POST, Operation::DeleteObjects(bucket_name(bucket)))
        .query("delete", "")
        .body(xml)
}

/// `text` for an XML document, control characters as numeric references.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => {
                let _ = write!(escaped, "&#x{:X};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// `ListObjects`, the first version.
pub fn list_v1(bucket: &str) -> Builder {
    Builder::new(Method::GET, Operation::ListObjects(listing(bucket)))
}

/// `ListObjectsV2`.
pub fn list_v2(bucket: &str) -> Builder {
    Builder::new(Method::GET, Operation::ListObjectsV2(listing(bucket))).query("list-type", "2")
}

/// `ListObjectVersions`.
pub fn list_versions(bucket: &str) -> Builder {
    Builder::new(Method::GET, Operation::ListObjectVersions(listing(bucket))).query("versions", "")
}

/// `GetObjectAttributes` of these attributes, such as `ETag,ObjectSize`.
pub fn attributes(bucket: &str, key: &str, names: &str) -> Builder {
    Builder::new(
        Method::GET,
        Operation::GetObjectAttributes(object(bucket, key)),
    )
    .query("attributes", "")
    .header("x-amz-object-attributes", names)
}

/// `CreateMultipartUpload`.
pub fn create_upload(bucket: &str, key: &str) -> Builder {
    Builder::new(
        Method::POST,
        Operation::CreateMultipartUpload(object(bucket, key)),
    )
    .query("uploads", "")
}

/// `UploadPart`.
pub fn upload_part(bucket: &str, key: &str, upload_id: &str, part_number: u16) -> Builder {
    let part = UploadPart {
        upload: upload_of(bucket, key, upload_id),
        part_number,
    };
    Builder::new(Method::PUT, Operation::UploadPart(part))
        .query("uploadId", upload_id)
        .query("partNumber", &part_number.to_string())
}

/// `UploadPartCopy` from `source`, a bucket and a key.
pub fn upload_part_copy(
    source: (&str, &str),
    target: (&str, &str),
    upload_id: &str,
    part_number: u16,
) -> Builder {
    let part = UploadPart {
        upload: upload_of(target.0, target.1, upload_id),
        part_number,
    };
    Builder::new(
        Method::PUT,
        Operation::UploadPartCopy(part, object(source.0, source.1)),
    )
    .query("uploadId", upload_id)
    .query("partNumber", &part_number.to_string())
    .header(
        "x-amz-copy-source",
        format!("{}/{}", source.0, uri::encode_path(source.1)),
    )
}

/// `CompleteMultipartUpload` of these parts: number and tag.
pub fn complete_upload(bucket: &str, key: &str, upload_id: &str, parts: &[(u16, &str)]) -> Builder {
    let mut xml = String::from("<CompleteMultipartUpload>");
    for (number, etag) in parts {
        let etag = escape(etag);
        let _ = write!(
            xml,
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        );
    }
    xml.push_str("</CompleteMultipartUpload>");
    let upload = upload_of(bucket, key, upload_id);
    Builder::new(Method::POST, Operation::CompleteMultipartUpload(upload))
        .query("uploadId", upload_id)
        .body(xml)
}

/// `AbortMultipartUpload`.
pub fn abort_upload(bucket: &str, key: &str, upload_id: &str) -> Builder {
    let upload = upload_of(bucket, key, upload_id);
    Builder::new(Method::DELETE, Operation::AbortMultipartUpload(upload))
        .query("uploadId", upload_id)
}

/// `ListParts`.
pub fn list_parts(bucket: &str, key: &str, upload_id: &str) -> Builder {
    let upload = upload_of(bucket, key, upload_id);
    Builder::new(Method::GET, Operation::ListParts(upload)).query("uploadId", upload_id)
}

/// `ListMultipartUploads`.
pub fn list_uploads(bucket: &str) -> Builder {
    Builder::new(
        Method::GET,
        Operation::ListMultipartUploads(listing(bucket)),
    )
    .query("uploads", "")
}

/// `GetObjectTagging`.
pub fn get_tags(bucket: &str, key: &str) -> Builder {
    Builder::new(
        Method::GET,
        Operation::GetObjectTagging(object(bucket, key)),
    )
    .query("tagging", "")
}

/// `PutObjectTagging` of these tags.
pub fn put_tags(bucket: &str, key: &str, tags: &[(&str, &str)]) -> Builder {
    let mut xml = String::from("<Tagging><TagSet>");
    for (name, value) in tags {
        let (name, value) = (escape(name), escape(value));
        let _ = write!(xml, "<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
    }
    xml.push_str("</TagSet></Tagging>");
    Builder::new(
        Method::PUT,
        Operation::PutObjectTagging(object(bucket, key)),
    )
    .query("tagging", "")
    .body(xml)
}

/// `DeleteObjectTagging`.
pub fn delete_tags(bucket: &str, key: &str) -> Builder {
    Builder::new(
        Method::DELETE,
        Operation::DeleteObjectTagging(object(bucket, key)),
    )
    .query("tagging", "")
}

/// Any other operation of the API.
pub fn other(method: Method, name: OperationName, target: Target) -> Builder {
    Builder::new(method, Operation::Other(name, target))
}
