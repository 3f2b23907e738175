//! Hedged reads: one that is slower than nearly all others is sent a second time, elsewhere, and
//! the first usable answer is taken (Dean and Barroso, "The Tail at Scale", 2013).
//!
//! ```text
//! Read ─▶ policy ─▶ race { primary ······ delay ─▶ may_send? ─▶ hedge }
//!           ▲                 │ times (estimator, brownout)       │ budget
//!           └─────────────────┴───────────────────────────────────┘
//! ```
//!
//! - `policy` decides, by what kind of read it is and what is known: `estimator` says from when on
//!   a read is slow, of each endpoint and kind; `brownout` when all are.
//! - `race` sends, waits and takes the answer.
//! - `budget` bounds what is sent. A slow read that finds it empty asks again while it waits, so
//!   that what little there is goes to the reads that are slowest.
//!
//! Called by [`crate::store`] for each attempt of a read. When an attempt fails and no other is
//! under way, that is for [`crate::retry`], not for a hedge; a hedge takes nothing from the budget
//! of retries, nor a retry from that of hedges.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use forebay_telemetry::hedge::HedgeMetrics;
use http::{Response, StatusCode};
use tokio::time::Instant;

use crate::{
    attempt::Prepared, endpoint::EndpointId, exchange::AnswerBody, failure::Failure,
    retry::Trouble, settings::HedgeSettings,
};

mod brownout;
mod budget;
mod estimator;
mod histogram;
mod policy;
mod race;

pub(crate) use self::race::Course;
use self::{
    brownout::{Failures, Outcome, Slowdown},
    budget::{Budget, Payment},
    estimator::Estimator,
    policy::{Decision, Facts, Kind, Reason},
};

/// What hedging knows of a whole set of endpoints.
#[derive(Debug)]
pub(crate) struct Hedging {
    settings: HedgeSettings,
    budget: Budget,
    failures: Failures,
    slowdowns: Box<[Slowdown]>,
    metrics: HedgeMetrics,
}

/// What it knows of one endpoint; empty until there are reads of a kind.
#[derive(Debug, Default)]
pub(crate) struct ReadTimes {
    estimators: [OnceLock<Box<Estimator>>; Kind::COUNT],
}

/// One read of a client, over all its attempts.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    hedging: &'a Hedging,
    kind: Kind,
    began: Instant,
    draw: f64,
    arm: Arm,
    hedged_at: Option<EndpointId>,
}

/// Which latencies a read's is counted among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// Its first attempt has not begun.
    Undecided,
    /// Hedging was not on.
    Neither,
    Hedged,
    Control,
}

/// Whether a hedge may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// And was paid for.
    Given,
    /// Not now, but perhaps a little later: the budget is empty.
    Later,
    Refused(Reason),
}

impl Hedging {
    pub(crate) fn new(settings: &HedgeSettings, metrics: &HedgeMetrics) -> Self {
        let now = Instant::now();
        let slowdown = |_| Slowdown::new(settings.slowdown_max, settings.delay_min, now);
        Self {
            settings: settings.clone(),
            budget: Budget::new(settings.share),
            failures: Failures::new(settings.failures_share_max, now),
            slowdowns: (0..Kind::COUNT).map(slowdown).collect(),
            metrics: metrics.clone(),
        }
    }

    /// Begins a read of a kind that may be hedged; `None` of anything else.
    pub(crate) fn begin(&self, prepared: &Prepared) -> Option<Read<'_>> {
        Some(self.begin_kind(Kind::of(&prepared.operation, &prepared.method)?))
    }

    fn begin_kind(&self, kind: Kind) -> Read<'_> {
        self.budget.earn();
        Read {
            hedging: self,
            kind,
            began: Instant::now(),
            draw: fastrand::f64(),
            arm: Arm::Undecided,
            hedged_at: None,
        }
    }

    /// How long an attempt is waited for before it is hedged, if it may be.
    fn delay(&self, read: &mut Read<'_>, times: &ReadTimes) -> Option<Duration> {
        let facts = Facts {
            threshold: times.threshold(read.kind),
            trouble: self.trouble(read.kind),
            draw: read.draw,
        };
        let (arm, delay, reason) = match policy::decide(facts, &self.settings) {
            Decision::HedgeAfter(delay) => (Arm::Hedged, Some(delay), None),
            Decision::Control => (Arm::Control, None, Some(Reason::Control)),
            Decision::NotYet => (Arm::Neither, None, Some(Reason::Samples)),
            Decision::Suppressed(reason) => (Arm::Neither, None, Some(reason)),
        };
        if read.arm == Arm::Undecided {
            read.arm = arm;
            if let Some(reason) = reason {
                reason.count(&self.metrics.suppressed);
            }
        }
        delay
    }

    /// What speaks against any second request at this moment.
    fn trouble(&self, kind: Kind) -> Option<Reason> {
        if self.failures.is_above() {
            Some(Reason::Failures)
        } else if self.slowdowns[kind.index()].is_slow() {
            Some(Reason::Slowdown)
        } else {
            None
        }
    }

    /// Whether a read whose delay has passed may be hedged; if so, it is paid for.
    fn may_send(&self, kind: Kind) -> Leave {
        if let Some(trouble) = self.trouble(kind) {
            return Leave::Refused(trouble);
        }
        match self.budget.pay() {
            Payment::Made => {
                self.metrics.budget.set(self.budget.left());
                Leave::Given
            }
            Payment::Refused => Leave::Later,
        }
    }

    /// Begins to time an attempt.
    fn time<'a>(&'a self, kind: Kind, times: &Arc<ReadTimes>) -> Timing<'a> {
        Timing {
            hedging: self,
            times: Arc::clone(times),
            kind,
            started: Instant::now(),
            state: TimingState::Running,
        }
    }
}

