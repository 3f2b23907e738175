//! A server for tests: a small S3 in memory that does what a script says, when it says so.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    runtime::{Builder, LocalOptions},
    sync::oneshot,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Of all connections, from 0.
    pub(crate) number: u64,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) range: Option<(usize, usize)>,
    pub(crate) is_signed: bool,
    pub(crate) known_tag: Option<String>,
    /// Since the first request.
    pub(crate) at: Duration,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// What S3 would say, so much later.
    After(Duration),
    /// The same with one bit of the body's last byte flipped.
    Flipped,
    /// An error.
    Error(u16, &'static str),
    /// Nothing, ever.
    Silence,
    /// The connection is closed in the middle of the body.
    Cut,
}

/// Of every object.
const TAG: &str = "\"t\"";

pub(crate) const AT_ONCE: Reply = Reply::After(Duration::ZERO);

type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    scheme: &'static str,
}

struct Shared {
    script: Script,
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    seen: Mutex<Vec<Seen>>,
    count: AtomicU64,
    first: Mutex<Option<Instant>>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, script)
    }

    /// One whose certificate nobody trusts.
    pub(crate) fn start_tls(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        Self::start_with(Some(TlsAcceptor::from(Arc::new(config))), script)
    }

    fn start_with(
        tls: Option<TlsAcceptor>,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            script: Arc::new(script),
            objects: Mutex::default(),
            seen: Mutex::default(),
            count: AtomicU64::new(0),
            first: Mutex::default(),
        });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let (shared, tls) = (Arc::clone(&for_thread), tls.clone());
                        tokio::task::spawn_local(async move {
                            // A client that hangs up is no fault.
                            let _ = match tls {
                                None => serve(stream, &shared).await,
                                Some(tls) => match tls.accept(stream).await {
                                    Ok(stream) => serve(stream, &shared).await,
                                    Err(error) => Err(error),
                                },
                            };
                        });
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address: address.recv().unwrap(),
            shared,
            stop: Some(stop),
            thread: Some(thread),
            scheme,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>) {
        self.shared
            .objects
            .lock()
            .unwrap()
            .insert(path.to_owned(), bytes);
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.shared
            .objects
            .lock()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let head = String::from_utf8(read.drain(..end + 4).collect()).unwrap();
        let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
        while read.len() < length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        let body: Vec<u8> = read.drain(..length).collect();
        let seen = shared.note(&head);
        let reply = (shared.script)(&seen);
        let mut answer = match reply {
            Reply::After(delay) => {
                tokio::time::sleep(delay).await;
                shared.answer(&seen, body)
            }
            Reply::Flipped | Reply::Cut => shared.answer(&seen, body),
            Reply::Error(status, code) => {
                let text = format!("<Error><Code>{code}</Code></Error>");
                answer(status, &[], text.as_bytes())
            }
            Reply::Silence => {
                std::future::pending::<()>().await;
                return Ok(());
            }
        };
        match reply {
            Reply::Flipped => *answer.last_mut().unwrap() ^= 1,
            Reply::Cut => {
                answer.truncate(answer.len() - 1);
                stream.write_all(&answer).await?;
                return stream.shutdown().await;
            }
            _ => {}
        }
        if seen.method == "HEAD" {
            let end = answer
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .unwrap();
            answer.truncate(end + 4);
        }
        stream.write_all(&answer).await?;
    }
}

impl Shared {
    fn note(&self, head: &str) -> Seen {
        let mut words = head.split(' ');
        let method = words.next().unwrap().to_owned();
        let target = words.next().unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let range = header(head, "range").map(|text| {
            let (first, last) = text.trim_start_matches("bytes=").split_once('-').unwrap();
            (first.parse().unwrap(), last.parse().unwrap())
        });
        let now = Instant::now();
        let first = *self.first.lock().unwrap().get_or_insert(now);
        let seen = Seen {
            number: self.count.fetch_add(1, Ordering::Relaxed),
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            range,
            is_signed: header(head, "authorization").is_some(),
            known_tag: header(head, "if-none-match").map(str::to_owned),
            at: now - first,
        };
        self.seen.lock().unwrap().push(seen.clone());
        seen
    }

    /// What S3 would say.
    fn answer(&self, seen: &Seen, body: Vec<u8>) -> Vec<u8> {
        let mut objects = self.objects.lock().unwrap();
        let is_bucket = !seen.path[1..].contains('/');
        match &*seen.method {
            "GET" if is_bucket => answer(200, &[], list(&objects, seen).as_bytes()),
            "GET" | "HEAD" => match (objects.get(&seen.path), seen.range) {
                (Some(bytes), Some((first, last))) => {
                    answer(206, &[("ETag", TAG)], &bytes[first..=last])
                }
                (Some(_), None) if seen.known_tag.as_deref() == Some(TAG) => {
                    answer(304, &[("ETag", TAG)], b"")
                }
                (Some(bytes), None) => answer(200, &[("ETag", TAG)], bytes),
                (None, _) => answer(404, &[], b"<Error><Code>NoSuchKey</Code></Error>"),
            },
            "POST" if seen.query == "uploads=" => {
                answer(200, &[], b"<R><UploadId>u/1</UploadId></R>")
            }
            "POST" => {
                let mut whole = Vec::new();
                let prefix = format!("{}?part", seen.path);
                let parts: Vec<_> = objects
                    .keys()
                    .filter(|key| key.starts_with(&prefix))
                    .cloned()
                    .collect();
                for part in parts {
                    whole.extend(objects.remove(&part).unwrap());
                }
                objects.insert(seen.path.clone(), whole);
                answer(200, &[], b"<R/>")
            }
            "PUT" if is_bucket => answer(200, &[], b""),
            "PUT" => {
                let part = seen
                    .query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("partNumber="));
                let path = match part {
                    Some(number) => format!("{}?part{number:0>5}", seen.path),
                    None => seen.path.clone(),
                };
                objects.insert(path, body);
                answer(200, &[("ETag", TAG)], b"")
            }
            "DELETE" => {
                objects.remove(&seen.path);
                answer(204, &[], b"")
            }
            other => panic!("the client sent {other}"),
        }
    }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, seen: &Seen) -> String {
    let prefix = seen
        .query
        .split('&')
        .find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = format!(
        "{}/{}",
        seen.path,
        prefix.unwrap_or_default().replace("%2F", "/")
    );
    let mut text = String::from("<ListBucketResult>");
    for (path, bytes) in objects.iter().filter(|(path, _)| path.starts_with(&prefix)) {
        let key = &path[seen.path.len() + 1..];
        let size = bytes.len();
        write!(
            text,
            "<Contents><Key>{key}</Key><Size>{size}</Size></Contents>"
        )
        .unwrap();
    }
    text + "</ListBucketResult>"
}

fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} X\r\nServer: scripted\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if status != 204 {
        write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}
