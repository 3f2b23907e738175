//! Browser uploads: a `multipart/form-data` POST whose policy, signed by a key holder, says what
//! the form may upload.
//!
//! 1. [`FormReader`] takes the body as it arrives, collects the fields that stand before the file
//!    (at most [`FIELDS_BYTES_MAX`]) and then gives the file on without a copy.
//! 2. [`FormFields::signature`] reads the signature among the fields; `None` for a form without
//!    one, which is anonymous. [`PostSignature::verify`] judges it.
//! 3. [`PostPolicy::parse`] and [`PostPolicy::check`] judge the fields by the policy, and
//!    [`PostPolicy::check_length`] the file's length once it is known.
//!
//! Fields after the file are ignored, as S3 does. Signature Version 2 forms are refused.
//!
//! Sources: "Browser-Based Uploads Using POST" of the S3 API reference; RFC 7578 and RFC 2046
//! §5.1 for the coding; error texts as S3 sends them.

mod form;
mod policy;
mod signature;
#[cfg(test)]
mod tests;

pub use form::{FormFields, FormReader, Step, SuccessAction};
pub use policy::PostPolicy;
pub use signature::PostSignature;

use crate::sigv4::AuthError;

/// The most that everything before the file may take: S3's limit of 20 KB.
pub const FIELDS_BYTES_MAX: usize = 20 * 1024;

/// Why a form is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The body is not announced as a form.
    #[error("At least one of the pre-conditions you specified did not hold")]
    NotAForm,
    /// The body is not a form.
    #[error("The body of your POST request is not well-formed multipart/form-data. ({0})")]
    Malformed(&'static str),
    /// The fields before the file exceed [`FIELDS_BYTES_MAX`].
    #[error("Your POST request fields preceding the upload file were too large.")]
    FieldsTooLarge,
    /// The form has no file.
    #[error("POST requires exactly one file upload per request.")]
    FileMissing,
    /// A field that S3 needs is missing.
    #[error(
        "Bucket POST must contain a field named '{0}'.  If it is specified, please check the \
         order of the fields."
    )]
    FieldMissing(&'static str),
    /// The policy is not one.
    #[error("Invalid Policy: {0}")]
    InvalidPolicy(String),
    /// The policy does not allow this form.
    #[error("Invalid according to Policy: {0}")]
    Refused(String),
    /// The file is larger than the policy allows.
    #[error("Your proposed upload exceeds the maximum allowed size")]
    TooLarge {
        /// The file's length, or what has come of it.
        proposed_bytes: u64,
        /// The most allowed.
        bytes_max: u64,
    },
    /// The file is smaller than the policy allows.
    #[error("Your proposed upload is smaller than the minimum allowed size")]
    TooSmall {
        /// The file's length.
        proposed_bytes: u64,
        /// The least allowed.
        bytes_min: u64,
    },
    /// The signature is not good.
    #[error(transparent)]
    Signature(#[from] AuthError),
}

impl PostError {
    /// The S3 error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAForm => "PreconditionFailed",
            Self::Malformed(_) => "MalformedPOSTRequest",
            Self::FieldsTooLarge => "MaxPostPreDataLengthExceededError",
            Self::FileMissing | Self::FieldMissing(_) => "InvalidArgument",
            Self::InvalidPolicy(_) => "InvalidPolicyDocument",
            Self::Refused(_) => "AccessDenied",
            Self::TooLarge { .. } => "EntityTooLarge",
            Self::TooSmall { .. } => "EntityTooSmall",
            Self::Signature(error) => error.code(),
        }
    }

    /// The elements that S3 adds to the error document of this code, by name.
    pub fn extras(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::TooLarge {
                proposed_bytes,
                bytes_max,
            } => vec![
                ("ProposedSize", proposed_bytes.to_string()),
                ("MaxSizeAllowed", bytes_max.to_string()),
            ],
            Self::TooSmall {
                proposed_bytes,
                bytes_min,
            } => vec![
                ("ProposedSize", proposed_bytes.to_string()),
                ("MinSizeAllowed", bytes_min.to_string()),
            ],
            Self::FieldMissing(name) => {
                vec![
                    ("ArgumentName", (*name).to_owned()),
                    ("ArgumentValue", String::new()),
                ]
            }
            Self::NotAForm => vec![(
                "Condition",
                "Bucket POST must be of the enclosure-type multipart/form-data".to_owned(),
            )],
            Self::Signature(error) => error.extras(),
            Self::Malformed(_)
            | Self::FieldsTooLarge
            | Self::FileMissing
            | Self::InvalidPolicy(_)
            | Self::Refused(_) => Vec::new(),
        }
    }
}
