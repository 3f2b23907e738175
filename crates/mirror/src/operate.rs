//! What an operator asks a mirror, as `forebay admin` and the probes do.

use std::{sync::Arc, time::Duration};

use forebay_s3::time;
use forebay_store::Error;

use crate::{journal::Standing, members::MemberId, mirror::Shared};

/// A handle for whoever operates a mirror.
#[derive(Clone)]
pub struct MirrorOperator {
    pub(crate) shared: Arc<Shared>,
}

/// How a mirror stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Its members, as configured.
    pub members: Vec<MemberStatus>,
    /// Keys and buckets that some member is behind by.
    pub journal_keys: u64,
    /// Members that must have a write before it is acknowledged.
    pub writes_min: usize,
}

/// How a member stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its name in the configuration.
    pub name: String,
    /// What can be had from it.
    pub state: MemberState,
    /// Keys and buckets that it is behind by, as far as the journal counts them.
    pub pending_keys: u64,
    /// Age of the oldest of these, as repair last saw it.
    pub oldest_pending: Option<Duration>,
    /// Requests that this gateway has sent it.
    pub requests: u64,
    /// Of these, those that it did not answer, or with a fault of its own.
    pub failures: u64,
}

/// What can be had from a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Everything.
    Up,
    /// It answers, and lacks some keys; all others are read from it.
    Behind,
    /// It answers, and nothing is read from it before it was compared as a whole.
    Comparing,
    /// It does not answer.
    Down,
}

impl MemberState {
    /// Its number in the metrics.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Up => 0,
            Self::Behind => 1,
            Self::Comparing => 2,
            Self::Down => 3,
        }
    }
}

impl MirrorOperator {
    /// How the mirror stands.
    ///
    /// # Errors
    /// The journal's own.
    pub async fn status(&self) -> Result<MirrorStatus, Error> {
        let shared = &self.shared;
        let mut members = Vec::with_capacity(shared.members.count());
        for member in shared.members.set().iter() {
            members.push(self.member(member).await?);
        }
        Ok(MirrorStatus {
            members,
            journal_keys: shared.journal.keys().await?,
            writes_min: shared.writes_min,
        })
    }

    async fn member(&self, id: MemberId) -> Result<MemberStatus, Error> {
        let shared = &self.shared;
        let member = shared.members.get(id);
        let pending_keys = shared.journal.pending(id).await?;
        let state = match shared.standing(id) {
            _ if member.is_down() => MemberState::Down,
            Standing::Whole(_) | Standing::Comparing(_) => MemberState::Comparing,
            Standing::Known if pending_keys > 0 => MemberState::Behind,
            Standing::Known => MemberState::Up,
        };
        let now_ms = time::unix_millis(shared.clock.wall());
        let oldest_pending = shared
            .oldest_ms(id)
            .map(|at_ms| Duration::from_millis(u64::try_from(now_ms - at_ms).unwrap_or(0)));
        Ok(MemberStatus {
            name: member.name.clone(),
            state,
            pending_keys,
            oldest_pending,
            requests: member.requests(),
            failures: member.failures(),
        })
    }
}
