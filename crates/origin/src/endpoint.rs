//! One endpoint of a set: its address, its connections, its state, and what is under way there.
//!
//! An endpoint is known by its [`EndpointId`] within its set; the id is never given twice, so that
//! a request that avoids one does not avoid its successor. [`Picked`] is the right to make one
//! attempt there: it counts as in flight until the last byte of the answer's body, with which it
//! travels, and takes the report of how the attempt went.
//!
//! The decisions are pure and elsewhere: [`crate::health`], [`crate::concurrency`],
//! [`crate::balance`]. Here is their state, behind a lock that only failures, and what follows
//! them, ask for; what a choice reads of it is mirrored in atomics. A reader may see a mirror a
//! moment too old, which costs one attempt.

mod picked;

use std::{
    net::SocketAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use forebay_telemetry::origin::EndpointMetrics;
use parking_lot::Mutex;
pub(crate) use picked::{Picked, Report, Visit};
use tokio::{sync::Notify, time::Instant};

use crate::{
    address::Address,
    balance::{self, Load},
    concurrency::Concurrency,
    freed::Freed,
    health::{Health, Others, Probed, State},
    hedge::ReadTimes,
    operator::{EndpointState, EndpointStatus},
    pool::Pool,
    rate::Bucket,
    settings::HealthSettings,
};

/// Which endpoint of a set; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(pub(crate) u32);

/// One address and its connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    identity: Identity,
    pub pool: Arc<Pool>,
    /// Bytes of bodies in both directions; `None` without a bound.
    pub bucket: Option<Arc<Mutex<Bucket>>>,
    /// How long reads take here, for hedging.
    pub times: Arc<ReadTimes>,
    metrics: EndpointMetrics,
    shared: Arc<Shared>,
    judged: Mutex<Judged>,
    requests_limit: usize,
    /// Mirrors of `judged`.
    admits: AtomicU8,
    slow_start_nanos: AtomicU64,
    requests_max: AtomicUsize,
    row: AtomicU32,
    /// Whether the one request that a trial allows is under way.
    trial: AtomicBool,
    /// Of the last sample, or what stands for one.
    measured_nanos: AtomicU64,
}

/// Which endpoint it is, for ever.
#[derive(Debug)]
pub(crate) struct Identity {
    pub id: EndpointId,
    /// As operators see it.
    pub name: Box<str>,
    pub address: Address,
    /// The entry of the settings that it comes from.
    pub source_index: usize,
    pub peer: SocketAddr,
}

/// What the endpoints of a set have together.
#[derive(Debug)]
pub(crate) struct Shared {
    pub health: HealthSettings,
    pub slow_start: Duration,
    pub freed: Freed,
    /// Something is to be probed, or is no longer.
    pub wake: Notify,
    /// Endpoints that take requests.
    up_count: AtomicUsize,
    is_kept: AtomicBool,
    /// Times are kept as nanoseconds since.
    epoch: Instant,
}

#[derive(Debug)]
struct Judged {
    health: Health,
    concurrency: Concurrency,
}

/// What an endpoint takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Admits {
    /// Its full share.
    All,
    /// A growing share.
    Some,
    /// One request.
    One,
    /// None.
    None,
}

/// Which state of an endpoint will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Up; or on trial, for the one request that is allowed.
    Sound,
    /// On trial, for any number: no other endpoint is up.
    OnTrial,
}

impl Deref for Endpoint {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Shared {
    pub(crate) fn new(health: HealthSettings, slow_start: Duration) -> Arc<Self> {
        Arc::new(Self {
            health,
            slow_start,
            freed: Freed::default(),
            wake: Notify::new(),
            up_count: AtomicUsize::new(0),
            is_kept: AtomicBool::new(false),
            epoch: Instant::now(),
        })
    }

    /// Endpoints that take requests.
    pub(crate) fn up_count(&self) -> usize {
        self.up_count.load(Ordering::Acquire)
    }

    /// Whether a task looks after the set.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Notes whether one does; what was so before.
    pub(crate) fn set_kept(&self, is_kept: bool) -> bool {
        self.is_kept.swap(is_kept, Ordering::AcqRel)
    }

    fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Endpoint {
    /// Makes an endpoint that takes requests as `health` says, `requests_max` of them at once.
    pub(crate) fn new(
        identity: Identity,
        (pool, bucket): (Arc<Pool>, Option<Arc<Mutex<Bucket>>>),
        (health, requests_max): (Health, usize),
        metrics: EndpointMetrics,
        shared: &Arc<Shared>,
    ) -> Arc<Self> {
        let concurrency = Concurrency::new(requests_max);
        let endpoint = Self {
            identity,
            pool,
            bucket,
            times: Arc::default(),
            metrics,
            shared: Arc::clone(shared),
            judged: Mutex::new(Judged {
                health,
                concurrency,
            }),
            requests_limit: requests_max,
            admits: AtomicU8::new(Admits::None as u8),
            slow_start_nanos: AtomicU64::new(0),
            requests_max: AtomicUsize::new(0),
            row: AtomicU32::new(0),
            trial: AtomicBool::new(false),
            measured_nanos: AtomicU64::new(0),
        };
        endpoint.judge(|_, _| {});
        Arc::new(endpoint)
    }

    /// Requests whose answers are not finished.
    pub(crate) fn in_flight(&self) -> usize {
        usize::try_from(self.metrics.in_flight.get()).unwrap_or(0)
    }

    /// What a choice needs to know; `None` if it may take no request.
    pub(crate) fn load(&self, now: Instant, condition: Condition) -> Option<Load> {
        let in_flight = self.in_flight();
        if in_flight >= self.requests_max.load(Ordering::Relaxed) {
            return None;
        }
        let now_nanos = self.shared.nanos(now);
        let since = |nanos: &AtomicU64| {
            Duration::from_nanos(now_nanos.saturating_sub(nanos.load(Ordering::Relaxed)))
        };
        let share = match (self.admits(), condition) {
            (Admits::All, _) | (Admits::One, Condition::OnTrial) => 1.0,
            (Admits::Some, _) => {
                balance::share(since(&self.slow_start_nanos), self.shared.slow_start)
            }
            (Admits::One, Condition::Sound) if !self.trial.load(Ordering::Relaxed) => {
                // As one that was never tried: at once.
                return Some(Load {
                    first_byte: None,
                    in_flight: 0,
                    unmeasured: Duration::ZERO,
                    share: 1.0,
                });
            }
            (Admits::One, Condition::Sound) | (Admits::None, _) => return None,
        };
        Some(Load {
            first_byte: self.first_byte(),
            in_flight,
            unmeasured: since(&self.measured_nanos),
            share,
        })
    }

    /// Whether it takes requests, or would if it were not at its limit.
    pub(crate) fn is_open(&self) -> bool {
        self.admits() != Admits::None
    }

    /// Takes a place in flight, if there is one.
    pub(crate) fn pick(self: &Arc<Self>, visit: Visit, condition: Condition) -> Option<Picked> {
        let holds_trial = match (self.admits(), condition) {
            (Admits::All | Admits::Some, _) | (Admits::One, Condition::OnTrial) => false,
            (Admits::One, Condition::Sound) if !self.trial.swap(true, Ordering::AcqRel) => true,
            (Admits::One, Condition::Sound) | (Admits::None, _) => return None,
        };
        if !self.take_place() {
            if holds_trial {
                self.trial.store(false, Ordering::Release);
            }
            return None;
        }
        Some(Picked {
            endpoint: Arc::clone(self),
            visit,
            holds_trial,
            waiting: None,
        })
    }

    /// Never above the limit, not even for a moment: whoever waits could look just then, and wait
    /// on though there is a place.
    fn take_place(&self) -> bool {
        let limit = self.requests_max.load(Ordering::Relaxed);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let take = |count: i64| (count < limit).then_some(count + 1);
        self.metrics
            .in_flight
            .inner()
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, take)
            .is_ok()
    }

