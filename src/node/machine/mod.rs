//! Facts about this machine: what preflight judges and what the plan of a join follows from.
//!
//! [`Facts::read`] reads files below a root and nothing else, so that a folder of files stands for a machine; what no file tells (addresses,
//! free space, firewall rules) comes in as [`Probed`]. A file that is absent or foreign is a fact that is not known, never a failure.
//! May import: `domain`.

pub mod cgroups;
pub mod kernel;
pub mod network;
pub mod processes;
pub mod system;

#[cfg(test)]
pub(crate) mod fixtures;
mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use crate::node::layout::Layout;

pub use cgroups::Cgroups;
pub use kernel::{Kernel, ModuleState};
pub use network::{Listener, NetRoute};
pub use probe::probe;
pub use processes::Running;
pub use system::{OperatingSystem, PackageTool, SeLinux};

/// What is known of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What `/etc/os-release` says.
    pub os: OperatingSystem,
    /// The board's name where firmware tells one, such as `Raspberry Pi 4 Model B Rev 1.5`.
    pub board: Option<String>,
    /// Kernel and modules.
    pub kernel: Kernel,
    /// Control groups.
    pub cgroups: Cgroups,
    /// SELinux.
    pub selinux: SeLinux,
    /// Whether ufw is switched on.
    pub ufw: bool,
    /// The sources that firewalld trusts (the zone `trusted`).
    pub firewalld_trusted: BTreeSet<String>,
    /// What runs here.
    pub running: Running,
    /// Swap devices in use.
    pub swap: Vec<String>,
    /// Who listens where, TCP.
    pub listeners: Vec<Listener>,
    /// IPv4 routes, the default's among them.
    pub routes: Vec<NetRoute>,
    /// The resolvers that names are asked of.
    pub resolvers: Vec<IpAddr>,
    /// The host name.
    pub hostname: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Programs found on the usual path.
    pub programs: BTreeSet<String>,
    /// Traces of another Kubernetes, a sentence's part each, such as `the folder /etc/kubernetes`.
    pub other_kubernetes: Vec<String>,
    /// Whether systemd is the first process.
    pub systemd: bool,
    /// What kind of container this is, where it is one.
    pub container: Option<String>,
    /// Settings of the kernel that a node changes, as they are.
    pub sysctls: BTreeMap<String, String>,
    /// What no file tells.
    pub probed: Probed,
}

/// What no file tells of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probed {
    /// `amd64`, `arm64`, or what the kernel calls it.
    pub architecture: String,
    /// This machine's addresses, with the interfaces that hold them.
    pub addresses: Vec<(String, IpAddr)>,
    /// The address that packets to the world bear.
    pub address: Option<IpAddr>,
    /// Bytes free where programs and containers are kept.
    pub disk_free: Option<u64>,
    /// Whether forwarded packets are dropped by default, as `iptables` or `nft` tell.
    pub forward_drop: Option<bool>,
    /// Whether this process is root's.
    pub root: bool,
}

/// Programs that are looked for.
const PROGRAMS: [&str; 11] =
    ["nft", "iptables", "mount", "umount", "modprobe", "systemctl", "restorecon", "apt-get", "dnf", "kubectl", "mount.nfs"];
/// Where they are looked for, below the root.
const FOLDERS: [&str; 6] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

impl Facts {
    /// Reads the files below a layout's root.
    pub fn read(layout: &Layout, probed: Probed) -> Self {
        let root = layout.root();
        let kernel = Kernel::read(root);
        Self {
            os: OperatingSystem::parse(&text(root, "etc/os-release").or_else(|| text(root, "usr/lib/os-release")).unwrap_or_default()),
            board: text(root, "proc/device-tree/model").map(|model| model.trim_end_matches('\0').trim().to_owned()),
            cgroups: Cgroups::read(root),
            selinux: SeLinux::parse(text(root, "sys/fs/selinux/enforce").as_deref()),
            ufw: text(root, "etc/ufw/ufw.conf").is_some_and(|conf| system::ufw_enabled(&conf)),
            firewalld_trusted: text(root, "etc/firewalld/zones/trusted.xml").map(|zone| system::zone_sources(&zone)).unwrap_or_default(),
            running: Running::read(root),
            swap: text(root, "proc/swaps").map(|swaps| system::swaps(&swaps)).unwrap_or_default(),
            listeners: network::listeners(root),
            routes: text(root, "proc/net/route").map(|routes| network::routes(&routes)).unwrap_or_default(),
            resolvers: network::resolvers(root),
            hostname: text(root, "proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            memory: text(root, "proc/meminfo").and_then(|info| system::memory(&info)).unwrap_or_default(),
            programs: programs(root),
            other_kubernetes: system::other_kubernetes(layout),
            systemd: root.join("run/systemd/system").is_dir(),
            container: system::container(root),
            sysctls: kernel::sysctls(root),
            kernel,
            probed,
        }
    }

    /// Whether a program is on the usual path.
    pub fn has(&self, program: &str) -> bool {
        self.programs.contains(program)
    }

    /// Whether this is a Raspberry Pi.
    pub fn is_raspberry_pi(&self) -> bool {
        self.board.as_deref().is_some_and(|board| board.contains("Raspberry Pi"))
    }
}

fn programs(root: &Path) -> BTreeSet<String> {
    let found = |program: &&&str| FOLDERS.iter().any(|folder| root.join(folder).join(program).symlink_metadata().is_ok());
    PROGRAMS.iter().filter(found).map(|program| (*program).to_owned()).collect()
}

/// The most that is read of a file.
const MAX_FILE: u64 = 4 << 20;

/// A file's text, up to 4 MiB of it; `None` where it cannot be read.
fn text(root: &Path, path: &str) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(root.join(path)).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
