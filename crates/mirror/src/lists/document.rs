//! Listings as documents: what is asked for, what a member lists, and the page that is answered.
//!
//! Elements of a member pass as they stand, but for those that say where a page begins and where
//! the next one goes on. Source: Amazon S3 API Reference, `ListObjects`, `ListObjectsV2`,
//! `ListObjectVersions`.

use std::{borrow::Cow, fmt::Write as _};

use bytes::Bytes;
use forebay_native::{
    fragments,
    listing::{Summary, position::Position},
    refuse,
};
use forebay_s3::{bucket::BucketName, operation::Listing, time, uri};
use forebay_store::{Body, Error, Query, Request, Response};
use http::header;

use super::{
    Listed,
    page::{Item, Page, Terms},
    unreadable,
};
use crate::request::Head;

/// S3: "up to 1,000 key names".
const ENTRIES_MAX: usize = 1000;
/// Elements of a member's page that are written anew.
const OURS: [&str; 11] = [
    "IsTruncated",
    "KeyCount",
    "NextContinuationToken",
    "ContinuationToken",
    "StartAfter",
    "Marker",
    "NextMarker",
    "KeyMarker",
    "VersionIdMarker",
    "NextKeyMarker",
    "NextVersionIdMarker",
];

/// Parameters that say where a page begins.
pub(super) type Places = Vec<(&'static str, String)>;

/// A kind of listing, and how it names its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `ListObjects`.
    V1,
    /// `ListObjectsV2`.
    V2,
    /// `ListObjectVersions`.
    Versions,
}

impl Kind {
    /// Parameters of the query that say where to begin.
    const fn places(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["marker"],
            Self::V2 => &["start-after", "continuation-token"],
            Self::Versions => &["key-marker", "version-id-marker"],
        }
    }

    /// Those of them with which a member begins at a position.
    pub(super) fn places_at(self, position: &Position) -> Places {
        match position.marker() {
            marker if marker.is_empty() => Vec::new(),
            marker => vec![(self.places()[0], marker)],
        }
    }

    /// The element of an object.
    const fn element(self) -> &'static str {
        match self {
            Self::V1 | Self::V2 => "Contents",
            Self::Versions => "Version",
        }
    }

    fn is_item(self, name: &str) -> bool {
        name == self.element() || (self == Self::Versions && name == "DeleteMarker")
    }
}

/// How names are written in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Plain,
    Url,
}

impl Coding {
    /// What `encoding-type` or `EncodingType` says.
    fn of(text: Option<&str>) -> Self {
        if text.is_some_and(|text| text.eq_ignore_ascii_case("url")) {
            Self::Url
        } else {
            Self::Plain
        }
    }

    fn apply(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain => Cow::Borrowed(name),
            Self::Url => uri::encode_path(name),
        }
    }

    /// A name as it was before it was coded.
    fn undo(self, name: &str) -> Option<String> {
        match self {
            Self::Plain => Some(name.to_owned()),
            Self::Url => {
                let spaced = name.replace('+', " ");
                uri::decode_path(&spaced).ok().map(Cow::into_owned)
            }
        }
    }
}

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) kind: Kind,
    pub(super) as_sent: &'a Head,
    pub(super) bucket: BucketName,
    pub(super) terms: Terms,
    pub(super) position: Position,
    coding: Coding,
}

impl<'a> Asked<'a> {
    /// Reads what is asked for; `None` where a member is to judge, as something is wrong with it
    /// or nothing is asked for.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that is none of ours.
    pub(super) fn read(
        head: &'a Head,
        kind: Kind,
        listing: &Listing,
    ) -> Result<Option<Self>, Error> {
        let query = &head.query;
        let coding = query.get("encoding-type");
        let is_known = coding
            .as_deref()
            .is_none_or(|text| text.eq_ignore_ascii_case("url"));
        let max_keys = query.get("max-keys").filter(|text| !text.is_empty());
        let entries_max = match max_keys {
            None => Some(ENTRIES_MAX),
            Some(text) => text.parse::<i32>().ok().map(|count| {
                let count = usize::try_from(count).unwrap_or(0);
                count.min(ENTRIES_MAX)
            }),
        };
        let (true, Some(entries_max @ 1..)) = (is_known, entries_max) else {
            return Ok(None);
        };
        let delimiter = query.get("delimiter").filter(|text| !text.is_empty());
        let terms = Terms {
            prefix: listing.prefix.clone(),
            delimiter: delimiter.map(Cow::into_owned),
            entries_max,
        };
        let marker = |name: &str| {
            let text = query.get(name).unwrap_or_default();
            Position::after_marker(&text, &terms.prefix, terms.delimiter.as_deref())
        };
        let position = match (kind, query.get("continuation-token")) {
            (Kind::V1, _) => marker("marker"),
            (Kind::Versions, _) => marker("key-marker"),
            (Kind::V2, None) => marker("start-after"),
            (Kind::V2, Some(token)) => Position::from_token(&token).ok_or_else(|| {
                let message = "The continuation token provided is incorrect";
                refuse::invalid_argument("continuation-token", &token, message)
            })?,
        };
        Ok(Some(Self {
            kind,
            as_sent: head,
            bucket: listing.bucket.clone(),
            coding: Coding::of(coding.as_deref()),
            terms,
            position,
        }))
    }

