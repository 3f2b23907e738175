//! Sockets, threads and the life of the gateway: start, run, drain, stop.
//!
//! Each serving thread has a runtime of its own and, by `SO_REUSEPORT`, a listening socket of its
//! own for every address: a connection stays on the thread that accepted it, and nothing on a
//! request's way is shared between cores but what is read only.
//!
//! [`thread`] accepts and watches, [`connection`] speaks HTTP, [`socket`] and [`tls`] move bytes,
//! [`pulse`] knows when a client is too slow. What happens to a request is in [`crate::request`].

mod connection;
mod pulse;
mod socket;
mod thread;
mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use forebay_store::{Budget, Clock};
use forebay_telemetry::gateway::GatewayMetrics;
use tokio::{
    net::TcpSocket,
    sync::{Semaphore, watch},
};

use crate::{
    access_log::AccessLog,
    request,
    routes::Routes,
    settings::{Authentication, Listener, Settings},
    users::Users,
};

pub(crate) use connection::{Connection, Protocol, Security};
pub(crate) use pulse::is_too_slow;
pub(crate) use thread::Worker;
pub use tls::TlsError;
use tls::{Certificate, Reload};

/// Connections that wait in a listening socket's queue; the kernel's own limit may be lower.
const BACKLOG: u32 = 4096;

/// What the gateway is made of, beside its settings.
#[derive(Debug)]
pub struct Parts {
    /// Which store answers for which bucket.
    pub routes: Routes,
    /// Who may ask for what.
    pub users: Users,
    /// The time.
    pub clock: Clock,
    /// Room for payload bytes in flight, shared with the layers.
    pub budget: Budget,
    /// Counters with a shard for each thread, made by [`Gateway::metrics`].
    pub metrics: Arc<GatewayMetrics>,
}

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address that cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A certificate that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An access log that cannot be written.
    #[error("open access log {path}")]
    AccessLog {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A thread or its runtime that did not come up.
    #[error("start a serving thread")]
    Thread(#[source] io::Error),
}

/// What every thread shares: read only, but for what is exchanged whole.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) routes: Routes,
    pub(crate) users: ArcSwap<Users>,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) access_log: Option<AccessLog>,
    /// One permit a connection.
    pub(crate) connections: Arc<Semaphore>,
}

/// What the threads are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Accept and serve.
    Run,
    /// Accept nothing, finish what is under way, end at the deadline at the latest.
    Drain {
        /// When the rest is cut.
        deadline: Instant,
    },
}

/// The gateway.
#[derive(Debug)]
pub struct Gateway;

impl Gateway {
    /// The counters that a gateway of these settings fills in.
    pub fn metrics(settings: &Settings) -> Arc<GatewayMetrics> {
        Arc::new(request::metrics(settings.threads.get()))
    }

    /// Starts to listen and to serve; whatever fails does so here.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(settings: Settings, parts: Parts) -> Result<Running, StartError> {
        let Parts {
            routes,
            users,
            clock,
            budget,
            metrics,
        } = parts;
        let access_log = settings
            .access_log
            .as_ref()
            .map(AccessLog::open)
            .transpose()?;
        let listeners = settings
            .listeners
            .iter()
            .map(bind_first)
            .collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().map(|bound| bound.address).collect();
        let certificates: Vec<_> = listeners
            .iter()
            .filter_map(|bound| bound.certificate.clone())
            .collect();
        let shared = Arc::new(Shared {
            connections: Arc::new(Semaphore::new(settings.limits.connections_max)),
            users: ArcSwap::from_pointee(users),
            settings,
            routes,
            clock,
            budget,
            metrics,
            access_log,
        });
        let (phase, phase_seen) = watch::channel(Phase::Run);
        let mut running = Running {
            shared,
            addresses,
            certificates,
            phase,
            threads: Vec::new(),
        };
        let thread_count = running.shared.settings.threads.get();
        let mut sockets = listeners;
        for index in 0..thread_count {
            let next = (index + 1 < thread_count)
                .then(|| {
                    sockets
                        .iter()
                        .map(Bound::again)
                        .collect::<Result<Vec<_>, _>>()
                })
                .transpose()?;
            let worker = Arc::new(Worker::new(Arc::clone(&running.shared), index));
            running
                .threads
                .push(thread::start(worker, sockets, phase_seen.clone())?);
            sockets = next.unwrap_or_default();
        }
        Ok(running)
    }
}

