//! The access log: a line for each request, written by a thread of its own.
//!
//! A request hands its [`Record`] over a bounded queue; when the queue is full the record is
//! dropped and counted, so that a slow disk never slows a request. Files are opened for appending,
//! so they may be rotated by copying and truncating.

mod format;

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    net::SocketAddr,
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use forebay_s3::{bucket::BucketName, code::Code, key::ObjectKey, operation::Operation};
use forebay_store::{CacheStatus, Identity, RequestId};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use hyper::body::Incoming;

use crate::{
    server::{Connection, Security, StartError},
    settings::{AccessLogFormat, AccessLogOutput, AccessLogSettings},
};

/// Records that may wait to be written: some hundred milliseconds of a busy gateway.
const QUEUE_MAX: usize = 16 * 1024;

/// Where requests hand over their records.
#[derive(Debug)]
pub(crate) struct AccessLog {
    /// `None` once it is being closed.
    sender: Option<SyncSender<Box<Record>>>,
    writer: Option<JoinHandle<()>>,
}

/// A record found no room.
#[derive(Debug)]
pub(crate) struct Dropped;

impl AccessLog {
    /// Opens the output and starts the writer.
    pub(crate) fn open(settings: &AccessLogSettings) -> Result<Self, StartError> {
        let output: Box<dyn Write + Send> = match &settings.output {
            AccessLogOutput::Stdout => Box::new(io::stdout()),
            AccessLogOutput::File(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                let failed = |source| StartError::AccessLog {
                    path: path.display().to_string(),
                    source,
                };
                Box::new(opened.map_err(failed)?)
            }
        };
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let format = settings.format;
        let writer = std::thread::Builder::new()
            .name("forebay-access-log".to_owned())
            .spawn(move || write_all(&receiver, BufWriter::new(output), format))
            .map_err(StartError::Thread)?;
        Ok(Self {
            sender: Some(sender),
            writer: Some(writer),
        })
    }

    /// Hands a record over without waiting.
    pub(crate) fn write(&self, record: Box<Record>) -> Result<(), Dropped> {
        let sender = self.sender.as_ref().ok_or(Dropped)?;
        sender.try_send(record).map_err(|_| Dropped)
    }
}

impl Drop for AccessLog {
    /// Writes what is in the queue.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the access log's writer panicked");
        }
    }
}

fn write_all(
    receiver: &Receiver<Box<Record>>,
    mut output: BufWriter<Box<dyn Write + Send>>,
    format: AccessLogFormat,
) {
    let mut has_failed = false;
    loop {
        let record = match receiver.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                report(output.flush(), &mut has_failed);
                match receiver.recv() {
                    Ok(record) => record,
                    Err(_) => break,
                }
            }
        };
        let line = match format {
            AccessLogFormat::Json => format::json(&record),
            AccessLogFormat::Aws => format::aws(&record),
        };
        report(output.write_all(line.as_bytes()), &mut has_failed);
    }
    report(output.flush(), &mut has_failed);
}

/// Tells of the first failure in a row only.
fn report(result: io::Result<()>, has_failed: &mut bool) {
    match result {
        Ok(()) => *has_failed = false,
        Err(error) => {
            if !std::mem::replace(has_failed, true) {
                tracing::error!(%error, "write access log");
            }
        }
    }
}

/// What is known of a request while it is under way.
#[derive(Debug)]
pub(crate) struct Draft(Box<Record>);

/// What a line tells.
#[derive(Debug)]
pub(crate) struct Record {
    time: SystemTime,
    remote: SocketAddr,
    requester: Identity,
    request_id: RequestId,
    operation: &'static str,
    bucket: Option<BucketName>,
    key: Option<ObjectKey>,
    version_id: Option<String>,
    method: Method,
    uri: Uri,
    http_version: Version,
    status: Option<StatusCode>,
    error_code: Option<Code>,
    sent_bytes: u64,
    /// Size of the whole object that was read.
    object_bytes: Option<u64>,
    total: Duration,
    turn_around: Option<Duration>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    host: Option<HeaderValue>,
    signature: &'static str,
    security: Security,
    cache: Option<CacheStatus>,
}

impl Draft {
    pub(crate) fn new(
        connection: &Connection,
        request_id: RequestId,
        time: SystemTime,
        incoming: &http::Request<Incoming>,
    ) -> Self {
        let header = |name| incoming.headers().get(name).cloned();
        let query = incoming.uri().query().unwrap_or_default();
        let signature = if incoming.headers().contains_key(header::AUTHORIZATION) {
            "AuthHeader"
        } else if query.contains("X-Amz-Signature=") {
            "QueryString"
        } else {
            "-"
        };
        Self(Box::new(Record {
            time,
            remote: connection.remote,
            requester: Identity::Anonymous,
            request_id,
            operation: "-",
            bucket: None,
            key: None,
            version_id: None,
            method: incoming.method().clone(),
            uri: incoming.uri().clone(),
            http_version: incoming.version(),
            status: None,
            error_code: None,
            sent_bytes: 0,
            object_bytes: None,
            total: Duration::ZERO,
            turn_around: None,
            referer: header(header::REFERER),
            user_agent: header(header::USER_AGENT),
            host: header(header::HOST),
            signature,
            security: connection.security,
            cache: None,
        }))
    }

    pub(crate) fn is_about(&mut self, operation: &Operation) {
        self.0.operation = operation.name().as_str();
        self.0.bucket = operation.bucket().cloned();
        self.0.key = operation.key().cloned();
        let version = operation
            .object()
            .and_then(|object| object.version.as_ref());
        self.0.version_id = version.map(|version| version.as_str().to_owned());
    }

    pub(crate) fn is_from(&mut self, identity: &Identity) {
        self.0.requester = identity.clone();
    }

    pub(crate) fn is_refused(&mut self, code: Code) {
        self.0.error_code = Some(code);
    }

    pub(crate) fn is_answered(
        &mut self,
        turn_around: Duration,
        headers: &HeaderMap,
        cache: Option<CacheStatus>,
    ) {
        self.0.turn_around = Some(turn_around);
        self.0.cache = cache;
        if matches!(self.0.operation, "GetObject" | "HeadObject") && self.0.error_code.is_none() {
            self.0.object_bytes = object_bytes(headers);
        }
    }

    pub(crate) fn turns_out(&mut self, cache: Option<CacheStatus>) {
        self.0.cache = cache;
    }

    pub(crate) fn has_sent(&mut self, sent_bytes: u64) {
        self.0.sent_bytes = sent_bytes;
    }

    pub(crate) fn finish(mut self, status: Option<StatusCode>, total: Duration) -> Box<Record> {
        self.0.status = status;
        self.0.total = total;
        self.0
    }
}

/// The size of the object that an answer is about: the total of a range, else its length.
fn object_bytes(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name)?.to_str().ok();
    match text(header::CONTENT_RANGE) {
        Some(range) => range.rsplit_once('/')?.1.parse().ok(),
        None => text(header::CONTENT_LENGTH)?.parse().ok(),
    }
}
