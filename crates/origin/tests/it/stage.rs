//! Origins that share an object and take turns by a script, in time that stands still.
//!
//! What comes first is decided by the test, never by the machine: time goes on only when the test
//! advances it, and the test hears of every request and of every connection that was closed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use forebay_origin::{HedgeSettings, OriginStore};
use forebay_store::{Error, Response, contract::requests::get};
use forebay_telemetry::{hedge::HedgeMetrics, origin::OriginMetrics};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use crate::scripted::{Peer, Scripted, Seen, settings, store_counting};

/// Reads that are hedged must have been seen this often at each endpoint.
const SAMPLES_MIN: u32 = 20;
/// Since no time passes before, a read is hedged after this long.
pub(crate) const DELAY: Duration = Duration::from_millis(10);

/// What an origin does with one request.
pub(crate) enum Act {
    /// Answers with its object, as asked.
    Serve,
    /// Says this.
    Say(Vec<u8>),
    /// Says this, and nothing more until the client closes.
    Stall(Vec<u8>),
    /// Says this and ends the connection.
    End(Vec<u8>),
    /// Says this and resets the connection.
    Reset(Vec<u8>),
    /// Says the first, and the second once it is told to.
    Later(Vec<u8>, Arc<Notify>, Vec<u8>),
}

/// A request, and the number of the origin it came to.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) origin: usize,
    pub(crate) seen: Seen,
}

struct Script {
    acts: Mutex<VecDeque<Act>>,
    object: Mutex<(String, Bytes)>,
    arrivals: mpsc::UnboundedSender<Arrival>,
    closings: mpsc::UnboundedSender<()>,
}

/// Origins, a store before them, and a clock that stands still.
pub(crate) struct Stage {
    pub(crate) store: Arc<OriginStore>,
    pub(crate) metrics: OriginMetrics,
    pub(crate) origins: Vec<Scripted>,
    script: Arc<Script>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    closings: mpsc::UnboundedReceiver<()>,
    _still: std::sync::mpsc::Sender<()>,
}

/// Paused time goes on by itself when nothing is to be done; not while a blocking task runs.
fn stand_still() -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || receiver.recv());
    sender
}

/// Hedging for tests: half of all reads may be hedged, so that none lacks the budget.
pub(crate) fn eager() -> HedgeSettings {
    HedgeSettings {
        share: 0.4,
        control_share: 0.0,
        delay_min: DELAY,
        samples_min: SAMPLES_MIN,
        ..HedgeSettings::default()
    }
}

impl Stage {
    /// `origins` endpoints, each of which has been read often enough.
    pub(crate) async fn new(origins: usize, hedge: Option<HedgeSettings>) -> Self {
        let still = stand_still();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (closed, closings) = mpsc::unbounded_channel();
        let script = Arc::new(Script {
            acts: Mutex::default(),
            object: Mutex::new(("\"one\"".into(), Bytes::from_static(b"the object's bytes"))),
            arrivals: arrived,
            closings: closed,
        });
        let mut running = Vec::new();
        for origin in 0..origins {
            let script = Arc::clone(&script);
            running.push(
                Scripted::new(move |_, peer| {
                    let script = Arc::clone(&script);
                    async move { script.play(origin, peer).await }
                })
                .await,
            );
        }
        let mut settings = settings(&format!("http://{}", running[0].address));
        settings.endpoints = running
            .iter()
            .map(|origin| format!("http://{}", origin.address).parse().unwrap())
            .collect();
        settings.retries.backoff = Duration::ZERO;
        let warm_up = hedge.as_ref().map_or(0, |hedge| hedge.samples_min as usize);
        settings.hedge = hedge;
        let metrics = OriginMetrics::default();
        let mut stage = Self {
            store: Arc::new(store_counting(&settings, &metrics)),
            metrics,
            origins: running,
            script,
            arrivals,
            closings,
            _still: still,
        };
        stage.warm_up(warm_up).await;
        stage
    }

    async fn warm_up(&mut self, reads: usize) {
        for _ in 0..400 {
            if self
                .origins
                .iter()
                .all(|origin| origin.seen().len() >= reads)
            {
                break;
            }
            get("bucket", "k").expect(200, &*self.store).await;
            self.arrived().await;
        }
    }

