//! The two sequences of a listing: the records of a bucket, and the cold store's own listing.

use std::{borrow::Cow, collections::VecDeque, fmt::Write as _, sync::Arc};

use async_trait::async_trait;
use forebay_native::{
    fragments,
    hot::Holding,
    listing::{Summary, position::Position},
};
use forebay_s3::{bucket::BucketName, uri};
use forebay_store::{Body, Error, Query, Request, Response};

use super::merge::{HotSays, Item, Source, Told};
use crate::{request::copy_of, tier::Tier};

/// Records read at once; as many as a page has entries, as one that is all hot needs no more.
const RECORDS_MAX: usize = 1000;
/// Most bytes of a listing: 1000 keys of 1 KiB, each byte as `&#xNN;`, and what is said of them.
const LISTING_BYTES_MAX: usize = 16 << 20;

/// Records of a bucket in order.
pub(super) struct HotSource {
    tier: Arc<Tier>,
    bucket: BucketName,
    from: Vec<u8>,
    until: Vec<u8>,
    is_at_end: bool,
}

impl HotSource {
    pub(super) fn new(
        tier: &Arc<Tier>,
        bucket: &BucketName,
        prefix: &str,
        position: &Position,
    ) -> Self {
        let until = [prefix.as_bytes(), &[0xff]].concat();
        Self {
            tier: Arc::clone(tier),
            bucket: bucket.clone(),
            from: position.bytes().max(prefix.into()),
            until,
            is_at_end: false,
        }
    }
}

#[async_trait]
impl Source for HotSource {
    type Of = (String, HotSays);

    async fn more(&mut self) -> Result<VecDeque<Self::Of>, Error> {
        if self.is_at_end || self.from >= self.until {
            self.is_at_end = true;
            return Ok(VecDeque::new());
        }
        let keys = self.from.clone()..self.until.clone();
        let records = self.tier.hot.range(&self.bucket, keys, RECORDS_MAX).await;
        let records = records.map_err(|error| self.tier.hot_failed(&error))?;
        match records.last() {
            Some((key, _)) => self.from = [key.as_str().as_bytes(), &[0]].concat(),
            None => self.is_at_end = true,
        }
        let says = records.into_iter().map(|(key, held)| {
            let says = match &held.record.holding {
                Holding::Dirty(record) | Holding::Conflict { record, .. } => {
                    HotSays::Object(Summary::from(record))
                }
                Holding::Tombstone | Holding::Buried(_) => HotSays::Gone,
                Holding::Settling(_) => HotSays::AskCold(held.record.known.last().cloned()),
            };
            (key.as_str().to_owned(), says)
        });
        Ok(says.collect())
    }

    fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    fn skip(&mut self, prefix: &str) {
        let past = Position::Past(prefix.to_owned()).bytes();
        self.from = past.max(std::mem::take(&mut self.from));
    }
}

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

    /// The element of an object.
    pub(super) const fn element(self) -> &'static str {
        match self {
            Self::V1 | Self::V2 => "Contents",
            Self::Versions => "Version",
        }
    }

    pub(super) fn is_item(self, name: &str) -> bool {
        name == self.element() || (self == Self::Versions && name == "DeleteMarker")
    }
}

/// How names are written in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Url,
}

impl Coding {
    /// What `encoding-type` or `EncodingType` says.
    pub(super) fn of(text: Option<&str>) -> Self {
        if text.is_some_and(|text| text.eq_ignore_ascii_case("url")) {
            Self::Url
        } else {
            Self::Plain
        }
    }

    pub(super) fn apply(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain => Cow::Borrowed(name),
            Self::Url => uri::encode_path(name),
        }
    }
}

/// The cold store's listing, page by page.
pub(super) struct ColdSource {
    tier: Arc<Tier>,
    kind: Kind,
    request: Request,
    position: Position,
    /// Parameters that ask for the next page; `None` at the end.
    next: Option<Vec<(&'static str, String)>>,
    /// The first page, as it was answered.
    pub(super) first: Option<(Response, String)>,
    /// An answer that is no listing.
    pub(super) refused: Option<Response>,
}

impl ColdSource {
    /// A listing as `request` asks for it, but from `position` on.
    pub(super) fn new(tier: &Arc<Tier>, request: &Request, kind: Kind, position: Position) -> Self {
        let marker = position.marker();
        let name = kind.places()[0];
        let next = if marker.is_empty() {
            Vec::new()
        } else {
            vec![(name, marker)]
        };
        Self {
            tier: Arc::clone(tier),
            kind,
            request: copy_of(request),
            position,
            next: Some(next),
            first: None,
            refused: None,
        }
    }

