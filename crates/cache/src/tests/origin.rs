//! An origin under the tests' control: the memory store behind faults, a log of what it was
//! asked, and a gate that lets bytes of bodies out as the test says.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::MemoryStore;
use forebay_s3::operation::Operation;
use forebay_store::{
    Body, Budget, Clock, Error, Request, Response, Store,
    changes::Changes,
    contract::{
        requests::{self, Answer},
        sample_bytes,
    },
    faulty::Faulty,
};
use forebay_telemetry::cache::CacheMetrics;
use http::header;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::watch};

use crate::{CacheLayer, CacheSettings, Coherence, DiskPart, PageBytes, StaleUse};

pub(super) const KIB: u64 = 1024;
pub(super) const MIB: u64 = 1024 * KIB;
/// Bytes in a piece of the origin's bodies: no divisor of a page.
const PIECE_BYTES: usize = 10_000;

pub(super) fn settings() -> CacheSettings {
    CacheSettings {
        capacity_bytes: 64 * MIB,
        page_bytes: PageBytes::OF_TESTS,
        ..Default::default()
    }
}

/// Polls of the other tasks that anything here needs at most, with room to spare.
const TURNS_MAX: u32 = 100_000;

/// Waits, but not for ever: fails once all others have had so many turns that it never comes.
pub(super) async fn soon<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    for _ in 0..TURNS_MAX {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return output;
        }
        tokio::task::yield_now().await;
    }
    panic!("this waits for ever");
}

/// What a test may choose.
#[derive(Clone)]
pub(super) struct Setup {
    pub settings: CacheSettings,
    pub clock: Clock,
    pub budget_bytes: u64,
    pub disk: Option<DiskPart>,
    pub changes: Option<Arc<dyn Changes>>,
}

impl Default for Setup {
    fn default() -> Self {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        Self {
            settings: settings(),
            clock,
            budget_bytes: 64 * MIB,
            disk: None,
            changes: None,
        }
    }
}

impl Setup {
    pub(super) fn with_ttl(ttl: Duration, tti: Option<Duration>) -> Self {
        Self::with(Coherence::Bounded {
            ttl,
            tti,
            stale: StaleUse::default(),
        })
    }

    pub(super) fn with(coherence: Coherence) -> Self {
        Self {
            settings: CacheSettings {
                coherence,
                ..settings()
            },
            ..Self::default()
        }
    }

    pub(super) fn over(self, inner: Arc<dyn Store>) -> CacheLayer {
        let budget = Budget::new(self.budget_bytes, Duration::from_secs(1));
        let (settings, clock, metrics) = (self.settings, self.clock, CacheMetrics::default());
        let cache = match self.disk {
            None => CacheLayer::new(inner, settings, clock, budget, metrics),
            Some(disk) => CacheLayer::with_disk(inner, settings, (clock, budget), metrics, disk),
        };
        match self.changes {
            None => cache,
            Some(changes) => cache.with_changes(changes, &Handle::current()),
        }
    }

    /// A cache over a new origin with the bucket `bucket`.
    pub(super) async fn build(self) -> Fixture {
        let clock = self.clock.clone();
        let origin = Arc::new(Origin {
            store: Faulty::new(MemoryStore::new(clock.clone())),
            asked: Mutex::default(),
            gate: Arc::default(),
            holds: watch::Sender::new(false),
            takes: Mutex::default(),
            clock: clock.clone(),
        });
        requests::create_bucket("bucket")
            .expect(200, &*origin)
            .await;
        origin.take_asked();
        let cache = self.clone().over(Arc::clone(&origin) as Arc<dyn Store>);
        Fixture {
            setup: self,
            origin,
            cache: Arc::new(cache),
            clock,
        }
    }
}

