//! Why a signature was refused, with the code and the words that S3 uses.

use std::fmt;

use super::SKEW_SECONDS_MAX;
use crate::time::{AmzDate, rfc3339_millis};

/// Where the signature stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the `Authorization` header.
    Header,
    /// In the query of a presigned URL.
    Query,
    /// In the fields of a POST form.
    Post,
}

/// What is wrong with a credential scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeFault {
    /// Not `key/yyyyMMdd/region/service/aws4_request`.
    Malformed,
    /// The date is not eight digits.
    Date(String),
    /// A region that this endpoint is not in.
    Region {
        /// The region signed for.
        given: String,
        /// The region to sign for.
        expected: String,
    },
    /// A service other than S3.
    Service {
        /// The service signed for.
        given: String,
        /// The service to sign for.
        expected: String,
    },
    /// Something other than `aws4_request` at the end.
    Terminal(String),
    /// The scope's day is not the day of the request.
    DateMismatch {
        /// The day of the scope.
        scope: String,
        /// The day of the request.
        request: String,
    },
}

impl fmt::Display for ScopeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str(
                "the Credential is mal-formed; expecting \
                 \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
            ),
            Self::Date(given) => write!(
                f,
                "incorrect date format \"{given}\". This date in the credential must be in the \
                 format \"yyyyMMdd\"."
            ),
            Self::Region { given, expected } => {
                write!(f, "the region '{given}' is wrong; expecting '{expected}'")
            }
            Self::Service { given, expected } => write!(
                f,
                "incorrect service \"{given}\". This endpoint belongs to \"{expected}\"."
            ),
            Self::Terminal(given) => write!(
                f,
                "incorrect terminal \"{given}\". This endpoint uses \"aws4_request\"."
            ),
            Self::DateMismatch { scope, request } => write!(
                f,
                "Invalid credential date \"{scope}\". This date is not the same as X-Amz-Date: \
                 \"{request}\"."
            ),
        }
    }
}

/// What is wrong with `X-Amz-Expires`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiresFault {
    /// Not a number.
    NotANumber,
    /// Zero or less.
    NotPositive,
    /// More than a week.
    TooLong,
}

/// The two texts that a client needs to find out where its signature went astray.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The key that the request named.
    pub access_key_id: String,
    /// The signature that the request brought.
    pub signature_provided: String,
    /// What this side signed.
    pub string_to_sign: String,
    /// The canonical request as this side reads it; empty where there is none.
    pub canonical_request: String,
}

/// Why a request is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Both a header and a query signature.
    #[error(
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
         query string parameter or the Authorization header should be specified"
    )]
    TwoMechanisms,
    /// An `Authorization` scheme that S3 does not know.
    #[error("Unsupported Authorization Type")]
    UnsupportedType,
    /// Signature Version 2 or 4A.
    #[error(
        "The authorization mechanism you have provided is not supported. Please use \
         AWS4-HMAC-SHA256."
    )]
    UnsupportedMechanism,
    /// A credential scope that is malformed or for somewhere else.
    #[error("{}{fault}", .form.scope_prefix(.fault))]
    Scope {
        /// Where the credential stood.
        form: Form,
        /// What is wrong with it.
        fault: ScopeFault,
    },
    /// A piece of the `Authorization` header that is not `name=value`.
    #[error(
        "The authorization header is malformed; the authorization component \"{0}\" is malformed."
    )]
    HeaderComponent(String),
    /// The `Authorization` header lacks one of its three components.
    #[error(
        "The authorization header is malformed; the authorization header requires three \
         components: Credential, SignedHeaders, and Signature."
    )]
    HeaderComponentMissing,
    /// A presigned query lacks one of its six parameters.
    #[error(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    )]
    QueryParameterMissing,
    /// An `X-Amz-Algorithm` other than ours.
    #[error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")]
    QueryAlgorithm,
    /// An `X-Amz-Date` that is not one.
    #[error("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")]
    QueryDate,
    /// An `X-Amz-Expires` out of `1..=604800`.
    #[error("{}", match .0 {
        ExpiresFault::NotANumber => "X-Amz-Expires should be a number",
        ExpiresFault::NotPositive => "X-Amz-Expires must be non-negative",
        ExpiresFault::TooLong => "X-Amz-Expires must be less than a week (in seconds); that is, \
            the given X-Amz-Expires must be less than 604800 seconds",
    })]
    QueryExpires(ExpiresFault),
    /// Neither `x-amz-date` nor `Date` holds a date.
    #[error("AWS authentication requires a valid Date or x-amz-date header")]
    DateMissing,
    /// The request was signed too long ago, or will be too long from now.
    #[error("The difference between the request time and the current time is too large.")]
    TimeTooSkewed {
        /// When the request says it was signed.
        request: AmzDate,
        /// The gateway's time.
        server_unix_seconds: i64,
    },
    /// A presigned URL from the future.
    #[error("Request is not yet valid")]
    NotYetValid,
    /// A presigned URL past its life.
    #[error("Request has expired")]
    Expired {
        /// The life that was signed.
        expires_seconds: u32,
        /// When it ended.
        expired_unix_seconds: i64,
        /// The gateway's time.
        server_unix_seconds: i64,
    },
    /// `host` or an `x-amz-*` header is present and not signed.
    #[error("There were headers present in the request which were not signed")]
    HeadersNotSigned(String),
    /// No `x-amz-content-sha256`.
    #[error("Missing required header for this request: x-amz-content-sha256")]
    ContentSha256Missing,
    /// An `x-amz-content-sha256` that is neither a digest nor one of the words.
    #[error(
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, \
         STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, \
         STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value."
    )]
    ContentSha256Invalid(String),
    /// The signature is not what the key gives for this request, or a signed header is absent.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check \
         your key and signing method."
    )]
    SignatureDoesNotMatch(Box<Mismatch>),
}

