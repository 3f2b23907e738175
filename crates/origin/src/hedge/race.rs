//! Sends a read, and again when it is slow; gives the first usable answer.
//!
//! | primary | hedge | what happens |
//! |---|---|---|
//! | pending | not sent | the delay runs |
//! | ended, well or not | not sent | that is the result: a failure is for `retry` |
//! | pending | pending | both are waited for |
//! | usable | pending, failed | the primary's; the hedge was wasted |
//! | pending, failed | usable | the hedge's; it won |
//! | failed | pending | the hedge is waited for |
//! | pending | failed | the primary is waited for |
//! | failed | failed | the primary's failure, as if there had been no hedge |
//!
//! *Usable* is what [`super::worth`] says. Who does not win is dropped: its connection is closed
//! (HTTP/1.1) or its stream reset (HTTP/2), and its time is counted as given up.
//!
//! The hedge goes to another endpoint than the primary where there is one, else to the same over
//! another connection (HTTP/1.1) or as another stream (HTTP/2). It has the same headers, so a
//! condition that the caller gave binds both arms to one version.
//!
//! One timer per read, made when the primary is first found pending; no allocation before a
//! hedge is sent.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use http::Response;
use tokio::time::{Instant, Sleep};

use super::{Leave, Read, Reason, Timing, Worth, worth};
use crate::{
    attempt::{Prepared, Sender},
    endpoint::Picked,
    exchange::AnswerBody,
    failure::Failure,
    pool::Want,
    set::EndpointSet,
};

type Outcome = Result<Response<AnswerBody>, Failure>;

/// What both arms of a race run on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course<'a> {
    pub set: &'a EndpointSet,
    pub sender: &'a Sender,
    pub prepared: &'a Prepared,
    pub deadline: Instant,
}

/// Which arm gave the result of a race in which both ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Winner {
    Primary,
    Hedge,
    /// The hedge failed; so the result is the primary's.
    Default,
}

impl Course<'_> {
    /// Makes one attempt, which is not hedged.
    ///
    /// # Cancel safety
    /// As [`Sender::attempt`].
    pub(crate) async fn attempt(&self, picked: Picked, want: Want) -> Outcome {
        let Self {
            sender,
            prepared,
            deadline,
            set: _,
        } = *self;
        sender.attempt(prepared, picked, want, deadline).await
    }

    async fn run(&self, picked: Picked, want: Want, timing: Timing<'_>) -> Outcome {
        let outcome = self.attempt(picked, want).await;
        timing.end(worth(&outcome));
        outcome
    }
}

impl Read<'_> {
    /// Makes one attempt at the endpoint picked, and perhaps a second one elsewhere.
    ///
    /// # Cancel safety
    /// A dropped future drops what is under way, as [`Sender::attempt`] says.
    pub(crate) async fn race(&mut self, course: Course<'_>, picked: Picked, want: Want) -> Outcome {
        let hedging = self.hedging;
        let (endpoint, times) = (picked.id(), &picked.endpoint().times);
        let delay = hedging.delay(self, times);
        let timing = hedging.time(self.kind, times);
        let started = timing.started;
        let mut primary = pin!(course.run(picked, want, timing));
        let Some(delay) = delay.filter(|delay| started + *delay < course.deadline) else {
            return primary.await;
        };
        let mut alarm = pin!(None);
        let (mut until, mut pause, mut leave) = (started + delay, delay, Leave::Given);
        let second = loop {
            let ended = poll_fn(|cx| poll_until(until, alarm.as_mut(), primary.as_mut(), cx));
            if let Some(outcome) = ended.await {
                if leave == Leave::Later {
                    Reason::Budget.count(&hedging.metrics.suppressed);
                }
                return outcome;
            }
            leave = hedging.may_send(self.kind);
            match leave {
                Leave::Given => {
                    if let Ok(second) = course.set.try_choose(&[endpoint]) {
                        break second;
                    }
                    hedging.budget.refund();
                    Reason::NoOther.count(&hedging.metrics.suppressed);
                    return primary.await;
                }
                Leave::Refused(reason) => {
                    reason.count(&hedging.metrics.suppressed);
                    return primary.await;
                }
                Leave::Later => {
                    // Each wait is twice as long, so that many who wait do not keep us busy.
                    pause *= 2;
                    until += pause;
                    alarm.set(None);
                }
            }
        };
        hedging.metrics.issued.inc();
        self.hedged_at = Some(second.id());
        let timing = hedging.time(self.kind, &second.endpoint().times);
        let hedge = Box::pin(course.run(second, Want::Any, timing));
        let (winner, outcome) = first_usable(primary, hedge).await;
        let results = &hedging.metrics.results;
        match winner {
            Winner::Primary => results.wasted.inc(),
            Winner::Hedge => results.won.inc(),
            Winner::Default => results.failed.inc(),
        };
        outcome
    }
}

/// The result of `primary`, or `None` when `until` has come before it.
fn poll_until<P: Future>(
    until: Instant,
    mut timer: Pin<&mut Option<Sleep>>,
    primary: Pin<&mut P>,
    cx: &mut Context<'_>,
) -> Poll<Option<P::Output>> {
    if let Poll::Ready(output) = primary.poll(cx) {
        return Poll::Ready(Some(output));
    }
    if timer.is_none() {
        timer.set(Some(tokio::time::sleep_until(until)));
    }
    let timer = timer.as_pin_mut().expect("it was set just now");
    timer.poll(cx).map(|()| None)
}

/// The first usable outcome of the two; the primary's when there is none.
async fn first_usable(
    mut primary: Pin<&mut impl Future<Output = Outcome>>,
    mut hedge: Pin<Box<impl Future<Output = Outcome>>>,
) -> (Winner, Outcome) {
    let (mut primary_failed, mut hedge_failed) = (None, None);
    poll_fn(move |cx| {
        if primary_failed.is_none()
            && let Poll::Ready(outcome) = primary.as_mut().poll(cx)
        {
            match worth(&outcome) {
                Worth::Usable if hedge_failed.is_some() => {
                    return Poll::Ready((Winner::Default, outcome));
                }
                Worth::Usable => return Poll::Ready((Winner::Primary, outcome)),
                Worth::Failed | Worth::Stale => primary_failed = Some(outcome),
            }
        }
        if hedge_failed.is_none()
            && let Poll::Ready(outcome) = hedge.as_mut().poll(cx)
        {
            match worth(&outcome) {
                Worth::Usable => return Poll::Ready((Winner::Hedge, outcome)),
                Worth::Failed | Worth::Stale => hedge_failed = Some(outcome),
            }
        }
        match primary_failed.take_if(|_| hedge_failed.is_some()) {
            Some(outcome) => Poll::Ready((Winner::Default, outcome)),
            None => Poll::Pending,
        }
    })
    .await
}
