//! Writes that pass the tier by, to the cold store, and what they leave in the hot one.
//!
//! What the hot store has of the key goes to the cold store first, so that a write that fails, or
//! whose gateway ends in the middle, leaves the object that was acknowledged before it, and nobody
//! has to find out which of two was the last (ARCHITECTURE.md tells why there is no marker). The
//! same is done for every other operation that needs the object where it is asked for.

use std::{sync::Arc, time::Duration};

use forebay_native::hot::{Holding, HotBytes, HotKey, HotRecord, Swapped, Want};
use forebay_s3::{operation::ObjectId, xml};
use forebay_store::{Body, Error, Request, Response};

use crate::{
    cold::etag_in,
    ledger::{self, DirectOutcome, DirectWay},
    mover,
    read::cold,
    tier::Tier,
};

/// Tries to bring a key to rest that others write.
const FLUSHES_MAX: usize = 8;
/// Looks at a key that the mover is at work on; a move takes as long as two or three requests.
const WAITS_MAX: usize = 100;
/// Time between two of them.
const WAIT: Duration = Duration::from_millis(20);
/// Tries to change a record that others change as well.
const ATTEMPTS_MAX: usize = 32;
/// Most bytes of an answer to a copy or a completion.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How an answer says whether the write happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// By its status.
    Status,
    /// At the end of its body, as those of copies and completions.
    Body,
}

/// Brings a key to the cold store; the record that is left, if any.
///
/// # Errors
/// `SlowDown` when the key does not come to rest, or whatever keeps it from being moved.
pub(crate) async fn flush(tier: &Arc<Tier>, key: &HotKey) -> Result<Option<HotRecord>, Error> {
    let (mut flushes_left, mut waits_left) = (FLUSHES_MAX, WAITS_MAX);
    while flushes_left > 0 {
        let held = tier.held(key, Want::Value).await?;
        let record = held.as_ref().map(|held| &held.record);
        let now_ms = tier.cold.now_ms();
        if !ledger::may_pass(record, now_ms) {
            if waits_left == 0 {
                break;
            }
            waits_left -= 1;
            tokio::time::sleep(WAIT).await;
            continue;
        }
        match ledger::direct(record) {
            DirectWay::Pass => return Ok(held.map(|held| held.record)),
            DirectWay::UncoverFirst => {
                let until = Holding::Settling(now_ms + tier.settle_ms());
                let next = ledger::after(record, tier.next_write(), now_ms, until);
                let to = Some((next, HotBytes::None));
                tier.swap(key, held.as_ref(), to).await?;
            }
            DirectWay::FlushFirst => {
                flushes_left -= 1;
                mover::move_now(tier, key).await?;
            }
        }
    }
    let retry_after = Some(tier.settings.settle);
    Err(Error::SlowDown { retry_after })
}

/// Sends a write to the cold store.
pub(crate) async fn write(
    tier: &Arc<Tier>,
    request: Request,
    object: &ObjectId,
    telling: Telling,
) -> Result<Response, Error> {
    let key = HotKey::from(object);
    let seen = flush(tier, &key).await?;
    let seen = seen.map(|record| record.write);
    let mut guard = Guard {
        tier,
        key: Some(key.clone()),
    };
    let answer = cold(tier, request).await;
    // An answer that comes slowly keeps its client's connection alive; it is read to its end only
    // where there is a record to be changed by it.
    let is_late = answer
        .as_ref()
        .is_ok_and(|response| response.body.length().is_none());
    if telling == Telling::Body && is_late && seen.is_none() {
        let now = tier.held(&key, Want::Value).await?;
        if now.is_none() {
            guard.key = None;
            return answer;
        }
    }
    let (answer, outcome) = match telling {
        Telling::Status => {
            let outcome = outcome_of(&answer);
            (answer, outcome)
        }
        Telling::Body => read_to_end(answer).await,
    };
    guard.key = None;
    if let Err(error) = settle(tier, &key, seen.as_deref(), &outcome).await {
        // The write has happened, but a record may hide it.
        if answer.is_ok() && outcome != DirectOutcome::Refused {
            tier.doubt(key);
            return Err(error);
        }
    }
    answer
}

