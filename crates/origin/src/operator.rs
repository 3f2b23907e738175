//! What an operator sees of the endpoints of an origin, and may do with them.

use std::{sync::Arc, time::Duration};

use crate::{endpoint::Endpoint, set::EndpointSet};

/// A handle on the endpoints of one origin store, for the admin interface.
#[derive(Debug, Clone)]
pub struct OriginOperator {
    set: Arc<EndpointSet>,
}

/// One endpoint at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Scheme, host and port; of a name, `@` and the address follow.
    pub name: String,
    /// Whether it takes requests.
    pub state: EndpointState,
    /// Requests whose answers are not finished.
    pub in_flight: usize,
    /// Requests that may be in flight at this moment.
    pub requests_max_now: usize,
    /// Moving average of the time to first byte; zero before the first.
    pub first_byte: Duration,
    /// Failures since the last success.
    pub failures_in_row: u32,
    /// Attempts made.
    pub requests: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Time until the next probe, of one that is left out.
    pub until: Option<Duration>,
}

/// Whether an endpoint takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointState {
    /// It takes its full share.
    Up,
    /// It is new or back, and takes a growing share.
    SlowStart,
    /// It failed too often, and takes none until a probe has succeeded.
    Ejected,
    /// It is asked whether it is back: by a probe, or by the one request let through after it.
    Probing,
    /// An operator took it out; only an operator brings it back.
    HeldOut,
    /// It takes no new requests: an operator drains it, or its name no longer leads to it.
    Draining,
}

/// No endpoint has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no endpoint is called {name:?}")]
pub struct UnknownEndpoint {
    /// As given.
    pub name: String,
}

impl OriginOperator {
    pub(crate) fn new(set: Arc<EndpointSet>) -> Self {
        Self { set }
    }

    /// Every endpoint, in the order of the settings.
    pub fn status(&self) -> Vec<EndpointStatus> {
        self.set.status()
    }

    /// Takes an endpoint out until [`OriginOperator::restore`]; what is under way there goes on.
    ///
    /// # Errors
    /// [`UnknownEndpoint`].
    pub fn eject(&self, name: &str) -> Result<(), UnknownEndpoint> {
        self.each(name, Endpoint::hold_out)
    }

    /// Lets an endpoint take requests again, whoever took it out.
    ///
    /// # Errors
    /// [`UnknownEndpoint`].
    pub fn restore(&self, name: &str) -> Result<(), UnknownEndpoint> {
        self.each(name, Endpoint::restore)
    }

    /// As [`OriginOperator::eject`], and closes the connections there as they fall idle.
    ///
    /// # Errors
    /// [`UnknownEndpoint`].
    pub fn drain(&self, name: &str) -> Result<(), UnknownEndpoint> {
        self.each(name, Endpoint::drain)
    }

    /// Without the address a name means every endpoint behind it.
    fn each(&self, name: &str, act: fn(&Endpoint)) -> Result<(), UnknownEndpoint> {
        let called = self.set.called(name);
        if called.is_empty() {
            return Err(UnknownEndpoint {
                name: name.to_owned(),
            });
        }
        for endpoint in &called {
            act(endpoint);
        }
        Ok(())
    }
}
