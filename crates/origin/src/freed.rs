//! Wakes who waits for an endpoint that may take a request, in the order in which they came.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Those who wait. Nobody does as a rule, so telling them costs one load.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    waiters: AtomicUsize,
    notify: Notify,
}

/// Counts one who waits.
#[derive(Debug)]
struct Waiting<'a>(&'a AtomicUsize);

impl Freed {
    /// A place was freed: wakes one of those who wait.
    pub(crate) fn one(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.notify.notify_one();
        }
    }

    /// Things have changed: wakes all.
    pub(crate) fn all(&self) {
        self.notify.notify_waiters();
    }

    /// Whether anybody waits: who comes now has to stand behind them.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Calls `take` until it gives something, each time that it may: at first only if nobody else
    /// waits, so that a place that was freed goes to who was woken for it.
    ///
    /// # Cancel safety
    /// A dropped future passes on the place it was woken for.
    pub(crate) async fn wait<T>(&self, mut take: impl FnMut() -> Option<T>) -> T {
        let ahead_count = self.waiters.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiters);
        let mut may_take = ahead_count == 0;
        loop {
            let mut freed = pin!(self.notify.notified());
            // Before looking, so that what is freed after the look is not missed.
            freed.as_mut().enable();
            if may_take && let Some(taken) = take() {
                return taken;
            }
            freed.await;
            may_take = true;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_place_goes_to_who_waits_and_not_to_who_comes_just_then() {
        let (freed, places) = (Freed::default(), AtomicUsize::new(0));
        let take = || {
            let one_less = |count: usize| count.checked_sub(1);
            let taken = places.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
            taken.ok()
        };
        let mut first = pin!(freed.wait(take));
        assert!(poll(first.as_mut()).is_pending());
        places.store(1, Ordering::SeqCst);
        let mut second = pin!(freed.wait(take));
        assert!(poll(second.as_mut()).is_pending());
        freed.one();
        assert!(poll(first.as_mut()).is_ready());
        places.store(1, Ordering::SeqCst);
        freed.one();
        assert!(poll(second.as_mut()).is_ready());
    }
}
