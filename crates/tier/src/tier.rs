//! What all parts of a tier share: its two stores, its settings, and how full it is.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

use bytes::Bytes;
use forebay_native::hot::{
    Held, Holding, HotBytes, HotDurability, HotKey, HotRecord, HotStore, Swap, Swapped, Totals,
    Want,
};
use forebay_store::{Budget, Clock, Error, Response, Store};
use forebay_telemetry::tier::{Saved, TierMetrics};
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Presigner, buckets::Buckets, cold::Cold, placement::TIER_HEADER, settings::TierSettings,
};

/// Keys of which it is not known what a dropped write did; past it the rest is not remembered, and
/// what such a write brings may be called a conflict.
const DOUBTS_MAX: usize = 1024;
/// The header that says where an object is safe.
const DURABILITY_HEADER: HeaderName = HeaderName::from_static("x-forebay-durability");

/// The components of a tier.
pub struct TierParts {
    /// Where small objects are first.
    pub hot: Arc<dyn HotStore>,
    /// Where all are at last.
    pub cold: Arc<dyn Store>,
    /// Makes addresses at which clients read the cold store themselves.
    pub presigner: Option<Arc<dyn Presigner>>,
    /// Tells the time.
    pub clock: Clock,
    /// Memory of bodies.
    pub budget: Budget,
    /// Counts.
    pub metrics: TierMetrics,
    /// Names this life of this gateway, like no other.
    pub holder: String,
}

/// See the module.
pub(crate) struct Tier {
    pub(crate) hot: Arc<dyn HotStore>,
    pub(crate) cold: Cold,
    pub(crate) presigner: Option<Arc<dyn Presigner>>,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    pub(crate) metrics: TierMetrics,
    pub(crate) settings: TierSettings,
    pub(crate) buckets: Buckets,
    pub(crate) holder: Bytes,
    /// Wakes the mover: there is something that does not wait for age.
    pub(crate) wake: Notify,
    /// Keys whose write past the tier was dropped before its end was known.
    pub(crate) doubts: Mutex<Vec<HotKey>>,
    writes: AtomicU64,
    /// As last counted, and what this gateway has added since.
    dirty_bytes: AtomicI64,
    draining: AtomicBool,
}

/// Which store answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hot,
    Cold,
}

/// How full the hot store is of what is dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Below half of the budget.
    Low,
    /// From half of it on: the mover does not wait for age.
    Half,
    /// From nine tenths on: writes go to the cold store.
    Full,
}

impl Tier {
    pub(crate) fn new(parts: TierParts, settings: TierSettings) -> Self {
        let TierParts {
            hot,
            cold,
            presigner,
            clock,
            budget,
            metrics,
            holder,
        } = parts;
        let dirty_bytes_max = i64::try_from(settings.dirty_bytes_max).unwrap_or(i64::MAX);
        metrics.dirty_bytes_max.set(dirty_bytes_max);
        Self {
            cold: Cold::new(cold, clock.clone(), settings.attempt_timeout),
            buckets: Buckets::new(settings.bucket_ttl),
            hot,
            presigner,
            clock,
            budget,
            metrics,
            settings,
            holder: holder.into(),
            wake: Notify::new(),
            doubts: Mutex::default(),
            writes: AtomicU64::default(),
            dirty_bytes: AtomicI64::default(),
            draining: AtomicBool::default(),
        }
    }

    pub(crate) fn settle_ms(&self) -> i64 {
        i64::try_from(self.settings.settle.as_millis()).unwrap_or(i64::MAX / 4)
    }

    /// A name for a write, like no other.
    pub(crate) fn next_write(&self) -> String {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", String::from_utf8_lossy(&self.holder))
    }

