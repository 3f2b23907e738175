//! Listings of objects: what the hot store has, merged with what the cold store lists.
//!
//! Both are asked at the same time. An object that went from hot to cold between the two answers
//! would be in neither, or as it was before; its record says that it went, and with which tag, so
//! the listing is made once more then, hot first, which misses none. Elements of the cold store
//! pass as they stand.
//!
//! A page that the hot store has no say in is the cold store's own, but for the token of V2, which
//! is ours always: hot objects may come before the next page is asked for.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_native::{
    fragments,
    listing::{Summary, position::Position},
    refuse,
};
use forebay_s3::{
    bucket::BucketName,
    operation::{Listing, Operation},
    time, uri,
};
use forebay_store::{Body, Error, Query, Request, Response};
use http::{Method, header};

use crate::tier::{Side, Tier};

mod merge;
mod sources;
#[cfg(test)]
mod tests;

use merge::{Cursor, Item, Lives, Merged, Terms, Told, merge};
pub(crate) use sources::Kind;
use sources::{Coding, ColdSource, HotSource};

/// S3: "up to 1,000 key names".
const ENTRIES_MAX: usize = 1000;

/// Elements of a cold page that are written anew.
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

/// What is asked for.
struct Asked<'a> {
    kind: Kind,
    query: &'a Query,
    coding: Coding,
    terms: Terms,
    position: Position,
}

/// Answers a listing.
pub(crate) async fn list(
    tier: &Arc<Tier>,
    request: Request,
    kind: Kind,
    listing: &Listing,
) -> Result<Response, Error> {
    let Some(asked) = Asked::read(&request, kind, listing)? else {
        return tier.cold.store.call(request).await;
    };
    if asked.kind == Kind::Versions && !has_records(tier, listing).await? {
        return tier.cold.store.call(request).await;
    }
    let mut order = Order::Together;
    loop {
        let from = &asked.position;
        let hot = HotSource::new(tier, &listing.bucket, &listing.prefix, from);
        let cold = ColdSource::new(tier, &request, asked.kind, from.clone());
        let (mut hot, mut cold) = (Cursor::new(hot), Cursor::new(cold));
        match order {
            Order::Together => {
                let (of_hot, of_cold) = tokio::join!(hot.fill(), cold.fill());
                of_hot.and(of_cold)?;
            }
            Order::HotFirst => hot.fill().await?,
        }
        let lives = ColdLives {
            tier,
            bucket: &listing.bucket,
        };
        let page = merge(&mut hot, &mut cold, &lives, &asked.terms).await?;
        let mut cold = cold.into_source();
        if let Some(refused) = cold.refused.take() {
            return Ok(refused);
        }
        if page.has_gap && order == Order::Together {
            order = Order::HotFirst;
            continue;
        }
        let Some((response, text)) = cold.first.take() else {
            return Err(Error::internal("list", "the cold store was not asked"));
        };
        return answer(tier, &asked, &page, (response, text));
    }
}

/// In which order the stores are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Together,
    HotFirst,
}

/// Whether the hot store says anything of the keys of a listing.
async fn has_records(tier: &Tier, listing: &Listing) -> Result<bool, Error> {
    let prefix = listing.prefix.as_bytes();
    let keys = prefix.to_vec()..[prefix, &[0xff]].concat();
    let records = tier.hot.range(&listing.bucket, keys, 1).await;
    Ok(!records.map_err(|error| tier.hot_failed(&error))?.is_empty())
}

impl<'a> Asked<'a> {
    /// Reads what is asked for; `None` where the cold store is to judge, as something is wrong with
    /// it or nothing is asked for.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that is none of ours.
    fn read(request: &'a Request, kind: Kind, listing: &Listing) -> Result<Option<Self>, Error> {
        let query = &request.query;
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
            delimiter: delimiter.map(std::borrow::Cow::into_owned),
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
            query,
            coding: Coding::of(coding.as_deref()),
            terms,
            position,
        }))
    }

    fn text(&self, name: &str) -> String {
        self.query.get(name).unwrap_or_default().into_owned()
    }
}

/// Makes the answer of a page.
fn answer(
    tier: &Tier,
    asked: &Asked<'_>,
    page: &Merged,
    (mut response, text): (Response, String),
) -> Result<Response, Error> {
    let is_plain = !page.is_mixed
        && (asked.kind != Kind::V2
            || (!page.is_truncated && !asked.query.has("continuation-token")));
    let document = if is_plain && response_is_page(&text, page) {
        text
    } else {
        write(asked, page, &text)
            .ok_or_else(|| Error::internal("read a listing of the cold store", "it is none"))?
    };
    let bytes = bytes::Bytes::from(document);
    response.headers.remove(header::CONTENT_LENGTH);
    response
        .headers
        .insert(header::CONTENT_LENGTH, bytes.len().into());
    response.body = Body::from(bytes);
    let side = if page.is_mixed { Side::Hot } else { Side::Cold };
    Ok(tier.tell(side, response))
}

/// Whether the cold store's first answer has the items of the page, no more and no fewer.
fn response_is_page(text: &str, page: &Merged) -> bool {
    let Some(document) = fragments::read(text) else {
        return false;
    };
    let children = document.children.iter();
    let count = children
        .filter(|child| {
            matches!(
                child.name,
                "Contents" | "Version" | "DeleteMarker" | "CommonPrefixes"
            )
        })
        .count();
    count == page.items.len()
}

