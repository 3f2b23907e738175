//! The requests that a mirror makes of a member itself, beside those of clients.
//!
//! Each has a time limit, and an answer that says what to do next. Called by `copy`, `verify` and
//! `lists`; knows nothing of the journal. An answer that arrives slowly, as that of a completion
//! does, may take as long as it likes, as long as something of it arrives in time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use forebay_s3::{
    operation::{ObjectId, Operation, ReadObject},
    xml,
};
use forebay_store::{
    Body, Caller, Clock, Error, Identity, PayloadProof, Query, Request, RequestId, Response, Store,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::{members::MemberId, mirror::Shared, send};

/// Most bytes of an answer that is read for what it says: a listing of 1000 keys of 1 KiB, each
/// byte as `&#xNN;`, and what is said of them.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Until when an answer to a request with a payload is of use. The payload of a large object takes
/// its time; one that stands still is given up long before, by [`Asker::patiently`].
const PAYLOAD_TIME_MAX: Duration = Duration::from_hours(6);

/// Makes requests of members.
#[derive(Debug)]
pub(crate) struct Asker {
    clock: Clock,
    timeout: Duration,
    requests: AtomicU64,
}

/// Why a request of ours did not do what it was for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// The member refused it, and nothing changed: its status and code.
    #[error("refused with {0} {1}")]
    Refused(StatusCode, String),
    /// The member can't be asked now, and nothing changed.
    #[error("can't be asked")]
    Busy,
    /// It may or may not have happened, and may still.
    #[error("outcome unknown")]
    Unknown,
}

impl Trouble {
    /// Whether the member has nothing of that name: object, bucket or upload.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused(StatusCode::NOT_FOUND, _))
    }

    /// Whether a condition did not hold.
    pub(crate) fn is_condition(&self) -> bool {
        matches!(self, Self::Refused(StatusCode::PRECONDITION_FAILED, _))
    }

    /// Whether the member lacks the bucket itself.
    pub(crate) fn is_no_bucket(&self) -> bool {
        matches!(self, Self::Refused(_, code) if code == "NoSuchBucket")
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => {
                Self::Refused(refusal.code.status(), refusal.code.as_str().to_owned())
            }
            Error::SlowDown { .. } | Error::Unavailable { .. } => Self::Busy,
            Error::Indeterminate { .. }
            | Error::Cut { .. }
            | Error::ClientGone
            | Error::Internal { .. } => Self::Unknown,
        }
    }
}

/// How far a payload under way has come, so that one which stands still is told from a slow one.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Pieces that have passed.
    steps: AtomicU64,
    /// Whether it waits because we want it to.
    is_waiting: AtomicBool,
}