impl Read<'_> {
    /// An answer has come that the client gets.
    pub(crate) fn answered(&self) {
        let first_byte = match self.arm {
            Arm::Undecided | Arm::Neither => return,
            Arm::Hedged => &self.hedging.metrics.first_byte.hedged,
            Arm::Control => &self.hedging.metrics.first_byte.control,
        };
        first_byte.observe(self.began.elapsed().as_secs_f64());
    }

    /// Where the last attempt was hedged, if it was.
    pub(crate) fn take_hedged_at(&mut self) -> Option<EndpointId> {
        self.hedged_at.take()
    }
}

impl ReadTimes {
    fn threshold(&self, kind: Kind) -> Option<Duration> {
        self.estimators[kind.index()].get()?.threshold()
    }

    fn estimator(&self, kind: Kind, settings: &HedgeSettings, now: Instant) -> &Estimator {
        self.estimators[kind.index()]
            .get_or_init(|| Box::new(Estimator::new(settings.share, settings.samples_min, now)))
    }
}

/// The time of one attempt. Dropped before its end it counts as given up, whoever was the cause:
/// another attempt that was quicker, or a client that left.
#[derive(Debug)]
struct Timing<'a> {
    hedging: &'a Hedging,
    times: Arc<ReadTimes>,
    kind: Kind,
    started: Instant,
    state: TimingState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimingState {
    Running,
    Ended,
}

/// What an attempt is worth in a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// The client gets it.
    Usable,
    /// Only if nothing better comes.
    Failed,
    /// It tells of a connection that had been idle too long, not of the origin.
    Stale,
}

/// Endpoints of a set share their data, so what one says of an object holds: a 404 or a 412 is as
/// good as a 200. A 5xx or a 429 tells of the endpoint.
fn worth(result: &Result<Response<AnswerBody>, Failure>) -> Worth {
    match result {
        Ok(answer)
            if answer.status().is_server_error()
                || answer.status() == StatusCode::TOO_MANY_REQUESTS =>
        {
            Worth::Failed
        }
        Ok(_) => Worth::Usable,
        Err(failure) => match failure.trouble {
            Trouble::StaleUnsent | Trouble::StaleClosed => Worth::Stale,
            Trouble::Unreachable
            | Trouble::Unanswered
            | Trouble::Closed
            | Trouble::Silent
            | Trouble::SlowDown(_)
            | Trouble::ServerError
            | Trouble::Final => Worth::Failed,
        },
    }
}

impl Timing<'_> {
    /// The attempt came to an end by itself.
    fn end(mut self, worth: Worth) {
        self.state = TimingState::Ended;
        let now = Instant::now();
        let took = now - self.started;
        match worth {
            Worth::Usable => {
                self.hedging.failures.record(Outcome::Answered, now);
                self.hedging.slowdowns[self.kind.index()].record(took, now);
                let estimator = self.estimator(now);
                let estimate = estimator.answered(took, now);
                self.show(estimate);
            }
            // When it would have answered is not known, but that it had not by now is.
            Worth::Failed => {
                self.hedging.failures.record(Outcome::Failed, now);
                self.show(self.estimator(now).given_up(took, now));
            }
            Worth::Stale => {}
        }
    }

    fn estimator(&self, now: Instant) -> &Estimator {
        let settings = &self.hedging.settings;
        self.times.estimator(self.kind, settings, now)
    }

    fn show(&self, estimate: Option<Duration>) {
        if let Some(threshold) = estimate {
            let delay = threshold.max(self.hedging.settings.delay_min);
            let metrics = &self.hedging.metrics;
            self.kind.show_delay(&metrics.delay, delay);
            metrics.budget.set(self.hedging.budget.left());
        }
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        if self.state == TimingState::Running {
            let now = Instant::now();
            let took = now - self.started;
            self.hedging.slowdowns[self.kind.index()].record(took, now);
            self.show(self.estimator(now).given_up(took, now));
        }
    }
}

#[cfg(test)]
mod tests;
