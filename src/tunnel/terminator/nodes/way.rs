//! Where a target of the API server leads: a pure function of the table of nodes.

use std::net::IpAddr;

use super::NodeTable;
use crate::domain::NodeId;
use crate::domain::cluster::Addon;
use crate::tunnel::connect::{Host, Target};
use crate::tunnel::terminator::targets::Refusal;

/// Who is asked to dial a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// This node, whose address or pod it is.
    Node(NodeId),
    /// One node after the other: it is a pod's address, and nobody here knows of which node.
    Pod(IpAddr),
    /// Any node: it is a Service's address.
    Service,
    /// Any node, which resolves the name and dials public addresses only.
    Public,
}

/// Decides on a target. `api_local` is the address that leads to the API server on nodes.
pub(super) fn decide(table: &NodeTable, api_local: IpAddr, target: &Target) -> Result<Way, Refusal> {
    let address = match &target.host {
        Host::Name(name) => {
            return if is_public_host(table, name, target.port) {
                Ok(Way::Public)
            } else {
                Err(Refusal::new(403, format!("{target} is no address of the cluster, and egress.public_hosts does not name it")))
            };
        }
        Host::Address(address) => address.to_canonical(),
    };
    if let Some(what) = never(address, api_local) {
        return Err(Refusal::new(403, format!("{address} is {what}: nodes are not asked to dial it")));
    }
    let owner = |node: &&super::NodeEntry| node.address == address || node.pod_cidr.is_some_and(|pods| pods.contains(&address));
    // An address of a node stands before ranges, which a table in transition might double.
    if let Some(node) = table.nodes.iter().find(|node| node.address == address).or_else(|| table.nodes.iter().find(owner)) {
        return Ok(Way::Node(node.id));
    }
    if table.service_cidr.contains(&address) {
        return Ok(Way::Service);
    }
    if table.pod_cidr.contains(&address) {
        return match table.cni {
            Addon::None => Ok(Way::Pod(address)),
            Addon::Default => Err(Refusal::new(502, format!("no node of this cluster has the pod address {address}"))),
        };
    }
    if is_public_host(table, &address.to_string(), target.port) {
        return Ok(Way::Public);
    }
    Err(Refusal::new(403, format!("{address} is no address of this cluster's nodes, pods or Services")))
}

/// Whether `egress.public_hosts` names it: as `name` for port 443, or as `name:port`.
fn is_public_host(table: &NodeTable, name: &str, port: u16) -> bool {
    (port == 443 && table.public_hosts.contains(name)) || table.public_hosts.contains(&format!("{name}:{port}"))
}

/// What an address is that nobody dials, whatever a table says.
fn never(address: IpAddr, api_local: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let this_network = matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.is_broadcast());
    match () {
        () if address.is_loopback() => Some("a loopback address"),
        () if link_local => Some("a link-local address"),
        () if address.is_multicast() => Some("a multicast address"),
        () if address.is_unspecified() || this_network => Some("no address of a machine"),
        () if address == api_local => Some("the API server's own address on nodes"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Ambient, NodeId};
    use crate::tunnel::terminator::nodes::NodeEntry;

    const API_LOCAL: &str = "198.51.100.1";

    fn table() -> NodeTable {
        let node = |name: &str, address: &str, pods: Option<&str>| NodeEntry {
            id: NodeId::generate(&Ambient::system()),
            name: name.into(),
            address: address.parse().unwrap(),
            underlay: Vec::new(),
            pod_cidr: pods.map(|pods| pods.parse().unwrap()),
            fingerprints: std::collections::BTreeSet::new(),
        };
        NodeTable {
            nodes: vec![node("a", "192.168.1.10", Some("10.244.0.0/24")), node("b", "203.0.113.9", None)],
            ended: Vec::new(),
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            public_hosts: ["hooks.example".to_owned(), "other.example:8443".to_owned(), "198.51.100.77:443".to_owned()].into(),
            tunnel_endpoints: Vec::new(),
            probe_key: String::new(),
        }
    }

    fn way(table: &NodeTable, host: &str, port: u16) -> Result<Way, (u16, String)> {
        let host = host.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Address);
        decide(table, API_LOCAL.parse().unwrap(), &Target { host, port }).map_err(|refusal| (refusal.status, refusal.reason))
    }

    #[test]
    fn addresses_lead_to_their_nodes() {
        let mut table = table();
        let (a, b) = (table.nodes[0].id, table.nodes[1].id);
        for (host, expected) in [
            ("192.168.1.10", Way::Node(a)),
            ("::ffff:192.168.1.10", Way::Node(a)),
            ("203.0.113.9", Way::Node(b)),
            ("10.244.0.7", Way::Node(a)),
            ("10.96.0.10", Way::Service),
            ("hooks.example", Way::Public),
            ("198.51.100.77", Way::Public),
        ] {
            assert_eq!(way(&table, host, 443), Ok(expected), "{host}");
        }
        assert_eq!(way(&table, "192.168.1.10", 10250), Ok(Way::Node(a)), "any port");
        assert_eq!(way(&table, "other.example", 8443), Ok(Way::Public));
        assert_eq!(way(&table, "10.244.9.7", 80).unwrap_err().0, 502);
        table.cni = Addon::None;
        assert_eq!(way(&table, "10.244.9.7", 80), Ok(Way::Pod("10.244.9.7".parse().unwrap())));
    }

    #[test]
    fn all_else_is_refused() {
        let mut table = table();
        for (host, port) in [
            ("127.0.0.1", 443),
            ("::1", 443),
            ("::ffff:127.0.0.1", 443),
            ("0.0.0.0", 443),
            ("0.1.2.3", 443),
            ("::", 443),
            ("169.254.169.254", 80),
            ("fe80::1", 80),
            ("224.0.0.1", 80),
            ("ff02::1", 80),
            ("255.255.255.255", 80),
            (API_LOCAL, 6443),
            ("192.168.1.11", 10250),
            ("10.0.0.1", 443),
            ("8.8.8.8", 53),
            ("2001:db8::1", 443),
            ("localhost", 443),
            ("hooks.example", 80),
            ("sub.hooks.example", 443),
            ("other.example", 443),
            ("kubernetes.default.svc", 443),
        ] {
            let (status, reason) = way(&table, host, port).unwrap_err();
            assert_eq!(status, 403, "{host}:{port}: {reason}");
        }
        // Nor does a forged table help.
        for forged in ["127.0.0.1", "169.254.169.254", API_LOCAL] {
            table.nodes[0].address = forged.parse().unwrap();
            table.public_hosts.insert(forged.to_owned());
            assert_eq!(way(&table, forged, 443).unwrap_err().0, 403, "{forged}");
        }
    }
}
