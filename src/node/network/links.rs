//! Pods' bridge `cni0` and the overlay `kubebyon-vx`, with their addresses; and which of this machine's addresses other nodes may try.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use nix::errno::Errno;
use rtnetlink::{LinkBridge, LinkUnspec, LinkVxlan};
use sha2::{Digest as _, Sha256};

use super::interface::{add_address, delete_link, remove_address};
use super::peers::{Underlay, gateway};
use crate::domain::NodeId;
use crate::routes::{Link, Netlink, NetlinkError, TABLE_MAIN, Vxlan};

/// Pods' bridge, by the name that CNI's own documents use.
pub const BRIDGE: &str = "cni0";
/// The overlay's interface.
pub const OVERLAY: &str = "kubebyon-vx";
/// The overlay's network identifier.
pub const VNI: u32 = 0x4b_42;
/// The overlay's UDP port: Linux's own for VXLAN.
pub const VXLAN_PORT: u16 = 8472;
/// What VXLAN over IPv4 adds to a packet.
const VXLAN_OVERHEAD: u32 = 50;
/// The smallest MTU that pods get.
const SMALLEST_MTU: u32 = 576;
/// The MTU of an underlay that is not known.
const USUAL_MTU: u32 = 1500;
/// How many addresses are told to other nodes.
const ADDRESSES: usize = 8;
/// How interfaces begin that lead to containers and the like on this machine.
const INWARD: [&str; 12] = ["kubebyon", "cni", "docker", "br-", "veth", "virbr", "lxc", "lxdbr", "podman", "flannel", "cali", "cilium"];

/// The hardware address of a node's overlay interface: locally administered, the same on each node that computes it.
pub(super) fn overlay_mac(node: NodeId) -> [u8; 6] {
    let hash = Sha256::digest(node.uuid().as_bytes());
    [0x02, hash[0], hash[1], hash[2], hash[3], hash[4]]
}

/// The MTU of pods, so that the overlay fits into the underlay.
pub(super) fn pod_mtu(underlay: &[Underlay]) -> u32 {
    underlay.first().map_or(USUAL_MTU, |own| own.mtu).saturating_sub(VXLAN_OVERHEAD).max(SMALLEST_MTU)
}

/// This machine's addresses that other nodes may try: the preferred one first, then that of the default route, then the rest.
///
/// # Errors
/// The kernel's listings failed.
pub async fn underlay(netlink: &Netlink, preferred: Option<IpAddr>) -> Result<Vec<Underlay>, NetlinkError> {
    let links = netlink.links().await?;
    let addresses = netlink.addresses().await?;
    let routes = netlink.routes().await?;
    let default = routes
        .iter()
        .map(|(route, _)| route)
        .filter(|route| route.table == TABLE_MAIN && route.dst.prefix_len() == 0 && route.dst.addr().is_ipv4())
        .min_by_key(|route| route.metric)
        .cloned();
    let mut found = Vec::new();
    for held in &addresses {
        let (IpAddr::V4(address), Some(link)) = (held.address, links.iter().find(|link| link.index == held.index)) else { continue };
        let inward = INWARD.iter().any(|prefix| link.name.starts_with(prefix)) || address.is_loopback() || address.is_link_local();
        let Ok(net) = Ipv4Net::new(address, held.prefix_len) else { continue };
        if link.up && (!inward || Some(held.address) == preferred) && !link.name.starts_with("kubebyon") {
            found.push(Underlay { net, dev: link.name.clone(), index: link.index, mtu: link.mtu });
        }
    }
    found.sort_by_key(|own| {
        let by_default = default.as_ref().is_some_and(|route| match (route.source, route.via) {
            _ if route.dev != Some(own.index) => false,
            (Some(source), _) => source == IpAddr::V4(own.net.addr()),
            (None, Some(IpAddr::V4(via))) => own.net.contains(&via),
            _ => true,
        });
        (Some(IpAddr::V4(own.net.addr())) != preferred, !by_default)
    });
    found.truncate(ADDRESSES);
    Ok(found)
}

