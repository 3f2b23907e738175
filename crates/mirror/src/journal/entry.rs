//! What the journal says of a key or a bucket, in memory and as bytes.

use forebay_store::Error;
use serde::{Deserialize, Serialize};

use crate::members::{MemberId, MemberSet, Members};

/// What the journal says of a subject. Where it says nothing, all members have its last state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When the oldest of what is missing began to be missing, Unix milliseconds.
    pub(crate) at_ms: i64,
    /// A write that is under way, or was when its gateway ended.
    pub(crate) intent: Option<Intent>,
    /// Members that lack the last state but for that of the intent, or may lack it.
    pub(crate) owed: Vec<Owed>,
}

/// A write under way: each member that owes nothing may have it, or the state before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intent {
    /// The member whose state *is* the state of the key.
    pub(crate) lead: MemberId,
    /// What kind of write it is.
    pub(crate) kind: WriteKind,
    /// When it began, Unix milliseconds.
    pub(crate) sent_ms: i64,
}

/// Kinds of writes, as far as one can tell by a state whether it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriteKind {
    /// There is an object after it.
    Put,
    /// There is none after it.
    Delete,
    /// The object is the same, what is kept beside it is not.
    Retag,
}

/// What a member owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Who.
    pub(crate) member: MemberId,
    /// Until then, Unix milliseconds, a request that was given up may still change what it has;
    /// zero for none.
    pub(crate) doubt_ms: i64,
}

impl Entry {
    /// Members that lack the last state.
    pub(crate) fn owing(&self) -> MemberSet {
        self.owed.iter().map(|owed| owed.member).collect()
    }

    /// Of these members, those that have the last state for certain.
    pub(crate) fn current(&self, members: MemberSet) -> MemberSet {
        match &self.intent {
            Some(intent) => members.and(MemberSet::EMPTY.with(intent.lead)),
            None => members.without(self.owing()),
        }
    }

    /// Until when a request of a member may still arrive, Unix milliseconds.
    pub(crate) fn doubt_ms(&self, member: MemberId) -> i64 {
        let owed = self.owed.iter().find(|owed| owed.member == member);
        owed.map_or(0, |owed| owed.doubt_ms)
    }

    /// The bytes of it.
    pub(super) fn to_bytes(&self, members: &Members) -> Result<Vec<u8>, Error> {
        let name = |member: MemberId| members.get(member).name.clone();
        let written = Written {
            at_ms: self.at_ms,
            intent: self.intent.map(|intent| WrittenIntent {
                lead: name(intent.lead),
                kind: intent.kind,
                sent_ms: intent.sent_ms,
            }),
            owed: self
                .owed
                .iter()
                .map(|owed| WrittenOwed {
                    member: name(owed.member),
                    doubt_ms: owed.doubt_ms,
                })
                .collect(),
        };
        serde_json::to_vec(&written).map_err(|error| Error::internal("write a mirror entry", error))
    }

    /// Reads it. Members that are configured no longer owe nothing; when the lead is one of them,
    /// another takes its place.
    pub(super) fn from_bytes(bytes: &[u8], members: &Members) -> Result<Self, Error> {
        let written: Written = serde_json::from_slice(bytes)
            .map_err(|error| Error::internal("read a mirror entry", error))?;
        let owed: Vec<Owed> = written
            .owed
            .iter()
            .filter_map(|owed| {
                Some(Owed {
                    member: members.named(&owed.member)?,
                    doubt_ms: owed.doubt_ms,
                })
            })
            .collect();
        let owing: MemberSet = owed.iter().map(|owed| owed.member).collect();
        let others = members.set().without(owing);
        let intent = written.intent.and_then(|intent| {
            let lead = members
                .named(&intent.lead)
                .or_else(|| others.iter().next())?;
            Some(Intent {
                lead,
                kind: intent.kind,
                sent_ms: intent.sent_ms,
            })
        });
        Ok(Self {
            at_ms: written.at_ms,
            intent,
            owed,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(rename = "at")]
    at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<WrittenIntent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    owed: Vec<WrittenOwed>,
}

#[derive(Serialize, Deserialize)]
struct WrittenIntent {
    lead: String,
    kind: WriteKind,
    #[serde(rename = "sent")]
    sent_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct WrittenOwed {
    member: String,
    #[serde(rename = "doubt", default, skip_serializing_if = "is_zero")]
    doubt_ms: i64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// What the journal says of a member as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// What it lacks is in the entries, and nothing else.
    Known,
    /// It lacks more than the entries say, since then (Unix milliseconds): it is not read from
    /// before it was compared as a whole.
    Whole(i64),
    /// It is being compared, since then. What it misses from then on is in the entries; it is not
    /// read from.
    Comparing(i64),
}
