//! The list of uploads: from their records, as no two members call them alike.
//!
//! Source: Amazon S3 API Reference, `ListMultipartUploads`.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use bytes::Bytes;
use forebay_native::{fragments, listing::position::rolled_up, refuse};
use forebay_s3::{operation::Listing, time, uri};
use forebay_store::{Error, Query, Request, Response};
use http::{HeaderValue, StatusCode, header};

use super::record::{self, Named};
use crate::{journal::Subject, mirror::Shared, read};

/// S3: "up to 1,000 multipart uploads".
const ENTRIES_MAX: usize = 1000;
/// Records read at once.
const RECORDS_MAX: usize = 256;
/// Uploads are nobody's in particular.
const OWNERS: &str = "<Initiator><ID>forebay</ID><DisplayName>forebay</DisplayName></Initiator>\
    <Owner><ID>forebay</ID><DisplayName>forebay</DisplayName></Owner>";

/// What of the list is asked for.
struct Asked<'a> {
    listing: &'a Listing,
    is_url: bool,
    delimiter: Option<String>,
    key_marker: String,
    id_marker: String,
    entries_max: usize,
}

/// A page of it.
#[derive(Default)]
struct Page {
    uploads: Vec<Named>,
    prefixes: Vec<String>,
    /// Key and id of the last of it.
    last: (String, String),
    is_truncated: bool,
}

/// Answers `ListMultipartUploads`.
///
/// # Errors
/// `NoSuchBucket` and the like, of a member; `InvalidArgument`; the index's own.
pub(crate) async fn list_uploads(
    shared: &Arc<Shared>,
    request: Request,
    listing: &Listing,
) -> Result<Response, Error> {
    let asked = Asked::read(listing, &request.query)?;
    // Whether the bucket is there, and whatever else is wrong, a member says.
    let subject = Subject::Bucket(listing.bucket.clone());
    let answer = read::read(shared, request, &subject).await?;
    if !answer.status.is_success() {
        return Ok(answer);
    }
    let page = asked.page(shared).await?;
    let text = asked.write(&page);
    Ok(Response::new(StatusCode::OK)
        .with_header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/xml"),
        )
        .with_header(header::CONTENT_LENGTH, text.len().into())
        .with_body(text))
}

impl<'a> Asked<'a> {
    fn read(listing: &'a Listing, query: &Query) -> Result<Self, Error> {
        let text = |name: &str| query.get(name).filter(|text| !text.is_empty());
        let entries_max = match text("max-uploads") {
            None => ENTRIES_MAX,
            Some(text) => {
                let count = text
                    .parse::<u32>()
                    .ok()
                    .filter(|n| i32::try_from(*n).is_ok());
                let count = count.ok_or_else(|| {
                    let message = "Provided value not an integer or within integer range";
                    refuse::invalid_argument("max-uploads", &text, message)
                })?;
                (count as usize).min(ENTRIES_MAX)
            }
        };
        let owned = |name: &str| text(name).map(Cow::into_owned);
        Ok(Self {
            listing,
            is_url: text("encoding-type").is_some_and(|text| text.eq_ignore_ascii_case("url")),
            delimiter: owned("delimiter"),
            key_marker: owned("key-marker").unwrap_or_default(),
            id_marker: owned("upload-id-marker").unwrap_or_default(),
            entries_max,
        })
    }

    async fn page(&self, shared: &Shared) -> Result<Page, Error> {
        let mut page = Page::default();
        let bucket = &self.listing.bucket;
        let first = self
            .listing
            .prefix
            .as_bytes()
            .max(self.key_marker.as_bytes());
        let mut from: Option<Bytes> = Some(record::start_of(shared, bucket, first));
        loop {
            let records = record::range(shared, Some(bucket), from, RECORDS_MAX).await?;
            let Some(last) = records.last() else {
                return Ok(page);
            };
            from = Some([&last.name[..], &[0]].concat().into());
            for named in records
                .into_iter()
                .filter(|named| named.record.end.is_none())
            {
                if !self.add(&mut page, named) {
                    return Ok(page);
                }
            }
        }
    }

    /// Adds an upload, if it is asked for; whether more may follow.
    fn add(&self, page: &mut Page, named: Named) -> bool {
        let (key, id) = (named.upload.object.key.as_str(), &named.upload.upload_id);
        if !key.starts_with(&self.listing.prefix) {
            return key <= self.listing.prefix.as_str();
        }
        let is_after = key > self.key_marker.as_str()
            || (key == self.key_marker && !self.id_marker.is_empty() && *id > self.id_marker);
        if !self.key_marker.is_empty() && !is_after {
            return true;
        }
        let common = rolled_up(key, &self.listing.prefix, self.delimiter.as_deref());
        let is_there = |common: &str| {
            common == self.key_marker || page.prefixes.last().is_some_and(|last| last == common)
        };
        if common.is_some_and(is_there) {
            return true;
        }
        if page.uploads.len() + page.prefixes.len() == self.entries_max {
            page.is_truncated = self.entries_max > 0;
            return false;
        }
        if let Some(common) = common {
            page.last = (common.to_owned(), String::new());
            page.prefixes.push(common.to_owned());
        } else {
            page.last = (key.to_owned(), id.clone());
            page.uploads.push(named);
        }
        true
    }

    fn coded<'t>(&self, name: &'t str) -> Cow<'t, str> {
        if self.is_url {
            uri::encode_path(name)
        } else {
            Cow::Borrowed(name)
        }
    }

    fn write(&self, page: &Page) -> String {
        let mut out = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListMultipartUploadsResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
        );
        let mut element = |name: &str, text: &str| fragments::element(&mut out, name, text);
        element("Bucket", self.listing.bucket.as_str());
        element("KeyMarker", &self.coded(&self.key_marker));
        element("UploadIdMarker", &self.id_marker);
        if page.is_truncated {
            element("NextKeyMarker", &self.coded(&page.last.0));
            element("NextUploadIdMarker", &page.last.1);
        }
        element("Prefix", &self.coded(&self.listing.prefix));
        if let Some(delimiter) = &self.delimiter {
            element("Delimiter", &self.coded(delimiter));
        }
        element("MaxUploads", &self.entries_max.to_string());
        element(
            "IsTruncated",
            if page.is_truncated { "true" } else { "false" },
        );
        if self.is_url {
            element("EncodingType", "url");
        }
        for named in &page.uploads {
            out.push_str("<Upload>");
            let key = named.upload.object.key.as_str();
            fragments::element(&mut out, "Key", &self.coded(key));
            fragments::element(&mut out, "UploadId", &named.upload.upload_id);
            out.push_str(OWNERS);
            let class = named.record.class.as_deref().unwrap_or("STANDARD");
            fragments::element(&mut out, "StorageClass", class);
            let begun = time::rfc3339_millis(named.record.begun_ms);
            fragments::element(&mut out, "Initiated", begun.as_str());
            out.push_str("</Upload>");
        }
        for prefix in &page.prefixes {
            let _ = write!(out, "<CommonPrefixes>");
            fragments::element(&mut out, "Prefix", &self.coded(prefix));
            out.push_str("</CommonPrefixes>");
        }
        out.push_str("</ListMultipartUploadsResult>");
        out
    }
}
