//! Between the kernel's messages and our values. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{InfoData, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Address, Link, Vxlan};
use crate::routes::{Route, Scope};

/// Flags of a route that say what the kernel did with it, not what it is.
const STATE_FLAGS: RouteFlags = RouteFlags::from_bits_retain(!RouteFlags::Onlink.bits());

/// A link, of the kernel's message.
pub(super) fn link(message: &RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: None,
        up: message.header.flags.contains(LinkFlags::Up),
        mtu: 0,
        mac: Vec::new(),
        controller: None,
        vxlan: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(mac) => link.mac.clone_from(mac),
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
                        LinkInfo::Data(InfoData::Vxlan(data)) => link.vxlan = Some(vxlan(data)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn vxlan(data: &[InfoVxlan]) -> Vxlan {
    let mut vxlan = Vxlan { vni: 0, port: 0, learning: false };
    for info in data {
        match info {
            InfoVxlan::Id(vni) => vxlan.vni = *vni,
            InfoVxlan::Port(port) => vxlan.port = *port,
            InfoVxlan::Learning(learning) => vxlan.learning = *learning,
            _ => {}
        }
    }
    vxlan
}

/// An address, of the kernel's message. On a point-to-point link the machine's own is the `local` one.
pub(super) fn address(message: &RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => found = Some(*address),
            AddressAttribute::Address(address) if found.is_none() => found = Some(*address),
            _ => {}
        }
    }
    found.map(|address| Address { index: message.header.index, address, prefix_len: message.header.prefix_len })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// A route, of the kernel's message; none for what is no route of the table but one of its caches, or of another family.
pub(super) fn route(message: RouteNetlinkMessage) -> Option<(Route, RouteMessage)> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let unspecified: IpAddr = match header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        dst: IpNet::new(unspecified, header.destination_prefix_length).ok()?,
        via: None,
        dev: None,
        table: u32::from(header.table),
        metric: 0,
        onlink: header.flags.contains(RouteFlags::Onlink),
        scope: match header.scope {
            RouteScope::Universe => Scope::Universe,
            RouteScope::Link => Scope::Link,
            other => Scope::Other(other.into()),
        },
        protocol: header.protocol.into(),
        source: None,
        tos: header.tos,
        plain: header.kind == RouteType::Unicast && header.source_prefix_length == 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.dst = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?,
            RouteAttribute::Gateway(address) => route.via = ip(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => route.via = Some((*address).into()),
            RouteAttribute::Via(RouteVia::Inet(address)) => route.via = Some((*address).into()),
            RouteAttribute::Oif(index) => route.dev = Some(*index),
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            // What the kernel tells of any route.
            RouteAttribute::CacheInfo(_) | RouteAttribute::Preference(_) => {}
            // Several next hops, a next-hop object, an encapsulation, metrics, an expiry: more than a plain route has.
            _ => route.plain = false,
        }
    }
    Some((route, message))
}

/// The message that adds a route.
pub(super) fn message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if route.dst.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: route.dst.prefix_len(),
        tos: route.tos,
        table: u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
        protocol: RouteProtocol::from(route.protocol),
        scope: match route.scope {
            Scope::Universe => RouteScope::Universe,
            Scope::Link => RouteScope::Link,
            Scope::Other(scope) => RouteScope::from(scope),
        },
        kind: RouteType::Unicast,
        flags: if route.onlink { RouteFlags::Onlink } else { RouteFlags::empty() },
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.dst.network().into()));
    attributes.push(RouteAttribute::Table(route.table));
    match route.via {
        Some(IpAddr::V6(via)) if route.dst.addr().is_ipv4() => attributes.push(RouteAttribute::Via(RouteVia::Inet6(via))),
        Some(via) => attributes.push(RouteAttribute::Gateway(via.into())),
        None => {}
    }
    if let Some(dev) = route.dev {
        attributes.push(RouteAttribute::Oif(dev));
    }
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    if let Some(source) = route.source {
        attributes.push(RouteAttribute::PrefSource(source.into()));
    }
    message
}

/// The message that deletes a listed route: all that the kernel said of it but its state, so that it fits this route alone.
pub(super) fn deletable(listed: &RouteMessage) -> RouteMessage {
    let mut message = listed.clone();
    message.header.flags.remove(STATE_FLAGS);
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_) | RouteAttribute::Expires(_)));
    message
}
