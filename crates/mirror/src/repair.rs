//! The repair loop: brings members that lack something up to date, in the journal's order.
//!
//! [`Repairer::turn`] does what can be done now and returns; [`Repairer::run`] takes turns until it
//! is dropped. One gateway at a time does it for all, under a lease, so that the work is done once;
//! nothing rests on the lease, since each key is repaired under its lock. Each gateway itself asks
//! members that are down whether they are back.
//!
//! A key that a client writes is given up at once, a key that can't be repaired waits longer each
//! time, and neither holds up another.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_native::leases::Lease;
use forebay_s3::operation::Operation;
use forebay_store::Error;
use futures_util::{StreamExt as _, future::join_all, stream};
use http::Method;
use parking_lot::Mutex;

use crate::{
    ask::Trouble,
    journal::{Due, Standing, Subject},
    members::{Health, MemberId, MemberSet},
    mirror::Shared,
    operate,
};

mod one;
mod slow;

use one::{End, repair_key};

/// Places of the queue that are read at once.
const PLACES_MAX: usize = 256;
/// Places looked at in one turn; the next one goes on.
const TURN_PLACES_MAX: usize = 4096;
/// Least time between two turns: each reads counters, which a write need not pay for.
const TURN_GAP: Duration = Duration::from_millis(50);
/// Turns between two looks at a queue in which nobody who is up owes anything: for writes whose
/// gateway ended.
const LOOK_TURNS: u32 = 10;
/// First wait of a key that failed; doubled with each failure.
const WAIT_MIN: Duration = Duration::from_millis(500);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// Keys whose failures are remembered; past it all are forgotten, and tried sooner.
const FAILING_MAX: usize = 10_000;
/// Time of the lease; a gateway that ended is replaced after it.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// What is left of a lease when it is prolonged.
const LEASE_LEFT_MIN: Duration = Duration::from_secs(10);
const LEASE_NAME: &str = "repair";

/// What one turn did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Keys and buckets of which nobody owes anything now.
    pub done_count: u64,
    /// Those that still wait for something: a member that is down, or a doubt to be over.
    pub left_count: u64,
    /// Those that could not be repaired.
    pub failed_count: u64,
    /// Whether another gateway repairs.
    pub is_idle: bool,
}

/// See the module.
pub struct Repairer {
    pub(crate) shared: Arc<Shared>,
    lease: tokio::sync::Mutex<Option<(Lease, Instant)>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waits: HashMap<Subject, Wait>,
    /// Where the next turn goes on.
    after: Option<Due>,
    /// The oldest that each member owes, of those seen since the queue's beginning.
    seen_ms: HashMap<MemberId, i64>,
    turns: u32,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    length: Duration,
}

