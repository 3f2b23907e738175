//! The machine that the load came from, as the kernel tells it.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine that the load came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model of the processor; empty when unknown.
    pub cpu_model: String,
    /// Cores that the program may use.
    pub cores: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Name and release of the kernel, such as `Linux 6.12.8`.
    pub kernel: String,
}

impl Machine {
    /// This machine; what it doesn't tell is empty or 0.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let name = read("/proc/sys/kernel/ostype");
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: format!("{} {}", name.trim(), release.trim())
                .trim()
                .to_owned(),
        }
    }
}

/// The model in `/proc/cpuinfo`; ARM kernels tell none.
fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name")
        .map(|(_, model)| model.split_whitespace().collect::<Vec<_>>().join(" "))
        .unwrap_or_default()
}

/// The total in `/proc/meminfo`, which counts in KiB.
fn memory_bytes(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_model_and_memory() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC  9R14\nmodel name\t: other\n";
        assert_eq!(cpu_model(cpuinfo), "AMD EPYC 9R14");
        assert_eq!(cpu_model("CPU part\t: 0xd40\n"), "");
        assert_eq!(
            memory_bytes("MemTotal:  4030756 kB\nMemFree: 1 kB\n"),
            4_127_494_144
        );
        assert_eq!(memory_bytes("MemTotal: lots\n"), 0);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
