//! Decides, from what the hot store says of a key, what an operation does: pure, no I/O, no clock.
//!
//! | record | reads | put | put, conditional | delete |
//! |---|---|---|---|---|
//! | none | cold | hot | cold | cold |
//! | dirty | the object | hot | hot, by its tag | tombstone |
//! | conflict | the object | hot | hot, by its tag | tombstone |
//! | tombstone | nothing | hot | hot, as absent | tombstone |
//! | buried | nothing | hot | hot, as absent | tombstone |
//! | settling | cold | hot | cold | tombstone |
//!
//! | record | delete, conditional | write past the tier | mover |
//! |---|---|---|---|
//! | none | cold | passes | — |
//! | dirty | tombstone, by its tag | flush first | write when due |
//! | conflict | tombstone, by its tag | passes, then settling | — |
//! | tombstone | fails | flush first | delete |
//! | buried | fails | uncover first | look again when due |
//! | settling | cold, then buried | passes | forget when due |
//!
//! A write to the cold store that was sent and not answered may still arrive later, for at most
//! the time `settle`. These rules keep such a latecomer from undoing what was acknowledged since:
//! - Whoever is about to change a key in the cold store says so in its record first, for that time
//!   (`late_ms`), and takes it back when all was answered. Until then no other request of the mover
//!   is sent, and no write passes by.
//! - A record that the cold store has had stays as *settling* or *buried* for that time, so that
//!   whoever writes next knows of it; a buried key is looked at once more at the end.
//!
//! What is found in the cold store is *ours* when it is the object itself, or carries a tag that
//! was written through the tier (`known`); *older* when it was written before ours was
//! acknowledged: both may be replaced. What is newer and not ours is a conflict: never replaced.

use forebay_native::{
    gate::{Act, Gate},
    hot::{Holding, HotRecord},
    record::ObjectRecord,
};
use forebay_s3::key::ObjectKey;
use forebay_store::Error;

/// Tags remembered of one key. One is added for each write while the record is hot; the mover
/// handles one at a time, so what may still arrive is among the latest. A guess, 2 KiB of record.
pub(crate) const KNOWN_MAX: usize = 64;
/// Times of the cold store are whole seconds, and our idea of its clock is as coarse: what looks
/// newer by less may have been older. Foreign writes this close after ours count as older.
pub(crate) const TOLERANCE_MS: i64 = 2000;

/// Where a read is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look<'a> {
    /// From the hot store.
    Object(&'a ObjectRecord),
    /// There is no such object.
    Gone,
    /// By the cold store.
    Cold,
}

/// Where a key is read.
pub(crate) fn look(record: Option<&HotRecord>) -> Look<'_> {
    match record.map(|record| &record.holding) {
        None | Some(Holding::Settling(_)) => Look::Cold,
        Some(Holding::Dirty(object) | Holding::Conflict { record: object, .. }) => {
            Look::Object(object)
        }
        Some(Holding::Tombstone | Holding::Buried(_)) => Look::Gone,
    }
}

/// How an object is written that belongs in the hot store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutWay {
    /// As a dirty record, in the place of the one that was judged.
    Hot,
    /// By the cold store, as only it can judge the condition in one step with the write.
    Cold,
}

/// How to write an object.
///
/// # Errors
/// What the gate refuses.
pub(crate) fn put(
    record: Option<&HotRecord>,
    gate: &Gate,
    key: &ObjectKey,
) -> Result<PutWay, Error> {
    if gate.is_open() {
        return Ok(PutWay::Hot);
    }
    let current = match look(record) {
        Look::Cold => return Ok(PutWay::Cold),
        Look::Gone => None,
        Look::Object(object) => Some(&object.etag),
    };
    gate.check(Act::Write, key, current)?;
    Ok(PutWay::Hot)
}

/// How an object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteWay {
    /// By a tombstone in the place of the record that was judged.
    Entomb,
    /// By the cold store.
    Cold,
    /// By the cold store, which judges the condition; then the key is buried.
    ColdThenBury,
}

