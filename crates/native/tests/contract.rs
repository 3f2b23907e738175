//! The memory store keeps the contract of every store.

use std::sync::Arc;

use forebay_native::MemoryStore;
use forebay_store::{Clock, Store, contract};

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::system()));
    contract::check(async || Arc::clone(&store)).await;
}
