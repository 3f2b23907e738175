//! What all parts of a mirror share, and the store that is made of them.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_s3::{code::Code, time};
use forebay_store::{Budget, Clock, Error, Request, Response, Store};
use forebay_telemetry::mirror::MirrorMetrics;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    MirrorParts, MirrorSettings,
    copy::Copier,
    journal::{Journal, Standing},
    locks::Locks,
    members::{MemberId, MemberSet, Members},
    operate::MirrorOperator,
    tasks::Tasks,
};

/// See the module.
pub(crate) struct Shared {
    pub(crate) members: Arc<Members>,
    pub(crate) journal: Journal,
    pub(crate) locks: Arc<Locks>,
    /// Brings keys of a member to the state of another, and asks on the mirror's own account.
    pub(crate) copier: Copier,
    pub(crate) settings: MirrorSettings,
    /// Members that must have a write before it is acknowledged.
    pub(crate) writes_min: usize,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    pub(crate) metrics: MirrorMetrics,
    /// Wakes the repair loop: there is something that need not wait for the next turn.
    pub(crate) wake: Notify,
    /// Writes under way, and what of them goes on after their acknowledgement.
    pub(crate) tasks: Tasks,
    /// How each member stands, as last read from the journal or written to it.
    standings: Mutex<Vec<Standing>>,
    /// When the oldest that each member owes began to be missing, as repair last saw it.
    oldest_ms: Mutex<Vec<Option<i64>>>,
}

impl Shared {
    fn new(parts: MirrorParts, settings: MirrorSettings) -> Self {
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
        let members = Arc::new(Members::new(members));
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
            copier: Copier::new(clock.clone(), &settings),
            members,
            settings,
            clock,
            budget,
            metrics,
            wake: Notify::new(),
            tasks: Tasks::default(),
            standings: Mutex::new(vec![Standing::Known; count]),
            oldest_ms: Mutex::new(vec![None; count]),
        }
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

    /// Members that lack nothing but what the entries say.
    pub(crate) fn known(&self) -> MemberSet {
        let standings = self.standings.lock();
        let is_known = |member: &MemberId| standings[usize::from(member.0)] == Standing::Known;
        self.members.set().iter().filter(is_known).collect()
    }

    /// Members from which a key without an entry may be read now.
    pub(crate) fn readable(&self) -> MemberSet {
        self.members.up().and(self.known())
    }

    /// When the oldest that a member owes began to be missing, Unix milliseconds.
    pub(crate) fn oldest_ms(&self, member: MemberId) -> Option<i64> {
        self.oldest_ms.lock()[usize::from(member.0)]
    }
}

/// Several independent stores as one, see the crate's documentation.
pub struct MirrorStore {
    shared: Arc<Shared>,
}

impl MirrorStore {
    /// A mirror of these parts: two members at least, [`crate::MEMBERS_MAX`] at most. The journal
    /// is first read by the first request, so an engine that is late delays only that.
    pub fn new(parts: MirrorParts, settings: MirrorSettings) -> Self {
        Self {
            shared: Arc::new(Shared::new(parts, settings)),
        }
    }

    /// A handle for whoever operates the mirror.
    pub fn operator(&self) -> MirrorOperator {
        MirrorOperator {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for MirrorStore {
    /// The tasks share what the store owns, and would keep it alive.
    fn drop(&mut self) {
        self.shared.tasks.abort();
    }
}

#[async_trait]
impl Store for MirrorStore {
    async fn call(&self, _request: Request) -> Result<Response, Error> {
        Err(Error::refused(Code::NotImplemented))
    }
}
