//! The interface of the API address: a bridge without ports, with the addresses that this node answers on for its own kubelet and pods.
//!
//! It exists from join to leave, outlives restarts of the node role, and is made again after a reboot. An address that means something else
//! on this machine is refused.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use nix::errno::Errno;
use rtnetlink::{LinkBridge, LinkUnspec};

use crate::routes::{Address, Link, Netlink, NetlinkError, Route, TABLE_MAIN};

/// The interface's name.
pub const API_INTERFACE: &str = "kubebyon0";
/// Routes with a shorter prefix are ways to everywhere: default routes, and the halves that VPNs put before them.
const SHORTEST: u8 = 4;

/// Why the interface is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// Something else bears the name.
    #[error(
        "this machine has an interface {API_INTERFACE} that is no bridge of ours; rename or remove it (ip link delete {API_INTERFACE})"
    )]
    NameTaken,
    /// The address is in use.
    #[error(
        "{address} is an address of this machine's interface {interface}; give the cluster another one (kubebyon cluster create --api-local-address)"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// Where it is.
        interface: String,
    },
    /// The address leads somewhere.
    #[error(
        "{address} is reached by this machine's route {route}, and what is there would be hidden; give the cluster another address (kubebyon cluster create --api-local-address)"
    )]
    Routed {
        /// The address.
        address: IpAddr,
        /// The route.
        route: String,
    },
    /// Netlink failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Makes the interface so that it has these addresses and no other, each alone (/32 or /128). Done again, it changes nothing.
///
/// # Errors
/// One of the addresses is in use elsewhere on this machine or leads somewhere; the name is taken; the kernel refuses.
pub async fn ensure_api_interface(addresses: &[IpAddr]) -> Result<(), InterfaceError> {
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let own = links.iter().find(|link| link.name == API_INTERFACE);
    if own.is_some_and(|link| link.kind.as_deref() != Some("bridge")) {
        return Err(InterfaceError::NameTaken);
    }
    let present = netlink.addresses().await?;
    let routes: Vec<Route> = netlink.routes().await?.into_iter().map(|(route, _)| route).collect();
    for address in addresses {
        check_free(*address, own.map(|link| link.index), &links, &present, &routes)?;
    }
    let index = match own {
        Some(link) => link.index,
        None => create(&netlink).await?,
    };
    let up = LinkUnspec::new_with_index(index).up().build();
    netlink.handle().link().set(up).execute().await.map_err(NetlinkError::refused(format!("set {API_INTERFACE} up")))?;
    for address in addresses {
        if !present.iter().any(|held| held.index == index && held.net() == alone(*address)) {
            add_address(&netlink, index, alone(*address)).await?;
        }
    }
    for held in present.iter().filter(|held| held.index == index && !is_link_local(held.address)) {
        if !addresses.iter().any(|address| alone(*address) == held.net()) {
            remove_address(&netlink, *held).await?;
        }
    }
    Ok(())
}

/// Removes the interface with its addresses; that it is not there is well.
pub async fn remove_api_interface() -> Result<(), InterfaceError> {
    let netlink = Netlink::open()?;
    let link = netlink.link(API_INTERFACE).await?.filter(|link| link.kind.as_deref() == Some("bridge"));
    if let Some(link) = link {
        delete_link(&netlink, &link).await?;
    }
    Ok(())
}

/// Whether an address means nothing on this machine but on the interface `own`.
fn check_free(address: IpAddr, own: Option<u32>, links: &[Link], present: &[Address], routes: &[Route]) -> Result<(), InterfaceError> {
    let name_of = |index: u32| links.iter().find(|link| link.index == index).map_or_else(|| format!("#{index}"), |link| link.name.clone());
    if let Some(held) = present.iter().find(|held| held.address == address && Some(held.index) != own) {
        return Err(InterfaceError::AddressTaken { address, interface: name_of(held.index) });
    }
    let leads = |route: &&Route| {
        route.table == TABLE_MAIN
            && route.dst.prefix_len() >= SHORTEST
            && route.dst.contains(&address)
            && (own.is_none() || route.dev != own)
    };
    if let Some(route) = routes.iter().find(leads) {
        let dev = route.dev.map_or_else(String::new, |index| format!(" dev {}", name_of(index)));
        return Err(InterfaceError::Routed { address, route: format!("{}{dev}", route.dst) });
    }
    Ok(())
}

async fn create(netlink: &Netlink) -> Result<u32, NetlinkError> {
    let add = netlink.handle().link().add(LinkBridge::new(API_INTERFACE).build()).execute().await;
    match add.map_err(NetlinkError::refused(format!("make the interface {API_INTERFACE}"))) {
        Err(error) if !error.is(Errno::EEXIST) => return Err(error),
        _ => {}
    }
    netlink
        .link(API_INTERFACE)
        .await?
        .map(|link| link.index)
        .ok_or(NetlinkError::Refused { action: format!("make the interface {API_INTERFACE}"), error: std::io::ErrorKind::NotFound.into() })
}

