//! What a request needs to be allowed: mostly one action on one resource, sometimes more.
//!
//! Source: Amazon S3 API Reference, the Permissions section of each operation's page.

use http::HeaderMap;

use super::Need;
use crate::{
    bucket::BucketName,
    classify::{self, Head},
    key::VersionId,
    operation::{Action, Addressed, ObjectId, Operation, OperationName, Target},
    uri,
    xml::DeleteEntry,
};

/// The needs of one request, all of which must be allowed: seven at most, of a PUT of an unknown
/// sub-resource with a copy source and each header that asks for one.
#[derive(Debug, Default)]
pub struct Needs {
    /// Most requests need one thing, which costs no allocation.
    first: Option<Need>,
    rest: Vec<Need>,
}

impl Needs {
    /// The needs, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Need> {
        self.first.iter().chain(&self.rest)
    }

    fn push(&mut self, need: Need) {
        if self.first.is_none() {
            self.first = Some(need);
        } else {
            self.rest.push(need);
        }
    }

    fn push_object(&mut self, action: Action, object: &ObjectId) {
        self.push(Need {
            action,
            bucket: Some(object.bucket.clone()),
            key: Some(object.key.clone()),
            version: object.version.clone(),
        });
    }

    /// Reading an object, or the version of it that is named.
    fn push_read(&mut self, object: &ObjectId) {
        let action = OperationName::GetObject.iam_action(addressed(object.version.as_ref()));
        self.push_object(action, object);
    }
}

