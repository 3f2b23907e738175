//! The right to make one attempt at an endpoint, and the report of how it went.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{Endpoint, EndpointId};
use crate::health::Fault;

/// How an attempt went, as far as its endpoint is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// An answer's head came, this long after the origin could begin to make it.
    FirstByte(Duration),
    /// An answer's head came before the origin had the whole of the payload.
    Early,
    /// 503: it asks for less.
    SlowDown,
    /// It answered that it can't.
    ServerError,
    /// It could not be reached, broke off, or was silent for too long.
    Unreachable,
}

/// Whether a request was at an endpoint before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    First,
    /// What it meets now says nothing new.
    Again,
}

/// The right to make one attempt at an endpoint; in flight until dropped.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) visit: Visit,
    pub(super) holds_trial: bool,
    /// Since when only the endpoint is waited for, until it is reported.
    pub(super) waiting: Option<Instant>,
}

impl Picked {
    pub(crate) fn id(&self) -> EndpointId {
        self.endpoint.id
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// From now on only the endpoint is waited for: given up before its report, the attempt counts
    /// as one that took at least as long. Else the slower one of each pair would be forgotten, and
    /// a slow endpoint look quick.
    pub(crate) fn waits(&mut self, since: Instant) {
        self.waiting = Some(since);
    }

    /// The attempt tells nothing of the endpoint.
    pub(crate) fn forget(&mut self) {
        self.waiting = None;
    }

    /// Tells the endpoint how the attempt went; a body that breaks off is reported after its head.
    pub(crate) fn report(&mut self, report: Report) {
        self.waiting = None;
        let (endpoint, metrics) = (&self.endpoint, &self.endpoint.metrics);
        let now = Instant::now();
        let fault = match report {
            Report::FirstByte(elapsed) => {
                metrics.answered.inc();
                endpoint.measure(elapsed, now);
                endpoint.succeed(now);
                return;
            }
            Report::Early => {
                metrics.answered.inc();
                endpoint.succeed(now);
                return;
            }
            Report::SlowDown => {
                metrics.slow_down.inc();
                let round = endpoint.first_byte().unwrap_or_default();
                endpoint.penalise(now);
                let in_flight = endpoint.in_flight();
                endpoint.judge(|judged, _| {
                    judged.health.slow_down(now);
                    judged.concurrency.slow_down(in_flight, round, now);
                });
                return;
            }
            Report::ServerError => {
                metrics.server_error.inc();
                Fault::Answer
            }
            Report::Unreachable => {
                metrics.unreachable.inc();
                Fault::Unreached
            }
        };
        endpoint.penalise(now);
        match self.visit {
            Visit::First => endpoint.judge(|judged, others| {
                let settings = &endpoint.shared.health;
                judged.health.fail(fault, others, settings, now);
            }),
            Visit::Again => {}
        }
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        if let Some(since) = self.waiting {
            self.endpoint.metrics.cancelled.inc();
            let elapsed = since.elapsed();
            if self
                .endpoint
                .first_byte()
                .is_some_and(|average| elapsed > average)
            {
                self.endpoint.measure(elapsed, Instant::now());
            }
        }
        if self.holds_trial {
            self.endpoint.trial.store(false, Ordering::Release);
        }
        self.endpoint.metrics.in_flight.dec();
        self.endpoint.shared.freed.one();
    }
}
