//! What operators ask of caches, and change there.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use forebay_cache::{Operator, Pinned, Rank, Selection, TOP_MAX, WarmEnd, WarmOrder, WarmProgress};
use forebay_s3::{
    bucket::BucketName,
    key::{ObjectKey, VersionId},
    operation::ObjectId,
};
use forebay_store::{Query, RequestId};
use http::{Method, StatusCode};
use http_body::Body as HttpBody;

use super::{Answer, Api, Failure, aside, bad, json, read};
use crate::admin::{
    Cache,
    jobs::{Job, Order, TooManyJobs},
    messages::{Change, StatsAnswer, TopAnswer, TopObject},
    selection::{self, Targets},
};

/// Objects of a `top` unless it is told otherwise.
const TOP_DEFAULT: usize = 20;
/// Selections that are dealt with before the job can be cancelled.
const CHANGED_AT_ONCE: usize = 1000;

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

impl Api {
    /// Answers what is about caches; `None` when the path is not.
    pub(super) async fn of_caches<B>(
        &self,
        (method, path, query): (&Method, &str, &Query),
        body: B,
        peer: SocketAddr,
    ) -> Option<Answer>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let rest = path.strip_prefix("/cache/")?;
        Some(match (method, rest, Kind::of(rest)) {
            (&Method::GET, "stats", _) => Ok(json(StatusCode::OK, &self.stats())),
            (&Method::GET, "top", _) => self.top(query).await,
            (&Method::GET, "lookup", _) => self.lookup(query).await,
            (&Method::POST, _, Some(kind)) => match read(body).await {
                Ok(change) => self.change(kind, &change, peer).await,
                Err(failure) => Err(failure),
            },
            _ => return None,
        })
    }

    fn stats(&self) -> StatsAnswer {
        let caches = self
            .operators
            .caches
            .list
            .iter()
            .map(Cache::stats)
            .collect();
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
        let caches = self.operators.caches.list.clone();
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
        let Some(at) = self.operators.caches.of_bucket(&bucket).next() else {
            return Err(Failure(StatusCode::NOT_FOUND, selection::no_cache(&bucket)));
        };
        let object = ObjectId {
            bucket,
            key,
            version,
        };
        let found = self.operators.caches.list[at].lookup(&object).await;
        Ok(json(StatusCode::OK, &found))
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
        let targets = selection::targets(&self.operators.caches, selections)
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

    /// Begins what is done to each selection on its own, and asks nobody.
    fn begin(&self, kind: Kind, what: String, targets: Targets) -> Result<Arc<Job>, TooManyJobs> {
        let order = Order {
            kind: kind.as_str(),
            what,
            warms: Vec::new(),
            compares: Vec::new(),
        };
        let caches = self.operators.caches.list.clone();
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
            let operator = self.operators.caches.list[at].operator.clone();
            parts.push((operator, order(selections), Arc::<WarmProgress>::default()));
        }
        let warms = parts.iter().map(|(.., progress)| Arc::clone(progress));
        let order = Order {
            kind: "warm",
            what,
            warms: warms.collect(),
            compares: Vec::new(),
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

/// Whether a path below `/cache/` exists.
pub(super) fn is_known(rest: &str) -> bool {
    matches!(rest, "stats" | "top" | "lookup") || Kind::of(rest).is_some()
}
