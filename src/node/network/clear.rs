//! The inverse of everything that the network made on a machine.

use std::path::Path;

use anyhow::Context as _;

use super::links::{BRIDGE, OVERLAY};
use super::program::run;
use super::{Settings, cni, interface, iptables, rules};
use crate::domain::cluster::Addon;
use crate::node::layout::Layout;
use crate::node::membership::Membership;
use crate::routes::{Netlink, reconcile};

/// The tables that kube-proxy makes.
const KUBE_PROXY: [(&str, &str); 2] = [("ip", "kube-proxy"), ("ip6", "kube-proxy")];
/// The table that the plugin `portmap` makes, in each family; other users of the plugin on this machine share it.
const PORTMAP: &str = "cni_hostport";

/// Removes routes, interfaces, rules and files of the network, the interface of the API address among them. Pods, kube-proxy and the node
/// role have to be gone. It goes on past failures, and returns them all; what is gone already is well.
pub async fn clear(membership: &Membership, layout: &Layout) -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    let mut note = |result: anyhow::Result<()>| failures.extend(result.err());
    note(interface::remove_api_interface().await.map_err(Into::into));
    if membership.cluster.kube_proxy == Addon::Default && rules::present().await.is_some() {
        note(rules::remove_tables(&KUBE_PROXY).await);
    }
    if membership.cluster.cni == Addon::None {
        return failures;
    }
    note(cni::remove(layout));
    note(cni::remove_addresses(layout));
    note(routes(membership).await);
    for name in [OVERLAY, BRIDGE] {
        note(link(name).await);
    }
    if rules::present().await.is_some() {
        note(rules::remove().await);
        for family in ["ip", "ip6"] {
            note(portmap(family).await);
        }
    }
    note(iptables::remove().await);
    for folder in ["var/lib/cni/networks", "var/lib/cni/results", "var/lib/cni"] {
        remove_empty(&layout.root().join(folder));
    }
    failures
}

async fn routes(membership: &Membership) -> anyhow::Result<()> {
    let ownership = Settings::of(membership)?.ownership();
    let pass = reconcile(&Netlink::open()?, &ownership, &[]).await?;
    match pass.failures.first() {
        Some(failure) => anyhow::bail!("{failure}"),
        None => Ok(()),
    }
}

/// Removes the plugin's table when nothing of anybody is forwarded in it.
async fn portmap(family: &str) -> anyhow::Result<()> {
    match run("nft", &["list", "table", family, PORTMAP], "").await {
        Ok(Some(listing)) if !listing.contains("dnat") => rules::remove_tables(&[(family, PORTMAP)]).await,
        // There is no such table, or it is in use.
        _ => Ok(()),
    }
}

async fn link(name: &str) -> anyhow::Result<()> {
    let netlink = Netlink::open()?;
    let expected = if name == OVERLAY { "vxlan" } else { "bridge" };
    match netlink.link(name).await?.filter(|link| link.kind.as_deref() == Some(expected)) {
        Some(link) => interface::delete_link(&netlink, &link).await.with_context(|| format!("cannot remove {name}")),
        None => Ok(()),
    }
}

/// Removes a folder that holds nothing; any other stays.
fn remove_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}
