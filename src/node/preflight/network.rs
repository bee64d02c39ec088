//! Judging the network: ranges, resolvers, ports, firewalls.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Finding, Ranges, Wanted};
use crate::domain::network::overlap;
use crate::node::machine::{Facts, NetRoute};

/// Interfaces of a node's own, whose routes are no collision.
const OWN: [&str; 3] = ["kubebyon0", "kubebyon-vx", "cni0"];
/// What the node's programs listen at: (port, whose it is).
const PORTS: [(u16, &str); 4] =
    [(10250, "the kubelet"), (10248, "the kubelet's health"), (10249, "kube-proxy's metrics"), (10256, "kube-proxy's health")];

pub(super) fn judge(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(address(facts, wanted));
    findings.extend(ports(facts, wanted));
    // A node has routes into these ranges itself.
    if let Some(ranges) = wanted.cluster.as_ref().filter(|_| !wanted.member) {
        findings.extend(overlaps(facts, ranges));
        findings.extend(resolvers(facts, ranges));
        findings.extend(api_address(facts, ranges));
        findings.extend(wanted.server.and_then(|server| hides(ranges, server)));
    }
    findings.extend(firewalld(facts, wanted));
    findings.extend(ufw(facts, wanted));
    findings.extend(forward(facts));
    findings
}

fn address(facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    if let Some(chosen) = wanted.node_ip {
        let held = facts.probed.addresses.iter().any(|(_, held)| *held == chosen);
        return (!held).then(|| {
            let remedy = "Choose one that `ip address` shows for --node-ip, or leave it away.";
            Finding::error("address", format!("{chosen} is no address of this machine."), remedy)
        });
    }
    facts.probed.address.is_none().then(|| {
        Finding::error(
            "address",
            "This machine has no IPv4 address that other machines could see.",
            "Give it one (`ip -4 address`), or name one of its addresses with --node-ip.",
        )
    })
}

fn ports(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    if wanted.member || facts.running.own_kubelet {
        return Vec::new();
    }
    let taken = |port: u16| facts.listeners.iter().any(|listener| listener.port == port);
    let mut findings: Vec<_> = PORTS
        .iter()
        .filter(|(port, _)| taken(*port))
        .map(|(port, whose)| {
            Finding::error(
                "ports",
                format!("Something listens at port {port}, which is {whose}."),
                format!("See what (`ss -ltnp 'sport = :{port}'`), and stop it."),
            )
        })
        .collect();
    if let Some(Ranges { api: (address, port), .. }) = &wanted.cluster
        && let Some(listener) = facts.listeners.iter().find(|l| l.port == *port && (l.address == *address || l.address.is_unspecified()))
    {
        findings.push(Finding::error(
            "ports",
            format!("Something listens at {}:{port}, where the node is to serve the API at {address}:{port}.", listener.address),
            format!("See what (`ss -ltnp 'sport = :{port}'`), and stop it or have it listen at one address only."),
        ));
    }
    findings
}

/// Routes that lead elsewhere than to everything or to ourselves.
fn foreign_routes(facts: &Facts) -> impl Iterator<Item = &NetRoute> {
    facts.routes.iter().filter(|route| route.to.prefix_len() > 0 && !OWN.contains(&route.dev.as_str()))
}

fn overlaps(facts: &Facts, ranges: &Ranges) -> Vec<Finding> {
    let both = [("pod", ranges.pods, "--pod-cidr"), ("Service", ranges.services, "--service-cidr")];
    let mut findings = Vec::new();
    for (what, range, flag) in both {
        // Ways of a half of everything, as VPNs have them, are meant for everything else.
        let Some(route) = foreign_routes(facts).find(|route| route.to.prefix_len() > 1 && overlap(route.to, range)) else {
            continue;
        };
        findings.push(Finding::error(
            "ranges",
            format!("The cluster's {what} range {range} overlaps {}, which this machine reaches through {}.", route.to, route.dev),
            another_cluster(flag, range),
        ));
    }
    findings
}

/// The remedy for a range that is taken: it cannot be changed in a cluster.
fn another_cluster(flag: &str, range: IpNet) -> String {
    let free = if range.to_string().starts_with("10.") { "172.30.0.0/16" } else { "10.244.0.0/16" };
    format!(
        "A cluster's ranges stay as they are: create one with another, such as `kubebyon cluster create NAME {flag} {free}`, and join that."
    )
}

