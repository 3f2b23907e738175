//! What a GET or HEAD wants of an object, judged once the object's record is known.
//!
//! An engine opens the object, calls [`Reading::plan`] with what it found, and sends the bytes of
//! the plan's span from the same open object, so that conditions, range and bytes belong together.

use std::ops::Range;

use forebay_s3::{
    checksum::Checksum,
    code::Code,
    condition::{Conditions, Outcome, RangeUse},
    etag::ETag,
    range::RangeHeader,
};
use forebay_store::Error;
use http::{HeaderValue, StatusCode, header};

use crate::{record::ObjectRecord, refuse};

/// What is asked of an object.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Preconditions.
    pub conditions: Conditions,
    /// What of its bytes.
    pub extent: Extent,
    /// Whether the bytes are sent.
    pub payload: Payload,
}

/// What of an object's bytes is asked for.
#[derive(Debug, Clone, Default)]
pub enum Extent {
    /// All of them.
    #[default]
    Whole,
    /// A range.
    Range(RangeHeader),
    /// A part of the version with this tag.
    Part {
        /// Tag of the version that the span belongs to.
        etag: ETag,
        /// Bytes of the part.
        span: Range<u64>,
        /// Checksum of the part, where it has one of its own.
        checksum: Option<Checksum>,
    },
}

/// Whether the bytes are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payload {
    /// GET.
    #[default]
    Sent,
    /// HEAD.
    Withheld,
}

/// How a read is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Status of the answer: 200, 206 or 304.
    pub status: StatusCode,
    /// Bytes that the answer is about.
    pub span: Range<u64>,
    /// Bytes to send: the span, or none for HEAD and 304.
    pub sent: Range<u64>,
}

impl Reading {
    /// Judges an object.
    ///
    /// # Errors
    /// `PreconditionFailed`, `InvalidRange`; `SlowDown` when a part of another version was meant,
    /// for the caller to look again.
    pub fn plan(&self, record: &ObjectRecord) -> Result<Plan, Error> {
        let modified = record.modified_ms.div_euclid(1000);
        match self.conditions.evaluate_read(&record.etag, modified) {
            Outcome::Proceed => {}
            Outcome::NotModified => {
                return Ok(Plan {
                    status: StatusCode::NOT_MODIFIED,
                    span: 0..0,
                    sent: 0..0,
                });
            }
            Outcome::Failed(condition) => return Err(refuse::precondition_failed(condition)),
        }
        let (status, span) = match &self.extent {
            Extent::Range(range)
                if self.conditions.range_use(&record.etag, modified) == RangeUse::Apply =>
            {
                let range = range
                    .resolve(record.size_bytes)
                    .map_err(|_| invalid_range(range, record.size_bytes))?;
                (StatusCode::PARTIAL_CONTENT, range.start()..range.end())
            }
            Extent::Whole | Extent::Range(_) => (StatusCode::OK, 0..record.size_bytes),
            Extent::Part { etag, .. } if *etag != record.etag => {
                return Err(Error::SlowDown { retry_after: None });
            }
            Extent::Part { span, .. } if span.is_empty() => (StatusCode::OK, span.clone()),
            Extent::Part { span, .. } => (StatusCode::PARTIAL_CONTENT, span.clone()),
        };
        let sent = match self.payload {
            Payload::Sent => span.clone(),
            Payload::Withheld => 0..0,
        };
        Ok(Plan { status, span, sent })
    }
}

fn invalid_range(range: &RangeHeader, size_bytes: u64) -> Error {
    let mut error = Error::refused(Code::InvalidRange);
    if let Error::Refused(refusal) = &mut error {
        refusal.details.push(("RangeRequested", range.to_string()));
        refusal
            .details
            .push(("ActualObjectSize", size_bytes.to_string()));
        if let Ok(value) = HeaderValue::try_from(format!("bytes */{size_bytes}")) {
            refusal.headers.insert(header::CONTENT_RANGE, value);
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Attributes;

    fn record(size_bytes: u64) -> ObjectRecord {
        ObjectRecord {
            etag: ETag::strong("a").unwrap(),
            size_bytes,
            modified_ms: 784_111_777_999,
            attributes: Attributes::default(),
            checksum: None,
            part_count: None,
            upload_id: None,
        }
    }

    #[test]
    fn spans_follow_range_and_method() {
        let part = Extent::Part {
            etag: record(0).etag,
            span: 2..4,
            checksum: None,
        };
        let empty = Extent::Part {
            etag: record(0).etag,
            span: 0..0,
            checksum: None,
        };
        let range = |text| Extent::Range(RangeHeader::parse(text).unwrap());
        for (extent, size, status, span) in [
            (Extent::Whole, 10, 200, 0..10),
            (Extent::Whole, 0, 200, 0..0),
            (range("bytes=0-"), 10, 206, 0..10),
            (range("bytes=-3"), 10, 206, 7..10),
            (part, 10, 206, 2..4),
            (empty, 0, 200, 0..0),
        ] {
            let mut reading = Reading {
                extent,
                ..Reading::default()
            };
            let plan = reading.plan(&record(size)).unwrap();
            let sent = span.clone();
            assert_eq!(
                plan,
                Plan {
                    status: StatusCode::from_u16(status).unwrap(),
                    span,
                    sent
                }
            );
            reading.payload = Payload::Withheld;
            let head = reading.plan(&record(size)).unwrap();
            assert_eq!((head.span, head.sent), (plan.span, 0..0));
        }
    }

    #[test]
    fn unmet_conditions_and_ranges_are_refused() {
        let past = Reading {
            extent: Extent::Range(RangeHeader::From { first: 10 }),
            ..Reading::default()
        };
        let Err(Error::Refused(refusal)) = past.plan(&record(10)) else {
            panic!("not refused")
        };
        assert_eq!(refusal.code, Code::InvalidRange);
        assert_eq!(refusal.headers["content-range"], "bytes */10");
        let headers = [("if-match".parse().unwrap(), "b".parse().unwrap())]
            .into_iter()
            .collect();
        let other = Reading {
            conditions: Conditions::from_headers(&headers),
            ..past
        };
        let Err(Error::Refused(refusal)) = other.plan(&record(10)) else {
            panic!("not refused")
        };
        assert_eq!(refusal.code, Code::PreconditionFailed);
        let etag = ETag::strong("b").unwrap();
        let extent = Extent::Part {
            etag,
            span: 0..1,
            checksum: None,
        };
        let stale = Reading {
            extent,
            ..Reading::default()
        };
        assert!(matches!(
            stale.plan(&record(10)),
            Err(Error::SlowDown { .. })
        ));
    }
}
