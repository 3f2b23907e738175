//! What all parts of a mirror share: its members, its journal, its settings, and how all stand.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use forebay_s3::time;
use forebay_store::{Budget, Clock, Error};
use forebay_telemetry::mirror::MirrorMetrics;
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, Semaphore};

use crate::{
    MirrorParts, MirrorSettings,
    copy::Copier,
    journal::{Entry, Held, Journal, Standing, Subject, Swapped},
    ledger::Standings,
    locks::Locks,
    members::{MemberId, MemberSet, Members},
    tasks::Tasks,
};

/// Time after which all gateways know that a member is to be compared as a whole, and none reads
/// from it by what the entries say: they look each second.
const UNTRACKED_AFTER_MS: i64 = 10_000;

/// Writes that a member has not answered while they were acknowledged long ago: past so many it is
/// not waited for, and compared later. Each holds at most the window of a body.
const LATE_MAX: usize = 256;

/// Wakes the repair loop, and remembers it.
#[derive(Default)]
pub(crate) struct Wake {
    notify: Notify,
    is_woken: AtomicBool,
}

impl Wake {
    pub(crate) fn notify_one(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Whether it was woken since the last time.
    pub(crate) fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) members: Arc<Members>,
    pub(crate) journal: Journal,
    pub(crate) locks: Arc<Locks>,
    pub(crate) settings: MirrorSettings,
    /// Members that must have a write before it is acknowledged.
    pub(crate) writes_min: usize,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    /// Brings keys from member to member.
    pub(crate) copier: Copier,
    pub(crate) metrics: MirrorMetrics,
    /// Wakes the repair loop: there is something that need not wait for the next turn.
    pub(crate) wake: Wake,
    /// Writes under way, and what of them goes on after their acknowledgement.
    pub(crate) tasks: Tasks,
    is_ready: OnceCell<()>,
    /// Writes that go on though they were acknowledged a while ago.
    pub(crate) late: Semaphore,
    /// How each member stands, as last read from the journal or written to it.
    standings: Mutex<Vec<Standing>>,
    /// When the oldest that each member owes began to be missing, as repair last saw it.
    oldest_ms: Mutex<Vec<Option<i64>>>,
}

impl Shared {
    pub(crate) fn new(parts: MirrorParts, settings: MirrorSettings) -> Self {
        let MirrorParts {
            members,
            journal,
            space,
            gateways,
            clock,
            budget,
            metrics,
            holder,
        } = parts;
        let members = Arc::new(Members::new(members, clock.clone()));
        let count = members.count();
        let leases = Arc::clone(&journal.leases);
        let journal = Journal::new(journal, space, Arc::clone(&members), gateways);
        let names = journal.names().clone();
        let locks = Locks::new((leases, names), holder.into(), clock.clone(), gateways);
        let majority = count / 2 + 1;
        Self {
            writes_min: settings.writes_min.unwrap_or(majority).clamp(1, count),
            journal,
            locks: Arc::new(locks),
            members,
            copier: Copier::new(clock.clone(), &settings),
            settings,
            clock,
            budget,
            metrics,
            wake: Wake::default(),
            tasks: Tasks::default(),
            is_ready: OnceCell::new(),
            late: Semaphore::new(LATE_MAX),
            standings: Mutex::new(vec![Standing::Known; count]),
            oldest_ms: Mutex::new(vec![None; count]),
        }
    }