    /// When it is to be probed.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        match self.judged.lock().health.state() {
            State::Ejected { probe_at } => Some(probe_at),
            State::Up
            | State::SlowStart { .. }
            | State::Probing
            | State::Trial
            | State::HeldOut
            | State::Draining => None,
        }
    }

    /// Whether a probe is to be sent now, by the caller.
    pub(crate) fn begin_probe(&self, now: Instant) -> bool {
        self.judged.lock().health.begin_probe(now)
    }

    /// A probe ended.
    pub(crate) fn probed(&self, probed: Probed) {
        self.judge(|judged, others| {
            let settings = &self.shared.health;
            judged
                .health
                .probed(probed, others, settings, Instant::now());
        });
    }

    /// An operator takes it out.
    pub(crate) fn hold_out(&self) {
        self.judge(|judged, _| judged.health.hold_out());
    }

    /// It takes no new requests, and closes its connections as they fall idle.
    pub(crate) fn drain(&self) {
        self.judge(|judged, _| judged.health.drain());
        self.pool.close_idle();
    }

    /// An operator brings it back.
    pub(crate) fn restore(&self) {
        self.pool.keep_idle();
        self.judge(|judged, _| {
            judged.health.restore(&self.shared.health, Instant::now());
        });
    }

    pub(crate) fn status(&self, now: Instant) -> EndpointStatus {
        let metrics = &self.metrics;
        let failures =
            metrics.slow_down.get() + metrics.server_error.get() + metrics.unreachable.get();
        let judged = self.judged.lock();
        let (state, until) = match judged.health.state() {
            State::Up => (EndpointState::Up, None),
            State::SlowStart { since } => {
                let left = self
                    .shared
                    .slow_start
                    .checked_sub(now.saturating_duration_since(since));
                let is_over = left.is_none_or(|left| left.is_zero());
                let state = if is_over {
                    EndpointState::Up
                } else {
                    EndpointState::SlowStart
                };
                (state, None)
            }
            State::Ejected { probe_at } => {
                let until = probe_at.saturating_duration_since(now);
                (EndpointState::Ejected, Some(until))
            }
            State::Probing | State::Trial => (EndpointState::Probing, None),
            State::HeldOut => (EndpointState::HeldOut, None),
            State::Draining => (EndpointState::Draining, None),
        };
        EndpointStatus {
            name: self.name.to_string(),
            state,
            in_flight: self.in_flight(),
            requests_max_now: judged.concurrency.limit(),
            first_byte: self.first_byte().unwrap_or_default(),
            failures_in_row: judged.health.row(),
            requests: metrics.answered.get() + metrics.cancelled.get() + failures,
            failures,
            until,
        }
    }

    /// The average time to first byte, once there was one.
    pub(crate) fn first_byte(&self) -> Option<Duration> {
        let seconds = self.metrics.first_byte_seconds.get();
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }

    fn admits(&self) -> Admits {
        let admits = self.admits.load(Ordering::Relaxed);
        [Admits::All, Admits::Some, Admits::One]
            .into_iter()
            .find(|known| *known as u8 == admits)
            .unwrap_or(Admits::None)
    }

    fn measure(&self, sample: Duration, now: Instant) {
        let now_nanos = self.shared.nanos(now);
        // Of two samples at the same moment one may be lost, which is as good.
        let last_nanos = self.measured_nanos.swap(now_nanos, Ordering::Relaxed);
        let since_last = Duration::from_nanos(now_nanos.saturating_sub(last_nanos));
        let average = balance::averaged(self.first_byte(), sample, since_last);
        self.keep_average(average);
    }

    fn penalise(&self, now: Instant) {
        self.measured_nanos
            .store(self.shared.nanos(now), Ordering::Relaxed);
        self.keep_average(balance::penalised(self.first_byte()));
    }

    fn keep_average(&self, average: Duration) {
        let average = average.max(Duration::from_nanos(1));
        self.metrics.first_byte_seconds.set(average.as_secs_f64());
    }

    fn succeed(&self, now: Instant) {
        let is_calm = self.admits.load(Ordering::Relaxed) == Admits::All as u8
            && self.row.load(Ordering::Relaxed) == 0;
        let is_at_most = self.requests_max.load(Ordering::Relaxed) >= self.requests_limit;
        if is_calm && is_at_most {
            return;
        }
        let in_flight = self.in_flight();
        self.judge(|judged, _| {
            judged.health.succeed(now);
            judged.concurrency.succeed(in_flight, now);
        });
    }

    /// Changes the state and mirrors what came of it.
    fn judge(&self, change: impl FnOnce(&mut Judged, Others)) {
        let mut judged = self.judged.lock();
        let before = self.admits();
        let own = usize::from(matches!(before, Admits::All | Admits::Some));
        let others = match self.shared.up_count() - own {
            0 => Others::NoneUp,
            _ => Others::SomeUp,
        };
        change(&mut judged, others);
        if let State::SlowStart { since } = judged.health.state() {
            let now = Instant::now();
            if now.saturating_duration_since(since) >= self.shared.slow_start {
                judged.health.take_full_share(&self.shared.health);
            } else {
                self.slow_start_nanos
                    .store(self.shared.nanos(since), Ordering::Relaxed);
            }
        }
        let after = match judged.health.state() {
            State::Up => Admits::All,
            State::SlowStart { .. } => Admits::Some,
            State::Trial => Admits::One,
            State::Ejected { .. } | State::Probing | State::HeldOut | State::Draining => {
                Admits::None
            }
        };
        self.row.store(judged.health.row(), Ordering::Relaxed);
        self.keep_limit(judged.concurrency.limit());
        self.admits.store(after as u8, Ordering::Release);
        // Under the lock, so that the count of those that are up is never behind.
        self.tell((before, after), judged.health.state());
    }

    fn keep_limit(&self, limit: usize) {
        if self.requests_max.swap(limit, Ordering::Relaxed) < limit {
            self.shared.freed.all();
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.metrics.requests_max.set(limit);
    }

    /// Counts, logs and wakes whoever waits for the change.
    fn tell(&self, (before, after): (Admits, Admits), state: State) {
        let is_up = |admits| matches!(admits, Admits::All | Admits::Some);
        match (is_up(before), is_up(after)) {
            (false, true) => {
                self.shared.up_count.fetch_add(1, Ordering::AcqRel);
                self.metrics.up.set(1);
            }
            (true, false) => {
                self.shared.up_count.fetch_sub(1, Ordering::AcqRel);
                self.metrics.up.set(0);
            }
            (true, true) | (false, false) => {}
        }
        if let (State::Ejected { .. }, true) = (state, before != Admits::None) {
            self.metrics.ejections.inc();
            tracing::info!(endpoint = %self.name, "endpoint of the origin fails and is left out");
        }
        if before != after {
            self.shared.wake.notify_one();
            self.shared.freed.all();
        }
    }
}
