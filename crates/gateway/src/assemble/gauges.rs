//! What is measured at the moment of a scrape: memory, and which version this is.
//!
//! | metric | labels |
//! |---|---|
//! | `forebay_in_flight_bytes`, `forebay_in_flight_max_bytes` (gauges): payload, and its budget | |
//! | `forebay_resident_bytes` (gauge): memory of the process as the kernel counts it | |
//! | `forebay_build` (info) | `version` |

use std::fmt;

use forebay_store::Budget;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

/// Makes the gauges part of what a scrape gives.
pub fn register_gauges(registry: &mut Registry, budget: &Budget) {
    registry.register_collector(Box::new(Gauges {
        budget: budget.clone(),
    }));
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("forebay_build", "Version of the program", version);
}

#[derive(Debug)]
struct Gauges {
    budget: Budget,
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = [
            (
                "forebay_in_flight",
                "Payload bytes in flight",
                Some(self.budget.used_bytes()),
            ),
            (
                "forebay_in_flight_max",
                "Payload bytes that may be",
                Some(self.budget.bytes_max()),
            ),
            (
                "forebay_resident",
                "Memory of the process",
                resident_bytes(),
            ),
        ];
        for (name, help, bytes) in gauges {
            let Some(bytes) = bytes else { continue };
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            let metric =
                encoder.encode_descriptor(name, help, Some(&Unit::Bytes), gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// Resident memory: `VmRSS` of `/proc/self/status` (proc(5)).
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim_end()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_scrape_shows_memory_and_version() {
        let mut registry = Registry::default();
        let budget = Budget::new(64 * 1024, Duration::ZERO);
        let reservation = budget.try_reserve(4096);
        register_gauges(&mut registry, &budget);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        assert!(page.contains("forebay_in_flight_bytes 4096\n"), "{page}");
        assert!(
            page.contains("forebay_in_flight_max_bytes 65536\n"),
            "{page}"
        );
        assert!(page.contains("forebay_resident_bytes "), "{page}");
        assert!(page.contains("forebay_build_info{version="), "{page}");
        drop(reservation);
    }
}
