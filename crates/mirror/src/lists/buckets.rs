//! The list of buckets: what all members that can be read have, with the journal's word on those
//! that some lack.
//!
//! There are few buckets and few such requests, so every member is asked, and the page is made
//! here: a token names the last bucket that was given.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use forebay_native::{fragments, refuse};
use forebay_s3::bucket::BucketName;
use forebay_store::{Body, Error, Query, Request, Response};
use futures_util::future;
use http::header;

use super::{LISTING_BYTES_MAX, nobody, unreadable};
use crate::{
    journal::Subject,
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::Head,
};

/// Elements that are written anew.
const OURS: [&str; 3] = ["Buckets", "ContinuationToken", "Prefix"];
/// S3: a page of buckets has 10,000 at most.
const BUCKETS_MAX: usize = 10_000;

/// What a member lists.
struct Listed {
    member: MemberId,
    response: Response,
    text: String,
    /// Each bucket as it is written.
    buckets: BTreeMap<String, String>,
}

/// Answers `ListBuckets`.
///
/// # Errors
/// `Unavailable` when no member that is current can be asked; the journal's own.
pub(crate) async fn list_buckets(
    shared: &Arc<Shared>,
    request: Request,
) -> Result<Response, Error> {
    let page = Page::read(&request.query)?;
    let (head, _) = Head::split(request);
    let plain = Head {
        query: Query::default(),
        ..head
    };
    let members = shared.readable();
    let asked = members
        .iter()
        .map(|member| ask(shared, member, plain.with(Body::empty())));
    let mut all = Vec::new();
    let mut failed = None;
    for answer in future::join_all(asked).await {
        match answer {
            Ok(Ok(listed)) => all.push(listed),
            Ok(Err(refused)) => return Ok(refused),
            Err(refused @ Error::Refused(_)) => return Err(refused),
            Err(error) => failed = Some(error),
        }
    }
    let Some(first) = all.first() else {
        return Err(failed.unwrap_or_else(nobody));
    };
    let text = first.text.clone();
    let names: BTreeSet<String> = all.iter().flat_map(|l| l.buckets.keys().cloned()).collect();
    let asked: MemberSet = all.iter().map(|listed| listed.member).collect();
    let mut buckets = BTreeMap::new();
    for name in names {
        let having: MemberSet = having(&all, &name);
        if is_there(shared, &name, having, asked).await? {
            let raw = all.iter().find_map(|listed| listed.buckets.get(&name));
            buckets.insert(name, raw.cloned().unwrap_or_default());
        }
    }
    let document = page.write(&text, &buckets).ok_or_else(unreadable)?;
    let bytes = Bytes::from(document);
    let mut response = all.swap_remove(0).response;
    response
        .headers
        .insert(header::CONTENT_LENGTH, bytes.len().into());
    response.body = Body::from(bytes);
    Ok(response)
}

fn having(all: &[Listed], name: &str) -> MemberSet {
    let having = all
        .iter()
        .filter(|listed| listed.buckets.contains_key(name));
    having.map(|listed| listed.member).collect()
}

/// Whether a bucket is there that some members list, and others perhaps not.
async fn is_there(
    shared: &Shared,
    name: &str,
    having: MemberSet,
    asked: MemberSet,
) -> Result<bool, Error> {
    if having == asked {
        return Ok(true);
    }
    let Ok(bucket) = BucketName::parse(name) else {
        return Ok(true);
    };
    let held = shared.held(&Subject::Bucket(bucket)).await?;
    let current = held.map_or(asked, |held| held.entry.current(asked));
    // Without an entry they should be equal, so one that shows it is right: a bucket is changing
    // at this moment, or the members differ and a comparison will tell.
    Ok(!current.and(having).is_empty())
}

async fn ask(
    shared: &Shared,
    member: MemberId,
    request: Request,
) -> Result<Result<Listed, Response>, Error> {
    let mut response = shared.ask(member, request).await?;
    if !response.status.is_success() {
        return Ok(Err(response));
    }
    let body = std::mem::replace(&mut response.body, Body::empty());
    let (bytes, _) = body.collect(LISTING_BYTES_MAX).await?;
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| unreadable())?;
    let buckets = buckets_in(&text).ok_or_else(unreadable)?;
    Ok(Ok(Listed {
        member,
        response,
        text,
        buckets,
    }))
}

fn buckets_in(text: &str) -> Option<BTreeMap<String, String>> {
    let document = fragments::read(text)?;
    let Some(list) = document
        .children
        .iter()
        .find(|child| child.name == "Buckets")
    else {
        return Some(BTreeMap::new());
    };
    let list = fragments::read(list.raw)?;
    let named = list.children.iter().filter(|child| child.name == "Bucket");
    named
        .map(|child| Some((child.text_at(&["Name"])?, child.raw.to_owned())))
        .collect()
}

/// What of the list is asked for.
struct Page {
    prefix: Option<String>,
    after: String,
    count_max: usize,
}

impl Page {
    fn read(query: &Query) -> Result<Self, Error> {
        let text = |name: &str| query.get(name).filter(|text| !text.is_empty());
        let count_max = match text("max-buckets") {
            None => BUCKETS_MAX,
            Some(text) => text
                .parse()
                .ok()
                .filter(|count| (1..=BUCKETS_MAX).contains(count))
                .ok_or_else(|| {
                    let message = "Argument max-buckets must be an integer between 1 and 10000";
                    refuse::invalid_argument("max-buckets", &text, message)
                })?,
        };
        let after = match text("continuation-token") {
            None => String::new(),
            Some(token) => URL_SAFE_NO_PAD
                .decode(&*token)
                .ok()
                .and_then(|name| String::from_utf8(name).ok())
                .ok_or_else(|| {
                    let message = "The continuation token provided is incorrect";
                    refuse::invalid_argument("continuation-token", &token, message)
                })?,
        };
        Ok(Self {
            prefix: text("prefix").map(std::borrow::Cow::into_owned),
            after,
            count_max,
        })
    }

    /// Writes the page in the frame of a member's.
    fn write(&self, listed: &str, buckets: &BTreeMap<String, String>) -> Option<String> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let mut wanted = buckets
            .iter()
            .filter(|(name, _)| **name > self.after && name.starts_with(prefix));
        let page: Vec<_> = wanted.by_ref().take(self.count_max).collect();
        let next = page.last().filter(|_| wanted.next().is_some());
        let frame = fragments::read(listed)?;
        let mut out = String::from(frame.head);
        for child in frame
            .children
            .iter()
            .filter(|child| !OURS.contains(&child.name))
        {
            out.push_str(child.raw);
        }
        out.push_str("<Buckets>");
        for (_, raw) in &page {
            out.push_str(raw);
        }
        out.push_str("</Buckets>");
        if let Some((name, _)) = next {
            fragments::element(&mut out, "ContinuationToken", &URL_SAFE_NO_PAD.encode(name));
        }
        if let Some(prefix) = &self.prefix {
            fragments::element(&mut out, "Prefix", prefix);
        }
        out.push_str("</");
        out.push_str(frame.root);
        out.push('>');
        Some(out)
    }
}
