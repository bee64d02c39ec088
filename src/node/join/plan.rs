//! The plan of a join: what is going to be done to this machine, as values. Pure; `install` carries it out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::node::layout::Layout;
use crate::node::machine::kernel::{MODULES, SYSCTLS};
use crate::node::machine::{Facts, ModuleState, PackageTool, SeLinux};
use crate::node::preflight::Wanted;

/// One step that changes the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Install packages of the distribution.
    Packages {
        /// With this.
        tool: PackageTool,
        /// These.
        names: Vec<String>,
    },
    /// Load modules, now and at each boot.
    Modules {
        /// These.
        names: Vec<String>,
        /// The list for later boots.
        file: PathBuf,
    },
    /// Set settings of the kernel, now and at each boot.
    Sysctls {
        /// Name and value.
        values: BTreeMap<String, String>,
        /// The list for later boots.
        file: PathBuf,
    },
    /// Fetch programs and check them.
    Programs {
        /// Where those of the node stand.
        folder: PathBuf,
        /// Where CNI's plugins stand.
        plugins: PathBuf,
        /// Whether containerd and runc are among them.
        containerd: bool,
    },
    /// Give programs their SELinux labels.
    Labels {
        /// Below these folders.
        folders: Vec<PathBuf>,
    },
    /// Put image archives in place, that of the verification among them.
    Images {
        /// Here.
        folder: PathBuf,
    },
    /// Write the unit and start it.
    Unit {
        /// The unit's file.
        file: PathBuf,
    },
}

impl Step {
    /// Its name: one CamelCase word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Packages { .. } => "Packages",
            Self::Modules { .. } => "Modules",
            Self::Sysctls { .. } => "Sysctls",
            Self::Programs { .. } => "Programs",
            Self::Labels { .. } => "Labels",
            Self::Images { .. } => "Images",
            Self::Unit { .. } => "Unit",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packages { tool, names } => write!(f, "install packages: {}", tool.install(&names.join(" "))),
            Self::Modules { names, file } => write!(f, "load modules {} (and at boot: {})", names.join(", "), file.display()),
            Self::Sysctls { values, file } => {
                let list: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "set {} (and at boot: {})", list.join(", "), file.display())
            }
            Self::Programs { folder, plugins, containerd } => {
                let runtime = if *containerd { ", containerd, runc" } else { "" };
                let (folder, plugins) = (folder.display(), plugins.display());
                write!(
                    f,
                    "fetch kubelet, kube-proxy{runtime} and kubebyon into {folder}, CNI plugins into {plugins}, each checked by its SHA-256"
                )
            }
            Self::Labels { folders } => {
                let list: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                write!(f, "label for SELinux: restorecon -R {}", list.join(" "))
            }
            Self::Images { folder } => write!(f, "put image archives into {}", folder.display()),
            Self::Unit { file } => write!(f, "write, enable and start the unit {}", file.display()),
        }
    }
}

/// The steps that this machine needs, in their order.
pub fn plan(facts: &Facts, wanted: &Wanted, layout: &Layout) -> Vec<Step> {
    let mut steps = Vec::new();
    steps.extend(packages(facts, wanted));
    let names: Vec<_> =
        MODULES.iter().filter(|name| facts.kernel.module(name) != ModuleState::Missing).map(|name| (*name).to_owned()).collect();
    steps.push(Step::Modules { names, file: modules_file(layout) });
    let bridged = facts.kernel.module("br_netfilter") != ModuleState::Missing;
    let values = SYSCTLS
        .iter()
        .filter(|(name, _)| bridged || !name.starts_with("net.bridge."))
        // What is large enough stays: somebody wanted it so.
        .map(|(name, least)| {
            let present = facts.sysctls.get(*name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            ((*name).to_owned(), present.max(*least).to_string())
        })
        .collect();
    steps.push(Step::Sysctls { values, file: sysctls_file(layout) });
    let (folder, plugins) = (layout.bin_dir(), layout.cni_bin_dir());
    let containerd = wanted.containerd_socket.is_none();
    steps.push(Step::Programs { folder: folder.clone(), plugins: plugins.clone(), containerd });
    if facts.selinux != SeLinux::Disabled && facts.has("restorecon") {
        steps.push(Step::Labels { folders: vec![folder, plugins] });
    }
    steps.push(Step::Images { folder: images_dir(layout) });
    if wanted.service {
        steps.push(Step::Unit { file: layout.unit() });
    }
    steps
}

fn packages(facts: &Facts, wanted: &Wanted) -> Option<Step> {
    let tool = facts.os.packages();
    if !wanted.packages || tool == PackageTool::Unknown {
        return None;
    }
    let mut names = Vec::new();
    if !facts.has("nft") {
        names.push("nftables".to_owned());
    }
    // Kernels without nf_tables make Services with it, and so do CNI's plugins of older kinds.
    if !facts.has("iptables") && (!facts.kernel.at_least(5, 13) || facts.kernel.module("nf_tables") == ModuleState::Missing) {
        names.push("iptables".to_owned());
    }
    (!names.is_empty()).then_some(Step::Packages { tool, names })
}

/// The list of modules that are loaded at boot.
pub fn modules_file(layout: &Layout) -> PathBuf {
    layout.root().join("etc/modules-load.d/kubebyon.conf")
}

/// The list of settings that are set at boot.
pub fn sysctls_file(layout: &Layout) -> PathBuf {
    layout.root().join("etc/sysctl.d/90-kubebyon.conf")
}

/// Where image archives are put; the node role has containerd import them.
pub fn images_dir(layout: &Layout) -> PathBuf {
    layout.state_dir().join("images")
}
