//! Tells other gateways of one write.

use std::{mem, sync::Arc, time::Duration};

use forebay_store::{Error, changes::Changes};
use forebay_telemetry::cache::{Telling, Untold};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{changed, later::LATER_MS};
use crate::{index::Written, layer::Layer};

/// How long a client waits for others to be told. A guess: far longer than an engine takes that
/// works at all, and no longer than clients bear of a write.
pub(crate) const TELL_TIME_MAX: Duration = Duration::from_secs(1);
/// Changes of one write that are told side by side: a `DeleteObjects` has a thousand, and is told
/// in 16 round trips.
const TELLS_MAX: usize = 64;

/// What others are told of a write. What of it was not told when it is dropped is told later.
pub(crate) struct Told {
    layer: Arc<Layer>,
    left: Vec<Option<Written>>,
    /// When to try again what is left.
    again_ms: i64,
}

impl Told {
    /// What may have changed by a write that is done.
    pub(crate) fn new(layer: &Arc<Layer>, written: Vec<Written>) -> Self {
        Self {
            layer: Arc::clone(layer),
            left: written.into_iter().map(Some).collect(),
            again_ms: layer.now_ms(),
        }
    }

    /// Tells, for [`TELL_TIME_MAX`] at most.
    ///
    /// # Cancel safety
    /// A dropped future leaves what is not told to be told later.
    pub(crate) async fn send(mut self) {
        let layer = Arc::clone(&self.layer);
        let Some(changes) = layer.others.changes.get() else {
            return;
        };
        if self.left.is_empty() {
            return;
        }
        let metrics = &layer.metrics.changes;
        if layer.others.later.is_behind() {
            self.again_ms = layer.now_ms() + LATER_MS;
            self.count_left(Untold::NotTried);
            return;
        }
        let told = tell_all(changes, &mut self.left, |result| match result {
            Ok(()) => metrics.told(Telling::Written),
            Err(_) => metrics.untold(Untold::Error),
        });
        let in_time = tokio::time::timeout(TELL_TIME_MAX, told).await;
        if in_time.is_err() {
            self.count_left(Untold::Timeout);
        }
        if self
            .left
            .iter()
            .flatten()
            .any(|written| changed(written).is_some())
        {
            layer.others.later.falls_behind();
        }
        self.again_ms = layer.now_ms() + LATER_MS;
    }

    fn count_left(&self, untold: Untold) {
        let left = self.left.iter().flatten();
        left.for_each(|_| self.layer.metrics.changes.untold(untold));
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        for written in mem::take(&mut self.left).into_iter().flatten() {
            self.layer
                .others
                .later
                .owe(&self.layer, written, self.again_ms);
        }
    }
}

/// Tells all, some at a time, and takes out what was told, and what can't be; after a failure no
/// more are begun.
pub(super) async fn tell_all(
    changes: &Arc<dyn Changes>,
    left: &mut [Option<Written>],
    count: impl Fn(&Result<(), Error>),
) {
    let (mut under_way, mut next, mut has_failed) = (FuturesUnordered::new(), 0, false);
    loop {
        while next < left.len() && under_way.len() < TELLS_MAX && !has_failed {
            let index = next;
            next += 1;
            if let Some(changed) = left[index].as_ref().and_then(changed) {
                let changes = Arc::clone(changes);
                under_way.push(async move { (index, changes.tell(changed).await) });
            }
        }
        let Some((index, told)) = under_way.next().await else {
            return;
        };
        count(&told);
        match told {
            Ok(()) => left[index] = None,
            Err(error) => {
                tracing::debug!(%error, "other gateways were not told of a change");
                has_failed = true;
            }
        }
    }
}
