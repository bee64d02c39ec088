//! The kernel: its release, modules and the settings that a node changes.

use std::collections::BTreeMap;
use std::path::Path;

use super::text;

/// Settings that a node needs, with the values it wants. `rp_filter` stays as it is: the way back of a packet of the tunnel or the overlay
/// is the way that it came.
pub const SYSCTLS: [(&str, u64); 4] = [
    ("net.ipv4.ip_forward", 1),
    ("net.bridge.bridge-nf-call-iptables", 1),
    ("fs.inotify.max_user_instances", 8192),
    ("fs.inotify.max_user_watches", 524_288),
];
/// Settings that kubelet and kube-proxy change by themselves, whose former values are remembered for `leave`.
pub const SYSCTLS_OF_KUBERNETES: [&str; 10] = [
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
    "net.ipv4.conf.all.route_localnet",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
];
/// Modules that a node needs loaded.
pub const MODULES: [&str; 7] = ["overlay", "bridge", "br_netfilter", "veth", "vxlan", "nf_conntrack", "nf_tables"];

/// Whether a module can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleState {
    /// It is part of the kernel or loaded.
    Present,
    /// It can be loaded.
    Loadable,
    /// The kernel's list of modules does not have it.
    Missing,
    /// The kernel has no list of modules.
    Unknown,
}

/// What is known of the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// Its first two numbers.
    pub version: Option<(u32, u32)>,
    /// The state of each of [`MODULES`].
    pub modules: BTreeMap<&'static str, ModuleState>,
}

impl Kernel {
    /// Reads what is below a root.
    pub fn read(root: &Path) -> Self {
        let release = text(root, "proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let loaded = text(root, "proc/modules").unwrap_or_default();
        let filesystems = text(root, "proc/filesystems").unwrap_or_default();
        let folder = format!("lib/modules/{release}");
        let builtin = text(root, &format!("{folder}/modules.builtin"));
        let loadable = text(root, &format!("{folder}/modules.dep"));
        let state = |name: &str| {
            let is_loaded = loaded.lines().any(|line| line.split(' ').next().is_some_and(|first| same(first, name)));
            let shows = root.join("sys/module").join(name).is_dir()
                || filesystems.lines().any(|line| line.trim_start_matches("nodev").trim() == name)
                || (name == "br_netfilter" && root.join("proc/sys/net/bridge").is_dir())
                || (name == "nf_conntrack" && root.join("proc/sys/net/netfilter").is_dir());
            if is_loaded || shows || builtin.as_deref().is_some_and(|list| list.lines().any(|line| is_file_of(line, name))) {
                return ModuleState::Present;
            }
            match loadable.as_deref() {
                Some(list) if list.lines().any(|line| is_file_of(line.split(':').next().unwrap_or_default(), name)) => {
                    ModuleState::Loadable
                }
                Some(_) => ModuleState::Missing,
                None => ModuleState::Unknown,
            }
        };
        let modules = MODULES.iter().map(|name| (*name, state(name))).collect();
        Self { version: version(&release), release, modules }
    }

    /// Whether it is that version or a later one; one that tells no version is.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        self.version.is_none_or(|version| version >= (major, minor))
    }

    /// The state of one of [`MODULES`].
    pub fn module(&self, name: &str) -> ModuleState {
        self.modules.get(name).copied().unwrap_or(ModuleState::Unknown)
    }
}

/// Modules are named with `_` and their files now with `-`, now with `_`.
fn same(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

/// Whether a path such as `kernel/fs/overlayfs/overlay.ko.xz` is that module's.
fn is_file_of(path: &str, name: &str) -> bool {
    let file = path.trim().rsplit('/').next().unwrap_or_default();
    file.split_once(".ko").is_some_and(|(stem, _)| same(stem, name))
}

/// The first two numbers of a release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The values of [`SYSCTLS`] and [`SYSCTLS_OF_KUBERNETES`] that the kernel has.
pub fn sysctls(root: &Path) -> BTreeMap<String, String> {
    let value = |name: &str| text(root, &format!("proc/sys/{}", name.replace('.', "/"))).map(|value| value.trim().to_owned());
    let names = SYSCTLS.iter().map(|(name, _)| *name).chain(SYSCTLS_OF_KUBERNETES);
    names.filter_map(|name| Some((name.to_owned(), value(name)?))).collect()
}