impl AuthError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TwoMechanisms
            | Self::UnsupportedType
            | Self::ContentSha256Invalid(_)
            | Self::Scope {
                form: Form::Post, ..
            } => "InvalidArgument",
            Self::UnsupportedMechanism | Self::ContentSha256Missing => "InvalidRequest",
            Self::Scope {
                form: Form::Header, ..
            }
            | Self::HeaderComponent(_)
            | Self::HeaderComponentMissing => "AuthorizationHeaderMalformed",
            Self::Scope {
                form: Form::Query, ..
            }
            | Self::QueryParameterMissing
            | Self::QueryAlgorithm
            | Self::QueryDate
            | Self::QueryExpires(_) => "AuthorizationQueryParametersError",
            Self::DateMissing
            | Self::NotYetValid
            | Self::Expired { .. }
            | Self::HeadersNotSigned(_) => "AccessDenied",
            Self::TimeTooSkewed { .. } => "RequestTimeTooSkewed",
            Self::SignatureDoesNotMatch(_) => "SignatureDoesNotMatch",
        }
    }

    /// The elements that S3 adds to the error document of this code, by name.
    pub fn extras(&self) -> Vec<(&'static str, String)> {
        let iso = |unix_seconds: i64| rfc3339_seconds(unix_seconds);
        match self {
            Self::UnsupportedType | Self::TwoMechanisms => {
                vec![("ArgumentName", "Authorization".to_owned())]
            }
            Self::ContentSha256Invalid(given) => vec![
                ("ArgumentName", "x-amz-content-sha256".to_owned()),
                ("ArgumentValue", given.clone()),
            ],
            Self::Scope {
                fault: ScopeFault::Region { expected, .. },
                ..
            } => {
                vec![("Region", expected.clone())]
            }
            Self::TimeTooSkewed {
                request,
                server_unix_seconds,
            } => vec![
                ("RequestTime", request.to_string()),
                ("ServerTime", iso(*server_unix_seconds)),
                (
                    "MaxAllowedSkewMilliseconds",
                    (SKEW_SECONDS_MAX * 1000).to_string(),
                ),
            ],
            Self::Expired {
                expires_seconds,
                expired_unix_seconds,
                server_unix_seconds,
            } => vec![
                ("X-Amz-Expires", expires_seconds.to_string()),
                ("Expires", iso(*expired_unix_seconds)),
                ("ServerTime", iso(*server_unix_seconds)),
            ],
            Self::HeadersNotSigned(names) => vec![("HeadersNotSigned", names.clone())],
            Self::SignatureDoesNotMatch(mismatch) => vec![
                ("AWSAccessKeyId", mismatch.access_key_id.clone()),
                ("StringToSign", mismatch.string_to_sign.clone()),
                ("SignatureProvided", mismatch.signature_provided.clone()),
                ("CanonicalRequest", mismatch.canonical_request.clone()),
            ],
            Self::UnsupportedMechanism
            | Self::Scope { .. }
            | Self::HeaderComponent(_)
            | Self::HeaderComponentMissing
            | Self::QueryParameterMissing
            | Self::QueryAlgorithm
            | Self::QueryDate
            | Self::QueryExpires(_)
            | Self::DateMissing
            | Self::NotYetValid
            | Self::ContentSha256Missing => Vec::new(),
        }
    }
}

impl Form {
    /// What S3 says before the fault itself, which depends on where the credential stood.
    const fn scope_prefix(self, fault: &ScopeFault) -> &'static str {
        match (self, fault) {
            (Self::Header, _) => "The authorization header is malformed; ",
            (Self::Query, ScopeFault::DateMismatch { .. }) | (Self::Post, _) => "",
            (Self::Query, _) => "Error parsing the X-Amz-Credential parameter; ",
        }
    }
}

/// `2013-05-24T00:00:00Z`, the form of the times inside error documents.
fn rfc3339_seconds(unix_seconds: i64) -> String {
    let text = rfc3339_millis(unix_seconds.saturating_mul(1000));
    format!("{}Z", &text.as_str()[..19])
}
