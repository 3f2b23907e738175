//! Names the operation of a request from its method, host, path, query and headers.
//!
//! The edge calls [`classify`] once a request, before authorization; everything behind it sees an
//! [`Operation`] and never looks at a path again. A GET of an object without a query costs two
//! allocations: bucket and key.
//!
//! What is not in the table of operations still passes, as [`OperationName::UnknownRead`] or
//! [`OperationName::UnknownWrite`], so that an origin may know it. What could be read in two ways
//! is refused, because the gateway would judge one of them and the origin do the other: a known
//! parameter given twice, two sub-resources at once.
//!
//! Here too: the two headers that name a second object, `x-amz-copy-source` and
//! `x-amz-rename-source` ([`parse_source`]).
//!
//! Sources: Amazon S3 API Reference, each action's request syntax; Amazon S3 User Guide, "Virtual
//! hosting of general purpose buckets". Stricter than S3: a parameter given twice, and a copy
//! source that is the ARN of an access point.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};

use crate::{
    bucket::BucketName,
    code::Code,
    key::{InvalidKey, ObjectKey, VersionId},
    operation::{
        CopyObject, Listing, ObjectId, Operation, OperationName, ROWS, ReadObject, Row, Scope, Set,
        Target, Upload, UploadPart, Verb,
    },
    range::RangeHeader,
    uri,
};

mod query;
mod target;

use query::{Choice, Parameters};

/// Parts of a multipart upload are numbered `1..=10000`.
pub const PART_NUMBER_MAX: u16 = 10_000;

/// The object that `CopyObject` and `UploadPartCopy` read.
pub const COPY_SOURCE: &str = "x-amz-copy-source";
/// The object that `RenameObject` moves.
pub const RENAME_SOURCE: &str = "x-amz-rename-source";

/// What of a request's head tells its operation.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Method.
    pub method: &'a Method,
    /// `Host` or `:authority`, with its port if it has one; empty when there is none.
    pub host: &'a str,
    /// Path as sent, still encoded.
    pub path: &'a str,
    /// Query as sent, still encoded, without its `?`; empty when there is none.
    pub query: &'a str,
    /// Headers.
    pub headers: &'a HeaderMap,
}

/// Why a request is no operation of S3.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ClassifyError {
    /// S3's code for it.
    pub code: Code,
    /// What to tell the client.
    pub message: Cow<'static, str>,
}

impl ClassifyError {
    fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }
}

impl From<Code> for ClassifyError {
    fn from(code: Code) -> Self {
        Self::new(code, code.message())
    }
}

/// Names the operation of a request.
///
/// `domains` are the names under which a bucket may be part of the host, without ports; a host
/// that is none of them, nor below one, is ignored.
///
/// # Errors
/// [`ClassifyError`] with the code that S3 gives such a request.
pub fn classify(head: &Head<'_>, domains: &[String]) -> Result<Operation, ClassifyError> {
    if *head.method == Method::POST
        && head.path == "/WriteGetObjectResponse"
        && head.headers.contains_key("x-amz-request-route")
    {
        return Ok(Operation::Other(
            OperationName::WriteGetObjectResponse,
            Target::Service,
        ));
    }
    let target = target::resolve(head, domains)?;
    let parameters = Parameters::read(head.query)?;
    let verb = verb(head.method)?;
    if verb == Verb::Options {
        return Ok(Operation::Other(OperationName::Preflight, target));
    }
    let unknown = match verb {
        Verb::Get | Verb::Head => OperationName::UnknownRead,
        Verb::Put | Verb::Post | Verb::Delete | Verb::Options | Verb::Any => {
            OperationName::UnknownWrite
        }
    };
    let name = match parameters.choice {
        Choice::Plain => plain(verb, &target, head.headers)?,
        Choice::Unknown => unknown,
        Choice::SubResource(bit) => {
            find_row(verb, scope(&target), bit, parameters.seen).map_or(unknown, |row| row.name)
        }
    };
    Request { head, parameters }.operation(name, target)
}

fn verb(method: &Method) -> Result<Verb, ClassifyError> {
    match *method {
        Method::GET => Ok(Verb::Get),
        Method::HEAD => Ok(Verb::Head),
        Method::PUT => Ok(Verb::Put),
        Method::POST => Ok(Verb::Post),
        Method::DELETE => Ok(Verb::Delete),
        Method::OPTIONS => Ok(Verb::Options),
        _ => Err(Code::MethodNotAllowed.into()),
    }
}

