//! A timeout on silence that costs nothing while bytes come.
//!
//! A timer that is armed and cancelled for every request would cost more than the request's own
//! bookkeeping. This one is armed once: moving the deadline is a store, and only when the old
//! deadline passes is the timer set anew.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

#[derive(Debug)]
pub(crate) struct SilenceTimer {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
    timeout: Duration,
}

impl SilenceTimer {
    pub(crate) fn new(timeout: Duration) -> Self {
        let deadline = Instant::now() + timeout;
        Self {
            sleep: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            timeout,
        }
    }

    /// Something moved at `now`.
    pub(crate) fn moved(&mut self, now: Instant) {
        self.deadline = now + self.timeout;
    }

    /// Whether nothing has moved for the whole timeout; if not, wakes the task when that may be.
    pub(crate) fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }
}

use std::future::Future as _;
