//! An index that can't be asked now and then, or does what it was told and does not say so.

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Entry, Index, Route, Want};
use forebay_store::Error;

use super::super::*;

/// See the module.
pub(super) struct Unreliable {
    index: MemoryIndex,
    rng: Mutex<fastrand::Rng>,
    is_healed: AtomicBool,
}

impl Unreliable {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            index: MemoryIndex::new(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            is_healed: AtomicBool::new(false),
        })
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
    }

    fn roll(&self) -> u64 {
        if self.is_healed.load(Ordering::Relaxed) {
            return u64::MAX;
        }
        self.rng.lock().unwrap().u64(..60)
    }

    fn may_read(&self) -> Result<(), Error> {
        match self.roll() {
            0 => Err(out()),
            _ => Ok(()),
        }
    }
}

fn out() -> Error {
    Error::Unavailable {
        reason: "injected".into(),
    }
}

#[async_trait]
impl Index for Unreliable {
    async fn get(&self, route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
        self.may_read()?;
        self.index.get(route, name, want).await
    }

    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error> {
        self.may_read()?;
        self.index.range(names, entries_max).await
    }

    async fn apply(&self, route: &Route, batch: Batch) -> Result<Applied, Error> {
        let unknown = || Error::Indeterminate {
            elapsed: Duration::ZERO,
        };
        match self.roll() {
            0 => Err(out()),
            1 => Err(unknown()),
            // Done, and not said.
            2 => {
                self.index.apply(route, batch).await?;
                Err(unknown())
            }
            _ => {
                // A sync takes its time, in which a gateway may end.
                tokio::time::sleep(Duration::from_millis(2)).await;
                let applied = self.index.apply(route, batch).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                applied
            }
        }
    }

    async fn counter(&self, counter: &[u8]) -> Result<i64, Error> {
        self.may_read()?;
        self.index.counter(counter).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.index.payload_bytes_max()
    }
}
