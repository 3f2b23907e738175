//! The endpoints that share their data, and the choice among them.
//!
//! [`EndpointSet::choose`] gives an endpoint for one attempt: one that may take it, not one that
//! the request has tried already unless there is no other.
//!
//! | state of the set | what a request gets |
//! |---|---|
//! | some endpoint is up and below its limits | it |
//! | all that are up are at their limits | a place freed; `SlowDown` after `pool.wait_max` |
//! | none is up, one answered its probe | that one |
//! | none is up | `Unavailable`, at once; probes find out when that changes |
//! | no name is resolved yet | the first that is; `Unavailable` when all lookups have failed |
//!
//! Called by [`crate::store`] for each attempt. What needs time is done by [`crate::keeper`].

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use forebay_store::Error;
use forebay_telemetry::origin::OriginMetrics;
use parking_lot::Mutex;
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use crate::{
    address::Address,
    attempt::Sender,
    balance,
    connect::{Connector, Tls},
    dial::Dial,
    endpoint::{Condition, Endpoint, EndpointId, Identity, Picked, Shared, Visit},
    health::Health,
    keeper::{self, Due, Running},
    operator::EndpointStatus,
    payload::Way,
    pool::Pool,
    rate::Bucket,
    resolve::{Addresses, Lookup, Resolve},
    settings::{OriginSettings, SettingsError},
};

const NONE_UP: &str = "no endpoint of the origin is up";
const UNRESOLVED: &str = "the origin's name can't be resolved";

/// The endpoints of one origin.
#[derive(Debug)]
pub(crate) struct EndpointSet {
    settings: OriginSettings,
    sources: Vec<Source>,
    way: Way,
    members: ArcSwap<Vec<Arc<Endpoint>>>,
    changing: Mutex<Changing>,
    shared: Arc<Shared>,
    network: Network,
    metrics: Arc<OriginMetrics>,
    /// Sends probes.
    sender: OnceLock<Weak<Sender>>,
    keeper: Mutex<Option<AbortHandle>>,
}

/// How names become addresses, and addresses connections.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub resolver: Arc<dyn Resolve>,
    pub dial: Arc<dyn Dial>,
}

/// An endpoint of the settings: an address, or a name with any number of them.
#[derive(Debug)]
struct Source {
    address: Address,
    tls: Option<Arc<Tls>>,
    /// `None` for a name.
    ip: Option<IpAddr>,
}

/// What changes with lookups.
#[derive(Debug)]
struct Changing {
    next_id: u32,
    /// As many as there are sources.
    names: Vec<Name>,
}

#[derive(Debug)]
struct Name {
    addresses: Addresses,
    lookup: LookupState,
    /// Whether a lookup has ended, well or not.
    is_looked_up: bool,
}

#[derive(Debug, Clone, Copy)]
enum LookupState {
    Due(Instant),
    UnderWay,
    /// Never: it is no name.
    Needless,
}

/// Why no endpoint can be had at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoneFree {
    /// All that take requests are at their limits.
    AllBusy,
    /// All are left out.
    AllOut,
    /// No name has been resolved.
    NoneKnown,
}

impl EndpointSet {
    pub(crate) fn new(
        settings: &OriginSettings,
        network: Network,
        metrics: &Arc<OriginMetrics>,
    ) -> Result<Arc<Self>, SettingsError> {
        let mut sources = Vec::with_capacity(settings.endpoints.len());
        for endpoint in &settings.endpoints {
            let address = Address::new(endpoint, settings.addressing, settings.protocol)?;
            let tls = if address.is_tls() {
                Some(Arc::new(Tls::new(settings, &address)?))
            } else {
                None
            };
            let ip = address.host().parse().ok();
            sources.push(Source { address, tls, ip });
        }
        // What vouches for a payload is decided before an endpoint is chosen.
        let is_safe = |source: &Source| source.address.is_tls() || source.address.is_loopback();
        let way = if sources.iter().all(is_safe) {
            Way::Safe
        } else {
            Way::Open
        };
        let shared = Shared::new(settings.health.clone(), settings.balance.slow_start);
        let now = Instant::now();
        let name = |source: &Source| Name {
            addresses: Addresses::default(),
            lookup: match source.ip {
                Some(_) => LookupState::Needless,
                None => LookupState::Due(now),
            },
            is_looked_up: source.ip.is_some(),
        };
        let changing = Changing {
            next_id: 0,
            names: sources.iter().map(name).collect(),
        };
        let set = Arc::new(Self {
            settings: settings.clone(),
            sources,
            way,
            members: ArcSwap::default(),
            changing: Mutex::new(changing),
            shared,
            network,
            metrics: Arc::clone(metrics),
            sender: OnceLock::new(),
            keeper: Mutex::new(None),
        });
        let mut members = Vec::new();
        {
            let mut changing = set.changing.lock();
            for (index, source) in set.sources.iter().enumerate() {
                if let Some(ip) = source.ip {
                    let peer = SocketAddr::new(ip, source.address.port());
                    let health = Health::up(&settings.health);
                    members.push(set.make(&mut changing, index, peer, health));
                }
            }
        }
        set.members.store(Arc::new(members));
        Ok(set)
    }

