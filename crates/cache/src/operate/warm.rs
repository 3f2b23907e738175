//! Reads objects through the cache as the gateway itself, so that clients find them there.
//!
//! Objects are named, or listed below a prefix at the store (`ListObjectsV2`, batch by batch). A
//! few are read at once. What is fresh and whole is not read again. A warm reads no more than the
//! cache holds: with more, its end would evict its beginning.
//!
//! An object counts as done once its fills have ended, so that a read that comes after is a hit.

use std::{collections::VecDeque, net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};

use forebay_s3::{
    operation::{Listing, ObjectId, Operation, ReadObject},
    uri, xml,
};
use forebay_store::{
    Body, Caller, Error, Identity, PayloadProof, Query, Request, RequestId, Response,
};
use http::{HeaderMap, Method as HttpMethod, StatusCode};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{Operator, Selection};
use crate::{
    freshness::Freshness,
    layer::Layer,
    plan::{Method, Plan},
    read, version,
};

/// Objects of a listing asked for at once: with keys of 1 KiB, each byte of which takes three when
/// encoded, they stay below what `xml` reads.
const BATCH_OBJECTS: usize = 500;
/// Most bytes of such a batch.
const BATCH_BYTES_MAX: usize = xml::DOCUMENT_BYTES_MAX;
/// Time for the head of an answer.
const HEAD_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for pages that have arrived to be stored. Another reader of the same object may hold its
/// fill for longer, and is not waited for.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Errors that are kept as they were; the rest are counted.
const ERRORS_MAX: usize = 10;

/// What to read, and how.
#[derive(Debug, Clone)]
pub struct WarmOrder {
    /// Objects, in this order.
    pub selections: Vec<Selection>,
    /// Objects read at once.
    pub concurrency: NonZeroUsize,
    /// Who ordered it: origins may log it.
    pub remote: SocketAddr,
    /// Its id in logs of origins.
    pub request_id: RequestId,
}

/// How a warm ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmEnd {
    /// Everything was looked at.
    Complete,
    /// As much was read as the cache holds; the rest was left.
    Full,
}

/// How far a warm has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WarmCounts {
    /// Objects found so far.
    pub found: u64,
    /// Whether there are no more to be found.
    pub is_all_found: bool,
    /// Objects that were read.
    pub read: u64,
    /// Objects that were fresh and whole already.
    pub fresh: u64,
    /// Objects that a rule says are never kept: they are not read.
    pub not_kept: u64,
    /// Objects that are not there.
    pub missing: u64,
    /// Objects that could not be read.
    pub failed: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The first errors.
    pub errors: Vec<String>,
}

impl WarmCounts {
    /// Objects that are dealt with.
    pub fn done(&self) -> u64 {
        self.read + self.fresh + self.not_kept + self.missing + self.failed
    }
}

/// How far a warm has come, to be read while it runs.
#[derive(Debug, Default)]
pub struct WarmProgress(Mutex<WarmCounts>);

impl WarmProgress {
    /// The counts of this moment.
    pub fn counts(&self) -> WarmCounts {
        self.0.lock().clone()
    }

    fn note_error(&self, text: String) {
        let errors = &mut self.0.lock().errors;
        if errors.len() < ERRORS_MAX {
            errors.push(text);
        }
    }
}

/// What came of one object.
enum Outcome {
    Read,
    Fresh,
    NotKept,
    Missing,
    Failed(String),
    /// There is no room for it.
    Full,
}