impl Repairer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            lease: tokio::sync::Mutex::new(None),
            state: Mutex::default(),
        }
    }

    /// Takes turns for ever. The caller owns the task and ends it by dropping it.
    ///
    /// # Cancel safety
    /// A dropped future leaves each key as it was, or as it is to be.
    pub async fn run(&self) {
        tokio::join!(self.turns(), slow::run(self));
    }

    async fn turns(&self) {
        loop {
            if let Err(error) = self.turn().await {
                tracing::warn!(%error, "the mirror could not repair");
            }
            let woken = self.shared.wake.notified();
            let _ = tokio::time::timeout(self.shared.settings.retry_interval, woken).await;
            // What is missed meanwhile is repaired in the same turn.
            tokio::time::sleep(TURN_GAP).await;
        }
    }

    /// Does what can be done now.
    ///
    /// # Errors
    /// The journal's own.
    ///
    /// # Cancel safety
    /// As [`Repairer::run`].
    pub async fn turn(&self) -> Result<Turn, Error> {
        let shared = &self.shared;
        shared.ready().await?;
        self.probe().await;
        shared.read_standings().await?;
        let is_worth_it = self.count().await?;
        let mut turn = Turn::default();
        if !self.has_lease().await? {
            turn.is_idle = true;
            return Ok(turn);
        }
        if is_worth_it {
            self.sweep(&mut turn).await?;
            self.count().await?;
        }
        Ok(turn)
    }

    /// Asks members that are down whether they are back.
    async fn probe(&self) {
        let shared = &self.shared;
        let down = shared.members.set().without(shared.members.up());
        join_all(down.iter().map(|id| async move {
            let member = shared.members.get(id);
            let asker = shared.copier.asker();
            let request = asker.request(Method::GET, Operation::ListBuckets, "max-buckets=1");
            match asker.ask(&*member.store, request).await {
                // A refusal is an answer.
                Ok(_) | Err(Trouble::Refused(..)) => {
                    tracing::info!(member = member.name, "a member is back");
                    member.ended(Health::Answered);
                }
                Err(Trouble::Busy | Trouble::Unknown) => {}
            }
        }))
        .await;
    }

    /// Counts what members owe, and gives up counting for one that owes too much. Whether there is
    /// something that might be repaired now.
    async fn count(&self) -> Result<bool, Error> {
        let shared = &self.shared;
        let up = shared.members.up();
        let mut is_worth_it = {
            let mut state = self.state.lock();
            state.turns = state.turns.wrapping_add(1);
            state.turns % LOOK_TURNS == 1 || state.after.is_some()
        };
        for member in shared.members.set().iter() {
            let pending = shared.journal.pending(member).await?;
            is_worth_it |= pending > 0 && up.has(member);
            if pending > shared.settings.behind_max && shared.standing(member) == Standing::Known {
                let standing = Standing::Whole(shared.now_ms());
                shared.journal.set_standing(member, standing).await?;
                shared.stands(member, standing);
                let name = &shared.members.get(member).name;
                tracing::warn!(
                    member = name,
                    pending,
                    "a member is to be compared as a whole"
                );
            }
            if pending == 0 {
                shared.set_oldest_ms(member, None);
            }
        }
        operate::publish(shared).await?;
        // Who was woken has a reason.
        Ok(shared.wake.take() || is_worth_it)
    }

    async fn sweep(&self, turn: &mut Turn) -> Result<(), Error> {
        let shared = &self.shared;
        let mut places_left = TURN_PLACES_MAX;
        let mut after = self.state.lock().after.take();
        if after.is_none() {
            self.state.lock().seen_ms.clear();
        }
        while places_left > 0 {
            let places = shared.journal.queue(after.as_ref(), PLACES_MAX).await?;
            if places.is_empty() {
                self.tell_oldest();
                return Ok(());
            }
            after = places.last().cloned();
            places_left = places_left.saturating_sub(places.len());
            let ready = places
                .into_iter()
                .filter(|place| !self.waits(&place.subject));
            let width = shared.settings.repairs_max.max(1);
            let mut repairs = stream::iter(ready)
                .map(|place| async move {
                    let end = repair_key(shared, &place.subject).await;
                    (place, end)
                })
                .buffer_unordered(width);
            while let Some((place, (end, owing))) = repairs.next().await {
                self.ended(place, end, owing, turn);
            }
        }
        self.state.lock().after = after;
        if turn.done_count > 0 {
            shared.wake.notify_one();
        }
        Ok(())
    }

    fn ended(&self, place: Due, end: End, owing: MemberSet, turn: &mut Turn) {
        let now = self.shared.clock.now();
        let mut state = self.state.lock();
        for member in owing.iter() {
            let oldest = state.seen_ms.entry(member).or_insert(place.at_ms);
            *oldest = place.at_ms.min(*oldest);
        }
        match end {
            End::Done => {
                turn.done_count += 1;
                state.waits.remove(&place.subject);
            }
            End::Left => turn.left_count += 1,
            End::Failed => {
                turn.failed_count += 1;
                if state.waits.len() >= FAILING_MAX {
                    state.waits.clear();
                }
                let before = state.waits.get(&place.subject);
                let length = before.map_or(WAIT_MIN, |wait| (wait.length * 2).min(WAIT_MAX));
                let until = now + length;
                state.waits.insert(place.subject, Wait { until, length });
            }
        }
    }

    /// Makes known what a whole pass over the queue has seen.
    fn tell_oldest(&self) {
        let state = self.state.lock();
        for member in self.shared.members.set().iter() {
            let oldest = state.seen_ms.get(&member).copied();
            self.shared.set_oldest_ms(member, oldest);
        }
    }

    fn waits(&self, subject: &Subject) -> bool {
        let now = self.shared.clock.now();
        let state = self.state.lock();
        state
            .waits
            .get(subject)
            .is_some_and(|wait| wait.until > now)
    }

    /// Tries again at once whatever waits.
    pub(crate) fn forget_waits(&self) {
        self.state.lock().waits.clear();
        self.shared.wake.notify_one();
    }

    /// Whether this gateway is the one that repairs.
    async fn has_lease(&self) -> Result<bool, Error> {
        let shared = &self.shared;
        let (leases, route) = (
            &shared.journal.parts().leases,
            shared.journal.names().work_lease(LEASE_NAME),
        );
        let mut lease = self.lease.lock().await;
        let now = shared.clock.now();
        if let Some((held, until)) = &mut *lease {
            if *until > now + LEASE_LEFT_MIN {
                return Ok(true);
            }
            if *until > now && leases.renew(held, LEASE_TIME).await? {
                *until = now + LEASE_TIME;
                return Ok(true);
            }
        }
        *lease = None;
        let taken = leases
            .acquire(&route, shared.locks.holder(), LEASE_TIME)
            .await?;
        *lease = taken.map(|lease| (lease, now + LEASE_TIME));
        Ok(lease.is_some())
    }

    /// Whether this gateway was the one that repairs at its last turn.
    async fn is_the_one(&self) -> bool {
        let now = self.shared.clock.now();
        let lease = self.lease.lock().await;
        lease.as_ref().is_some_and(|(_, until)| *until > now)
    }

    /// Gives the lease back, for the end of the program.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        match self.lease.lock().await.take() {
            Some((lease, _)) => self.shared.journal.parts().leases.release(lease).await,
            None => Ok(()),
        }
    }
}
