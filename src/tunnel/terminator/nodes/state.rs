//! What a node is to know: a pure function of the table.

use super::NodeTable;
use crate::domain::NodeId;
use crate::tunnel::protocol::{NodeState, Peer};

/// The state of one member; `None` for others.
pub(super) fn of(table: &NodeTable, node: NodeId) -> Option<NodeState> {
    let own = table.nodes.iter().find(|entry| entry.id == node)?;
    let peers = table.nodes.iter().filter(|entry| entry.id != node).map(|entry| Peer {
        node: entry.id,
        address: entry.address,
        underlay: entry.underlay.clone(),
        pod_cidr: entry.pod_cidr,
    });
    Some(NodeState {
        tunnel_endpoints: table.tunnel_endpoints.clone(),
        address: own.address,
        pod_cidr: own.pod_cidr,
        peers: peers.collect(),
        probe_key: table.probe_key.clone(),
    })
}
