//! Wakes who waits for an endpoint that may take a request.

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

    /// Calls `take` until it gives something, each time that it may.
    ///
    /// # Cancel safety
    /// A dropped future passes on the place it was woken for.
    pub(crate) async fn wait<T>(&self, mut take: impl FnMut() -> Option<T>) -> T {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiters);
        loop {
            let mut freed = pin!(self.notify.notified());
            // Before looking, so that what is freed after the look is not missed.
            freed.as_mut().enable();
            if let Some(taken) = take() {
                return taken;
            }
            freed.await;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
