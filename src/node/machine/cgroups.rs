//! Control groups: which version and which controllers.

use std::collections::BTreeSet;
use std::path::Path;

use super::text;

/// What is known of control groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// 2 where the unified hierarchy stands at `/sys/fs/cgroup`, 1 for the older ones, 0 where none is mounted.
    pub version: u8,
    /// The controllers that can be used.
    pub controllers: BTreeSet<String>,
}

impl Cgroups {
    /// Reads what is below a root.
    pub fn read(root: &Path) -> Self {
        let mounts = text(root, "proc/self/mounts").or_else(|| text(root, "proc/mounts")).unwrap_or_default();
        let unified = text(root, "sys/fs/cgroup/cgroup.controllers");
        let table = text(root, "proc/cgroups").unwrap_or_default();
        Self::judge(&mounts, unified.as_deref(), &table)
    }

    /// From `/proc/self/mounts`, the controllers of the unified hierarchy's root where it stands, and `/proc/cgroups`.
    fn judge(mounts: &str, unified: Option<&str>, table: &str) -> Self {
        let older: BTreeSet<String> = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|fields| fields.get(2) == Some(&"cgroup"))
            .flat_map(|fields| fields.get(3).copied().unwrap_or_default().split(',').map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let disabled: BTreeSet<&str> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let fields: Vec<_> = line.split_whitespace().collect();
                (fields.get(3) == Some(&"0")).then(|| fields[0])
            })
            .collect();
        let (version, mut controllers) = match unified {
            Some(list) => (2, list.split_whitespace().map(str::to_owned).collect()),
            None if older.is_empty() => (0, BTreeSet::new()),
            None => (1, older),
        };
        controllers.retain(|controller| !disabled.contains(controller.as_str()));
        Self { version, controllers }
    }

    /// Whether a controller can be used.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.contains(controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_version_is_known_and_what_the_kernel_switched_off_is_not_there() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let found = Cgroups::judge(unified, Some("cpuset cpu io memory pids\n"), "");
        assert_eq!((found.version, found.has("memory"), found.has("hugetlb")), (2, true, false));
        let hybrid = "none /sys/fs/cgroup/memory cgroup rw,memory 0 0\nnone /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      none /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Cgroups::judge(hybrid, None, "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t110\t1\n");
        assert_eq!((found.version, found.has("memory"), found.has("cpu")), (1, true, true));
        let pi = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t60\t1\nmemory\t0\t60\t0\n";
        let found = Cgroups::judge(unified, Some("cpuset cpu io pids"), pi);
        assert_eq!((found.version, found.has("memory"), found.has("pids")), (2, false, true));
        assert_eq!(Cgroups::judge("", None, "").version, 0);
    }
}
