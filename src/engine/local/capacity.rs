//! How many more control planes a host bears, and whether one more may be made.
//!
//! The estimates are of real control planes of Kubernetes 1.34 side by side: judged by proportional set size, since they share the text
//! of their programs. May import: nothing of ours.

use std::path::Path;

use anyhow::Context;

/// Memory that one control plane takes, in bytes, where nothing else is configured.
pub const MEMORY_OF_A_CLUSTER: u64 = 350 << 20;
/// Disk that one control plane may come to take: etcd's log and snapshots, audit log, program logs.
const DISK_OF_A_CLUSTER: u64 = 512 << 20;
/// Milliseconds of CPU that one idle control plane takes in a second.
const CPU_OF_A_CLUSTER: u64 = 29;
/// No cluster is made when less than this part of the disk is free: etcd fails on a full disk, and so do those that run already.
const FREE_DISK_PERCENT: u64 = 10;

/// What a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Size of the file system of the data folder, in bytes.
    pub disk_total: u64,
    /// What of it unprivileged processes may still fill.
    pub disk_free: u64,
    /// Memory that can be had without swapping (`MemAvailable`), in bytes.
    pub memory_available: u64,
    /// CPUs.
    pub cores: u32,
    /// Control planes that run already.
    pub running: u32,
}

/// How many more control planes fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// So many.
    pub fits: u32,
    /// What runs out first: `disk`, `memory` or `cpu`.
    pub limited_by: &'static str,
}

impl Resources {
    /// What this host has for the data folder.
    pub fn read(data_dir: &Path, running: u32) -> anyhow::Result<Self> {
        let disk = nix::sys::statvfs::statvfs(data_dir).with_context(|| format!("cannot read the disk space of {}", data_dir.display()))?;
        let meminfo = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        Ok(Self {
            disk_total: disk.blocks() * disk.fragment_size(),
            disk_free: disk.blocks_available() * disk.fragment_size(),
            memory_available: memory_available(&meminfo).context("/proc/meminfo has no MemAvailable")?,
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            running,
        })
    }
}

fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many more fit when each takes `memory_of_a_cluster` bytes.
pub fn capacity(has: &Resources, memory_of_a_cluster: u64) -> Capacity {
    let reserve = has.disk_total / 100 * FREE_DISK_PERCENT;
    let disk = has.disk_free.saturating_sub(reserve) / DISK_OF_A_CLUSTER;
    let memory = has.memory_available / memory_of_a_cluster.max(1);
    let cpu = (u64::from(has.cores) * 1000 / CPU_OF_A_CLUSTER).saturating_sub(u64::from(has.running));
    let (fits, limited_by) = [(disk, "disk"), (memory, "memory"), (cpu, "cpu")].into_iter().min_by_key(|(n, _)| *n).expect("three of them");
    Capacity { fits: u32::try_from(fits).unwrap_or(u32::MAX), limited_by }
}

/// Why no further cluster may be made, when `starting` others are about to take their memory; `None` when one may.
pub fn refusal(has: &Resources, memory_of_a_cluster: u64, starting: u32, data_dir: &Path) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    if has.disk_free < has.disk_total / 100 * FREE_DISK_PERCENT {
        return Some(format!(
            "less than {FREE_DISK_PERCENT} % of the disk of {} is free ({} MiB of {} MiB): free some, or move data_dir to a larger disk",
            data_dir.display(),
            mib(has.disk_free),
            mib(has.disk_total)
        ));
    }
    let reserve = has.disk_total / 100 * FREE_DISK_PERCENT;
    if has.disk_free - reserve < DISK_OF_A_CLUSTER {
        return Some(format!(
            "a control plane takes up to {} MiB of disk, while {} MiB of {} are free and {} MiB of them stay in reserve: \
             free some, or move data_dir to a larger disk",
            mib(DISK_OF_A_CLUSTER),
            mib(has.disk_free),
            data_dir.display(),
            mib(reserve)
        ));
    }
    let needed = memory_of_a_cluster.saturating_mul(u64::from(starting) + 1);
    (has.memory_available < needed).then(|| {
        format!(
            "a control plane takes about {} MiB of memory and {starting} others are starting, while {} MiB are available: \
             delete a cluster, or give the host more memory",
            mib(memory_of_a_cluster),
            mib(has.memory_available)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn host() -> Resources {
        Resources { disk_total: 1000 * GIB, disk_free: 500 * GIB, memory_available: 24 * GIB, cores: 64, running: 0 }
    }

    #[test]
    fn the_scarcest_decides() {
        assert_eq!(capacity(&host(), MEMORY_OF_A_CLUSTER), Capacity { fits: 70, limited_by: "memory" });
        assert_eq!(capacity(&Resources { cores: 2, running: 60, ..host() }, MEMORY_OF_A_CLUSTER), Capacity { fits: 8, limited_by: "cpu" });
        let full = Resources { disk_free: 100 * GIB, ..host() };
        assert_eq!(capacity(&full, MEMORY_OF_A_CLUSTER), Capacity { fits: 0, limited_by: "disk" });
    }

    #[test]
    fn creation_is_refused_with_the_remedy() {
        let refuse = |has: Resources, starting| refusal(&has, MEMORY_OF_A_CLUSTER, starting, Path::new("/var/lib/kubebyon"));
        assert_eq!(refuse(host(), 60), None);
        assert!(refuse(Resources { disk_free: 99 * GIB, ..host() }, 0).unwrap().contains("data_dir"));
        let small = Resources { disk_total: GIB, disk_free: GIB / 2, ..host() };
        let why = refuse(small, 0).unwrap();
        assert!(why.contains("512 MiB of disk") && why.contains("102 MiB of them stay in reserve"), "{why}");
        assert_eq!(refuse(Resources { disk_free: GIB, ..small }, 0), None);
        assert!(refuse(host(), 71).unwrap().contains("71 others are starting"));
        assert!(refuse(Resources { memory_available: GIB / 4, ..host() }, 0).unwrap().contains("256 MiB are available"));
    }

    #[test]
    fn this_host_is_read() {
        let has = Resources::read(Path::new("/"), 0).unwrap();
        assert!(has.disk_total > has.disk_free && has.memory_available > 0 && has.cores > 0);
        assert_eq!(memory_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
    }
}
