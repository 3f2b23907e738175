//! The admin API: looks into caches, and changes what they hold. JSON both ways, see `messages`.
//!
//! | request | answers |
//! |---|---|
//! | `GET /admin/v1/cache/stats` | counts of every cache |
//! | `GET /admin/v1/cache/top?n=20&by=hits` | the leading objects, by `hits` or `bytes` |
//! | `GET /admin/v1/cache/lookup?bucket=B&key=K` | what is known of one object |
//! | `POST /admin/v1/cache/{purge,flush,pin,unpin,warm}` | the job: 200, or 202 under way |
//! | `GET /admin/v1/tier/{status,list,conflicts}` | how tiers stand, what cold stores lack |
//! | `POST /admin/v1/tier/{flush,drain}` | the job: 200, or 202 under way |
//! | `POST /admin/v1/tier/{resume,retry,discard}` | what came of it |
//! | `GET /admin/v1/log/stats`, `POST /admin/v1/log/{verify,compact}` | counts; the job |
//! | `GET /admin/v1/origin/status` | how S3 services and their endpoints stand |
//! | `POST /admin/v1/origin/{eject,restore,drain}` | the same; of a drain the job |
//! | `GET /admin/v1/mirror/status` | how mirrors and their members stand |
//! | `POST /admin/v1/mirror/{verify,repair}` | the job: 200, or 202 under way |
//! | `GET /admin/v1/jobs`, `GET /admin/v1/jobs/ID` | jobs under way, and the last that ended |
//! | `DELETE /admin/v1/jobs/ID` | the job, cancelled |
//!
//! Who may do so is `guard`'s. Each change is logged with the address that asked for it.

mod cache;
mod mirror;
mod origin;
mod tier;

use std::{
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use forebay_s3::sigv4::SecretKey;
use forebay_store::{Body, Clock, Query};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as HttpBody;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Health, Operators, guard,
    jobs::{Ended, Job, Jobs, Order, TooManyJobs},
    messages::{API, ErrorAnswer, JobsAnswer},
    respond,
};

/// Most bytes of a body: a list of some 100,000 objects.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Time for all of it.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a change is waited for before it is answered with a job under way: a purge of a
/// million objects takes less.
const ANSWER_AFTER: Duration = Duration::from_secs(1);
/// Paths of stores and layers, for who asks them with another method.
const OTHER_PATHS: [&str; 18] = [
    "/tier/status",
    "/tier/list",
    "/tier/conflicts",
    "/tier/flush",
    "/tier/drain",
    "/tier/resume",
    "/tier/retry",
    "/tier/discard",
    "/log/stats",
    "/log/verify",
    "/log/compact",
    "/origin/status",
    "/origin/eject",
    "/origin/restore",
    "/origin/drain",
    "/mirror/status",
    "/mirror/verify",
    "/mirror/repair",
];

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The API and its jobs.
#[derive(Debug)]
pub struct Api {
    operators: Operators,
    token: Option<SecretKey>,
    health: Arc<Health>,
    jobs: Jobs,
}

/// A request that can't be answered as wished.
#[derive(Debug)]
struct Failure(StatusCode, String);

type Answer = Result<Response<Body>, Failure>;

impl Api {
    /// The API over these stores and layers; with a token, whoever has it may use it, else whoever
    /// reaches it.
    pub fn new(
        operators: Operators,
        token: Option<SecretKey>,
        health: Arc<Health>,
        clock: Clock,
    ) -> Self {
        Self {
            operators,
            token,
            health,
            jobs: Jobs::new(clock),
        }
    }

    /// Why clients should be sent elsewhere, if they should: what a tier should have moved long
    /// ago, or a mirror that can't take writes.
    pub(super) async fn unready(&self) -> Option<String> {
        if let Some(late) = self.operators.tiers.late().await {
            return Some(late);
        }
        for mirror in &self.operators.mirrors {
            if let Some(lack) = mirror.lack().await {
                return Some(lack);
            }
        }
        None
    }

    /// Cancels all jobs, and waits until they have stopped; for a drain.
    pub async fn stop(&self) {
        self.jobs.stop().await;
    }

    /// Whether a path is one of the API's.
    pub(super) fn is_for(path: &str) -> bool {
        path.strip_prefix(API)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers a request from `peer`.
    pub(super) async fn answer<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        self.try_answer(&head, body, peer)
            .await
            .unwrap_or_else(|Failure(status, error)| {
                let mut response = json(status, &ErrorAnswer { error });
                if status == StatusCode::UNAUTHORIZED {
                    let scheme = HeaderValue::from_static("Bearer");
                    response
                        .headers_mut()
                        .insert(header::WWW_AUTHENTICATE, scheme);
                }
                response
            })
    }

