//! How long it takes until a log with a million objects is ready, and what they take:
//! `cargo run --release -p forebay-log --example open FOLDER [MILLIONS]`.
//!
//! Writes entries of 300 bytes with names of 80, closes, opens again, and tells the time, the
//! resident memory that the index has added, and what the log itself counts.

#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::{error::Error, path::PathBuf};

use bytes::Bytes;
use forebay_log::{LogParts, LogSettings};
use forebay_native::index::{Batch, Change, Index as _, Payload, Route};
use forebay_store::Clock;
use forebay_telemetry::log::LogMetrics;

const MILLION: u64 = 1_000_000;
/// Entries of one batch.
const BATCH: u64 = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let millions: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let folder = place.join("forebay-log-example");
    let (clock, settings) = (Clock::system(), LogSettings::new(&folder));
    let parts = LogParts::open(settings.clone(), clock.clone(), LogMetrics::new())?;
    let began = clock.now();
    for batch in 0..millions * MILLION / BATCH {
        let change = |entry: u64| {
            // Each name is far from the one before it, as names of objects are.
            let mixed = entry.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Change::Put {
                name: format!("o/bucket/{mixed:020}/{entry:050}").into(),
                value: Bytes::from(vec![7; 300]),
                payload: Payload::None,
            }
        };
        let batch = Batch {
            expects: Vec::new(),
            changes: (batch * BATCH..(batch + 1) * BATCH).map(change).collect(),
        };
        parts.index.apply(&Route::One(Bytes::new()), batch).await?;
    }
    println!(
        "{millions} million entries written in {:?}",
        clock.now() - began
    );
    parts.close().await;
    drop(parts);
    let resident = resident_bytes()?;
    let began = clock.now();
    let parts = LogParts::open(settings, clock.clone(), LogMetrics::new())?;
    println!("opened in {:?}", clock.now() - began);
    let stats = parts.stats();
    println!(
        "{} entries, index {} bytes by its own count",
        stats.entries, stats.index_bytes
    );
    // What the writing left in the allocator is used again, so this may be too little.
    println!(
        "{} bytes more are resident",
        resident_bytes()?.saturating_sub(resident)
    );
    drop(parts);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap_or_default()
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib * 1024)
}
