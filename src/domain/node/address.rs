//! Which address is a node's `InternalIP`: the one that its machine reported, or one of a range of the platform's.
//!
//! Machines of one cluster may stand in different networks and report the same private address, while Kubernetes needs one that is
//! the node's alone. Assigned addresses come from class E (240.0.0.0/4, reserved by RFC 1112): Linux, kubelet and kube-proxy take
//! them for ordinary unicast, no cluster's range may overlap them, and a packet for one that strays from its node is dropped by the
//! first router. The shared range of RFC 6598 would be more usual and is no choice: tailnets number their machines from it, and
//! some clouds have resolvers and metadata there, which an address on the node would hide.

use std::net::{IpAddr, Ipv4Addr};

use sha2::{Digest as _, Sha256};

use super::super::NodeId;
use super::super::cluster::ClusterSpec;

/// The first byte of assigned addresses: they are of 248.0.0.0/8.
const ASSIGNED: u8 = 248;
/// How many addresses are tried: of 16 million, so many are never taken by chance.
const TRIES: u32 = 64;

/// Whether an address that a machine reported can be its `InternalIP` in such a cluster, as far as other nodes have not got it.
pub fn usable(spec: &ClusterSpec, reported: IpAddr) -> bool {
    let IpAddr::V4(address) = reported.to_canonical() else { return false };
    let special = address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
        || address.octets()[0] == ASSIGNED;
    !special && is_outside(spec, address.into())
}

/// The addresses that may be assigned to a node, in the order in which they are tried: the same for every call.
pub fn candidates(spec: &ClusterSpec, node: NodeId) -> impl Iterator<Item = IpAddr> + '_ {
    (0..TRIES)
        .map(move |n| {
            let digest = Sha256::new().chain_update(node.uuid().as_bytes()).chain_update(n.to_be_bytes()).finalize();
            // Neither the first nor the last of a /24, which some take for a network's own.
            IpAddr::from(Ipv4Addr::new(ASSIGNED, digest[0], digest[1], 1 + digest[2] % 254))
        })
        .filter(|address| is_outside(spec, *address))
}

fn is_outside(spec: &ClusterSpec, address: IpAddr) -> bool {
    !spec.pod_cidr.contains(&address) && !spec.service_cidr.contains(&address) && spec.api_local_address != address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;

    fn spec(api_local_address: &str) -> ClusterSpec {
        let spec = serde_json::json!({"kubernetes_version": "1.34.4", "engine": "local", "pod_cidr": "10.244.0.0/16",
            "service_cidr": "10.96.0.0/16", "api_local_address": api_local_address});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_means_something_else_is_not_a_nodes_address() {
        let spec = spec("198.51.100.1");
        for good in ["192.168.1.10", "10.0.0.5", "203.0.113.9", "100.100.2.1", "::ffff:192.168.1.10"] {
            assert!(usable(&spec, good.parse().unwrap()), "{good}");
        }
        for bad in [
            "10.244.3.1",
            "10.96.0.1",
            "198.51.100.1",
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "248.1.2.3",
            "fd00::1",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!usable(&spec, bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn assigned_addresses_are_a_nodes_own_and_stay() {
        let (one, two) = (NodeId::generate(&Ambient::system()), NodeId::generate(&Ambient::system()));
        let plain = spec("198.51.100.1");
        let first: Vec<_> = candidates(&plain, one).collect();
        assert_eq!(first, candidates(&plain, one).collect::<Vec<_>>());
        assert_eq!(first.len(), TRIES as usize);
        assert_ne!(first[0], candidates(&plain, two).next().unwrap());
        let occupied = spec(&first[0].to_string());
        assert!(!candidates(&occupied, one).any(|address| address == first[0]), "the API's address is never a node's");
    }
}