fn resolvers(facts: &Facts, ranges: &Ranges) -> Vec<Finding> {
    let both = [("pod", ranges.pods, "--pod-cidr"), ("Service", ranges.services, "--service-cidr")];
    let taken = |(what, range, flag): (&str, IpNet, &str)| {
        let resolver = facts.resolvers.iter().find(|resolver| range.contains(*resolver))?;
        Some(Finding::error(
            "resolvers",
            format!("This machine asks {resolver} for names, and that lies in the cluster's {what} range {range}."),
            another_cluster(flag, range),
        ))
    };
    both.into_iter().filter_map(taken).collect()
}

fn api_address(facts: &Facts, ranges: &Ranges) -> Option<Finding> {
    let (address, _) = ranges.api;
    let holder = facts.probed.addresses.iter().find(|(dev, held)| *held == address && !OWN.contains(&dev.as_str()));
    let taken = if let Some((dev, _)) = holder {
        format!("{dev} has it")
    } else {
        let contains = |route: &&NetRoute| route.to.prefix_len() > 1 && route.to.contains(&address);
        let route = foreign_routes(facts).find(contains)?;
        format!("it lies in {}, which this machine reaches through {}", route.to, route.dev)
    };
    Some(Finding::error(
        "api-address",
        format!("The API server of the cluster is to be at {address} on this machine, and {taken}."),
        "Create the cluster with another address: `kubebyon cluster create NAME --api-local-address 203.0.113.1`, and join that.",
    ))
}

fn firewalld(facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    if !facts.running.firewalld {
        return None;
    }
    let ranges: Vec<IpNet> = wanted.cluster.as_ref().map(|ranges| vec![ranges.pods, ranges.services]).unwrap_or_default();
    let trusted = |range: &IpNet| facts.firewalld_trusted.iter().any(|source| source.parse::<IpNet>().is_ok_and(|net| net.contains(range)));
    if !ranges.is_empty() && ranges.iter().all(trusted) {
        return None;
    }
    let sources = if ranges.is_empty() {
        "--add-source=PODS --add-source=SERVICES".to_owned()
    } else {
        ranges.iter().map(|range| format!("--add-source={range}")).collect::<Vec<_>>().join(" ")
    };
    let message = "firewalld runs and refuses what pods send to this machine and through it.";
    let remedy = format!(
        "Trust the cluster's ranges: `firewall-cmd --permanent --zone=trusted {sources} && firewall-cmd --permanent --add-port=8472/udp && \
         firewall-cmd --reload`; then join again."
    );
    // Before the ranges are known nothing can be said of them.
    Some(if ranges.is_empty() { Finding::warning("firewalld", message, remedy) } else { Finding::error("firewalld", message, remedy) })
}

fn ufw(facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    let pods = wanted.cluster.as_ref().map_or_else(|| "PODS".to_owned(), |ranges| ranges.pods.to_string());
    facts.ufw.then(|| {
        Finding::warning(
            "ufw",
            "ufw is on. The node adds rules that accept what pods send (comment kubebyon), and `leave` takes them away; other nodes may be dropped.",
            format!("Have ufw know them too: `ufw route allow from {pods} && ufw allow from {pods} && ufw allow 8472/udp`."),
        )
    })
}

fn forward(facts: &Facts) -> Option<Finding> {
    let whose = if facts.running.docker { "Docker has" } else { "This machine has" };
    (facts.probed.forward_drop == Some(true) && !facts.ufw).then(|| {
        Finding::warning(
            "forwarding",
            format!("{whose} forwarded packets dropped by default. The node adds rules that accept pods' (comment kubebyon); others stay as they are."),
            "Nothing is needed; `iptables -S FORWARD` shows the rules, and `leave` takes ours away.",
        )
    })
}

/// Whether the platform would be looked for inside the cluster.
fn hides(ranges: &Ranges, server: IpAddr) -> Option<Finding> {
    let both = [("pod", ranges.pods, "--pod-cidr"), ("Service", ranges.services, "--service-cidr")];
    let (what, range, flag) = both.into_iter().find(|(_, range, _)| range.contains(&server))?;
    Some(Finding::error(
        "ranges",
        format!("The platform is at {server}, which lies in the cluster's own {what} range {range}: the node could not reach it any more."),
        another_cluster(flag, range),
    ))
}
