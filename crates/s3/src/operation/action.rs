//! The IAM actions that S3's operations need, each known by one small number.
//!
//! A policy compiles its action patterns to a set of these ([`crate::policy`]), so judging the
//! action of a request is one bit test.
//!
//! Source: AWS Service Authorization Reference, "Actions, resources, and condition keys for
//! Amazon S3". Left out are actions that no S3 request of a gateway needs (`s3:CreateJob` and the
//! like): a policy may name them, and they match nothing. [`Action::UnknownRead`] and
//! [`Action::UnknownWrite`] are ours: a request that the table of operations does not know needs
//! one of them, so only who may do everything (`s3:*`) may send it on to an origin.

use std::fmt;

macro_rules! actions {
    ($($service:literal: $($action:ident)+;)+) => {
        /// An action of a policy, spelled as IAM does, without its service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Action {
            $($(#[doc = concat!("`", $service, ":", stringify!($action), "`")] $action,)+)+
        }

        impl Action {
            /// Every action, in the order of their numbers.
            pub const ALL: &[Self] = &[$($(Self::$action),+),+];

            /// The action as a policy names it, with its service: `s3:GetObject`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$action => concat!($service, ":", stringify!($action)),)+)+
                }
            }
        }
    };
}

actions! {
    "s3":
        AbortMultipartUpload BypassGovernanceRetention CreateBucket
        CreateBucketMetadataTableConfiguration DeleteBucket
        DeleteBucketMetadataTableConfiguration DeleteBucketPolicy DeleteBucketWebsite
        DeleteObject DeleteObjectAnnotation DeleteObjectTagging DeleteObjectVersion
        DeleteObjectVersionTagging GetAccelerateConfiguration GetAnalyticsConfiguration
        GetBucketAbac GetBucketAcl GetBucketCORS GetBucketLocation GetBucketLogging
        GetBucketMetadataTableConfiguration GetBucketNotification
        GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy
        GetBucketPolicyStatus GetBucketPublicAccessBlock GetBucketRequestPayment
        GetBucketTagging GetBucketVersioning GetBucketWebsite GetEncryptionConfiguration
        GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration
        GetMetricsConfiguration GetObject GetObjectAcl GetObjectAnnotation GetObjectAttributes
        GetObjectLegalHold GetObjectRetention GetObjectTagging GetObjectTorrent
        GetObjectVersion GetObjectVersionAcl GetObjectVersionAttributes
        GetObjectVersionTagging GetObjectVersionTorrent GetReplicationConfiguration
        ListAllMyBuckets ListBucket ListBucketMultipartUploads ListBucketVersions
        ListMultipartUploadParts ListObjectAnnotations PutAccelerateConfiguration
        PutAnalyticsConfiguration PutBucketAbac PutBucketAcl PutBucketCORS PutBucketLogging
        PutBucketNotification PutBucketObjectLockConfiguration PutBucketOwnershipControls
        PutBucketPolicy PutBucketPublicAccessBlock PutBucketRequestPayment PutBucketTagging
        PutBucketVersioning PutBucketWebsite PutEncryptionConfiguration
        PutIntelligentTieringConfiguration PutInventoryConfiguration PutLifecycleConfiguration
        PutMetricsConfiguration PutObject PutObjectAcl PutObjectAnnotation PutObjectLegalHold
        PutObjectRetention PutObjectTagging PutObjectVersionAcl PutObjectVersionTagging
        PutReplicationConfiguration RestoreObject UnknownRead UnknownWrite
        UpdateBucketMetadataAnnotationTableConfiguration
        UpdateBucketMetadataInventoryTableConfiguration
        UpdateBucketMetadataJournalTableConfiguration UpdateObjectEncryption;
    "s3express":
        CreateSession ListAllMyDirectoryBuckets;
    "s3-object-lambda":
        WriteGetObjectResponse;
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
