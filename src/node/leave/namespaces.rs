//! What containers leave beside files: named network namespaces and control groups.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::mounts::unmount;
use crate::node::layout::Layout;

/// How containerd names the network namespaces of pods.
const PREFIX: &str = "cni-";
/// How the groups of pods and of our own programs begin.
const GROUPS: [&str; 2] = ["kubepods", "kubebyon-node"];

/// The named network namespaces that are ours: those in which processes of our pods were (`net:[…]`), and those that results of our own
/// network name.
pub fn ours(layout: &Layout, of_processes: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let named = named(layout);
    let folder = layout.root().join("run/netns");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)))
        .filter(|path| {
            let held = path.metadata().is_ok_and(|meta| of_processes.contains(Path::new(&format!("net:[{}]", meta.ino()))));
            held || path.file_name().is_some_and(|name| named.contains(name.to_string_lossy().as_ref()))
        })
        .collect()
}

/// The namespaces that the cached results of CNI's plugins name for our network.
fn named(layout: &Layout) -> BTreeSet<String> {
    let entries = std::fs::read_dir(results(layout)).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path()).ok())
        .filter_map(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .filter(|result| result["networkName"] == "kubebyon")
        .flat_map(|result| result["result"]["interfaces"].as_array().cloned().unwrap_or_default())
        .filter_map(|interface| Some(interface["sandbox"].as_str()?.rsplit('/').next()?.to_owned()))
        .collect()
}

fn results(layout: &Layout) -> PathBuf {
    layout.root().join("var/lib/cni/results")
}

/// Removes named namespaces and the results of our network. The interfaces in them go with them.
pub fn remove(layout: &Layout, namespaces: &[PathBuf]) -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    for path in namespaces {
        failures.extend(unmount(path).err());
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                failures.push(anyhow::anyhow!("cannot remove {}: {error}", path.display()));
            }
            _ => {}
        }
    }
    for entry in std::fs::read_dir(results(layout)).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("kubebyon-") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    failures
}

/// Removes the control groups of pods, the lowest first. One that still holds a process stays.
pub fn remove_groups(root: &Path) {
    let top = root.join("sys/fs/cgroup");
    let hierarchies = [top.clone()].into_iter().chain(folders(&top));
    for hierarchy in hierarchies.collect::<Vec<_>>() {
        for group in folders(&hierarchy) {
            if group.file_name().is_some_and(|name| GROUPS.iter().any(|prefix| name.to_string_lossy().starts_with(prefix))) {
                remove_group(&group, 0);
            }
        }
    }
}

fn remove_group(group: &Path, depth: u32) {
    if depth < 16 {
        for below in folders(group) {
            remove_group(&below, depth + 1);
        }
    }
    let _ = std::fs::remove_dir(group);
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_our_own_pods_are_taken() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let netns = root.path().join("run/netns");
        std::fs::create_dir_all(&netns).unwrap();
        std::fs::create_dir_all(results(&layout)).unwrap();
        for name in ["cni-one", "cni-two", "cni-foreign", "owners"] {
            std::fs::write(netns.join(name), "").unwrap();
        }
        let result = |network: &str, sandbox: &str| serde_json::json!({"networkName": network, "result": {"interfaces": [{"name": "eth0", "sandbox": format!("/var/run/netns/{sandbox}")}]}});
        std::fs::write(results(&layout).join("kubebyon-1-eth0"), result("kubebyon", "cni-one").to_string()).unwrap();
        std::fs::write(results(&layout).join("docker-1-eth0"), result("docker", "cni-foreign").to_string()).unwrap();
        std::fs::write(results(&layout).join("garbage"), "{").unwrap();
        let of_processes = ["cni-two", "owners"].map(|name| format!("net:[{}]", netns.join(name).metadata().unwrap().ino()).into()).into();
        let mut found = ours(&layout, &of_processes);
        found.sort();
        assert_eq!(found, [netns.join("cni-one"), netns.join("cni-two")]);
        assert!(remove(&layout, &found).is_empty());
        let left = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        assert_eq!((left(&netns), left(&results(&layout))), (2, 2));
    }

    #[test]
    fn groups_of_pods_go_and_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str| root.path().join("sys/fs/cgroup").join(name);
        for name in ["memory/kubepods/burstable/pod1", "kubepods.slice/a.slice", "user.slice/kubepods"] {
            std::fs::create_dir_all(group(name)).unwrap();
        }
        remove_groups(root.path());
        assert!(!group("memory/kubepods").exists() && !group("kubepods.slice").exists());
        assert!(group("memory").exists() && group("user.slice").exists());
    }
}
