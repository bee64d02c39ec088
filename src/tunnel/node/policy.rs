//! What a node dials for the platform: its own address, pods, Services, and public hosts that the platform names. Pure.
//!
//! The platform decides first; this holds should it be mistaken or taken over: a node never becomes a way into its owner's network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::Reach;

/// What is to be done for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Dial this.
    Address(SocketAddr),
    /// Resolve this name, and dial what [`resolved`] lets through.
    Name(String),
}

/// Decides on a request.
///
/// # Errors
/// Why it is not dialled: a sentence.
pub fn decide(reach: &Reach, host: &str, port: u16, public: bool) -> Result<Destination, String> {
    if port == 0 {
        return Err("port 0 is none".to_owned());
    }
    let Ok(address) = host.parse::<IpAddr>() else {
        return if !public {
            Err(format!("{host} is a name: nodes resolve only public hosts that the platform's configuration names"))
        } else if is_name(host) {
            Ok(Destination::Name(host.to_owned()))
        } else {
            Err("the host is neither an address nor a name".to_owned())
        };
    };
    let address = address.to_canonical();
    let within = if public { is_public(reach, address) } else { is_of_cluster(reach, address) };
    if within {
        return Ok(Destination::Address(SocketAddr::new(address, port)));
    }
    let what = if public { "is not public" } else { "is not this node's address and of no pod or Service" };
    Err(format!("{address} {what}: this node does not dial it"))
}

/// The addresses of a public host that are dialled.
///
/// # Errors
/// There is none, or one of them is not public, which makes all of them doubtful: a sentence.
pub fn resolved(reach: &Reach, name: &str, found: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = found.into_iter().map(|at| SocketAddr::new(at.ip().to_canonical(), at.port())).collect();
    if let Some(at) = found.iter().find(|at| !is_public(reach, at.ip())) {
        return Err(format!("{name} has the address {}, which is not public: this node does not dial it", at.ip()));
    }
    if found.is_empty() { Err(format!("{name} has no address")) } else { Ok(found) }
}

/// Whether an address is the node's own, or of a pod or a Service.
fn is_of_cluster(reach: &Reach, address: IpAddr) -> bool {
    let never = address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || is_link_local(address)
        || address == reach.api_local_address;
    !never && (address == reach.address || reach.pod_cidr.contains(&address) || reach.service_cidr.contains(&address))
}

/// Whether an address is of the public internet, and not of this cluster.
fn is_public(reach: &Reach, address: IpAddr) -> bool {
    let ours = address == reach.address
        || address == reach.api_local_address
        || reach.pod_cidr.contains(&address)
        || reach.service_cidr.contains(&address);
    !ours
        && match address {
            IpAddr::V4(address) => is_public_v4(address),
            IpAddr::V6(address) => is_public_v6(address),
        }
}

/// Ranges of IPv4 that are not globally reachable (IANA's special-purpose registry, RFC 6890 and later).
const SPECIAL_V4: [&str; 15] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// Ranges of 2000::/3 that are not globally reachable, or that hold IPv4 addresses which may not be.
const SPECIAL_V6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !within(&SPECIAL_V4, address.into())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is all of 2000::/3 (RFC 4291, IANA); ULA, link-local, NAT64 and mapped addresses lie outside.
    address.segments()[0] & 0xe000 == 0x2000 && !within(&SPECIAL_V6, address.into())
}

fn within(ranges: &[&str], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.parse::<IpNet>().expect("a constant").contains(&address))
}

const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.len() <= 253 && host.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach() -> Reach {
        Reach {
            address: "192.168.1.10".parse().unwrap(),
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            api_local_address: "198.51.100.1".parse().unwrap(),
        }
    }

    #[test]
    fn dials_its_cluster_and_nothing_beside() {
        let mut reach = reach();
        for host in ["192.168.1.10", "::ffff:192.168.1.10", "10.244.3.4", "10.96.0.10"] {
            assert!(matches!(decide(&reach, host, 10250, false), Ok(Destination::Address(_))), "{host}");
        }
        for host in [
            "192.168.1.1",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "198.51.100.1",
            "8.8.8.8",
            "localhost",
            "kubernetes.default.svc",
            "",
            "10.96.0.10 ",
            "0x7f000001",
        ] {
            assert!(decide(&reach, host, 80, false).is_err(), "{host}");
        }
        assert!(decide(&reach, "10.96.0.10", 0, false).is_err());
        for forged in ["127.0.0.1", "169.254.169.254", "198.51.100.1", "0.0.0.0"] {
            reach.address = forged.parse().unwrap();
            assert!(decide(&reach, forged, 80, false).is_err(), "an InternalIP of {forged}");
        }
    }

    #[test]
    fn public_hosts_are_public_in_all_their_addresses() {
        let reach = reach();
        assert_eq!(decide(&reach, "hooks.example", 443, true), Ok(Destination::Name("hooks.example".into())));
        assert!(matches!(decide(&reach, "8.8.8.8", 443, true), Ok(Destination::Address(_))));
        for host in ["a b", "a..b", "", "-\n", "10.244.3.4", "192.168.1.10"] {
            assert!(decide(&reach, host, 443, true).is_err(), "{host:?}");
        }
        let found = |addresses: &[&str]| {
            resolved(&reach, "hooks.example", addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 443)))
        };
        assert_eq!(found(&["8.8.8.8", "2606:4700::1111", "::ffff:9.9.9.9"]).unwrap().len(), 3);
        assert!(found(&[]).is_err());
        for inner in [
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.10",
            "127.0.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.0.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::1",
        ] {
            assert!(found(&["8.8.8.8", inner]).is_err(), "{inner}");
        }
        let odd = Reach { pod_cidr: "11.0.0.0/16".parse().unwrap(), ..reach.clone() };
        assert!(resolved(&odd, "x", [SocketAddr::new("11.0.0.1".parse().unwrap(), 443)]).is_err(), "pods with public addresses");
    }
}
