//! Moves one key: looks, writes or deletes under a condition, and only then changes its record.

use std::sync::Arc;

use forebay_native::hot::{Held, Holding, HotBytes, HotKey, HotRecord, Swapped, Want};
use forebay_store::{Body, Error};
use forebay_telemetry::tier::MoveOutcome;

use super::{Urgency, claim::Claim};
use crate::{
    cold::{Condition, Trouble},
    ledger::{self, Conditions, Found, Step, Verdict},
    tier::Tier,
};

/// Looks at the cold store's object while others change it, before the key is left for later.
const LOOKS_MAX: usize = 4;
/// Tries to change a record that others change as well.
const ATTEMPTS_MAX: usize = 32;

/// How the work on a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// There was nothing to do, or it is not time yet.
    Rest,
    /// The record says what the cold store holds now.
    Done(MoveOutcome),
    /// It is as it was: try later.
    Failed(MoveOutcome),
}

/// Does the next step of a key.
pub(crate) async fn move_key(tier: &Arc<Tier>, key: &HotKey, urgency: Urgency) -> End {
    let begun = tier.clock.now();
    let end = match step(tier, key, urgency).await {
        Ok(end) => end,
        Err(error) => {
            tracing::warn!(%error, bucket = %key.bucket, key = %key.key, "a move failed");
            End::Failed(MoveOutcome::Failed)
        }
    };
    if let End::Done(MoveOutcome::Written | MoveOutcome::Deleted) = end {
        let time = tier.clock.now().saturating_duration_since(begun);
        tier.metrics.move_seconds.observe(time.as_secs_f64());
    }
    end
}

async fn step(tier: &Arc<Tier>, key: &HotKey, urgency: Urgency) -> Result<End, Error> {
    let Some(held) = tier.hot.get(key, Want::Value).await? else {
        return Ok(End::Rest);
    };
    if let Urgency::All(until_ms) = urgency
        && held.record.acknowledged_ms > until_ms
    {
        return Ok(End::Rest);
    }
    match ledger::step(&held.record, tier.cold.now_ms()) {
        Step::Leave | Step::WaitUntil(_) => Ok(End::Rest),
        Step::Forget => {
            tier.swap(key, Some(&held), None).await?;
            Ok(End::Rest)
        }
        step @ (Step::Write | Step::Delete | Step::Check) => {
            let Some(mut claim) = Claim::take(tier, key, held).await? else {
                return Ok(End::Rest);
            };
            let end = match step {
                Step::Write => write(tier, key, &mut claim).await,
                Step::Delete => delete(tier, key, &mut claim).await,
                Step::Check | Step::Forget | Step::WaitUntil(_) | Step::Leave => {
                    check(tier, key, &mut claim).await
                }
            };
            match end {
                // Their records are without the claim.
                Ok(End::Done(
                    MoveOutcome::Written
                    | MoveOutcome::Already
                    | MoveOutcome::Deleted
                    | MoveOutcome::Overtaken
                    | MoveOutcome::Conflict,
                )) => {}
                Ok(_) | Err(_) => claim.end(tier, key).await?,
            }
            end
        }
    }
}

/// What is tried first on an object that has not been looked at.
fn first_condition(record: &HotRecord) -> Condition {
    match record.known.last() {
        Some(etag) => Condition::Match(etag.clone()),
        None => Condition::Absent,
    }
}

/// What one attempt at the cold store brought.
enum Attempt {
    Done(String),
    /// The condition did not hold: look.
    Look,
    /// Nobody knows: say so, and look.
    Lost,
    End(End),
}

async fn write(tier: &Arc<Tier>, key: &HotKey, claim: &mut Claim) -> Result<End, Error> {
    let mut condition = match tier.settings.conditions {
        Conditions::Honoured => Some(first_condition(&claim.held.record)),
        // The store would write whatever the condition.
        Conditions::Ignored => None,
    };
    for _ in 0..LOOKS_MAX {
        let Some(object) = claim.held.record.holding.record() else {
            return Ok(End::Rest);
        };
        let Some(now) = condition.take() else {
            let found = match tier.cold.find(key, Some(object)).await {
                Ok(found) => found,
                Err(trouble) => return Ok(failed(key, &trouble)),
            };
            // What was found may be the next object of this key, moved by another. Where ours is
            // still the current one after the look, it was not; and what comes later has another
            // tag than the one that is found.
            if !is_current(tier, key, &claim.held).await? {
                return Ok(End::Done(MoveOutcome::Superseded));
            }
            match verdict(&claim.held.record, found) {
                Next::Try(next) => condition = Some(next),
                Next::Same(etag) => {
                    return moved(tier, key, claim, (&etag, MoveOutcome::Already)).await;
                }
                Next::Foreign(found) => return conflict(tier, key, claim, found).await,
            }
            continue;
        };
        if !claim.may_send(tier) {
            return Ok(End::Rest);
        }
        let span = 0..object.size_bytes;
        let Some(body) = tier.hot.bytes(key, &claim.held, span).await? else {
            return Ok(End::Done(MoveOutcome::Superseded));
        };
        match attempt(tier, key, (&claim.held.record, body), now).await {
            Attempt::Done(etag) => {
                return moved(tier, key, claim, (&etag, MoveOutcome::Written)).await;
            }
            Attempt::Look => {}
            Attempt::Lost if claim.lost(tier, key).await? => {}
            Attempt::Lost => return Ok(End::Done(MoveOutcome::Superseded)),
            Attempt::End(end) => return Ok(end),
        }
    }
    Ok(End::Failed(MoveOutcome::Failed))
}

