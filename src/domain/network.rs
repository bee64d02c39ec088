//! A cluster's address ranges and the rules between them.

use ipnet::IpNet;

use super::Invalid;

/// The pods' range when nothing is said.
pub const DEFAULT_POD_CIDR: &str = "10.244.0.0/16";
/// The Services' range when nothing is said.
pub const DEFAULT_SERVICE_CIDR: &str = "10.96.0.0/16";
/// The address on a node that leads to the API server (TEST-NET-2, RFC 5737: routed nowhere).
pub const DEFAULT_API_LOCAL_ADDRESS: &str = "198.51.100.1";

/// The port of the API server, in control planes and behind the API address of every node.
pub const API_LOCAL_PORT: u16 = 6443;
/// Which address of the Services' range is that of DNS.
pub const DNS_ADDRESS_INDEX: u32 = 10;

/// Parses a range and refuses host bits, which are a typing mistake more often than not.
pub fn parse_cidr(field: &str, text: &str) -> Result<IpNet, Invalid> {
    let net: IpNet =
        text.parse().map_err(|_| Invalid::new(field, format!("{text:?} is no range of addresses; it looks like 10.244.0.0/16")))?;
    if net.trunc() != net {
        return Err(Invalid::new(field, format!("{net} has bits set behind its prefix; did you mean {}?", net.trunc())));
    }
    Ok(net)
}

/// Whether two ranges share an address.
pub fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// Ranges that no cluster may use: they mean something on every machine.
const FORBIDDEN: &[(&str, &str)] = &[
    ("127.0.0.0/8", "loopback addresses"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/4", "multicast addresses"),
    ("0.0.0.0/8", "addresses of \"this network\""),
    ("240.0.0.0/4", "reserved addresses"),
];

/// Checks the ranges of a cluster against each other and against what no cluster may use.
pub fn validate(pod: IpNet, service: IpNet, api_local: std::net::IpAddr) -> Result<(), Invalid> {
    for (field, net, longest) in [("spec.pod_cidr", pod, 24), ("spec.service_cidr", service, 28)] {
        if !matches!(net, IpNet::V4(_)) {
            return Err(Invalid::new(field, format!("{net} is IPv6; clusters are IPv4 for now")));
        }
        for (range, what) in FORBIDDEN {
            let range: IpNet = range.parse().expect("a constant");
            if overlap(net, range) {
                return Err(Invalid::new(field, format!("{net} overlaps {range}, which holds {what}")));
            }
        }
        if net.prefix_len() > longest {
            return Err(Invalid::new(field, format!("{net} is too small; a prefix of /{longest} or shorter is needed")));
        }
        if net.prefix_len() < 8 {
            return Err(Invalid::new(field, format!("{net} is too large; /8 is the most")));
        }
        if net.contains(&api_local) {
            return Err(Invalid::new(
                "spec.api_local_address",
                format!("{api_local} lies in {field} ({net}); choose an address outside of it"),
            ));
        }
    }
    // The API server allots node ports' and cluster addresses from at most 2^20 addresses (IPv4: /12).
    if service.prefix_len() < 12 {
        return Err(Invalid::new("spec.service_cidr", format!("{service} is too large; Kubernetes takes at most a /12")));
    }
    if overlap(pod, service) {
        return Err(Invalid::new("spec.service_cidr", format!("{service} overlaps the pods' range {pod}; choose another")));
    }
    Ok(())
}

/// The `nth` address of a range, counted from its network address.
pub fn nth_address(net: IpNet, nth: u32) -> Option<std::net::IpAddr> {
    match net {
        IpNet::V4(net) => {
            let address = u32::from(net.network()).checked_add(nth)?;
            let address = std::net::Ipv4Addr::from(address);
            net.contains(&address).then_some(address.into())
        }
        IpNet::V6(net) => {
            let address = std::net::Ipv6Addr::from(u128::from(net.network()).checked_add(u128::from(nth))?);
            net.contains(&address).then_some(address.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: &str, service: &str, local: &str) -> Result<(), Invalid> {
        validate(parse_cidr("spec.pod_cidr", pod)?, parse_cidr("spec.service_cidr", service)?, local.parse().unwrap())
    }

    #[test]
    fn the_defaults_stand() {
        assert_eq!(check(DEFAULT_POD_CIDR, DEFAULT_SERVICE_CIDR, DEFAULT_API_LOCAL_ADDRESS), Ok(()));
    }

    #[test]
    fn refuses_what_overlaps_or_is_malformed() {
        for (pod, service, local) in [
            ("10.96.0.0/12", "10.96.0.0/16", "198.51.100.1"),
            ("127.1.0.0/16", "10.96.0.0/16", "198.51.100.1"),
            ("10.244.0.0/16", "10.244.1.0/24", "198.51.100.1"),
            ("10.244.0.0/16", "10.0.0.0/8", "198.51.100.1"),
            ("10.244.0.0/16", "10.96.0.0/30", "198.51.100.1"),
            ("10.244.0.1/16", "10.96.0.0/16", "198.51.100.1"),
            ("10.244.0.0/16", "10.96.0.0/16", "10.96.3.3"),
            ("fd00::/56", "10.96.0.0/16", "198.51.100.1"),
            ("ten", "10.96.0.0/16", "198.51.100.1"),
        ] {
            assert!(check(pod, service, local).is_err(), "{pod} {service} {local}");
        }
    }

    #[test]
    fn counts_addresses() {
        assert_eq!(nth_address("10.96.0.0/16".parse().unwrap(), 1), Some("10.96.0.1".parse().unwrap()));
        assert_eq!(nth_address("10.96.0.0/30".parse().unwrap(), 4), None);
    }
}
