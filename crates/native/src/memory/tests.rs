//! What is in memory keeps the contracts that engines are built on.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use forebay_store::Clock;

use super::{MemoryBlobs, MemoryIndex, MemoryLeases};
use crate::contract;

#[tokio::test]
async fn the_index_keeps_the_contract() {
    contract::index(async || Arc::new(MemoryIndex::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_index_in_many_places_keeps_the_contract() {
    let places = NonZeroUsize::new(5).unwrap();
    let index = Arc::new(MemoryIndex::spread(places));
    contract::index(async || index.clone()).await;
}

#[tokio::test]
async fn the_blobs_keep_the_contract() {
    contract::blobs(async || Arc::new(MemoryBlobs::new())).await;
}

#[tokio::test]
async fn the_leases_keep_the_contract() {
    let clock = Clock::manual(UNIX_EPOCH + Duration::from_hours(1));
    contract::leases(
        async || Arc::new(MemoryLeases::new(clock.clone())),
        async |time| clock.advance(time),
    )
    .await;
}
