//! Who is behind the overlay: for each reached node one entry that says which machine its hardware address is at, and one that says which
//! hardware address its overlay address has. Nothing is learned from packets.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};

use crate::routes::{Netlink, NetlinkError};

/// A hardware address.
pub(super) type Mac = [u8; 6];

/// The entries: hardware addresses at machines, and overlay addresses at hardware addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Entries {
    /// Which machine a hardware address is at.
    pub(super) machines: BTreeSet<(Mac, Ipv4Addr)>,
    /// Which hardware address an overlay address has.
    pub(super) neighbours: BTreeSet<(Ipv4Addr, Mac)>,
}

impl Entries {
    /// Adds a node.
    pub(super) fn insert(&mut self, mac: Mac, machine: Ipv4Addr, address: Ipv4Addr) {
        self.machines.insert((mac, machine));
        self.neighbours.insert((address, mac));
    }
}

/// What stands on the overlay's interface.
pub(super) async fn present(netlink: &Netlink, index: u32) -> Result<Entries, NetlinkError> {
    let mut entries = Entries::default();
    for family in [AddressFamily::Bridge, AddressFamily::Inet] {
        for message in netlink.neighbours(family).await?.iter().filter(|message| message.header.ifindex == index) {
            let (mac, address) = parts(message);
            match (mac, address) {
                (Some(mac), Some(address)) if family == AddressFamily::Bridge => _ = entries.machines.insert((mac, address)),
                (Some(mac), Some(address)) if message.header.state == NeighbourState::Permanent => {
                    entries.neighbours.insert((address, mac));
                }
                _ => {}
            }
        }
    }
    Ok(entries)
}

fn parts(message: &NeighbourMessage) -> (Option<Mac>, Option<Ipv4Addr>) {
    let mut parts = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(mac) => parts.0 = mac.as_slice().try_into().ok(),
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => parts.1 = Some(*address),
            // In the forwarding database addresses come without their family.
            NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
                parts.1 = <[u8; 4]>::try_from(bytes.as_slice()).ok().map(Ipv4Addr::from);
            }
            _ => {}
        }
    }
    parts
}

/// Brings what stands to what is wanted; entries of the hardware addresses `keep` are left as they are.
pub(super) async fn apply(netlink: &Netlink, index: u32, wanted: &Entries, keep: &BTreeSet<Mac>) -> Result<bool, NetlinkError> {
    let present = present(netlink, index).await?;
    let handle = netlink.handle().neighbours();
    let mut changed = false;
    for (mac, machine) in wanted.machines.difference(&present.machines) {
        let request = handle.add_bridge(index, mac).destination(IpAddr::V4(*machine)).flags(NeighbourFlags::Own).replace();
        request.execute().await.map_err(NetlinkError::refused(format!("enter {machine} into the overlay")))?;
        changed = true;
    }
    for (address, mac) in wanted.neighbours.difference(&present.neighbours) {
        let request = handle.add(index, IpAddr::V4(*address)).link_layer_address(mac).replace();
        request.execute().await.map_err(NetlinkError::refused(format!("enter the neighbour {address} into the overlay")))?;
        changed = true;
    }
    for (mac, _) in present.machines.difference(&wanted.machines) {
        // One that moved to another machine was replaced.
        if keep.contains(mac) || wanted.machines.iter().any(|(other, _)| other == mac) {
            continue;
        }
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.flags = NeighbourFlags::Own;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        remove(netlink, index, message).await?;
        changed = true;
    }
    for (address, mac) in present.neighbours.difference(&wanted.neighbours) {
        if keep.contains(mac) || wanted.neighbours.iter().any(|(other, _)| other == address) {
            continue;
        }
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(*address)));
        remove(netlink, index, message).await?;
        changed = true;
    }
    Ok(changed)
}

async fn remove(netlink: &Netlink, index: u32, mut message: NeighbourMessage) -> Result<(), NetlinkError> {
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let request = netlink.handle().neighbours().del(message);
    match request.execute().await.map_err(NetlinkError::refused("remove an entry of the overlay")) {
        Err(error) if error.is(nix::errno::Errno::ENOENT) => Ok(()),
        other => other,
    }
}
