//! The table `ip kubebyon`: pods' packets to the world bear the node's address, and VXLAN is taken from the cluster's nodes alone.
//!
//! One table, put in its place whole in one transaction; `iptables` does the masquerading where the kernel has no nf_tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::links::{OVERLAY, VNI, VXLAN_PORT};
use super::program::run;

/// The table's name, in family `ip`.
const TABLE: &str = "kubebyon";

/// What the rules follow from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    /// The pods of this node.
    pub(super) own_pods: Ipv4Net,
    /// All pods of the cluster.
    pub(super) pods: Ipv4Net,
    /// The other nodes' own addresses.
    pub(super) peers: BTreeSet<Ipv4Addr>,
}

impl Rules {
    /// The transaction that puts these rules in the place of what stands.
    ///
    /// Pods among themselves are never masqueraded, nor is what goes to this machine itself (the API address among it), which meets no
    /// postrouting. What the machine sends into the overlay from another address than a pod's would find no way back, and is masqueraded.
    pub(super) fn text(&self) -> String {
        let Self { own_pods, pods, peers } = self;
        let mut elements = String::new();
        if !peers.is_empty() {
            let list: Vec<_> = peers.iter().map(ToString::to_string).collect();
            let _ = write!(elements, "\n\t\telements = {{ {} }}", list.join(", "));
        }
        // A VXLAN header stands behind the 8 bytes of UDP's; its network identifier is 4 bytes in, and 3 long (RFC 7348).
        format!(
            "\
table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
	set nodes {{
		type ipv4_addr{elements}
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {own_pods} ip daddr != {pods} ip daddr != 224.0.0.0/4 masquerade
		oifname \"{OVERLAY}\" ip saddr != {pods} masquerade
	}}
	chain prerouting {{
		type filter hook prerouting priority raw; policy accept;
		udp dport {VXLAN_PORT} @th,96,24 {VNI:#x} ip saddr != @nodes drop
	}}
}}
"
        )
    }

    /// The same masquerading as rules of `iptables`, without the rest.
    pub(super) fn iptables(&self) -> Vec<super::iptables::Rule> {
        let Self { own_pods, pods, .. } = self;
        let rule = |matches: String| super::iptables::Rule::new("nat", "POSTROUTING", &matches, "MASQUERADE");
        vec![rule(format!("-s {own_pods} ! -d {pods}")), rule(format!("! -s {pods} -o {OVERLAY}"))]
    }
}

/// Whether the table stands; `None` where this machine has no nf_tables.
pub(super) async fn present() -> Option<bool> {
    match run("nft", &["list", "tables", "ip"], "").await {
        Ok(Some(listing)) => Some(listing.lines().any(|line| line == format!("table ip {TABLE}"))),
        Ok(None) => None,
        Err(error) => {
            tracing::debug!(%error, "this machine has no nf_tables");
            None
        }
    }
}

/// Puts rules in the place of what stands.
pub(super) async fn apply(rules: &Rules) -> anyhow::Result<()> {
    run("nft", &["-f", "-"], &rules.text()).await.map(drop)
}

/// Removes tables of that family by name; those that are not there are well.
pub(super) async fn remove_tables(tables: &[(&str, &str)]) -> anyhow::Result<()> {
    // Declared first, so that deleting one cannot fail for its absence.
    let mut text = String::new();
    for (family, name) in tables {
        let _ = writeln!(text, "table {family} {name}\ndelete table {family} {name}");
    }
    run("nft", &["-f", "-"], &text).await.map(drop)
}

/// Removes the table; that it is not there is well.
pub(super) async fn remove() -> anyhow::Result<()> {
    remove_tables(&[("ip", TABLE)]).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::namespace::Namespace;

    fn rules(peers: &[&str]) -> Rules {
        Rules {
            own_pods: "10.244.1.0/24".parse().unwrap(),
            pods: "10.244.0.0/16".parse().unwrap(),
            peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn the_rules_of_a_node() {
        insta::assert_snapshot!(rules(&["192.0.2.9", "192.0.2.10"]).text());
        assert!(!rules(&[]).text().contains("elements"));
    }

    #[test]
    fn the_kernel_takes_them_again_and_again_and_gives_them_back() {
        let namespace = Namespace::new();
        namespace.block_on(|| async {
            for peers in [&[][..], &["192.0.2.9"], &["192.0.2.9"]] {
                apply(&rules(peers)).await.unwrap();
                assert_eq!(present().await, Some(true));
            }
            remove().await.unwrap();
            remove().await.unwrap();
            assert_eq!(present().await, Some(false));
        });
        assert_eq!(namespace.run("nft", &["list", "ruleset"]), "");
    }
}
