//! A member that is slow, out, fails, or carries requests out without an answer.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use forebay_s3::operation::Effect;
use forebay_store::{Error, Request, Response};
use http::StatusCode;

use super::super::*;

/// See the module.
pub(super) struct Unreliable {
    home: Arc<MemoryStore>,
    rng: Mutex<fastrand::Rng>,
    is_out: AtomicBool,
    is_healed: AtomicBool,
}

impl Unreliable {
    pub(super) fn new(home: Arc<MemoryStore>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            home,
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            is_out: AtomicBool::new(false),
            is_healed: AtomicBool::new(false),
        })
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
    }

    /// Out from now on, or back.
    pub(super) fn set_out(&self, is_out: bool) {
        self.is_out.store(is_out, Ordering::Relaxed);
    }

    fn roll(&self, below: u64) -> u64 {
        self.rng.lock().unwrap().u64(..below)
    }

    fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed) && !self.is_healed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for Unreliable {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let writes = request.operation.name().effect() == Effect::Write;
        let out = || {
            Err(Error::Unavailable {
                reason: "injected".into(),
            })
        };
        if self.is_out() {
            return out();
        }
        tokio::time::sleep(Duration::from_millis(self.roll(50))).await;
        if self.is_out() {
            return out();
        }
        let fault = if self.is_healed.load(Ordering::Relaxed) {
            u64::MAX
        } else {
            self.roll(30)
        };
        match (fault, writes) {
            (0, _) => out(),
            (1, _) => Err(Error::SlowDown { retry_after: None }),
            // It takes longer than anybody waits.
            (2, _) => {
                tokio::time::sleep(Duration::from_millis(self.roll(30_000))).await;
                self.home.call(request).await
            }
            // Done, and not said.
            (3 | 4, true) => {
                let _ = self.home.call(request).await;
                Err(Error::Indeterminate {
                    elapsed: Duration::ZERO,
                })
            }
            (5, _) => Ok(Response::new(StatusCode::INTERNAL_SERVER_ERROR)),
            _ => {
                let answer = self.home.call(request).await;
                tokio::time::sleep(Duration::from_millis(self.roll(50))).await;
                if self.is_out() && writes {
                    return Err(Error::Indeterminate {
                        elapsed: Duration::ZERO,
                    });
                }
                answer
            }
        }
    }
}
