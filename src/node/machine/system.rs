//! What files say of the system: its distribution, SELinux, firewalls, swap, memory, traces of another Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::text;
use crate::node::layout::Layout;

/// How packages are installed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PackageTool {
    /// Debian and what descends from it.
    Apt,
    /// Red Hat and what descends from it.
    Dnf,
    /// SUSE.
    Zypper,
    /// Another.
    #[default]
    Unknown,
}

impl PackageTool {
    /// The command that installs packages, for people.
    pub fn install(self, packages: &str) -> String {
        match self {
            Self::Apt => format!("apt-get install -y {packages}"),
            Self::Dnf => format!("dnf install -y {packages}"),
            Self::Zypper => format!("zypper install -y {packages}"),
            Self::Unknown => format!("install {packages} with your distribution's package manager"),
        }
    }
}

/// What `/etc/os-release` says (freedesktop's os-release(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatingSystem {
    /// `ID`, such as `debian`.
    pub id: String,
    /// `ID_LIKE`, such as `rhel centos fedora`.
    pub like: Vec<String>,
    /// `VERSION_ID`, such as `24.04`.
    pub version: String,
    /// `PRETTY_NAME`.
    pub name: String,
}

impl OperatingSystem {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Self {
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim().split_once('='))
            .map(|(key, value)| (key, value.trim().trim_matches(['"', '\''])))
            .collect();
        let field = |key| fields.get(key).copied().unwrap_or_default().to_owned();
        Self {
            id: field("ID"),
            like: field("ID_LIKE").split_whitespace().map(str::to_owned).collect(),
            version: field("VERSION_ID"),
            name: fields.get("PRETTY_NAME").or_else(|| fields.get("NAME")).copied().unwrap_or("Linux").to_owned(),
        }
    }

    /// Whether it is one of these or descends from one of them.
    pub fn is(&self, ids: &[&str]) -> bool {
        ids.iter().any(|id| self.id == *id || self.like.iter().any(|like| like == id))
    }

    /// How packages are installed.
    pub fn packages(&self) -> PackageTool {
        if self.is(&["debian", "ubuntu", "raspbian"]) {
            PackageTool::Apt
        } else if self.is(&["rhel", "fedora", "centos", "rocky", "almalinux"]) {
            PackageTool::Dnf
        } else if self.is(&["suse", "opensuse", "sles"]) {
            PackageTool::Zypper
        } else {
            PackageTool::Unknown
        }
    }
}

/// How SELinux is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeLinux {
    /// There is none.
    #[default]
    Disabled,
    /// It tells and refuses nothing.
    Permissive,
    /// It refuses.
    Enforcing,
}

impl SeLinux {
    /// From the text of `/sys/fs/selinux/enforce`.
    pub fn parse(enforce: Option<&str>) -> Self {
        match enforce.map(str::trim) {
            Some("1") => Self::Enforcing,
            Some(_) => Self::Permissive,
            None => Self::Disabled,
        }
    }
}

/// Whether `/etc/ufw/ufw.conf` switches ufw on.
pub fn ufw_enabled(conf: &str) -> bool {
    conf.lines().any(|line| line.trim().strip_prefix("ENABLED=").is_some_and(|value| value.trim().eq_ignore_ascii_case("yes")))
}

/// The sources of a zone of firewalld.
pub fn zone_sources(xml: &str) -> BTreeSet<String> {
    xml.split("<source ")
        .skip(1)
        .filter_map(|rest| rest.split('>').next()?.split("address=\"").nth(1)?.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// The devices of `/proc/swaps`.
pub fn swaps(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
pub fn memory(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Traces of a Kubernetes that is not ours.
pub fn other_kubernetes(layout: &Layout) -> Vec<String> {
    let root = layout.root();
    let mut found = Vec::new();
    for file in ["etc/kubernetes/kubelet.conf", "etc/rancher/k3s", "etc/rancher/rke2", "var/snap/microk8s", "var/lib/k0s"] {
        if root.join(file).exists() {
            found.push(format!("/{file}"));
        }
    }
    let ours = layout.node_yaml().exists() || layout.state_dir().exists();
    let occupied = std::fs::read_dir(layout.kubelet_dir()).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !ours {
        found.push("/var/lib/kubelet, which is not empty".to_owned());
    }
    found
}

/// What kind of container this is, by the marks that engines leave.
pub fn container(root: &Path) -> Option<String> {
    let environment = text(root, "proc/1/environ").unwrap_or_default();
    if let Some(kind) = environment.split('\0').find_map(|entry| entry.strip_prefix("container=")).filter(|kind| !kind.is_empty()) {
        return Some(kind.to_owned());
    }
    let marks = [("run/.containerenv", "podman"), (".dockerenv", "docker")];
    marks.iter().find(|(file, _)| root.join(file).exists()).map(|(_, kind)| (*kind).to_owned())
}