/// How to delete an object.
///
/// # Errors
/// What the gate refuses.
pub(crate) fn delete(
    record: Option<&HotRecord>,
    gate: &Gate,
    key: &ObjectKey,
) -> Result<DeleteWay, Error> {
    match (look(record), record) {
        (Look::Cold, None) => Ok(DeleteWay::Cold),
        (Look::Cold, Some(_)) if gate.is_open() => Ok(DeleteWay::Entomb),
        (Look::Cold, Some(_)) => Ok(DeleteWay::ColdThenBury),
        (Look::Gone, _) => {
            // Again, as something may have come to the cold store that is hidden here.
            gate.check(Act::Delete, key, None)?;
            Ok(DeleteWay::Entomb)
        }
        (Look::Object(object), _) => {
            gate.check(Act::Delete, key, Some(&object.etag))?;
            Ok(DeleteWay::Entomb)
        }
    }
}

/// How a write goes to the cold store past the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectWay {
    /// As it is; what it was written over is told by `after_direct`.
    Pass,
    /// After the record has been applied to the cold store, so that nobody has to find out later
    /// which of the two was the last.
    FlushFirst,
    /// After the buried key has become a settling one: the write is not to be hidden by what was
    /// deleted before it, not even from who judges a condition meanwhile.
    UncoverFirst,
}

/// How a write passes the tier by.
pub(crate) fn direct(record: Option<&HotRecord>) -> DirectWay {
    match record.map(|record| &record.holding) {
        None | Some(Holding::Conflict { .. } | Holding::Settling(_)) => DirectWay::Pass,
        Some(Holding::Dirty(_) | Holding::Tombstone) => DirectWay::FlushFirst,
        Some(Holding::Buried(_)) => DirectWay::UncoverFirst,
    }
}

/// Whether no request of the mover is under way or lost, so that a write may pass by: it could
/// bring back the tag on which such a request waits.
pub(crate) fn may_pass(record: Option<&HotRecord>, now_ms: i64) -> bool {
    record.is_none_or(|record| record.late_ms <= now_ms)
}

/// The record that says that a request of the mover was lost.
pub(crate) fn with_late(record: &HotRecord, until_ms: i64) -> HotRecord {
    let mut next = record.clone();
    next.late_ms = next.late_ms.max(until_ms);
    // It has to be there for as long.
    if let Holding::Settling(until) | Holding::Buried(until) = &mut next.holding {
        *until = until_ms.max(*until);
    }
    next
}

/// What is known of a write that passed the tier by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectOutcome {
    /// It happened; its tag, if it was told.
    Done(Option<String>),
    /// It never will.
    Refused,
    /// Nobody knows; it may still come.
    Unknown,
}

/// The record to put in the place of `now`, once a write passed by; `None` leaves it.
///
/// `seen` names the record that was there before the write: what it says is over. What came
/// meanwhile wins, as reads have shown it, but must know whose object is in the cold store.
pub(crate) fn after_direct(
    now: Option<&HotRecord>,
    seen: Option<&str>,
    outcome: &DirectOutcome,
    (now_ms, settle_ms): (i64, i64),
    write: String,
) -> Option<HotRecord> {
    let until_ms = now_ms + settle_ms;
    match outcome {
        DirectOutcome::Refused => None,
        DirectOutcome::Unknown => {
            let mut next = now.cloned().unwrap_or_else(|| HotRecord {
                write,
                acknowledged_ms: now_ms,
                known: Vec::new(),
                doubt_ms: 0,
                late_ms: 0,
                holding: Holding::Settling(until_ms),
            });
            if let Holding::Settling(until) = &mut next.holding {
                *until = until_ms.max(*until);
            }
            next.doubt_ms = next.doubt_ms.max(until_ms);
            Some(next)
        }
        DirectOutcome::Done(etag) => {
            let now = now?;
            let mut next = if Some(now.write.as_str()) == seen {
                after(Some(now), write, now_ms, Holding::Settling(until_ms))
            } else {
                now.clone()
            };
            match etag {
                Some(etag) => learn(&mut next.known, etag),
                None => next.doubt_ms = next.doubt_ms.max(now_ms),
            }
            // Whoever called it a conflict had met this write.
            if let (Holding::Conflict { record, found }, Some(etag)) = (&next.holding, etag)
                && found == etag
            {
                next.holding = Holding::Dirty(record.clone());
            }
            (next != *now).then_some(next)
        }
    }
}