/// An address as a network of its own.
pub(super) fn alone(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Gives a link an address without a route for its prefix; one that it has is well.
pub(super) async fn add_address(netlink: &Netlink, index: u32, net: IpNet) -> Result<(), NetlinkError> {
    let mut request = netlink.handle().address().add(index, net.addr(), net.prefix_len());
    let mut flags = AddressFlags::Noprefixroute;
    if net.addr().is_ipv6() {
        flags |= AddressFlags::Nodad;
    }
    request.message_mut().attributes.push(AddressAttribute::Flags(flags));
    match request.execute().await.map_err(NetlinkError::refused(format!("give interface #{index} the address {net}"))) {
        Err(error) if error.is(Errno::EEXIST) => Ok(()),
        other => other,
    }
}

/// Takes an address from a link; that it is gone is well.
pub(super) async fn remove_address(netlink: &Netlink, held: Address) -> Result<(), NetlinkError> {
    let mut message = AddressMessage::default();
    message.header.family = if held.address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.index = held.index;
    message.header.prefix_len = held.prefix_len;
    message.attributes.push(AddressAttribute::Local(held.address));
    let refused = NetlinkError::refused(format!("take the address {} from interface #{}", held.net(), held.index));
    match netlink.handle().address().del(message).execute().await.map_err(refused) {
        Err(error) if error.is(Errno::EADDRNOTAVAIL) || error.is(Errno::ENODEV) => Ok(()),
        other => other,
    }
}

/// Deletes a link; that it is gone is well.
pub(super) async fn delete_link(netlink: &Netlink, link: &Link) -> Result<(), NetlinkError> {
    let refused = NetlinkError::refused(format!("delete the interface {}", link.name));
    match netlink.handle().link().del(link.index).execute().await.map_err(refused) {
        Err(error) if error.is(Errno::ENODEV) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::namespace::Namespace;

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn ensure(namespace: &Namespace, list: &[&str]) -> Result<(), InterfaceError> {
        let wanted = addresses(list);
        namespace.block_on(|| async move { ensure_api_interface(&wanted).await })
    }

    #[test]
    fn the_interface_has_its_addresses_and_no_other_until_it_is_removed() {
        let namespace = Namespace::new();
        namespace.block_on(remove_api_interface).unwrap();
        let before = namespace.ip("-o addr");
        for wanted in [&["198.51.100.1", "10.9.8.7"][..], &["198.51.100.1", "10.9.8.7"], &["198.51.100.1"]] {
            ensure(&namespace, wanted).unwrap();
            let listed = namespace.ip("-4 -o addr show dev kubebyon0");
            let held: Vec<_> = listed.lines().map(|line| line.split_whitespace().nth(3).unwrap()).collect();
            let expected: Vec<_> = wanted.iter().map(|address| format!("{address}/32")).collect();
            assert_eq!(held, expected);
            assert!(listed.contains("noprefixroute"), "{listed}");
        }
        namespace.inside(|| std::net::UdpSocket::bind("198.51.100.1:0").unwrap());
        namespace.block_on(remove_api_interface).unwrap();
        assert_eq!(namespace.ip("-o addr"), before);
    }

    #[test]
    fn an_address_that_means_something_else_is_refused_and_nothing_is_made() {
        let namespace = Namespace::new();
        namespace.ip("link add up0 type bridge");
        namespace.ip("addr add 192.0.2.5/24 dev up0");
        namespace.ip("link set up0 up");
        namespace.ip("route add 198.51.100.0/24 via 192.0.2.1");
        namespace.ip("route add default via 192.0.2.1");
        namespace.ip("route add 0.0.0.0/1 via 192.0.2.1");
        let taken = ensure(&namespace, &["192.0.2.5"]).unwrap_err().to_string();
        assert!(taken.contains("192.0.2.5 is an address of this machine's interface up0"), "{taken}");
        let routed = ensure(&namespace, &["198.51.100.1"]).unwrap_err().to_string();
        assert!(routed.contains("route 198.51.100.0/24 dev up0"), "{routed}");
        assert!(!namespace.ip("-o link").contains(API_INTERFACE));
        ensure(&namespace, &["203.0.113.1"]).unwrap();
        assert!(namespace.ip("-o link").contains(API_INTERFACE));
    }

    #[test]
    fn an_interface_of_that_name_which_is_not_ours_stays() {
        let namespace = Namespace::new();
        namespace.ip("link add kubebyon0 type ifb");
        assert!(matches!(ensure(&namespace, &["198.51.100.1"]), Err(InterfaceError::NameTaken)));
        namespace.block_on(remove_api_interface).unwrap();
        assert!(namespace.ip("-o link").contains(API_INTERFACE));
    }
}
