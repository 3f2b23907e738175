//! Tests of the whole store, most of them on a simulated disk.

mod crash;
mod faults;
mod folders;
mod model;
mod rooms;

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use forebay_store::Clock;
use forebay_telemetry::disk::DiskMetrics;

use crate::{DiskPages, DiskSettings, PageId, contract, device::Device, memory::MemoryPages, sim};

/// Segments are of 8 KiB, then, and there are eight.
const CAPACITY: u64 = 64 * 1024;
const PAGE_MAX: usize = 4096;

fn settings() -> DiskSettings {
    DiskSettings {
        page_bytes_max: PAGE_MAX as u64,
        read_threads_max: 2,
        ..DiskSettings::new("simulated", CAPACITY)
    }
}

fn id(index: u64) -> PageId {
    PageId {
        content: *b"a version's name",
        index,
    }
}

/// Bytes that tell puts apart.
fn page(seed: u64, length: usize) -> Bytes {
    let mut text = format!("{seed:016x}").into_bytes().repeat(length / 16 + 1);
    text.truncate(length);
    text.into()
}

/// A store, with what a test does to it and sees of it.
struct Fixture<D> {
    store: DiskPages,
    device: Arc<D>,
    clock: Clock,
    metrics: DiskMetrics,
}

impl<D: Device + 'static> Fixture<D> {
    fn open(device: Arc<D>, settings: DiskSettings) -> Self {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_hours(1));
        let metrics = DiskMetrics::new();
        let on = Arc::<D>::clone(&device);
        let store = DiskPages::open_on(on, settings, clock.clone(), metrics.clone()).unwrap();
        Self {
            store,
            device,
            clock,
            metrics,
        }
    }
}

#[tokio::test]
async fn every_store_keeps_the_contract() {
    contract::check(&MemoryPages::new(), PAGE_MAX).await;
    let settings = DiskSettings {
        capacity_bytes: 1024 * 1024,
        page_bytes_max: 80_000,
        ..settings()
    };
    let simulated = Fixture::open(Arc::new(sim::Sim::new()), settings.clone());
    contract::check(&simulated.store, 80_000).await;
    let folder = tempfile::tempdir().unwrap();
    let settings = DiskSettings {
        folder: folder.path().to_owned(),
        ..settings
    };
    let real = DiskPages::open(settings, Clock::system(), DiskMetrics::new()).unwrap();
    contract::check(&real, 80_000).await;
}
