//! A node's network: the interface of the API address, pods' bridge and rules, and the way to other nodes' pods.
//!
//! [`Network`] keeps the platform's own pod network (a cluster whose owner brings one has none of this but the interface of the API
//! address). Pods of another node are reached directly where packets with pods' addresses arrive there, through VXLAN where only packets
//! between the nodes' own addresses do, and else not, which is said as the aspect `PodNetwork`. Only what was proven by an answer of the
//! very node is used: other machines may have its address. All of it stays when the node role stops, so that pods go on; [`clear`] is its
//! exact inverse. May import: `domain`, `routes`, `tunnel`.

mod actor;
mod clear;
mod cni;
pub mod interface;
mod iptables;
mod links;
mod overlay;
mod paths;
mod peers;
mod probe;
mod program;
mod rules;
mod socket;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::cluster::Addon;
use crate::domain::{Ambient, NodeId};
use crate::node::layout::Layout;
use crate::node::membership::Membership;
use crate::routes::{Netlink, NetlinkError, Ownership};
use crate::tunnel::protocol::{Aspect, NodeState};

pub use clear::clear;
pub use interface::{API_INTERFACE, InterfaceError, ensure_api_interface, remove_api_interface};
pub use links::{BRIDGE, OVERLAY, VNI, VXLAN_PORT};
pub use paths::POD_NETWORK;
pub use probe::PROBE_PORT;

/// The kubelet's port, which pods such as metrics-server reach.
const KUBELET_PORT: u16 = 10250;

/// What the network follows from, and which does not change while the node role runs.
#[derive(Debug, Clone)]
struct Settings {
    /// Which node this is.
    node: NodeId,
    /// All pods of the cluster.
    pods: Ipv4Net,
    /// The address and port of the API server for pods.
    api: (IpAddr, u16),
    /// The machine's address that its owner prefers.
    preferred: Option<IpAddr>,
}

impl Settings {
    fn of(membership: &Membership) -> anyhow::Result<Self> {
        let cluster = &membership.cluster;
        let IpNet::V4(pods) = cluster.pod_cidr else {
            anyhow::bail!("the cluster's pods have IPv6 addresses ({}), which this version does not know", cluster.pod_cidr)
        };
        let own = (!membership.address_assigned).then_some(membership.address);
        Ok(Self {
            node: membership.node_id,
            pods: pods.trunc(),
            api: (cluster.api_local_address, cluster.api_port),
            preferred: membership.options.node_ip.or(own),
        })
    }

    /// Which routes are ours. Those to other prefixes are not, whatever their number: machines that speak BGP have them.
    fn ownership(&self) -> Ownership {
        Ownership { within: Some(self.pods.into()), ..Ownership::default() }
    }

    /// What firewalls that drop by default are to let through.
    fn accepted(&self, own: Ipv4Net) -> Vec<iptables::Rule> {
        let Self { pods, api: (address, port), .. } = self;
        let accept = |chain, matches: String| iptables::Rule::new("filter", chain, &matches, "ACCEPT");
        vec![
            accept("FORWARD", format!("-s {pods}")),
            accept("FORWARD", format!("-d {pods}")),
            accept("INPUT", format!("-s {own} -d {address}/32 -p tcp -m tcp --dport {port}")),
            accept("INPUT", format!("-s {pods} -p tcp -m tcp --dport {KUBELET_PORT}")),
        ]
    }
}

/// What is to be told of the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The aspect `PodNetwork`; `None` until something is known, and for ever where the owner brings the pod network.
    pub pod_network: Option<Aspect>,
    /// This machine's own addresses that other nodes may try, the preferred first; empty until the network is set up.
    pub underlay: Vec<IpAddr>,
}

/// The platform's pod network on this node. Dropping it stops the task and leaves everything as it is.
#[derive(Debug)]
pub struct Network {
    state: watch::Sender<Option<NodeState>>,
    status: watch::Receiver<Status>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl Network {
    /// Starts, in this thread's network namespace. Nothing is touched before [`Network::apply`] brings a range of pod addresses. Where the
    /// owner brings the pod network, nothing is touched at all, but for a CNI configuration of ours, which is removed.
    ///
    /// # Errors
    /// The kernel gives no netlink sockets; the cluster is of a kind that this version does not know.
    pub fn start(membership: &Membership, layout: &Layout, ambient: &Ambient) -> anyhow::Result<Self> {
        let (state, states) = watch::channel(None);
        let (statuses, status) = watch::channel(Status::default());
        if membership.cluster.cni == Addon::None {
            cni::remove(layout)?;
            return Ok(Self { state, status, _task: None });
        }
        let actor = actor::Actor::new(Settings::of(membership)?, layout.clone(), ambient.clone(), states, statuses)?;
        Ok(Self { state, status, _task: Some(AbortOnDropHandle::new(tokio::spawn(actor.run()))) })
    }

    /// Hands over what the platform says. Returns at once.
    pub fn apply(&self, state: &NodeState) {
        self.state.send_replace(Some(state.clone()));
    }

    /// What is to be told of the network, and when it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

/// This machine's own addresses that other nodes may try, the preferred first, then that of the default route; at most 8.
///
/// # Errors
/// The kernel's listings failed.
pub async fn underlay_addresses(preferred: Option<IpAddr>) -> Result<Vec<IpAddr>, NetlinkError> {
    let netlink = Netlink::open()?;
    Ok(links::addresses(&links::underlay(&netlink, preferred).await?))
}
