//! What a write leaves in the journal, when it may be acknowledged, and what settles one whose
//! gateway ended: a table, as pure functions.
//!
//! The *lead* of a write is a member that had the last state before it: what the lead holds **is**
//! what the key holds while the write is under way, and reads go to it alone. So a write whose
//! gateway ends anywhere is settled by a look at the lead.
//!
//! "Sure" is who is not in doubt.
//!
//! | the write is at | the entry becomes | the client is told |
//! |---|---|---|
//! | `writes_min` that owed nothing, with the lead | as it is; removed at the end | done |
//! | `writes_min` otherwise, one of them sure | all others owe, first of all | done |
//! | fewer, at the end | all others owe: the write stays | nothing certain |
//! | nobody sure; the lead certainly not | as before; who may have it owes | why, or come again |
//! | nobody sure; the lead perhaps | as it is, to be settled | nothing certain |
//!
//! Settled by:
//!
//! | who can be asked | the state of the key is |
//! |---|---|
//! | the lead | the lead's |
//! | after a time: enough others to have every acknowledged write | see below |
//! | fewer | not known yet |
//!
//! Among the others, one that has nothing after a delete is right, else the object last modified. A
//! member that may still get a request that was given up is in *doubt*: it owes until that time
//! is over, and is compared then.

use crate::{
    journal::{Entry, Intent, Owed, WriteKind},
    members::{MemberId, MemberSet},
};

#[cfg(test)]
mod tests;

/// How far a write has come at one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It was not sent: the member is down, or can't take it.
    NotSent,
    /// It is under way.
    Waiting,
    /// It is done, and left this tag; empty where there is none.
    Done(String),
    /// It changed nothing.
    NoEffect,
    /// The member refused it, and nothing changed.
    Refused,
    /// It may have happened, or may still.
    Unknown,
}

/// Members as they stood when a write began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standings {
    /// All of them.
    pub(crate) all: MemberSet,
    /// Those that are up.
    pub(crate) up: MemberSet,
    /// Those that lack nothing but what the entries say.
    pub(crate) known: MemberSet,
    /// Those whose misses the entries say: all but those that are to be compared as a whole.
    pub(crate) tracked: MemberSet,
    /// Members that must have a write.
    pub(crate) writes_min: usize,
}

/// A write that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its entry.
    pub(crate) entry: Entry,
    pub(crate) lead: MemberId,
    /// Who gets it.
    pub(crate) targets: MemberSet,
    /// Those who owe nothing: an acknowledgement counts them alone, as long as the entry says so.
    pub(crate) voters: MemberSet,
    pub(crate) kind: WriteKind,
    standings: Standings,
}

/// Why a write can't be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// An earlier one has to be settled first.
    Unsettled,
    /// No member that has the last state is up.
    NobodyCurrent,
    /// Too few members are up.
    TooFew,
}

/// What is to be done about a write at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be waited for.
    Wait,
    /// It is acknowledged.
    Acknowledge,
    /// It is acknowledged once the entry says what [`after`] gives.
    SettleAndAcknowledge,
    /// All have answered, and too few have it.
    TooFew,
    /// All have answered, and nobody has it, nor may have it.
    Nothing,
    /// All have answered, and nobody has it for certain.
    Unknown,
}

/// Plans a write; `able` are the members that can take it, `first` those to lead it if possible,
/// from the best on.
pub(crate) fn plan(
    before: Option<&Entry>,
    kind: WriteKind,
    standings: Standings,
    able: MemberSet,
    (first, now_ms): (&[MemberId], i64),
) -> Result<Plan, NoPlan> {
    if before.is_some_and(|entry| entry.intent.is_some()) {
        return Err(NoPlan::Unsettled);
    }
    let owing = before.map(Entry::owing).unwrap_or_default();
    let voters = standings.known.without(owing);
    let up = standings.up.and(able);
    let may_lead = voters.and(up);
    let lead = first.iter().copied().find(|member| may_lead.has(*member));
    let lead = lead.or_else(|| may_lead.iter().next());
    let lead = lead.ok_or(NoPlan::NobodyCurrent)?;
    let targets = match kind {
        WriteKind::Put | WriteKind::Delete => up,
        // What is beside an object is not for a member that lacks the object.
        WriteKind::Retag => may_lead,
    };
    if targets.count() < standings.writes_min {
        return Err(NoPlan::TooFew);
    }
    let owed = before.map(|entry| entry.owed.clone()).unwrap_or_default();
    let is_behind = !owed.is_empty();
    Ok(Plan {
        entry: Entry {
            at_ms: before
                .filter(|_| is_behind)
                .map_or(now_ms, |entry| entry.at_ms),
            intent: Some(Intent {
                lead,
                kind,
                sent_ms: now_ms,
            }),
            owed,
        },
        lead,
        targets,
        voters,
        kind,
        standings,
    })
}

impl Progress {
    /// The tag that it left, where it is done.
    fn tag(&self) -> Option<&String> {
        match self {
            Self::Done(tag) => Some(tag),
            Self::NotSent | Self::Waiting | Self::NoEffect | Self::Refused | Self::Unknown => None,
        }
    }
}

/// Members that have the write: those that gave the tag that most gave, of two that were given as
/// often the lead's.
pub(crate) fn having(plan: &Plan, progress: &[Progress]) -> MemberSet {
    let tags = || progress.iter().filter_map(Progress::tag);
    let of_lead = progress[usize::from(plan.lead.0)].tag();
    let rank = |tag: &String| {
        let count = tags().filter(|other| *other == tag).count();
        (count, of_lead == Some(tag))
    };
    let Some(tag) = tags().max_by_key(|tag| rank(tag)) else {
        return MemberSet::EMPTY;
    };
    let all = plan.standings.all.iter();
    all.filter(|member| progress[usize::from(member.0)].tag() == Some(tag))
        .collect()
}