    /// The first endpoint named.
    pub(crate) fn address(&self) -> &Address {
        &self.sources[0].address
    }

    /// Whether the way to every endpoint is safe.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Looks names up and probes from now on, with `sender`, in a task of its own.
    pub(crate) fn start(self: &Arc<Self>, sender: &Arc<Sender>) {
        // Set once: there is one sender for each set.
        let _ = self.sender.set(Arc::downgrade(sender));
        self.see_to_keeper();
    }

    /// Starts the task if there is none, and a runtime for it.
    fn see_to_keeper(self: &Arc<Self>) {
        let Some(sender) = self.sender.get() else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut keeper = self.keeper.lock();
        if self.shared.set_kept(true) {
            return;
        }
        let running = Running(Arc::clone(&self.shared));
        let kept = keeper::keep(Arc::downgrade(self), Weak::clone(sender), running);
        *keeper = Some(runtime.spawn(kept).abort_handle());
    }

    /// Chooses an endpoint, not one of `avoid` unless there is no other; waits for a place if there
    /// is none.
    ///
    /// # Errors
    /// As the table above says.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing.
    pub(crate) async fn choose(self: &Arc<Self>, avoid: &[EndpointId]) -> Result<Picked, Error> {
        if !self.shared.is_kept() {
            self.see_to_keeper();
        }
        let chosen = if self.shared.freed.is_awaited() && self.is_any_open() {
            Err(NoneFree::AllBusy)
        } else {
            self.try_choose(avoid)
        };
        let patience = match chosen {
            Ok(picked) => return Ok(picked),
            Err(NoneFree::AllOut) => return Err(unavailable(NONE_UP)),
            Err(NoneFree::AllBusy) => {
                self.metrics.pool_waits.inc();
                self.settings.pool.wait_max
            }
            Err(NoneFree::NoneKnown) => self.settings.timeouts.connect,
        };
        let waiting = self.shared.freed.wait(|| match self.try_choose(avoid) {
            Ok(picked) => Some(Ok(picked)),
            Err(NoneFree::AllOut) => Some(Err(unavailable(NONE_UP))),
            Err(NoneFree::NoneKnown) if self.is_looked_up() => Some(Err(unavailable(UNRESOLVED))),
            Err(NoneFree::NoneKnown | NoneFree::AllBusy) => None,
        });
        let chosen = tokio::time::timeout(patience, waiting).await;
        // Of two places that were freed before anybody stood here, nobody was told.
        if self.shared.freed.is_awaited() && self.has_other(&[]) {
            self.shared.freed.one();
        }
        match chosen {
            Ok(chosen) => chosen,
            Err(_) if self.members.load().is_empty() => Err(unavailable(UNRESOLVED)),
            Err(_) => Err(Error::SlowDown {
                retry_after: Some(Duration::from_secs(1)),
            }),
        }
    }

    /// Chooses an endpoint that can be had at once.
    pub(crate) fn try_choose(&self, avoid: &[EndpointId]) -> Result<Picked, NoneFree> {
        let members = self.members.load();
        let now = Instant::now();
        let is_avoided = |endpoint: &Endpoint| avoid.contains(&endpoint.id);
        let pick = |condition, may_be: &dyn Fn(&Endpoint) -> bool| {
            let load = |index: usize| {
                let endpoint: &Arc<Endpoint> = &members[index];
                may_be(endpoint).then(|| endpoint.load(now, condition))?
            };
            // A place may be taken between the look and the pick; then another is looked for.
            (0..=members.len()).find_map(|_| {
                let index = balance::choose(members.len(), load, |n| fastrand::usize(..n))?;
                let endpoint = &members[index];
                let visit = if is_avoided(endpoint) {
                    Visit::Again
                } else {
                    Visit::First
                };
                endpoint.pick(visit, condition)
            })
        };
        let untried = |endpoint: &Endpoint| !is_avoided(endpoint);
        pick(Condition::Sound, &untried)
            .or_else(|| match avoid {
                [] => None,
                [..] => pick(Condition::Sound, &|_| true),
            })
            .or_else(|| match self.shared.up_count() {
                0 => pick(Condition::OnTrial, &|_| true),
                _ => None,
            })
            .ok_or_else(|| {
                if members.is_empty() {
                    NoneFree::NoneKnown
                } else if self.is_any_open() {
                    NoneFree::AllBusy
                } else {
                    NoneFree::AllOut
                }
            })
    }

    /// Whether an endpoint takes requests, or would if it were not at its limit.
    fn is_any_open(&self) -> bool {
        self.members
            .load()
            .iter()
            .any(|endpoint| endpoint.is_open())
    }

    /// Whether an endpoint besides these may take a request at this moment.
    pub(crate) fn has_other(&self, than: &[EndpointId]) -> bool {
        let now = Instant::now();
        self.members.load().iter().any(|endpoint| {
            !than.contains(&endpoint.id) && endpoint.load(now, Condition::Sound).is_some()
        })
    }

