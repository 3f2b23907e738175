//! The tiers and logs of a gateway, by name, and their work beside all requests.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_log::LogParts;
use forebay_redis::RedisStore;
use forebay_tier::{Mover, TierOperator};
use tokio::task::JoinHandle;

/// A tier of one route.
#[derive(Clone)]
pub struct Tier {
    /// Its name: the index of its route, as in metrics.
    pub name: String,
    /// Name of the hot store.
    pub hot: String,
    /// Where its records are there.
    pub space: String,
    /// Name of the cold store.
    pub cold: String,
    /// Patterns of buckets that lead to it.
    pub buckets: Vec<String>,
    /// What is asked of it and ordered.
    pub operator: TierOperator,
    /// What moves its objects.
    pub mover: Arc<Mover>,
}

/// A log.
#[derive(Clone)]
pub struct Log {
    /// Name of the store.
    pub name: String,
    /// The log.
    pub parts: LogParts,
}

/// How often what died writers left in Redis is removed: it costs a look at each entry with a large
/// payload, and what is left of a write is a few megabytes. A guess.
const SWEEP_EVERY: Duration = Duration::from_hours(6);

/// All tiers, and the engines among the stores.
#[derive(Clone, Default)]
pub struct Tiers {
    /// In the order of their routes.
    pub list: Vec<Tier>,
    /// By name.
    pub logs: Vec<Log>,
    /// Each Redis, with the name under which this life of this gateway is known there.
    pub shared: Vec<(Arc<RedisStore>, Bytes)>,
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers: Vec<_> = self.list.iter().map(|tier| &tier.name).collect();
        let logs: Vec<_> = self.logs.iter().map(|log| &log.name).collect();
        f.debug_struct("Tiers")
            .field("list", &tiers)
            .field("logs", &logs)
            .finish_non_exhaustive()
    }
}

impl Tiers {
    /// Has all of them move what is due, and sweeps what is shared, on this runtime.
    pub(super) fn start(&self) -> impl Iterator<Item = JoinHandle<()>> {
        let movers = self.list.iter().map(|tier| {
            let mover = Arc::clone(&tier.mover);
            tokio::spawn(async move { mover.run().await })
        });
        let sweepers = self.shared.iter().cloned();
        let sweepers = sweepers.map(|(store, holder)| tokio::spawn(sweep_for_ever(store, holder)));
        movers.chain(sweepers)
    }

    /// Ends their work as each is set: moves what is dirty, for so long at most, or leaves it.
    ///
    /// # Cancel safety
    /// A dropped future leaves in the hot stores what had not been moved.
    pub(super) async fn stop(&self, time_max: Duration) {
        for tier in &self.list {
            match tier.operator.stop(time_max).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(
                    tier = tier.name,
                    "not everything was moved in time; the next start goes on with it"
                ),
                Err(error) => tracing::warn!(tier = tier.name, %error, "tier did not stop well"),
            }
        }
    }

    /// Writes down what the logs keep in memory; to be called when nobody uses them any more.
    pub async fn close(&self) {
        for log in &self.logs {
            log.parts.close().await;
        }
    }

    /// What is too old, if anything is.
    pub(super) async fn late(&self) -> Option<String> {
        for tier in &self.list {
            if let Err(late) = tier.operator.readiness().await {
                return Some(format!("tier {}: {late}\n", tier.name));
            }
        }
        None
    }
}

async fn sweep_for_ever(store: Arc<RedisStore>, holder: Bytes) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match store.engine().sweep(&holder).await {
            Ok(Some(count)) if count > 0 => tracing::info!(count, "swept large payloads"),
            Ok(Some(_) | None) => {}
            Err(error) => tracing::warn!(%error, "sweep of large payloads broke off"),
        }
    }
}
