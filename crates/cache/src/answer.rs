//! Makes the answer to a read of a version record, but for the body.
//!
//! Pure: the hit path and the end of a fill's beginning both call it, so a client can't tell one
//! from the other but by `Age` and `Cache-Status`.
//!
//! Sources: RFC 9110 §13 (conditions), §14 (ranges), §15.4.5 (what a 304 carries); the Amazon S3
//! API Reference, `GetObject` and `HeadObject`.

use std::ops::Range;

use forebay_s3::{
    code::Code,
    condition::{Outcome, RangeUse},
    range::RangeHeader,
};
use forebay_store::{Error, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::{
    headers,
    plan::{ChecksumMode, Part, Plan},
    version::{Checksums, Version},
};

/// What a version record says to a read.
#[derive(Debug)]
pub(crate) enum Answer {
    /// This, and there is no body.
    Empty(Response),
    /// The request is refused: 412 or 416.
    Refused(Error),
    /// This, with these bytes of the object as the body.
    Body(Response, Range<u64>),
}

/// Headers that a 304 carries: those that tell a client what it has, not what the object is.
const NOT_MODIFIED: [HeaderName; 7] = [
    header::AGE,
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::VARY,
];

/// Seconds up to which `Age` costs no allocation: the default ttl.
const AGES: [&str; 61] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
    "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32",
    "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47", "48",
    "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60",
];

/// Answers `plan` with `version`, which is so many seconds old; `None` when it came from the
/// origin just now.
pub(crate) fn answer(plan: &Plan, version: &Version, age_seconds: Option<i64>) -> Answer {
    if let Some(conditions) = &plan.conditions {
        match conditions.evaluate_read(&version.etag, version.modified) {
            Outcome::Proceed => {}
            Outcome::NotModified => return Answer::Empty(not_modified(version, age_seconds)),
            Outcome::Failed(condition) => return Answer::Refused(failed(condition)),
        }
    }
    let range = match plan.part {
        Part::Range(range) if range_counts(plan, version) => range,
        Part::Range(_) | Part::Whole => {
            let response = response(StatusCode::OK, plan, version, age_seconds);
            return Answer::Body(response, 0..version.size_bytes);
        }
        Part::Head => {
            return Answer::Empty(response(StatusCode::OK, plan, version, age_seconds));
        }
    };
    let Ok(resolved) = range.resolve(version.size_bytes) else {
        return Answer::Refused(not_satisfiable(range, version.size_bytes));
    };
    let mut response = response(StatusCode::PARTIAL_CONTENT, plan, version, age_seconds);
    let content_range = header_value(resolved.content_range(version.size_bytes));
    response
        .headers
        .insert(header::CONTENT_RANGE, content_range);
    response
        .headers
        .insert(header::CONTENT_LENGTH, resolved.len().into());
    Answer::Body(response, resolved.start()..resolved.end())
}

fn range_counts(plan: &Plan, version: &Version) -> bool {
    plan.conditions.as_ref().is_none_or(|conditions| {
        conditions.range_use(&version.etag, version.modified) == RangeUse::Apply
    })
}

fn response(
    status: StatusCode,
    plan: &Plan,
    version: &Version,
    age_seconds: Option<i64>,
) -> Response {
    let mut response = Response::new(status);
    response.headers = version.headers.clone();
    set_age(&mut response.headers, age_seconds);
    // The checksums are those of the whole object, so a range goes without.
    if plan.checksums == ChecksumMode::Enabled
        && status == StatusCode::OK
        && let Checksums::Known(checksums) = &version.checksums
    {
        response.headers.extend(checksums.iter().cloned());
    }
    for (name, value) in &plan.overrides {
        response.headers.insert(name, value.clone());
    }
    response
}

/// The record has an `Age` already, so setting it hashes one name and moves nothing.
pub(crate) fn set_age(answer: &mut HeaderMap, age_seconds: Option<i64>) {
    let Some(seconds) = age_seconds else {
        answer.remove(header::AGE);
        return;
    };
    let known = usize::try_from(seconds)
        .ok()
        .and_then(|seconds| AGES.get(seconds));
    let value = known.map_or_else(
        || seconds.max(0).into(),
        |text| HeaderValue::from_static(text),
    );
    match answer.get_mut(header::AGE) {
        Some(age) => *age = value,
        None => {
            answer.insert(header::AGE, value);
        }
    }
}

fn not_modified(version: &Version, age_seconds: Option<i64>) -> Response {
    let mut response = Response::new(StatusCode::NOT_MODIFIED);
    for name in NOT_MODIFIED {
        if let Some(value) = version.headers.get(&name) {
            response.headers.insert(name, value.clone());
        }
    }
    set_age(&mut response.headers, age_seconds);
    response
}

fn failed(condition: &'static str) -> Error {
    let mut error = Error::refused(Code::PreconditionFailed);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push(("Condition", condition.to_owned()));
    }
    error
}

fn not_satisfiable(range: RangeHeader, size_bytes: u64) -> Error {
    let mut error = Error::refused(Code::InvalidRange);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push(("RangeRequested", range.to_string()));
        refusal
            .details
            .push(("ActualObjectSize", size_bytes.to_string()));
        refusal.headers.insert(
            header::CONTENT_RANGE,
            header_value(format!("bytes */{size_bytes}")),
        );
    }
    error
}

fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and ASCII punctuation are a header value")
}

/// Makes an answer of the origin that is not kept one to this client: it did not ask for the
/// checksums, but the fill did, and the fill left out its `response-*` parameters.
pub(crate) fn adapt(plan: &Plan, mut response: Response) -> Response {
    if plan.checksums == ChecksumMode::Off {
        let checksums: Vec<_> = response
            .headers
            .keys()
            .filter(|name| headers::is_checksum(name))
            .cloned()
            .collect();
        for name in checksums {
            response.headers.remove(name);
        }
    }
    if response.status.is_success() {
        for (name, value) in &plan.overrides {
            response.headers.insert(name, value.clone());
        }
    }
    response
}
