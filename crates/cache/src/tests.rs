//! The layer as a whole, over the memory store.

mod coherence;
mod exclusive;
mod extents;
mod fills;
mod model;
mod operate;
mod origin;
mod origins;
mod reads;
mod rooms;
mod rules;
mod schedules;
mod stale;
mod strict;
mod threads;
mod writes;

use std::sync::Arc;

use forebay_native::MemoryStore;
use forebay_store::{Clock, Store, contract};

use crate::{CacheLayer, CacheSettings, PageBytes};
use origin::{Setup, settings};

#[tokio::test]
async fn the_layer_keeps_the_contract_of_stores() {
    contract::check(async || {
        let settings = CacheSettings {
            page_bytes: PageBytes::MIN,
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