    /// What the next requests meet, whichever origin they come to; the object after that.
    pub(crate) fn acts(&self, acts: impl IntoIterator<Item = Act>) {
        self.script.acts.lock().unwrap().extend(acts);
    }

    /// From now on the object is this.
    pub(crate) fn put(&self, etag: &str, bytes: impl Into<Bytes>) {
        *self.script.object.lock().unwrap() = (etag.to_owned(), bytes.into());
    }

    /// Begins to read the object, with these headers.
    pub(crate) fn read(&self, headers: &[(&str, &str)]) -> JoinHandle<Result<Response, Error>> {
        let (store, mut request) = (Arc::clone(&self.store), get("bucket", "k"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        tokio::spawn(async move { request.call(&*store).await })
    }

    /// The next request that an origin gets.
    pub(crate) async fn arrived(&mut self) -> Arrival {
        self.arrivals.recv().await.unwrap()
    }

    /// Forgets the requests that came so far.
    pub(crate) fn forget(&mut self) {
        while self.arrivals.try_recv().is_ok() {}
    }

    /// Waits until the client has closed a connection on which it was told nothing more.
    pub(crate) async fn closed(&mut self) {
        self.closings.recv().await.unwrap();
    }

    /// Lets time pass, and everyone do what is due.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        settle().await;
    }

    pub(crate) fn hedges(&self) -> &HedgeMetrics {
        &self.metrics.hedge
    }

    /// Nothing is in flight any more, here or at any endpoint.
    pub(crate) fn assert_idle(&self) {
        assert_eq!(self.metrics.in_flight.get(), 0);
        for endpoint in self.store.operator().status() {
            assert_eq!(endpoint.in_flight, 0, "{endpoint:?}");
        }
    }
}

/// Lets every task that can go on do so.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Script {
    async fn play(&self, origin: usize, mut peer: Peer) {
        while let Some(seen) = peer.request().await {
            let act = self.acts.lock().unwrap().pop_front();
            let answer = self.object_as_asked(&seen);
            let _ = self.arrivals.send(Arrival { origin, seen });
            match act.unwrap_or(Act::Serve) {
                Act::Serve => peer.write(answer).await,
                Act::Say(answer) => peer.write(answer).await,
                Act::End(bytes) => return peer.write(bytes).await,
                Act::Reset(bytes) => {
                    peer.write(bytes).await;
                    return peer.stream.set_zero_linger().unwrap();
                }
                Act::Stall(bytes) => {
                    peer.write(bytes).await;
                    peer.rest().await;
                    let _ = self.closings.send(());
                    return;
                }
                Act::Later(first, told, second) => {
                    peer.write(first).await;
                    told.notified().await;
                    peer.write(second).await;
                }
            }
        }
    }

    fn object_as_asked(&self, seen: &Seen) -> Vec<u8> {
        let (etag, bytes) = self.object.lock().unwrap().clone();
        if seen.header("if-match").is_some_and(|tag| tag != etag) {
            return b"HTTP/1.1 412 X\r\ncontent-length: 0\r\n\r\n".to_vec();
        }
        let length = bytes.len();
        let mut answer = match seen.header("range") {
            None => head(200, length, &format!("etag: {etag}\r\n")),
            Some(range) => {
                let (first, last) = range["bytes=".len()..].split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                let more =
                    format!("etag: {etag}\r\ncontent-range: bytes {first}-{last}/{length}\r\n");
                let mut answer = head(206, last + 1 - first, &more);
                if seen.method != "HEAD" {
                    answer.extend_from_slice(&bytes[first..=last]);
                }
                return answer;
            }
        };
        if seen.method != "HEAD" {
            answer.extend_from_slice(&bytes);
        }
        answer
    }
}

/// The head of an answer with a body of this length.
pub(crate) fn head(status: u16, length: usize, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{more}\r\n").into_bytes()
}

/// A 200 whose body is cut after `sent` bytes.
pub(crate) fn begun(etag: &str, bytes: &[u8], sent: usize) -> Vec<u8> {
    let mut answer = head(200, bytes.len(), &format!("etag: {etag}\r\n"));
    answer.extend_from_slice(&bytes[..sent]);
    answer
}
