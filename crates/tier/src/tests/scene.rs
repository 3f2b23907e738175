//! A cold store whose next write can be held up, or lost on its way and delivered later.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::{
    hot::{Held, HotStore, Queue, Queued, Swap, Swapped, Totals, Want},
    leases::Lease,
};
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::Operation};
use forebay_store::{Body, Error, Request, Response};
use tokio::sync::Semaphore;

use super::*;

/// What happens to the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Passes,
    Waits,
    IsLost,
}

/// See the module.
pub(super) struct Scene {
    cold: Arc<ColdStore>,
    next: Mutex<Next>,
    lost: Mutex<Vec<Request>>,
    /// A permit when a write has come to the gate, and one for it to go on.
    pub(super) arrived: Semaphore,
    pub(super) may_go: Semaphore,
}

impl Scene {
    pub(super) fn new(cold: Arc<ColdStore>) -> Arc<Self> {
        Arc::new(Self {
            cold,
            next: Mutex::new(Next::Passes),
            lost: Mutex::default(),
            arrived: Semaphore::new(0),
            may_go: Semaphore::new(0),
        })
    }

    /// The next write waits for `may_go`.
    pub(super) fn hold_next(&self) {
        *self.next.lock().unwrap() = Next::Waits;
    }

    /// The next write is not answered, and arrives with [`Scene::deliver`].
    pub(super) fn lose_next(&self) {
        *self.next.lock().unwrap() = Next::IsLost;
    }

    /// What was lost arrives.
    pub(super) async fn deliver(&self) -> Vec<Result<Response, Error>> {
        let lost = std::mem::take(&mut *self.lost.lock().unwrap());
        let mut answers = Vec::new();
        for request in lost {
            answers.push(self.cold.call(request).await);
        }
        answers
    }
}

#[async_trait]
impl Store for Scene {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let writes = matches!(
            request.operation,
            Operation::PutObject(_) | Operation::DeleteObject(_)
        );
        let next = if writes {
            std::mem::replace(&mut *self.next.lock().unwrap(), Next::Passes)
        } else {
            Next::Passes
        };
        match next {
            Next::Passes => {}
            Next::Waits => {
                self.arrived.add_permits(1);
                self.may_go.acquire().await.unwrap().forget();
            }
            Next::IsLost => {
                self.lost.lock().unwrap().push(request);
                return Err(Error::Indeterminate {
                    elapsed: Duration::ZERO,
                });
            }
        }
        self.cold.call(request).await
    }
}

/// A store that lets others go first, before and after each call.
pub(super) struct Yielding(pub(super) Arc<ColdStore>);

#[async_trait]
impl Store for Yielding {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        tokio::task::yield_now().await;
        let answer = self.0.call(request).await;
        tokio::task::yield_now().await;
        answer
    }
}

/// A hot store that answers listings after all others have had a turn.
pub(crate) struct SlowHot(IndexedHot);

impl SlowHot {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self(IndexedHot::new(parts, Space::parse("test").unwrap())))
    }
}

#[async_trait]
impl HotStore for SlowHot {
    async fn get(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error> {
        self.0.get(key, want).await
    }

    async fn swap(&self, swap: Swap<'_>) -> Result<Swapped, Error> {
        self.0.swap(swap).await
    }

    async fn bytes(
        &self,
        key: &HotKey,
        held: &Held,
        span: std::ops::Range<u64>,
    ) -> Result<Option<Body>, Error> {
        self.0.bytes(key, held, span).await
    }

    async fn range(
        &self,
        bucket: &BucketName,
        keys: std::ops::Range<Vec<u8>>,
        records_max: usize,
    ) -> Result<Vec<(ObjectKey, Held)>, Error> {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        self.0.range(bucket, keys, records_max).await
    }

    async fn queue(
        &self,
        queue: Queue,
        after: Option<&Queued>,
        places_max: usize,
    ) -> Result<Vec<Queued>, Error> {
        self.0.queue(queue, after, places_max).await
    }

    async fn totals(&self) -> Result<Totals, Error> {
        self.0.totals().await
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error> {
        self.0.lease(name, holder, time).await
    }

    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error> {
        self.0.renew(lease, time).await
    }

    async fn release(&self, lease: Lease) -> Result<(), Error> {
        self.0.release(lease).await
    }

    fn durability(&self) -> HotDurability {
        self.0.durability()
    }
}
