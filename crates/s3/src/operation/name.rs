//! The table of all operations of the S3 API: how a request names one, and what it needs.
//!
//! Read by [`crate::classify`], which finds the row of a request; by authorization (the IAM
//! action); by layers and stores (the effect). Operations that share one request with a newer
//! name (`GetBucketLifecycle`, `PutBucketNotification` …) stand under the newer one.
//!
//! Sources: Amazon S3 API Reference, "Actions" (method and query of each); AWS Service
//! Authorization Reference, "Amazon S3" and the Permissions section of each operation's page.

use std::fmt;

use super::{Action, selector};

/// Whether an operation may change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// May change something.
    Write,
}

/// What an operation addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The service.
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
    /// Any of them; the request tells which.
    Any,
}

/// The version that a request is about, as far as the actions it needs differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addressed {
    /// The current one.
    Current,
    /// The one that `versionId` names.
    Version,
}

/// Method of a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Head,
    Put,
    Post,
    Delete,
    Options,
    /// Any: the row is never found by its method.
    Any,
}

/// One operation: what a request must have to be it, and what it needs to be allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: OperationName,
    pub(crate) verb: Verb,
    pub(crate) scope: Scope,
    effect: Effect,
    /// Query parameters that the request must have, for tests that make such requests.
    #[cfg(test)]
    pub(crate) query: &'static [&'static str],
    /// Query parameters that the request must have.
    pub(crate) selectors: selector::Set,
    action: Action,
    version_action: Action,
}

macro_rules! operations {
    ($($(#[$note:meta])* $name:ident $verb:ident $scope:ident $effect:ident
        [$($key:literal)*] $action:ident $(/ $version_action:ident)?;)+) => {
        /// Name of an operation of the S3 API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OperationName {
            $(
                #[doc = concat!("`", stringify!($verb), "`, ", stringify!($scope)
                    $(, ", `", $key, "`")*)]
                $(#[$note])*
                $name,
            )+
        }

        impl OperationName {
            /// Every operation, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name as S3 spells it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }

        /// One row for each name, in the order of the enum.
        pub(crate) static ROWS: &[Row] = &[$(Row {
            name: OperationName::$name,
            verb: Verb::$verb,
            scope: Scope::$scope,
            effect: Effect::$effect,
            #[cfg(test)]
            query: &[$($key),*],
            selectors: selector::set(&[$($key),*]),
            action: Action::$action,
            version_action: operations!(@version $action $($version_action)?),
        }),+];
    };
    (@version $action:ident) => { Action::$action };
    (@version $action:ident $version_action:ident) => { Action::$version_action };
}

