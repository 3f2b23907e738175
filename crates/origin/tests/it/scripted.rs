//! An origin that does what a test tells it, byte by byte, and remembers what it was asked.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use forebay_origin::{CredentialsSource, OriginSettings, OriginStore};
use forebay_s3::sigv4::{Credentials, SecretKey};
use forebay_store::{Body, Clock, Error};
use forebay_telemetry::origin::OriginMetrics;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

/// A request as it came over the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case, values as sent, in order.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(n, _)| n == name)?;
        std::str::from_utf8(value).ok()
    }

    pub(crate) fn length(&self) -> usize {
        self.header("content-length")
            .map_or(0, |value| value.parse().unwrap())
    }
}

/// One connection of a scripted origin.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Peer {
    /// Reads a request's head; `None` when the client closes.
    pub(crate) async fn head(&mut self) -> Option<Seen> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(parse(&head));
            }
            if self.fill().await == 0 {
                return None;
            }
        }
    }

    /// Reads up to `length` bytes of a body; fewer when the client closes before.
    pub(crate) async fn body(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length && self.fill().await > 0 {}
        let length = length.min(self.buffer.len());
        self.buffer.drain(..length).collect()
    }

    /// Reads a whole request and remembers it; `None` when the client closes before its end.
    pub(crate) async fn request(&mut self) -> Option<Seen> {
        let mut seen = self.head().await?;
        seen.body = self.body(seen.length()).await;
        if seen.body.len() < seen.length() {
            return None;
        }
        self.seen.lock().unwrap().push(seen.clone());
        Some(seen)
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // A client that has gone away is what some tests are about.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Reads until the client closes; the bytes that came.
    pub(crate) async fn rest(mut self) -> usize {
        while self.fill().await > 0 {}
        self.buffer.len()
    }

    async fn fill(&mut self) -> usize {
        let mut bytes = vec![0; 16 * 1024];
        let count = self.stream.read(&mut bytes).await.unwrap_or(0);
        self.buffer.extend_from_slice(&bytes[..count]);
        count
    }
}

fn parse(head: &[u8]) -> Seen {
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    let first = String::from_utf8(lines.next().unwrap().to_vec()).unwrap();
    let mut words = first.split(' ').map(str::to_owned);
    let headers = lines.filter(|line| !line.is_empty()).map(|line| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let name = String::from_utf8(line[..colon].to_vec()).unwrap();
        (
            name.to_ascii_lowercase(),
            line[colon + 1..].trim_ascii().to_vec(),
        )
    });
    Seen {
        method: words.next().unwrap(),
        target: words.next().unwrap(),
        headers: headers.collect(),
        body: Vec::new(),
    }
}

/// A running origin; stops when dropped.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Runs `script` on each connection, with its number.
    pub(crate) async fn new<S, F>(script: S) -> Self
    where
        S: Fn(usize, Peer) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::new_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// The same at an address.
    pub(crate) async fn new_at<S, F>(address: SocketAddr, script: S) -> Self
    where
        S: Fn(usize, Peer) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let task = tokio::spawn({
            let (connections, seen) = (Arc::clone(&connections), Arc::clone(&seen));
            async move {
                let mut running = tokio::task::JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let number = connections.fetch_add(1, Ordering::SeqCst);
                    let peer = Peer {
                        stream,
                        buffer: Vec::new(),
                        seen: Arc::clone(&seen),
                    };
                    running.spawn(script(number, peer));
                }
            }
        });
        Self {
            address,
            connections,
            seen,
            task,
        }
    }

    /// Answers every request on every connection with what `answer` makes of it.
    pub(crate) async fn answering(
        answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::answering_at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    /// The same at an address.
    pub(crate) async fn answering_at(
        address: SocketAddr,
        answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        Self::new_at(address, move |_, mut peer| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(seen) = peer.request().await {
                    peer.write(answer(&seen)).await;
                }
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Whole requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn settings(&self) -> OriginSettings {
        settings(&format!("http://{}", self.address))
    }

    pub(crate) fn store(&self) -> OriginStore {
        store(&self.settings())
    }
}

/// Settings with keys of their own.
pub(crate) fn settings(endpoint: &str) -> OriginSettings {
    let mut settings = OriginSettings::new(endpoint.parse().unwrap());
    settings.credentials = CredentialsSource::Static(Credentials {
        access_key_id: "AKIDORIGIN".into(),
        secret_access_key: SecretKey::new("origin-secret"),
        session_token: None,
    });
    settings
}

pub(crate) fn store(settings: &OriginSettings) -> OriginStore {
    store_counting(settings, &OriginMetrics::default())
}

pub(crate) fn store_counting(settings: &OriginSettings, metrics: &OriginMetrics) -> OriginStore {
    OriginStore::new(settings, Clock::system(), metrics.clone()).unwrap()
}

/// An answer without a body.
pub(crate) fn status(code: u16) -> Vec<u8> {
    format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// A 200 with this body.
pub(crate) fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// A body that yields what the test sends it.
pub(crate) struct Fed {
    frames: mpsc::Receiver<Result<Frame<Bytes>, Error>>,
    length: Option<u64>,
    /// Frames that were asked for and given.
    taken: Arc<AtomicUsize>,
}

/// The other end of a [`Fed`] body; dropping it ends the body.
#[derive(Clone)]
pub(crate) struct Feed {
    frames: mpsc::Sender<Result<Frame<Bytes>, Error>>,
    taken: Arc<AtomicUsize>,
}

/// A body of `length` bytes, to be fed.
pub(crate) fn fed(length: impl Into<Option<u64>>) -> (Feed, Body) {
    let (sender, frames) = mpsc::channel(1);
    let taken = Arc::default();
    let feed = Feed {
        frames: sender,
        taken: Arc::clone(&taken),
    };
    (
        feed,
        Body::stream(Fed {
            frames,
            length: length.into(),
            taken,
        }),
    )
}

impl Feed {
    /// Sends bytes; `false` when the body was dropped.
    pub(crate) async fn data(&self, bytes: impl Into<Bytes>) -> bool {
        self.frames
            .send(Ok(Frame::data(bytes.into())))
            .await
            .is_ok()
    }

    pub(crate) async fn trailers(&self, trailers: HeaderMap) {
        self.frames
            .send(Ok(Frame::trailers(trailers)))
            .await
            .unwrap();
    }

    pub(crate) async fn error(&self, error: Error) {
        self.frames.send(Err(error)).await.unwrap();
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Waits until the body is dropped.
    pub(crate) async fn dropped(&self) {
        self.frames.closed().await;
    }
}

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = self.frames.poll_recv(cx);
        if let Poll::Ready(Some(_)) = &frame {
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        frame
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// What ended in an error, as its text.
pub(crate) fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("the request was to fail")
}

/// A piece of a payload.
pub(crate) static PIECE: [u8; 64 * 1024] = [7; 64 * 1024];