/// Writes a page in the frame of the cold store's.
fn write(asked: &Asked<'_>, page: &Merged, cold: &str) -> Option<String> {
    let frame = fragments::read(cold)?;
    let mut out = String::with_capacity(cold.len() + 256 * page.items.len());
    out.push_str(frame.head);
    if frame.head.is_empty() {
        out.push('<');
        out.push_str(frame.root);
        out.push_str(" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
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
    for item in &page.items {
        if let Item::Object(key, told) = item {
            match told {
                Told::Raw(raw, _) => out.push_str(raw),
                Told::Hot(summary) => {
                    write_object(&mut out, asked, (key, summary), owner.as_deref());
                }
            }
        }
    }
    for item in &page.items {
        match item {
            Item::Prefix(_, Some(raw)) => out.push_str(raw),
            Item::Prefix(prefix, None) => {
                out.push_str("<CommonPrefixes>");
                fragments::element(&mut out, "Prefix", &asked.coding.apply(prefix));
                out.push_str("</CommonPrefixes>");
            }
            Item::Object(..) => {}
        }
    }
    // The root's end tag has the name that its start tag has, prefix included.
    let root = frame.head.rsplit('<').next().unwrap_or_default();
    let end = root.find(|c: char| c.is_whitespace() || c == '>');
    let root = end.map_or(frame.root, |end| &root[..end]);
    out.push_str("</");
    out.push_str(root);
    out.push('>');
    Some(out)
}

/// Where the page begins and the next one goes on.
fn write_places(out: &mut String, asked: &Asked<'_>, page: &Merged) {
    let truncated = if page.is_truncated { "true" } else { "false" };
    fragments::element(out, "IsTruncated", truncated);
    let last = page.items.last().filter(|_| page.is_truncated);
    let coded = |name: &str| asked.coding.apply(name).into_owned();
    match asked.kind {
        Kind::V1 => {
            fragments::element(out, "Marker", &coded(&asked.text("marker")));
            if let (Some(last), Some(_)) = (last, &asked.terms.delimiter) {
                fragments::element(out, "NextMarker", &coded(last.name()));
            }
        }
        Kind::V2 => {
            fragments::element(out, "KeyCount", &page.items.len().to_string());
            let start_after = asked.text("start-after");
            if !start_after.is_empty() {
                fragments::element(out, "StartAfter", &coded(&start_after));
            }
            if let Some(token) = asked.query.get("continuation-token") {
                fragments::element(out, "ContinuationToken", &token);
            }
            if let Some(last) = last {
                fragments::element(out, "NextContinuationToken", &last.position().to_token());
            }
        }
        Kind::Versions => {
            fragments::element(out, "KeyMarker", &coded(&asked.text("key-marker")));
            fragments::element(out, "VersionIdMarker", &asked.text("version-id-marker"));
            if let Some(last) = last {
                fragments::element(out, "NextKeyMarker", &coded(last.name()));
                if let Item::Object(..) = last {
                    fragments::element(out, "NextVersionIdMarker", "null");
                }
            }
        }
    }
}

/// A hot object, as the cold store would write it.
fn write_object(
    out: &mut String,
    asked: &Asked<'_>,
    (key, summary): (&str, &Summary),
    owner: Option<&str>,
) {
    let element = asked.kind.element();
    out.push('<');
    out.push_str(element);
    out.push('>');
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
    let is_shown = asked.kind != Kind::V2 || asked.text("fetch-owner") == "true";
    if is_shown {
        out.push_str(
            owner.unwrap_or("<Owner><ID>forebay</ID><DisplayName>forebay</DisplayName></Owner>"),
        );
    }
    out.push_str("</");
    out.push_str(element);
    out.push('>');
}

/// Asks the cold store whether a common prefix holds a key that is not deleted.
struct ColdLives<'a> {
    tier: &'a Arc<Tier>,
    bucket: &'a BucketName,
}

#[async_trait]
impl Lives for ColdLives<'_> {
    async fn lives(&self, prefix: &str) -> Result<bool, Error> {
        let listing = Listing {
            bucket: self.bucket.clone(),
            prefix: prefix.to_owned(),
        };
        let query = format!("list-type=2&prefix={}", uri::encode_query(prefix));
        let operation = Operation::ListObjectsV2(listing);
        let request = self.tier.cold.request(Method::GET, operation, &query);
        let hot = HotSource::new(self.tier, self.bucket, prefix, &Position::Start);
        let cold = ColdSource::new(self.tier, &request, Kind::V2, Position::Start);
        let (mut hot, mut cold) = (Cursor::new(hot), Cursor::new(cold));
        let terms = Terms {
            prefix: prefix.to_owned(),
            delimiter: None,
            entries_max: 1,
        };
        let page = merge(&mut hot, &mut cold, &NoPrefixes, &terms).await?;
        Ok(!page.items.is_empty())
    }
}

/// Without a delimiter there is no common prefix to ask for.
struct NoPrefixes;

#[async_trait]
impl Lives for NoPrefixes {
    async fn lives(&self, _: &str) -> Result<bool, Error> {
        Ok(true)
    }
}
