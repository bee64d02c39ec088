//! Where things stand on a node. All paths are below one root, so that tests and `--root` can choose another.

use std::path::{Path, PathBuf};

/// The folders and files of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Default for Layout {
    fn default() -> Self {
        Self { root: PathBuf::from("/") }
    }
}

macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident => $path:literal;)+) => {
        impl Layout {
            $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.root.join($path) })+
        }
    };
}

paths! {
    /// What the machine learned at join: `node::membership`.
    node_yaml => "etc/kubebyon/node.yaml";
    /// Owners' own additions to containerd's configuration (`*.toml`); never written by us, kept through upgrades and by `leave`.
    containerd_drop_ins => "etc/kubebyon/containerd.d";
    /// Registry hosts' configuration for containerd (`hosts.toml` files).
    registry_hosts => "etc/kubebyon/certs.d";
    /// What the node role keeps: rendered configurations, kubeconfigs, the journal of a join.
    state_dir => "var/lib/kubebyon-node";
    /// containerd's root.
    containerd_root => "var/lib/kubebyon-node/containerd";
    /// Logs of containerd, kubelet and kube-proxy.
    log_dir => "var/log/kubebyon-node";
    /// What must not outlive a boot.
    run_dir => "run/kubebyon-node";
    /// The node role's own socket, for `status`, `leave` and `doctor`.
    control_socket => "run/kubebyon-node/node.sock";
    /// containerd's state.
    containerd_state => "run/kubebyon-node/containerd";
    /// containerd's socket.
    containerd_socket => "run/kubebyon-node/containerd.sock";
    /// Our programs: `kubebyon`, `containerd`, `runc`, `kubelet`, ….
    bin_dir => "opt/kubebyon/bin";
    /// CNI plugins, where operators' charts expect them.
    cni_bin_dir => "opt/cni/bin";
    /// CNI configuration, where operators' charts expect it.
    cni_conf_dir => "etc/cni/net.d";
    /// The kubelet's own folder.
    kubelet_dir => "var/lib/kubelet";
    /// The kubelet's client certificate with its key (PEM); a link that rotation moves.
    kubelet_client => "var/lib/kubelet/pki/kubelet-client-current.pem";
    /// The unit.
    unit => "etc/systemd/system/kubebyon-node.service";
}

impl Layout {
    /// Below another root.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root.
    pub fn root(&self) -> &Path {
        &self.root
    }
}
