//! Netlink: listings that are whole, requests, and events.
//!
//! A socket belongs to the network namespace of the thread that opens it. Requests and events have sockets of their own.

mod dump;
mod watch;
mod wire;

use std::net::IpAddr;

use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::Handle;

use super::Route;

pub use watch::Watch;

/// Why netlink did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused.
    #[error("the kernel refuses to {action}: {error}")]
    Refused {
        /// What was asked, such as `add the route …`.
        action: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Every listing was torn by changes meanwhile.
    #[error("the kernel's {0} change faster than they can be listed")]
    Torn(&'static str),
    /// The socket is gone.
    #[error("the netlink socket is closed")]
    Closed,
    /// The socket could not be opened.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] std::io::Error),
}

impl NetlinkError {
    /// From rtnetlink's error of a request that was to do `action`.
    pub fn refused(action: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        |error| match error {
            rtnetlink::Error::NetlinkError(message) => Self::Refused { action: action.into(), error: message.to_io() },
            rtnetlink::Error::RequestFailed => Self::Closed,
            other => Self::Refused { action: action.into(), error: std::io::Error::other(other) },
        }
    }

    /// Whether the kernel's answer was that error number.
    pub fn is(&self, errno: nix::errno::Errno) -> bool {
        matches!(self, Self::Refused { error, .. } if error.raw_os_error() == Some(errno as i32))
    }
}

/// A link: a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index; one made anew has another.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is when it is virtual: `bridge`, `vxlan`, `veth`, ….
    pub kind: Option<String>,
    /// Whether it was set up.
    pub up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// Its hardware address.
    pub mac: Vec<u8>,
    /// The index of the bridge or the like that it belongs to.
    pub controller: Option<u32>,
    /// What is particular to a VXLAN.
    pub vxlan: Option<Vxlan>,
}

/// What is particular to a VXLAN link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// Its network identifier.
    pub vni: u32,
    /// Its UDP port.
    pub port: u16,
    /// Whether it learns from what it receives.
    pub learning: bool,
}

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of its prefix.
    pub prefix_len: u8,
}

impl Address {
    /// The address with its prefix.
    pub fn net(&self) -> ipnet::IpNet {
        ipnet::IpNet::new_assert(self.address, self.prefix_len)
    }
}

/// A socket for requests.
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    _connection: tokio_util::task::AbortOnDropHandle<()>,
}

impl Netlink {
    /// Opens one, in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel gives none.
    pub fn open() -> Result<Self, NetlinkError> {
        let (mut connection, handle, _) = rtnetlink::new_connection().map_err(NetlinkError::Open)?;
        connection.set_forward_done(true);
        let connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
        Ok(Self { handle, _connection: connection })
    }

    /// rtnetlink's own handle, for requests; its listings do not notice when they are torn.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// All links.
    pub async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let request = RouteNetlinkMessage::GetLink(netlink_packet_route::link::LinkMessage::default());
        let listed = dump::dump(&self.handle, "links", request).await?;
        Ok(listed.iter().filter_map(wire::link).collect())
    }

    /// The link of a name.
    pub async fn link(&self, name: &str) -> Result<Option<Link>, NetlinkError> {
        Ok(self.links().await?.into_iter().find(|link| link.name == name))
    }

    /// All addresses.
    pub async fn addresses(&self) -> Result<Vec<Address>, NetlinkError> {
        let request = RouteNetlinkMessage::GetAddress(netlink_packet_route::address::AddressMessage::default());
        let listed = dump::dump(&self.handle, "addresses", request).await?;
        Ok(listed.iter().filter_map(wire::address).collect())
    }

    /// All routes of both families in all tables, each with the kernel's own message of it.
    pub async fn routes(&self) -> Result<Vec<(Route, RouteMessage)>, NetlinkError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let listed = dump::dump(&self.handle, "routes", RouteNetlinkMessage::GetRoute(request)).await?;
            routes.extend(listed.into_iter().filter_map(wire::route));
        }
        Ok(routes)
    }

    /// All entries of neighbour tables of a family; of `Bridge`, those of forwarding databases.
    pub async fn neighbours(&self, family: AddressFamily) -> Result<Vec<NeighbourMessage>, NetlinkError> {
        let mut request = NeighbourMessage::default();
        request.header.family = family;
        let listed = dump::dump(&self.handle, "neighbours", RouteNetlinkMessage::GetNeighbour(request)).await?;
        let entry = |message| match message {
            RouteNetlinkMessage::NewNeighbour(entry) => Some(entry),
            _ => None,
        };
        Ok(listed.into_iter().filter_map(entry).collect())
    }

    /// Adds a route; one that is there already is refused.
    pub async fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let request = self.handle.route().add(wire::message(route));
        request.execute().await.map_err(NetlinkError::refused(format!("add the route {route}")))
    }

    /// Puts a route in the place of the first one of the same prefix, type of service and metric, whoever made that.
    pub async fn replace_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let request = self.handle.route().add(wire::message(route)).replace();
        request.execute().await.map_err(NetlinkError::refused(format!("replace the route {route}")))
    }

    /// Deletes a listed route and no other; one that is gone already is well.
    pub async fn delete_route(&self, route: &Route, listed: &RouteMessage) -> Result<(), NetlinkError> {
        let request = self.handle.route().del(wire::deletable(listed));
        let refused = NetlinkError::refused(format!("delete the route {route}"));
        match request.execute().await.map_err(refused) {
            Err(error) if error.is(nix::errno::Errno::ESRCH) => Ok(()),
            other => other,
        }
    }
}
