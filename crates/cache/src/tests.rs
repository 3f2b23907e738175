//! The layer as a whole, over the memory store.

mod chains;
mod coherence;
mod disk;
mod exclusive;
mod extents;
mod fills;
mod interleavings;
mod kept;
mod model;
mod negative;
mod operate;
mod origin;
mod origins;
mod others;
mod reads;
mod rooms;
mod rules;
pub(crate) mod schedules;
mod shadows;
mod stale;
mod strict;
mod threads;
mod writes;

use std::{sync::Arc, time::Duration};

use forebay_native::MemoryStore;
use forebay_store::{Clock, Store, contract};

use crate::{CacheLayer, CacheSettings, Coherence, KeptSettings, Lasting, PageBytes};
use origin::{Setup, settings};

#[tokio::test]
async fn the_layer_keeps_the_contract_of_stores() {
    contract::check(async || {
        let settings = CacheSettings {
            page_bytes: PageBytes::OF_TESTS,
            ..settings()
        };
        let memory = Arc::new(MemoryStore::new(Clock::system()));
        let cache = Setup {
            settings,
            ..Setup::default()
        }
        .over(memory);
        Arc::new(cache) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn with_all_that_can_be_kept_it_keeps_the_contract_as_well() {
    contract::check(async || {
        let keep = Lasting::For {
            ttl: Duration::from_hours(1),
            tti: None,
        };
        let settings = CacheSettings {
            coherence: Coherence::Exclusive,
            kept: KeptSettings {
                list_object_versions: keep,
                list_buckets: keep,
                ..KeptSettings::default()
            },
            ..settings()
        };
        let memory = Arc::new(MemoryStore::new(Clock::system()));
        let cache = Setup {
            settings,
            ..Setup::default()
        }
        .over(memory);
        Arc::new(cache) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn a_cache_too_small_for_anything_keeps_the_contract_as_well() {
    contract::check(async || {
        let settings = CacheSettings {
            capacity_bytes: 1000,
            ..settings()
        };
        let memory = Arc::new(MemoryStore::new(Clock::system()));
        let cache: CacheLayer = Setup {
            settings,
            ..Setup::default()
        }
        .over(memory);
        Arc::new(cache) as Arc<dyn Store>
    })
    .await;
}