/// Of these members, those that no request which was given up earlier may still change.
fn sure(plan: &Plan, members: MemberSet, now_ms: i64) -> MemberSet {
    let is_sure = |member: &MemberId| plan.entry.doubt_ms(*member) <= now_ms;
    members.iter().filter(is_sure).collect()
}

/// Judges a write by how far it has come, `progress` by member.
pub(crate) fn judge(plan: &Plan, progress: &[Progress], now_ms: i64) -> Verdict {
    let having = having(plan, progress);
    let is_waiting = progress.contains(&Progress::Waiting);
    let writes_min = plan.standings.writes_min;
    let is_safe = plan.kind != WriteKind::Retag
        && having.has(plan.lead)
        && having.and(plan.voters).count() >= writes_min;
    if is_safe {
        return Verdict::Acknowledge;
    }
    // One whose state nothing can undo must have it, for the others to be compared with.
    let has_sure = !sure(plan, having, now_ms).is_empty();
    if has_sure && having.and(plan.standings.known).count() >= writes_min {
        return Verdict::SettleAndAcknowledge;
    }
    if is_waiting {
        return Verdict::Wait;
    }
    if has_sure {
        return Verdict::TooFew;
    }
    if !having.is_empty() || progress.contains(&Progress::Unknown) {
        return Verdict::Unknown;
    }
    Verdict::Nothing
}

/// The entry after a write has come so far; `doubt_ms` is until when a request that is given up
/// now may still arrive. `None` when nobody owes anything.
pub(crate) fn after(
    plan: &Plan,
    progress: &[Progress],
    (now_ms, doubt_ms): (i64, i64),
) -> Option<Entry> {
    let having = having(plan, progress);
    let doubt_of = |member: MemberId| {
        let earlier = plan.entry.doubt_ms(member);
        match progress[usize::from(member.0)] {
            Progress::Waiting | Progress::Unknown => doubt_ms.max(earlier),
            Progress::NotSent | Progress::Done(_) | Progress::NoEffect | Progress::Refused => {
                if earlier > now_ms {
                    earlier
                } else {
                    0
                }
            }
        }
    };
    let owes_before = plan.entry.owing();
    let has_sure = !sure(plan, having, now_ms).is_empty();
    let is_settled = has_sure || !is_unknown(&progress[usize::from(plan.lead.0)]);
    let is_behind = |member: &MemberId| {
        if has_sure {
            !having.has(*member) || doubt_of(*member) > 0
        } else if is_settled {
            owes_before.has(*member) || is_unknown(&progress[usize::from(member.0)])
        } else {
            owes_before.has(*member)
        }
    };
    let intent = plan.entry.intent.filter(|_| !is_settled);
    let owed: Vec<Owed> = plan
        .standings
        .all
        .iter()
        .filter(is_behind)
        // Of one that lacks more than the entries say, they need not say anything.
        .filter(|member| plan.standings.tracked.has(*member) || owes_before.has(*member))
        .map(|member| Owed {
            member,
            doubt_ms: doubt_of(member),
        })
        .collect();
    if owed.is_empty() && intent.is_none() {
        return None;
    }
    Some(Entry {
        at_ms: plan.entry.at_ms,
        intent,
        owed,
    })
}

fn is_unknown(progress: &Progress) -> bool {
    match progress {
        Progress::Waiting | Progress::Unknown => true,
        Progress::NotSent | Progress::Done(_) | Progress::NoEffect | Progress::Refused => false,
    }
}

/// What a look at a member has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is there.
    Absent,
    /// An object is there.
    There {
        /// `Last-Modified`, Unix seconds.
        modified_s: i64,
    },
    /// The member could not be asked.
    NotReached,
}

/// Settles a write whose gateway ended, by looks at all members: the member whose state is that of
/// the key, or `None` when that can't be told yet. The lead of a write that was sent up to
/// `until_ms` has been waited for long enough.
pub(crate) fn settle(
    entry: &Entry,
    looks: &[(MemberId, Look)],
    standings: Standings,
    until_ms: i64,
) -> Option<MemberId> {
    let intent = entry.intent?;
    let voters = standings.known.without(entry.owing());
    let reached = looks.iter().filter(|(_, look)| *look != Look::NotReached);
    let mut reached: Vec<_> = reached.filter(|(member, _)| voters.has(*member)).collect();
    if reached.iter().any(|(member, _)| *member == intent.lead) {
        return Some(intent.lead);
    }
    let is_lost = intent.sent_ms <= until_ms;
    if !is_lost || reached.len() + standings.writes_min <= voters.count() {
        return None;
    }
    let rank = |look: &Look| match (look, intent.kind) {
        (Look::Absent, WriteKind::Delete) => i64::MAX,
        (Look::There { modified_s }, _) => *modified_s,
        (Look::Absent | Look::NotReached, _) => i64::MIN,
    };
    reached.sort_by_key(|(_, look)| rank(look));
    reached.last().map(|(member, _)| *member)
}

/// The entry of a write that was settled: all but the winner owe, and are compared when what may
/// still be on its way to them has arrived.
pub(crate) fn settled(
    entry: &Entry,
    winner: MemberId,
    standings: Standings,
    doubt_ms: i64,
) -> Option<Entry> {
    let is_behind = |member: &MemberId| {
        *member != winner && (standings.tracked.has(*member) || entry.owing().has(*member))
    };
    let owed: Vec<Owed> = standings
        .all
        .iter()
        .filter(is_behind)
        .map(|member| Owed { member, doubt_ms })
        .collect();
    (!owed.is_empty()).then_some(Entry {
        at_ms: entry.at_ms,
        intent: None,
        owed,
    })
}
