//! What other gateways have to be told later: what could not be told when it was written, and what
//! a write of unknown outcome may still change.
//!
//! The first is tried every second until it is told. The second is told again after 1 s, and then
//! in pauses of 2 s, 4 s and so on, and at the end of the time for which it may come: so another
//! gateway knows of a late write when about as much time again has passed as it took to come.
//!
//! Units: milliseconds of the layer's clock.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use forebay_s3::bucket::BucketName;
use forebay_telemetry::cache::{Telling, Untold};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

use super::{
    changed,
    tell::{TELL_TIME_MAX, tell_all},
};
use crate::{doubts::DOUBT_MS, index::Written, layer::Layer};

/// The pause before another try, and the first one before something is told again.
pub(super) const LATER_MS: i64 = 1000;
const LATER: Duration = Duration::from_secs(1);
/// Names that wait to be told; when there are more, buckets take the place of their keys. At 1 KiB
/// each a megabyte.
const NAMES_MAX: usize = 1024;

/// Names to be told later.
#[derive(Debug, Default)]
pub(crate) struct Later {
    entries: Mutex<HashMap<Written, Entry>>,
    /// The last attempt has failed.
    is_behind: AtomicBool,
    woken: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    due_ms: i64,
    /// The others do not know of it at all.
    is_owed: bool,
    /// Between two times of telling.
    pause_ms: i64,
    /// Until then it may still change.
    doubt_until_ms: i64,
}

impl Entry {
    fn merge(&mut self, other: Self) {
        self.due_ms = self.due_ms.min(other.due_ms);
        self.is_owed |= other.is_owed;
        self.pause_ms = self.pause_ms.min(other.pause_ms);
        self.doubt_until_ms = self.doubt_until_ms.max(other.doubt_until_ms);
    }

    /// What is left to do once it was told.
    fn told(self, now_ms: i64) -> Option<Self> {
        (self.due_ms < self.doubt_until_ms && now_ms < self.doubt_until_ms).then(|| Self {
            due_ms: (now_ms + self.pause_ms).min(self.doubt_until_ms),
            is_owed: false,
            pause_ms: self.pause_ms * 2,
            doubt_until_ms: self.doubt_until_ms,
        })
    }
}

impl Later {
    /// The others have to be told of this, not before `due_ms`.
    pub(super) fn owe(&self, layer: &Layer, written: Written, due_ms: i64) {
        let entry = Entry {
            due_ms,
            is_owed: true,
            pause_ms: LATER_MS,
            doubt_until_ms: due_ms,
        };
        self.put(layer, written, entry);
    }

    /// This may change until a while from now, as the outcome of a write is not known.
    pub(crate) fn doubt(&self, layer: &Layer, written: Written) {
        let now_ms = layer.now_ms();
        let entry = Entry {
            due_ms: now_ms + LATER_MS,
            is_owed: false,
            pause_ms: 2 * LATER_MS,
            doubt_until_ms: now_ms + DOUBT_MS,
        };
        self.put(layer, written, entry);
    }

    /// Whether something could not be told, so that there is no use in waiting for more.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Something could not be told.
    pub(super) fn falls_behind(&self) {
        self.is_behind.store(true, Ordering::Release);
    }

    /// What is owed may be told from now on.
    pub(super) fn hurry(&self, now_ms: i64) {
        let mut entries = self.entries.lock();
        for entry in entries.values_mut().filter(|entry| entry.is_owed) {
            entry.due_ms = entry.due_ms.min(now_ms);
        }
        drop(entries);
        self.woken.notify_one();
    }

    fn put(&self, layer: &Layer, written: Written, entry: Entry) {
        let metrics = &layer.metrics.changes;
        if changed(&written).is_none() {
            return metrics.untold(Untold::Unnamed);
        }
        let mut entries = self.entries.lock();
        if entries.len() >= NAMES_MAX && !entries.contains_key(&written) {
            merge_keys(&mut entries);
        }
        let written = match bucket_of(&written) {
            // Its bucket stands for it already.
            Some(bucket) if entries.contains_key(&Written::Bucket(bucket.clone())) => {
                Written::Bucket(bucket.clone())
            }
            _ => written,
        };
        if entries.len() >= NAMES_MAX && !entries.contains_key(&written) {
            return metrics.untold(Untold::NoRoom);
        }
        let merged = |other: &mut Entry| other.merge(entry);
        entries.entry(written).and_modify(merged).or_insert(entry);
        drop(entries);
        self.woken.notify_one();
    }

    fn take_due(&self, now_ms: i64) -> Vec<(Written, Entry)> {
        let mut entries = self.entries.lock();
        entries
            .extract_if(|_, entry| entry.due_ms <= now_ms)
            .collect()
    }

    /// Whether there is anything that others do not know of at all.
    #[cfg(test)]
    pub(crate) fn owes(&self) -> bool {
        self.is_behind() || self.entries.lock().values().any(|entry| entry.is_owed)
    }

    fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }
}

fn bucket_of(written: &Written) -> Option<&BucketName> {
    match written {
        Written::Object(bucket, _) | Written::Bucket(bucket) => Some(bucket),
        Written::All => None,
    }
}

/// Puts buckets in the place of their keys.
fn merge_keys(entries: &mut HashMap<Written, Entry>) {
    for (written, entry) in std::mem::take(entries) {
        if let Some(bucket) = bucket_of(&written) {
            let merged = |other: &mut Entry| other.merge(entry);
            let bucket = Written::Bucket(bucket.clone());
            entries.entry(bucket).and_modify(merged).or_insert(entry);
        }
    }
}

/// Tells what is due, for as long as the layer lasts.
pub(super) async fn run(layer: Arc<Layer>) {
    let queue = &layer.others.later;
    loop {
        tokio::select! {
            () = queue.woken.notified() => {}
            () = tokio::time::sleep(LATER), if !queue.is_empty() => {}
        }
        tell_due(&layer).await;
    }
}

async fn tell_due(layer: &Layer) {
    let (queue, metrics) = (&layer.others.later, &layer.metrics.changes);
    let Some(changes) = layer.others.changes.get() else {
        return;
    };
    let (mut left, entries): (Vec<_>, Vec<_>) = queue
        .take_due(layer.now_ms())
        .into_iter()
        .map(|(written, entry)| (Some(written), entry))
        .unzip();
    if left.is_empty() {
        return;
    }
    let names = left.clone();
    let told = tell_all(changes, &mut left, |result| {
        if result.is_err() {
            metrics.untold(Untold::Error);
        }
    });
    if timeout(TELL_TIME_MAX, told).await.is_err() {
        metrics.untold(Untold::Timeout);
    }
    let is_behind = left.iter().any(Option::is_some);
    queue.is_behind.store(is_behind, Ordering::Release);
    let now_ms = layer.now_ms();
    for ((name, left), entry) in names.into_iter().zip(left).zip(entries) {
        let Some(name) = name else { continue };
        let again = if left.is_none() {
            metrics.told(if entry.is_owed {
                Telling::Late
            } else {
                Telling::Doubt
            });
            entry.told(now_ms)
        } else {
            Some(Entry {
                due_ms: now_ms + LATER_MS,
                is_owed: true,
                ..entry
            })
        };
        if let Some(again) = again {
            queue.put(layer, name, again);
        }
    }
}
