//! Goal: whatever the order of events, and wherever a client leaves, nobody waits for ever, nobody
//! gets bytes of two versions, an error reaches only the client whose own request failed, and the
//! origin is not asked more often than it must be.
//!
//! Method: a seeded schedule decides before each poll of a reader, and at each step of the origin,
//! whether all others go first; when readers leave (between any two polls, so at any await); and
//! what goes wrong at the origin. Fillers are tasks of the layer's own; what they wait for is
//! delayed. All of it runs on one thread without timers, so a seed always gives the same.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::MemoryStore;
use forebay_s3::operation::Operation;
use forebay_store::{
    Body, Clock, Error, Request, RequestId, Response, Store,
    contract::{requests, sample_bytes},
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use super::origin::{Setup, soon};
use crate::CacheLayer;

const GROUPS: u64 = 200;
/// Schedules that share a layer, each on a key of its own.
const SCHEDULES: u64 = 50;
/// Of one page, and of three.
const SIZES: [usize; 2] = [1000, 140_000];

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Another one, which goes its own way.
    fn split(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// Lets all others go first, now and then.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.one_in(2) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// What goes wrong at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Unavailable,
    CutAfter(usize),
    /// The object is another one from now on.
    Overwritten,
}

/// Answers for any key of a bucket with the object of the schedule.
struct Origin {
    store: MemoryStore,
    /// By size and version.
    bodies: [[Vec<u8>; 2]; 2],
    state: Mutex<State>,
}

struct State {
    random: Random,
    faults: VecDeque<Option<Fault>>,
    size_index: usize,
    version: usize,
    /// Whose requests came, and whose failed.
    asked: Vec<RequestId>,
    failed: Vec<RequestId>,
}

/// The object of a size and a version.
fn name(size_index: usize, version: usize) -> String {
    format!("{size_index}-{version}")
}

fn bytes_of(size_index: usize, version: usize) -> Vec<u8> {
    let mut bytes = sample_bytes(SIZES[size_index]);
    for byte in &mut bytes {
        *byte ^= [0, 0xFF][version];
    }
    bytes
}

#[async_trait]
impl Store for Origin {
    async fn call(&self, mut request: Request) -> Result<Response, Error> {
        let id = request.caller.request_id;
        let (mut random, fault, mut cut_at) = {
            let mut state = self.state.lock();
            state.asked.push(id);
            let fault = state.faults.pop_front().flatten();
            (state.random.split(), fault, usize::MAX)
        };
        while random.one_in(2) {
            tokio::task::yield_now().await;
        }
        match fault {
            Some(Fault::Unavailable) => {
                self.state.lock().failed.push(id);
                let reason = "scripted".into();
                return Err(Error::Unavailable { reason });
            }
            Some(Fault::CutAfter(at)) => cut_at = at,
            Some(Fault::Overwritten) => self.state.lock().version = 1,
            None => {}
        }
        if let Operation::GetObject(read) = &mut request.operation {
            let state = self.state.lock();
            let key = name(state.size_index, state.version);
            read.object.key = requests::object_key(&key);
        }
        let mut response = self.store.call(request).await?;
        response.body = Body::stream(Jittery {
            length: response.body.length().unwrap(),
            inner: response.body,
            piece: Bytes::new(),
            cut_at,
            random,
        });
        Ok(response)
    }
}

/// A body in pieces of any size, each of which may take its time.
struct Jittery {
    inner: Body,
    piece: Bytes,
    length: u64,
    cut_at: usize,
    random: Random,
}

impl HttpBody for Jittery {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.random.poll(cx).is_pending() {
            return Poll::Pending;
        }
        if this.piece.is_empty() {
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => this.piece = frame.into_data().unwrap(),
                other => return other,
            }
        }
        if this.cut_at == 0 {
            let reason = "scripted".into();
            return Poll::Ready(Some(Err(Error::Cut { reason })));
        }
        let length = usize::try_from(1 + this.random.below(80_000)).unwrap();
        let length = length.min(this.piece.len()).min(this.cut_at);
        this.cut_at -= length;
        this.length -= length as u64;
        Poll::Ready(Some(Ok(Frame::data(this.piece.split_to(length)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// A client, polled when the schedule says so, and gone after so many polls.
struct Client<F> {
    work: Option<Pin<Box<F>>>,
    random: Random,
    polls_left: u64,
}

impl<F: Future> Future for Client<F> {
    /// `None` when it has left.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.random.poll(cx).is_pending() {
            return Poll::Pending;
        }
        if this.polls_left == 0 {
            this.work = None;
            return Poll::Ready(None);
        }
        this.polls_left -= 1;
        let work = this.work.as_mut().expect("polled until it is ready");
        work.as_mut().poll(cx).map(Some)
    }
}

/// What a schedule is about.
#[derive(Debug, Clone)]
struct Plan {
    seed: u64,
    key: String,
    size_index: usize,
    clients: u64,
    faults: Vec<Option<Fault>>,
    /// Clients that want a part of the object.
    has_ranges: bool,
}

impl Plan {
    fn draw(random: &mut Random, key: String) -> Self {
        let size_index = usize::try_from(random.below(2)).unwrap();
        let at = |random: &mut Random| random.below(SIZES[size_index] as u64);
        let kind = random.below(4);
        let faults = match kind {
            0 => vec![],
            1 => vec![Some(Fault::Unavailable)],
            2 => vec![Some(Fault::CutAfter(usize::try_from(at(random)).unwrap()))],
            _ => {
                let any = |random: &mut Random| match random.below(5) {
                    0 => Some(Fault::Unavailable),
                    1 => Some(Fault::CutAfter(usize::try_from(at(random)).unwrap())),
                    2 => Some(Fault::Overwritten),
                    _ => None,
                };
                (0..4).map(|_| any(random)).collect()
            }
        };
        Self {
            seed: random.0,
            key,
            size_index,
            clients: 1 + random.below(6),
            faults,
            has_ranges: kind == 3,
        }
    }

    /// Requests of the origin that there must not be more of: one for all; one more for those who
    /// waited for one that failed; and two for a body that broke off, one by those who had begun to
    /// read it, and one by those who came later. Where several things go wrong, there is no bound
    /// but that each reader gives up.
    fn asked_max(&self) -> usize {
        match self.faults[..] {
            [] => 1,
            [Some(Fault::Unavailable)] => 2,
            [Some(Fault::CutAfter(_))] => 3,
            _ => usize::MAX,
        }
    }
}

type Outcome = Result<(usize, Vec<u8>), Error>;

/// Asks for the object, or what follows `from`, and reads it to its end.
async fn read(cache: Arc<CacheLayer>, key: String, id: RequestId, from: usize) -> Outcome {
    let mut builder = requests::get("bucket", &key);
    if from > 0 {
        builder = builder.range(&format!("bytes={from}-"));
    }
    let mut request = builder.build();
    request.caller.request_id = id;
    let mut body = cache.call(request).await?.body;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame?.into_data().unwrap());
    }
    Ok((from, bytes))
}

/// Runs one schedule, and checks all that is promised.
async fn run(origin: &Arc<Origin>, cache: &Arc<CacheLayer>, random: &mut Random, plan: &Plan) {
    {
        let mut state = origin.state.lock();
        state.random = random.split();
        state.faults = plan.faults.iter().copied().collect();
        (state.size_index, state.version) = (plan.size_index, 0);
        (state.asked, state.failed) = (Vec::new(), Vec::new());
    }
    let mut clients = Vec::new();
    for index in 0..plan.clients {
        let id = RequestId(index);
        let from = if plan.has_ranges && random.one_in(2) {
            usize::try_from(random.below(SIZES[plan.size_index] as u64)).unwrap()
        } else {
            0
        };
        let leaves = random.one_in(3);
        let client = Client {
            work: Some(Box::pin(read(
                Arc::clone(cache),
                plan.key.clone(),
                id,
                from,
            ))),
            random: random.split(),
            polls_left: if leaves { random.below(8) } else { u64::MAX },
        };
        clients.push((id, tokio::spawn(client)));
    }
    let writer = plan.has_ranges.then(|| {
        let (origin, mut random) = (Arc::clone(origin), random.split());
        let turns = random.below(30);
        tokio::spawn(async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            origin.state.lock().version = 1;
        })
    });
    let mut served = false;
    for (id, client) in clients {
        let Some(outcome) = soon(client).await.unwrap() else {
            continue;
        };
        served |= check(origin, plan, id, outcome);
    }
    if let Some(writer) = writer {
        soon(writer).await.unwrap();
    }
    soon(async {
        while cache.layer.fills.count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cache.layer.index.audit();
    assert_eq!(cache.layer.budget.used_bytes(), 0, "{plan:?}");
    let asked = origin.state.lock().asked.len();
    assert!(asked >= usize::from(served), "{plan:?}");
    assert!(asked <= plan.asked_max(), "asked {asked} times: {plan:?}");
}

/// Checks what became of a client; tells whether it was served.
fn check(origin: &Origin, plan: &Plan, id: RequestId, outcome: Outcome) -> bool {
    match outcome {
        Ok((from, bytes)) => {
            let versions = &origin.bodies[plan.size_index];
            let is_version = |version: usize| bytes[..] == versions[version][from..];
            let whole = is_version(0) || plan.has_ranges && is_version(1);
            assert!(whole, "{} bytes from {from}: {plan:?}", bytes.len());
            true
        }
        Err(Error::Unavailable { reason }) if reason.contains("scripted") => {
            let failed = origin.state.lock().failed.contains(&id);
            assert!(failed, "{id:?} got the error of another: {plan:?}");
            false
        }
        Err(Error::Cut { .. } | Error::Unavailable { .. }) if plan.has_ranges => false,
        Err(error) => panic!("{error}: {plan:?}"),
    }
}

#[test]
fn fills_keep_their_promises_in_every_order_of_events() {
    // Without a driver: nothing here waits for time or sockets.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        for seed in 0..GROUPS {
            let store = MemoryStore::new(Clock::system());
            requests::create_bucket("bucket").expect(200, &store).await;
            let bodies = [0, 1].map(|size| [0, 1].map(|version| bytes_of(size, version)));
            for (size_index, version) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let put = requests::put("bucket", &name(size_index, version));
                let put = put.body(bodies[size_index][version].clone());
                put.expect(200, &store).await;
            }
            let mut random = Random(seed);
            let origin = Arc::new(Origin {
                store,
                bodies,
                state: Mutex::new(State {
                    random: random.split(),
                    faults: VecDeque::new(),
                    size_index: 0,
                    version: 0,
                    asked: Vec::new(),
                    failed: Vec::new(),
                }),
            });
            let cache = Setup::default().over(Arc::clone(&origin) as Arc<dyn Store>);
            let cache = Arc::new(cache);
            for index in 0..SCHEDULES {
                let mut plan = Plan::draw(&mut random, format!("key{index}"));
                plan.seed = seed;
                run(&origin, &cache, &mut random, &plan).await;
            }
        }
    });
}
