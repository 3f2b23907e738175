//! What an operator asks a tier and orders, as `forebay admin tier` and the probes do.

use std::{sync::Arc, time::Duration};

use forebay_native::hot::{
    Holding, HotBytes, HotDurability, HotKey, Queue, Queued, Swapped, Totals, Want,
};
use forebay_s3::bucket::BucketName;
use forebay_store::Error;

use crate::{
    ledger,
    mover::{self, Mover, Turn, Urgency},
    settings::OnStop,
    tier::{Level, Tier},
};

/// Most objects that are told at once.
const LISTED_MAX: usize = 1000;
/// Time between two looks while an order waits for the mover.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A handle for whoever operates a tier.
#[derive(Clone)]
pub struct TierOperator {
    tier: Arc<Tier>,
    mover: Arc<Mover>,
}

/// How a tier stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// What the cold store lacks.
    pub totals: Totals,
    /// Bytes that it may lack.
    pub dirty_bytes_max: u64,
    /// How full that is.
    pub level: Level,
    /// Age of the oldest object or delete that it lacks.
    pub oldest_dirty: Option<Duration>,
    /// Whether everything is being moved and nothing new taken.
    pub is_draining: bool,
    /// What an acknowledged object survives.
    pub durability: HotDurability,
}

/// Which objects are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All.
    All,
    /// Those of a bucket.
    Bucket(BucketName),
    /// Those of a bucket whose keys begin so.
    Prefix(BucketName, String),
}

impl Selection {
    /// Whether a key is meant.
    pub fn includes(&self, key: &HotKey) -> bool {
        match self {
            Self::All => true,
            Self::Bucket(bucket) => key.bucket == *bucket,
            Self::Prefix(bucket, prefix) => {
                key.bucket == *bucket && key.key.as_str().starts_with(prefix.as_str())
            }
        }
    }
}

/// Something that the cold store lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// The key.
    pub key: HotKey,
    /// What it is.
    pub kind: DirtyKind,
    /// Since it was acknowledged.
    pub age: Duration,
}

/// What the cold store lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirtyKind {
    /// An object of so many bytes.
    Object {
        /// Its size.
        size_bytes: u64,
    },
    /// A delete.
    Tombstone,
    /// An object whose key somebody else has written.
    Conflict {
        /// Its size.
        size_bytes: u64,
        /// Its tag.
        etag: String,
        /// The tag of what is in the cold store.
        found: String,
    },
}

/// Why a gateway is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the oldest dirty object is {age:?} old, at most {age_max:?} is allowed")]
pub struct NotReady {
    /// Age of the oldest.
    pub age: Duration,
    /// The limit.
    pub age_max: Duration,
}

impl TierOperator {
    pub(crate) fn new(tier: Arc<Tier>, mover: Arc<Mover>) -> Self {
        Self { tier, mover }
    }

