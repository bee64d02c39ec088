//! The terminator's side of the nodes' tunnels: who may connect, which node a target belongs to, what nodes say.
//!
//! It knows nothing of the store: the worker pushes a [`NodeTable`], and hears of nodes through a [`NodeDesk`]; so a sidecar in a host
//! cluster can do the same.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::IpNet;

use crate::domain::NodeId;
use crate::domain::cluster::Addon;
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::tunnel::protocol::{Answer, Ask, Hello, Report};

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
