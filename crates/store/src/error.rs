//! Why a request failed, grouped by what the caller must do next.

use std::{borrow::Cow, time::Duration};

use forebay_s3::code::Code;
use http::HeaderMap;

/// The only error that a store returns.
///
/// A variant exists only where a caller acts differently. The gateway turns it into an S3 error
/// document in one place; an error answer of an *origin* is no `Error` but a response, which
/// passes through byte for byte.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request can't be answered as asked, and nothing changed: tell the client, do not retry.
    #[error("{}: {}", .0.code.as_str(), .0.message)]
    Refused(Box<Refusal>),
    /// Refused before it had any effect: try again, no sooner than `retry_after`.
    #[error("busy")]
    SlowDown {
        /// Earliest time for another try.
        retry_after: Option<Duration>,
    },
    /// The origin was not reached, so nothing changed: try elsewhere, or again.
    #[error("origin is unavailable: {reason}")]
    Unavailable {
        /// What was found, for the log and the client: no credentials, no addresses.
        reason: Cow<'static, str>,
    },
    /// A write that may or may not have happened: read back before trying again.
    #[error("outcome unknown after {elapsed:?}")]
    Indeterminate {
        /// Time since the request was sent.
        elapsed: Duration,
    },
    /// A body under way ended before its end: what came of it is not the whole. Cut the
    /// connection, store nothing.
    #[error("body cut: {reason}")]
    Cut {
        /// What was found.
        reason: Cow<'static, str>,
    },
    /// The client went away while its body was being read: nothing changed, nobody to tell.
    #[error("the client went away")]
    ClientGone,
    /// A fault of this process or its disk: log it with its cause, answer `InternalError`.
    #[error("{context}")]
    Internal {
        /// What was being done: verb and object.
        context: Cow<'static, str>,
        /// The cause.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// An S3 error of our own making.
#[derive(Debug)]
pub struct Refusal {
    /// Its code, which fixes the status.
    pub code: Code,
    /// For people.
    pub message: Cow<'static, str>,
    /// Further elements of the error document, such as `("BucketName", …)`.
    pub details: Vec<(&'static str, String)>,
    /// Further headers of the answer, such as `Content-Range` of a 416.
    pub headers: HeaderMap,
}

/// Who is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Whoever sent the request.
    Client,
    /// This process.
    Gateway,
    /// The store that owns the data.
    Origin,
}

impl Error {
    /// A refusal with the message that S3 usually sends with `code`.
    pub fn refused(code: Code) -> Self {
        Self::refused_because(code, code.message())
    }

    /// A refusal with a message of its own.
    pub fn refused_because(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(Box::new(Refusal {
            code,
            message: message.into(),
            details: Vec::new(),
            headers: HeaderMap::new(),
        }))
    }

    /// A body longer than `bytes_max`.
    pub fn too_large(bytes_max: usize) -> Self {
        let mut error = Self::refused(Code::EntityTooLarge);
        if let Self::Refused(refusal) = &mut error {
            refusal
                .details
                .push(("MaxSizeAllowed", bytes_max.to_string()));
        }
        error
    }

    /// A fault of this process, with its cause.
    pub fn internal(
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Internal {
            context: context.into(),
            source: Some(source.into()),
        }
    }

    /// Whether the same request may be sent again as it is.
    ///
    /// Exhaustive on purpose: whoever adds a variant must decide.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::SlowDown { .. } | Self::Unavailable { .. } => true,
            Self::Refused(_)
            | Self::Indeterminate { .. }
            | Self::Cut { .. }
            | Self::ClientGone
            | Self::Internal { .. } => false,
        }
    }

    /// Who is at fault.
    pub fn side(&self) -> Side {
        match self {
            Self::Refused(_) | Self::ClientGone => Side::Client,
            Self::SlowDown { .. } | Self::Internal { .. } => Side::Gateway,
            Self::Unavailable { .. } | Self::Indeterminate { .. } | Self::Cut { .. } => {
                Side::Origin
            }
        }
    }
}
