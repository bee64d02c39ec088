//! The processes of a node: the node role, kubelet, kube-proxy, containerd, its shims, and what runs in pods.
//!
//! They are known by the files that they run from, and must be of this process's own mount namespace, so that another machine in a
//! container of this one is never taken for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::node::layout::Layout;
use crate::process::Process;

/// How long a program of the node's may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(15);
/// How long pods may take to end: those that were drained are gone already.
const PODS_GRACE: Duration = Duration::from_secs(10);

/// Which program of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `kubebyon --role=node`.
    NodeRole,
    /// The kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
    /// containerd.
    Containerd,
    /// A shim of containerd's, under which a pod runs.
    Shim,
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    pid: i32,
    parent: i32,
    file: PathBuf,
    args: Vec<String>,
}

/// What runs on this machine.
#[derive(Debug, Default)]
pub struct Table {
    seen: Vec<Seen>,
}

impl Table {
    /// Looks at the processes of this mount namespace, and at those below them.
    pub fn read() -> Self {
        let own = std::fs::read_link("/proc/self/ns/mnt").ok();
        let mut seen = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let folder = entry.path();
            let Some(parent) = std::fs::read_to_string(folder.join("stat")).ok().and_then(|stat| parent(&stat)) else { continue };
            // Of those in other namespaces, such as containers, only the line of descent counts.
            let here = std::fs::read_link(folder.join("ns/mnt")).ok() == own;
            let file = if here { std::fs::read_link(folder.join("exe")).unwrap_or_default() } else { PathBuf::new() };
            let args = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            let args = args.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
            seen.push(Seen { pid, parent, file, args });
        }
        Self { seen }
    }

    /// The pids of one program of the node's.
    pub fn pids(&self, program: Program, layout: &Layout) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        self.seen.iter().filter(|seen| seen.pid != own && which(seen, layout) == Some(program)).map(|seen| seen.pid).collect()
    }

    /// The pids below shims: what runs in pods. The second are those that shims started themselves.
    fn pods(&self, shims: &[i32]) -> (Vec<i32>, Vec<i32>) {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for seen in &self.seen {
            children.entry(seen.parent).or_default().push(seen.pid);
        }
        let below = |pid: &i32| children.get(pid).cloned().unwrap_or_default();
        let first: Vec<i32> = shims.iter().flat_map(below).collect();
        let (mut all, mut next) = (BTreeSet::new(), first.clone());
        while let Some(pid) = next.pop() {
            if all.insert(pid) {
                next.extend(below(&pid));
            }
        }
        (all.into_iter().collect(), first)
    }

    /// The network namespaces of pods, but for the machine's own.
    pub fn pod_namespaces(&self, layout: &Layout) -> BTreeSet<PathBuf> {
        let (all, _) = self.pods(&self.pids(Program::Shim, layout));
        let own = std::fs::read_link("/proc/self/ns/net").ok();
        let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|namespace| Some(namespace) != own.as_ref());
        all.into_iter().filter_map(of).collect()
    }
}

/// The parent's pid in `/proc/PID/stat`; the name before it may hold anything.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Which program of the node's it is.
fn which(seen: &Seen, layout: &Layout) -> Option<Program> {
    let file = seen.file.to_string_lossy();
    // One that was replaced since it started still runs.
    let file = Path::new(file.strip_suffix(" (deleted)").unwrap_or(&file));
    let is_role =
        seen.args.iter().any(|arg| arg == "--role=node") || seen.args.windows(2).any(|pair| pair[0] == "--role" && pair[1] == "node");
    if is_role
        && file.file_name().is_some_and(|name| name == "kubebyon")
        && (file.starts_with(layout.bin_dir()) || layout.root() == Path::new("/"))
    {
        return Some(Program::NodeRole);
    }
    if !file.starts_with(layout.bin_dir()) {
        return None;
    }
    // A program that is one for all goes by the name that it was called by.
    let called = seen.args.first().and_then(|arg| arg.rsplit('/').next()).unwrap_or_default();
    match called {
        "kubelet" => Some(Program::Kubelet),
        "kube-proxy" => Some(Program::KubeProxy),
        "containerd" => Some(Program::Containerd),
        name if name.starts_with("containerd-shim") => Some(Program::Shim),
        _ => None,
    }
}