/// Whether a record is still the one that was read.
async fn is_current(tier: &Tier, key: &HotKey, held: &Held) -> Result<bool, Error> {
    let now = tier.hot.get(key, Want::Value).await?;
    Ok(now.is_some_and(|now| now.sequence == held.sequence))
}

/// What to do about what was found.
enum Next {
    Try(Condition),
    Same(String),
    Foreign(Found),
}

fn verdict(record: &HotRecord, found: Option<Found>) -> Next {
    match found {
        None => Next::Try(Condition::Absent),
        Some(found) => match ledger::judge(record, &found) {
            Verdict::Same => Next::Same(found.etag),
            Verdict::Replaceable => Next::Try(Condition::Match(found.etag)),
            Verdict::Foreign => Next::Foreign(found),
        },
    }
}

/// Writes the object once.
async fn attempt(
    tier: &Tier,
    key: &HotKey,
    (record, body): (&HotRecord, Body),
    condition: Condition,
) -> Attempt {
    let Some(object) = record.holding.record() else {
        return Attempt::End(End::Rest);
    };
    let sent = match tier.settings.conditions {
        Conditions::Honoured => condition,
        Conditions::Ignored => Condition::None,
    };
    match tier.cold.write(key, object, body, &sent).await {
        Ok(etag) => match verified(&etag, object) {
            Verified::Yes => Attempt::Done(etag),
            // Other bytes than ours under our condition: look what they are.
            Verified::No => Attempt::Look,
        },
        Err(trouble) if trouble.is_condition() => Attempt::Look,
        Err(Trouble::Unknown) => Attempt::Lost,
        Err(trouble) => Attempt::End(failed(key, &trouble)),
    }
}

/// Whether the tag of an answer vouches for the bytes.
enum Verified {
    Yes,
    No,
}

fn verified(etag: &str, object: &forebay_native::record::ObjectRecord) -> Verified {
    let value = etag.trim_matches('"');
    let is_md5 = value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit());
    // A store that encrypts gives tags that are no MD5; it has checked `Content-MD5` itself.
    if !is_md5 || value == object.etag.value() {
        Verified::Yes
    } else {
        Verified::No
    }
}

/// Says in the record that the cold store has the object now. A record that was written meanwhile
/// stays, and learns whose object is there.
async fn moved(
    tier: &Tier,
    key: &HotKey,
    claim: &Claim,
    (etag, outcome): (&str, MoveOutcome),
) -> Result<End, Error> {
    let until_ms = tier.cold.now_ms() + tier.settle_ms();
    let mut next = succeeded(claim, Holding::Settling(until_ms));
    ledger::learn(&mut next.known, etag);
    let to = Some((next, HotBytes::None));
    if let Swapped::Done(_) = tier.swap(key, Some(&claim.held), to).await? {
        return Ok(End::Done(outcome));
    }
    for _ in 0..ATTEMPTS_MAX {
        let Some(now) = tier.hot.get(key, Want::Value).await? else {
            break;
        };
        let mut next = now.record.clone();
        if next.known.iter().any(|known| known == etag) {
            break;
        }
        ledger::learn(&mut next.known, etag);
        let to = Some((next, HotBytes::Kept));
        if let Swapped::Done(_) = tier.swap(key, Some(&now), to).await? {
            break;
        }
    }
    Ok(End::Done(MoveOutcome::Superseded))
}

/// The record that follows when the cold store has had what this one says.
fn succeeded(claim: &Claim, holding: Holding) -> HotRecord {
    let record = &claim.held.record;
    let (write, at_ms) = (record.write.clone(), record.acknowledged_ms);
    let mut next = ledger::after(Some(record), write, at_ms, holding);
    next.late_ms = claim.late_ms();
    next
}

