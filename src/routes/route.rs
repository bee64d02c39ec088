//! A route as it is wanted, and as it is in the kernel. Pure.

use std::net::IpAddr;

use ipnet::IpNet;

/// The protocol number of our routes unless another is configured. The kernel's headers call it `RTPROT_BGP`, and FRR sweeps its routes as
/// its own when it starts: a machine that runs FRR needs another.
pub const PROTOCOL: u8 = 186;
/// The main table (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;
/// The table of the machine's own addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;
/// What the kernel makes of an IPv6 route's metric that is not set (`IP6_RT_PRIO_USER`).
const METRIC_V6: u32 = 1024;

/// Which routes are ours: those of one table that have one protocol, both together, and where that is said, only within a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The table.
    pub table: u32,
    /// The protocol.
    pub protocol: u8,
    /// A metric of our own. With one, our routes stand beside others' of the same prefix, unless those have the same metric; without one
    /// the kernel's default is used, and a prefix that somebody else holds is left to them.
    pub metric: Option<u32>,
    /// Only routes to prefixes within this range are ours; what else bears the protocol's number is somebody else's (FRR's, say).
    pub within: Option<IpNet>,
}

impl Default for Ownership {
    fn default() -> Self {
        Self { table: TABLE_MAIN, protocol: PROTOCOL, metric: None, within: None }
    }
}

impl Ownership {
    /// Whether a route is ours.
    pub fn owns(&self, route: &Route) -> bool {
        let within = self.within.is_none_or(|range| range.contains(&route.dst));
        within && route.table == self.table && route.protocol == self.protocol
    }

    /// The metric of our routes of a family, as the kernel lists it.
    pub fn metric_for(&self, dst: IpNet) -> u32 {
        match (self.metric, dst) {
            (None, IpNet::V4(_)) => 0,
            (None | Some(0), IpNet::V6(_)) => METRIC_V6,
            (Some(metric), _) => metric,
        }
    }
}

/// How far a route's destination is (rtnetlink(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Behind a gateway.
    Universe,
    /// On the link itself.
    Link,
    /// Another.
    Other(u8),
}

/// A route that is wanted. Its device is a name, so that a link which was made anew under its name is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wanted {
    /// Where to.
    pub dst: IpNet,
    /// By which gateway; none: the destination is on the link.
    pub via: Option<IpAddr>,
    /// On which device; none: the kernel finds it by the gateway.
    pub dev: Option<String>,
    /// Whether the gateway is taken to be on the link although no address of ours says so.
    pub onlink: bool,
    /// The source address that the machine's own packets take.
    pub source: Option<IpAddr>,
}

impl Wanted {
    /// The route that this is on the device of that index.
    pub fn route(&self, ownership: &Ownership, dev: Option<u32>) -> Route {
        let scope = match (self.dst, self.via) {
            (IpNet::V4(_), None) => Scope::Link,
            _ => Scope::Universe,
        };
        Route {
            dst: self.dst.trunc(),
            via: self.via,
            dev,
            table: ownership.table,
            metric: ownership.metric_for(self.dst),
            onlink: self.onlink,
            scope,
            protocol: ownership.protocol,
            source: self.source,
            tos: 0,
            plain: true,
        }
    }
}

/// A route in the kernel, or one that is to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Where to.
    pub dst: IpNet,
    /// By which gateway.
    pub via: Option<IpAddr>,
    /// On which device: its index.
    pub dev: Option<u32>,
    /// The table.
    pub table: u32,
    /// The metric, called priority by netlink; the lowest wins.
    pub metric: u32,
    /// Whether the gateway is taken to be on the link.
    pub onlink: bool,
    /// How far the destination is.
    pub scope: Scope,
    /// Who made it.
    pub protocol: u8,
    /// The source address that the machine's own packets take.
    pub source: Option<IpAddr>,
    /// The type of service that it is for; 0 for all.
    pub tos: u8,
    /// Whether this says all that matters of it: a unicast route with one next hop.
    pub plain: bool,
}

impl Route {
    /// Whether a present route is what `self` wants. A device that is not named may be any.
    pub fn is_met_by(&self, present: &Self) -> bool {
        let dev = self.dev.or(present.dev);
        *present == Self { dev, ..self.clone() }
    }

    /// Whether the kernel takes the two for alternatives of one place in its table.
    pub fn same_place(&self, other: &Self) -> bool {
        (self.dst, self.metric, self.tos, self.table) == (other.dst, other.metric, other.tos, other.table)
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.dst)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(dev) = self.dev {
            write!(f, " dev #{dev}")?;
        }
        if self.onlink {
            f.write_str(" onlink")?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        write!(f, " proto {} table {}", self.protocol, self.table)
    }
}
