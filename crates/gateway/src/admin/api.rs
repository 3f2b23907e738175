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
//! | `GET /admin/v1/jobs`, `GET /admin/v1/jobs/ID` | jobs under way, and the last that ended |
//! | `DELETE /admin/v1/jobs/ID` | the job, cancelled |
//!
//! Who may do so is `guard`'s. Each change is logged with the address that asked for it.

mod tier;

use std::{
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use forebay_cache::{Operator, Pinned, Rank, Selection, TOP_MAX, WarmEnd, WarmOrder, WarmProgress};
use forebay_s3::{
    bucket::BucketName,
    key::{ObjectKey, VersionId},
    operation::ObjectId,
    sigv4::SecretKey,
};
use forebay_store::{Body, Clock, Query, RequestId};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as HttpBody;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Cache, Caches, Health, Tiers, guard,
    jobs::{Job, Jobs, Order, TooManyJobs},
    messages::{API, Change, ErrorAnswer, JobsAnswer, StatsAnswer, TopAnswer, TopObject},
    respond,
    selection::{self, Targets},
};

/// Most bytes of a body: a list of some 100,000 objects.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Time for all of it.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a change is waited for before it is answered with a job under way: a purge of a
/// million objects takes less.
const ANSWER_AFTER: Duration = Duration::from_secs(1);
/// Objects of a `top` unless it is told otherwise.
const TOP_DEFAULT: usize = 20;
/// Selections that are dealt with before the job can be cancelled.
const CHANGED_AT_ONCE: usize = 1000;

/// Paths of `tier`, for who asks them with another method.
const TIER_PATHS: [&str; 11] = [
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
];

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The API and its jobs.
#[derive(Debug)]
pub struct Api {
    caches: Caches,
    tiers: Tiers,
    token: Option<SecretKey>,
    health: Arc<Health>,
    jobs: Jobs,
}

/// A request that can't be answered as wished.
#[derive(Debug)]
struct Failure(StatusCode, String);

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Purge,
    Flush,
    Pin,
    Unpin,
    Warm,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Purge, Self::Flush, Self::Pin, Self::Unpin, Self::Warm];

    fn as_str(self) -> &'static str {
        match self {
            Self::Purge => "purge",
            Self::Flush => "flush",
            Self::Pin => "pin",
            Self::Unpin => "unpin",
            Self::Warm => "warm",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Why such a change can't be of what is named.
    fn refusal(self, change: &Change) -> Option<&'static str> {
        let is_by_name = change.prefixes.is_empty() && change.buckets.is_empty() && !change.all;
        match self {
            Self::Flush if !change.all => Some("a flush is of all"),
            Self::Pin | Self::Unpin if !is_by_name => Some("pins are for objects by name"),
            Self::Warm if change.all => Some("name a bucket to warm"),
            Self::Purge | Self::Flush | Self::Pin | Self::Unpin | Self::Warm => None,
        }
    }
}

impl Kind {
    /// Deals with one selection; a warm does not come this way.
    fn act(self, job: &Job, on: &Operator, selection: &Selection) -> Result<(), &'static str> {
        let (done, bytes) = match (self, selection) {
            (Self::Purge | Self::Flush, _) => {
                let purged = on.purge(selection);
                (purged.records, purged.bytes)
            }
            (Self::Pin, Selection::Object(bucket, key)) => match on.pin(bucket, key) {
                Pinned::Kept {
                    pinned_bytes,
                    refused_bytes: 0,
                } => (1, pinned_bytes),
                Pinned::Kept { .. } => {
                    return Err("the quota of pins is used up: what is beyond it is not pinned");
                }
                Pinned::TooManyNames => {
                    return Err("as many objects are pinned as may be: unpin some");
                }
            },
            (Self::Unpin, Selection::Object(bucket, key)) => {
                on.unpin(bucket, key);
                (1, 0)
            }
            (Self::Pin | Self::Unpin | Self::Warm, _) => (0, 0),
        };
        job.done.fetch_add(done, Ordering::Relaxed);
        job.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

type Answer = Result<Response<Body>, Failure>;

impl Api {
    /// The API over these layers; with a token, whoever has it may use it, else whoever reaches it.
    pub fn new(
        (caches, tiers): (Caches, Tiers),
        token: Option<SecretKey>,
        health: Arc<Health>,
        clock: Clock,
    ) -> Self {
        Self {
            caches,
            tiers,
            token,
            health,
            jobs: Jobs::new(clock),
        }
    }

    /// What a tier should have moved long ago, if anything.
    pub(super) async fn late(&self) -> Option<String> {
        self.tiers.late().await
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
        match (&head.method, path) {
            (&Method::GET, "/cache/stats") => Ok(json(StatusCode::OK, &self.stats())),
            (&Method::GET, "/cache/top") => self.top(&query).await,
            (&Method::GET, "/cache/lookup") => self.lookup(&query).await,
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
            (&Method::POST, _) => {
                let kind = path.strip_prefix("/cache/").and_then(Kind::of);
                let Some(kind) = kind else {
                    return Err(unknown(path, job_id));
                };
                self.change(kind, &read(body).await?, peer).await
            }
            (_, path) => Err(unknown(path, job_id)),
        }
    }

    fn stats(&self) -> StatsAnswer {
        let caches = self.caches.list.iter().map(Cache::stats).collect();
        StatsAnswer { caches }
    }

