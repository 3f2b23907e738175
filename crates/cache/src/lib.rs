//! The cache layer: keeps what passes from a store to its clients, and answers from it.
//!
//! [`CacheLayer`] is for `GetObject` and `HeadObject`, and for listings and what is said of
//! buckets; writes pass through it and invalidate what they may have changed; every other operation
//! passes untouched. What it keeps of objects is of two kinds, in one `index`: *version records*
//! (`version`: what is known of an object's current version) and *pages* of versions. A page is
//! found by its version's id alone, so it can age out but never be wrong: coherence is only about
//! the small records.
//!
//! The way of a read:
//!
//! | module | step |
//! |---|---|
//! | `plan`, `policy` | what is asked for, and the rules for it; or that the cache is not for it |
//! | `read` | a hit, or: learn what version there is, collect its bytes |
//! | `freshness` | may the stored record answer (pure) |
//! | `answer` | status and headers for this client (pure) |
//! | `extents`, `ask`, `fill`, `fills`, `pump` | origin requests that serve many readers at once |
//! | `reader` | a body from pages and fills |
//! | `read_ahead` | what to fetch before readers of ranges in a row ask for it |
//! | `revalidate` | validations that no reader waits for |
//! | `negative` | that an object is missing, for a moment |
//! | `kept` | other answers, kept whole |
//! | `write`, `epochs`, `doubts` | invalidation without races |
//! | `others` | what gateways tell each other of their writes |
//! | `disk`, `purges` | what of it lies on disk, and of that what was purged |
//! | `shadow` | beside all reads: what less or more memory would bring |
//! | `operate` | beside all reads: what an operator asks and orders |
//!
//! A cache fault is a miss: no room, no memory, no fill only mean that the bytes pass uncached.
//! What is promised to clients is in docs/semantics.md.

mod answer;
mod ask;
mod disk;
mod doubts;
mod epochs;
mod extents;
mod fill;
mod fills;
mod freshness;
mod headers;
mod index;
mod kept;
mod layer;
mod negative;
mod operate;
mod others;
mod plan;
mod policy;
mod pump;
mod purges;
mod read;
mod read_ahead;
mod reader;
mod revalidate;
mod settings;
mod shadow;
mod sync;
mod version;
mod write;

#[cfg(test)]
mod tests;

use std::{fmt, future, pin::Pin, sync::Arc};

use forebay_s3::operation::Operation;
use forebay_store::{
    Budget, CacheStatus, Clock, Error, Forward, Request, Response, Store, changes::Changes,
};
use forebay_telemetry::cache::CacheMetrics;
use tokio::runtime::Handle;

pub use disk::DiskPart;
#[cfg(feature = "testing")]
pub use disk::check_record;
pub use index::{Pinned, Purged};
pub use kept::settings::{KeptSettings, Lasting};
pub use operate::{
    DiskStats, Found, FoundStanding, Operator, Rank, Ranked, Selection, StaleReason, Stats,
    TOP_MAX, WarmCounts, WarmEnd, WarmOrder, WarmProgress,
};
pub use policy::{Keep, Matching, Place, Policy, Rule};
pub use settings::{CacheSettings, Coherence, Directives, DiskChoice, PageBytes, StaleUse};
pub use shadow::{Outline, ShadowReport};

use layer::Layer;
use others::Others;
use plan::{Method, Plan};

/// A cache in front of a store, see the crate's documentation.
pub struct CacheLayer {
    layer: Arc<Layer>,
}

impl CacheLayer {
    /// A cache in front of `inner`. Memory in flight is taken from `budget`; memory of what is
    /// kept is `settings.capacity_bytes` at most.
    pub fn new(
        inner: Arc<dyn Store>,
        settings: CacheSettings,
        clock: Clock,
        budget: Budget,
        metrics: CacheMetrics,
    ) -> Self {
        Self {
            layer: Arc::new(Layer::new(inner, settings, clock, budget, metrics, None)),
        }
    }

    /// The same with a part on disk.
    pub fn with_disk(
        inner: Arc<dyn Store>,
        settings: CacheSettings,
        (clock, budget): (Clock, Budget),
        metrics: CacheMetrics,
        disk: DiskPart,
    ) -> Self {
        let disk = Some(disk);
        Self {
            layer: Arc::new(Layer::new(inner, settings, clock, budget, metrics, disk)),
        }
    }

    /// Tells other gateways of what is written through this one, and hears of what is written
    /// through them: then `exclusive` holds over all that share `changes`. To be called once,
    /// before the first request; the tasks that it needs run on `runtime`, and end with the layer.
    ///
    /// # Panics
    /// When it is called twice.
    #[must_use]
    pub fn with_changes(self, changes: Arc<dyn Changes>, runtime: &Handle) -> Self {
        Others::meet(&self.layer, changes, runtime);
        self
    }

    /// A handle for whoever operates the cache.
    pub fn operator(&self) -> Operator {
        Operator {
            layer: Arc::clone(&self.layer),
        }
    }

    /// Bytes that records, pages, kept answers and their index take.
    pub fn used_bytes(&self) -> u64 {
        let layer = &self.layer;
        layer.index.used_bytes() + layer.kept.used_bytes() + layer.negatives.used_bytes()
    }

    fn read<'a>(&self, method: Method, request: Request) -> Answering<'a> {
        let (Operation::GetObject(read) | Operation::HeadObject(read)) = &request.operation else {
            return self.pass(request);
        };
        let settings = &self.layer.settings;
        let Ok(plan) = Plan::of(method, read, &request.headers, &request.query, settings) else {
            let layer = Arc::clone(&self.layer);
            return Box::pin(async move { read::as_is(&layer, request, Forward::Bypass).await });
        };
        match read::hit(&self.layer, &plan, &read.object, &request) {
            Some(answer) => Box::pin(future::ready(answer)),
            None => Box::pin(negative::read(Arc::clone(&self.layer), plan, request)),
        }
    }

    fn pass<'a>(&self, request: Request) -> Answering<'a> {
        let inner = Arc::clone(&self.layer.inner);
        Box::pin(async move {
            let mut response = inner.call(request).await?;
            let passed = || CacheStatus::forward(Forward::Bypass);
            response.cache.get_or_insert_with(passed);
            Ok(response)
        })
    }
}

/// The future that `async_trait` makes of `Store::call`, written out below: a hit is answered
/// before there is a future to drive, and costs one allocation of the answer's size, not one that
/// holds the request and all the states of a miss.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'a>>;

impl Store for CacheLayer {
    fn call<'life0, 'async_trait>(&'life0 self, request: Request) -> Answering<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        match &request.operation {
            Operation::GetObject(_) => self.read(Method::Get, request),
            Operation::HeadObject(_) => self.read(Method::Head, request),
            operation => match write::written(operation) {
                Some(written) => Box::pin(write::write(Arc::clone(&self.layer), written, request)),
                None => match kept::Asked::of(&self.layer, &request) {
                    Some(asked) => Box::pin(kept::answer(Arc::clone(&self.layer), asked, request)),
                    None => self.pass(request),
                },
            },
        }
    }
}

impl Drop for CacheLayer {
    fn drop(&mut self) {
        // Answers under way are finished by their readers, who keep what they need.
        self.layer.fills.abort_unread();
        self.layer.revalidations.abort();
        self.layer.others.abort();
    }
}

impl fmt::Debug for CacheLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer")
            .field("settings", &self.layer.settings)
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}
