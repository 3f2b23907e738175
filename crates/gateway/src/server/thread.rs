//! One serving thread: accepts, watches its connections, drains.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_store::RequestId;
use forebay_telemetry::gateway::Shard;
use http::HeaderValue;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, oneshot, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};

use super::{
    BACKLOG, Bound, Phase, Shared, StartError,
    connection::{self, Accepted},
    pulse::{Order, Pulse, Verdict, Watch},
    tls::Certificate,
};

/// Blocking calls of stores at once on one thread: file systems rarely gain from more.
const BLOCKING_THREADS_MAX: usize = 64;
/// Stack of a thread that makes blocking calls; they are shallow.
const BLOCKING_STACK_BYTES: usize = 512 * 1024;
/// How long such a thread waits for more work: a burst is over in seconds, and an idle thread
/// costs resident memory.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How often certificates are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a failed accept: out of file descriptors, which only time mends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Send buffer of a connection from this machine, where the round trip is nil: what waits in a
/// larger one has left the cache before the client reads it. Measured with 50 clients of 1 MiB by
/// `sendfile`, requests/s on two machines: 32 KiB 2,080 on the second; 64 KiB 3,450 and 4,130;
/// 128 KiB 3,700 and 2,520; 256 KiB 3,100 and 1,990; the kernel's own sizing 1,600 and 1,940. Other
/// connections are sized by the kernel, since theirs must cover the round trip.
const LOOPBACK_SEND_BYTES: usize = 64 * 1024;
/// How long a drained thread waits for blocking calls that nobody waits for any more.
const BLOCKING_END_MAX: Duration = Duration::from_secs(1);

/// What the connections of one thread share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) shard: Arc<Shard>,
    index: usize,
    /// `x-amz-id-2` of errors: a random name of this thread's life.
    host_id: HeaderValue,
    /// State of the generator of request ids.
    next_id: AtomicU64,
    watched: Mutex<Vec<(Arc<Pulse>, Watch)>>,
    open: AtomicUsize,
    all_closed: Notify,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            shard: Arc::clone(shared.metrics.shard(index)),
            shared,
            index,
            host_id: HeaderValue::from_str(&format!("{:016x}", RandomState::new().hash_one(index)))
                .expect("hex digits are a header value"),
            // The standard library's hasher is keyed at random.
            next_id: AtomicU64::new(RandomState::new().hash_one(index)),
            watched: Mutex::default(),
            open: AtomicUsize::new(0),
            all_closed: Notify::new(),
        }
    }

    /// An id that no other request has, as far as 64 random bits go.
    pub(crate) fn next_request_id(&self) -> RequestId {
        RequestId(mix(self.next_id.fetch_add(MIX_STEP, Ordering::Relaxed)))
    }

    /// What errors name as the host that made them.
    pub(crate) fn host_id(&self) -> &HeaderValue {
        &self.host_id
    }

    /// Has the watchdog look after a connection.
    pub(super) fn watch(&self, pulse: Arc<Pulse>, watch: Watch) {
        self.watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((pulse, watch));
    }

    /// Judges every connection once.
    fn look_around(&self) {
        let (now, limits) = (self.shared.clock.now(), &self.shared.settings.limits);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain_mut(|(pulse, watch)| {
            if pulse.is_closed() {
                return false;
            }
            match watch.judge(pulse.sample(), now, limits) {
                Verdict::Lives => {}
                Verdict::Idle => pulse.give(Order::Drain),
                Verdict::Stalled => {
                    self.shard.connections_cut.fetch_add(1, Ordering::Relaxed);
                    pulse.give(Order::Cut);
                }
            }
            true
        });
    }

    /// Tells every connection to finish.
    fn drain(&self) {
        for (pulse, _) in &*self.watched.lock().unwrap_or_else(PoisonError::into_inner) {
            pulse.give(Order::Drain);
        }
    }
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(super) struct Open {
    worker: Arc<Worker>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    fn new(worker: Arc<Worker>, permit: OwnedSemaphorePermit) -> Self {
        worker.open.fetch_add(1, Ordering::Relaxed);
        worker
            .shard
            .connections_accepted
            .fetch_add(1, Ordering::Relaxed);
        Self {
            worker,
            _permit: permit,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker
            .shard
            .connections_closed
            .fetch_add(1, Ordering::Relaxed);
        if self.worker.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.worker.all_closed.notify_one();
        }
    }
}

/// A thread that was started.
#[derive(Debug)]
pub(super) struct Handle {
    ended: Option<oneshot::Receiver<usize>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Waits for the thread's end; the connections that it cut.
    pub(super) async fn ended(&mut self) -> usize {
        match self.ended.take() {
            // A thread that panicked has cut what it had, and nobody counted.
            Some(ended) => ended.await.unwrap_or(0),
            None => 0,
        }
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a serving thread panicked");
        }
    }
}

/// Starts a thread; returns once it listens.
pub(super) fn start(
    worker: Arc<Worker>,
    sockets: Vec<Bound>,
    phase: watch::Receiver<Phase>,
) -> Result<Handle, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(BLOCKING_STACK_BYTES)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .build()
        .map_err(StartError::Thread)?;
    let listeners = {
        // Registers with this runtime's reactor.
        let _entered = runtime.enter();
        sockets
            .into_iter()
            .map(Listening::new)
            .collect::<Result<Vec<_>, _>>()?
    };
    let (ended_sender, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name(format!("forebay-{}", worker.index))
        .spawn(move || {
            let connections_cut = runtime.block_on(run(worker, listeners, phase));
            runtime.shutdown_timeout(BLOCKING_END_MAX);
            // Nobody waits when the gateway was dropped.
            let _ = ended_sender.send(connections_cut);
        })
        .map_err(StartError::Thread)?;
    Ok(Handle {
        ended: Some(ended),
        thread: Some(thread),
    })
}