/// A gateway that serves; dropped, it stops at once.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    certificates: Vec<Arc<Certificate>>,
    phase: watch::Sender<Phase>,
    threads: Vec<thread::Handle>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy at the deadline, and were cut.
    pub connections_cut: usize,
}

impl Running {
    /// The addresses listened on, in the order of the settings; ports as they really are.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Requests under way.
    pub fn requests_in_flight(&self) -> u64 {
        self.shared.metrics.requests_in_flight()
    }

    /// What a scrape of the edge's counters gives.
    #[cfg(test)]
    pub(crate) fn metrics_text(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.shared.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    /// Exchanges users and bucket policies; requests begun before go on with the old ones.
    pub fn replace_users(&self, users: Users) {
        self.shared.users.store(Arc::new(users));
    }

    /// Reads changed certificates again. The gateway also does so by itself every few seconds.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// The first certificate that cannot be used; the one in use stays.
    pub fn reload_certificates(&self) -> Result<(), TlsError> {
        let mut first_error = Ok(());
        for certificate in &self.certificates {
            match certificate.reload() {
                Ok(Reload::Unchanged) => {}
                Ok(Reload::Done) => {
                    tracing::info!(certificate = %certificate.path(), "certificate reloaded");
                }
                Err(error) => first_error = first_error.and(Err(error)),
            }
        }
        first_error
    }

    /// Stops accepting, lets requests finish for `within`, then cuts the rest.
    ///
    /// # Cancel safety
    /// A dropped future stops the gateway at once.
    pub async fn drain(mut self, within: Duration) -> Drained {
        let deadline = self.shared.clock.now() + within;
        // Without a receiver every thread has ended already.
        let _ = self.phase.send(Phase::Drain { deadline });
        let mut connections_cut = 0;
        for thread in &mut self.threads {
            connections_cut += thread.ended().await;
        }
        Drained { connections_cut }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let deadline = self.shared.clock.now();
        let _ = self.phase.send(Phase::Drain { deadline });
        for thread in &mut self.threads {
            thread.join();
        }
    }
}

/// An address with a socket for one thread.
#[derive(Debug)]
pub(crate) struct Bound {
    address: SocketAddr,
    socket: TcpSocket,
    certificate: Option<Arc<Certificate>>,
    authentication: Arc<Authentication>,
}

/// Binds the socket of the first thread.
fn bind_first(listener: &Listener) -> Result<Bound, StartError> {
    let failed = |source| StartError::Listen {
        address: listener.address,
        source,
    };
    warn_if_open(listener);
    let certificate = listener
        .tls
        .clone()
        .map(Certificate::load)
        .transpose()?
        .map(Arc::new);
    // Without SO_REUSEPORT: another program that shares its port would take half the connections.
    drop(socket(listener.address, Port::Alone).map_err(failed)?);
    let socket = socket(listener.address, Port::Shared).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    let authentication = Arc::new(listener.authentication.clone());
    Ok(Bound {
        address,
        socket,
        certificate,
        authentication,
    })
}

impl Bound {
    /// Binds the socket of a further thread.
    fn again(&self) -> Result<Self, StartError> {
        let socket = socket(self.address, Port::Shared).map_err(|source| StartError::Listen {
            address: self.address,
            source,
        })?;
        Ok(Self {
            address: self.address,
            socket,
            certificate: self.certificate.clone(),
            authentication: Arc::clone(&self.authentication),
        })
    }
}

/// Whether a port may have several sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Alone,
    Shared,
}

fn socket(address: SocketAddr, port: Port) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(port == Port::Shared)?;
    socket.bind(address)?;
    Ok(socket)
}

fn warn_if_open(listener: &Listener) {
    if let Authentication::Off { identity } = &listener.authentication
        && !listener.address.ip().is_loopback()
    {
        tracing::warn!(
            address = %listener.address,
            ?identity,
            "signatures are not checked here: whoever reaches this address has the rights of this \
             identity; set authentication = \"required\" unless the network is closed"
        );
    }
}
