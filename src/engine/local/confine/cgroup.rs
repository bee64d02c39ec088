//! cgroups: what memory, processes and share of the CPUs one cluster may have.
//!
//! Works with version 2, version 1 and hosts that have both. What cannot be had is named, not hidden: it ends up in the condition
//! `Confined`. May import: `domain`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::mounts::Mount;
use crate::domain::ClusterId;

/// The controllers that are used.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// The folder that holds the clusters' groups, where the daemon has no delegated one.
const FOLDER: &str = "kubebyon";
/// The name that the daemon's own group has below its delegated unit (systemd's `DelegateSubgroup=`, version 254).
const DAEMON_GROUP: &str = "daemon";
/// The share of the CPUs that all clusters have together against the rest of the host, in units of cgroup v2's `cpu.weight` (100 is one share).
const SHARE_OF_ALL: u64 = 1000;

/// What a cluster may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory of its processes and of the page cache charged to them, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// `cpu.weight` against other clusters: 1 to 10000, 100 by default.
    pub cpu_weight: u32,
}

/// Where each controller's groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// By controller: the version and the folder in which a folder for each cluster is made.
    bases: BTreeMap<&'static str, (Version, PathBuf)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A cluster's groups, made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joined {
    /// Folders whose `cgroup.procs` a process of the cluster writes itself into.
    pub folders: Vec<PathBuf>,
    /// What could not be had, for people.
    pub missing: Vec<String>,
}

impl Cgroups {
    /// Finds the controllers: `mounts` is what is mounted, `own` the text of `/proc/self/cgroup`, `controllers` gives the text of a
    /// cgroup v2 folder's `cgroup.controllers`.
    pub fn detect(mounts: &[Mount], own: &str, controllers: impl Fn(&Path) -> String) -> Self {
        let mut bases = BTreeMap::new();
        for controller in CONTROLLERS {
            let v1 = mounts.iter().find(|m| m.kind == "cgroup" && m.super_options.split(',').any(|o| o == controller));
            if let Some(mount) = v1 {
                bases.insert(controller, (Version::V1, mount.point.join(FOLDER)));
                continue;
            }
            let Some(mount) = mounts.iter().find(|m| m.kind == "cgroup2") else { continue };
            if controllers(&mount.point).split_whitespace().any(|c| c == controller) {
                bases.insert(controller, (Version::V2, v2_base(&mount.point, own)));
            }
        }
        Self { bases }
    }

    /// Finds them on this host.
    pub fn of_host() -> anyhow::Result<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let controllers = |at: &Path| std::fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
        Ok(Self::detect(&super::mounts::mounted()?, &own, controllers))
    }

    /// Makes a cluster's groups and sets their limits; what fails is named and left out.
    pub fn ensure(&self, cluster: ClusterId, limits: &CgroupLimits) -> Joined {
        let mut joined = Joined::default();
        for controller in CONTROLLERS {
            let Some((version, base)) = self.bases.get(controller) else {
                joined.missing.push(format!("no {controller} limit: this host has no cgroup controller {controller}"));
                continue;
            };
            let folder = base.join(cluster.to_string());
            match prepare(*version, controller, base, &folder, limits) {
                Ok(()) if joined.folders.contains(&folder) => {}
                Ok(()) => joined.folders.push(folder),
                Err(error) => joined.missing.push(format!("no {controller} limit: {error:#}")),
            }
        }
        joined
    }

    /// Removes a cluster's groups, which must have no process left; goes on past failures and gives them all.
    pub async fn remove(&self, cluster: ClusterId) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        for (_, base) in self.bases.values() {
            let folder = base.join(cluster.to_string());
            if let Err(error) = remove_group(&folder).await {
                errors.push(error);
            }
            // The last cluster's removal takes the common folder along; it stays as long as it has groups.
            if base.ends_with(FOLDER) {
                let _ = std::fs::remove_dir(base);
            }
        }
        errors
    }
}

/// The folder below which groups may be made: the delegated unit's, when the daemon sits in a group of its own below it, else one at the top.
/// (A unit whose own group holds processes cannot have controllers switched on below it: "no internal processes", `cgroup-v2`.)
fn v2_base(root: &Path, own: &str) -> PathBuf {
    let own = own.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
    match own.trim_start_matches('/').strip_suffix(DAEMON_GROUP).and_then(|unit| unit.strip_suffix('/')) {
        Some(unit) if !unit.is_empty() => root.join(unit),
        _ => root.join(FOLDER),
    }
}