fn scope(target: &Target) -> Scope {
    match target {
        Target::Service => Scope::Service,
        Target::Bucket(_) => Scope::Bucket,
        Target::Object(..) => Scope::Object,
    }
}

/// The operation of a request that names no sub-resource.
fn plain(verb: Verb, target: &Target, headers: &HeaderMap) -> Result<OperationName, ClassifyError> {
    use OperationName as N;
    Ok(match (verb, scope(target)) {
        (Verb::Get, Scope::Object) => N::GetObject,
        (Verb::Head, Scope::Object) => N::HeadObject,
        (Verb::Put, Scope::Object) if headers.contains_key(COPY_SOURCE) => N::CopyObject,
        (Verb::Put, Scope::Object) => N::PutObject,
        (Verb::Delete, Scope::Object) => N::DeleteObject,
        (Verb::Get, Scope::Bucket) => N::ListObjects,
        (Verb::Head, Scope::Bucket) => N::HeadBucket,
        (Verb::Put, Scope::Bucket) => N::CreateBucket,
        (Verb::Delete, Scope::Bucket) => N::DeleteBucket,
        (Verb::Post, Scope::Bucket) if is_form(headers) => N::PostObject,
        (Verb::Post, Scope::Bucket) => {
            return Err(ClassifyError::new(
                Code::PreconditionFailed,
                "Bucket POST must be of the enclosure-type multipart/form-data",
            ));
        }
        (Verb::Get, Scope::Service) => N::ListBuckets,
        _ => return Err(Code::MethodNotAllowed.into()),
    })
}

fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.as_bytes().get(..FORM.len()))
        .is_some_and(|media_type| media_type.eq_ignore_ascii_case(FORM))
}

/// The row that asks for most of what the query has, among those about this sub-resource.
fn find_row(verb: Verb, scope: Scope, sub_resource: Set, seen: Set) -> Option<&'static Row> {
    let mut best: Option<&Row> = None;
    for row in ROWS {
        let fits = row.verb == verb
            && row.scope == scope
            && row.selectors & sub_resource != 0
            && row.selectors & !seen == 0;
        let asks = row.selectors.count_ones();
        if fits && best.is_none_or(|best| best.selectors.count_ones() < asks) {
            best = Some(row);
        }
    }
    best
}

/// A request whose operation has been named, and whose fields remain to be read.
struct Request<'a> {
    head: &'a Head<'a>,
    parameters: Parameters<'a>,
}