/// Makes pods' bridge as the plugin `bridge` would, so that its address is there before the first pod. Returns whether its address was
/// another before.
pub(super) async fn ensure_bridge(netlink: &Netlink, pods: Ipv4Net, mtu: u32) -> anyhow::Result<bool> {
    let address = gateway(pods);
    let [a, b, c, d] = address.octets();
    let mac = [0x0a, 0x58, a, b, c, d];
    let link = match netlink.link(BRIDGE).await? {
        Some(link) if link.kind.as_deref() == Some("bridge") => link,
        Some(_) => anyhow::bail!("this machine has an interface {BRIDGE} that is no bridge; rename or remove it (ip link delete {BRIDGE})"),
        None => create(netlink, LinkBridge::new(BRIDGE).address(mac.to_vec()).build(), BRIDGE).await?,
    };
    settle(netlink, &link, mtu, &mac).await?;
    let net = Ipv4Net::new(address, pods.prefix_len())?;
    Ok(ensure_address(netlink, &link, net).await?)
}

/// Makes the overlay's interface. Returns its index.
pub(super) async fn ensure_overlay(netlink: &Netlink, node: NodeId, pods: Ipv4Net, mtu: u32) -> anyhow::Result<u32> {
    let mac = overlay_mac(node);
    let as_wanted = Vxlan { vni: VNI, port: VXLAN_PORT, learning: false };
    let mut present = netlink.link(OVERLAY).await?;
    if let Some(link) = present.take_if(|link| link.vxlan.as_ref() != Some(&as_wanted)) {
        delete_link(netlink, &link).await?;
    }
    let link = if let Some(link) = present {
        link
    } else {
        let message = LinkVxlan::new(OVERLAY, VNI).port(VXLAN_PORT).learning(false).address(mac.to_vec()).mtu(mtu).build();
        create(netlink, message, OVERLAY).await?
    };
    settle(netlink, &link, mtu, &mac).await?;
    ensure_address(netlink, &link, Ipv4Net::from(pods.network())).await?;
    Ok(link.index)
}

async fn create(netlink: &Netlink, message: netlink_packet_route::link::LinkMessage, name: &str) -> Result<Link, NetlinkError> {
    let refused = NetlinkError::refused(format!("make the interface {name}"));
    match netlink.handle().link().add(message).execute().await.map_err(refused) {
        Err(error) if !error.is(Errno::EEXIST) => return Err(error),
        _ => {}
    }
    let gone = || NetlinkError::Refused { action: format!("keep the interface {name}"), error: std::io::ErrorKind::NotFound.into() };
    netlink.link(name).await?.ok_or_else(gone)
}

/// Sets what is not yet as it should be: the hardware address (a bridge without one of its own takes its ports'), the MTU, up.
async fn settle(netlink: &Netlink, link: &Link, mtu: u32, mac: &[u8; 6]) -> Result<(), NetlinkError> {
    if link.up && link.mtu == mtu && link.mac == mac {
        return Ok(());
    }
    let message = LinkUnspec::new_with_index(link.index).address(mac.to_vec()).mtu(mtu).up().build();
    let refused = NetlinkError::refused(format!("set up the interface {}", link.name));
    netlink.handle().link().set(message).execute().await.map_err(refused)
}

/// Gives a link that IPv4 address and no other. Returns whether it had another.
async fn ensure_address(netlink: &Netlink, link: &Link, net: Ipv4Net) -> Result<bool, NetlinkError> {
    let held = netlink.addresses().await?;
    let held: Vec<_> = held.into_iter().filter(|held| held.index == link.index && held.address.is_ipv4()).collect();
    if !held.iter().any(|held| held.net() == IpNet::V4(net)) {
        if net.prefix_len() == 32 {
            add_address(netlink, link.index, net.into()).await?;
        } else {
            let add = netlink.handle().address().add(link.index, IpAddr::V4(net.addr()), net.prefix_len());
            add.execute().await.map_err(NetlinkError::refused(format!("give {} the address {net}", link.name)))?;
        }
    }
    let others: Vec<_> = held.into_iter().filter(|held| held.net() != IpNet::V4(net)).collect();
    for other in &others {
        remove_address(netlink, *other).await?;
    }
    Ok(!others.is_empty())
}

/// The addresses alone, as they are told to other nodes.
pub fn addresses(underlay: &[Underlay]) -> Vec<IpAddr> {
    underlay.iter().map(|own| IpAddr::V4(own.net.addr())).collect()
}