    async fn top(&self, query: &Query) -> Answer {
        let count = match query.get("n") {
            None => TOP_DEFAULT,
            Some(text) => match text.parse() {
                Ok(count @ 1..=TOP_MAX) => count,
                Ok(_) | Err(_) => return Err(bad(format!("n: 1 to {TOP_MAX}"))),
            },
        };
        let rank = match query.get("by").as_deref() {
            None | Some("hits") => Rank::Hits,
            Some("bytes") => Rank::Bytes,
            Some(_) => return Err(bad("by: hits or bytes".to_owned())),
        };
        let caches = self.caches.list.clone();
        let mut objects = aside(move || {
            let of_all = caches.iter().flat_map(|cache| cache.top(count, rank));
            of_all.collect::<Vec<_>>()
        })
        .await?;
        objects.sort_by_key(|object: &TopObject| {
            std::cmp::Reverse(match rank {
                Rank::Hits => (object.hits, object.bytes),
                Rank::Bytes => (object.bytes, object.hits),
            })
        });
        objects.truncate(count);
        Ok(json(StatusCode::OK, &TopAnswer { objects }))
    }

    async fn lookup(&self, query: &Query) -> Answer {
        let given = |name: &str| {
            query
                .get(name)
                .ok_or_else(|| bad(format!("{name} is missing")))
        };
        let bucket = BucketName::parse(&given("bucket")?)
            .map_err(|fault| bad(format!("bucket: {fault}")))?;
        let key = ObjectKey::parse(&given("key")?).map_err(|fault| bad(format!("key: {fault}")))?;
        let version = query.get("version_id").map(|id| VersionId::parse(&id));
        let version = version
            .transpose()
            .map_err(|fault| bad(format!("version_id: {fault}")))?;
        let Some(at) = self.caches.of_bucket(&bucket).next() else {
            return Err(Failure(StatusCode::NOT_FOUND, selection::no_cache(&bucket)));
        };
        let object = ObjectId {
            bucket,
            key,
            version,
        };
        let found = self.caches.list[at].lookup(&object).await;
        Ok(json(StatusCode::OK, &found))
    }

    fn job(&self, id: &str) -> Result<Arc<Job>, Failure> {
        let found = id.parse().ok().and_then(|id| self.jobs.find(id));
        found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, format!("there is no job {id}")))
    }

    async fn change(&self, kind: Kind, change: &Change, peer: SocketAddr) -> Answer {
        if self.health.is_draining() {
            let why = "the gateway is draining".to_owned();
            return Err(Failure(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let selections = selection::selections(change).map_err(bad)?;
        if let Some(why) = kind.refusal(change) {
            return Err(bad(why.to_owned()));
        }
        let targets = selection::targets(&self.caches, selections)
            .map_err(|why| Failure(StatusCode::NOT_FOUND, why))?;
        let concurrency = selection::concurrency(change).map_err(bad)?;
        let what = selection::description(change);
        tracing::info!(%peer, kind = kind.as_str(), what, "cache changed by operator");
        let job = match kind {
            Kind::Warm => {
                let order = |selections| WarmOrder {
                    selections,
                    concurrency,
                    remote: peer,
                    request_id: RequestId(0),
                };
                self.begin_warm(what, targets, order)
            }
            Kind::Purge | Kind::Flush | Kind::Pin | Kind::Unpin => self.begin(kind, what, targets),
        };
        self.begun(job).await
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

    /// Begins what is done to each selection on its own, and asks nobody.
    fn begin(&self, kind: Kind, what: String, targets: Targets) -> Result<Arc<Job>, TooManyJobs> {
        let order = Order {
            kind: kind.as_str(),
            what,
            warms: Vec::new(),
        };
        let caches = self.caches.list.clone();
        self.jobs.begin(order, |job| async move {
            for (at, selections) in targets {
                for some in selections.chunks(CHANGED_AT_ONCE) {
                    let (job, some) = (Arc::clone(&job), some.to_vec());
                    let operator = caches[at].operator.clone();
                    let mut some = some.into_iter();
                    aside(move || some.try_for_each(|one| kind.act(&job, &operator, &one)))
                        .await
                        .map_err(|Failure(_, why)| why)??;
                }
            }
            Ok(None)
        })
    }

    fn begin_warm(
        &self,
        what: String,
        targets: Targets,
        order: impl Fn(Vec<Selection>) -> WarmOrder,
    ) -> Result<Arc<Job>, TooManyJobs> {
        let mut parts = Vec::new();
        for (at, selections) in targets {
            let operator = self.caches.list[at].operator.clone();
            parts.push((operator, order(selections), Arc::<WarmProgress>::default()));
        }
        let warms = parts.iter().map(|(.., progress)| Arc::clone(progress));
        let order = Order {
            kind: "warm",
            what,
            warms: warms.collect(),
        };
        self.jobs.begin(order, |_| async move {
            let mut note = None;
            for (operator, order, progress) in parts {
                if operator.warm(order, &progress).await? == WarmEnd::Full {
                    let why = "as much was read as the cache holds; the rest was left";
                    note = Some(why.to_owned());
                }
            }
            Ok(note)
        })
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
        || TIER_PATHS.contains(&path)
        || path.strip_prefix("/cache/").is_some_and(|rest| {
            matches!(rest, "stats" | "top" | "lookup") || Kind::of(rest).is_some()
        });
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
