//! The mirror as a whole, over members in memory.

use std::{sync::Arc, time::Duration};

use forebay_native::{
    MemoryStore,
    hot::{HotDurability, HotKey, Parts},
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_s3::time;
use forebay_store::{
    Budget, Clock, Store,
    contract::{
        self,
        requests::{create_bucket, object},
    },
};
use forebay_telemetry::mirror::MirrorMetrics;

use crate::{Gateways, MirrorParts, MirrorSettings, MirrorStore, Space};

mod model;
mod traps;

/// Members, a journal and a clock, for any number of lives of a gateway.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) homes: Vec<Arc<MemoryStore>>,
    pub(crate) journal: Parts,
}

impl World {
    pub(crate) fn new(count: usize) -> Self {
        let clock = Clock::manual(time::system_time(1_700_000_000));
        let home = || Arc::new(MemoryStore::new(clock.clone()));
        Self {
            homes: (0..count).map(|_| home()).collect(),
            journal: Parts {
                index: Arc::new(MemoryIndex::new()),
                blobs: Arc::new(MemoryBlobs::new()),
                leases: Arc::new(MemoryLeases::new(clock.clone())),
                durability: HotDurability::Local,
            },
            clock,
        }
    }

    /// The same with the bucket `bucket` in each member.
    pub(crate) async fn with_bucket(count: usize) -> Self {
        let world = Self::new(count);
        for home in &world.homes {
            create_bucket("bucket").expect(200, &**home).await;
        }
        world
    }

    /// A gateway before the members themselves.
    pub(crate) fn gateway(&self, settings: MirrorSettings) -> MirrorStore {
        let members = self
            .homes
            .iter()
            .map(|home| Arc::clone(home) as Arc<dyn Store>);
        self.gateway_before(members.collect(), settings, (Gateways::One, "g1"))
    }

    /// A gateway before these.
    pub(crate) fn gateway_before(
        &self,
        members: Vec<Arc<dyn Store>>,
        settings: MirrorSettings,
        (gateways, holder): (Gateways, &str),
    ) -> MirrorStore {
        let named = members.into_iter().enumerate();
        let parts = MirrorParts {
            members: named.map(|(at, store)| (format!("m{at}"), store)).collect(),
            journal: self.journal.clone(),
            space: Space::parse("test").unwrap(),
            gateways,
            clock: self.clock.clone(),
            budget: Budget::new(64 << 20, Duration::ZERO),
            metrics: MirrorMetrics::new(),
            holder: holder.to_owned(),
        };
        MirrorStore::new(parts, settings)
    }

    /// Lets the clock follow tokio's, until it is dropped.
    pub(crate) fn ticking(&self) -> Ticking {
        let clock = self.clock.clone();
        Ticking(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                clock.advance(Duration::from_millis(20));
            }
        }))
    }
}

/// See [`World::ticking`].
pub(crate) struct Ticking(tokio::task::JoinHandle<()>);

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn key(name: &str) -> HotKey {
    HotKey::from(&object("bucket", name))
}

#[tokio::test]
async fn a_mirror_passes_the_contract_of_stores() {
    for gateways in [Gateways::One, Gateways::Many] {
        let world = World::new(3);
        let members = world
            .homes
            .iter()
            .map(|home| Arc::clone(home) as Arc<dyn Store>);
        let settings = MirrorSettings::default();
        let mirror = world.gateway_before(members.collect(), settings, (gateways, "g1"));
        let store: Arc<dyn Store> = Arc::new(mirror);
        contract::check(async || Arc::clone(&store)).await;
    }
}
