//! Operations that take long: the head of the answer leaves, white space follows, then the outcome.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use forebay_s3::code::Code;
use forebay_store::{CacheStatus, Error, Forward, Request, Response, Store};
use http::{HeaderValue, Method, StatusCode};
use tokio::sync::Semaphore;

use super::{
    harness::{Ask, Client, Edge, TestStore, settings},
    life::{LONG, block_on},
};
use crate::{
    Drained,
    settings::{AccessLogFormat, AccessLogOutput, AccessLogSettings, Limits, Settings},
};

const SILENCE_MAX: Duration = Duration::from_millis(20);
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// Reads a request to its end, then waits to be let go on.
struct SlowStore {
    gate: Semaphore,
    answer: Mutex<Box<dyn Fn() -> Result<Response, Error> + Send>>,
    /// Calls that began, and calls that ended, dropped ones included.
    begun: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

/// Counts an end.
struct Ending(Arc<AtomicUsize>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[async_trait]
impl Store for SlowStore {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        self.begun.fetch_add(1, SeqCst);
        let _ending = Ending(Arc::clone(&self.ended));
        request.body.collect(1000).await?;
        self.gate.acquire().await.unwrap().forget();
        (self.answer.lock().unwrap())()
    }
}

struct Slow {
    edge: Edge,
    store: Arc<SlowStore>,
}

impl Slow {
    fn start(
        settings: Settings,
        answer: impl Fn() -> Result<Response, Error> + Send + 'static,
    ) -> Self {
        let store = Arc::new(SlowStore {
            gate: Semaphore::new(0),
            answer: Mutex::new(Box::new(answer)),
            begun: AtomicUsize::new(0),
            ended: Arc::default(),
        });
        let beside = Arc::new(TestStore::default());
        let edge = Edge::start_over(settings, Arc::clone(&store) as _, beside);
        Self { edge, store }
    }

    /// Sends a request on a connection of its own, the outcome being kept back.
    fn begin(&self, ask: &Ask) -> Client {
        let mut client = self.edge.connect();
        client.write(&ask.bytes(&self.edge));
        client
    }

    fn count(&self, line: &str) -> bool {
        self.edge.running.metrics_text().lines().any(|l| l == line)
    }
}

fn impatient(change: impl FnOnce(&mut Limits)) -> Settings {
    let mut settings = settings();
    settings.limits.silence_max = SILENCE_MAX;
    change(&mut settings.limits);
    settings
}

fn complete() -> Ask {
    let body = "<CompleteMultipartUpload/>";
    Ask {
        body: body.into(),
        ..Ask::new(Method::POST, "/open/key?uploadId=1")
    }
    .header("content-length", &body.len().to_string())
    .signed_by("ann")
}

fn copy(target: &str) -> Ask {
    Ask::put(target, "")
        .header("x-amz-copy-source", "/open/source")
        .signed_by("ann")
}

fn late() -> [Ask; 3] {
    let part = copy("/open/key?uploadId=1&partNumber=1");
    [complete(), copy("/open/key"), part]
}

/// The head of an answer: its first line, and the others in order.
fn head(client: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| client.line().filter(|line| !line.is_empty())).collect()
}

/// The next chunk of a body without its line ends; `None` at the end.
fn chunk(client: &mut Client) -> Option<String> {
    let size = client.line().expect("the body goes on");
    if size == "0" {
        assert_eq!(client.line().unwrap(), "");
        return None;
    }
    let mut text = client.line().unwrap();
    while text.len() + 2 < usize::from_str_radix(&size, 16).unwrap() {
        text.push_str(&client.line().unwrap());
    }
    Some(text)
}

/// Reads the beginning of a late answer: the head, the declaration, and white space twice.
fn read_beginning(client: &mut Client) -> Vec<String> {
    let head = head(client);
    assert_eq!(head[0], "HTTP/1.1 200 OK");
    assert_eq!(client.line().unwrap(), "27");
    assert_eq!(client.line().unwrap(), DECLARATION);
    assert_eq!(client.line().unwrap(), "");
    for _ in 0..2 {
        assert_eq!(client.line().unwrap(), "1");
        assert_eq!(client.line().unwrap(), "");
    }
    head
}

/// Reads the rest, in which white space may come first.
fn read_rest(client: &mut Client) -> String {
    std::iter::from_fn(|| chunk(client)).collect()
}

fn has(head: &[String], name: &str, value: &str) -> bool {
    head.iter().any(|line| {
        let (n, v) = line.split_once(": ").unwrap_or_default();
        n.eq_ignore_ascii_case(name) && (value.is_empty() || v == value)
    })
}

#[test]
fn what_takes_long_is_a_200_with_white_space_and_then_the_outcome() {
    for ask in late() {
        let slow = Slow::start(impatient(|_| ()), || {
            let document = format!("{DECLARATION}\n<Result><ETag>e</ETag></Result>");
            Ok(Response::new(StatusCode::OK).with_body(document))
        });
        let mut client = slow.begin(&ask);
        let head = read_beginning(&mut client);
        assert!(has(&head, "content-type", "application/xml"), "{head:?}");
        assert!(has(&head, "transfer-encoding", "chunked"), "{head:?}");
        assert!(has(&head, "x-amz-request-id", ""), "{head:?}");
        slow.store.gate.add_permits(1);
        assert_eq!(read_rest(&mut client), "<Result><ETag>e</ETag></Result>");
        // The connection goes on.
        slow.store.gate.add_permits(1);
        assert_eq!(client.send(&ask.bytes(&slow.edge)).status, 200);
    }
}

