//! What a machine looks like, to be compared: files with their kind, mode, owner, size and hash; links; addresses; routes; rules; mounts.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::host::TestHost;

/// A machine's looks: a description for each path or aspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing(BTreeMap<String, String>);

/// What programs that have nothing to do with nodes write at any time.
const PASSING: [&str; 9] =
    ["/tmp", "/run/systemd", "/run/log", "/run/dbus", "/var/log/journal", "/var/log/test-", "/var/lib/systemd", "/root", "/run/test"];

impl TestHost {
    /// Its looks. Of its root's files, those that differ from this machine's are listed: the upper layer of its overlay has them.
    pub fn listing(&self) -> Listing {
        let mut all = BTreeMap::new();
        let root = format!("/proc/{}/root", self.init());
        let upper = self.upper();
        let mut add = |path: &Path, below: &Path| {
            let name = format!("/{}", path.strip_prefix(below).unwrap_or(path).display());
            if !PASSING.iter().any(|passing| name.starts_with(passing)) {
                all.insert(name, describe(path));
            }
        };
        walk(&upper, &mut |path| add(path, &upper));
        for kept in ["run", "var/lib/kubelet", "var/lib/kubebyon-node"] {
            walk(&Path::new(&root).join(kept), &mut |path| add(path, Path::new(&root)));
        }
        for (aspect, line) in [
            ("links", "ip -br link | awk '{ print $1, $2 }' | sort"),
            ("addresses", "ip -br addr | awk '{ $2 = \"\"; print }' | sort"),
            ("routes", "ip route show table all | grep -v '^broadcast\\|^local\\|^multicast\\|^ff00\\|^fe80\\|anycast' | sort"),
            ("rules", "ip rule; ip -6 rule"),
            ("neighbours", "ip neigh show nud permanent; bridge fdb show | grep -v '^33:\\|^01:' | sort"),
            ("nft", "nft list ruleset"),
            ("iptables", "if command -v iptables-save >/dev/null; then iptables-save | sed '/^#/d'; fi"),
            ("mounts", "awk '{ print $5 }' /proc/self/mountinfo | sort"),
            (
                "cgroups",
                "find /sys/fs/cgroup -mindepth 2 -type d | grep -v '/system.slice\\|/init.scope\\|/user.slice\\|\\.mount$' | sort; true",
            ),
            (
                "processes",
                "ps -eo comm= | grep -v '^\\(ps\\|bash\\|sleep\\|sort\\|awk\\|grep\\|find\\|systemd.*\\|(sd-pam)\\|dbus-daemon\\|agetty\\|cron\\|polkitd\\)' | sort; true",
            ),
            (
                "settings",
                "sysctl -a 2>/dev/null | grep -E '^(net.ipv4.(ip_forward|conf.*.(forwarding|rp_filter))|net.bridge|net.netfilter.nf_conntrack_max|vm.(overcommit_memory|panic_on_oom)|kernel.panic|fs.inotify.max) ?' | grep -v 'conf.eth\\|veth' | sort; true",
            ),
        ] {
            all.insert(format!("<{aspect}>"), self.shell(line).trim().to_owned());
        }
        Listing(all)
    }
}

impl Listing {
    /// What differs in a later one, a line each.
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(later.0.keys()).collect();
        for name in names {
            let before = self.0.get(name).cloned().unwrap_or_else(|| untouched(name));
            let after = later.0.get(name).cloned().unwrap_or_else(|| untouched(name));
            if before != after {
                found.push(if name.starts_with('<') { by_line(name, &before, &after) } else { format!("{name}: {before} → {after}") });
            }
        }
        found
    }
}

fn by_line(name: &str, before: &str, after: &str) -> String {
    let gone = before.lines().filter(|line| !after.lines().any(|l| l == *line)).map(|line| format!("\n  - {line}"));
    let new = after.lines().filter(|line| !before.lines().any(|l| l == *line)).map(|line| format!("\n  + {line}"));
    format!("{name}:{}", gone.chain(new).collect::<String>())
}

/// What a path is that the upper layer does not have: this machine's own.
fn untouched(name: &str) -> String {
    if name.starts_with('<') || name.starts_with("/run") { "absent".into() } else { describe(Path::new(name)) }
}

fn describe(path: &Path) -> String {
    let Ok(meta) = path.symlink_metadata() else { return "absent".into() };
    let kind = meta.file_type();
    let owner = format!("{:o} {}:{}", meta.mode() & 0o7777, meta.uid(), meta.gid());
    if kind.is_dir() {
        format!("folder {owner}")
    } else if kind.is_symlink() {
        format!("link to {}", std::fs::read_link(path).map_or_else(|error| error.to_string(), |to| to.display().to_string()))
    } else if kind.is_file() {
        let hash = std::fs::read(path).map_or_else(|error| error.to_string(), |bytes| hex::encode(&Sha256::digest(bytes)[..8]));
        format!("file {owner} {} bytes, {hash}", meta.size())
    } else if kind.is_char_device() && meta.rdev() == 0 {
        // How an overlay says that a file of the lower layer is gone.
        "absent".into()
    } else if kind.is_socket() {
        format!("socket {owner}")
    } else {
        format!("other {owner}")
    }
}

/// Every path below a folder, on the same file system.
fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    let Ok(device) = folder.metadata().map(|meta| meta.dev()) else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        each(&path);
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.dev() == device) {
            walk(&path, each);
        }
    }
}