    /// Reads what the journal knows, once; everything else rests on it.
    ///
    /// # Errors
    /// `Unavailable` when the journal can't be asked; the next call tries again.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let read = async || {
            self.journal.read_known().await?;
            self.read_standings().await
        };
        let ready = self.is_ready.get_or_try_init(read).await;
        ready.map_err(|error| self.journal_failed(error))?;
        Ok(())
    }

    /// Takes in how members stand. One that the journal has not met while it knows others is new,
    /// and lacks all that they have.
    ///
    /// # Errors
    /// The journal's own.
    pub(crate) async fn read_standings(&self) -> Result<(), Error> {
        let standings = self.journal.standings().await?;
        let is_first = standings.iter().all(|(_, standing)| standing.is_none());
        let begins = if is_first {
            Standing::Known
        } else {
            Standing::Whole(self.now_ms())
        };
        let is_new = standings.iter().filter(|(_, standing)| standing.is_none());
        let new: Vec<_> = is_new.map(|(member, _)| (*member, begins)).collect();
        // In one step: who is written down alone would make the others new.
        if !new.is_empty() {
            self.journal.set_standings(&new).await?;
        }
        for (member, standing) in standings {
            self.stands(member, standing.unwrap_or(begins));
        }
        Ok(())
    }

    /// The time, Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        time::unix_millis(self.clock.wall())
    }

    /// How a member stands, as last seen.
    pub(crate) fn standing(&self, member: MemberId) -> Standing {
        self.standings.lock()[usize::from(member.0)]
    }

    /// Takes in how a member stands.
    pub(crate) fn stands(&self, member: MemberId, standing: Standing) {
        self.standings.lock()[usize::from(member.0)] = standing;
    }

    /// How all members stand now.
    pub(crate) fn standings(&self) -> Standings {
        let of_all = self.standings.lock().clone();
        let those = |is_meant: &dyn Fn(Standing) -> bool| {
            let all = self.members.set().iter();
            all.filter(|member| is_meant(of_all[usize::from(member.0)]))
                .collect()
        };
        let lately_ms = self.now_ms() - UNTRACKED_AFTER_MS;
        Standings {
            all: self.members.set(),
            up: self.members.up(),
            known: those(&|standing| standing == Standing::Known),
            tracked: those(&|standing| match standing {
                Standing::Known | Standing::Comparing(_) => true,
                Standing::Whole(since_ms) => since_ms > lately_ms,
            }),
            writes_min: self.writes_min,
        }
    }

    /// Members from which a key without an entry may be read now.
    pub(crate) fn readable(&self) -> MemberSet {
        let standings = self.standings();
        standings.up.and(standings.known)
    }

    /// Until when a request that is given up now may still arrive, Unix milliseconds.
    pub(crate) fn doubt_ms(&self) -> i64 {
        self.now_ms() + self.doubt_time_ms()
    }

    /// The lead of a write that was sent up to then, Unix milliseconds, is waited for no longer.
    pub(crate) fn lost_ms(&self) -> i64 {
        self.now_ms() - self.doubt_time_ms()
    }

    /// Twice the time limit of an attempt; what a member does still later with a request whose
    /// connection is gone has not been seen. A guess.
    fn doubt_time_ms(&self) -> i64 {
        let time = self.settings.attempt_timeout.saturating_mul(2);
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
    }

    /// Changes the entry of a subject, and counts what the journal fails.
    ///
    /// # Errors
    /// `Unavailable` or `SlowDown` when nothing happened, `Indeterminate` when it may have.
    pub(crate) async fn change(
        &self,
        subject: &Subject,
        from: Option<&Held>,
        to: Option<Entry>,
    ) -> Result<Swapped, Error> {
        let changed = self.journal.swap(subject, from, to).await;
        changed.map_err(|error| self.journal_failed(error))
    }

    /// What a client is told when the journal fails: to come again.
    pub(crate) fn journal_failed(&self, error: Error) -> Error {
        self.metrics.journal_errors.inc();
        match error {
            Error::SlowDown { .. } | Error::Indeterminate { .. } => error,
            Error::Unavailable { .. }
            | Error::Refused(_)
            | Error::Cut { .. }
            | Error::ClientGone
            | Error::Internal { .. } => {
                tracing::warn!(%error, "the mirror's journal failed");
                Error::Unavailable {
                    reason: "the mirror's journal can't be asked".into(),
                }
            }
        }
    }

    /// The entry of a subject.
    ///
    /// # Errors
    /// `Unavailable` when the journal can't tell: nobody knows then which members are current.
    pub(crate) async fn held(&self, subject: &Subject) -> Result<Option<Held>, Error> {
        let held = self.journal.get(subject).await;
        held.map_err(|error| self.journal_failed(error))
    }

    /// Takes in when the oldest that a member owes began to be missing.
    pub(crate) fn set_oldest_ms(&self, member: MemberId, oldest_ms: Option<i64>) {
        self.oldest_ms.lock()[usize::from(member.0)] = oldest_ms;
    }

    /// When the oldest that a member owes began to be missing, Unix milliseconds.
    pub(crate) fn oldest_ms(&self, member: MemberId) -> Option<i64> {
        self.oldest_ms.lock()[usize::from(member.0)]
    }
}