    /// What is known of every endpoint.
    pub(crate) fn status(&self) -> Vec<EndpointStatus> {
        let now = Instant::now();
        let members = self.members.load();
        members
            .iter()
            .map(|endpoint| endpoint.status(now))
            .collect()
    }

    /// The endpoints that an operator calls so: one by its own name, or all behind a name.
    pub(crate) fn called(&self, name: &str) -> Vec<Arc<Endpoint>> {
        let is_called = |endpoint: &Arc<Endpoint>| {
            *endpoint.name == *name || endpoint.address.to_string() == name
        };
        let members = self.members.load();
        members
            .iter()
            .filter(|one| is_called(one))
            .cloned()
            .collect()
    }

    /// What the keeper is to do now; begun with this call.
    pub(crate) fn due(&self, now: Instant) -> Due {
        let mut due = Due::default();
        let mut later = |at: Instant| {
            due.next = Some(due.next.map_or(at, |next| next.min(at)));
        };
        let members = self.members.load();
        for endpoint in members.iter() {
            if endpoint.begin_probe(now) {
                due.probes.push(Arc::clone(endpoint));
            } else if let Some(at) = endpoint.probe_at() {
                later(at);
            }
        }
        let mut changing = self.changing.lock();
        for (index, name) in changing.names.iter_mut().enumerate() {
            match name.lookup {
                LookupState::Due(at) if at <= now => {
                    name.lookup = LookupState::UnderWay;
                    due.lookups.push(self.lookup(index));
                }
                LookupState::Due(at) => later(at),
                LookupState::UnderWay | LookupState::Needless => {}
            }
        }
        due
    }

    fn lookup(&self, source_index: usize) -> Lookup {
        let address = &self.sources[source_index].address;
        Lookup {
            source_index,
            host: address.host().to_owned(),
            port: address.port(),
            resolver: Arc::clone(&self.network.resolver),
            timeout: self.settings.timeouts.connect,
        }
    }

    /// Takes in what a lookup found.
    pub(crate) fn found(&self, lookup: &Lookup, found: std::io::Result<Vec<SocketAddr>>) {
        let settings = &self.settings;
        let now = Instant::now();
        let found = found.unwrap_or_else(|error| {
            self.metrics.lookup_errors.inc();
            tracing::debug!(host = lookup.host, %error, "name of the origin can't be resolved");
            Vec::new()
        });
        let mut changing = self.changing.lock();
        let name = &mut changing.names[lookup.source_index];
        name.lookup = LookupState::Due(now + settings.balance.resolve_interval);
        let changes = name
            .addresses
            .update(&found, settings.balance.addresses_max);
        let is_first = !std::mem::replace(&mut name.is_looked_up, true);
        let mut members = Vec::clone(&self.members.load());
        let is_gone = |endpoint: &Arc<Endpoint>| {
            endpoint.source_index == lookup.source_index && changes.gone.contains(&endpoint.peer)
        };
        let gone: Vec<_> = members
            .extract_if(.., |endpoint| is_gone(endpoint))
            .collect();
        for peer in changes.come {
            let health = if is_first {
                Health::up(&settings.health)
            } else {
                Health::newcomer(&settings.health, now)
            };
            members.push(self.make(&mut changing, lookup.source_index, peer, health));
        }
        self.members.store(Arc::new(members));
        drop(changing);
        for endpoint in gone {
            endpoint.drain();
            self.metrics.endpoints.forget(&endpoint.name);
        }
        self.shared.freed.all();
    }

    fn is_looked_up(&self) -> bool {
        let changing = self.changing.lock();
        changing.names.iter().all(|name| name.is_looked_up)
    }

    fn make(
        &self,
        changing: &mut Changing,
        source_index: usize,
        peer: SocketAddr,
        health: Health,
    ) -> Arc<Endpoint> {
        let (settings, source) = (&self.settings, &self.sources[source_index]);
        let id = EndpointId(changing.next_id);
        changing.next_id += 1;
        let name = match source.ip {
            Some(_) => source.address.to_string(),
            None => format!("{}@{}", source.address, peer.ip()),
        };
        let way_there = (peer, Arc::clone(&self.network.dial));
        let connector = Connector::new(settings, source.tls.clone(), way_there, &self.metrics);
        let pool = Pool::new(
            connector,
            settings.protocol,
            settings.pool.clone(),
            Arc::clone(&self.metrics),
        );
        let requests_max = settings.limits.requests_max.min(pool.requests_max());
        let bucket = settings
            .limits
            .bytes_per_second_max
            .map(|bytes| Arc::new(Mutex::new(Bucket::new(bytes, Instant::now()))));
        let metrics = self.metrics.endpoints.endpoint(&name);
        let identity = Identity {
            id,
            name: name.into_boxed_str(),
            address: source.address.clone(),
            source_index,
            peer,
        };
        Endpoint::new(
            identity,
            (pool, bucket),
            (health, requests_max),
            metrics,
            &self.shared,
        )
    }
}

impl Drop for EndpointSet {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut() {
            keeper.abort();
        }
    }
}

fn unavailable(reason: &'static str) -> Error {
    Error::Unavailable {
        reason: reason.into(),
    }
}