    /// The record of a key.
    ///
    /// # Errors
    /// `Unavailable` when the hot store can't tell: nobody knows then what the key holds.
    pub(crate) async fn held(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error> {
        self.hot
            .get(key, want)
            .await
            .map_err(|error| self.hot_failed(&error))
    }

    /// What a client is told when the hot store fails: to come again.
    pub(crate) fn hot_failed(&self, error: &Error) -> Error {
        self.metrics.hot_errors.inc();
        match error {
            Error::SlowDown { retry_after } => Error::SlowDown {
                retry_after: *retry_after,
            },
            Error::Indeterminate { elapsed } => Error::Indeterminate { elapsed: *elapsed },
            Error::Unavailable { .. }
            | Error::Refused(_)
            | Error::Cut { .. }
            | Error::ClientGone
            | Error::Internal { .. } => {
                tracing::warn!(%error, "the hot store failed");
                Error::Unavailable {
                    reason: "the hot store can't be asked".into(),
                }
            }
        }
    }

    /// Changes a record, and counts what it adds; after an unknown outcome it looks what happened.
    ///
    /// # Errors
    /// The hot store's own, with `Indeterminate` only when looking does not tell.
    pub(crate) async fn swap(
        &self,
        key: &HotKey,
        from: Option<&Held>,
        to: Option<(HotRecord, HotBytes)>,
    ) -> Result<Swapped, Error> {
        let size = |record: Option<&HotRecord>| {
            let object = record.and_then(|record| record.holding.record());
            object.map_or(0, |object| i64::try_from(object.size_bytes).unwrap_or(0))
        };
        let record = to.as_ref().map(|(record, _)| record.clone());
        let grown = size(record.as_ref()) - size(from.map(|held| &held.record));
        let swapped = match self.hot.swap(Swap { key, from, to }).await {
            Err(Error::Indeterminate { elapsed }) => match self.hot.get(key, Want::Value).await {
                Ok(now) if now.as_ref().map(|held| &held.record) == record.as_ref() => {
                    let sequence = now.map_or(forebay_native::hot::Sequence(0), |h| h.sequence);
                    Ok(Swapped::Done(sequence))
                }
                Ok(_) | Err(_) => Err(Error::Indeterminate { elapsed }),
            },
            other => other,
        };
        if let Ok(Swapped::Done(_)) = swapped {
            self.dirty_bytes.fetch_add(grown, Ordering::Relaxed);
        }
        swapped
    }

    /// Takes in what the hot store counts.
    pub(crate) fn counted(&self, totals: &Totals) {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.dirty_bytes
            .store(signed(totals.dirty_bytes), Ordering::Relaxed);
        let metrics = &self.metrics;
        metrics.dirty_bytes.set(signed(totals.dirty_bytes));
        metrics.dirty_objects.set(signed(totals.dirty_count));
        metrics.tombstones.set(signed(totals.tombstones_count));
        metrics.conflicts.set(signed(totals.conflicts_count));
    }

    /// How full the hot store is, and would be with so much more.
    pub(crate) fn level(&self, more_bytes: u64) -> Level {
        let dirty = u64::try_from(self.dirty_bytes.load(Ordering::Relaxed)).unwrap_or(0);
        let (dirty, max) = (
            dirty.saturating_add(more_bytes),
            self.settings.dirty_bytes_max,
        );
        if dirty > max / 10 * 9 {
            Level::Full
        } else if dirty >= max / 2 {
            Level::Half
        } else {
            Level::Low
        }
    }

    /// Whether a record that was just written is something for the mover now: it looks each second
    /// for what comes due by age.
    pub(crate) fn is_due(&self, holding: &Holding) -> bool {
        match holding {
            Holding::Tombstone => true,
            Holding::Dirty(_) => {
                self.settings.demote_after.is_zero() || self.level(0) >= Level::Half
            }
            Holding::Conflict { .. } | Holding::Buried(_) | Holding::Settling(_) => false,
        }
    }

    /// Whether everything is to be moved, and nothing new to be taken.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Begins to drain.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Takes new objects again.
    pub(crate) fn stop_draining(&self) {
        self.draining.store(false, Ordering::Relaxed);
    }

    /// Remembers that nobody knows what a write of this key did.
    pub(crate) fn doubt(&self, key: HotKey) {
        let mut doubts = self.doubts.lock();
        if doubts.len() < DOUBTS_MAX && !doubts.contains(&key) {
            doubts.push(key);
        }
    }

    /// Says in an answer which store it is from, and where the object is safe.
    pub(crate) fn tell(&self, side: Side, mut response: Response) -> Response {
        let (tier, durability) = match (side, self.hot.durability()) {
            (Side::Cold, _) => ("cold", "origin"),
            (Side::Hot, HotDurability::Volatile) => ("hot", "volatile"),
            (Side::Hot, HotDurability::Local) => ("hot", "hot-local"),
            (Side::Hot, HotDurability::Replicated) => ("hot", "hot-replicated"),
        };
        let headers = &mut response.headers;
        headers.insert(
            HeaderName::from_static(TIER_HEADER),
            HeaderValue::from_static(tier),
        );
        headers.insert(DURABILITY_HEADER, HeaderValue::from_static(durability));
        response
    }

    /// Counts an answer that the cold store was not asked for.
    pub(crate) fn saved(&self, effect: Saved) {
        self.metrics.saved(effect);
    }
}
