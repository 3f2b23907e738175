//! Listings of objects, right whichever member answers.
//!
//! The journal is read first: it says which keys of the range which members lack. Then a member
//! that lacks the fewest lists, and of the keys that it lacks what a member says that has them
//! stands in their place. A write that begins later is concurrent with the listing, and may show
//! or not. In the usual case no entry is in the range, and a listing is one request.
//!
//! A token names the last thing that was given, nothing else, so any member, and any gateway, can
//! go on. A page ends where the entries that were read end, so that none is ever missed.
//!
//! A bucket with versions is refused: each member gives versions ids of its own, so a page of one
//! says nothing of the others. Not here: multipart uploads (`uploads`).

use std::sync::Arc;

use forebay_native::{fragments, listing::position::Position};
use forebay_s3::{
    code::Code,
    operation::{Listing, Operation},
    uri,
};
use forebay_store::{Body, Error, Query, Request, Response};
use http::StatusCode;

use crate::{
    journal::Subject,
    members::{MemberId, MemberSet},
    mirror::Shared,
    read,
    request::Head,
};

mod buckets;
mod document;
mod lacks;
mod page;
#[cfg(test)]
mod tests;

pub(crate) use buckets::list_buckets;
use document::Asked;
pub(crate) use document::Kind;
use lacks::Lacks;
use page::{Item, Page};

/// Most bytes of a listing: 1000 keys of 1 KiB, each byte as `&#xNN;`, and what is said of them.
const LISTING_BYTES_MAX: usize = 16 << 20;

/// What a member lists from a position on.
struct Listed {
    items: Vec<Item>,
    /// Whether more follows the last of them.
    is_truncated: bool,
    /// The answer without its body, and the body.
    response: Response,
    text: String,
}

impl Listed {
    /// Its items, and where they end if there is more.
    fn span(&self) -> (&[Item], Option<Position>) {
        let end = self.items.last().filter(|_| self.is_truncated);
        (&self.items, end.map(Item::position))
    }
}

/// What a member says to a listing.
enum Said {
    Listed(Listed),
    /// Its refusal, which stands.
    Refused(Response),
}

/// Answers a listing of objects.
///
/// # Errors
/// `Unavailable` when no member that is current can be asked; the journal's own.
pub(crate) async fn list(
    shared: &Arc<Shared>,
    request: Request,
    kind: Kind,
    listing: &Listing,
) -> Result<Response, Error> {
    let (head, _) = Head::split(request);
    let Some(asked) = Asked::read(&head, kind, listing)? else {
        // Something is wrong with it, or nothing is asked for: any member says so.
        let subject = Subject::Bucket(listing.bucket.clone());
        return read::read(shared, head.with(Body::empty()), &subject).await;
    };
    let mut position = asked.position.clone();
    loop {
        let lacks = Lacks::read(shared, listing, &position).await?;
        let (said, base) = first_answer(shared, &asked, &lacks, &position).await?;
        let listed = match said {
            Said::Listed(listed) => listed,
            Said::Refused(response) => return Ok(response),
        };
        let mut page = overlaid(shared, &asked, (&lacks, base), listed.span()).await?;
        page.is_plain &= position == asked.position;
        match &page.next {
            // A client that goes on after the last key of a page needs one.
            Some(next) if page.items.is_empty() => position = next.clone(),
            Some(_) | None => return document::answer(&asked, &page, listed),
        }
    }
}

/// Has the first member answer that can, of those that lack the fewest keys first.
async fn first_answer(
    shared: &Shared,
    asked: &Asked<'_>,
    lacks: &Lacks,
    position: &Position,
) -> Result<(Said, MemberId), Error> {
    let mut answers = Answers::default();
    for member in lacks.order(shared) {
        let said = list_member(shared, member, asked, position).await;
        if let Some(answer) = answers.take(said.map(|said| (said, member))) {
            return answer;
        }
    }
    answers.last()
}

/// What members said that did not list: that a bucket is not there is believed when a second one
/// says so, any other refusal at once.
#[derive(Default)]
struct Answers {
    absent: Option<Result<(Said, MemberId), Error>>,
    failed: Option<Error>,
}