#[test]
fn an_error_after_the_head_stands_in_the_body_and_is_counted_and_logged_as_what_it_is() {
    type Make = fn() -> Result<Response, Error>;
    let origin_said = "<Error><Code>Of tomorrow</Code></Error>";
    let table: [(Make, &str, u16, &str); 3] = [
        (
            || Err(Error::refused(Code::NoSuchUpload)),
            "<Code>NoSuchUpload</Code>",
            404,
            "NoSuchUpload",
        ),
        (
            || Err(Error::internal("assemble", "disk on fire")),
            "<Code>InternalError</Code>",
            500,
            "InternalError",
        ),
        (
            || {
                let body = format!("{DECLARATION}\n<Error><Code>Of tomorrow</Code></Error>");
                Ok(Response::new(StatusCode::CONFLICT).with_body(body))
            },
            origin_said,
            409,
            "",
        ),
    ];
    for (make, told, status, code) in table {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let mut settings = impatient(|_| ());
        settings.access_log = Some(AccessLogSettings {
            format: AccessLogFormat::Json,
            output: AccessLogOutput::File(path.clone()),
        });
        let slow = Slow::start(settings, make);
        let mut client = slow.begin(&complete());
        read_beginning(&mut client);
        slow.store.gate.add_permits(1);
        let rest = read_rest(&mut client);
        assert!(rest.contains(told) && !rest.contains("<?xml"), "{rest}");
        slow.edge.wait_for_requests(0);
        let class = format!("{}xx", status / 100);
        let name = "forebay_requests_total{operation=\"CompleteMultipartUpload\"";
        assert!(slow.count(&format!("{name},status=\"{class}\"}} 1")));
        assert!(!slow.count(&format!("{name},status=\"2xx\"}} 1")));
        drop(slow);
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(log.contains(&format!("\"status\":{status}")), "{log}");
        assert!(log.contains(code), "{log}");
    }
}

#[test]
fn what_comes_in_time_keeps_its_status_and_its_headers() {
    let mut settings = settings();
    settings.limits.silence_max = Duration::from_hours(1);
    let slow = Slow::start(settings, || {
        let mut response = Response::new(StatusCode::PRECONDITION_FAILED).with_body("<Error/>");
        response
            .headers
            .insert("x-of-tomorrow", HeaderValue::from_static("1"));
        response.cache = Some(CacheStatus::forward(Forward::Method));
        Ok(response)
    });
    for ask in late() {
        slow.store.gate.add_permits(1);
        let reply = slow.edge.send(&ask);
        assert_eq!((reply.status, reply.text().as_str()), (412, "<Error/>"));
        assert_eq!(reply.header("x-of-tomorrow"), Some("1"));
        assert_eq!(reply.header("cache-status"), Some("edge; fwd=method"));
    }
}

#[test]
fn a_client_that_sends_slowly_is_told_so_by_a_status() {
    let settings = impatient(|limits| limits.stall_timeout = 10 * SILENCE_MAX);
    let slow = Slow::start(settings, || Ok(Response::new(StatusCode::OK)));
    let all = complete().bytes(&slow.edge);
    let mut client = slow.edge.connect();
    let reply = client.send(&all[..all.len() - 1]);
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (400, "RequestTimeout")
    );
}

#[test]
fn a_late_answer_has_the_deadline_of_every_other() {
    let settings = impatient(|limits| limits.request_timeout = 10 * SILENCE_MAX);
    let slow = Slow::start(settings, || Ok(Response::new(StatusCode::OK)));
    let reply = slow.edge.send(&copy("/open/key"));
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (200, "ServiceUnavailable")
    );
    slow.edge.wait_for_requests(0);
    assert!(slow.count("forebay_requests_total{operation=\"CopyObject\",status=\"5xx\"} 1"));
    // Of an operation whose clients look at the status, the status tells.
    let reply = slow.edge.send(&Ask::get("/public/key"));
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, "ServiceUnavailable")
    );
}

#[test]
fn a_client_that_leaves_in_the_white_space_ends_the_call_and_is_logged_without_a_status() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut settings = impatient(|_| ());
    settings.access_log = Some(AccessLogSettings {
        format: AccessLogFormat::Json,
        output: AccessLogOutput::File(path.clone()),
    });
    let slow = Slow::start(settings, || Ok(Response::new(StatusCode::OK)));
    let mut client = slow.begin(&complete());
    read_beginning(&mut client);
    assert_eq!(slow.store.ended.load(SeqCst), 0);
    drop(client);
    slow.edge.wait_for_requests(0);
    assert_eq!(slow.store.ended.load(SeqCst), slow.store.begun.load(SeqCst));
    let name = "forebay_requests_total{operation=\"CompleteMultipartUpload\"";
    assert!(slow.count(&format!("{name},status=\"cut\"}} 1")));
    drop(slow);
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.contains("\"CompleteMultipartUpload\""), "{log}");
    assert!(!log.contains("\"status\":200"), "{log}");
}

#[test]
fn a_drain_waits_for_a_late_answer() {
    let slow = Slow::start(impatient(|_| ()), || {
        Ok(Response::new(StatusCode::OK).with_body("<Result/>"))
    });
    let mut client = slow.begin(&complete());
    read_beginning(&mut client);
    let mut idle = slow.edge.connect();
    let get = Ask::new(Method::PATCH, "/open/key").bytes(&slow.edge);
    assert_eq!(idle.send(&get).status, 405);
    let Slow { edge, store } = slow;
    let drained = block_on(async {
        let drain = tokio::spawn(edge.running.drain(LONG));
        // The idle connection's end tells that the drain has begun.
        tokio::task::spawn_blocking(move || assert!(idle.is_closed()))
            .await
            .unwrap();
        store.gate.add_permits(1);
        drain.await.unwrap()
    });
    assert_eq!(drained, Drained { connections_cut: 0 });
    assert_eq!(read_rest(&mut client), "<Result/>");
    assert!(client.is_closed());
}
