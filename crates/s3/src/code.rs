//! The one table of S3 error codes: code, HTTP status, usual message.
//!
//! The edge turns an error into a [`Code`] and this table into a status and a document
//! ([`crate::xml::ErrorDocument`]); the origin store reads codes with [`Code::parse`].
//!
//! Not here: the codes of S3 Select's SQL, Outposts, Storage Lens, Object Lambda, Access Grants
//! and S3 Tables. Only an origin says those, and its own error passes through byte for byte.
//!
//! Source: Amazon S3 API Reference, "Error responses". Where S3 answers another status than that
//! page says, the row has S3's answer and says so.

use std::fmt;

use http::StatusCode;

macro_rules! codes {
    ($($(#[$note:meta])* $code:ident $status:ident $message:literal;)+) => {
        /// An S3 error code, spelled as S3 does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = concat!("`", $message, "`")] $(#[$note])* $code,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$code),+];

            /// The code as S3 spells it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => stringify!($code),)+
                }
            }

            /// Its HTTP status.
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Self::$code => StatusCode::$status,)+
                }
            }

            /// The message that S3 usually sends with it.
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$code => $message,)+
                }
            }
        }
    };
}

codes! {
    AccessControlListNotSupported BAD_REQUEST "The bucket does not allow ACLs.";
    AccessDenied FORBIDDEN "Access Denied";
    AccessPointAlreadyOwnedByYou CONFLICT "You already have an access point of this name.";
    AccountProblem FORBIDDEN "There is a problem with your account.";
    AllAccessDisabled FORBIDDEN "All access to this resource has been disabled.";
    AmbiguousGrantByEmailAddress BAD_REQUEST
        "The email address you provided is associated with more than one account.";
    AuthorizationHeaderMalformed BAD_REQUEST "The authorization header you provided is invalid.";
    AuthorizationQueryParametersError BAD_REQUEST
        "The authorization query parameters that you provided are not valid.";
    BadDigest BAD_REQUEST
        "The Content-MD5 or checksum value that you specified did not match what the server \
         received.";
    BucketAlreadyExists CONFLICT "The requested bucket name is not available.";
    BucketAlreadyOwnedByYou CONFLICT
        "Your previous request to create the named bucket succeeded and you already own it.";
    BucketHasAccessPointsAttached BAD_REQUEST
        "The bucket you tried to delete has access points attached.";
    BucketNotEmpty CONFLICT "The bucket you tried to delete is not empty";
    ClientTokenConflict CONFLICT "Your request token was already used for another request.";
    ConditionalRequestConflict CONFLICT
        "A conflicting operation occurred during this conditional request; try it again.";
    ConnectionClosedByRequester BAD_REQUEST "The requester closed the connection.";
    CredentialsNotSupported BAD_REQUEST "This request does not support credentials.";
    CrossLocationLoggingProhibited FORBIDDEN "Cross-location logging not allowed.";
    DeviceNotActiveError BAD_REQUEST "The device is not active.";
    EncryptionTypeMismatch BAD_REQUEST
        "The encryption of the request differs from that of the object.";
    EndpointNotFound BAD_REQUEST "Direct your request to the correct endpoint.";
    EntityTooLarge BAD_REQUEST "Your proposed upload exceeds the maximum allowed size";
    EntityTooSmall BAD_REQUEST
        "Your proposed upload is smaller than the minimum allowed size";
    ExpiredToken BAD_REQUEST "The provided token has expired.";
    IdempotencyParameterMismatch BAD_REQUEST
        "The client token was already used with other parameters.";
    IllegalLocationConstraintException BAD_REQUEST
        "The location constraint does not fit the region this request was sent to.";
    IllegalVersioningConfigurationException BAD_REQUEST
        "The versioning configuration specified in the request is invalid.";
    IncompleteBody BAD_REQUEST
        "You did not provide the number of bytes specified by the Content-Length HTTP header";
    IncorrectEndpoint BAD_REQUEST "The specified bucket exists in another region.";
    IncorrectNumberOfFilesInPostRequest BAD_REQUEST
        "POST requires exactly one file upload per request.";
    InlineDataTooLarge BAD_REQUEST "Inline data exceeds the maximum allowed size.";
    InternalError INTERNAL_SERVER_ERROR "We encountered an internal error. Please try again.";
    InvalidAccessKeyId FORBIDDEN
        "The AWS Access Key Id you provided does not exist in our records.";
    InvalidAccessPoint BAD_REQUEST "The specified access point name or account is not valid.";
    InvalidAccessPointAliasError BAD_REQUEST
        "The specified access point alias name is not valid.";
    InvalidAddressingHeader BAD_REQUEST "You must specify the Anonymous role.";
    InvalidArgument BAD_REQUEST "Invalid Argument";
    InvalidBucketAclWithObjectOwnership BAD_REQUEST
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketName BAD_REQUEST "The specified bucket is not valid.";
    InvalidBucketOwnerAWSAccountID BAD_REQUEST
        "The value of the expected bucket owner parameter must be an AWS account ID.";
    InvalidBucketState CONFLICT "The request is not valid with the current state of the bucket.";
    /// Sent by S3 though its list lacks it.
    InvalidChunkSizeError FORBIDDEN
        "Only the last chunk is allowed to have a size less than 8192 bytes";
    InvalidDigest BAD_REQUEST "The Content-MD5 or checksum value that you specified is not valid.";
    InvalidEncryptionAlgorithmError BAD_REQUEST
        "The encryption request that you specified is not valid.";
    InvalidHostHeader BAD_REQUEST "The host headers provided are not valid.";
    InvalidHttpMethod BAD_REQUEST "The request used an HTTP method that is not expected here.";
    InvalidLocationConstraint BAD_REQUEST "The specified location-constraint is not valid";
    InvalidObjectState FORBIDDEN
        "The operation is not valid for the current state of the object.";
    InvalidPart BAD_REQUEST
        "One or more of the specified parts could not be found. The part might not have been \
         uploaded, or the specified entity tag might not match the part's entity tag.";
    InvalidPartNumber RANGE_NOT_SATISFIABLE "The requested partnumber is not satisfiable";
    InvalidPartOrder BAD_REQUEST
        "The list of parts was not in ascending order. Parts must be ordered by part number.";
    InvalidPayer FORBIDDEN "All access to this object has been disabled.";
    InvalidPolicyDocument BAD_REQUEST
        "The content of the form does not meet the conditions specified in the policy document.";
    InvalidRange RANGE_NOT_SATISFIABLE "The requested range is not satisfiable";
    InvalidRegion FORBIDDEN "The region of the request is not valid.";
    InvalidRequest BAD_REQUEST "Invalid Request";
    InvalidSOAPRequest BAD_REQUEST "The SOAP request body is not valid.";
    InvalidSecurity FORBIDDEN "The provided security credentials are not valid.";
    InvalidSessionException BAD_REQUEST "The session is not valid.";
    InvalidSignature BAD_REQUEST "The signature of the request is not valid.";
    InvalidStorageClass BAD_REQUEST "The storage class you specified is not valid";
    InvalidTag BAD_REQUEST "The tag provided was not a valid tag.";
    InvalidTargetBucketForLogging BAD_REQUEST "The target bucket for logging is not valid.";
    InvalidToken BAD_REQUEST "The provided token is malformed or otherwise invalid.";
    InvalidURI BAD_REQUEST "Couldn't parse the specified URI.";
    InvalidWriteOffset BAD_REQUEST "The write offset is not the size of the object.";
    KeyTooLongError BAD_REQUEST "Your key is too long";
    MalformedACLError BAD_REQUEST
        "The XML you provided was not well-formed or did not validate against our published \
         schema";
    MalformedPOSTRequest BAD_REQUEST
        "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy BAD_REQUEST "Policies must be valid JSON and the first byte must be '{'";
    /// Sent by S3 though its list lacks it.
    MalformedTrailerError BAD_REQUEST
        "The request contained trailing data that was not well-formed or did not conform to our \
         published schema.";
    MalformedXML BAD_REQUEST
        "The XML you provided was not well-formed or did not validate against our published \
         schema";
    MaxMessageLengthExceeded BAD_REQUEST "Your request was too big.";
    MaxPostPreDataLengthExceededError BAD_REQUEST
        "Your POST request fields preceding the upload file were too large.";
    MetadataTooLarge BAD_REQUEST
        "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed METHOD_NOT_ALLOWED
        "The specified method is not allowed against this resource.";
    MissingAttachment BAD_REQUEST "A SOAP attachment was expected, but none was found.";
    MissingAuthenticationToken FORBIDDEN "The request was not signed.";
    MissingContentLength LENGTH_REQUIRED
        "You must provide the Content-Length HTTP header.";
    MissingRequestBodyError BAD_REQUEST "Request Body is empty";
    MissingSecurityElement BAD_REQUEST "The SOAP request is missing a security element.";
    MissingSecurityHeader BAD_REQUEST "Your request was missing a required header";
    NoLoggingStatusForKey BAD_REQUEST "There is no such thing as a logging status subresource \
         for a key.";
    NoSuchAccessPoint NOT_FOUND "The specified access point does not exist";
    NoSuchAsyncRequest NOT_FOUND "The specified request was not found.";
    NoSuchBucket NOT_FOUND "The specified bucket does not exist";
    NoSuchBucketPolicy NOT_FOUND "The bucket policy does not exist";
    NoSuchCORSConfiguration NOT_FOUND "The CORS configuration does not exist";
    /// Answers for analytics, inventory, metrics and tiering configurations.
    NoSuchConfiguration NOT_FOUND "The specified configuration does not exist.";
    NoSuchKey NOT_FOUND "The specified key does not exist.";
    NoSuchLifecycleConfiguration NOT_FOUND "The lifecycle configuration does not exist";
    NoSuchMultiRegionAccessPoint NOT_FOUND
        "The specified Multi-Region Access Point does not exist.";
    NoSuchObjectLockConfiguration NOT_FOUND
        "The specified object does not have a ObjectLock configuration";
    NoSuchPublicAccessBlockConfiguration NOT_FOUND
        "The public access block configuration was not found";
    NoSuchResource NOT_FOUND "The specified resource does not exist.";
    NoSuchTagSet NOT_FOUND "The TagSet does not exist";
    NoSuchUpload NOT_FOUND
        "The specified upload does not exist. The upload ID may be invalid, or the upload may \
         have been aborted or completed.";
    NoSuchVersion NOT_FOUND "The specified version does not exist.";
    NoSuchWebsiteConfiguration NOT_FOUND
        "The specified bucket does not have a website configuration";
    NoTransformationDefined NOT_FOUND "No transformation found for this Object Lambda.";
    NotDeviceOwnerError BAD_REQUEST "The device is not owned by the authenticated account.";
    NotImplemented NOT_IMPLEMENTED
        "A header you provided implies functionality that is not implemented";
    /// A status without a document.
    NotModified NOT_MODIFIED "Not Modified";
    NotSignedUp FORBIDDEN "Your account is not signed up for the Amazon S3 service.";
    ObjectAlreadyInActiveTierError FORBIDDEN "This object is already in an active tier.";
    ObjectLockConfigurationNotFoundError NOT_FOUND
        "Object Lock configuration does not exist for this bucket";
    ObjectNotInActiveTierError FORBIDDEN
        "The source object is in an archive tier and must be restored first.";
    OperationAborted CONFLICT
        "A conflicting conditional operation is currently in progress against this resource. \
         Please try again.";
    OwnershipControlsNotFoundError NOT_FOUND "The bucket ownership controls were not found";
    PermanentRedirect MOVED_PERMANENTLY
        "The bucket you are attempting to access must be addressed using the specified endpoint. \
         Please send all future requests to this endpoint.";
    PermanentRedirectControlError MOVED_PERMANENTLY
        "The operation must be sent to the endpoint of the bucket's region.";
    PreconditionFailed PRECONDITION_FAILED
        "At least one of the pre-conditions you specified did not hold";
    Redirect TEMPORARY_REDIRECT
        "Temporary redirect. You are being redirected while DNS updates.";
    ReplicationConfigurationNotFoundError NOT_FOUND
        "The replication configuration was not found";
    ReplicationParameterValueError BAD_REQUEST "A parameter of the replication is not valid.";
    RequestHeaderSectionTooLarge BAD_REQUEST
        "The request header and query parameters used to make the request exceed the maximum \
         allowed size.";
    RequestIsNotMultiPartContent BAD_REQUEST
        "Bucket POST must be of the enclosure-type multipart/form-data.";
    RequestTimeTooSkewed FORBIDDEN
        "The difference between the request time and the current time is too large.";
    RequestTimeout BAD_REQUEST
        "Your socket connection to the server was not read from or written to within the timeout \
         period.";
    RequestTorrentOfBucketError BAD_REQUEST
        "Requesting the torrent file of a bucket is not permitted.";
    ResponseInterrupted BAD_REQUEST "The response was interrupted.";
    RestoreAlreadyInProgress CONFLICT "Object restore is already in progress.";
    /// S3 answers 404; its list says 400.
    ServerSideEncryptionConfigurationNotFoundError NOT_FOUND
        "The server side encryption configuration was not found";
    ServiceUnavailable SERVICE_UNAVAILABLE "Please reduce your request rate.";
    SignatureDoesNotMatch FORBIDDEN
        "The request signature we calculated does not match the signature you provided. Check \
         your key and signing method.";
    SlowDown SERVICE_UNAVAILABLE "Please reduce your request rate.";
    TagPolicyException BAD_REQUEST "The tag policy does not allow the specified value.";
    TemporaryRedirect TEMPORARY_REDIRECT
        "You are being redirected to the bucket while the DNS server is being updated.";
    TokenCodeInvalidError BAD_REQUEST "The serial number or token code is not valid.";
    TokenRefreshRequired BAD_REQUEST "The provided token must be refreshed.";
    TooManyAccessPoints BAD_REQUEST
        "You have attempted to create more access points than allowed.";
    TooManyBuckets BAD_REQUEST "You have attempted to create more buckets than allowed";
    TooManyMultiRegionAccessPointregionsError BAD_REQUEST
        "You have attempted to create a Multi-Region Access Point with too many regions.";
    TooManyMultiRegionAccessPoints BAD_REQUEST
        "You have attempted to create more Multi-Region Access Points than allowed.";
    TooManyParts BAD_REQUEST "You have attempted to add more parts than allowed.";
    TooManyTags BAD_REQUEST "The number of tags exceeds the limit of 50 tags.";
    UnauthorizedAccess UNAUTHORIZED "You are not authorized to perform this operation";
    UnauthorizedAccessError FORBIDDEN "The bucket's region needs credentials of its own.";
    UnexpectedContent BAD_REQUEST "This request does not support content.";
    UnexpectedIPError FORBIDDEN "The IP address of the request is not expected.";
    UnresolvableGrantByEmailAddress BAD_REQUEST
        "The email address you provided does not match any account on record.";
    UnsupportedArgument BAD_REQUEST "The request contained an unsupported argument.";
    UnsupportedSignature BAD_REQUEST
        "The provided request is signed with an unsupported STS Token version or the signature \
         version is not supported.";
    UserKeyMustBeSpecified BAD_REQUEST
        "The bucket POST must contain the specified field name. If it is specified, please check \
         the order of the fields.";
    XAmzContentSHA256Mismatch BAD_REQUEST
        "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

impl Code {
    /// Reads a code, spelled exactly as S3 spells it.
    ///
    /// `None` for a code that is not in the table, which is no fault of whoever sent it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_code_is_read_back_as_itself() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        let spellings: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(spellings.len(), Code::ALL.len());
        for unknown in ["", "nosuchkey", "NoSuchKey ", "ParseUnexpectedToken"] {
            assert_eq!(Code::parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn each_code_is_an_error_with_a_message_of_one_line() {
        for code in Code::ALL {
            let status = code.status().as_u16();
            assert!((300..600).contains(&status), "{code}: {status}");
            assert!(!code.message().is_empty(), "{code}");
            assert!(!code.message().contains(['\n', '\r']), "{code}");
            assert!(!code.message().contains("  "), "{code}");
        }
    }

    #[test]
    fn statuses_are_those_that_clients_rely_on() {
        for (code, status) in [
            (Code::AccessDenied, 403),
            (Code::AuthorizationHeaderMalformed, 400),
            (Code::BucketNotEmpty, 409),
            (Code::ConditionalRequestConflict, 409),
            (Code::InternalError, 500),
            (Code::InvalidObjectState, 403),
            (Code::InvalidRange, 416),
            (Code::MethodNotAllowed, 405),
            (Code::MissingContentLength, 411),
            (Code::NoSuchBucket, 404),
            (Code::NotImplemented, 501),
            (Code::NotModified, 304),
            (Code::PermanentRedirect, 301),
            (Code::PreconditionFailed, 412),
            (Code::RequestTimeTooSkewed, 403),
            (Code::RequestTimeout, 400),
            (Code::ServiceUnavailable, 503),
            (Code::SignatureDoesNotMatch, 403),
            (Code::SlowDown, 503),
            (Code::XAmzContentSHA256Mismatch, 400),
        ] {
            assert_eq!(code.status().as_u16(), status, "{code}");
        }
    }
}