    /// The request for the next page.
    fn ask(&self, next: &[(&'static str, String)]) -> Request {
        let mut request = copy_of(&self.request);
        let old = self.request.query.as_str().split('&');
        let kept = old.filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            !pair.is_empty() && !self.kind.places().contains(&name)
        });
        let mut query: String = kept.collect::<Vec<_>>().join("&");
        for (name, value) in next {
            let separator = if query.is_empty() { "" } else { "&" };
            let _ = write!(query, "{separator}{name}={}", uri::encode_query(value));
        }
        request.query = Query::new(query);
        request
    }

    /// Takes a page apart.
    fn read(&mut self, text: &str) -> Result<VecDeque<Item>, Error> {
        let unreadable = || Error::internal("read a listing of the cold store", "it is none");
        let document = fragments::read(text).ok_or_else(unreadable)?;
        let coding = Coding::of(document.text_of("EncodingType").as_deref());
        let mut items = Vec::new();
        for child in &document.children {
            if self.kind.is_item(child.name) {
                let key = child.text_at(&["Key"]).ok_or_else(unreadable)?;
                let key = decoded(&key, coding).ok_or_else(unreadable)?;
                let told = Told::Raw(child.raw.to_owned(), child.text_at(&["ETag"]));
                items.push(Item::Object(key, told));
            } else if child.name == "CommonPrefixes" {
                let prefix = child.text_at(&["Prefix"]).ok_or_else(unreadable)?;
                let prefix = decoded(&prefix, coding).ok_or_else(unreadable)?;
                items.push(Item::Prefix(prefix, Some(child.raw.to_owned())));
            }
        }
        items.sort_by(|a, b| a.name().cmp(b.name()));
        let text_of = |name: &str| document.text_of(name).filter(|text| !text.is_empty());
        self.next = None;
        if document.text_of("IsTruncated").as_deref() == Some("true") {
            let name = |name: &str| text_of(name).and_then(|text| decoded(&text, coding));
            let last = || items.last().map(|item| item.name().to_owned());
            let mut next = Vec::new();
            match self.kind {
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
            // A page that says there is more and not where can't be gone on from.
            self.next = (!next.is_empty()).then_some(next);
        }
        let from = self.position.bytes();
        items.retain(|item| match item {
            Item::Object(key, _) => key.as_bytes() >= &from[..],
            Item::Prefix(prefix, _) => Position::Past(prefix.clone()).bytes() > from,
        });
        Ok(items.into())
    }
}

/// A name as it was before it was coded for a document.
fn decoded(name: &str, coding: Coding) -> Option<String> {
    match coding {
        Coding::Plain => Some(name.to_owned()),
        Coding::Url => {
            let spaced = name.replace('+', " ");
            uri::decode_path(&spaced).ok().map(Cow::into_owned)
        }
    }
}

#[async_trait]
impl Source for ColdSource {
    type Of = Item;

    async fn more(&mut self) -> Result<VecDeque<Item>, Error> {
        while let Some(next) = self.next.take() {
            let mut response = self.tier.cold.store.call(self.ask(&next)).await?;
            if !response.status.is_success() {
                self.refused = Some(response);
                return Ok(VecDeque::new());
            }
            let body = std::mem::replace(&mut response.body, Body::empty());
            let (bytes, _) = body.collect(LISTING_BYTES_MAX).await?;
            let text = String::from_utf8(bytes.to_vec())
                .map_err(|error| Error::internal("read a listing of the cold store", error))?;
            let items = self.read(&text)?;
            if self.first.is_none() {
                self.first = Some((response, text));
            }
            if !items.is_empty() {
                return Ok(items);
            }
        }
        Ok(VecDeque::new())
    }

    fn is_at_end(&self) -> bool {
        self.next.is_none()
    }

    /// It has rolled them up itself.
    fn skip(&mut self, _: &str) {}
}
