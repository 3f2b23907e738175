//! Open connections, kept for the next request.
//!
//! Each runtime has its own shard, so that in a gateway of one current-thread runtime per core a
//! request finds a connection whose socket its own thread watches, behind a lock that no other
//! thread asks for. Only when all connections that may be open are, one idle in another shard is
//! taken.
//!
//! Limits: a permit is the right to use a connection (over HTTP/2: a stream), so connections in
//! use never exceed `connections_max`; a request waits `wait_max` for a permit and is then told to
//! slow down. An idle connection is kept for `idle_timeout`, the most recently used is used first,
//! and those beyond `idle_connections_max` are closed.
//!
//! An HTTP/1.1 connection is driven by the request that uses it ([`Driver::poll`]): no task stands
//! between the socket and the request, and dropping the request closes the connection. What the
//! peer did to an idle connection is found out by polling it before use.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use forebay_telemetry::origin::OriginMetrics;
use parking_lot::{Mutex, RwLock};
use tokio::{
    runtime::{self, Handle},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    buffers::Buffers,
    connect::{ConnectError, Connected, Connector},
    settings::{PoolSettings, Protocol},
    stream::Stream,
    wire::{Driver, Http1, Http2, Http2Stream},
};

/// The connections to one address.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    protocol: Protocol,
    settings: PoolSettings,
    permits: Arc<Semaphore>,
    /// One for each runtime that ever asked: as many as the process has threads that serve.
    shards: RwLock<Vec<(runtime::Id, Arc<Shard>)>>,
    idle_count: AtomicUsize,
    /// Whether connections are closed as they fall idle.
    is_closing: AtomicBool,
    buffers: Arc<Buffers>,
    metrics: Arc<OriginMetrics>,
}

/// The connections of one runtime.
#[derive(Debug)]
struct Shard {
    parked: Mutex<Parked>,
    /// Opens HTTP/2 connections one at a time: a burst of requests shares the first.
    turn: Semaphore,
    /// Connects that failed, so that who waited for one shares its failure.
    failures: AtomicUsize,
}

#[derive(Debug, Default)]
struct Parked {
    /// HTTP/1.1 connections without a request, the most recently used last.
    idle: VecDeque<Idle>,
    /// HTTP/2 connections, in use or not.
    shared: Vec<Http2>,
    /// Closes what stays idle; runs while there is anything.
    reaper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Idle {
    http1: Http1,
    since: Instant,
}

/// The right to send one request.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) wire: Wire,
    pub(crate) age: Age,
    pool: Arc<Pool>,
    shard: Arc<Shard>,
    permit: OwnedSemaphorePermit,
}

/// What a request is sent on.
#[derive(Debug)]
pub(crate) enum Wire {
    Http1(Http1),
    Http2(Http2Stream),
}

/// Whether a connection has carried a request before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Reused,
}

/// Which connections will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Any,
    /// One that was not idle: the last one turned out to be closed, and so may others.
    New,
}

/// Why there is no connection; nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("all connections stayed in use")]
    Busy,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("another request's connect failed just now")]
    SharedFailure,
}

impl Pool {
    pub(crate) fn new(
        connector: Connector,
        protocol: Protocol,
        settings: PoolSettings,
        metrics: Arc<OriginMetrics>,
    ) -> Arc<Self> {
        let permits = requests_max(protocol, &settings);
        Arc::new(Self {
            connector,
            protocol,
            settings,
            permits: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            shards: RwLock::default(),
            idle_count: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
            buffers: Arc::default(),
            metrics,
        })
    }

