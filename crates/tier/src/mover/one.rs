//! Moves one key: looks, writes or deletes under a condition, and only then changes its record.

use std::sync::Arc;

use forebay_native::hot::{Held, Holding, HotBytes, HotKey, HotRecord, Swapped, Want};
use forebay_store::{Body, Error};
use forebay_telemetry::tier::MoveOutcome;

use super::Urgency;
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
    match ledger::step(&held.record, tier.cold.now_ms(), tier.terms()) {
        Step::Leave | Step::WaitUntil(_) => Ok(End::Rest),
        Step::Forget => {
            tier.swap(key, Some(&held), None).await?;
            Ok(End::Rest)
        }
        Step::Write => write(tier, key, held).await,
        Step::Delete => delete(tier, key, held).await,
        Step::Check => check(tier, key, held).await,
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

async fn write(tier: &Arc<Tier>, key: &HotKey, mut held: Held) -> Result<End, Error> {
    let mut condition = match tier.settings.conditions {
        Conditions::Honoured => Some(first_condition(&held.record)),
        // The store would write whatever the condition.
        Conditions::Ignored => None,
    };
    for _ in 0..LOOKS_MAX {
        let Some(object) = held.record.holding.record() else {
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
            if !is_current(tier, key, &held).await? {
                return Ok(End::Done(MoveOutcome::Superseded));
            }
            match verdict(&held.record, found) {
                Next::Try(next) => condition = Some(next),
                Next::Same(etag) => {
                    return moved(tier, key, &held, &etag, MoveOutcome::Already).await;
                }
                Next::Foreign(found) => return conflict(tier, key, held, found).await,
            }
            continue;
        };
        let span = 0..object.size_bytes;
        let Some(body) = tier.hot.bytes(key, &held, span).await? else {
            return Ok(End::Done(MoveOutcome::Superseded));
        };
        match attempt(tier, key, (&held.record, body), now).await {
            Attempt::Done(etag) => {
                return moved(tier, key, &held, &etag, MoveOutcome::Written).await;
            }
            Attempt::Look => {}
            Attempt::Lost => match lost(tier, key, &held).await? {
                Some(now) => held = now,
                None => return Ok(End::Done(MoveOutcome::Superseded)),
            },
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

/// Says in the record, or in the one that has taken its place, that a request was lost; the
/// record as it is then, if it is still this one.
async fn lost(tier: &Tier, key: &HotKey, held: &Held) -> Result<Option<Held>, Error> {
    let until_ms = tier.cold.now_ms() + tier.settle_ms();
    for _ in 0..ATTEMPTS_MAX {
        let Some(now) = tier.hot.get(key, Want::Value).await? else {
            return Ok(None);
        };
        let next = ledger::with_late(&now.record, until_ms);
        let to = Some((next, HotBytes::Kept));
        if let Swapped::Done(_) = tier.swap(key, Some(&now), to).await? {
            let is_same = now.sequence == held.sequence;
            let after = tier.hot.get(key, Want::Value).await?;
            return Ok(after.filter(|after| is_same && after.record.write == held.record.write));
        }
    }
    Err(Error::SlowDown { retry_after: None })
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
    held: &Held,
    etag: &str,
    outcome: MoveOutcome,
) -> Result<End, Error> {
    let until_ms = tier.cold.now_ms() + tier.settle_ms();
    let settling = Holding::Settling(until_ms);
    let mut next = succeeded(&held.record, settling);
    ledger::learn(&mut next.known, etag);
    let to = Some((next, HotBytes::None));
    if let Swapped::Done(_) = tier.swap(key, Some(held), to).await? {
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
fn succeeded(record: &HotRecord, holding: Holding) -> HotRecord {
    let write = record.write.clone();
    let at_ms = record.acknowledged_ms;
    ledger::after(Some(record), write, at_ms, holding)
}

async fn conflict(tier: &Tier, key: &HotKey, held: Held, found: Found) -> Result<End, Error> {
    let Holding::Dirty(record) = &held.record.holding else {
        return Ok(End::Rest);
    };
    let mut next = held.record.clone();
    next.holding = Holding::Conflict {
        record: record.clone(),
        found: found.etag.clone(),
    };
    let to = Some((next, HotBytes::Kept));
    if let Swapped::Changed = tier.swap(key, Some(&held), to).await? {
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

async fn delete(tier: &Arc<Tier>, key: &HotKey, mut held: Held) -> Result<End, Error> {
    for _ in 0..LOOKS_MAX {
        let found = match tier.cold.find(key, None).await {
            Ok(found) => found,
            Err(trouble) => return Ok(failed(key, &trouble)),
        };
        if !is_current(tier, key, &held).await? {
            return Ok(End::Done(MoveOutcome::Superseded));
        }
        let condition = match verdict(&held.record, found) {
            Next::Try(Condition::Absent) => {
                return buried(tier, key, &held, MoveOutcome::Deleted).await;
            }
            Next::Try(condition) => condition,
            // A delete loses to whoever wrote after it; nothing that was acknowledged is lost.
            Next::Same(_) | Next::Foreign(_) => {
                let settling = Holding::Settling(tier.cold.now_ms() + tier.settle_ms());
                let to = Some((succeeded(&held.record, settling), HotBytes::None));
                tier.swap(key, Some(&held), to).await?;
                return Ok(End::Done(MoveOutcome::Overtaken));
            }
        };
        let sent = match tier.settings.conditions {
            Conditions::Honoured => condition,
            Conditions::Ignored => Condition::None,
        };
        match tier.cold.delete(key, &sent).await {
            Ok(()) => return buried(tier, key, &held, MoveOutcome::Deleted).await,
            Err(trouble) if trouble.is_condition() => {}
            Err(Trouble::Unknown) => match lost(tier, key, &held).await? {
                Some(now) => held = now,
                None => return Ok(End::Done(MoveOutcome::Superseded)),
            },
            Err(trouble) => return Ok(failed(key, &trouble)),
        }
    }
    Ok(End::Failed(MoveOutcome::Failed))
}

/// Says in the record that the cold store's object is deleted.
async fn buried(
    tier: &Tier,
    key: &HotKey,
    held: &Held,
    outcome: MoveOutcome,
) -> Result<End, Error> {
    let holding = Holding::Buried(tier.cold.now_ms() + tier.settle_ms());
    let to = Some((succeeded(&held.record, holding), HotBytes::None));
    match tier.swap(key, Some(held), to).await? {
        Swapped::Done(_) => Ok(End::Done(outcome)),
        Swapped::Changed => Ok(End::Done(MoveOutcome::Superseded)),
    }
}

/// Looks once more at a key that was deleted: what came late is deleted again.
async fn check(tier: &Arc<Tier>, key: &HotKey, held: Held) -> Result<End, Error> {
    match tier.cold.find(key, None).await {
        Err(trouble) => Ok(failed(key, &trouble)),
        Ok(Some(found)) if held.record.known.contains(&found.etag) => delete(tier, key, held).await,
        // Nothing came, or somebody has written the key anew.
        Ok(_) => {
            tier.swap(key, Some(&held), None).await?;
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
