//! A relay that counts and disturbs.
//!
//! A [`Tap`] stands between any two programs that speak TCP. It counts requests, answers and bytes
//! of HTTP/1.1, and only bytes of anything else (TLS, HTTP/2, WebSocket), so that what one gateway
//! asks of an origin is measured like what another one asks. It can make the line long, narrow and
//! unreliable by seed: a delay holds back the first byte of each answer, and the rest follows as
//! fast as the server sent it.
//!
//! Started by `forebay tap` ([`command`]), and in-process by tests.
//!
//! Limits: `connections_max` connections at a time, more wait to be accepted; heads up to
//! `head_bytes_max`, beyond which a connection turns opaque; 256 KiB and one read a direction and
//! connection, beyond which the tap reads no more until something was written.
//!
//! Not here: the delay of a handshake, the delay of opaque connections, lost packets.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

pub mod command;
mod control;
mod counts;
mod exchange;
mod faults;
mod framing;
mod lane;
mod relay;
#[cfg(test)]
mod tests;
mod workers;

pub use counts::{Counts, FaultCounts};
pub use faults::{FaultTexts, Faults, Jitter, Moment};

use counts::{Counters, add};
use faults::{Place, Plan};
use lane::{Pace, Tolls};
use relay::{End, Relay};
use workers::Workers;

/// How long the server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may take to end when the tap stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// What is waited after an accept that failed, as it does when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What a tap is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Host and port of the server.
    pub to: String,
    /// Where counts are read and faults are set; `None`: nowhere.
    pub stats: Option<SocketAddr>,
    /// What the faults of each request follow from.
    pub seed: u64,
    /// What is added to the line from the start.
    pub faults: Faults,
    /// Connections at a time, at least 1; more wait to be accepted.
    pub connections_max: usize,
    /// Bytes of a head, `1024..=131_072`; a connection with a longer one turns opaque.
    pub head_bytes_max: usize,
}

impl Settings {
    /// A tap on a free loopback port that only counts.
    pub fn new(to: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            to: to.into(),
            stats: None,
            seed: 0,
            faults: Faults::default(),
            connections_max: 4096,
            head_bytes_max: 65_536,
        }
    }
}

/// A running tap; dropping it cuts its connections.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    address: SocketAddr,
    stats_address: Option<SocketAddr>,
    stage: watch::Sender<Stage>,
    acceptor: JoinHandle<()>,
    control: Option<JoinHandle<()>>,
}

/// How far a tap has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Draining,
    Cut,
}

/// What connections share.
#[derive(Debug)]
struct Shared {
    to: String,
    seed: u64,
    head_bytes_max: usize,
    counters: Counters,
    request_count: AtomicU64,
    in_force: RwLock<Arc<InForce>>,
    /// The faults as they were last written.
    texts: RwLock<FaultTexts>,
    total_up: Mutex<Pace>,
    total_down: Mutex<Pace>,
}

/// Faults and since when they hold.
#[derive(Debug)]
struct InForce {
    faults: Faults,
    first_request: u64,
    since: Instant,
    workers: Option<Mutex<Workers>>,
}

impl InForce {
    fn new(faults: Faults, first_request: u64) -> Self {
        let since = Instant::now();
        let workers = faults
            .workers
            .map(|count| Mutex::new(Workers::new(count, since)));
        Self {
            faults,
            first_request,
            since,
            workers,
        }
    }

    /// When an answer may leave that is there now and is to be held back.
    fn leaves(&self, hold: Duration) -> Instant {
        let now = Instant::now();
        match &self.workers {
            Some(workers) => workers.lock().take(now, hold),
            None => now + hold,
        }
    }
}

impl Shared {
    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read())
    }

    fn set_faults(&self, faults: Faults) {
        self.total_up.lock().rate = faults.bandwidth_total;
        self.total_down.lock().rate = faults.bandwidth_total;
        let first_request = self.request_count.load(Ordering::Relaxed);
        *self.in_force.write() = Arc::new(InForce::new(faults, first_request));
    }

    /// What is done to the next request.
    fn plan(&self, in_force: &InForce) -> Plan {
        let number = self.request_count.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            number,
            requests: number.saturating_sub(in_force.first_request),
            elapsed: in_force.since.elapsed(),
        };
        in_force.faults.plan(self.seed, place)
    }

    fn tolls_up(&self, in_force: &InForce) -> Tolls<'_> {
        Tolls {
            total_pace: in_force.faults.bandwidth_total.map(|_| &self.total_up),
            bytes: &self.counters.bytes_to_server,
            body_bytes: &self.counters.body_bytes_to_server,
        }
    }

    fn tolls_down(&self, in_force: &InForce) -> Tolls<'_> {
        Tolls {
            total_pace: in_force.faults.bandwidth_total.map(|_| &self.total_down),
            bytes: &self.counters.bytes_to_client,
            body_bytes: &self.counters.body_bytes_to_client,
        }
    }
}

