//! Whether clusters can be held to a share of the machine: the cgroup controllers cpu, memory and pids, of either version.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;

const CHECK: &str = "cgroups";
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

pub(super) fn check() -> Finding {
    let mounts = match std::fs::read_to_string("/proc/self/mounts") {
        Ok(mounts) => mounts,
        Err(error) => {
            return Finding::warning(CHECK, format!("The mounts cannot be read: {error}."), "Look at `findmnt -t cgroup,cgroup2`.");
        }
    };
    judge(&mounts, |folder| std::fs::read_to_string(Path::new(folder).join("cgroup.controllers")).unwrap_or_default())
}

/// Judges the text of `/proc/self/mounts`; `controllers` gives the text of `cgroup.controllers` in a folder of version 2.
fn judge(mounts: &str, controllers: impl Fn(&str) -> String) -> Finding {
    let mut version_1 = BTreeSet::new();
    let mut version_2 = BTreeSet::new();
    for mount in mounts.lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        match fields[..] {
            [_, _, "cgroup", options, ..] => version_1.extend(options.split(',').map(str::to_owned)),
            [_, folder, "cgroup2", ..] => version_2.extend(controllers(folder).split_whitespace().map(str::to_owned)),
            _ => {}
        }
    }
    let missing: Vec<&str> = NEEDED.into_iter().filter(|needed| !version_1.contains(*needed) && !version_2.contains(*needed)).collect();
    if !missing.is_empty() {
        return Finding::warning(
            CHECK,
            format!(
                "The cgroup controllers {} are missing, so that one cluster can take more than its share of the machine.",
                missing.join(", ")
            ),
            "Boot with cgroup version 2 and all controllers: add `systemd.unified_cgroup_hierarchy=1 cgroup_enable=memory` to the kernel's command \
             line (`update-grub`); in a container, delegate them.",
        );
    }
    let version = if NEEDED.iter().all(|needed| version_2.contains(*needed)) { "2" } else { "1" };
    Finding::ok(CHECK, format!("cgroup version {version} with cpu, memory and pids."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn either_version_will_do_and_what_is_missing_is_named() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let finding = judge(unified, |_| "cpuset cpu io memory pids\n".into());
        assert_eq!((finding.status, finding.message.contains("version 2")), (Status::Ok, true));
        let hybrid =
            "none /a cgroup rw,memory 0 0\nnone /b cgroup rw,cpu,cpuacct 0 0\nnone /c cgroup rw,pids 0 0\nnone /u cgroup2 rw 0 0\n";
        let finding = judge(hybrid, |_| String::new());
        assert_eq!((finding.status, finding.message.contains("version 1")), (Status::Ok, true));
        let finding = judge(unified, |_| "cpu pids".into());
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.message.contains("controllers memory are"), "{}", finding.message);
        assert_eq!(judge("", |_| String::new()).status, Status::Warning);
    }
}
