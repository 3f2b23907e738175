//! What an operator asks a mirror, as `forebay admin` and the probes do.

use std::{sync::Arc, time::Duration};

use forebay_store::Error;

use crate::{journal::Standing, members::MemberId, mirror::Shared, repair::Repairer};

/// A handle for whoever operates a mirror.
#[derive(Clone)]
pub struct MirrorOperator {
    pub(crate) shared: Arc<Shared>,
    repairer: Arc<Repairer>,
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
    pub(crate) fn new(shared: Arc<Shared>, repairer: Arc<Repairer>) -> Self {
        Self { shared, repairer }
    }

    /// How the mirror stands.
    ///
    /// # Errors
    /// The journal's own.
    pub async fn status(&self) -> Result<MirrorStatus, Error> {
        status(&self.shared).await
    }

    /// Lets repair try again at once whatever waits after a failure.
    pub fn retry(&self) {
        self.repairer.forget_waits();
    }

    /// Ends the mirror's work: waits for writes that are not done at all members yet, and lets
    /// another gateway repair. Whether all writes were done in time; the journal knows the rest.
    ///
    /// # Errors
    /// The journal's own.
    pub async fn stop(&self, time_max: Duration) -> Result<bool, Error> {
        let is_done = self.shared.tasks.finish(time_max).await;
        self.repairer.release().await?;
        Ok(is_done)
    }
}

async fn status(shared: &Shared) -> Result<MirrorStatus, Error> {
    let mut members = Vec::with_capacity(shared.members.count());
    for member in shared.members.set().iter() {
        members.push(status_of(shared, member).await?);
    }
    Ok(MirrorStatus {
        members,
        journal_keys: shared.journal.keys().await?,
        writes_min: shared.writes_min,
    })
}

async fn status_of(shared: &Shared, id: MemberId) -> Result<MemberStatus, Error> {
    let member = shared.members.get(id);
    let pending_keys = shared.journal.pending(id).await?;
    let state = match shared.standing(id) {
        _ if member.is_down() => MemberState::Down,
        Standing::Whole(_) | Standing::Comparing(_) => MemberState::Comparing,
        Standing::Known if pending_keys > 0 => MemberState::Behind,
        Standing::Known => MemberState::Up,
    };
    let now_ms = shared.now_ms();
    let age = |at_ms| Duration::from_millis(u64::try_from(now_ms - at_ms).unwrap_or(0));
    Ok(MemberStatus {
        name: member.name.clone(),
        state,
        pending_keys,
        oldest_pending: shared.oldest_ms(id).map(age),
        requests: member.requests(),
        failures: member.failures(),
    })
}

/// Shows in the metrics how the mirror stands.
///
/// # Errors
/// The journal's own.
pub(crate) async fn publish(shared: &Shared) -> Result<(), Error> {
    let status = status(shared).await?;
    let metrics = &shared.metrics;
    let mut oldest = Duration::ZERO;
    for member in status.members {
        metrics.set_state(&member.name, member.state.number());
        let pending = i64::try_from(member.pending_keys).unwrap_or(i64::MAX);
        metrics.set_pending(&member.name, pending);
        oldest = oldest.max(member.oldest_pending.unwrap_or_default());
    }
    let seconds = i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX);
    metrics.oldest_pending.set(seconds);
    Ok(())
}
