//! The answers to reads and writes of objects: headers from a record.

use forebay_s3::{checksum::ObjectChecksum, time};
use forebay_store::{Query, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::{engine::Opened, reading::Extent, record::ObjectRecord, xml::Document};

/// What S3 says of an object whose writer named no type.
const DEFAULT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");
/// Parameters of a GET that replace a header of its answer.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", header::CACHE_CONTROL),
    ("response-content-disposition", header::CONTENT_DISPOSITION),
    ("response-content-encoding", header::CONTENT_ENCODING),
    ("response-content-language", header::CONTENT_LANGUAGE),
    ("response-content-type", header::CONTENT_TYPE),
    ("response-expires", header::EXPIRES),
];

/// Whether an answer carries checksums (`x-amz-checksum-mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChecksumMode {
    /// It does.
    Enabled,
    /// It does not.
    Off,
}

impl ChecksumMode {
    /// Reads the header; S3 does not look at its case.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let enabled = headers
            .get("x-amz-checksum-mode")
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"enabled"));
        if enabled { Self::Enabled } else { Self::Off }
    }
}

/// The answer to `GetObject` or `HeadObject`.
pub(crate) fn object(
    opened: Opened,
    extent: &Extent,
    checksum_mode: ChecksumMode,
    query: &Query,
) -> Response {
    let Opened { record, plan, body } = opened;
    let mut response = Response::new(plan.status).with_body(body);
    let headers = &mut response.headers;
    set(headers, Some(header::ETAG), &record.etag.to_string());
    last_modified(headers, &record);
    for (name, value) in &record.attributes.headers {
        set(headers, HeaderName::try_from(name.as_str()).ok(), value);
    }
    if plan.status == StatusCode::NOT_MODIFIED {
        headers.remove(header::CONTENT_TYPE);
        return response;
    }
    headers.entry(header::CONTENT_TYPE).or_insert(DEFAULT_TYPE);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CONTENT_LENGTH,
        (plan.span.end - plan.span.start).into(),
    );
    if plan.status == StatusCode::PARTIAL_CONTENT {
        let (first, last) = (plan.span.start, plan.span.end - 1);
        let range = format!("bytes {first}-{last}/{}", record.size_bytes);
        set(headers, Some(header::CONTENT_RANGE), &range);
    }
    for (name, value) in &record.attributes.user {
        set(
            headers,
            HeaderName::try_from(format!("x-amz-meta-{name}")).ok(),
            value,
        );
    }
    if !record.attributes.tags.is_empty() {
        let count = record.attributes.tags.len().into();
        headers.insert(HeaderName::from_static("x-amz-tagging-count"), count);
    }
    if let (Extent::Part { .. }, Some(count)) = (extent, record.part_count) {
        headers.insert(
            HeaderName::from_static("x-amz-mp-parts-count"),
            count.into(),
        );
    }
    if checksum_mode == ChecksumMode::Enabled {
        let kind = record.checksum.map(|sum| sum.kind().name());
        let whole = plan.span.end - plan.span.start == record.size_bytes;
        let of_part = match extent {
            Extent::Part { checksum, .. } => checksum.map(|checksum| ObjectChecksum {
                checksum,
                part_count: None,
            }),
            Extent::Whole | Extent::Range(_) => None,
        };
        if let Some(sum) = of_part.or(record.checksum.filter(|_| whole)) {
            checksum(headers, &sum, kind.unwrap_or(sum.kind().name()));
        }
    }
    for (parameter, name) in OVERRIDES {
        if let Some(value) = query.get(parameter) {
            set(headers, Some(name), &value);
        }
    }
    response
}

/// `Last-Modified`.
pub(crate) fn last_modified(headers: &mut HeaderMap, record: &ObjectRecord) {
    let modified = time::http_date(record.modified_ms.div_euclid(1000));
    set(headers, Some(header::LAST_MODIFIED), modified.as_str());
}

/// `x-amz-checksum-*` and `x-amz-checksum-type`.
pub(crate) fn checksum(headers: &mut HeaderMap, sum: &ObjectChecksum, kind: &'static str) {
    let name = HeaderName::from_static(sum.checksum.algorithm().header());
    set(headers, Some(name), &sum.to_string());
    let kind = HeaderValue::from_static(kind);
    headers.insert(HeaderName::from_static("x-amz-checksum-type"), kind);
}

/// Writes the checksum elements of a document.
pub(crate) fn checksum_elements(document: &mut Document, sum: &ObjectChecksum) {
    document
        .number(sum.checksum.algorithm().xml_element(), sum)
        .element("ChecksumType", sum.kind().name());
}

/// The answer to a write of an object: its tag and checksum.
pub(crate) fn written(record: &ObjectRecord) -> Response {
    let mut response = Response::new(StatusCode::OK);
    set(
        &mut response.headers,
        Some(header::ETAG),
        &record.etag.to_string(),
    );
    if let Some(sum) = &record.checksum {
        checksum(&mut response.headers, sum, sum.kind().name());
    }
    response
}

/// An answer with a document.
pub(crate) fn document(document: Document) -> Response {
    let kind = HeaderValue::from_static("application/xml");
    Response::new(StatusCode::OK)
        .with_header(header::CONTENT_TYPE, kind)
        .with_body(document.finish())
}

/// Sets a header; a value that no header can carry is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: Option<HeaderName>, value: &str) {
    if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
        headers.insert(name, value);
    }
}
