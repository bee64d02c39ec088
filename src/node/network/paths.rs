//! What follows from what is known of the other nodes: routes, entries of the overlay, and what is said of it all. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::links::{OVERLAY, VXLAN_PORT, overlay_mac};
use super::overlay::{Entries, Mac};
use super::peers::{Here, Neighbour, Path, Peers, gateway};
use super::probe::PROBE_PORT;
use crate::routes::{Route, Wanted};
use crate::tunnel::protocol::Aspect;

/// The name of the aspect.
pub const POD_NETWORK: &str = "PodNetwork";
/// How many nodes a sentence names.
const NAMED: usize = 5;

/// What is wanted of the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Desired {
    /// Our routes.
    pub(super) routes: Vec<Wanted>,
    /// The overlay's entries.
    pub(super) entries: Entries,
    /// Hardware addresses whose entries stay as they are, since nothing is known of their nodes yet.
    pub(super) keep: BTreeSet<Mac>,
}

/// What is wanted for these nodes. Of a node of which nothing is known yet the routes stay that are `present`, each with its device's name:
/// a restart of the node role cuts no pod off.
pub(super) fn desired(peers: &Peers, here: &Here, present: &[(Route, Option<String>)]) -> Desired {
    let mut desired = Desired::default();
    for known in peers.iter() {
        let Some(pods) = known.pods else { continue };
        let path = known.path(here);
        if path == Path::Undecided {
            desired.keep.insert(overlay_mac(known.node));
            let of_it = present.iter().filter(|(route, _)| IpNet::V4(pods).contains(&route.dst) && route.plain);
            desired.routes.extend(of_it.map(|(route, dev)| Wanted {
                dst: route.dst,
                via: route.via,
                dev: dev.clone(),
                onlink: route.onlink,
                source: route.source,
            }));
        }
        desired.routes.extend(routes(known, pods, &path, here));
        if let Some(machine) = known.reached_at() {
            desired.entries.insert(overlay_mac(known.node), machine, pods.network());
        }
    }
    desired
}

/// A node's routes: to its pods by its path, to its overlay address, and where the direct way is not taken, to its gateway by that way,
/// so that it can be tried.
fn routes(known: &Neighbour, pods: Ipv4Net, path: &Path, here: &Here) -> Vec<Wanted> {
    let route = |dst: IpNet, via: Option<IpAddr>, dev: &str, onlink| Wanted { dst, via, dev: Some(dev.to_owned()), onlink, source: None };
    let overlay_address = IpAddr::V4(pods.network());
    let mut routes = Vec::new();
    match path {
        Path::Direct { via, dev } => routes.push(route(pods.into(), Some((*via).into()), dev, false)),
        Path::Overlay => routes.push(route(pods.into(), Some(overlay_address), OVERLAY, true)),
        Path::Undecided | Path::None => {}
    }
    if known.reached_at().is_some() {
        routes.push(route(overlay_address.into(), None, OVERLAY, false));
    }
    if let Some((via, own)) = known.on_link(here).filter(|_| !matches!(path, Path::Direct { .. })) {
        routes.push(route(IpAddr::V4(gateway(pods)).into(), Some(via.into()), &own.dev, false));
    }
    routes
}

/// What is said of the pod network; `None` as long as the first answers are waited for.
pub(super) fn aspect(peers: &Peers, here: Option<&Here>, conflicts: &[(Route, Route)], problems: &[String]) -> Option<Aspect> {
    let aspect = |status, reason: &str, message: String| Some(Aspect { kind: POD_NETWORK.into(), status, reason: reason.into(), message });
    if !problems.is_empty() {
        return aspect(false, "NetworkNotSetUp", problems.join("; "));
    }
    let Some(here) = here else {
        return aspect(false, "NoPodRange", "Kubernetes has not given this node a range of pod addresses yet".into());
    };
    if let Some((wanted, holder)) = conflicts.first() {
        let message = format!(
            "this machine has a route of its own to {} ({holder}), so that pods there are not reached; remove it, or choose another range for the cluster's pods",
            wanted.dst
        );
        return aspect(false, "RouteConflict", message);
    }
    let mut counts = [0_usize; 2];
    let mut unreached = Vec::new();
    for known in peers.iter().filter(|known| known.pods.is_some()) {
        match known.path(here) {
            Path::Undecided => return None,
            Path::Direct { .. } => counts[0] += 1,
            Path::Overlay => counts[1] += 1,
            Path::None => unreached.push(known),
        }
    }
    if unreached.is_empty() {
        return aspect(true, "PeersReachable", reached(counts));
    }
    aspect(false, "PeersUnreachable", unreachable(&unreached))
}

fn reached([direct, overlay]: [usize; 2]) -> String {
    match (direct, overlay) {
        (0, 0) => "this is the only node with pods".into(),
        (direct, 0) => format!("pods of all {direct} other nodes are reached directly"),
        (0, overlay) => format!("pods of all {overlay} other nodes are reached through VXLAN"),
        (direct, overlay) => format!("pods of {direct} other nodes are reached directly, of {overlay} through VXLAN"),
    }
}

fn unreachable(unreached: &[&Neighbour]) -> String {
    let mut named: Vec<_> = unreached.iter().take(NAMED).map(|known| known.address.to_string()).collect();
    if unreached.len() > NAMED {
        named.push(format!("{} more", unreached.len() - NAMED));
    }
    let half = unreached.iter().filter(|known| known.reached_at().is_some()).count();
    let ports = if half > 0 {
        format!("UDP port {VXLAN_PORT} to and from {half} of them is blocked")
    } else {
        format!("they share no network with this machine, or UDP ports {PROBE_PORT} and {VXLAN_PORT} are blocked")
    };
    format!(
        "pods here do not reach pods of the nodes {} ({ports}); they reach the API server, DNS, and Services whose pods are on this node",
        named.join(", ")
    )
}