impl Progress {
    pub(crate) fn goes_on(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// What comes next comes later, by our own will.
    pub(crate) fn waits(&self) {
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    /// Whether it waits because we want it to.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

impl Asker {
    pub(crate) fn new(clock: Clock, timeout: Duration) -> Self {
        Self {
            clock,
            timeout,
            requests: AtomicU64::default(),
        }
    }

    /// Time limit of one request.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A request of the mirror's own.
    pub(crate) fn request(&self, method: Method, operation: Operation, query: &str) -> Request {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        Request {
            operation,
            method,
            headers: HeaderMap::new(),
            query: Query::new(query),
            body: Body::empty(),
            payload_proof: PayloadProof::None,
            caller: Caller {
                identity: Identity::User("forebay-mirror".into()),
                request_id: RequestId(number),
                remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                deadline: self.clock.now() + self.timeout,
            },
        }
    }

    /// The same with a payload.
    pub(crate) fn request_with(
        &self,
        method: Method,
        (operation, query): (Operation, &str),
        (body, size_bytes): (Body, u64),
    ) -> Request {
        let mut request = self.request(method, operation, query);
        request.caller.deadline = self.clock.now() + PAYLOAD_TIME_MAX;
        request
            .headers
            .insert(header::CONTENT_LENGTH, size_bytes.into());
        request.body = body;
        request
    }

    /// A `HeadObject` that asks for checksums.
    pub(crate) fn head(&self, read: ReadObject, query: &str) -> Request {
        let mut request = self.request(Method::HEAD, Operation::HeadObject(read), query);
        let enabled = HeaderValue::from_static("ENABLED");
        request.headers.insert("x-amz-checksum-mode", enabled);
        request
    }

    /// Sends a request; the answer's body is still to come.
    pub(crate) async fn open(
        &self,
        store: &dyn Store,
        request: Request,
    ) -> Result<Response, Trouble> {
        let answer = tokio::time::timeout(self.timeout, store.call(request)).await;
        let response = answer.map_err(|_| Trouble::Unknown)??;
        self.judged(response).await
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn ask(
        &self,
        store: &dyn Store,
        request: Request,
    ) -> Result<(HeaderMap, Bytes), Trouble> {
        let response = self.open(store, request).await?;
        self.read(response).await
    }

    /// Sends a request whose payload may take long, as long as it moves on, and reads its answer.
    pub(crate) async fn patiently(
        &self,
        store: &dyn Store,
        request: Request,
        progress: &Progress,
    ) -> Result<(HeaderMap, Bytes), Trouble> {
        let mut answer = std::pin::pin!(store.call(request));
        let response = loop {
            let before = progress.steps();
            if let Ok(answer) = tokio::time::timeout(self.timeout, &mut answer).await {
                break answer?;
            }
            if !progress.is_waiting() && progress.steps() == before {
                return Err(Trouble::Unknown);
            }
        };
        let response = self.judged(response).await?;
        self.read(response).await
    }

    /// A success, or what else it is.
    async fn judged(&self, response: Response) -> Result<Response, Trouble> {
        let status = response.status;
        if status.is_success() {
            return Ok(response);
        }
        let text = self.bytes(response.body).await.unwrap_or_default();
        let code = xml::error_in(&text).map(|error| error.code);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return Err(Trouble::Busy);
        }
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            return Err(Trouble::Unknown);
        }
        Err(Trouble::Refused(status, code.unwrap_or_default()))
    }

    async fn read(&self, response: Response) -> Result<(HeaderMap, Bytes), Trouble> {
        let headers = response.headers;
        Ok((headers, self.bytes(response.body).await?))
    }

    async fn bytes(&self, mut body: Body) -> Result<Bytes, Trouble> {
        let mut joined = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(self.timeout, body.frame()).await;
            let Some(frame) = frame.map_err(|_| Trouble::Unknown)? else {
                return Ok(joined.freeze());
            };
            if let Ok(data) = frame?.into_data() {
                if joined.len() + data.len() > ANSWER_BYTES_MAX {
                    return Err(Trouble::Unknown);
                }
                joined.extend_from_slice(&data);
            }
        }
    }
}

impl Shared {
    /// Sends a member a request without a payload, in the time of one attempt, and counts how it
    /// went. An answer that is a fault of the member's own is an error, so that another is asked.
    ///
    /// # Errors
    /// The member's own; `Unavailable` for a fault of it and when it does not answer in time.
    pub(crate) async fn ask(&self, id: MemberId, request: Request) -> Result<Response, Error> {
        let unavailable = |reason: &str| Error::Unavailable {
            reason: format!("member {}: {reason}", self.members.get(id).name).into(),
        };
        match send::read(self, id, request, self.settings.attempt_timeout).await {
            None => Err(unavailable("no answer in time")),
            Some(Ok(response)) if send::is_fault(response.status) => {
                Err(unavailable(response.status.as_str()))
            }
            Some(answer) => answer,
        }
    }
}

/// The whole of an object, to be read.
pub(crate) fn whole(object: ObjectId) -> ReadObject {
    ReadObject {
        object,
        range: None,
        part_number: None,
    }
}

/// The text of a header.
pub(crate) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
