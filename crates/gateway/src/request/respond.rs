//! Answers: what a store said, or the S3 document of why it could not.
//!
//! The only place where an [`Error`] becomes an answer. An origin's own error is a response like
//! any other and passes through as it came.

use std::{cell::RefCell, time::Duration};

use forebay_s3::{code::Code, xml::ErrorDocument};
use forebay_store::{CacheStatus, Error, Refusal, Response};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::exchange::{Exchange, Sending};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What a client that was told to slow down waits when nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes the answer of an exchange, which ends when its body has left.
pub(super) fn respond(
    mut exchange: Exchange,
    result: Result<Response, Error>,
) -> http::Response<Sending> {
    let response = match result {
        Ok(response) => response,
        Err(error) => failed(&mut exchange, error),
    };
    let Response {
        status,
        mut headers,
        body,
        cache,
    } = response;
    // An origin's own id stays: its support asks for it.
    headers.entry(REQUEST_ID).or_insert_with(|| {
        HeaderValue::from_bytes(&exchange.id().to_text()).expect("hex digits are a header value")
    });
    if let Some(cache) = cache
        && let Ok(value) = print(cache, &exchange.connection().worker.shared.settings.name)
    {
        // After those of caches behind this one: RFC 9211 §2 has the origin's nearest first.
        headers.append(CACHE_STATUS, value);
    }
    exchange.is_answered(status, &headers, cache);
    let mut answer = http::Response::new(Sending::new(body, exchange));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

thread_local! {
    /// The last `Cache-Status` of this thread and its printed form: hits of a second are alike.
    /// A thread serves one gateway, so the name is always the same.
    static PRINTED: RefCell<Option<(CacheStatus, HeaderValue)>> = const { RefCell::new(None) };
}

/// `Cache-Status` in its printed form, of the gateway of this name.
fn print(cache: CacheStatus, name: &str) -> Result<HeaderValue, header::InvalidHeaderValue> {
    PRINTED.with_borrow_mut(|printed| {
        if let Some((status, value)) = printed
            && *status == cache
        {
            return Ok(value.clone());
        }
        let value = HeaderValue::try_from(cache.named(name).to_string())?;
        *printed = Some((cache, value.clone()));
        Ok(value)
    })
}

/// A refusal with the code that a leaf error names.
pub(super) fn refusal(code: &str, message: String, details: Vec<(&'static str, String)>) -> Error {
    let Some(code) = Code::parse(code) else {
        return Error::internal("name an error", format!("{code} is no S3 error code"));
    };
    let mut error = Error::refused_because(code, message);
    if let Error::Refused(refusal) = &mut error {
        refusal.details = details;
    }
    error
}

/// What a client is told about an error.
fn told(error: Error) -> (Box<Refusal>, Option<Duration>) {
    let refused = |code: Code, message: Option<String>| {
        let message = message.map_or_else(|| code.message().into(), Into::into);
        let (details, headers) = (Vec::new(), http::HeaderMap::new());
        Box::new(Refusal {
            code,
            message,
            details,
            headers,
        })
    };
    match error {
        Error::Refused(refusal) => (refusal, None),
        Error::SlowDown { retry_after } => (
            refused(Code::SlowDown, None),
            Some(retry_after.unwrap_or(RETRY_AFTER)),
        ),
        Error::Unavailable { reason } => {
            let message = format!("The store behind this gateway is unavailable: {reason}");
            (
                refused(Code::ServiceUnavailable, Some(message)),
                Some(RETRY_AFTER),
            )
        }
        Error::Cut { reason } => {
            let message = format!("The store behind this gateway broke off: {reason}");
            (
                refused(Code::ServiceUnavailable, Some(message)),
                Some(RETRY_AFTER),
            )
        }
        Error::Indeterminate { .. } => {
            let message = "The outcome of this write is unknown: read back before you repeat it.";
            (refused(Code::InternalError, Some(message.to_owned())), None)
        }
        Error::ClientGone => (refused(Code::IncompleteBody, None), None),
        Error::Internal { .. } => (refused(Code::InternalError, None), None),
    }
}

/// The answer for an error.
#[cold]
pub(super) fn failed(exchange: &mut Exchange, error: Error) -> Response {
    log(exchange, &error);
    let (refusal, retry_after) = told(error);
    let Refusal {
        code,
        message,
        details,
        headers,
    } = *refusal;
    exchange.is_refused(code);
    let mut response = Response::new(code.status());
    response.headers = headers;
    // With errors only, where support asks for it: on a hit its bytes would be a measurable part.
    let host_id = exchange.connection().worker.host_id();
    response.headers.insert(HOST_ID, host_id.clone());
    if let Some(retry_after) = retry_after {
        let seconds = retry_after.as_secs().max(1);
        response.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if code.status() == StatusCode::NOT_MODIFIED {
        return response;
    }
    let xml = HeaderValue::from_static("application/xml");
    response = response.with_header(header::CONTENT_TYPE, xml);
    if *exchange.method() == Method::HEAD {
        return response;
    }
    let request_id = exchange.id().to_string();
    let details: Vec<_> = details
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let document = ErrorDocument {
        code,
        message: &message,
        resource: exchange.path(),
        request_id: &request_id,
        host_id: exchange
            .connection()
            .worker
            .host_id()
            .to_str()
            .unwrap_or_default(),
        details: &details,
    };
    response.with_body(document.to_xml())
}

/// Errors of this process and of its stores are logged here, once; a client's are not.
fn log(exchange: &Exchange, error: &Error) {
    let (request_id, operation) = (exchange.id(), exchange.operation().as_str());
    match error {
        Error::Refused(_) | Error::ClientGone => {}
        Error::SlowDown { .. } => {
            tracing::debug!(%request_id, operation, "told to slow down");
        }
        Error::Unavailable { .. } | Error::Indeterminate { .. } | Error::Cut { .. } => {
            tracing::warn!(%request_id, operation, %error, "store failed");
        }
        Error::Internal { source, .. } => {
            let cause = source.as_ref().map(tracing::field::display);
            tracing::error!(%request_id, operation, %error, cause, "request failed");
        }
    }
}
