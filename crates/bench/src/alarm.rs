//! A timer that rings on the microsecond.
//!
//! The runtime's own timer ticks in milliseconds, which is more than a fast answer takes and more
//! than a short line delays it. This one is a kernel timer (timerfd) and costs a descriptor, so
//! what may wait in thousands goes on with the runtime's when none is left ([`Wait`]).

use std::{
    future::Future as _,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    fs::Timespec,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, Sleep},
};

/// A kernel timer, set to one moment at a time.
#[derive(Debug)]
pub(crate) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "unsound for types that may change their descriptor, which OwnedFd can't; \
                      what replaces it is unsafe"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Sets it; a failure can only be one of this program, and shows as a stalled test.
    pub(crate) fn set(&self, due: Instant) {
        let after = due.saturating_duration_since(Instant::now());
        // Zero would disarm it.
        let after = after.max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(after.subsec_nanos()),
            },
        };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value);
        debug_assert!(set.is_ok(), "the timer was made above: {set:?}");
    }

    /// Waits until it rings.
    ///
    /// # Errors
    /// When the runtime stops.
    pub(crate) fn poll_rung(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut readable = ready!(self.0.poll_read_ready(cx))?;
            let mut expirations = [0; 8];
            let is_rung = rustix::io::read(self.0.get_ref(), &mut expirations).is_ok();
            readable.clear_ready();
            // Nothing to read only means that the timer was set anew meanwhile.
            if is_rung {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Waits for one moment after another.
#[derive(Debug)]
pub(crate) enum Wait {
    Exact { alarm: Alarm, due: Instant },
    Coarse(Pin<Box<Sleep>>),
}

impl Wait {
    pub(crate) fn new(due: Instant) -> Self {
        match Alarm::new() {
            Ok(alarm) => {
                alarm.set(due);
                Self::Exact { alarm, due }
            }
            Err(_) => Self::Coarse(Box::pin(tokio::time::sleep_until(due))),
        }
    }

    /// Waits until then, whatever it waited for before.
    pub(crate) fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Exact { alarm, due } => {
                if *due != until {
                    alarm.set(until);
                    *due = until;
                }
                while Instant::now() < until {
                    if ready!(alarm.poll_rung(cx)).is_err() {
                        return Poll::Pending;
                    }
                    alarm.set(until);
                }
                Poll::Ready(())
            }
            Self::Coarse(sleep) => {
                if sleep.deadline() != until {
                    sleep.as_mut().reset(until);
                }
                sleep.as_mut().poll(cx)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Goal: a wait ends no sooner than asked, moved forward or back, and does end.
    #[tokio::test]
    async fn a_wait_never_ends_early_and_can_be_moved() {
        let begin = Instant::now();
        let hour = begin + Duration::from_hours(1);
        for mut wait in [
            Wait::new(hour),
            Wait::Coarse(Box::pin(tokio::time::sleep_until(hour))),
        ] {
            let polled = poll_fn(|cx| Poll::Ready(wait.poll_until(hour, cx))).await;
            assert!(polled.is_pending());
            for micros in [300, 700, 100, 0] {
                let until = Instant::now() + Duration::from_micros(micros);
                poll_fn(|cx| wait.poll_until(until, cx)).await;
                assert!(Instant::now() >= until);
            }
        }
    }
}