async fn conflict(tier: &Tier, key: &HotKey, claim: &Claim, found: Found) -> Result<End, Error> {
    let held = &claim.held;
    let Holding::Dirty(record) = &held.record.holding else {
        return Ok(End::Rest);
    };
    let mut next = held.record.clone();
    next.holding = Holding::Conflict {
        record: record.clone(),
        found: found.etag.clone(),
    };
    next.late_ms = claim.late_ms();
    let to = Some((next, HotBytes::Kept));
    if let Swapped::Changed = tier.swap(key, Some(held), to).await? {
        return Ok(End::Done(MoveOutcome::Superseded));
    }
    tier.metrics.conflicts_found.inc();
    tracing::error!(
        bucket = %key.bucket,
        key = %key.key,
        found = found.etag,
        ours = %record.etag,
        "somebody else has written this key in the cold store since it was acknowledged here; \
         it is kept until an operator decides: forebay admin tier conflicts",
    );
    Ok(End::Done(MoveOutcome::Conflict))
}

async fn delete(tier: &Arc<Tier>, key: &HotKey, claim: &mut Claim) -> Result<End, Error> {
    for _ in 0..LOOKS_MAX {
        let found = match tier.cold.find(key, None).await {
            Ok(found) => found,
            Err(trouble) => return Ok(failed(key, &trouble)),
        };
        if !is_current(tier, key, &claim.held).await? {
            return Ok(End::Done(MoveOutcome::Superseded));
        }
        let until_ms = tier.cold.now_ms() + tier.settle_ms();
        let condition = match verdict(&claim.held.record, found) {
            Next::Try(Condition::Absent) => {
                let buried = Holding::Buried(until_ms);
                return put_to_rest(tier, key, claim, (buried, MoveOutcome::Deleted)).await;
            }
            Next::Try(condition) => condition,
            // A delete loses to whoever wrote after it; nothing that was acknowledged is lost.
            Next::Same(_) | Next::Foreign(_) => {
                let settling = Holding::Settling(until_ms);
                return put_to_rest(tier, key, claim, (settling, MoveOutcome::Overtaken)).await;
            }
        };
        if !claim.may_send(tier) {
            return Ok(End::Rest);
        }
        let sent = match tier.settings.conditions {
            Conditions::Honoured => condition,
            Conditions::Ignored => Condition::None,
        };
        match tier.cold.delete(key, &sent).await {
            Ok(()) => {
                let buried = Holding::Buried(tier.cold.now_ms() + tier.settle_ms());
                return put_to_rest(tier, key, claim, (buried, MoveOutcome::Deleted)).await;
            }
            Err(trouble) if trouble.is_condition() => {}
            Err(Trouble::Unknown) => {
                if !claim.lost(tier, key).await? {
                    return Ok(End::Done(MoveOutcome::Superseded));
                }
            }
            Err(trouble) => return Ok(failed(key, &trouble)),
        }
    }
    Ok(End::Failed(MoveOutcome::Failed))
}

/// Says in the record what the cold store holds now.
async fn put_to_rest(
    tier: &Tier,
    key: &HotKey,
    claim: &Claim,
    (holding, outcome): (Holding, MoveOutcome),
) -> Result<End, Error> {
    let to = Some((succeeded(claim, holding), HotBytes::None));
    match tier.swap(key, Some(&claim.held), to).await? {
        Swapped::Done(_) => Ok(End::Done(outcome)),
        Swapped::Changed => Ok(End::Done(MoveOutcome::Superseded)),
    }
}

/// Looks once more at a key that was deleted: what came late is deleted again.
async fn check(tier: &Arc<Tier>, key: &HotKey, claim: &mut Claim) -> Result<End, Error> {
    let found = match tier.cold.find(key, None).await {
        Ok(found) => found,
        Err(trouble) => return Ok(failed(key, &trouble)),
    };
    let judged = found.map(|found| ledger::judge(&claim.held.record, &found));
    match judged {
        Some(Verdict::Replaceable) => delete(tier, key, claim).await,
        // Nothing came, or somebody has written the key anew.
        None | Some(Verdict::Same | Verdict::Foreign) => {
            tier.swap(key, Some(&claim.held), None).await?;
            Ok(End::Rest)
        }
    }
}

fn failed(key: &HotKey, trouble: &Trouble) -> End {
    match trouble {
        Trouble::Busy | Trouble::Unknown => End::Failed(MoveOutcome::Failed),
        Trouble::Refused(status, code) => {
            tracing::warn!(
                bucket = %key.bucket,
                key = %key.key,
                %status,
                code,
                "the cold store refuses an object; it stays in the hot store and is tried again",
            );
            End::Failed(MoveOutcome::Refused)
        }
    }
}