// Name, method, scope, effect, query parameters, action / action where `versionId` is given.
operations! {
    AbortMultipartUpload Delete Object Write ["uploadId"] AbortMultipartUpload;
    CompleteMultipartUpload Post Object Write ["uploadId"] PutObject;
    /// With the header `x-amz-copy-source`; needs `s3:GetObject` of its source as well.
    CopyObject Put Object Write [] PutObject;
    CreateBucket Put Bucket Write [] CreateBucket;
    CreateBucketMetadataConfiguration Post Bucket Write ["metadataConfiguration"]
        CreateBucketMetadataTableConfiguration;
    CreateBucketMetadataTableConfiguration Post Bucket Write ["metadataTable"]
        CreateBucketMetadataTableConfiguration;
    CreateMultipartUpload Post Object Write ["uploads"] PutObject;
    /// Makes credentials, so it is never repeated or cached: a write.
    CreateSession Get Bucket Write ["session"] CreateSession;
    DeleteBucket Delete Bucket Write [] DeleteBucket;
    DeleteBucketAnalyticsConfiguration Delete Bucket Write ["analytics"] PutAnalyticsConfiguration;
    DeleteBucketCors Delete Bucket Write ["cors"] PutBucketCORS;
    DeleteBucketEncryption Delete Bucket Write ["encryption"] PutEncryptionConfiguration;
    DeleteBucketIntelligentTieringConfiguration Delete Bucket Write ["intelligent-tiering"]
        PutIntelligentTieringConfiguration;
    DeleteBucketInventoryConfiguration Delete Bucket Write ["inventory"] PutInventoryConfiguration;
    DeleteBucketLifecycle Delete Bucket Write ["lifecycle"] PutLifecycleConfiguration;
    DeleteBucketMetadataConfiguration Delete Bucket Write ["metadataConfiguration"]
        DeleteBucketMetadataTableConfiguration;
    DeleteBucketMetadataTableConfiguration Delete Bucket Write ["metadataTable"]
        DeleteBucketMetadataTableConfiguration;
    DeleteBucketMetricsConfiguration Delete Bucket Write ["metrics"] PutMetricsConfiguration;
    DeleteBucketOwnershipControls Delete Bucket Write ["ownershipControls"]
        PutBucketOwnershipControls;
    DeleteBucketPolicy Delete Bucket Write ["policy"] DeleteBucketPolicy;
    DeleteBucketReplication Delete Bucket Write ["replication"] PutReplicationConfiguration;
    DeleteBucketTagging Delete Bucket Write ["tagging"] PutBucketTagging;
    DeleteBucketWebsite Delete Bucket Write ["website"] DeleteBucketWebsite;
    DeleteObject Delete Object Write [] DeleteObject / DeleteObjectVersion;
    DeleteObjectAnnotation Delete Object Write ["annotation"] DeleteObjectAnnotation;
    DeleteObjectTagging Delete Object Write ["tagging"]
        DeleteObjectTagging / DeleteObjectVersionTagging;
    /// Needs its action for each key in the body, with or without a version.
    DeleteObjects Post Bucket Write ["delete"] DeleteObject / DeleteObjectVersion;
    DeletePublicAccessBlock Delete Bucket Write ["publicAccessBlock"] PutBucketPublicAccessBlock;
    GetBucketAbac Get Bucket Read ["abac"] GetBucketAbac;
    GetBucketAccelerateConfiguration Get Bucket Read ["accelerate"] GetAccelerateConfiguration;
    GetBucketAcl Get Bucket Read ["acl"] GetBucketAcl;
    GetBucketAnalyticsConfiguration Get Bucket Read ["analytics" "id"] GetAnalyticsConfiguration;
    GetBucketCors Get Bucket Read ["cors"] GetBucketCORS;
    GetBucketEncryption Get Bucket Read ["encryption"] GetEncryptionConfiguration;
    GetBucketIntelligentTieringConfiguration Get Bucket Read ["intelligent-tiering" "id"]
        GetIntelligentTieringConfiguration;
    GetBucketInventoryConfiguration Get Bucket Read ["inventory" "id"] GetInventoryConfiguration;
    GetBucketLifecycleConfiguration Get Bucket Read ["lifecycle"] GetLifecycleConfiguration;
    GetBucketLocation Get Bucket Read ["location"] GetBucketLocation;
    GetBucketLogging Get Bucket Read ["logging"] GetBucketLogging;
    GetBucketMetadataConfiguration Get Bucket Read ["metadataConfiguration"]
        GetBucketMetadataTableConfiguration;
    GetBucketMetadataTableConfiguration Get Bucket Read ["metadataTable"]
        GetBucketMetadataTableConfiguration;
    GetBucketMetricsConfiguration Get Bucket Read ["metrics" "id"] GetMetricsConfiguration;
    GetBucketNotificationConfiguration Get Bucket Read ["notification"] GetBucketNotification;
    GetBucketOwnershipControls Get Bucket Read ["ownershipControls"] GetBucketOwnershipControls;
    GetBucketPolicy Get Bucket Read ["policy"] GetBucketPolicy;
    GetBucketPolicyStatus Get Bucket Read ["policyStatus"] GetBucketPolicyStatus;
    GetBucketReplication Get Bucket Read ["replication"] GetReplicationConfiguration;
    GetBucketRequestPayment Get Bucket Read ["requestPayment"] GetBucketRequestPayment;
    GetBucketTagging Get Bucket Read ["tagging"] GetBucketTagging;
    GetBucketVersioning Get Bucket Read ["versioning"] GetBucketVersioning;
    GetBucketWebsite Get Bucket Read ["website"] GetBucketWebsite;
    GetObject Get Object Read [] GetObject / GetObjectVersion;
    GetObjectAcl Get Object Read ["acl"] GetObjectAcl / GetObjectVersionAcl;
    GetObjectAnnotation Get Object Read ["annotation" "annotationName"] GetObjectAnnotation;
    /// Needs `s3:GetObject` or `s3:GetObjectVersion` as well.
    GetObjectAttributes Get Object Read ["attributes"]
        GetObjectAttributes / GetObjectVersionAttributes;
    GetObjectLegalHold Get Object Read ["legal-hold"] GetObjectLegalHold;
    GetObjectLockConfiguration Get Bucket Read ["object-lock"] GetBucketObjectLockConfiguration;
    GetObjectRetention Get Object Read ["retention"] GetObjectRetention;
    GetObjectTagging Get Object Read ["tagging"] GetObjectTagging / GetObjectVersionTagging;
    GetObjectTorrent Get Object Read ["torrent"] GetObjectTorrent / GetObjectVersionTorrent;
    GetPublicAccessBlock Get Bucket Read ["publicAccessBlock"] GetBucketPublicAccessBlock;
    HeadBucket Head Bucket Read [] ListBucket;
    HeadObject Head Object Read [] GetObject / GetObjectVersion;
    ListBucketAnalyticsConfigurations Get Bucket Read ["analytics"] GetAnalyticsConfiguration;
    ListBucketIntelligentTieringConfigurations Get Bucket Read ["intelligent-tiering"]
        GetIntelligentTieringConfiguration;
    ListBucketInventoryConfigurations Get Bucket Read ["inventory"] GetInventoryConfiguration;
    ListBucketMetricsConfigurations Get Bucket Read ["metrics"] GetMetricsConfiguration;
    ListBuckets Get Service Read [] ListAllMyBuckets;
    ListDirectoryBuckets Get Service Read ["max-directory-buckets"] ListAllMyDirectoryBuckets;
    ListMultipartUploads Get Bucket Read ["uploads"] ListBucketMultipartUploads;
    ListObjectAnnotations Get Object Read ["annotation"] ListObjectAnnotations;
    ListObjectVersions Get Bucket Read ["versions"] ListBucketVersions;
    ListObjects Get Bucket Read [] ListBucket;
    /// The value of `list-type` is `2`.
    ListObjectsV2 Get Bucket Read ["list-type"] ListBucket;
    ListParts Get Object Read ["uploadId"] ListMultipartUploadParts;
    /// A body of `multipart/form-data`; needs `s3:PutObject` of the key in the form.
    PostObject Post Bucket Write [] PutObject;
    /// The browser's question before a cross-origin request; it is never signed.
    Preflight Options Any Read [] GetBucketCORS;
    PutBucketAbac Put Bucket Write ["abac"] PutBucketAbac;
    PutBucketAccelerateConfiguration Put Bucket Write ["accelerate"] PutAccelerateConfiguration;
    PutBucketAcl Put Bucket Write ["acl"] PutBucketAcl;
    PutBucketAnalyticsConfiguration Put Bucket Write ["analytics"] PutAnalyticsConfiguration;
    PutBucketCors Put Bucket Write ["cors"] PutBucketCORS;
    PutBucketEncryption Put Bucket Write ["encryption"] PutEncryptionConfiguration;
    PutBucketIntelligentTieringConfiguration Put Bucket Write ["intelligent-tiering"]
        PutIntelligentTieringConfiguration;
    PutBucketInventoryConfiguration Put Bucket Write ["inventory"] PutInventoryConfiguration;
    PutBucketLifecycleConfiguration Put Bucket Write ["lifecycle"] PutLifecycleConfiguration;
    PutBucketLogging Put Bucket Write ["logging"] PutBucketLogging;
    PutBucketMetricsConfiguration Put Bucket Write ["metrics"] PutMetricsConfiguration;
    PutBucketNotificationConfiguration Put Bucket Write ["notification"] PutBucketNotification;
    PutBucketOwnershipControls Put Bucket Write ["ownershipControls"] PutBucketOwnershipControls;
    PutBucketPolicy Put Bucket Write ["policy"] PutBucketPolicy;
    PutBucketReplication Put Bucket Write ["replication"] PutReplicationConfiguration;
    PutBucketRequestPayment Put Bucket Write ["requestPayment"] PutBucketRequestPayment;
    PutBucketTagging Put Bucket Write ["tagging"] PutBucketTagging;
    PutBucketVersioning Put Bucket Write ["versioning"] PutBucketVersioning;
    PutBucketWebsite Put Bucket Write ["website"] PutBucketWebsite;
    PutObject Put Object Write [] PutObject;
    PutObjectAcl Put Object Write ["acl"] PutObjectAcl / PutObjectVersionAcl;
    PutObjectAnnotation Put Object Write ["annotation"] PutObjectAnnotation;
    PutObjectLegalHold Put Object Write ["legal-hold"] PutObjectLegalHold;
    PutObjectLockConfiguration Put Bucket Write ["object-lock"] PutBucketObjectLockConfiguration;
    PutObjectRetention Put Object Write ["retention"] PutObjectRetention;
    PutObjectTagging Put Object Write ["tagging"] PutObjectTagging / PutObjectVersionTagging;
    PutPublicAccessBlock Put Bucket Write ["publicAccessBlock"] PutBucketPublicAccessBlock;
    /// With the header `x-amz-rename-source`; needs to get and delete that object as well.
    RenameObject Put Object Write ["renameObject"] PutObject;
    RestoreObject Post Object Write ["restore"] RestoreObject;
    SelectObjectContent Post Object Read ["select"] GetObject;
    /// GET or HEAD of a sub-resource that this table does not know.
    UnknownRead Any Any Read [] UnknownRead;
    /// PUT, POST or DELETE of a sub-resource that this table does not know.
    UnknownWrite Any Any Write [] UnknownWrite;
    UpdateBucketMetadataAnnotationTableConfiguration Put Bucket Write ["metadataAnnotationTable"]
        UpdateBucketMetadataAnnotationTableConfiguration;
    UpdateBucketMetadataInventoryTableConfiguration Put Bucket Write ["metadataInventoryTable"]
        UpdateBucketMetadataInventoryTableConfiguration;
    UpdateBucketMetadataJournalTableConfiguration Put Bucket Write ["metadataJournalTable"]
        UpdateBucketMetadataJournalTableConfiguration;
    UpdateObjectEncryption Put Object Write ["encryption"] UpdateObjectEncryption;
    UploadPart Put Object Write ["uploadId" "partNumber"] PutObject;
    /// With the header `x-amz-copy-source`; needs `s3:GetObject` of its source as well.
    UploadPartCopy Put Object Write ["uploadId" "partNumber"] PutObject;
    /// POST to `/WriteGetObjectResponse` with the header `x-amz-request-route`.
    WriteGetObjectResponse Post Service Write [] WriteGetObjectResponse;
}

