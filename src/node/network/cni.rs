//! The CNI configuration of the platform's pod network: the standard plugins `bridge`, `host-local` and `portmap`.
//!
//! Written whole or not at all, and only when it differs: containerd reads the folder on each change.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use serde_json::json;

use super::links::BRIDGE;
use crate::node::layout::Layout;

/// The network's name: that of `host-local`'s folder, too.
const NETWORK: &str = "kubebyon";

/// The file.
pub(super) fn path(layout: &Layout) -> PathBuf {
    layout.cni_conf_dir().join("10-kubebyon.conflist")
}

/// Where `host-local` keeps which addresses it gave.
pub(super) fn addresses(layout: &Layout) -> PathBuf {
    layout.root().join("var/lib/cni/networks").join(NETWORK)
}

/// The content for a node's range of pod addresses. `portmap` speaks to nf_tables where the kernel has them.
pub(super) fn render(pods: Ipv4Net, mtu: u32, nftables: bool) -> String {
    let content = json!({
        "cniVersion": "1.0.0",
        "name": NETWORK,
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": true,
                "isDefaultGateway": true,
                "hairpinMode": true,
                "ipMasq": false,
                "mtu": mtu,
                "ipam": { "type": "host-local", "ranges": [[{ "subnet": pods.to_string() }]] },
            },
            {
                "type": "portmap",
                "capabilities": { "portMappings": true },
                "backend": if nftables { "nftables" } else { "iptables" },
            },
        ],
    });
    format!("{content:#}\n")
}

/// Writes the configuration. Returns whether it was another.
pub(super) fn write(layout: &Layout, content: &str) -> anyhow::Result<bool> {
    let path = path(layout);
    if std::fs::read_to_string(&path).is_ok_and(|present| present == content) {
        return Ok(false);
    }
    let folder = layout.cni_conf_dir();
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        let mut file = tempfile::Builder::new().prefix(".10-kubebyon-").tempfile_in(&folder)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        std::os::unix::fs::fchown(file.as_file(), Some(0), Some(0)).ok();
        std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.persist(&path).map_err(|error| error.error)?;
        std::fs::File::open(&folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

/// Removes the configuration; that it is not there is well.
pub(super) fn remove(layout: &Layout) -> anyhow::Result<()> {
    absent(std::fs::remove_file(path(layout))).with_context(|| format!("cannot remove {}", path(layout).display()))
}

/// Removes what `host-local` noted of the addresses that it gave.
pub(super) fn remove_addresses(layout: &Layout) -> anyhow::Result<()> {
    let folder = addresses(layout);
    absent(std::fs::remove_dir_all(&folder)).with_context(|| format!("cannot remove {}", folder.display()))
}

fn absent(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_a_node() {
        insta::assert_snapshot!(render("10.244.1.0/24".parse().unwrap(), 1450, true));
    }

    #[test]
    fn is_written_once_whole_and_removed_with_its_traces() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let content = render("10.244.1.0/24".parse().unwrap(), 1450, false);
        assert!(write(&layout, &content).unwrap());
        assert!(!write(&layout, &content).unwrap());
        assert_eq!(std::fs::read_to_string(path(&layout)).unwrap(), content);
        std::fs::create_dir_all(addresses(&layout)).unwrap();
        for _ in 0..2 {
            remove(&layout).unwrap();
            remove_addresses(&layout).unwrap();
        }
        assert_eq!(std::fs::read_dir(layout.cni_conf_dir()).unwrap().count(), 0);
        assert!(!addresses(&layout).exists());
    }
}