    /// The request for a page that begins at these places.
    pub(super) fn request(&self, places: &Places) -> Request {
        let mut request = self.as_sent.with(Body::empty());
        let kept = self.as_sent.query.as_str().split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            !pair.is_empty() && !self.kind.places().contains(&name)
        });
        let mut query: String = kept.collect::<Vec<_>>().join("&");
        for (name, value) in places {
            let separator = if query.is_empty() { "" } else { "&" };
            let _ = write!(query, "{separator}{name}={}", uri::encode_query(value));
        }
        request.query = Query::new(query);
        request
    }

    fn text(&self, name: &str) -> String {
        let text = self.as_sent.query.get(name);
        text.unwrap_or_default().into_owned()
    }
}

/// What a member's document lists from a position on, and what asks for more, if there is.
pub(super) fn items(
    kind: Kind,
    text: &str,
    position: &Position,
) -> Option<(Vec<Item>, Option<Places>)> {
    let document = fragments::read(text)?;
    let coding = Coding::of(document.text_of("EncodingType").as_deref());
    let mut items = Vec::new();
    for child in &document.children {
        if kind.is_item(child.name) {
            items.push(Item::Raw {
                key: coding.undo(&child.text_at(&["Key"])?)?,
                raw: child.raw.to_owned(),
                version: child.text_at(&["VersionId"]),
            });
        } else if child.name == "CommonPrefixes" {
            items.push(Item::Prefix {
                prefix: coding.undo(&child.text_at(&["Prefix"])?)?,
                raw: Some(child.raw.to_owned()),
            });
        }
    }
    items.sort_by(|a, b| a.name().cmp(b.name()));
    let text_of = |name: &str| document.text_of(name).filter(|text| !text.is_empty());
    let mut next = Places::new();
    if document.text_of("IsTruncated").as_deref() == Some("true") {
        let name = |name: &str| text_of(name).and_then(|text| coding.undo(&text));
        let last = || items.last().map(|item| item.name().to_owned());
        match kind {
            Kind::V1 => {
                let marker = name("NextMarker").or_else(last);
                next.extend(marker.map(|marker| ("marker", marker)));
            }
            Kind::V2 => {
                let token = text_of("NextContinuationToken");
                next.extend(token.map(|token| ("continuation-token", token)));
            }
            Kind::Versions => {
                next.extend(name("NextKeyMarker").map(|key| ("key-marker", key)));
                let version = text_of("NextVersionIdMarker");
                next.extend(version.map(|id| ("version-id-marker", id)));
            }
        }
    }
    let from = position.bytes();
    items.retain(|item| match item {
        Item::Prefix { .. } => item.position().bytes() > from,
        Item::Raw { key, .. } | Item::Told { key, .. } => key.as_bytes() >= &from[..],
    });
    // A page that says there is more and not where can't be gone on from.
    Some((items, (!next.is_empty()).then_some(next)))
}

/// Makes the answer of a page.
pub(super) fn answer(asked: &Asked<'_>, page: &Page, listed: Listed) -> Result<Response, Error> {
    let Listed {
        mut response, text, ..
    } = listed;
    let has_token = page.next.is_some() || asked.as_sent.query.has("continuation-token");
    let has_begun = asked.position.marker() != asked.text(asked.kind.places()[0]);
    let is_as_listed = page.is_plain && !(asked.kind == Kind::V2 && has_token) && !has_begun;
    let document = if is_as_listed {
        text
    } else {
        write(asked, page, &text).ok_or_else(unreadable)?
    };
    let bytes = Bytes::from(document);
    let headers = &mut response.headers;
    headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    response.body = Body::from(bytes);
    Ok(response)
}

