//! What a failed attempt means: for [`crate::retry`], and for the client if it was the last.
//!
//! Whether a write may have happened is decided here. Nothing has before its request was written;
//! with a payload nothing has before the whole of it was handed over, since its end is held back
//! ([`crate::upload`]).

use std::time::Duration;

use forebay_s3::operation::Effect;
use forebay_store::{Body, Error};
use http::{HeaderMap, header};

use crate::{
    connect::ConnectError,
    exchange::{AnswerBody, SendError},
    pool::{Age, LeaseError},
    retry::Trouble,
    upload::{Phase, Upload},
};

/// A refused answer's body is read up to this size, so that its connection can be used again.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;
/// Longest wait for the rest of a refusal.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);

/// An attempt that gave no answer to pass on.
#[derive(Debug)]
pub(crate) struct Failure {
    pub trouble: Trouble,
    /// What the client is told if that was the last attempt.
    pub outcome: Outcome,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Error(Error),
    /// The origin's own refusal, passed on as it is.
    Answer(Box<http::Response<AnswerBody>>),
}

/// Why there is no further byte of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyTrouble {
    #[error("no byte from the origin for {0:?}")]
    Silent(Duration),
    #[error("the origin closed the connection in the middle of an answer")]
    Broken,
}

impl From<BodyTrouble> for Error {
    fn from(trouble: BodyTrouble) -> Self {
        Self::Cut {
            reason: trouble.to_string().into(),
        }
    }
}

/// What is known of an attempt that was sent.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub effect: Effect,
    pub upload: Option<&'a Upload>,
    pub age: Age,
    pub elapsed: Duration,
}

impl Failure {
    /// A 503, which had no effect.
    pub(crate) fn of_refusal(answer: http::Response<AnswerBody>) -> Self {
        Self {
            trouble: Trouble::SlowDown(retry_after(answer.headers())),
            outcome: Outcome::Answer(Box::new(answer)),
        }
    }

    /// Another answer that another endpoint might not give.
    pub(crate) fn of_server_error(answer: http::Response<AnswerBody>) -> Self {
        Self {
            trouble: Trouble::ServerError,
            outcome: Outcome::Answer(Box::new(answer)),
        }
    }

    /// The request could not be made for its endpoint; nothing was sent.
    pub(crate) fn of_request(error: Error) -> Self {
        Self {
            trouble: Trouble::Final,
            outcome: Outcome::Error(error),
        }
    }

    /// Whether a write may have happened.
    pub(crate) fn is_indeterminate(&self) -> bool {
        matches!(&self.outcome, Outcome::Error(Error::Indeterminate { .. }))
    }

    /// What a failed exchange means, for the rules and for the client.
    pub(crate) fn of_send(error: &SendError, attempt: &Attempt<'_>) -> Self {
        if let Some(fault) = attempt.upload.and_then(Upload::take_fault) {
            // The client's payload broke off: the origin's request was left unfinished.
            return Self {
                trouble: Trouble::Final,
                outcome: Outcome::Error(fault),
            };
        }
        let reason = match error {
            SendError::Unsent | SendError::Closed(_) => {
                "the origin closed the connection before it answered"
            }
            SendError::Malformed(_) => "the origin's answer is not HTTP",
            SendError::TimedOut => "the origin did not answer in time",
            SendError::Late => "no answer before the request's own deadline",
        };
        if let SendError::Closed(cause) | SendError::Malformed(cause) = error {
            tracing::debug!(error = %cause, "request to the origin failed");
        }
        let trouble = match (error, attempt.age) {
            (SendError::Unsent, Age::Reused) => Trouble::StaleUnsent,
            (SendError::Unsent, Age::New) => Trouble::Unreachable,
            (SendError::Closed(_), Age::Reused) => Trouble::StaleClosed,
            (SendError::Closed(_), Age::New) => Trouble::Closed,
            (SendError::TimedOut, _) => Trouble::Silent,
            (SendError::Malformed(_) | SendError::Late, _) => Trouble::Final,
        };
        let may_have_happened = match (error, attempt.effect, attempt.upload) {
            (SendError::Unsent, _, _) | (_, Effect::Read, _) => false,
            (_, Effect::Write, None) => true,
            // Without its end, which is held back, a payload has no effect.
            (_, Effect::Write, Some(upload)) => upload.phase() == Phase::Finished,
        };
        let outcome = if may_have_happened {
            Error::Indeterminate {
                elapsed: attempt.elapsed,
            }
        } else {
            Error::Unavailable {
                reason: reason.into(),
            }
        };
        Self {
            trouble,
            outcome: Outcome::Error(outcome),
        }
    }

    /// What it means that there is no connection.
    pub(crate) fn of_lease(error: LeaseError) -> Self {
        let unavailable = |reason: &'static str| Error::Unavailable {
            reason: reason.into(),
        };
        let (trouble, error) = match error {
            LeaseError::Busy => {
                let retry_after = Some(Duration::from_secs(1));
                (Trouble::Final, Error::SlowDown { retry_after })
            }
            LeaseError::SharedFailure => (
                Trouble::Unanswered,
                unavailable("no connection to the origin"),
            ),
            LeaseError::Connect(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "connect failed");
                match error {
                    ConnectError::Refused(_) => (
                        Trouble::Unreachable,
                        unavailable("the origin refused the connection"),
                    ),
                    ConnectError::Http(_) => {
                        (Trouble::Unreachable, unavailable("no HTTP with the origin"))
                    }
                    ConnectError::TimedOut => (
                        Trouble::Unanswered,
                        unavailable("the origin did not accept a connection in time"),
                    ),
                    ConnectError::Tls(_) => {
                        (Trouble::Unanswered, unavailable("no TLS with the origin"))
                    }
                    ConnectError::NoHttp2 => (
                        Trouble::Unanswered,
                        unavailable("the origin does not speak HTTP/2"),
                    ),
                }
            }
        };
        Self {
            trouble,
            outcome: Outcome::Error(error),
        }
    }
}

impl Outcome {
    /// What the client gets.
    pub(crate) fn into_result(self) -> Result<http::Response<AnswerBody>, Error> {
        match self {
            Self::Error(error) => Err(error),
            Self::Answer(answer) => Ok(*answer),
        }
    }

    /// Reads a small refusal to its end, so that its connection can be used again.
    pub(crate) async fn discard(self) {
        if let Self::Answer(answer) = self {
            let body = Body::stream(answer.into_body());
            // What can't be read in time is dropped with its connection.
            let _ = tokio::time::timeout(REFUSAL_WAIT, body.collect(REFUSAL_BYTES_MAX)).await;
        }
    }
}

/// The pause that an answer asks for, in seconds; a date counts as "later than we wait".
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    Some(
        value
            .trim()
            .parse()
            .map_or(Duration::MAX, Duration::from_secs),
    )
}