impl OperationName {
    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Whether it may change anything.
    pub fn effect(self) -> Effect {
        self.row().effect
    }

    /// What it addresses.
    pub fn scope(self) -> Scope {
        self.row().scope
    }

    /// The action that a policy must allow on what is addressed.
    ///
    /// Some operations need more: [`crate::policy::needs`] lists all that one request needs.
    pub fn iam_action(self, addressed: Addressed) -> Action {
        match addressed {
            Addressed::Current => self.row().action,
            Addressed::Version => self.row().version_action,
        }
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_name_has_its_own_row_and_no_two_rows_the_same_request() {
        let mut requests = HashSet::new();
        for (i, name) in OperationName::ALL.iter().enumerate() {
            assert_eq!(*name as usize, i);
            assert_eq!(name.row().name, *name);
        }
        // These differ by a header or by the path, not by method and query.
        let by_header = [
            "CopyObject",
            "UploadPartCopy",
            "UnknownRead",
            "UnknownWrite",
        ];
        for row in ROWS
            .iter()
            .filter(|row| !by_header.contains(&row.name.as_str()))
        {
            let request = format!("{:?} {:?} {:?}", row.verb, row.scope, row.query);
            assert!(requests.insert(request.clone()), "{request} twice");
        }
        assert!(ROWS.len() > 110, "{}", ROWS.len());
    }

    #[test]
    fn actions_are_those_of_the_service_authorization_reference() {
        use OperationName as N;
        for (name, current, version) in [
            (N::GetObject, "s3:GetObject", "s3:GetObjectVersion"),
            (N::HeadObject, "s3:GetObject", "s3:GetObjectVersion"),
            (N::ListObjectsV2, "s3:ListBucket", "s3:ListBucket"),
            (N::HeadBucket, "s3:ListBucket", "s3:ListBucket"),
            (N::ListBuckets, "s3:ListAllMyBuckets", "s3:ListAllMyBuckets"),
            (N::UploadPart, "s3:PutObject", "s3:PutObject"),
            (N::CompleteMultipartUpload, "s3:PutObject", "s3:PutObject"),
            (
                N::ListParts,
                "s3:ListMultipartUploadParts",
                "s3:ListMultipartUploadParts",
            ),
            (N::DeleteObject, "s3:DeleteObject", "s3:DeleteObjectVersion"),
            (
                N::PutObjectTagging,
                "s3:PutObjectTagging",
                "s3:PutObjectVersionTagging",
            ),
            (N::DeleteBucketCors, "s3:PutBucketCORS", "s3:PutBucketCORS"),
            (
                N::CreateSession,
                "s3express:CreateSession",
                "s3express:CreateSession",
            ),
        ] {
            assert_eq!(name.iam_action(Addressed::Current).as_str(), current);
            assert_eq!(name.iam_action(Addressed::Version).as_str(), version);
        }
    }

    #[test]
    fn gets_and_heads_read_and_all_others_write_but_for_the_listed() {
        for row in ROWS {
            let usual = match row.verb {
                Verb::Get | Verb::Head | Verb::Options => Effect::Read,
                Verb::Put | Verb::Post | Verb::Delete => Effect::Write,
                Verb::Any => continue,
            };
            let unusual = ["CreateSession", "SelectObjectContent"].contains(&row.name.as_str());
            assert_eq!(row.effect != usual, unusual, "{}", row.name);
        }
    }
}