fn prepare(version: Version, controller: &str, base: &Path, folder: &Path, limits: &CgroupLimits) -> anyhow::Result<()> {
    if version == Version::V2 {
        if let Some(parent) = base.parent().filter(|_| !base.exists()) {
            enable(parent, controller)?;
        }
        std::fs::create_dir_all(base).with_context(|| format!("cannot make {}", base.display()))?;
        enable(base, controller)?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let weight = u64::from(limits.cpu_weight.clamp(1, 10_000));
    if controller == "cpu" {
        // Best effort: all clusters together against the rest of the host; a delegated unit's own weight may not be ours to set.
        let (file, all) = match version {
            Version::V1 => ("cpu.shares", SHARE_OF_ALL * 1024 / 100),
            Version::V2 => ("cpu.weight", SHARE_OF_ALL),
        };
        if base.ends_with(FOLDER) {
            let _ = std::fs::write(base.join(file), all.to_string());
        }
    }
    let (file, value) = match (version, controller) {
        (Version::V1, "memory") => ("memory.limit_in_bytes", limits.memory_bytes),
        (Version::V2, "memory") => ("memory.max", limits.memory_bytes),
        (_, "pids") => ("pids.max", u64::from(limits.pids)),
        (Version::V1, _) => ("cpu.shares", (weight * 1024 / 100).max(2)),
        (Version::V2, _) => ("cpu.weight", weight),
    };
    write(&folder.join(file), &value.to_string())
}

/// Switches a controller on for the groups below a folder.
fn enable(folder: &Path, controller: &str) -> anyhow::Result<()> {
    let path = folder.join("cgroup.subtree_control");
    let on = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if on.split_whitespace().any(|c| c == controller) { Ok(()) } else { write(&path, &format!("+{controller}")) }
}

fn write(path: &Path, value: &str) -> anyhow::Result<()> {
    std::fs::write(path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}

async fn remove_group(folder: &Path) -> anyhow::Result<()> {
    let mut attempts = 0;
    loop {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // A process that has just ended leaves its group a moment later.
            Err(_) if attempts < 50 => attempts += 1,
            Err(error) => return Err(error).with_context(|| format!("cannot remove the cgroup {}", folder.display())),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::mounts;
    use super::*;
    use crate::domain::Ambient;

    const HYBRID: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn controllers_are_found_in_either_version() {
        let hybrid = Cgroups::detect(&mounts::parse(HYBRID), "0::/\n", |_| "hugetlb pids\n".into());
        let at = |c: &Cgroups, controller| c.bases.get(controller).map(|(_, p)| p.to_string_lossy().into_owned());
        assert_eq!(at(&hybrid, "memory").unwrap(), "/sys/fs/cgroup/memory/kubebyon");
        assert_eq!(at(&hybrid, "cpu").unwrap(), "/sys/fs/cgroup/cpu,cpuacct/kubebyon");
        assert_eq!(at(&hybrid, "pids").unwrap(), "/sys/fs/cgroup/unified/kubebyon");
        let v2 = mounts::parse("32 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let all = |_: &Path| "cpuset cpu io memory pids".to_owned();
        let delegated = Cgroups::detect(&v2, "0::/system.slice/kubebyon.service/daemon\n", all);
        assert_eq!(at(&delegated, "memory").unwrap(), "/sys/fs/cgroup/system.slice/kubebyon.service");
        let whole = Cgroups::detect(&v2, "0::/system.slice/kubebyon.service\n", all);
        assert_eq!(at(&whole, "cpu").unwrap(), "/sys/fs/cgroup/kubebyon");
        assert!(Cgroups::detect(&[], "", |_| String::new()).bases.is_empty());
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let none = Cgroups::detect(&[], "", |_| String::new());
        let joined = none.ensure(ClusterId::generate(&Ambient::system()), &CgroupLimits { memory_bytes: 1, pids: 1, cpu_weight: 1 });
        assert!(joined.folders.is_empty());
        assert_eq!(joined.missing.len(), 3);
        assert!(joined.missing[0].contains("memory"));
    }

    /// Needs root and a host with the three controllers.
    #[tokio::test]
    async fn a_process_joins_and_is_held_to_the_limits() {
        let groups = Cgroups::of_host().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut spec = crate::process::tests::shell(folder.path(), "etcd", "cat /proc/self/cgroup; (sleep 1 & sleep 1 & sleep 1 & wait)");
        let joined = groups.ensure(spec.cluster, &CgroupLimits { memory_bytes: 64 << 20, pids: 3, cpu_weight: 100 });
        assert_eq!(joined.missing, Vec::<String>::new());
        spec.cgroups.clone_from(&joined.folders);
        spec.spawn().unwrap().exited().await;
        let log = std::fs::read_to_string(&spec.log).unwrap();
        assert!(log.lines().filter(|l| l.ends_with(&format!("/{}", spec.cluster))).count() >= joined.folders.len(), "{log}");
        assert!(log.to_lowercase().contains("fork"), "a fourth process was allowed:\n{log}");
        assert!(groups.remove(spec.cluster).await.is_empty());
        assert!(joined.folders.iter().all(|f| !f.exists()));
    }
}
