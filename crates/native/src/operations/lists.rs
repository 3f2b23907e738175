//! Listings of objects, and how any listing is paged.
//!
//! Source: Amazon S3 API Reference, `ListObjects`, `ListObjectsV2`, `ListObjectVersions`.

use std::borrow::Cow;

use forebay_s3::{operation::Listing, time, uri};
use forebay_store::{Error, Query, Response};
use http::HeaderMap;

use super::{Asked, Native};
use crate::{
    Engine, answer,
    listing::{Bound, Entry, Page, Scan, Summary},
    refuse,
    xml::Document,
};

/// S3: "up to 1,000 key names"; more asked for is the same as this many.
pub(super) const ENTRIES_MAX: usize = 1000;

/// How names are written in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// As they are.
    Plain,
    /// Percent-encoded, `encoding-type=url`.
    Url,
}

impl Coding {
    /// Reads `encoding-type`.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn from_query(query: &Query) -> Result<Self, Error> {
        match query.get("encoding-type").as_deref() {
            None => Ok(Self::Plain),
            Some(value) if value.eq_ignore_ascii_case("url") => Ok(Self::Url),
            Some(other) => Err(refuse::invalid_argument(
                "encoding-type",
                other,
                "Invalid Encoding Method specified in Request",
            )),
        }
    }

    /// A key or a prefix as this coding writes it.
    pub(super) fn apply(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain => Cow::Borrowed(name),
            Self::Url => uri::encode_path(name),
        }
    }

    /// Says which coding was used.
    pub(super) fn element(self, document: &mut Document) {
        if self == Self::Url {
            document.element("EncodingType", "url");
        }
    }
}

/// Where a page of numbered parts begins, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paging {
    pub(super) after: u16,
    pub(super) entries_max: usize,
}

impl Paging {
    /// Reads the headers of `GetObjectAttributes`.
    pub(super) fn of_headers(headers: &HeaderMap) -> Result<Self, Error> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        Self::read(text("x-amz-part-number-marker"), text("x-amz-max-parts"))
    }

    /// Reads the query of `ListParts`.
    pub(super) fn of_query(query: &Query) -> Result<Self, Error> {
        let (after, count) = (query.get("part-number-marker"), query.get("max-parts"));
        Self::read(after.as_deref(), count.as_deref())
    }

    fn read(after: Option<&str>, count: Option<&str>) -> Result<Self, Error> {
        let after = match after {
            None | Some("") => 0,
            Some(text) => text.parse().map_err(|_| {
                refuse::invalid_argument("part-number-marker", text, "Must be a part number.")
            })?,
        };
        Ok(Self {
            after,
            entries_max: entries_max("max-parts", count)?,
        })
    }
}

/// Reads `max-keys` and its like.
///
/// # Errors
/// `InvalidArgument` when it is no number that is zero or more.
pub(super) fn entries_max(name: &'static str, text: Option<&str>) -> Result<usize, Error> {
    match text {
        None | Some("") => Ok(ENTRIES_MAX),
        // S3 reads it as a 32-bit integer.
        Some(text) => match text
            .parse::<u32>()
            .ok()
            .filter(|n| i32::try_from(*n).is_ok())
        {
            Some(count) => Ok((count as usize).min(ENTRIES_MAX)),
            None => Err(refuse::invalid_argument(
                name,
                text,
                "Provided value not an integer or within integer range",
            )),
        },
    }
}

/// The parameters that all three listings share.
struct Terms<'a> {
    query: &'a Query,
    coding: Coding,
    delimiter: Option<String>,
    entries_max: usize,
}

impl<'a> Terms<'a> {
    fn read(asked: &'a Asked) -> Result<Self, Error> {
        let query = &asked.query;
        let delimiter = query.get("delimiter").filter(|text| !text.is_empty());
        Ok(Self {
            query,
            coding: Coding::from_query(query)?,
            delimiter: delimiter.map(Cow::into_owned),
            entries_max: entries_max("max-keys", query.get("max-keys").as_deref())?,
        })
    }

    fn scan(&self, listing: &Listing, from: Bound) -> Scan {
        let (delimiter, entries_max) = (self.delimiter.clone(), self.entries_max);
        Scan {
            prefix: listing.prefix.clone(),
            delimiter,
            from,
            entries_max,
        }
    }

    fn bound_after(&self, listing: &Listing, marker: &str) -> Bound {
        if marker.is_empty() {
            return Bound::default();
        }
        Bound::after_marker(marker, &listing.prefix, self.delimiter.as_deref())
    }

    fn begin(&self, root: &'static str, listing: &Listing, page: &Page) -> Document {
        let mut document = Document::new(root);
        document
            .element("Name", listing.bucket.as_str())
            .element("Prefix", self.coding.apply(&listing.prefix));
        if let Some(delimiter) = &self.delimiter {
            document.element("Delimiter", self.coding.apply(delimiter));
        }
        document.number("MaxKeys", self.entries_max);
        self.coding.element(&mut document);
        document.element(
            "IsTruncated",
            if page.next.is_some() { "true" } else { "false" },
        );
        document
    }

