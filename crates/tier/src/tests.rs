//! The layer as a whole, over a hot store and a cold one in memory.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use forebay_native::{
    MemoryStore,
    hot::{HotDurability, HotKey, IndexedHot, Parts, Space},
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_s3::time;
use forebay_store::{
    Budget, Clock, Store,
    contract::{
        self,
        requests::{create_bucket, object},
    },
    faulty::Faulty,
};
use forebay_telemetry::tier::TierMetrics;

use crate::{TierLayer, TierParts, TierSettings};

mod degraded;
mod model;
mod operations;
pub(crate) mod scene;
mod traps;

pub(crate) type ColdStore = Faulty<MemoryStore>;

/// Two stores and a clock, for any number of gateways.
pub(crate) struct Rig {
    pub(crate) clock: Clock,
    pub(crate) cold: Arc<ColdStore>,
    pub(crate) parts: Parts,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Clock::manual(time::system_time(1_700_000_000)))
    }

    /// The same by a clock of others.
    pub(crate) fn with(clock: Clock) -> Self {
        Self {
            cold: Arc::new(Faulty::new(MemoryStore::new(clock.clone()))),
            parts: Parts {
                // As it is on several servers.
                index: Arc::new(MemoryIndex::spread(NonZeroUsize::new(3).unwrap())),
                blobs: Arc::new(MemoryBlobs::new()),
                leases: Arc::new(MemoryLeases::new(clock.clone())),
                durability: HotDurability::Local,
            },
            clock,
        }
    }

    /// A gateway of this name.
    pub(crate) fn gateway(&self, holder: &str, settings: TierSettings) -> TierLayer {
        self.gateway_before(holder, settings, self.cold.clone())
    }

    /// A gateway before another cold store.
    pub(crate) fn gateway_before(
        &self,
        holder: &str,
        settings: TierSettings,
        cold: Arc<dyn Store>,
    ) -> TierLayer {
        let hot = IndexedHot::new(self.parts.clone(), Space::parse("test").unwrap());
        self.gateway_over(holder, settings, (Arc::new(hot), cold))
    }

    /// A gateway over these two stores.
    pub(crate) fn gateway_over(
        &self,
        holder: &str,
        settings: TierSettings,
        (hot, cold): (Arc<dyn crate::HotStore>, Arc<dyn Store>),
    ) -> TierLayer {
        let parts = TierParts {
            hot,
            cold,
            presigner: None,
            clock: self.clock.clone(),
            budget: Budget::new(64 << 20, Duration::ZERO),
            metrics: TierMetrics::new(),
            holder: holder.to_owned(),
        };
        TierLayer::new(parts, settings)
    }

    /// A gateway with the defaults, and a bucket named `bucket`.
    pub(crate) async fn with_bucket() -> (Self, TierLayer) {
        let rig = Self::new();
        create_bucket("bucket").expect(200, &*rig.cold).await;
        let layer = rig.gateway("g1", TierSettings::default());
        (rig, layer)
    }

    /// Lets some time pass.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

pub(crate) fn key(name: &str) -> HotKey {
    HotKey::from(&object("bucket", name))
}

#[tokio::test]
async fn the_tier_passes_the_contract_of_stores() {
    let rig = Rig::new();
    let layer: Arc<dyn Store> = Arc::new(rig.gateway("g1", TierSettings::default()));
    contract::check(async || Arc::clone(&layer)).await;
}

/// Goal: what the mover does under the requests changes no answer.
/// Method: the contract suite while every object is moved at once.
#[tokio::test]
async fn the_tier_passes_the_contract_while_everything_is_moved_at_once() {
    let rig = Rig::new();
    let settings = TierSettings {
        demote_after: Duration::ZERO,
        settle: Duration::ZERO,
        ..TierSettings::default()
    };
    let layer = Arc::new(rig.gateway("g1", settings));
    let mover = layer.mover();
    let moving = tokio::spawn(async move {
        loop {
            mover.turn().await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let store: Arc<dyn Store> = layer;
    contract::check(async || Arc::clone(&store)).await;
    moving.abort();
}