/// The record that follows another: it knows the tags that the one before it knew, and its own.
pub(crate) fn after(
    before: Option<&HotRecord>,
    write: String,
    acknowledged_ms: i64,
    holding: Holding,
) -> HotRecord {
    let mut known = before
        .map(|before| before.known.clone())
        .unwrap_or_default();
    match before.map(|before| &before.holding) {
        None | Some(Holding::Tombstone | Holding::Buried(_) | Holding::Settling(_)) => {}
        Some(Holding::Dirty(object)) => learn(&mut known, &object.etag.to_string()),
        Some(Holding::Conflict { record, found }) => {
            learn(&mut known, &record.etag.to_string());
            learn(&mut known, found);
        }
    }
    HotRecord {
        write,
        acknowledged_ms,
        known,
        doubt_ms: before.map_or(0, |before| before.doubt_ms),
        late_ms: before.map_or(0, |before| before.late_ms),
        holding,
    }
}

/// Adds a tag as the latest.
pub(crate) fn learn(known: &mut Vec<String>, etag: &str) {
    known.retain(|other| other != etag);
    if known.len() >= KNOWN_MAX {
        known.remove(0);
    }
    known.push(etag.to_owned());
}

/// Whether the cold store judges conditions of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conditions {
    /// `If-Match` and `If-None-Match` hold, in one step with the write.
    Honoured,
    /// They are ignored: the mover looks before it writes, and what another writes to the cold
    /// store between the two is lost.
    Ignored,
}

/// What the mover does with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the object to the cold store.
    Write,
    /// Delete the key there.
    Delete,
    /// See whether a late write has brought a buried key back.
    Check,
    /// Forget the record.
    Forget,
    /// Nothing before then, Unix milliseconds.
    WaitUntil(i64),
    /// Nothing: an operator decides.
    Leave,
}

/// What the mover does with a record whose turn has come.
pub(crate) fn step(record: &HotRecord, now_ms: i64) -> Step {
    let wait = |until_ms: i64, then| {
        if until_ms > now_ms {
            Step::WaitUntil(until_ms)
        } else {
            then
        }
    };
    let late_ms = record.late_ms;
    match &record.holding {
        Holding::Dirty(_) => wait(late_ms, Step::Write),
        Holding::Tombstone => wait(late_ms, Step::Delete),
        Holding::Buried(until_ms) => wait(late_ms.max(*until_ms), Step::Check),
        Holding::Settling(until_ms) => wait(*until_ms, Step::Forget),
        Holding::Conflict { .. } => Step::Leave,
    }
}

/// What was found in the cold store under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its tag, quotes included.
    pub(crate) etag: String,
    /// When it was written, Unix milliseconds by the cold store's clock.
    pub(crate) modified_ms: i64,
    /// Whether it is what the record holds.
    pub(crate) likeness: Likeness,
}

/// Whether what was found is what a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// Bytes, headers and tags.
    Whole,
    /// The bytes alone.
    Bytes,
    /// Not even those.
    None,
}

/// What is to be made of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the object: there is nothing left to do.
    Same,
    /// It may be replaced, or deleted.
    Replaceable,
    /// Somebody else's, and newer.
    Foreign,
}

/// Judges what was found in the cold store under the key of a record.
pub(crate) fn judge(record: &HotRecord, found: &Found) -> Verdict {
    match (&record.holding, found.likeness) {
        (Holding::Dirty(_) | Holding::Conflict { .. }, Likeness::Whole) => return Verdict::Same,
        (Holding::Dirty(_) | Holding::Conflict { .. }, Likeness::Bytes) => {
            return Verdict::Replaceable;
        }
        (_, Likeness::Whole | Likeness::Bytes | Likeness::None) => {}
    }
    let not_after_ms = record.acknowledged_ms.max(record.doubt_ms) + TOLERANCE_MS;
    if record.known.contains(&found.etag) || found.modified_ms <= not_after_ms {
        Verdict::Replaceable
    } else {
        Verdict::Foreign
    }
}

#[cfg(test)]
mod tests;