/// Ends all processes of one program, killing those that take too long. Returns what did not end.
pub async fn stop(program: Program, layout: &Layout) -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    for process in open(&Table::read().pids(program, layout)) {
        failures.extend(process.stop(GRACE).await.err());
    }
    failures
}

/// Ends what runs in pods and the shims above it.
pub async fn stop_pods(layout: &Layout) -> Vec<anyhow::Error> {
    let table = Table::read();
    let shims = table.pids(Program::Shim, layout);
    let (_, first) = table.pods(&shims);
    for process in open(&first) {
        let _ = process.signal(Signal::TERM);
    }
    let ended = async {
        for process in open(&first) {
            process.exited().await;
        }
    };
    let _ = tokio::time::timeout(PODS_GRACE, ended).await;
    let table = Table::read();
    let (all, _) = table.pods(&shims);
    let mut failures = Vec::new();
    for process in open(&all).into_iter().chain(open(&shims)) {
        failures.extend(process.stop(Duration::ZERO).await.err());
    }
    failures
}

/// The processes of pids, as far as they are there still.
fn open(pids: &[i32]) -> Vec<Process> {
    pids.iter().filter_map(|pid| Process::open(Pid::from_raw(*pid)?, String::new()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32, file: &str, args: &[&str]) -> Seen {
        Seen { pid, parent, file: file.into(), args: args.iter().map(|arg| (*arg).to_owned()).collect() }
    }

    #[test]
    fn programs_are_known_by_their_files() {
        let layout = Layout::default();
        let bin = "/opt/kubebyon/bin";
        for (file, args, expected) in [
            (&format!("{bin}/kubernetes")[..], &["kubelet", "--config=x"][..], Some(Program::Kubelet)),
            (&format!("{bin}/kubernetes (deleted)"), &["kube-proxy"], Some(Program::KubeProxy)),
            (&format!("{bin}/containerd"), &["containerd"], Some(Program::Containerd)),
            (&format!("{bin}/containerd-shim-runc-v2"), &["/opt/kubebyon/bin/containerd-shim-runc-v2", "-namespace"], Some(Program::Shim)),
            (&format!("{bin}/kubebyon"), &["/opt/kubebyon/bin/kubebyon", "--role=node"], Some(Program::NodeRole)),
            ("/root/target/debug/kubebyon", &["kubebyon", "--role", "node"], Some(Program::NodeRole)),
            (&format!("{bin}/kubebyon"), &["kubebyon", "leave"], None),
            ("/usr/bin/kubebyon", &["kubebyon", "--role=api"], None),
            ("/usr/bin/containerd", &["containerd"], None),
            ("/usr/bin/containerd-shim-runc-v2", &["containerd-shim-runc-v2"], None),
            ("", &["kubelet"], None),
        ] {
            assert_eq!(which(&seen(2, 1, file, args), &layout), expected, "{file} {args:?}");
        }
        assert_eq!(parent("7 (a) b (c)) S 42 7 7"), Some(42));
        assert_eq!(parent("7"), None);
    }

    #[test]
    fn what_runs_in_pods_is_all_that_descends_from_shims() {
        let shim = "/opt/kubebyon/bin/containerd-shim-runc-v2";
        let table = Table {
            seen: vec![
                seen(10, 1, shim, &[shim]),
                seen(11, 10, "", &["/pause"]),
                seen(12, 10, "", &["sh"]),
                seen(13, 12, "", &["sleep"]),
                seen(20, 1, "/usr/bin/sshd", &["sshd"]),
                seen(21, 20, "/bin/sh", &["sh"]),
            ],
        };
        let shims = table.pids(Program::Shim, &Layout::default());
        assert_eq!((shims.clone(), table.pods(&shims)), (vec![10], (vec![11, 12, 13], vec![11, 12])));
    }

    #[tokio::test]
    async fn a_program_that_runs_from_our_folder_is_ended() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        std::fs::create_dir_all(layout.bin_dir()).unwrap();
        let program = layout.bin_dir().join("kubelet");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("1000").spawn().unwrap();
        assert_eq!(Table::read().pids(Program::Kubelet, &layout), [i32::try_from(child.id()).unwrap()]);
        assert!(stop(Program::Kubelet, &layout).await.is_empty());
        assert_eq!(Table::read().pids(Program::Kubelet, &layout), [0; 0]);
        // It was reaped already.
        assert!(child.wait().is_err());
    }
}