impl Tap {
    /// Listens and begins to relay, on the runtime of the caller.
    ///
    /// # Errors
    /// An address that can't be listened on, or a limit out of its range.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let Settings {
            listen,
            to,
            stats,
            seed,
            faults,
            connections_max,
            head_bytes_max,
        } = settings;
        let is_in_range = (1024..=131_072).contains(&head_bytes_max)
            && (1..=Semaphore::MAX_PERMITS).contains(&connections_max);
        if !is_in_range {
            let fault = "head_bytes_max is 1024 to 131072, connections_max at least 1";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault));
        }
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            to,
            seed,
            head_bytes_max,
            counters: Counters::default(),
            request_count: AtomicU64::new(0),
            in_force: RwLock::new(Arc::new(InForce::new(Faults::default(), 0))),
            texts: RwLock::default(),
            total_up: Mutex::default(),
            total_down: Mutex::default(),
        });
        shared.set_faults(faults);
        let (stage, stages) = watch::channel(Stage::Running);
        let (mut stats_address, mut control) = (None, None);
        if let Some(stats) = stats {
            let listener = TcpListener::bind(stats).await?;
            stats_address = Some(listener.local_addr()?);
            control = Some(tokio::spawn(control::serve(listener, Arc::clone(&shared))));
        }
        let acceptor = Acceptor {
            shared: Arc::clone(&shared),
            permits: Arc::new(Semaphore::new(connections_max)),
            stages,
        };
        Ok(Self {
            shared,
            address,
            stats_address,
            stage,
            acceptor: tokio::spawn(acceptor.run(listener)),
            control,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where counts are read and faults are set.
    pub fn stats_address(&self) -> Option<SocketAddr> {
        self.stats_address
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// Replaces all faults, for requests that come from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.set_faults(faults);
    }

    /// Accepts no more, lets requests end for up to 5 s, cuts the rest, and tells what passed.
    ///
    /// # Cancel safety
    /// A dropped future cuts all connections at once.
    pub async fn stop(mut self) -> Counts {
        self.stage.send_replace(Stage::Draining);
        let drained = tokio::time::timeout(DRAIN_MAX, &mut self.acceptor).await;
        if drained.is_err() {
            self.stage.send_replace(Stage::Cut);
            // A task that failed has nothing left to wait for.
            let _ = (&mut self.acceptor).await;
        }
        self.counts()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Cut);
        if let Some(control) = &self.control {
            control.abort();
        }
    }
}

/// Accepts connections and owns their tasks.
struct Acceptor {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    stages: watch::Receiver<Stage>,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut stages = self.stages.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stages.changed() => break,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((client, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let permit = tokio::select! {
                permit = self.permit() => permit,
                _ = stages.changed() => break,
            };
            let Some(permit) = permit else {
                break;
            };
            let shared = Arc::clone(&self.shared);
            connections.spawn(relay_connection(
                shared,
                client,
                self.stages.clone(),
                permit,
            ));
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// The right to relay one more connection; `None` never comes, as the semaphore stays open.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        add(&self.shared.counters.connections_waited, 1);
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

/// Relays one connection to its end.
async fn relay_connection(
    shared: Arc<Shared>,
    client: TcpStream,
    mut stages: watch::Receiver<Stage>,
    _permit: OwnedSemaphorePermit,
) {
    let _open = Open::count(&shared);
    // A socket whose client has gone is found out by the first read.
    let _ = client.set_nodelay(true);
    let connecting = TcpStream::connect(shared.to.as_str());
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let Ok(Ok(server)) = connected else {
        add(&shared.counters.connect_errors, 1);
        let _ = client.set_zero_linger();
        return;
    };
    let _ = server.set_nodelay(true);
    let mut relay = Relay::new(Arc::clone(&shared), client, server);
    loop {
        let stage = *stages.borrow_and_update();
        match stage {
            Stage::Running => {}
            Stage::Draining => relay.drain(),
            Stage::Cut => return relay.finish(End::Reset),
        }
        tokio::select! {
            end = relay.run() => return relay.finish(end),
            changed = stages.changed() => if changed.is_err() {
                return relay.finish(End::Reset);
            },
        }
    }
}

/// Counts a connection while it is open.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn count(shared: &'a Shared) -> Self {
        add(&shared.counters.connections, 1);
        add(&shared.counters.connections_open, 1);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let open = &self.0.counters.connections_open;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}