impl Request<'_> {
    /// Fills the fields that `name` has.
    fn operation(self, name: OperationName, target: Target) -> Result<Operation, ClassifyError> {
        match target {
            Target::Service if name == OperationName::ListBuckets => Ok(Operation::ListBuckets),
            Target::Service => Ok(Operation::Other(name, Target::Service)),
            Target::Bucket(bucket) => self.of_bucket(name, bucket),
            Target::Object(bucket, key) => self.of_object(name, bucket, key),
        }
    }

    fn of_bucket(
        self,
        name: OperationName,
        bucket: BucketName,
    ) -> Result<Operation, ClassifyError> {
        use OperationName as N;
        Ok(match name {
            N::HeadBucket => Operation::HeadBucket(bucket),
            N::CreateBucket => Operation::CreateBucket(bucket),
            N::DeleteBucket => Operation::DeleteBucket(bucket),
            N::PostObject => Operation::PostObject(bucket),
            N::DeleteObjects => Operation::DeleteObjects(bucket),
            N::ListObjects => Operation::ListObjects(self.listing(bucket)),
            N::ListObjectVersions => Operation::ListObjectVersions(self.listing(bucket)),
            N::ListMultipartUploads => Operation::ListMultipartUploads(self.listing(bucket)),
            N::ListObjectsV2 => match self.parameters.list_type.as_deref() {
                Some("2") => Operation::ListObjectsV2(self.listing(bucket)),
                Some("1") => Operation::ListObjects(self.listing(bucket)),
                _ => {
                    return Err(ClassifyError::argument(
                        "Invalid List Type specified in Request",
                    ));
                }
            },
            name => Operation::Other(name, Target::Bucket(bucket)),
        })
    }

    fn of_object(
        self,
        name: OperationName,
        bucket: BucketName,
        key: ObjectKey,
    ) -> Result<Operation, ClassifyError> {
        use OperationName as N;
        Ok(match name {
            N::GetObject => Operation::GetObject(self.read(bucket, key)?),
            N::HeadObject => Operation::HeadObject(self.read(bucket, key)?),
            N::GetObjectAttributes => Operation::GetObjectAttributes(self.any(bucket, key)?),
            N::DeleteObject => Operation::DeleteObject(self.any(bucket, key)?),
            N::GetObjectTagging => Operation::GetObjectTagging(self.any(bucket, key)?),
            N::PutObjectTagging => Operation::PutObjectTagging(self.any(bucket, key)?),
            N::DeleteObjectTagging => Operation::DeleteObjectTagging(self.any(bucket, key)?),
            N::PutObject if self.parameters.part_number.is_some() => {
                return Err(ClassifyError::argument(
                    "Part number given without an upload id",
                ));
            }
            N::PutObject => Operation::PutObject(self.current(bucket, key)?),
            N::CopyObject => {
                let source = self.copied()?;
                Operation::CopyObject(CopyObject {
                    object: self.current(bucket, key)?,
                    source,
                })
            }
            N::CreateMultipartUpload => {
                Operation::CreateMultipartUpload(self.current(bucket, key)?)
            }
            N::UploadPart => match copy_source(self.head.headers)? {
                Some(source) => Operation::UploadPartCopy(self.part(bucket, key)?, source),
                None => Operation::UploadPart(self.part(bucket, key)?),
            },
            N::CompleteMultipartUpload => {
                Operation::CompleteMultipartUpload(self.upload(bucket, key)?)
            }
            N::AbortMultipartUpload => Operation::AbortMultipartUpload(self.upload(bucket, key)?),
            N::ListParts => Operation::ListParts(self.upload(bucket, key)?),
            N::RenameObject => {
                // Read here to refuse a bad one; authorization reads it for its meaning.
                rename_source(self.head.headers, &bucket)?;
                Operation::Other(name, Target::Object(bucket, key))
            }
            N::UnknownWrite if self.parameters.upload_id.is_some() => {
                return Err(ClassifyError::argument("Missing part number of an upload"));
            }
            N::UnknownWrite => {
                // As for a rename.
                copy_source(self.head.headers)?;
                Operation::Other(name, Target::Object(bucket, key))
            }
            name => Operation::Other(name, Target::Object(bucket, key)),
        })
    }

    fn listing(self, bucket: BucketName) -> Listing {
        let prefix = self.parameters.prefix.unwrap_or_default().into_owned();
        Listing { bucket, prefix }
    }

    /// The object, in the version that the query may name.
    fn any(&self, bucket: BucketName, key: ObjectKey) -> Result<ObjectId, ClassifyError> {
        let version = self
            .parameters
            .version_id
            .as_deref()
            .map(parse_version)
            .transpose()?;
        Ok(ObjectId {
            bucket,
            key,
            version,
        })
    }

    /// The object, where naming a version makes no sense.
    fn current(&self, bucket: BucketName, key: ObjectKey) -> Result<ObjectId, ClassifyError> {
        match self.parameters.version_id {
            None => Ok(ObjectId {
                bucket,
                key,
                version: None,
            }),
            Some(_) => Err(ClassifyError::argument(
                "This operation does not accept a version-id.",
            )),
        }
    }

    fn read(&self, bucket: BucketName, key: ObjectKey) -> Result<ReadObject, ClassifyError> {
        let mut ranges = self.head.headers.get_all(header::RANGE).iter();
        let range = match (ranges.next(), ranges.next()) {
            (Some(range), None) => range.to_str().ok().and_then(RangeHeader::parse),
            _ => None,
        };
        let part_number = self
            .parameters
            .part_number
            .as_deref()
            .map(parse_part_number)
            .transpose()?;
        if range.is_some() && part_number.is_some() {
            return Err(ClassifyError::new(
                Code::InvalidRequest,
                "Cannot specify both Range header and partNumber query parameter",
            ));
        }
        Ok(ReadObject {
            object: self.any(bucket, key)?,
            range,
            part_number,
        })
    }

    fn upload(&self, bucket: BucketName, key: ObjectKey) -> Result<Upload, ClassifyError> {
        let upload_id = self.parameters.upload_id.as_deref().unwrap_or_default();
        if upload_id.is_empty() {
            return Err(Code::NoSuchUpload.into());
        }
        Ok(Upload {
            object: self.current(bucket, key)?,
            upload_id: upload_id.to_owned(),
        })
    }

    fn part(&self, bucket: BucketName, key: ObjectKey) -> Result<UploadPart, ClassifyError> {
        let part_number =
            parse_part_number(self.parameters.part_number.as_deref().unwrap_or_default())?;
        Ok(UploadPart {
            upload: self.upload(bucket, key)?,
            part_number,
        })
    }

    fn copied(&self) -> Result<ObjectId, ClassifyError> {
        source_header(self.head.headers, COPY_SOURCE)
    }
}