/// A socket that listens.
#[derive(Debug)]
struct Listening {
    listener: TcpListener,
    bound: BoundTo,
}

/// What the connections of a listener have in common.
#[derive(Debug, Clone)]
pub(super) struct BoundTo {
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) authentication: Arc<crate::settings::Authentication>,
}

impl Listening {
    fn new(bound: Bound) -> Result<Self, StartError> {
        let Bound {
            address,
            socket,
            certificate,
            authentication,
        } = bound;
        let listener = socket
            .listen(BACKLOG)
            .map_err(|source| StartError::Listen { address, source })?;
        Ok(Self {
            listener,
            bound: BoundTo {
                certificate,
                authentication,
            },
        })
    }
}

/// Serves until told to drain, then drains; the connections cut at the deadline.
async fn run(
    worker: Arc<Worker>,
    listeners: Vec<Listening>,
    mut phase: watch::Receiver<Phase>,
) -> usize {
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_connections(Arc::clone(&worker)));
    for listening in listeners {
        if let Some(certificate) = listening.bound.certificate.clone()
            && worker.index == 0
        {
            tasks.spawn(watch_certificate(certificate));
        }
        tasks.spawn(accept(Arc::clone(&worker), listening, phase.clone()));
    }
    let deadline = loop {
        match *phase.borrow_and_update() {
            Phase::Drain { deadline } => break deadline,
            Phase::Run => {}
        }
        if phase.changed().await.is_err() {
            break worker.shared.clock.now();
        }
    };
    // The accepting tasks end by themselves; the watchdog goes on, so that an idle or a silent
    // client does not keep the drain waiting.
    worker.drain();
    let left = deadline.saturating_duration_since(worker.shared.clock.now());
    let all_closed = async {
        while worker.open.load(Ordering::Relaxed) > 0 {
            worker.all_closed.notified().await;
        }
    };
    // Too late is no error: what is left is counted, and cut when the runtime is dropped.
    tokio::select! {
        _ = tokio::time::timeout(left, all_closed) => {}
        // A second order means that the gateway was dropped: it ends at once.
        _ = phase.changed() => {}
    }
    worker.open.load(Ordering::Relaxed)
}

async fn watch_connections(worker: Arc<Worker>) {
    let limits = &worker.shared.settings.limits;
    let shortest = limits
        .header_timeout
        .min(limits.idle_timeout)
        .min(limits.stall_timeout);
    let period = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        worker.look_around();
    }
}

async fn watch_certificate(certificate: Arc<Certificate>) {
    let mut interval = tokio::time::interval(CERTIFICATE_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let reloaded = tokio::task::spawn_blocking({
            let certificate = Arc::clone(&certificate);
            move || certificate.reload()
        });
        match reloaded.await {
            Ok(Ok(super::Reload::Unchanged)) => {}
            Ok(Ok(super::Reload::Done)) => {
                tracing::info!(certificate = %certificate.path(), "certificate reloaded");
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "new certificate refused, the old one stays in use");
            }
            Err(error) => tracing::error!(%error, "read certificate"),
        }
    }
}

/// Accepts until the drain begins, which also closes the listening socket.
async fn accept(worker: Arc<Worker>, listening: Listening, mut phase: watch::Receiver<Phase>) {
    let Listening { listener, bound } = listening;
    let mut drain_seen = phase.clone();
    let draining = drain_seen.wait_for(|phase| *phase != Phase::Run);
    let accepting = async {
        loop {
            // A permit first: at the limit, connections wait in the kernel's queue.
            let Ok(permit) = Arc::clone(&worker.shared.connections).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, remote)) => {
                    let open = Open::new(Arc::clone(&worker), permit);
                    begin(&worker, stream, remote, &bound, open, phase.clone());
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = draining => {}
    }
    phase.mark_unchanged();
}

fn begin(
    worker: &Arc<Worker>,
    stream: TcpStream,
    remote: std::net::SocketAddr,
    bound: &BoundTo,
    open: Open,
    phase: watch::Receiver<Phase>,
) {
    let tuned = stream.set_nodelay(true).and_then(|()| {
        if !remote.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        let set = rustix::net::sockopt::set_socket_send_buffer_size;
        Ok(set(&stream, LOOPBACK_SEND_BYTES)?)
    });
    if let Err(error) = tuned {
        tracing::debug!(%error, "client went away before it was served");
        return;
    }
    let accepted = Accepted {
        worker: Arc::clone(worker),
        stream,
        remote,
        bound: bound.clone(),
    };
    // The task owns `open`: the drain waits for it.
    tokio::spawn(async move {
        connection::serve(accepted, phase).await;
        drop(open);
    });
}

/// Whether an accept failed because of the connection accepted, not because of the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let kind = error.kind();
    matches!(
        kind,
        Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused
    )
}

/// What the state of `SplitMix64` moves on by: the golden ratio, an odd number.
const MIX_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output of `SplitMix64` for a state; no two states have the same.
fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation (Steele, Lea, Flood 2014) for seed 0.
    #[test]
    fn request_ids_are_those_of_splitmix64() {
        let outputs = [1, 2, 3].map(|n: u64| mix(MIX_STEP.wrapping_mul(n)));
        assert_eq!(
            outputs,
            [
                0xE220_A839_7B1D_CDAF,
                0x6E78_9E6A_A1B9_65F4,
                0x06C4_5D18_8009_454F
            ]
        );
    }
}
