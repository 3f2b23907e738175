//! Compares the hit ratio of the cache's policy with others, on made traces.
//!
//! Prints the table of docs/benchmarks.md:
//! `cargo run --release -p forebay-cache --example hit_ratio`.
//! An argument keeps to the traces that have it in their names.
//! "forebay" is the code of the index (`Outline`): its queues, its ghosts, its weights. Reads are
//! two seconds apart, so that none falls into the window in which uses count once.

use std::io::Write;

use forebay_cache::Outline;

mod policies;
mod traces;

use policies::{Lru, Policy, S3Fifo, Sieve, WTinyLfu};
use traces::{Mixed, Sizes, Trace};

/// Milliseconds between reads.
const STEP_MS: i64 = 2000;
/// Reads that only fill the caches.
const WARM: usize = traces::READS / 4;

/// The index's policy.
struct Forebay {
    outline: Outline,
    now_ms: i64,
}

impl Policy for Forebay {
    fn read(&mut self, name: u64, weight: u64) -> bool {
        self.now_ms += STEP_MS;
        self.outline.read(traces::mix(name), weight, self.now_ms)
    }
}

/// Hit ratio and byte hit ratio in percent, after the warm-up.
fn ratios(policy: &mut dyn Policy, trace: &Trace) -> (f64, f64) {
    let (mut hits, mut hit_bytes, mut bytes) = (0u32, 0u64, 0u64);
    for (at, (name, size)) in trace.reads.iter().enumerate() {
        let hit = policy.read(*name, *size);
        if at >= WARM {
            bytes += size;
            if hit {
                hits += 1;
                hit_bytes += size;
            }
        }
    }
    let reads = u32::try_from(trace.reads.len() - WARM).expect("far below 2^32");
    let units = |bytes: u64| f64::from(u32::try_from(bytes >> 12).unwrap_or(u32::MAX));
    (
        100.0 * f64::from(hits) / f64::from(reads),
        100.0 * units(hit_bytes) / units(bytes).max(1.0),
    )
}

fn policies(capacity: u64) -> [(&'static str, Box<dyn Policy>); 5] {
    let forebay = Forebay {
        outline: Outline::new(capacity, usize::MAX),
        now_ms: 0,
    };
    [
        ("forebay", Box::new(forebay)),
        ("S3-FIFO", Box::new(S3Fifo::new(capacity))),
        ("W-TinyLFU", Box::new(WTinyLfu::new(capacity))),
        ("SIEVE", Box::new(Sieve::new(capacity))),
        ("LRU", Box::new(Lru::new(capacity))),
    ]
}

fn cells(out: &mut impl Write, name: &str, percent: u64, row: &[f64]) -> std::io::Result<()> {
    let best = row.iter().copied().fold(0.0, f64::max);
    write!(out, "| {name} | {percent} % |")?;
    for ratio in row {
        write!(out, " {ratio:.1} |")?;
    }
    writeln!(out, " {:.1} |", best - row[0])
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut traces = Vec::new();
    for exponent in [0.7, 0.9, 0.99, 1.1] {
        traces.push(Trace::new(exponent, Mixed::Nothing, Sizes::Equal, 1));
    }
    for exponent in [0.7, 0.9, 1.1] {
        traces.push(Trace::new(exponent, Mixed::Scans, Sizes::Equal, 2));
        traces.push(Trace::new(exponent, Mixed::Shifts, Sizes::Equal, 3));
        traces.push(Trace::new(exponent, Mixed::Nothing, Sizes::Mixed, 4));
    }
    let names = policies(1).map(|(name, _)| name).join(" | ");
    writeln!(out, "| trace | cache | {names} | behind the best |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for trace in traces.iter().filter(|trace| trace.name.contains(&wanted)) {
        for percent in [1, 10] {
            let capacity = trace.footprint * percent / 100;
            let both = policies(capacity).map(|(_, mut policy)| ratios(policy.as_mut(), trace));
            cells(&mut out, &trace.name, percent, &both.map(|(hits, _)| hits))?;
            if trace.name.ends_with("sizes") {
                let name = format!("{}, bytes", trace.name);
                cells(&mut out, &name, percent, &both.map(|(_, bytes)| bytes))?;
            }
        }
    }
    Ok(())
}
