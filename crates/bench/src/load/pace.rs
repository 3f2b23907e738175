//! Says when the next request of a thread starts.
//!
//! In an open loop the thread's requests are due at even distances, offset so that the threads
//! together are even as well. A free connection takes the next due time as its ticket, and waits
//! for it if it has not come yet; a ticket in the past starts at once and counts its lateness.
//!
//! Waiting is done with a kernel timer, one for a thread ([`crate::alarm`]).
//!
//! Source: Gil Tene, "How NOT to Measure Latency" (coordinated omission), and wrk2.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    task::{Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::Times;
use crate::alarm::Alarm;

/// Leave to send one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// Now.
    Free,
    /// It was due then, which is past.
    Due(Instant),
}

/// When requests start.
#[derive(Debug)]
pub(crate) enum Pace {
    Closed { end: Option<Instant> },
    Open(OpenPace),
}

/// A schedule, and who waits for it.
#[derive(Debug)]
pub(crate) struct OpenPace {
    first: Instant,
    interval_ns: f64,
    end: Option<Instant>,
    /// Tickets of the past are handed out until then.
    late_end: Option<Instant>,
    next: Cell<u64>,
    /// In the order of their tickets.
    waiting: RefCell<VecDeque<(Instant, Waker)>>,
    alarm: Alarm,
}

impl Pace {
    pub(crate) fn closed(end: Option<Instant>) -> Self {
        Self::Closed { end }
    }

    /// A share of `rate` requests a second: that of thread `index` of `threads`.
    pub(crate) fn open(
        times: Times,
        late_end: Option<Instant>,
        (rate, index, threads): (f64, u32, u32),
    ) -> io::Result<Self> {
        let apart = Duration::from_secs_f64(f64::from(index) / rate);
        Ok(Self::Open(OpenPace {
            first: times.begin + apart,
            interval_ns: 1e9 * f64::from(threads) / rate,
            end: times.end,
            late_end,
            next: Cell::new(0),
            waiting: RefCell::default(),
            alarm: Alarm::new()?,
        }))
    }

    /// Waits until the next request may start; `None` at the end. `now` is a recent moment.
    pub(crate) async fn next(&self, now: Instant) -> Option<Ticket> {
        match self {
            Self::Closed { end } => {
                let is_over = end.is_some_and(|end| now >= end);
                (!is_over).then_some(Ticket::Free)
            }
            Self::Open(open) => open.next().await.map(Ticket::Due),
        }
    }

    /// Wakes who waits, for as long as it is polled.
    pub(crate) async fn drive(&self) {
        match self {
            Self::Closed { .. } => {}
            Self::Open(open) => open.drive().await,
        }
    }

    /// Requests due from `measure` on that nobody was free to start.
    pub(crate) fn missed(&self, measure: Instant) -> u64 {
        match self {
            Self::Closed { .. } => 0,
            Self::Open(open) => open.missed(measure),
        }
    }
}

impl OpenPace {
    fn due(&self, number: u64) -> Instant {
        let after_ns = self.interval_ns * crate::results::exact(number);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "nanoseconds of a run, positive"
        )]
        let after = Duration::from_nanos(after_ns as u64);
        self.first + after
    }

    async fn next(&self) -> Option<Instant> {
        let due = self.due(self.next.get());
        let now = Instant::now();
        let is_over = self.end.is_some_and(|end| due >= end)
            || self.late_end.is_some_and(|late_end| now >= late_end);
        if is_over {
            return None;
        }
        self.next.set(self.next.get() + 1);
        if due > now {
            self.wait_until(due).await;
        }
        Some(due)
    }

    async fn wait_until(&self, due: Instant) {
        let mut is_queued = false;
        poll_fn(|cx| {
            if is_queued {
                return if Instant::now() >= due {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                };
            }
            is_queued = true;
            let mut waiting = self.waiting.borrow_mut();
            waiting.push_back((due, cx.waker().clone()));
            if waiting.len() == 1 {
                self.alarm.set(due);
            }
            Poll::Pending
        })
        .await;
    }

    async fn drive(&self) {
        while poll_fn(|cx| self.alarm.poll_rung(cx)).await.is_ok() {
            let now = Instant::now();
            let mut waiting = self.waiting.borrow_mut();
            while let Some((_, waker)) = waiting.pop_front_if(|(due, _)| *due <= now) {
                waker.wake();
            }
            if let Some((due, _)) = waiting.front() {
                self.alarm.set(*due);
            }
        }
    }

    fn missed(&self, measure: Instant) -> u64 {
        let Some(end) = self.end else { return 0 };
        let mut number = self.next.get();
        let mut missed = 0;
        while self.due(number) < end {
            missed += u64::from(self.due(number) >= measure);
            number += 1;
        }
        missed
    }
}