    async fn try_answer<B>(&self, head: &Parts, body: B, peer: SocketAddr) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        guard::judge(&head.method, &head.headers, self.token.as_ref())
            .map_err(|refusal| Failure(refusal.status, refusal.why.to_owned()))?;
        let path = head.uri.path().strip_prefix(API).unwrap_or_default();
        let query = Query::new(head.uri.query().unwrap_or_default());
        let job_id = path.strip_prefix("/jobs/");
        if path.starts_with("/tier/") || path.starts_with("/log/") {
            if head.method != Method::GET {
                tracing::info!(%peer, path, "ordered by operator");
            }
            let asked = (&head.method, path, &query);
            let answer = self.of_tiers(asked, body).await;
            return answer.unwrap_or_else(|| Err(unknown(path, job_id)));
        }
        if path.starts_with("/origin/") {
            let answer = self.of_origins((&head.method, path, &query), body).await;
            return answer.unwrap_or_else(|| Err(unknown(path, job_id)));
        }
        if path.starts_with("/mirror/") {
            let answer = self.of_mirrors((&head.method, path), body).await;
            return answer.unwrap_or_else(|| Err(unknown(path, job_id)));
        }
        if path.starts_with("/cache/") {
            let answer = self
                .of_caches((&head.method, path, &query), body, peer)
                .await;
            return answer.unwrap_or_else(|| Err(unknown(path, job_id)));
        }
        match (&head.method, path) {
            (&Method::GET, "/jobs") => {
                let jobs = self.jobs.all();
                Ok(json(StatusCode::OK, &JobsAnswer { jobs }))
            }
            (&Method::GET, _) if job_id.is_some() => {
                let job = self.job(job_id.unwrap_or_default())?;
                Ok(json(StatusCode::OK, &job.status()))
            }
            (&Method::DELETE, _) if job_id.is_some() => {
                let job = self.job(job_id.unwrap_or_default())?;
                job.cancel().await;
                let status = job.status();
                tracing::info!(%peer, id = status.id, what = %status.what, "cancelled by operator");
                Ok(json(StatusCode::OK, &status))
            }
            (_, path) => Err(unknown(path, job_id)),
        }
    }

    fn job(&self, id: &str) -> Result<Arc<Job>, Failure> {
        let found = id.parse().ok().and_then(|id| self.jobs.find(id));
        found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, format!("there is no job {id}")))
    }

    /// Begins a job and answers with how far it is soon after.
    async fn work<F>(
        &self,
        kind: &'static str,
        what: &str,
        work: impl FnOnce(Arc<Job>) -> F,
    ) -> Answer
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let order = Order {
            kind,
            what: what.to_owned(),
            warms: Vec::new(),
            compares: Vec::new(),
        };
        self.begun(self.jobs.begin(order, work)).await
    }

    /// How far a job is soon after its begin.
    async fn begun(&self, job: Result<Arc<Job>, TooManyJobs>) -> Answer {
        let job = job.map_err(|TooManyJobs| {
            let why = "too many jobs are under way: wait for one to end, or cancel one";
            Failure(StatusCode::TOO_MANY_REQUESTS, why.to_owned())
        })?;
        let status = match tokio::time::timeout(ANSWER_AFTER, job.ended()).await {
            Ok(()) => StatusCode::OK,
            Err(_) => StatusCode::ACCEPTED,
        };
        let mut response = json(status, &job.status());
        let location = format!("{API}/jobs/{}", job.status().id);
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        Ok(response)
    }
}

/// Does what takes a while where it harms nobody.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn unknown(path: &str, job_id: Option<&str>) -> Failure {
    let is_known = job_id.is_some()
        || path == "/jobs"
        || OTHER_PATHS.contains(&path)
        || path.strip_prefix("/cache/").is_some_and(cache::is_known);
    if is_known {
        let why = "this path has another method: see docs/admin.md";
        return Failure(StatusCode::METHOD_NOT_ALLOWED, why.to_owned());
    }
    Failure(
        StatusCode::NOT_FOUND,
        "no such path: see docs/admin.md".to_owned(),
    )
}

fn bad(why: String) -> Failure {
    Failure(StatusCode::BAD_REQUEST, why)
}

/// Reads a body, within its limits.
async fn read<B, T>(mut body: B) -> Result<T, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
    T: DeserializeOwned,
{
    let mut bytes = Vec::new();
    let whole = async {
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            let frame = frame.map_err(|_| bad("the body broke off".to_owned()))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            if bytes.len() + piece.len() > BODY_BYTES_MAX {
                let why = format!("the body has more than {BODY_BYTES_MAX} bytes: split the list");
                return Err(Failure(StatusCode::PAYLOAD_TOO_LARGE, why));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(())
    };
    let timely = tokio::time::timeout(BODY_TIMEOUT, whole).await;
    timely.map_err(|_| {
        let why = "the body took too long".to_owned();
        Failure(StatusCode::REQUEST_TIMEOUT, why)
    })??;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

fn json(status: StatusCode, message: &impl Serialize) -> Response<Body> {
    let mut bytes = serde_json::to_vec(message).expect("messages have texts as keys");
    bytes.push(b'\n');
    respond(status, JSON, bytes.into())
}

/// Whether changes through a listener at this address need a token.
pub fn needs_token(listen: IpAddr) -> bool {
    !listen.is_loopback()
}

#[cfg(test)]
mod tests;
