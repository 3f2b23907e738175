//! One endpoint of a set: its address, its connections, and what is under way there.
//!
//! An endpoint is known by its [`EndpointId`] within its set; the id is never given twice, so that
//! a request that avoids one does not avoid its successor. [`Picked`] is the right to make one
//! attempt there: it counts as in flight until the last byte of the answer's body, with which it
//! travels, and takes the report of how the attempt went.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{address::Address, pool::Pool};

/// Which endpoint of a set; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(pub(crate) u32);

/// One address and its connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub id: EndpointId,
    /// As operators see it: scheme, host and port.
    pub name: Box<str>,
    pub address: Address,
    pub pool: Arc<Pool>,
    requests_max: usize,
    in_flight: AtomicUsize,
    requests: AtomicU64,
    failures: AtomicU64,
    freed: Arc<Freed>,
}

/// Wakes who waits for an endpoint below its limit.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    waiters: AtomicUsize,
    notify: Notify,
}

/// How an attempt went, as far as its endpoint is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// An answer's head came, this long after the origin could begin to make it.
    FirstByte(Duration),
    /// 503: it asks for less.
    SlowDown,
    /// It answered that it can't.
    ServerError,
    /// It could not be reached, broke off, or was silent for too long.
    Unreachable,
}

/// The right to make one attempt at an endpoint; in flight until dropped.
#[derive(Debug)]
pub(crate) struct Picked {
    endpoint: Arc<Endpoint>,
}

impl Endpoint {
    pub(crate) fn new(
        id: EndpointId,
        address: Address,
        pool: Arc<Pool>,
        requests_max: usize,
        freed: &Arc<Freed>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: address.to_string().into_boxed_str(),
            address,
            pool,
            requests_max,
            in_flight: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            freed: Arc::clone(freed),
        })
    }

    /// Requests whose answers are not finished.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Requests that may be in flight at this moment.
    pub(crate) fn requests_max_now(&self) -> usize {
        self.requests_max
    }

    /// Attempts so far, and how many of them failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.requests), of(&self.failures))
    }

    /// Takes a place in flight, if there is one.
    pub(crate) fn pick(self: &Arc<Self>) -> Option<Picked> {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        if before >= self.requests_max_now() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Some(Picked {
            endpoint: Arc::clone(self),
        })
    }
}

impl Picked {
    pub(crate) fn id(&self) -> EndpointId {
        self.endpoint.id
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Tells the endpoint how the attempt went; a body that breaks off is reported after its head.
    pub(crate) fn report(&self, report: Report) {
        match report {
            Report::FirstByte(_) => {}
            Report::SlowDown | Report::ServerError | Report::Unreachable => {
                self.endpoint.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.endpoint.freed.one();
    }
}

impl Freed {
    /// Wakes one of those who wait, if any does.
    pub(crate) fn one(&self) {
        if self.waiters.load(Ordering::Acquire) > 0 {
            self.notify.notify_one();
        }
    }

    /// Calls `take` until it gives something, each time that a place was freed.
    ///
    /// # Cancel safety
    /// A dropped future passes on the place it was woken for.
    pub(crate) async fn wait<T>(&self, mut take: impl FnMut() -> Option<T>) -> T {
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiters);
        loop {
            let freed = self.notify.notified();
            let mut freed = std::pin::pin!(freed);
            // Before looking, so that what is freed after the look is not missed.
            freed.as_mut().enable();
            if let Some(taken) = take() {
                return taken;
            }
            freed.await;
        }
    }
}

/// Counts one who waits.
#[derive(Debug)]
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