/// Writes a page in the frame of a member's.
fn write(asked: &Asked<'_>, page: &Page, listed: &str) -> Option<String> {
    let frame = fragments::read(listed)?;
    let mut out = String::with_capacity(listed.len() + 256 * page.items.len());
    out.push_str(frame.head);
    if frame.head.is_empty() {
        let root = frame.root;
        let _ = write!(
            out,
            "<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        );
    }
    let is_item = |name: &str| asked.kind.is_item(name) || name == "CommonPrefixes";
    for child in &frame.children {
        if !OURS.contains(&child.name) && !is_item(child.name) {
            out.push_str(child.raw);
        }
    }
    write_places(&mut out, asked, page);
    let owner = frame.children.iter().find_map(|child| {
        let child = fragments::read(child.raw)?;
        let owner = child.children.iter().find(|part| part.name == "Owner")?;
        Some(owner.raw.to_owned())
    });
    for item in page.items.values() {
        match item {
            Item::Raw { raw, .. } => out.push_str(raw),
            Item::Told { key, summary } => {
                write_object(&mut out, asked, (key, summary), owner.as_deref());
            }
            Item::Prefix { .. } => {}
        }
    }
    for item in page.items.values() {
        match item {
            Item::Prefix { raw: Some(raw), .. } => out.push_str(raw),
            Item::Prefix { prefix, raw: None } => {
                out.push_str("<CommonPrefixes>");
                fragments::element(&mut out, "Prefix", &asked.coding.apply(prefix));
                out.push_str("</CommonPrefixes>");
            }
            Item::Raw { .. } | Item::Told { .. } => {}
        }
    }
    // The root's end tag has the name that its start tag has, prefix included.
    let root = frame.head.rsplit('<').next().unwrap_or_default();
    let end = root.find(|c: char| c.is_whitespace() || c == '>');
    let root = end.map_or(frame.root, |end| &root[..end]);
    let _ = write!(out, "</{root}>");
    Some(out)
}

/// Where the page begins and the next one goes on.
fn write_places(out: &mut String, asked: &Asked<'_>, page: &Page) {
    let truncated = if page.next.is_some() { "true" } else { "false" };
    fragments::element(out, "IsTruncated", truncated);
    let coded = |name: &str| asked.coding.apply(name).into_owned();
    let last = page.items.last_key_value();
    let last = last.filter(|_| page.next.is_some());
    match asked.kind {
        Kind::V1 => {
            fragments::element(out, "Marker", &coded(&asked.text("marker")));
            if let (Some((name, _)), Some(_)) = (last, &asked.terms.delimiter) {
                fragments::element(out, "NextMarker", &coded(name));
            }
        }
        Kind::V2 => {
            fragments::element(out, "KeyCount", &page.items.len().to_string());
            let start_after = asked.text("start-after");
            if !start_after.is_empty() {
                fragments::element(out, "StartAfter", &coded(&start_after));
            }
            if let Some(token) = asked.as_sent.query.get("continuation-token") {
                fragments::element(out, "ContinuationToken", &token);
            }
            if let Some(next) = &page.next {
                fragments::element(out, "NextContinuationToken", &next.to_token());
            }
        }
        Kind::Versions => {
            fragments::element(out, "KeyMarker", &coded(&asked.text("key-marker")));
            fragments::element(out, "VersionIdMarker", &asked.text("version-id-marker"));
            if let Some((name, item)) = last {
                fragments::element(out, "NextKeyMarker", &coded(name));
                if !matches!(item, Item::Prefix { .. }) {
                    fragments::element(out, "NextVersionIdMarker", "null");
                }
            }
        }
    }
}

/// An object of which another member told, as the listing one would write it.
fn write_object(
    out: &mut String,
    asked: &Asked<'_>,
    (key, summary): (&str, &Summary),
    owner: Option<&str>,
) {
    let element = asked.kind.element();
    let _ = write!(out, "<{element}>");
    fragments::element(out, "Key", &asked.coding.apply(key));
    if asked.kind == Kind::Versions {
        fragments::element(out, "VersionId", "null");
        fragments::element(out, "IsLatest", "true");
    }
    let modified = time::rfc3339_millis(summary.modified_ms);
    fragments::element(out, "LastModified", modified.as_str());
    fragments::element(out, "ETag", &summary.etag.to_string());
    if let Some((algorithm, kind)) = summary.checksum {
        fragments::element(out, "ChecksumAlgorithm", algorithm.name());
        fragments::element(out, "ChecksumType", kind.name());
    }
    fragments::element(out, "Size", &summary.size_bytes.to_string());
    let class = summary.storage_class.as_deref().unwrap_or("STANDARD");
    fragments::element(out, "StorageClass", class);
    if asked.kind != Kind::V2 || asked.text("fetch-owner") == "true" {
        out.push_str(
            owner.unwrap_or("<Owner><ID>forebay</ID><DisplayName>forebay</DisplayName></Owner>"),
        );
    }
    let _ = write!(out, "</{element}>");
}