fn parse_version(id: &str) -> Result<VersionId, ClassifyError> {
    VersionId::parse(id).map_err(|_| {
        ClassifyError::argument(if id.is_empty() {
            "Version id cannot be the empty string"
        } else {
            "Invalid version id specified"
        })
    })
}

fn parse_part_number(text: &str) -> Result<u16, ClassifyError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number @ 1..=PART_NUMBER_MAX) if digits => Ok(number),
        _ => Err(ClassifyError::argument(
            "Part number must be an integer between 1 and 10000, inclusive",
        )),
    }
}

fn parse_bucket(name: &str) -> Result<BucketName, ClassifyError> {
    BucketName::parse(name).map_err(|_| Code::InvalidBucketName.into())
}

fn source_header(headers: &HeaderMap, name: &str) -> Result<ObjectId, ClassifyError> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ClassifyError::argument(format!(
            "Exactly one {name} header is expected"
        )));
    };
    let text = value
        .to_str()
        .map_err(|_| ClassifyError::from(Code::InvalidURI))?;
    parse_source(text)
}

/// Reads `x-amz-copy-source`, if the request has one.
///
/// # Errors
/// [`ClassifyError`] when it has two, or one that [`parse_source`] does not take.
pub fn copy_source(headers: &HeaderMap) -> Result<Option<ObjectId>, ClassifyError> {
    if headers.contains_key(COPY_SOURCE) {
        source_header(headers, COPY_SOURCE).map(Some)
    } else {
        Ok(None)
    }
}

/// Reads `x-amz-rename-source`: `bucket/key` of the bucket itself.
///
/// # Errors
/// [`ClassifyError`] when there is not exactly one, or it names no object of `bucket`.
pub fn rename_source(headers: &HeaderMap, bucket: &BucketName) -> Result<ObjectKey, ClassifyError> {
    let source = source_header(headers, RENAME_SOURCE)?;
    if source.bucket != *bucket || source.version.is_some() {
        return Err(ClassifyError::argument("A rename stays within its bucket"));
    }
    Ok(source.key)
}

/// Reads the value of `x-amz-copy-source`: `bucket/key` or `/bucket/key`, percent-encoded, with
/// or without `?versionId=ID`. A `+` is itself, as in any path.
///
/// # Errors
/// [`ClassifyError`] when it names no object, or names one by the ARN of an access point: no
/// policy here could say who may read that.
pub fn parse_source(text: &str) -> Result<ObjectId, ClassifyError> {
    let (path, version) = match text.split_once("?versionId=") {
        Some((path, version)) => (path, Some(version)),
        None => (text, None),
    };
    let path = uri::decode_path(path).map_err(|_| ClassifyError::from(Code::InvalidURI))?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    if path.starts_with("arn:") {
        return Err(ClassifyError::new(
            Code::NotImplemented,
            "A copy source must name its bucket; access point ARNs are not supported",
        ));
    }
    let Some((bucket, key)) = path.split_once('/').filter(|(_, key)| !key.is_empty()) else {
        return Err(ClassifyError::argument(
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
        ));
    };
    let version = match version {
        Some(id) => {
            let id = uri::decode_path(id).map_err(|_| ClassifyError::from(Code::InvalidURI))?;
            Some(parse_version(&id)?)
        }
        None => None,
    };
    Ok(ObjectId {
        bucket: parse_bucket(bucket)?,
        key: parse_key(key)?,
        version,
    })
}

fn parse_key(key: &str) -> Result<ObjectKey, ClassifyError> {
    ObjectKey::parse(key).map_err(|fault| match fault {
        InvalidKey::Empty => ClassifyError::from(Code::InvalidURI),
        InvalidKey::TooLong { .. } => ClassifyError::from(Code::KeyTooLongError),
    })
}

#[cfg(test)]
mod tests;
