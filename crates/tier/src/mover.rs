//! The mover: brings what is due from the hot store to the cold one.
//!
//! [`Mover::turn`] does what is due now and returns; [`Mover::run`] takes turns until it is
//! dropped. One gateway at a time does it for all, under a lease, so that the work is done once.
//! Nothing rests on the lease: a write to the cold store is conditional, and a record is changed
//! only if it is the one that was moved, so two movers at once, or one that was asleep, do no harm.
//!
//! A key that can't be moved waits longer each time, and none waits for it; a cold store that can't
//! be asked is left alone for a while.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_native::{
    hot::{HotKey, Queue, Queued},
    leases::Lease,
};
use forebay_store::Error;
use forebay_telemetry::tier::MoveOutcome;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;

use crate::{
    direct,
    ledger::DirectOutcome,
    tier::{Level, Tier},
};

mod claim;
mod one;

use one::{End, move_key};

/// Places of a queue that are read at once.
const PLACES_MAX: usize = 256;
/// Keys taken up in one turn; the next one goes on.
const TURN_KEYS_MAX: usize = 4096;
/// Time of the lease; a gateway that ended is replaced after it.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// What is left of a lease when it is prolonged.
const LEASE_LEFT_MIN: Duration = Duration::from_secs(10);
/// Time between turns when nothing wakes the mover.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// Least time between two turns: each reads queues and totals, which a write need not pay for. It
/// is short beside the way to a cold store that is worth a tier.
const TURN_GAP: Duration = Duration::from_millis(10);
/// First wait of a key, or of the cold store, that failed; doubled with each failure.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// Keys whose failures are remembered; past it all are forgotten, and tried sooner.
const FAILING_MAX: usize = 10_000;
const LEASE_NAME: &str = "mover";

/// What one turn did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Keys that are at rest now.
    pub done_count: u64,
    /// Keys that could not be moved.
    pub failed_count: u64,
    /// Whether another gateway moves.
    pub is_idle: bool,
}

/// See the module.
pub struct Mover {
    tier: Arc<Tier>,
    lease: tokio::sync::Mutex<Option<(Lease, Instant)>>,
    waits: Mutex<Waits>,
}

/// Who waits, and until when.
#[derive(Debug, Default)]
struct Waits {
    keys: HashMap<HotKey, Wait>,
    store: Option<Wait>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    length: Duration,
}

impl Wait {
    /// The wait after one more failure, a random part of it less so that not all end at once.
    fn longer(before: Option<Self>, now: Instant) -> Self {
        let length = before.map_or(WAIT_MIN, |wait| (wait.length * 2).min(WAIT_MAX));
        let jitter = length.mul_f64(fastrand::f64() / 2.0);
        Self {
            until: now + length.saturating_sub(jitter),
            length,
        }
    }
}

/// What is moved in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// What is due.
    Due,
    /// All that was written up to then, Unix milliseconds.
    All(i64),
}

impl Mover {
    pub(crate) fn new(tier: Arc<Tier>) -> Self {
        Self {
            tier,
            lease: tokio::sync::Mutex::new(None),
            waits: Mutex::default(),
        }
    }