/// Remembers a write that was dropped before its end was known.
struct Guard<'a> {
    tier: &'a Tier,
    key: Option<HotKey>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.tier.doubt(key);
        }
    }
}

fn outcome_of(answer: &Result<Response, Error>) -> DirectOutcome {
    match answer {
        Ok(response) if response.status.is_success() => {
            let etag = etag_in(&response.headers);
            DirectOutcome::Done((!etag.is_empty()).then_some(etag))
        }
        Ok(response) if response.status.is_server_error() => DirectOutcome::Unknown,
        Ok(_)
        | Err(
            Error::Refused(_)
            | Error::SlowDown { .. }
            | Error::Unavailable { .. }
            | Error::ClientGone,
        ) => DirectOutcome::Refused,
        Err(Error::Indeterminate { .. } | Error::Cut { .. } | Error::Internal { .. }) => {
            DirectOutcome::Unknown
        }
    }
}

/// Reads an answer whose body says how it ended.
async fn read_to_end(answer: Result<Response, Error>) -> (Result<Response, Error>, DirectOutcome) {
    let outcome = outcome_of(&answer);
    let mut response = match (answer, &outcome) {
        (Ok(response), DirectOutcome::Done(_)) => response,
        (answer, _) => return (answer, outcome),
    };
    match std::mem::take(&mut response.body)
        .collect(ANSWER_BYTES_MAX)
        .await
    {
        Ok((bytes, _)) => {
            let outcome = match xml::error_in(&bytes) {
                Some(_) => DirectOutcome::Unknown,
                None => DirectOutcome::Done(etag_of_document(&bytes)),
            };
            response.body = Body::from(bytes);
            (Ok(response), outcome)
        }
        Err(error) => (Err(error), DirectOutcome::Unknown),
    }
}

/// The tag that the document of a copy or a completion names.
fn etag_of_document(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("<ETag>")?;
    let (etag, _) = rest.split_once("</ETag>")?;
    let etag = etag.replace("&quot;", "\"").replace("&#34;", "\"");
    Some(if etag.starts_with('"') {
        etag
    } else {
        format!("\"{etag}\"")
    })
}

/// Whether the cold store has what was written in a key that is buried.
async fn is_last(
    tier: &Tier,
    key: &HotKey,
    now: &HotRecord,
    outcome: &DirectOutcome,
) -> Result<bool, Error> {
    let (Holding::Buried(_), DirectOutcome::Done(Some(etag))) = (&now.holding, outcome) else {
        return Ok(false);
    };
    match tier.cold.find(key, None).await {
        Ok(found) => Ok(found.is_some_and(|found| found.etag == *etag)),
        Err(_) => Err(Error::Indeterminate {
            elapsed: Duration::ZERO,
        }),
    }
}

/// Writes down what a write that passed by has left behind.
pub(crate) async fn settle(
    tier: &Tier,
    key: &HotKey,
    seen: Option<&str>,
    outcome: &DirectOutcome,
) -> Result<(), Error> {
    if *outcome == DirectOutcome::Refused {
        return Ok(());
    }
    for _ in 0..ATTEMPTS_MAX {
        let held = tier.held(key, Want::Value).await?;
        let now = held.as_ref().map(|held| &held.record);
        // A write that came to the cold store after a delete that began later is the last of the
        // two: a condition of it was judged on what the delete had left.
        let seen = match now {
            Some(now) if is_last(tier, key, now, outcome).await? => Some(now.write.as_str()),
            Some(_) | None => seen,
        };
        let times = (tier.cold.now_ms(), tier.settle_ms());
        let Some(next) = ledger::after_direct(now, seen, outcome, times, tier.next_write()) else {
            return Ok(());
        };
        let bytes = match &next.holding {
            Holding::Dirty(_) | Holding::Conflict { .. } => HotBytes::Kept,
            Holding::Tombstone | Holding::Buried(_) | Holding::Settling(_) => HotBytes::None,
        };
        match tier.swap(key, held.as_ref(), Some((next, bytes))).await? {
            Swapped::Done(_) => return Ok(()),
            Swapped::Changed => {}
        }
    }
    Err(Error::SlowDown { retry_after: None })
}