impl Answers {
    /// Takes an answer in; gives it back, or one before it, if that is the answer.
    fn take(
        &mut self,
        answer: Result<(Said, MemberId), Error>,
    ) -> Option<Result<(Said, MemberId), Error>> {
        let is_absent = match &answer {
            Ok((Said::Refused(response), _)) => response.status == StatusCode::NOT_FOUND,
            Err(Error::Refused(refusal)) => refusal.code.status() == StatusCode::NOT_FOUND,
            Ok((Said::Listed(_), _)) | Err(_) => false,
        };
        if is_absent {
            let earlier = self.absent.take();
            if earlier.is_none() {
                self.absent = Some(answer);
            }
            return earlier;
        }
        match answer {
            Err(error) if !matches!(error, Error::Refused(_)) => {
                self.failed = Some(error);
                None
            }
            answer => Some(answer),
        }
    }

    /// The answer when nobody else can be asked.
    fn last(self) -> Result<(Said, MemberId), Error> {
        let failed = self.failed;
        self.absent
            .unwrap_or_else(|| Err(failed.unwrap_or_else(nobody)))
    }
}

fn nobody() -> Error {
    Error::Unavailable {
        reason: "no member of the mirror that is current can be asked".into(),
    }
}

/// Members that can be read now and know whether the bucket is there.
async fn bucket_members(shared: &Shared, listing: &Listing) -> Result<MemberSet, Error> {
    let subject = Subject::Bucket(listing.bucket.clone());
    let held = shared.held(&subject).await?;
    let readable = shared.readable();
    Ok(held.map_or(readable, |held| held.entry.current(readable)))
}

/// Asks a member for what follows a position: one page, or more while they are empty.
async fn list_member(
    shared: &Shared,
    member: MemberId,
    asked: &Asked<'_>,
    position: &Position,
) -> Result<Said, Error> {
    let mut places = asked.kind.places_at(position);
    loop {
        let request = asked.request(&places);
        let mut response = shared.ask(member, request).await?;
        if !response.status.is_success() {
            return Ok(Said::Refused(response));
        }
        let body = std::mem::replace(&mut response.body, Body::empty());
        let (bytes, _) = body.collect(LISTING_BYTES_MAX).await?;
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| unreadable())?;
        let (items, next) = document::items(asked.kind, &text, position).ok_or_else(unreadable)?;
        if asked.kind == Kind::Versions && items.iter().any(Item::is_version) {
            let message = "A mirror lists no versions: its members number them differently.";
            return Err(Error::refused_because(Code::NotImplemented, message));
        }
        match next {
            Some(next) if items.is_empty() => places = next,
            next => {
                return Ok(Said::Listed(Listed {
                    items,
                    is_truncated: next.is_some(),
                    response,
                    text,
                }));
            }
        }
    }
}

fn unreadable() -> Error {
    Error::internal("read a listing of a member", "it is none")
}

/// What a member lists, with what others say of the keys that it lacks.
async fn overlaid(
    shared: &Arc<Shared>,
    asked: &Asked<'_>,
    (lacks, base): (&Lacks, MemberId),
    (listed, end): (&[Item], Option<Position>),
) -> Result<Page, Error> {
    // What the entries that were read do not cover is left to the next page.
    let end = match (end, lacks.horizon.clone()) {
        (Some(a), Some(b)) => Some(if a.bytes() <= b.bytes() { a } else { b }),
        (a, b) => a.or(b),
    };
    let says = lacks.told(shared, base, end.as_ref()).await?;
    let mut page = Page::of(listed, end, &asked.terms, says);
    for prefix in page.take_doubtful() {
        if !lives(shared, asked, &prefix).await? {
            page.remove_prefix(&prefix);
        }
    }
    page.cut(asked.terms.entries_max);
    Ok(page)
}

/// Whether anything is under a common prefix of which keys are deleted.
async fn lives(shared: &Arc<Shared>, asked: &Asked<'_>, prefix: &str) -> Result<bool, Error> {
    let listing = Listing {
        bucket: asked.bucket.clone(),
        prefix: prefix.to_owned(),
    };
    let mut request = asked.as_sent.with(Body::empty());
    request.operation = Operation::ListObjectsV2(listing.clone());
    request.query = Query::new(format!("list-type=2&prefix={}", uri::encode_query(prefix)));
    let answer = Box::pin(list(shared, request, Kind::V2, &listing)).await?;
    if !answer.status.is_success() {
        return Ok(false);
    }
    let (bytes, _) = answer.body.collect(LISTING_BYTES_MAX).await?;
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| unreadable())?;
    let document = fragments::read(&text).ok_or_else(unreadable)?;
    Ok(document
        .children
        .iter()
        .any(|child| child.name == "Contents"))
}
