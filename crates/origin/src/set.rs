//! The endpoints that share their data, and the choice among them.
//!
//! [`EndpointSet::choose`] gives an endpoint for one attempt: one that may take it, not one that the
//! request has tried already unless there is no other. With every endpoint at its limit a request
//! waits `pool.wait_max` for a place and is then told to slow down.
//!
//! Called by [`crate::store`], for each attempt.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use forebay_store::Error;
use forebay_telemetry::origin::OriginMetrics;

use crate::{
    address::Address,
    connect::Connector,
    endpoint::{Endpoint, EndpointId, Freed, Picked},
    operator::{EndpointState, EndpointStatus},
    payload::Way,
    pool::Pool,
    settings::{OriginSettings, SettingsError},
};

/// The endpoints of one origin.
#[derive(Debug)]
pub(crate) struct EndpointSet {
    /// The first one named, for what is not sent from here.
    address: Address,
    way: Way,
    members: ArcSwap<Vec<Arc<Endpoint>>>,
    wait_max: Duration,
    freed: Arc<Freed>,
}

/// Why no endpoint can be had at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoneFree {
    /// All that could take a request are at their limits.
    AllBusy,
}

impl EndpointSet {
    pub(crate) fn new(
        settings: &OriginSettings,
        metrics: &Arc<OriginMetrics>,
    ) -> Result<Arc<Self>, SettingsError> {
        let addresses: Vec<Address> = settings
            .endpoints
            .iter()
            .map(|endpoint| Address::new(endpoint, settings.addressing, settings.protocol))
            .collect::<Result<_, _>>()?;
        // What vouches for a payload is decided before an endpoint is chosen.
        let is_safe = |address: &Address| address.is_tls() || address.is_loopback();
        let way = if addresses.iter().all(is_safe) {
            Way::Safe
        } else {
            Way::Open
        };
        let freed = Arc::default();
        let mut members = Vec::with_capacity(addresses.len());
        for (id, address) in (0..).map(EndpointId).zip(&addresses) {
            let pool = Pool::new(
                Connector::new(settings, address, metrics)?,
                settings.protocol,
                settings.pool.clone(),
                Arc::clone(metrics),
            );
            let requests_max = settings.limits.requests_max;
            members.push(Endpoint::new(
                id,
                address.clone(),
                pool,
                requests_max,
                &freed,
            ));
        }
        Ok(Arc::new(Self {
            address: addresses[0].clone(),
            way,
            members: ArcSwap::from_pointee(members),
            wait_max: settings.pool.wait_max,
            freed,
        }))
    }

    /// The first endpoint named.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the way to every endpoint is safe.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Chooses an endpoint, not one of `avoid` unless there is no other; waits for a place if there
    /// is none.
    ///
    /// # Errors
    /// `SlowDown` when no place was freed in `pool.wait_max`.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing.
    pub(crate) async fn choose(&self, avoid: &[EndpointId]) -> Result<Picked, Error> {
        match self.try_choose(avoid) {
            Ok(picked) => return Ok(picked),
            Err(NoneFree::AllBusy) => {}
        }
        let waiting = self.freed.wait(|| self.try_choose(avoid).ok());
        tokio::time::timeout(self.wait_max, waiting)
            .await
            .map_err(|_| Error::SlowDown {
                retry_after: Some(Duration::from_secs(1)),
            })
    }

    /// Chooses an endpoint that can be had at once.
    pub(crate) fn try_choose(&self, avoid: &[EndpointId]) -> Result<Picked, NoneFree> {
        let members = self.members.load();
        let untried = members.iter().filter(|one| !avoid.contains(&one.id));
        let least = untried.min_by_key(|one| one.in_flight());
        least
            .and_then(Endpoint::pick)
            .or_else(|| members.iter().find_map(Endpoint::pick))
            .ok_or(NoneFree::AllBusy)
    }

    /// What is known of every endpoint.
    pub(crate) fn status(&self) -> Vec<EndpointStatus> {
        let status = |endpoint: &Arc<Endpoint>| {
            let (requests, failures) = endpoint.counts();
            EndpointStatus {
                name: endpoint.name.to_string(),
                state: EndpointState::Up,
                in_flight: endpoint.in_flight(),
                requests_max_now: endpoint.requests_max_now(),
                first_byte: Duration::ZERO,
                failures_in_row: 0,
                requests,
                failures,
                until: None,
            }
        };
        self.members.load().iter().map(status).collect()
    }
}
