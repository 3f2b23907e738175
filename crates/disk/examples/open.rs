//! How long it takes until a full disk is ready:
//! `cargo run --release -p forebay-disk --example open FOLDER`.
//!
//! Writes a million small pages into segments of 64 KiB, so that there are as many segments, and
//! as many pages in each, as when pages of 1 MiB fill a disk of 1 TiB: opening reads the ends of
//! segments and no pages, so their size does not matter. Then it closes, opens again, and tells the
//! time and what the index takes.

#![expect(clippy::print_stdout, reason = "a program for the command line")]

use bytes::Bytes;
use forebay_disk::{DiskPages, DiskSettings, PageId, PageStore as _, Put};
use forebay_store::Clock;
use forebay_telemetry::disk::DiskMetrics;

const PAGES: u64 = 1_000_000;
/// With its head, such a page takes 1 KiB, and 61 of them and their footer take 64 KiB.
const PAGE_BYTES: u64 = 960;
/// A 256th of this is a segment, unless the largest page needs more; here it decides.
const PAGE_BYTES_MAX: u64 = 64 * 1024 - 256;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = std::path::Path::new(&place).join("forebay-disk-example");
    for (what, page_bytes_max, capacity_bytes) in [
        ("small segments", PAGE_BYTES_MAX, 2 << 30),
        ("default segments", 16 << 20, 64 << 30),
    ] {
        let settings = DiskSettings {
            page_bytes_max,
            capacity_bytes,
            ..DiskSettings::new(&folder, capacity_bytes)
        };
        measure(what, settings).await?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

async fn measure(what: &str, settings: DiskSettings) -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::system();
    let store = DiskPages::open(settings.clone(), clock.clone(), DiskMetrics::new())?;
    let page = Bytes::from(vec![7; usize::try_from(PAGE_BYTES)?]);
    let began = clock.now();
    for index in 0..PAGES {
        let id = PageId {
            content: *b"one and the same",
            index,
        };
        while store.put(id, page.clone()) != Put::Taken {
            store.flush().await?;
        }
    }
    store.close().await?;
    let wrote = clock.now() - began;
    let segments = std::fs::read_dir(&settings.folder)?.count() - 1;
    let began = clock.now();
    let store = DiskPages::open(settings, clock.clone(), DiskMetrics::new())?;
    let opened = clock.now() - began;
    let stats = store.stats();
    println!(
        "{what}: {} pages in {segments} segments, written in {wrote:?}, open in {opened:?}, \
         {} bytes of index a page",
        stats.entries,
        stats.index_bytes / stats.entries.max(1),
    );
    store.close().await?;
    Ok(())
}
