//! The terminator's side of the nodes' tunnels: who may connect, which node a target belongs to, what nodes say.
//!
//! It knows nothing of the store: the worker pushes a [`NodeTable`], and hears of nodes through a [`NodeDesk`]; so a sidecar in a host
//! cluster can do the same. Guarantees: a connection that has not proven itself as a node's within ten seconds of each step is closed, and there
//! are never more of them than [`MAX_CONNECTIONS`]; a node whose membership ended is told so and cut at once; streams of nodes lead to the
//! cluster's API server alone, those of the API server to nodes alone; both are bounded in number and rate for each node.

mod admission;
mod api;
mod control;
mod link;
mod listener;
mod reach;
mod state;
mod way;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::IpNet;
use tokio::sync::watch;

use crate::domain::cluster::Addon;
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::domain::{Ambient, NodeId};
use crate::tunnel::protocol::{Answer, Ask, Hello, Report};

pub use self::link::{MAX_API_STREAMS, MAX_DIALS};
pub(super) use self::listener::Listener;
pub use self::listener::{MAX_CONNECTIONS, MAX_OF_A_CERTIFICATE, Tunnels};
pub use self::reach::NodeTargets;

/// What a terminator proves itself to nodes with, and whose certificates nodes have.
#[derive(Clone)]
pub struct TunnelTls {
    /// The certificate of the cluster's client authority (PEM).
    pub client_ca_pem: String,
    /// The server authority's certificate for the tunnel's name (PEM).
    pub cert_pem: String,
    /// Its key (PKCS #8 PEM).
    pub key_pem: String,
}

/// What a terminator needs for nodes.
pub struct NodeOptions {
    /// Where tunnels arrive.
    pub listen: SocketAddr,
    /// How the terminator and nodes know each other.
    pub tls: TunnelTls,
    /// Who may connect.
    pub table: watch::Receiver<Arc<NodeTable>>,
    /// Where nodes are told of and answered.
    pub desk: Arc<dyn NodeDesk>,
    /// The cluster's API server, the one address that streams of nodes lead to.
    pub api_server: SocketAddr,
    /// The address that leads to the API server on nodes; nothing is dialled there.
    pub api_local_address: IpAddr,
    /// Time, for what is told of nodes that are not connected.
    pub ambient: Ambient,
}

/// What the terminator knows of its cluster's nodes; pushed whole when something changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTable {
    /// The members.
    pub nodes: Vec<NodeEntry>,
    /// Those whose membership ended and is remembered, so that they can be told: node and how.
    pub ended: Vec<(NodeId, Fate, String)>,
    /// The pods' range.
    pub pod_cidr: IpNet,
    /// The Services' range.
    pub service_cidr: IpNet,
    /// With the owner's own pod network no node has a range of its own: pods are asked for on any node.
    pub cni: Addon,
    /// Names that API servers may reach through nodes (`egress.public_hosts`), in lower case.
    pub public_hosts: BTreeSet<String>,
    /// Where tunnels lead.
    pub tunnel_endpoints: Vec<TunnelEndpoint>,
    /// Proves probes between nodes (32 bytes, base64).
    pub probe_key: String,
}

/// A node that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Which.
    pub id: NodeId,
    /// Its name: the certificate says `system:node:<name>`.
    pub name: String,
    /// Its `InternalIP`.
    pub address: IpAddr,
    /// Its own addresses.
    pub underlay: Vec<IpAddr>,
    /// Its range of pod addresses.
    pub pod_cidr: Option<IpNet>,
    /// SHA-256 of the client certificates it may use, in hex.
    pub fingerprints: BTreeSet<String>,
}

/// Where a terminator tells of nodes, and has their questions answered.
#[async_trait]
pub trait NodeDesk: Send + Sync + 'static {
    /// A node's tunnel is up.
    async fn connected(&self, node: NodeId, hello: Hello);
    /// A node's tunnel is down (not told when another of the same node took its place).
    async fn disconnected(&self, node: NodeId);
    /// How a node is.
    async fn reported(&self, node: NodeId, report: Report);
    /// Answers a node. `steps` takes steps to be shown there.
    async fn ask(&self, node: NodeId, ask: Ask, steps: Steps) -> Result<Answer, String>;
}

/// Takes steps of what a node asked for: one CamelCase word and a sentence.
pub type Steps = Arc<dyn Fn(&str, &str) + Send + Sync>;