    fn prefixes(&self, document: &mut Document, page: &Page) {
        for entry in &page.entries {
            if let Entry::Prefix(prefix) = entry {
                document
                    .open("CommonPrefixes")
                    .element("Prefix", self.coding.apply(prefix))
                    .close("CommonPrefixes");
            }
        }
    }
}

impl<E: Engine> Native<E> {
    pub(super) async fn list_objects(
        &self,
        listing: &Listing,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let terms = Terms::read(asked)?;
        let marker = terms.query.get("marker").unwrap_or_default();
        let scan = terms.scan(listing, terms.bound_after(listing, &marker));
        let page = self.engine.list(&listing.bucket, scan).await?;
        let mut document = terms.begin("ListBucketResult", listing, &page);
        document.element("Marker", terms.coding.apply(&marker));
        if let (Some(_), Some(_), Some(last)) = (&page.next, &terms.delimiter, page.entries.last())
        {
            document.element("NextMarker", terms.coding.apply(last.name()));
        }
        self.contents(&mut document, &page, &terms, Owner::Shown);
        terms.prefixes(&mut document, &page);
        Ok(answer::document(document))
    }

    pub(super) async fn list_objects_v2(
        &self,
        listing: &Listing,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let terms = Terms::read(asked)?;
        let token = terms.query.get("continuation-token");
        let start_after = terms.query.get("start-after").unwrap_or_default();
        let from = match token.as_deref() {
            Some("") => {
                let message = "The continuation token provided is incorrect";
                return Err(refuse::invalid_argument("continuation-token", "", message));
            }
            Some(token) => Bound::from_token(token)?,
            None => terms.bound_after(listing, &start_after),
        };
        let page = self
            .engine
            .list(&listing.bucket, terms.scan(listing, from))
            .await?;
        let mut document = terms.begin("ListBucketResult", listing, &page);
        document.number("KeyCount", page.entries.len());
        if !start_after.is_empty() {
            document.element("StartAfter", terms.coding.apply(&start_after));
        }
        if let Some(token) = token {
            document.element("ContinuationToken", token);
        }
        if let Some(next) = &page.next {
            document.element("NextContinuationToken", next.to_token());
        }
        let owner = if terms.query.get("fetch-owner").is_some_and(|v| v == "true") {
            Owner::Shown
        } else {
            Owner::Hidden
        };
        self.contents(&mut document, &page, &terms, owner);
        terms.prefixes(&mut document, &page);
        Ok(answer::document(document))
    }

    /// Every object is the one version, `null`, of itself.
    pub(super) async fn list_versions(
        &self,
        listing: &Listing,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let terms = Terms::read(asked)?;
        let marker = terms.query.get("key-marker").unwrap_or_default();
        let scan = terms.scan(listing, terms.bound_after(listing, &marker));
        let page = self.engine.list(&listing.bucket, scan).await?;
        let mut document = terms.begin("ListVersionsResult", listing, &page);
        document.element("KeyMarker", terms.coding.apply(&marker));
        document.element("VersionIdMarker", "");
        if let (Some(_), Some(last)) = (&page.next, page.entries.last()) {
            document.element("NextKeyMarker", terms.coding.apply(last.name()));
            if matches!(last, Entry::Object { .. }) {
                document.element("NextVersionIdMarker", "null");
            }
        }
        for entry in &page.entries {
            if let Entry::Object { key, summary } = entry {
                document
                    .open("Version")
                    .element("Key", terms.coding.apply(key));
                document
                    .element("VersionId", "null")
                    .element("IsLatest", "true");
                describe(&mut document, summary);
                self.owner_element(&mut document, "Owner");
                document.close("Version");
            }
        }
        terms.prefixes(&mut document, &page);
        Ok(answer::document(document))
    }

    fn contents(&self, document: &mut Document, page: &Page, terms: &Terms<'_>, owner: Owner) {
        for entry in &page.entries {
            if let Entry::Object { key, summary } = entry {
                document
                    .open("Contents")
                    .element("Key", terms.coding.apply(key));
                describe(document, summary);
                match owner {
                    Owner::Shown => self.owner_element(document, "Owner"),
                    Owner::Hidden => {}
                }
                document.close("Contents");
            }
        }
    }
}

/// Whether entries name their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Shown,
    Hidden,
}

fn describe(document: &mut Document, summary: &Summary) {
    document
        .element(
            "LastModified",
            time::rfc3339_millis(summary.modified_ms).as_str(),
        )
        .element("ETag", summary.etag.to_string());
    if let Some((algorithm, kind)) = summary.checksum {
        document
            .element("ChecksumAlgorithm", algorithm.name())
            .element("ChecksumType", kind.name());
    }
    document.number("Size", summary.size_bytes).element(
        "StorageClass",
        summary.storage_class.as_deref().unwrap_or("STANDARD"),
    );
}

impl Entry {
    /// The key or the common prefix.
    pub fn name(&self) -> &str {
        match self {
            Self::Object { key, .. } => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}