    /// How the tier stands.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn status(&self) -> Result<Status, Error> {
        let tier = &self.tier;
        let totals = tier.hot.totals().await?;
        tier.counted(&totals);
        Ok(Status {
            totals,
            dirty_bytes_max: tier.settings.dirty_bytes_max,
            level: tier.level(0),
            oldest_dirty: mover::oldest_dirty(tier).await?,
            is_draining: tier.is_draining(),
            durability: tier.hot.durability(),
        })
    }

    /// Whether the cold store lacks anything, so that the tier must not be taken away.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn has_dirty(&self) -> Result<bool, Error> {
        Ok(!self.tier.hot.totals().await?.is_clean())
    }

    /// Whether the oldest dirty object is young enough.
    ///
    /// # Errors
    /// [`NotReady`]; a hot store that can't be asked counts as ready, as every gateway would leave
    /// its load balancer at once otherwise.
    pub async fn readiness(&self) -> Result<(), NotReady> {
        let age_max = self.tier.settings.oldest_dirty_max;
        match mover::oldest_dirty(&self.tier).await {
            Ok(Some(age)) if age > age_max => Err(NotReady { age, age_max }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// What the cold store lacks, 1000 at most, conflicts first, then deletes, then
    /// objects from the oldest on.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn list(&self, selection: &Selection, count_max: usize) -> Result<Vec<Dirty>, Error> {
        let mut listed = Vec::new();
        for queue in [Queue::Conflicts, Queue::Prompt, Queue::Aging] {
            self.list_queue(queue, selection, count_max, &mut listed)
                .await?;
        }
        Ok(listed)
    }

    /// Objects whose key somebody else has written, 1000 at most.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn conflicts(&self, count_max: usize) -> Result<Vec<Dirty>, Error> {
        let mut listed = Vec::new();
        self.list_queue(Queue::Conflicts, &Selection::All, count_max, &mut listed)
            .await?;
        Ok(listed)
    }

    async fn list_queue(
        &self,
        queue: Queue,
        selection: &Selection,
        count_max: usize,
        listed: &mut Vec<Dirty>,
    ) -> Result<(), Error> {
        let count_max = count_max.min(LISTED_MAX);
        let mut after: Option<Queued> = None;
        while listed.len() < count_max {
            let places = self
                .tier
                .hot
                .queue(queue, after.as_ref(), LISTED_MAX)
                .await?;
            let Some(last) = places.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for place in places.iter().filter(|place| selection.includes(&place.key)) {
                if listed.len() == count_max {
                    break;
                }
                listed.extend(self.look(&place.key).await?);
            }
        }
        Ok(())
    }

    async fn look(&self, key: &HotKey) -> Result<Option<Dirty>, Error> {
        let Some(held) = self.tier.hot.get(key, Want::Value).await? else {
            return Ok(None);
        };
        let kind = match &held.record.holding {
            Holding::Dirty(record) => DirtyKind::Object {
                size_bytes: record.size_bytes,
            },
            Holding::Conflict { record, found } => DirtyKind::Conflict {
                size_bytes: record.size_bytes,
                etag: record.etag.to_string(),
                found: found.clone(),
            },
            Holding::Tombstone => DirtyKind::Tombstone,
            Holding::Buried(_) | Holding::Settling(_) => return Ok(None),
        };
        let age_ms = self.tier.cold.now_ms() - held.record.acknowledged_ms;
        Ok(Some(Dirty {
            key: key.clone(),
            kind,
            age: Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)),
        }))
    }

    /// Moves what is dirty now, by this gateway, whoever has the lease; what could not be moved is
    /// told.
    ///
    /// # Errors
    /// The hot store's own.
    ///
    /// # Cancel safety
    /// A dropped future leaves the rest to the mover.
    pub async fn flush(&self) -> Result<Turn, Error> {
        let until_ms = self.tier.cold.now_ms();
        self.mover.forget_waits();
        self.mover.sweep(Urgency::All(until_ms)).await
    }

    /// Moves what is dirty now, again and again until nothing of it is left or the time is over;
    /// whether nothing is. Conflicts wait for an operator, so they do not count.
    ///
    /// # Errors
    /// The hot store's own.
    ///
    /// # Cancel safety
    /// As [`TierOperator::flush`].
    pub async fn flush_and_wait(&self, time_max: Duration) -> Result<bool, Error> {
        let until_ms = self.tier.cold.now_ms();
        let deadline = self.tier.clock.now() + time_max;
        loop {
            self.mover.forget_waits();
            let turn = self.mover.sweep(Urgency::All(until_ms)).await?;
            if self.is_flushed(until_ms).await? {
                return Ok(true);
            }
            if self.tier.clock.now() >= deadline {
                return Ok(false);
            }
            if turn.done_count == 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    async fn is_flushed(&self, until_ms: i64) -> Result<bool, Error> {
        for queue in [Queue::Prompt, Queue::Aging] {
            let first = self.tier.hot.queue(queue, None, 1).await?;
            if first.first().is_some_and(|place| place.at_ms <= until_ms) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes nothing new and moves everything, until nothing is left or the time is over; whether
    /// nothing is. Writes go to the cold store from now on, until [`TierOperator::resume`].
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn drain(&self, time_max: Duration) -> Result<bool, Error> {
        self.tier.start_draining();
        self.flush_and_wait(time_max).await
    }

    /// Takes new objects again.
    pub fn resume(&self) {
        self.tier.stop_draining();
    }

    /// Ends the tier's work as it is set: moves what is dirty, or leaves it; then another gateway
    /// may move. Whether nothing dirty is left behind that was to be moved.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn stop(&self, time_max: Duration) -> Result<bool, Error> {
        let is_done = match self.tier.settings.on_stop {
            OnStop::Leave => true,
            OnStop::Drain => self.drain(time_max).await?,
        };
        self.mover.release().await?;
        Ok(is_done)
    }

    /// Lets our object of a conflict replace what is in the cold store; whether there was one.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn retry(&self, key: &HotKey) -> Result<bool, Error> {
        self.decide(key, Decision::Ours).await
    }

    /// Gives our object of a conflict up for what is in the cold store; whether there was one.
    ///
    /// # Errors
    /// The hot store's own.
    pub async fn discard(&self, key: &HotKey) -> Result<bool, Error> {
        self.decide(key, Decision::Theirs).await
    }

    async fn decide(&self, key: &HotKey, decision: Decision) -> Result<bool, Error> {
        let tier = &self.tier;
        let Some(held) = tier.hot.get(key, Want::Value).await? else {
            return Ok(false);
        };
        let Holding::Conflict { record, .. } = &held.record.holding else {
            return Ok(false);
        };
        let now_ms = tier.cold.now_ms();
        let (holding, bytes) = match decision {
            Decision::Ours => (Holding::Dirty(record.clone()), HotBytes::Kept),
            Decision::Theirs => (Holding::Settling(now_ms + tier.settle_ms()), HotBytes::None),
        };
        let mut next = ledger::after(Some(&held.record), tier.next_write(), now_ms, holding);
        if decision == Decision::Ours {
            // Its own tag never was in the cold store, so there is nothing to wait for.
            let own = record.etag.to_string();
            next.known.retain(|etag| *etag != own);
        }
        let swapped = tier.swap(key, Some(&held), Some((next, bytes))).await?;
        self.tier.wake.notify_one();
        Ok(matches!(swapped, Swapped::Done(_)))
    }
}

/// Whose object stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Ours,
    Theirs,
}
