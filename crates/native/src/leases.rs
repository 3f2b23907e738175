//! Leases: one holder at a time, with a number that grows, for work that several gateways could do.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::Error;

use crate::index::Route;

/// Grows with every new holder of one lease: whoever comes later has the larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What it is for.
    pub route: Route,
    /// Who holds it, unique to a life of a gateway.
    pub holder: Bytes,
    /// Its number.
    pub fence: Fence,
}

/// Gives leases on routes.
///
/// Contract, checked for every implementation by `contract::leases`:
/// - At most one holder at a time, by the clock of whoever keeps the leases, not of the holders.
/// - A lease that is neither renewed nor released within its time is free again. Its holder may not
///   have noticed: what must not happen twice is made conditional as well.
/// - Fences of one route only grow, also across restarts.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes a lease for `time`, or `None` when another holder has it. A holder that asks again
    /// gets a new fence.
    async fn acquire(
        &self,
        route: &Route,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error>;

    /// Prolongs a lease to `time` from now; `false` when it is no longer held.
    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error>;

    /// Gives a lease back; one that is no longer held is success.
    async fn release(&self, lease: Lease) -> Result<(), Error>;
}