impl Operator {
    /// Reads objects into the cache.
    ///
    /// # Errors
    /// What keeps it from knowing the objects: a listing that fails, or an order for all buckets.
    ///
    /// # Cancel safety
    /// A dropped future stops reading; what was read stays.
    pub async fn warm(
        &self,
        order: WarmOrder,
        progress: &Arc<WarmProgress>,
    ) -> Result<WarmEnd, String> {
        let is_named = |selection: &&Selection| matches!(selection, Selection::Object(..));
        let named_count = order.selections.iter().filter(is_named).count();
        {
            let mut counts = progress.0.lock();
            counts.found = named_count as u64;
            counts.is_all_found = named_count == order.selections.len();
        }
        let mut source = Source::new(Arc::clone(&self.layer), &order);
        let mut under_way: JoinSet<WarmEnd> = JoinSet::new();
        let mut end = WarmEnd::Complete;
        while end == WarmEnd::Complete {
            if under_way.len() >= order.concurrency.get() {
                end = ended(under_way.join_next().await);
                continue;
            }
            let Some(object) = source.next(progress).await? else {
                break;
            };
            let (layer, caller) = (Arc::clone(&self.layer), source.caller.clone());
            let progress = Arc::clone(progress);
            under_way.spawn(async move { warm_one(&layer, object, caller, &progress).await });
        }
        while let Some(one) = under_way.join_next().await {
            if ended(Some(one)) == WarmEnd::Full {
                end = WarmEnd::Full;
            }
        }
        Ok(end)
    }
}

fn ended(joined: Option<Result<WarmEnd, tokio::task::JoinError>>) -> WarmEnd {
    // A task that panicked has been told of by the panic itself.
    joined.and_then(Result::ok).unwrap_or(WarmEnd::Complete)
}

async fn warm_one(
    layer: &Arc<Layer>,
    object: ObjectId,
    caller: Caller,
    progress: &WarmProgress,
) -> WarmEnd {
    let key = object.key.clone();
    let outcome = match read_one(layer, object, caller, progress).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(error.to_string()),
    };
    let mut counts = progress.0.lock();
    let (count, word) = match &outcome {
        Outcome::Read => (&mut counts.read, "read"),
        Outcome::Fresh => (&mut counts.fresh, "fresh"),
        Outcome::NotKept => (&mut counts.not_kept, "not_kept"),
        Outcome::Missing => (&mut counts.missing, "missing"),
        Outcome::Failed(_) => (&mut counts.failed, "failed"),
        Outcome::Full => return WarmEnd::Full,
    };
    *count += 1;
    drop(counts);
    layer.metrics.warmed(word);
    if let Outcome::Failed(why) = outcome {
        progress.note_error(format!("{key}: {why}"));
    }
    WarmEnd::Complete
}

async fn read_one(
    layer: &Arc<Layer>,
    object: ObjectId,
    mut caller: Caller,
    progress: &WarmProgress,
) -> Result<Outcome, Error> {
    if is_fresh_and_whole(layer, &object) {
        return Ok(Outcome::Fresh);
    }
    if !layer.policies.planned(&object).may_keep {
        return Ok(Outcome::NotKept);
    }
    caller.deadline = layer.now() + HEAD_TIMEOUT;
    let read = ReadObject {
        object: object.clone(),
        range: None,
        part_number: None,
    };
    let (headers, query) = (HeaderMap::new(), Query::default());
    let plan = Plan::of(Method::Get, &read, &headers, &query, &layer.settings)
        .expect("a plain GET is for the cache");
    let request = request(Operation::GetObject(read), query, caller);
    let answer = read::read(Arc::clone(layer), plan, request).await;
    if version::status(&answer) == Some(StatusCode::NOT_FOUND) {
        return Ok(Outcome::Missing);
    }
    let Response {
        status, mut body, ..
    } = answer?;
    if !status.is_success() {
        return Ok(Outcome::Failed(format!("the origin answered {status}")));
    }
    let length = body.length().unwrap_or(0);
    if !took_room(progress, length, layer.settings.capacity_bytes) {
        return Ok(Outcome::Full);
    }
    while let Some(frame) = body.frame().await {
        frame?;
    }
    drop(body);
    let name_hash = layer.index.name_hash(&object.bucket, &object.key);
    // When it takes longer the object is read all the same.
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, layer.fills.settled(name_hash)).await;
    Ok(Outcome::Read)
}

/// Counts the bytes of an object, unless the cache has no room for them and all before.
fn took_room(progress: &WarmProgress, length: u64, capacity_bytes: u64) -> bool {
    let mut counts = progress.0.lock();
    let fits = length <= capacity_bytes.saturating_sub(counts.bytes);
    if fits {
        counts.bytes += length;
    }
    fits
}

