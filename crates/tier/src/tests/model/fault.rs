//! A cold store that is slow, fails, carries requests out without an answer, or carries them out
//! long after it gave up on them.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use forebay_s3::operation::Effect;
use forebay_store::{Error, Request, Response};

use super::super::*;

/// See the module.
pub(super) struct Unreliable {
    cold: Arc<ColdStore>,
    rng: Mutex<fastrand::Rng>,
    is_healed: AtomicBool,
}

impl Unreliable {
    pub(super) fn new(cold: Arc<ColdStore>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            cold,
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            is_healed: AtomicBool::new(false),
        })
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
    }

    fn roll(&self, below: u64) -> u64 {
        self.rng.lock().unwrap().u64(..below)
    }
}

/// The outcome that nobody knows.
fn unknown() -> Error {
    Error::Indeterminate {
        elapsed: Duration::ZERO,
    }
}

/// A request whose body is here, as it is for a store that has taken it all in.
async fn taken(mut request: Request) -> Result<Request, Error> {
    let body = std::mem::take(&mut request.body);
    let (bytes, _) = body.collect(usize::MAX).await?;
    request.body = bytes.into();
    Ok(request)
}

#[async_trait]
impl Store for Unreliable {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        if self.is_healed.load(Ordering::Relaxed) {
            return self.cold.call(request).await;
        }
        let writes = request.operation.name().effect() == Effect::Write;
        tokio::time::sleep(Duration::from_millis(self.roll(50))).await;
        match (self.roll(24), writes) {
            (0, _) => Err(Error::Unavailable {
                reason: "injected".into(),
            }),
            (1, _) => Err(Error::SlowDown { retry_after: None }),
            // Longer than a lease lasts.
            (2, _) => {
                tokio::time::sleep(Duration::from_millis(self.roll(25_000))).await;
                self.cold.call(request).await
            }
            // Done, and not said.
            (3, true) => {
                let _ = self.cold.call(request).await;
                Err(unknown())
            }
            // Done later, but within the time in which writes may arrive.
            (4, true) => {
                let (cold, late) = (Arc::clone(&self.cold), self.roll(25_000));
                let request = taken(request).await?;
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(late)).await;
                    let _ = cold.call(request).await;
                });
                Err(unknown())
            }
            _ => {
                let answer = self.cold.call(request).await;
                tokio::time::sleep(Duration::from_millis(self.roll(50))).await;
                answer
            }
        }
    }
}