impl IntoIterator for Needs {
    type Item = Need;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Need>, std::vec::IntoIter<Need>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

/// What stands between a request and its being allowed.
#[derive(Debug)]
pub enum Access {
    /// Each of these must be allowed.
    Needs(Needs),
    /// The body names the objects. Each entry of a `DeleteObjects` has [`delete_needs`]; a
    /// `PostObject` is to be read as the `PutObject` that its form describes.
    NamedInBody,
    /// Nothing: a preflight is never signed, and its answer tells nothing of any object.
    Free,
}

/// Lists what `operation` needs; `head` is that of the request it was read from.
pub fn needs(operation: &Operation, head: &Head<'_>) -> Access {
    let mut needs = Needs::default();
    match operation {
        Operation::Other(OperationName::Preflight, _) => return Access::Free,
        Operation::DeleteObjects(_) | Operation::PostObject(_) => return Access::NamedInBody,
        Operation::CopyObject(copy) => needs.push_read(&copy.source),
        Operation::UploadPartCopy(_, source) => needs.push_read(source),
        Operation::GetObjectAttributes(object) => needs.push_read(object),
        _ => {}
    }
    let version = match operation {
        Operation::Other(_, Target::Object(..)) => version_of_query(head.query),
        other => other.object().and_then(|object| object.version.clone()),
    };
    let name = operation.name();
    let own = Need {
        action: name.iam_action(addressed(version.as_ref())),
        bucket: operation.bucket().cloned(),
        key: operation.key().cloned(),
        version,
    };
    match name {
        OperationName::RenameObject => push_rename(&mut needs, &own, head.headers),
        OperationName::UnknownRead | OperationName::UnknownWrite => {
            push_known_part(&mut needs, &own, head);
        }
        _ => push_for_headers(&mut needs, name, &own, head.headers),
    }
    needs.push(own);
    Access::Needs(needs)
}

/// What one entry of a `DeleteObjects` needs.
pub fn delete_needs(bucket: &BucketName, entry: &DeleteEntry, headers: &HeaderMap) -> Needs {
    let mut needs = Needs::default();
    let own = Need {
        action: OperationName::DeleteObjects.iam_action(addressed(entry.version.as_ref())),
        bucket: Some(bucket.clone()),
        key: Some(entry.key.clone()),
        version: entry.version.clone(),
    };
    push_for_headers(&mut needs, OperationName::DeleteObjects, &own, headers);
    needs.push(own);
    needs
}

fn addressed(version: Option<&VersionId>) -> Addressed {
    if version.is_some() {
        Addressed::Version
    } else {
        Addressed::Current
    }
}

fn version_of_query(query: &str) -> Option<VersionId> {
    let (_, id) = uri::query_pairs(query).find(|(name, _)| name == "versionId")?;
    VersionId::parse(&id).ok()
}

/// A rename reads and deletes its source, which classification has checked.
fn push_rename(needs: &mut Needs, own: &Need, headers: &HeaderMap) {
    let Some(bucket) = &own.bucket else { return };
    if let Ok(key) = classify::rename_source(headers, bucket) {
        let source = ObjectId {
            bucket: bucket.clone(),
            key,
            version: None,
        };
        needs.push_object(Action::GetObject, &source);
        needs.push_object(Action::DeleteObject, &source);
    }
}

/// An origin may not know the sub-resource either, and do what the rest of the request says: so
/// that must be allowed as well.
fn push_known_part(needs: &mut Needs, own: &Need, head: &Head<'_>) {
    use OperationName as N;
    let plain = match (head.method.as_str(), &own.bucket, &own.key) {
        ("GET" | "HEAD", Some(_), Some(_)) => N::GetObject,
        ("PUT", Some(_), Some(_)) => N::PutObject,
        ("DELETE", Some(_), Some(_)) => N::DeleteObject,
        ("GET" | "HEAD", Some(_), None) => N::ListObjects,
        ("PUT", Some(_), None) => N::CreateBucket,
        ("DELETE", Some(_), None) => N::DeleteBucket,
        ("GET" | "HEAD", None, _) => N::ListBuckets,
        _ => return,
    };
    if plain == N::PutObject
        && let Ok(Some(source)) = classify::copy_source(head.headers)
    {
        needs.push_read(&source);
    }
    push_for_headers(needs, plain, own, head.headers);
    let action = plain.iam_action(addressed(own.version.as_ref()));
    needs.push(Need {
        action,
        ..own.clone()
    });
}

/// Headers that do what another operation does.
fn push_for_headers(needs: &mut Needs, name: OperationName, own: &Need, headers: &HeaderMap) {
    use OperationName as N;
    const ACLS: &[&str] = &[
        "x-amz-acl",
        "x-amz-grant-full-control",
        "x-amz-grant-read",
        "x-amz-grant-read-acp",
        "x-amz-grant-write",
        "x-amz-grant-write-acp",
    ];
    const RETENTION: &[&str] = &[
        "x-amz-object-lock-mode",
        "x-amz-object-lock-retain-until-date",
    ];
    let extra: &[(&[&str], Action)] = match name {
        N::PutObject | N::CopyObject | N::CreateMultipartUpload => &[
            (&["x-amz-tagging"], Action::PutObjectTagging),
            (ACLS, Action::PutObjectAcl),
            (RETENTION, Action::PutObjectRetention),
            (
                &["x-amz-object-lock-legal-hold"],
                Action::PutObjectLegalHold,
            ),
        ],
        N::CreateBucket => &[
            (ACLS, Action::PutBucketAcl),
            (
                &["x-amz-bucket-object-lock-enabled"],
                Action::PutBucketObjectLockConfiguration,
            ),
            (
                &["x-amz-bucket-object-lock-enabled"],
                Action::PutBucketVersioning,
            ),
            (
                &["x-amz-object-ownership"],
                Action::PutBucketOwnershipControls,
            ),
        ],
        N::DeleteObject | N::DeleteObjects | N::PutObjectRetention => &[(
            &["x-amz-bypass-governance-retention"],
            Action::BypassGovernanceRetention,
        )],
        _ => &[],
    };
    for (names, action) in extra {
        if names.iter().any(|name| headers.contains_key(*name)) {
            needs.push(Need {
                action: *action,
                ..own.clone()
            });
        }
    }
}
