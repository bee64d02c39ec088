//! Nodes, the certificates that they may use, and the ends of memberships that are remembered.

use std::net::IpAddr;

use super::{Result, Sql, Tx};
use crate::domain::node::{Fate, NodeStatus};
use crate::domain::{ClusterId, Node, NodeId, Timestamp};

/// A client certificate of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    /// SHA-256 of its DER, in hex.
    pub fingerprint: String,
    /// The node.
    pub node_id: NodeId,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// When it ends.
    pub not_after: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The end of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The node.
    pub node_id: NodeId,
    /// The cluster, which may be gone.
    pub cluster_id: ClusterId,
    /// How it ended.
    pub fate: Fate,
    /// The key that the machine proves itself with (DER of the SubjectPublicKeyInfo).
    pub public_key: Vec<u8>,
    /// When.
    pub at: Timestamp,
}

/// Adds a node.
pub async fn insert(_tx: &mut Tx, _node: &Node) -> Result<()> {
    todo!()
}
/// The one of that id, removed ones included.
pub async fn find(_sql: &mut dyn Sql, _id: NodeId) -> Result<Option<Node>> {
    todo!()
}
/// The member of that name (one whose removal was asked for included).
pub async fn find_by_name(_sql: &mut dyn Sql, _cluster: ClusterId, _name: &str) -> Result<Option<Node>> {
    todo!()
}
/// The member with that key (DER of the SubjectPublicKeyInfo).
pub async fn find_by_key(_sql: &mut dyn Sql, _cluster: ClusterId, _public_key: &[u8]) -> Result<Option<Node>> {
    todo!()
}
/// Whether an address is taken in a cluster.
pub async fn address_taken(_sql: &mut dyn Sql, _cluster: ClusterId, _address: IpAddr) -> Result<bool> {
    todo!()
}
/// The nodes of a cluster by name.
pub async fn list(_sql: &mut dyn Sql, _cluster: ClusterId) -> Result<Vec<Node>> {
    todo!()
}
/// Writes what is known of a node at present.
pub async fn set_status(_tx: &mut Tx, _id: NodeId, _status: &NodeStatus) -> Result<()> {
    todo!()
}
/// Notes that a node's removal was asked for (once).
pub async fn mark_removed(_tx: &mut Tx, _id: NodeId, _at: Timestamp) -> Result<bool> {
    todo!()
}
/// Removes a node's row and remembers how its membership ended; its certificates stay in the ledger, revoked.
pub async fn remove(_tx: &mut Tx, _id: NodeId, _fate: Fate, _at: Timestamp) -> Result<()> {
    todo!()
}
/// Records a certificate before it is handed out.
pub async fn add_certificate(_tx: &mut Tx, _certificate: &NodeCertificate) -> Result<()> {
    todo!()
}
/// The certificates of a cluster's nodes that are good at `now`: neither ended nor revoked.
pub async fn certificates(_sql: &mut dyn Sql, _cluster: ClusterId, _now: Timestamp) -> Result<Vec<NodeCertificate>> {
    todo!()
}
/// Revokes all certificates of a node.
pub async fn revoke_certificates(_tx: &mut Tx, _id: NodeId, _at: Timestamp) -> Result<()> {
    todo!()
}
/// Credential ids (`X509SHA256=…`) of a cluster's nodes that are revoked and would still be valid at `now`.
pub async fn revoked_credential_ids(_sql: &mut dyn Sql, _cluster: ClusterId, _now: Timestamp) -> Result<Vec<String>> {
    todo!()
}
/// The end of that membership, if it is remembered.
pub async fn tombstone(_sql: &mut dyn Sql, _id: NodeId) -> Result<Option<Tombstone>> {
    todo!()
}
/// The ends of memberships in a cluster that are remembered.
pub async fn tombstones(_sql: &mut dyn Sql, _cluster: ClusterId) -> Result<Vec<Tombstone>> {
    todo!()
}
/// When a cluster is deleted: removes its nodes and remembers each as `ClusterDeleted`.
pub async fn bury_cluster(_tx: &mut Tx, _cluster: ClusterId, _at: Timestamp) -> Result<()> {
    todo!()
}
/// Forgets ends before `before`, and certificates that ended; at most a batch of each; gives how many.
pub async fn prune(_tx: &mut Tx, _before: Timestamp) -> Result<u64> {
    todo!()
}