/// A cache and its origin.
pub(super) struct Fixture {
    pub origin: Arc<Origin>,
    pub cache: Arc<CacheLayer>,
    pub clock: Clock,
    setup: Setup,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        Setup::default().build().await
    }

    /// Puts an object past the cache; returns its bytes.
    pub(super) async fn put(&self, key: &str, length: u64) -> Bytes {
        self.put_bytes(key, sample_bytes(usize::try_from(length).unwrap()))
            .await
    }

    pub(super) async fn put_bytes(&self, key: &str, bytes: Vec<u8>) -> Bytes {
        let bytes = Bytes::from(bytes);
        requests::put("bucket", key)
            .body(bytes.clone())
            .expect(200, &self.origin.store)
            .await;
        bytes
    }

    pub(super) async fn get(&self, key: &str) -> Answer {
        requests::get("bucket", key).expect(200, &*self.cache).await
    }

    /// Begins a new run of the gateway on the same disk.
    pub(super) fn restart(&mut self) {
        if let Some(disk) = &mut self.setup.disk {
            disk.run += 1;
        }
        self.audit_if_settled();
        let origin = Arc::clone(&self.origin) as Arc<dyn Store>;
        self.cache = Arc::new(self.setup.clone().over(origin));
    }

    /// Runs until no fill is under way.
    pub(super) async fn settle(&self) {
        while self.cache.layer.fills.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// That the accounts are right; without a call at the end of each test as well.
    pub(super) fn audit(&self) {
        self.cache.layer.index.audit();
        self.cache.layer.kept.audit();
    }

    /// Not while fills hold room, nor after a failure, which would be hidden by another.
    fn audit_if_settled(&self) {
        if !std::thread::panicking() && self.cache.layer.fills.count() == 0 {
            self.audit();
        }
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.origin.take_asked()
    }

    pub(super) fn metrics(&self) -> &CacheMetrics {
        &self.cache.layer.metrics
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.audit_if_settled();
    }
}

/// See the module.
pub(super) struct Origin {
    pub store: Faulty<MemoryStore>,
    asked: Mutex<Vec<String>>,
    pub gate: Arc<Gate>,
    /// Answers wait, as they were when they were made.
    holds: watch::Sender<bool>,
    /// What the clock moves on while an answer is on its way.
    pub takes: Mutex<Duration>,
    clock: Clock,
}

impl Origin {
    /// What was asked since the last call, as `GET key bytes=0-1 if-match`.
    pub(super) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// Holds back all answers that are made from now on.
    pub(super) fn hold(&self) {
        self.holds.send_replace(true);
    }

    pub(super) fn let_go(&self) {
        self.holds.send_replace(false);
    }

    /// Waits until it was asked so many times since the last `take_asked`.
    pub(super) async fn was_asked(&self, count: usize) {
        soon(async {
            while self.asked.lock().len() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The answer is made in the turns after.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

/// Lets out so many bytes of each body; all, unless closed.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    open_to: Option<u64>,
    wakers: Vec<Waker>,
    /// Most bytes of one body that were let out.
    passed: u64,
}

impl Gate {
    pub(super) fn close_at(&self, offset: u64) {
        let wakers = {
            let mut state = self.state.lock();
            state.open_to = Some(offset);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn open(&self) {
        self.close_at(u64::MAX);
    }

    pub(super) fn passed(&self) -> u64 {
        self.state.lock().passed
    }
}

#[async_trait]
impl Store for Origin {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let key = request.operation.key().map_or("", |key| key.as_str());
        let mut line = format!("{} {key}", request.method);
        if let Some(range) = request.headers.get(header::RANGE) {
            line = format!("{line} {}", range.to_str().unwrap());
        }
        for name in [
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::CACHE_CONTROL,
        ] {
            if request.headers.contains_key(&name) {
                line = format!("{line} {name}");
            }
        }
        let is_read = matches!(
            request.operation,
            Operation::GetObject(_) | Operation::ListObjectsV2(_)
        );
        self.asked.lock().push(line);
        // As over a network, the answer is not there at once.
        tokio::task::yield_now().await;
        let answer = self.store.call(request).await;
        self.clock.advance(*self.takes.lock());
        let mut holds = self.holds.subscribe();
        holds.wait_for(|holds| !holds).await.unwrap();
        let mut response = answer?;
        if is_read {
            let inner = std::mem::take(&mut response.body);
            let gate = Arc::clone(&self.gate);
            let length = inner.length().unwrap();
            response.body = Body::stream(Gated {
                inner,
                gate,
                piece: Bytes::new(),
                passed: 0,
                length,
            });
        }
        Ok(response)
    }
}

struct Gated {
    inner: Body,
    gate: Arc<Gate>,
    piece: Bytes,
    passed: u64,
    length: u64,
}

impl HttpBody for Gated {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.piece.is_empty() {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.piece = frame.into_data().unwrap(),
                other => return other,
            }
        }
        let this = &mut *self;
        let mut state = this.gate.state.lock();
        let open = state
            .open_to
            .unwrap_or(u64::MAX)
            .saturating_sub(this.passed);
        let length = usize::try_from(open).unwrap_or(usize::MAX).min(PIECE_BYTES);
        if length == 0 {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        let piece = this.piece.split_to(length.min(this.piece.len()));
        this.passed += piece.len() as u64;
        state.passed = state.passed.max(this.passed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.passed)
    }
}