fn is_fresh_and_whole(layer: &Layer, object: &ObjectId) -> bool {
    let Some((version, _)) = layer.index.standing_of(object) else {
        return false;
    };
    matches!(version.freshness(layer.moment()), Freshness::Fresh { .. })
        && layer.has_pages(&version, &(0..version.size_bytes))
}

fn request(operation: Operation, query: Query, caller: Caller) -> Request {
    Request {
        operation,
        method: HttpMethod::GET,
        headers: HeaderMap::new(),
        query,
        body: Body::empty(),
        payload_proof: PayloadProof::None,
        caller,
    }
}

/// The objects of an order, one after the other.
struct Source {
    layer: Arc<Layer>,
    selections: VecDeque<Selection>,
    listed: VecDeque<ObjectId>,
    /// What asks for the next batch of the first selection.
    token: Option<String>,
    caller: Caller,
}

impl Source {
    fn new(layer: Arc<Layer>, order: &WarmOrder) -> Self {
        let caller = Caller {
            identity: Identity::User("forebay-admin".into()),
            request_id: order.request_id,
            remote: order.remote,
            deadline: layer.now() + HEAD_TIMEOUT,
        };
        Self {
            layer,
            selections: order.selections.clone().into(),
            listed: VecDeque::new(),
            token: None,
            caller,
        }
    }

    async fn next(&mut self, progress: &WarmProgress) -> Result<Option<ObjectId>, String> {
        loop {
            if let Some(object) = self.listed.pop_front() {
                return Ok(Some(object));
            }
            let (bucket, prefix) = match self.selections.front() {
                None => return Ok(None),
                Some(Selection::All) => return Err("name a bucket to warm".to_owned()),
                Some(Selection::Object(bucket, key)) => {
                    let (bucket, key) = (bucket.clone(), key.clone());
                    self.selections.pop_front();
                    let version = None;
                    return Ok(Some(ObjectId {
                        bucket,
                        key,
                        version,
                    }));
                }
                Some(Selection::Prefix(bucket, prefix)) => (bucket.clone(), prefix.clone()),
                Some(Selection::Bucket(bucket)) => (bucket.clone(), String::new()),
            };
            let listing = Listing { bucket, prefix };
            let named = format!("list {}/{}", listing.bucket.as_str(), listing.prefix);
            let batch = self.list(listing.clone()).await;
            let batch = batch.map_err(|error| format!("{named}: {error}"))?;
            progress.0.lock().found += batch.objects.len() as u64;
            let bucket = &listing.bucket;
            let objects = batch.objects.into_iter().map(|listed| ObjectId {
                bucket: bucket.clone(),
                key: listed.key,
                version: None,
            });
            self.listed.extend(objects);
            self.token = batch.next;
            if self.token.is_none() {
                self.selections.pop_front();
                let is_named = |selection: &Selection| matches!(selection, Selection::Object(..));
                progress.0.lock().is_all_found = self.selections.iter().all(is_named);
            }
        }
    }

    async fn list(&self, listing: Listing) -> Result<xml::ListedBatch, String> {
        let mut query = format!(
            "list-type=2&encoding-type=url&max-keys={BATCH_OBJECTS}&prefix={}",
            uri::encode_query(&listing.prefix)
        );
        if let Some(token) = &self.token {
            query.push_str("&continuation-token=");
            query.push_str(&uri::encode_query(token));
        }
        let mut caller = self.caller.clone();
        caller.deadline = self.layer.now() + HEAD_TIMEOUT;
        let request = request(Operation::ListObjectsV2(listing), Query::new(query), caller);
        let answer = self.layer.inner.call(request).await;
        let response = answer.map_err(|error| error.to_string())?;
        if !response.status.is_success() {
            return Err(format!("the origin answered {}", response.status));
        }
        let body = response.body.collect(BATCH_BYTES_MAX).await;
        let (body, _) = body.map_err(|error| error.to_string())?;
        xml::listed(&body).map_err(|error| error.to_string())
    }
}
