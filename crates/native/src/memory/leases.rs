//! [`Leases`] in memory, by the clock given.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::{Clock, Error};
use parking_lot::Mutex;

use crate::{
    index::Route,
    leases::{Fence, Lease, Leases},
};

/// Leases among the tasks of one process.
#[derive(Debug)]
pub struct MemoryLeases {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Route, Held>,
    /// One number for all routes, so that a lease that nobody holds need not be remembered.
    last: u64,
}

#[derive(Debug)]
struct Held {
    holder: Bytes,
    fence: Fence,
    until: Instant,
}

impl MemoryLeases {
    /// None held.
    pub fn new(clock: Clock) -> Self {
        Self::after(clock, Fence(0))
    }

    /// None held, and all fences larger than that: where a process has no other of its own, and
    /// each of its lives has a number.
    pub fn after(clock: Clock, last: Fence) -> Self {
        let state = State {
            held: HashMap::new(),
            last: last.0,
        };
        Self {
            clock,
            state: Mutex::new(state),
        }
    }
}

impl State {
    /// The lease, if it is held still.
    fn holding(&mut self, lease: &Lease, now: Instant) -> Option<&mut Held> {
        self.held
            .get_mut(&lease.route)
            .filter(|held| held.fence == lease.fence && held.until > now)
    }
}

#[async_trait]
impl Leases for MemoryLeases {
    async fn acquire(
        &self,
        route: &Route,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.held.retain(|_, held| held.until > now);
        if state
            .held
            .get(route)
            .is_some_and(|held| held.holder != *holder)
        {
            return Ok(None);
        }
        state.last += 1;
        let fence = Fence(state.last);
        let held = Held {
            holder: holder.clone(),
            fence,
            until: now + time,
        };
        state.held.insert(route.clone(), held);
        Ok(Some(Lease {
            route: route.clone(),
            holder: holder.clone(),
            fence,
        }))
    }

    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let held = state.holding(lease, now);
        Ok(held.map(|held| held.until = now + time).is_some())
    }

    async fn release(&self, lease: Lease) -> Result<(), Error> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.holding(&lease, now).is_some() {
            state.held.remove(&lease.route);
        }
        Ok(())
    }
}
