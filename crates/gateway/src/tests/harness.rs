//! A gateway in this process, a store that remembers, and a client that signs.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{
    code::Code,
    operation::Operation,
    policy::{Policy, PolicyKind},
    sigv4::{Credentials, PayloadMode, ScopedKey, SecretKey, Signature, Signer, Target},
    time::AmzDate,
};
use forebay_store::{Body, Budget, Clock, Error, PayloadProof, Query, Request, Response, Store};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::{
    Gateway, Parts, Running,
    routes::{BucketPattern, Route, Routes},
    settings::{Authentication, Limits, Listener, Settings},
    users::{BucketPolicy, User, Users},
};

pub(super) const REGION: &str = "eu-central-1";
/// A client of a test gives up after this long: the gateway hangs.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// What the store was asked, once it was asked it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) operation: Operation,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    pub(super) payload_proof: PayloadProof,
    /// What the body turned out to be: bytes and trailers, or the error's text.
    pub(super) body: Result<(Bytes, Option<HeaderMap>), String>,
    /// Bytes of the body that came, before an error too.
    pub(super) given_bytes: usize,
}

/// Makes an answer for a request whose body was read.
pub(super) type Script = Box<dyn Fn(&Asked) -> Result<Response, Error> + Send + Sync>;

/// Keeps what was put, gives it back, and remembers all it was asked.
#[derive(Default)]
pub(super) struct TestStore {
    asked: Mutex<Vec<Asked>>,
    objects: Mutex<HashMap<String, Bytes>>,
    script: Mutex<Option<Script>>,
    /// Told each time a request has reached the store, before its body is read.
    pub(super) reached: tokio::sync::Notify,
    /// While there is a permit missing, calls wait.
    pub(super) gate: Mutex<Option<Arc<tokio::sync::Semaphore>>>,
}

impl TestStore {
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.objects
            .lock()
            .unwrap()
            .insert(key.to_owned(), bytes.into());
    }

    pub(super) fn object(&self, key: &str) -> Option<Bytes> {
        self.objects.lock().unwrap().get(key).cloned()
    }

    /// Answers by `script` from now on.
    pub(super) fn answers(
        &self,
        script: impl Fn(&Asked) -> Result<Response, Error> + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Some(Box::new(script));
    }

    fn answer(&self, asked: &Asked) -> Result<Response, Error> {
        if let Some(script) = &*self.script.lock().unwrap() {
            return script(asked);
        }
        let key = asked
            .operation
            .key()
            .map(|key| key.as_str().to_owned())
            .unwrap_or_default();
        match &asked.operation {
            Operation::PutObject(_) | Operation::UploadPart(_) => {
                let Ok((bytes, _)) = &asked.body else {
                    return Err(Error::refused(Code::InternalError));
                };
                self.put(&key, bytes.clone());
                let etag = HeaderValue::from_static("\"etag\"");
                Ok(Response::new(StatusCode::OK).with_header(http::header::ETAG, etag))
            }
            Operation::GetObject(_) => match self.object(&key) {
                None => Err(Error::refused(Code::NoSuchKey)),
                Some(bytes) => Ok(Response::new(StatusCode::OK).with_body(bytes)),
            },
            Operation::HeadObject(_) => match self.object(&key) {
                None => Err(Error::refused(Code::NoSuchKey)),
                Some(bytes) => Ok(Response::new(StatusCode::OK)
                    .with_header(http::header::CONTENT_LENGTH, bytes.len().into())),
            },
            _ => Ok(Response::new(StatusCode::OK)),
        }
    }
}

#[async_trait]
impl Store for TestStore {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        self.reached.notify_one();
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            let _passed = gate.acquire().await.unwrap();
        }
        let (mut body, mut bytes, mut trailers) = (request.body, Vec::new(), None);
        let mut failed = None;
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let asked = Asked {
            operation: request.operation,
            headers: request.headers,
            query: request.query,
            payload_proof: request.payload_proof,
            given_bytes: bytes.len(),
            body: match &failed {
                None => Ok((bytes.into(), trailers)),
                Some(error) => Err(error.to_string()),
            },
        };
        self.asked.lock().unwrap().push(asked.clone());
        match failed {
            Some(error) => Err(error),
            None => self.answer(&asked),
        }
    }
}

/// A gateway under test.
pub(super) struct Edge {
    pub(super) running: Running,
    pub(super) store: Arc<TestStore>,
    pub(super) address: SocketAddr,
    pub(super) clock: Clock,
}

/// Settings of a gateway on one free port of loopback.
pub(super) fn settings() -> Settings {
    Settings {
        name: "edge".to_owned(),
        listeners: vec![Listener {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            authentication: Authentication::Required,
        }],
        domains: vec!["s3.test".to_owned()],
        regions: vec![REGION.to_owned()],
        threads: NonZeroUsize::MIN,
        limits: Limits::default(),
        access_log: None,
    }
}