    /// Gives a connection, open already or opened now.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing; a connection being opened is closed.
    pub(crate) async fn lease(self: &Arc<Self>, want: Want) -> Result<Lease, LeaseError> {
        let permit = self.permit().await?;
        let shard = self.shard();
        let (wire, age) = match self.protocol {
            Protocol::Http1 => self.lease_http1(&shard, want).await?,
            Protocol::Http2 => self.lease_http2(&shard, want).await?,
        };
        Ok(Lease {
            wire,
            age,
            pool: Arc::clone(self),
            shard,
            permit,
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, LeaseError> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.metrics.pool_waits.inc();
        let waiting = Arc::clone(&self.permits).acquire_owned();
        match tokio::time::timeout(self.settings.wait_max, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(LeaseError::Busy),
        }
    }

    async fn lease_http1(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        want: Want,
    ) -> Result<(Wire, Age), LeaseError> {
        if want == Want::Any {
            while let Some(idle) = self.take_newest(shard) {
                if let Some(http1) = self.usable(idle).await {
                    return Ok((Wire::Http1(http1), Age::Reused));
                }
            }
        }
        // With a permit in hand fewer than the maximum are in use: if that many are open, one is
        // idle somewhere.
        while self.connector.open_count() >= self.settings.connections_max {
            let Some(idle) = self.take_anywhere() else {
                break;
            };
            if want == Want::New {
                continue;
            }
            if let Some(http1) = self.usable(idle).await {
                return Ok((Wire::Http1(http1), Age::Reused));
            }
        }
        match self.connector.connect().await? {
            Connected::Http1(sender, connection) => {
                let driver = Driver::Open(connection);
                Ok((Wire::Http1(Http1 { sender, driver }), Age::New))
            }
            Connected::Http2(..) => unreachable!("the connector speaks the pool's protocol"),
        }
    }

    async fn lease_http2(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        want: Want,
    ) -> Result<(Wire, Age), LeaseError> {
        if want == Want::Any
            && let Some(wire) = self.join(shard)
        {
            return Ok((wire, Age::Reused));
        }
        let failures_before = shard.failures.load(Ordering::Acquire);
        let _turn = shard.turn.acquire().await.map_err(|_| LeaseError::Busy)?;
        if want == Want::Any {
            if let Some(wire) = self.join(shard) {
                return Ok((wire, Age::Reused));
            }
            if shard.failures.load(Ordering::Acquire) != failures_before {
                return Err(LeaseError::SharedFailure);
            }
        }
        let connected = self.connector.connect().await.inspect_err(|_| {
            shard.failures.fetch_add(1, Ordering::AcqRel);
        })?;
        match connected {
            Connected::Http2(sender, driver) => {
                let streams = Arc::default();
                let http2 = Http2 {
                    sender,
                    streams,
                    used: Instant::now(),
                    driver,
                };
                let wire = Wire::Http2(http2.stream());
                let mut parked = shard.parked.lock();
                parked.shared.push(http2);
                self.see_to_reaper(&mut parked, shard);
                Ok((wire, Age::New))
            }
            Connected::Http1(..) => unreachable!("the connector speaks the pool's protocol"),
        }
    }

    /// A stream on an HTTP/2 connection that has one free.
    fn join(&self, shard: &Shard) -> Option<Wire> {
        let mut parked = shard.parked.lock();
        parked.shared.retain(|http2| !http2.sender.is_closed());
        let free =
            |http2: &&mut Http2| http2.streams.load(Ordering::Relaxed) < self.settings.streams_max;
        let http2 = parked.shared.iter_mut().find(free)?;
        http2.used = Instant::now();
        Some(Wire::Http2(http2.stream()))
    }

    fn take_newest(&self, shard: &Shard) -> Option<Idle> {
        let idle = shard.parked.lock().idle.pop_back()?;
        self.idle_count.fetch_sub(1, Ordering::Relaxed);
        Some(idle)
    }

    fn take_anywhere(&self) -> Option<Idle> {
        let shards: Vec<_> = self
            .shards
            .read()
            .iter()
            .map(|(_, s)| Arc::clone(s))
            .collect();
        shards.iter().find_map(|shard| self.take_newest(shard))
    }

    /// The connection, if it is neither too old nor closed.
    async fn usable(&self, idle: Idle) -> Option<Http1> {
        if idle.since.elapsed() >= self.settings.idle_timeout {
            return None;
        }
        let mut http1 = idle.http1;
        std::future::poll_fn(|cx| Poll::Ready(http1.is_idle(cx)))
            .await
            .then_some(http1)
    }

    fn shard(&self) -> Arc<Shard> {
        let id = Handle::current().id();
        let of = |shards: &[(runtime::Id, Arc<Shard>)]| {
            shards
                .iter()
                .find(|(of, _)| *of == id)
                .map(|(_, shard)| Arc::clone(shard))
        };
        if let Some(shard) = of(&self.shards.read()) {
            return shard;
        }
        let mut shards = self.shards.write();
        // A runtime of several threads may have come here twice.
        if let Some(shard) = of(&shards) {
            return shard;
        }
        let shard = Arc::new(Shard {
            parked: Mutex::default(),
            turn: Semaphore::new(1),
            failures: AtomicUsize::new(0),
        });
        shards.push((id, Arc::clone(&shard)));
        shard
    }

    /// Requests that may use its connections at once.
    pub(crate) fn requests_max(&self) -> usize {
        requests_max(self.protocol, &self.settings)
    }

    /// Closes connections without a request, now and as they fall idle.
    pub(crate) fn close_idle(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        let shards = self.shards.read().clone();
        for (_, shard) in shards {
            let is_unused = |http2: &mut Http2| http2.streams.load(Ordering::Relaxed) == 0;
            let mut parked = shard.parked.lock();
            let idle = std::mem::take(&mut parked.idle);
            let shared: Vec<Http2> = parked.shared.extract_if(.., is_unused).collect();
            self.idle_count.fetch_sub(idle.len(), Ordering::Relaxed);
            // Sockets are closed after the lock is released.
            drop(parked);
            drop((idle, shared));
        }
    }

    /// Keeps connections without a request again.
    pub(crate) fn keep_idle(&self) {
        self.is_closing.store(false, Ordering::Relaxed);
    }

    fn park(self: &Arc<Self>, shard: &Arc<Shard>, http1: Http1) {
        if self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        if self.idle_count.fetch_add(1, Ordering::Relaxed) >= self.settings.idle_connections_max {
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut parked = shard.parked.lock();
        parked.idle.push_back(Idle {
            http1,
            since: Instant::now(),
        });
        self.see_to_reaper(&mut parked, shard);
    }

    fn see_to_reaper(self: &Arc<Self>, parked: &mut Parked, shard: &Arc<Shard>) {
        if parked.reaper.is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            let reaper = reap(Arc::downgrade(self), Arc::downgrade(shard));
            parked.reaper = Some(runtime.spawn(reaper));
        }
    }

    /// Takes out what has been idle for too long; `None` when nothing is left to watch.
    fn expired(&self, parked: &mut Parked) -> Option<(Vec<Idle>, Vec<Http2>)> {
        let is_old = |since: Instant| since.elapsed() >= self.settings.idle_timeout;
        let old_count = parked
            .idle
            .iter()
            .take_while(|idle| is_old(idle.since))
            .count();
        let idle: Vec<Idle> = parked.idle.drain(..old_count).collect();
        self.idle_count.fetch_sub(idle.len(), Ordering::Relaxed);
        let is_unused = |http2: &mut Http2| {
            http2.sender.is_closed()
                || http2.streams.load(Ordering::Relaxed) == 0 && is_old(http2.used)
        };
        let shared: Vec<Http2> = parked.shared.extract_if(.., is_unused).collect();
        if parked.idle.is_empty() && parked.shared.is_empty() && idle.is_empty() {
            parked.reaper = None;
            return None;
        }
        Some((idle, shared))
    }
}

fn requests_max(protocol: Protocol, settings: &PoolSettings) -> usize {
    match protocol {
        Protocol::Http1 => settings.connections_max,
        Protocol::Http2 => settings.connections_max * settings.streams_max,
    }
}

/// Closes connections of a shard that nobody uses, until none is left.
async fn reap(pool: Weak<Pool>, shard: Weak<Shard>) {
    loop {
        let Some(idle_timeout) = pool.upgrade().map(|pool| pool.settings.idle_timeout) else {
            return;
        };
        tokio::time::sleep(idle_timeout).await;
        let (Some(pool), Some(shard)) = (pool.upgrade(), shard.upgrade()) else {
            return;
        };
        // Bound to a name, so that sockets are closed after the lock is released.
        let expired = pool.expired(&mut shard.parked.lock());
        if expired.is_none() {
            return;
        }
    }
}

impl Lease {
    /// Memory for long bodies.
    pub(crate) fn buffers(&self) -> &Arc<Buffers> {
        &self.pool.buffers
    }

    /// Puts HTTP back on a connection that was read without it, at the end of an answer.
    pub(crate) fn resume(&mut self, stream: Stream) {
        let begun = pin!(self.pool.connector.begin_http1(stream))
            // HTTP/1.1 begins without a byte, so there is nothing to wait for.
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Ok(Connected::Http1(sender, connection))) = begun {
            let driver = Driver::Open(connection);
            self.wire = Wire::Http1(Http1 { sender, driver });
        }
    }

    /// Keeps the connection for another request; the caller has found it idle.
    pub(crate) fn give_back(self) {
        let Self {
            wire,
            pool,
            shard,
            permit,
            ..
        } = self;
        if let Wire::Http1(http1) = wire {
            pool.park(&shard, http1);
        }
        // After the connection is there to be found by whoever the permit wakes.
        drop(permit);
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(reaper) = &self.reaper {
            reaper.abort();
        }
    }
}
