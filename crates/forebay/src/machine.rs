//! What the machine gives this process: memory, cores, and the environment of AWS.
//!
//! In a container the control group's limit counts, not the machine's memory: a cache of a quarter
//! of the wrong number would get the process killed.
//!
//! Sources: proc(5) for `/proc/meminfo`; the kernel's "Control Group v2" (`memory.max`) and "Memory
//! Resource Controller" (`memory.limit_in_bytes`).

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use forebay_gateway::config::Surroundings;

/// Assumed where the machine does not tell: small enough to be there.
const MEMORY_BYTES_UNKNOWN: u64 = 1024 * 1024 * 1024;

/// Asks the machine.
pub(crate) fn surroundings() -> Surroundings {
    let region = |name| std::env::var(name).ok().filter(|region| !region.is_empty());
    Surroundings {
        memory_bytes: memory_bytes(Path::new("/")),
        cores: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        aws_region: region("AWS_REGION").or_else(|| region("AWS_DEFAULT_REGION")),
    }
}

/// The least of the machine's memory and the limits of all control groups around this process;
/// `root` is `/` but in tests.
fn memory_bytes(root: &Path) -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(&root.join("proc/meminfo")).and_then(|text| total_of_meminfo(&text));
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups)
        .into_iter()
        .filter_map(|file| read(&root.join(file))?.trim().parse::<u64>().ok());
    machine
        .into_iter()
        .chain(limits)
        .min()
        .unwrap_or(MEMORY_BYTES_UNKNOWN)
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The files that may limit the memory of the groups in `/proc/self/cgroup`, outer groups as well.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (base, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        // Inside a container the path may be that of the host, so the root is asked as well.
        files.extend(
            group
                .ancestors()
                .map(|outer| Path::new(base).join(outer).join(file)),
        );
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_bytes(root.path())
    }

    #[test]
    fn the_tightest_limit_counts() {
        const MEMINFO: (&str, &str) = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:   4096 kB\n");
        let rows: &[(&[(&str, &str)], u64)] = &[
            (&[], MEMORY_BYTES_UNKNOWN),
            (&[MEMINFO], 4096 * 1024),
            (
                &[
                    MEMINFO,
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/memory.max", "1000000\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ],
                1_000_000,
            ),
            (
                &[
                    MEMINFO,
                    ("proc/self/cgroup", "0::/\n"),
                    ("sys/fs/cgroup/memory.max", "2000\n"),
                ],
                2000,
            ),
            (
                &[
                    MEMINFO,
                    ("proc/self/cgroup", "4:cpu:/x\n7:memory,hugetlb:/docker/1\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n"),
                ],
                3000,
            ),
            (
                &[
                    MEMINFO,
                    ("proc/self/cgroup", "0::/\n"),
                    ("sys/fs/cgroup/memory.max", "9223372036854771712\n"),
                ],
                4096 * 1024,
            ),
        ];
        for (files, expected) in rows {
            assert_eq!(machine(files), *expected, "{files:?}");
        }
    }
}