/// Users and policies of the tests: `ann` may do all, `bob` nothing but read in `open` and delete
/// keys that begin with `mine/`; everybody may read in `public`.
pub(super) fn users() -> Users {
    let policy = |json: &str, kind| Arc::new(Policy::parse(json, kind).unwrap());
    let user = |name: &str, json: &str| User {
        name: name.into(),
        access_key_id: name.to_uppercase().into(),
        secret_key: SecretKey::new(format!("secret of {name}")),
        policies: vec![policy(json, PolicyKind::Identity)],
    };
    let all = r#"{"Version": "2012-10-17", "Statement":
        [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}"#;
    let little = r#"{"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::open/*"},
        {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::open/mine/*"}
        ]}"#;
    let public = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::public/*"}]}"#;
    let bucket_policies = vec![BucketPolicy {
        buckets: BucketPattern::new("public"),
        policy: policy(public, PolicyKind::Bucket),
    }];
    Users::new([user("ann", all), user("bob", little)], bucket_policies).unwrap()
}

impl Edge {
    pub(super) fn start() -> Self {
        Self::start_with(settings())
    }

    pub(super) fn start_with(settings: Settings) -> Self {
        let store = Arc::new(TestStore::default());
        Self::start_over(settings, Arc::clone(&store) as Arc<dyn Store>, store)
    }

    /// Starts over another store, `beside` being unused by it.
    pub(super) fn start_over(
        settings: Settings,
        store: Arc<dyn Store>,
        beside: Arc<TestStore>,
    ) -> Self {
        let budget = Budget::new(64 * 1024 * 1024, Duration::from_millis(200));
        Self::start_within(settings, store, beside, budget)
    }

    pub(super) fn start_within(
        settings: Settings,
        store: Arc<dyn Store>,
        beside: Arc<TestStore>,
        budget: Budget,
    ) -> Self {
        let clock = Clock::system();
        let metrics = Gateway::metrics(&settings);
        let routes = Routes::new(vec![Route {
            buckets: vec![BucketPattern::new("*")],
            store,
        }]);
        let parts = Parts {
            routes,
            users: users(),
            clock: clock.clone(),
            budget,
            metrics,
        };
        let running = Gateway::start(settings, parts).unwrap();
        let address = running.addresses()[0];
        Self {
            running,
            store: beside,
            address,
            clock,
        }
    }

    pub(super) fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// Waits until so many requests are under way.
    pub(super) fn wait_for_requests(&self, count: u64) {
        while self.running.requests_in_flight() != count {
            std::thread::yield_now();
        }
    }

    /// Sends one request on a connection of its own.
    pub(super) fn send(&self, request: &Ask) -> Reply {
        self.connect().send(&request.bytes(self))
    }

    /// Sends one anonymous request, given as text.
    pub(super) fn send_text(&self, text: &str) -> Reply {
        self.connect().send(text.as_bytes())
    }
}

/// A request being made by a client.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: PayloadMode,
    pub(super) body: Vec<u8>,
    /// Who signs, and how many seconds ago.
    pub(super) signer: Option<(&'static str, i64)>,
}

impl Ask {
    pub(super) fn new(method: Method, target: &str) -> Self {
        Self {
            method,
            target: target.to_owned(),
            host: "gateway.test".to_owned(),
            headers: HeaderMap::new(),
            payload: PayloadMode::Unsigned,
            body: Vec::new(),
            signer: None,
        }
    }

    pub(super) fn get(target: &str) -> Self {
        Self::new(Method::GET, target)
    }

    /// A PUT with a `Content-Length`, its payload unsigned.
    pub(super) fn put(target: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = body.len().to_string();
        Self {
            body,
            ..Self::new(Method::PUT, target)
        }
        .header("content-length", &length)
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers
            .insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    pub(super) fn payload(mut self, payload: PayloadMode) -> Self {
        self.payload = payload;
        self
    }

    pub(super) fn signed_by(self, user: &'static str) -> Self {
        self.signed_before(user, 0)
    }

    pub(super) fn signed_before(mut self, user: &'static str, seconds: i64) -> Self {
        self.signer = Some((user, seconds));
        self
    }

    fn path_and_query(&self) -> (&str, Option<&str>) {
        match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&self.target, None),
        }
    }

    /// Runs `sign` with what signs for a user at a moment.
    pub(super) fn signing<T>(user: &str, date: AmzDate, sign: impl FnOnce(&Signer<'_>) -> T) -> T {
        let credentials = Credentials {
            access_key_id: user.to_uppercase().into(),
            secret_access_key: SecretKey::new(format!("secret of {user}")),
            session_token: None,
        };
        let key = ScopedKey::derive(&credentials.secret_access_key, &date, REGION, "s3");
        sign(&Signer {
            credentials: &credentials,
            key: &key,
            now: date,
        })
    }

    /// Signs the headers; the signature is where the chunks of a streamed payload begin.
    pub(super) fn sign(&mut self, edge: &Edge) -> Option<(AmzDate, Signature)> {
        let (user, seconds) = self.signer?;
        let date = AmzDate::from_unix(edge.clock.unix_seconds() - seconds);
        let (method, host, payload) = (self.method.clone(), self.host.clone(), self.payload);
        let mut headers = std::mem::take(&mut self.headers);
        let (path, query) = self.path_and_query();
        let target = Target {
            method: &method,
            path,
            query,
            host: &host,
        };
        let signature = Self::signing(user, date, |signer| {
            signer.sign(&target, &mut headers, payload).unwrap()
        });
        self.headers = headers;
        Some((date, signature))
    }

    /// Turns the target into a presigned one that lives so long.
    pub(super) fn presigned(mut self, edge: &Edge, user: &str, age: i64, expires: u32) -> Self {
        let date = AmzDate::from_unix(edge.clock.unix_seconds() - age);
        let (path, query) = self.path_and_query();
        let target = Target {
            method: &self.method,
            path,
            query,
            host: &self.host,
        };
        let query = Self::signing(user, date, |s| {
            s.presign(&target, &self.headers, expires).unwrap()
        });
        self.target = format!("{path}?{query}");
        self
    }

    /// The bytes on the wire.
    pub(super) fn bytes(&self, edge: &Edge) -> Vec<u8> {
        let mut signed = self.clone();
        signed.sign(edge);
        signed.wire()
    }

    /// The bytes on the wire, signed already or not at all.
    pub(super) fn wire(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\n",
            self.method, self.target, self.host
        );
        for (name, value) in &self.headers {
            let _ = write!(text, "{name}: {}\r\n", value.to_str().unwrap());
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    read: VecDeque<u8>,
}

/// An answer that came.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether the body came to its end.
    pub(super) is_whole: bool,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The S3 error code of the body.
    pub(super) fn code(&self) -> String {
        let text = self.text();
        let start = text.find("<Code>").map_or(0, |at| at + "<Code>".len());
        let end = text.find("</Code>").unwrap_or(start);
        text[start..end].to_owned()
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(CLIENT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(CLIENT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: VecDeque::new(),
        }
    }

    /// Sends bytes; the gateway may have answered and closed before it took all of them.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
            assert!(
                [BrokenPipe, ConnectionReset].contains(&error.kind()),
                "{error}"
            );
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Reply {
        self.write(bytes);
        let is_head = bytes.starts_with(b"HEAD ");
        self.reply_to(is_head)
    }

    /// Ends the sending half.
    pub(super) fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Whether the connection was closed, with nothing left to read.
    pub(super) fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.fill()
    }

    /// Reads more; `false` at the end, however it came.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the gateway hangs: {error}"),
        }
    }

    pub(super) fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    pub(super) fn reply(&mut self) -> Reply {
        self.reply_to(false)
    }

    /// Reads an answer; status 0 when the connection was closed instead.
    pub(super) fn reply_to(&mut self, is_head: bool) -> Reply {
        let mut reply = Reply {
            status: 0,
            headers: vec![],
            body: vec![],
            is_whole: false,
        };
        let Some(line) = self.line() else {
            return reply;
        };
        reply.status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            reply
                .headers
                .push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if is_head || reply.status == 304 || reply.status == 204 || reply.status == 100 {
            reply.is_whole = true;
            return reply;
        }
        match reply
            .header("content-length")
            .map(|length| length.parse::<usize>().unwrap())
        {
            Some(length) => {
                while self.read.len() < length && self.fill() {}
                let length = length.min(self.read.len());
                reply.body = self.read.drain(..length).collect();
                reply.is_whole = reply.header("content-length") == Some(&length.to_string());
            }
            None => self.chunks(&mut reply),
        }
        reply
    }

    fn chunks(&mut self, reply: &mut Reply) {
        while let Some(line) = self.line() {
            let length = usize::from_str_radix(&line, 16).unwrap();
            while self.read.len() < length + 2 && self.fill() {}
            if self.read.len() < length + 2 {
                return;
            }
            reply.body.extend(self.read.drain(..length));
            self.read.drain(..2);
            if length == 0 {
                reply.is_whole = true;
                return;
            }
        }
    }
}

/// A body that gives these frames, then waits for ever.
pub(super) fn stalling(frames: Vec<Result<Bytes, Error>>, length: u64) -> Body {
    Body::stream(Scripted {
        frames: frames.into(),
        then: Then::Stall,
        length: Some(length),
    })
}

/// A body that gives these frames, then ends.
pub(super) fn ending(frames: Vec<Result<Bytes, Error>>, length: Option<u64>) -> Body {
    Body::stream(Scripted {
        frames: frames.into(),
        then: Then::End,
        length,
    })
}

struct Scripted {
    frames: VecDeque<Result<Bytes, Error>>,
    then: Then,
    length: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Stall,
    End,
}

impl http_body::Body for Scripted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        match self.frames.pop_front() {
            Some(frame) => std::task::Poll::Ready(Some(frame.map(http_body::Frame::data))),
            None if self.then == Then::Stall => std::task::Poll::Pending,
            None => std::task::Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(
            http_body::SizeHint::default,
            http_body::SizeHint::with_exact,
        )
    }
}
