//! The log as an [`Index`].

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Entry, Index, Route, Want};
use forebay_store::Error;
use tokio::sync::oneshot;

use crate::{
    group::Work,
    log::{Job, Log, NotQueued, closed, slow_down},
    reads,
    store::Opened,
};

/// Bytes of one batch: it is put together in memory.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Entries in a log; durable once `apply` has returned, on the disk of this machine.
#[derive(Debug, Clone)]
pub struct LogIndex {
    opened: Arc<Opened>,
}

impl LogIndex {
    pub(crate) fn new(opened: Arc<Opened>) -> Self {
        Self { opened }
    }

    fn log(&self) -> &Arc<Log> {
        self.opened.log()
    }
}

#[async_trait]
impl Index for LogIndex {
    async fn get(&self, _route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
        reads::get(self.log(), name, want).await
    }

    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error> {
        reads::range(self.log(), names, entries_max).await
    }

    async fn apply(&self, _route: &Route, batch: Batch) -> Result<Applied, Error> {
        let log = self.log();
        batch.check(self.payload_bytes_max())?;
        log.check_poison()?;
        let work = Work::new(batch);
        if work.bytes_max > BATCH_BYTES_MAX {
            let told = format!("{} bytes, at most {BATCH_BYTES_MAX}", work.bytes_max);
            return Err(Error::internal("apply a batch", told));
        }
        let (reply, answer) = oneshot::channel();
        match log.queue.push(Job::Apply(work, reply)) {
            Ok(()) => {}
            Err(NotQueued::Full) => {
                log.metrics.refused.queue.inc();
                return Err(slow_down());
            }
            Err(NotQueued::Closed) => return Err(closed()),
        }
        // The committer answers all that it takes, unless its thread has died.
        answer.await.unwrap_or(Err(Error::Indeterminate {
            elapsed: Duration::ZERO,
        }))
    }

    async fn counter(&self, counter: &[u8]) -> Result<i64, Error> {
        Ok(self.log().map.read().counter(counter))
    }

    fn payload_bytes_max(&self) -> usize {
        self.log().settings.payload_bytes_max
    }
}
