//! A directory keeps the contract of every store, wherever its records are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use forebay_fs::{Durability, FsSettings, FsStore, RecordPlace};
use forebay_store::{Clock, Store, contract};

async fn check(records: RecordPlace) {
    let root = tempfile::tempdir().unwrap();
    let settings = FsSettings {
        records,
        durability: Durability::None,
        ..FsSettings::new(root.path())
    };
    let store: Arc<dyn Store> = Arc::new(FsStore::open(settings, Clock::system()).unwrap());
    contract::check(async || Arc::clone(&store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_with_attributes_keeps_the_contract() {
    check(RecordPlace::Attribute).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_with_sidecars_keeps_the_contract() {
    check(RecordPlace::Sidecar).await;
}