    /// Takes turns for ever. The caller owns the task and ends it by dropping it.
    ///
    /// # Cancel safety
    /// A dropped future leaves each key where it was or where it is to be.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.turn().await {
                tracing::warn!(%error, "the mover could not take its turn");
            }
            let woken = self.tier.wake.notified();
            let _ = tokio::time::timeout(TURN_EVERY, woken).await;
            // What is written meanwhile is moved in the same turn.
            tokio::time::sleep(TURN_GAP).await;
        }
    }

    /// Moves what is due now.
    ///
    /// # Errors
    /// The hot store's own.
    ///
    /// # Cancel safety
    /// As [`Mover::run`].
    pub async fn turn(&self) -> Result<Turn, Error> {
        self.settle_doubts().await?;
        let tier = &self.tier;
        tier.counted(&tier.hot.totals().await?);
        self.watch_age().await?;
        if !self.has_lease().await? {
            return Ok(Turn {
                is_idle: true,
                ..Turn::default()
            });
        }
        let urgency = if tier.is_draining() || tier.level(0) >= Level::Half {
            Urgency::All(i64::MAX)
        } else {
            Urgency::Due
        };
        let turn = self.sweep(urgency).await?;
        if turn.done_count > 0 {
            tier.counted(&tier.hot.totals().await?);
            self.watch_age().await?;
        }
        Ok(turn)
    }

    /// Moves all that there is up to a time, whoever has the lease.
    pub(crate) async fn sweep(&self, urgency: Urgency) -> Result<Turn, Error> {
        let mut turn = Turn::default();
        let now_ms = self.tier.cold.now_ms();
        let demote_ms = i64::try_from(self.tier.settings.demote_after.as_millis());
        let aged_ms = now_ms.saturating_sub(demote_ms.unwrap_or(i64::MAX));
        let (all_ms, objects_ms) = match urgency {
            Urgency::Due => (i64::MAX, aged_ms),
            Urgency::All(until_ms) => (until_ms, until_ms),
        };
        for (queue, until_ms) in [
            (Queue::Prompt, all_ms),
            (Queue::Aging, objects_ms),
            (Queue::Settling, now_ms),
        ] {
            self.sweep_queue(queue, until_ms, urgency, &mut turn)
                .await?;
        }
        Ok(turn)
    }

    async fn sweep_queue(
        &self,
        queue: Queue,
        until_ms: i64,
        urgency: Urgency,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        let first = self.tier.hot.queue(queue, None, 1).await?;
        if first.iter().all(|place| place.at_ms > until_ms) {
            return Ok(());
        }
        let mut after: Option<Queued> = None;
        let mut taken_count = 0;
        while taken_count < TURN_KEYS_MAX {
            let places = self
                .tier
                .hot
                .queue(queue, after.as_ref(), PLACES_MAX)
                .await?;
            after = places.last().cloned();
            let due: Vec<HotKey> = places
                .into_iter()
                .take_while(|place| place.at_ms <= until_ms)
                .map(|place| place.key)
                .filter(|key| !self.waits_for(key))
                .collect();
            let is_end = after.as_ref().is_none_or(|last| last.at_ms > until_ms);
            taken_count += due.len();
            self.move_all(due, urgency, turn).await;
            if is_end || self.waits_for_store() {
                return Ok(());
            }
        }
        self.tier.wake.notify_one();
        Ok(())
    }

    async fn move_all(&self, keys: Vec<HotKey>, urgency: Urgency, turn: &mut Turn) {
        let width = self.tier.settings.moves_max.max(1);
        let pace = self.tier.settings.moves_per_second_max.map(|moves| {
            // Each of the moves under way waits for as many as go at once.
            Duration::from_secs(1) / moves.max(1) * u32::try_from(width).unwrap_or(u32::MAX)
        });
        let mut moves = stream::iter(keys)
            .map(|key| async move {
                if self.waits_for_store() {
                    return (key, None);
                }
                if let Some(pace) = pace {
                    tokio::time::sleep(pace).await;
                }
                let end = move_key(&self.tier, &key, urgency).await;
                (key, Some(end))
            })
            .buffer_unordered(width);
        while let Some((key, end)) = moves.next().await {
            match end {
                None | Some(End::Rest) => {}
                Some(End::Done(outcome)) => {
                    self.tier.metrics.moved(outcome);
                    turn.done_count += 1;
                    self.succeeded(&key);
                }
                Some(End::Failed(outcome)) => {
                    self.tier.metrics.moved(outcome);
                    turn.failed_count += 1;
                    self.failed(key, outcome);
                }
            }
        }
    }

    /// Whether this gateway is the one that moves.
    async fn has_lease(&self) -> Result<bool, Error> {
        let tier = &self.tier;
        let mut lease = self.lease.lock().await;
        let now = tier.clock.now();
        if let Some((held, until)) = &mut *lease {
            if *until > now + LEASE_LEFT_MIN {
                return Ok(true);
            }
            if *until > now && tier.hot.renew(held, LEASE_TIME).await? {
                *until = now + LEASE_TIME;
                return Ok(true);
            }
        }
        *lease = None;
        let taken = tier.hot.lease(LEASE_NAME, &tier.holder, LEASE_TIME).await?;
        *lease = taken.map(|lease| (lease, now + LEASE_TIME));
        Ok(lease.is_some())
    }

    /// Gives the lease back, for the end of the program.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        match self.lease.lock().await.take() {
            Some((lease, _)) => self.tier.hot.release(lease).await,
            None => Ok(()),
        }
    }

    /// Writes down that of some keys nobody knows what a write did.
    async fn settle_doubts(&self) -> Result<(), Error> {
        let doubts = std::mem::take(&mut *self.tier.doubts.lock());
        for key in doubts {
            let settled = direct::settle(&self.tier, &key, None, &DirectOutcome::Unknown).await;
            if let Err(error) = settled {
                self.tier.doubt(key);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn watch_age(&self) -> Result<(), Error> {
        let age = oldest_dirty(&self.tier).await?;
        let seconds = age.map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        self.tier.metrics.oldest_dirty.set(seconds);
        Ok(())
    }

    fn waits_for(&self, key: &HotKey) -> bool {
        let now = self.tier.clock.now();
        let waits = self.waits.lock();
        waits.keys.get(key).is_some_and(|wait| wait.until > now)
    }

    fn waits_for_store(&self) -> bool {
        let now = self.tier.clock.now();
        self.waits.lock().store.is_some_and(|wait| wait.until > now)
    }

    fn succeeded(&self, key: &HotKey) {
        let mut waits = self.waits.lock();
        waits.keys.remove(key);
        waits.store = None;
    }

    fn failed(&self, key: HotKey, outcome: MoveOutcome) {
        let now = self.tier.clock.now();
        let mut waits = self.waits.lock();
        if outcome == MoveOutcome::Failed {
            // Those under way at once count as one failure.
            if waits.store.is_none_or(|wait| wait.until <= now) {
                waits.store = Some(Wait::longer(waits.store, now));
            }
            return;
        }
        if waits.keys.len() >= FAILING_MAX {
            waits.keys.clear();
        }
        let wait = Wait::longer(waits.keys.get(&key).copied(), now);
        waits.keys.insert(key, wait);
    }

    /// Tries again at once whatever waits.
    pub(crate) fn forget_waits(&self) {
        *self.waits.lock() = Waits::default();
    }
}

/// Age of the oldest object or delete that the cold store lacks.
pub(crate) async fn oldest_dirty(tier: &Tier) -> Result<Option<Duration>, Error> {
    let mut oldest_ms: Option<i64> = None;
    for queue in [Queue::Prompt, Queue::Aging, Queue::Conflicts] {
        let first = tier.hot.queue(queue, None, 1).await?;
        let at_ms = first.first().map(|place| place.at_ms);
        oldest_ms = oldest_ms.into_iter().chain(at_ms).min();
    }
    let now_ms = tier.cold.now_ms();
    Ok(oldest_ms.map(|at_ms| {
        let age_ms = u64::try_from(now_ms - at_ms).unwrap_or(0);
        Duration::from_millis(age_ms)
    }))
}

/// Brings one key to rest now.
///
/// # Errors
/// `Unavailable` when the cold store can't be asked or refuses, `SlowDown` when the key is written
/// all the time.
pub(crate) async fn move_now(tier: &Arc<Tier>, key: &HotKey) -> Result<(), Error> {
    match move_key(tier, key, Urgency::All(i64::MAX)).await {
        End::Rest => Ok(()),
        End::Done(outcome) => {
            tier.metrics.moved(outcome);
            Ok(())
        }
        End::Failed(outcome) => {
            tier.metrics.moved(outcome);
            Err(Error::Unavailable {
                reason: format!(
                    "the cold store lacks an earlier write of the key: {}",
                    outcome.as_str()
                )
                .into(),
            })
        }
    }
}
