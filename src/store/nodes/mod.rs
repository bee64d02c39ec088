//! Nodes, the certificates that they may use, and the ends of memberships that are remembered.
//!
//! In a cluster a name, an address and a key are one node's each: the database refuses a second. A membership ends in two steps
//! that may be far apart: [`end`] revokes and remembers, [`remove`] takes the row away once the node is out of Kubernetes, and
//! does the first as well. From the first on no certificate of the node is recorded any more.

mod certificates;
mod keys;
mod memberships;
mod removal;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::anyhow;
pub use certificates::{NodeCertificate, add_certificate, certificates, issued_certificates, revoke_certificates, revoked_credential_ids};
pub use keys::{add_key, keys};
pub use memberships::{Membership, Tombstone, bury_cluster, end, membership, prune, remove, tombstone, tombstones};
pub use removal::{announce_removal, ask_removal};

use super::{Change, Error, Result, Row, Sql, Tx, Value, to_json};
use crate::domain::node::{Machine, NodeStatus, Taint, address};
use crate::domain::{Cluster, ClusterId, Node, NodeId, Timestamp};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, cluster_id, name, address, address_assigned, machine, labels, taints, status, join_token_id, joined_at, ",
            "removed_at, public_key from nodes ",
            $rest
        )
    };
}

/// Adds a node; [`Error::Exists`] when its cluster has its name, its address or its key.
pub async fn insert(tx: &mut Tx, node: &Node) -> Result<()> {
    let insert = "insert into nodes (id, cluster_id, name, address, address_assigned, machine, labels, taints, status, join_token_id, \
                  joined_at, removed_at, public_key) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
                  on conflict do nothing";
    let values = vec![
        node.id.into(),
        node.cluster_id.into(),
        (&node.name).into(),
        node.address.into(),
        node.address_assigned.into(),
        to_json(&node.machine)?.into(),
        to_json(&node.labels)?.into(),
        to_json(&node.taints)?.into(),
        to_json(&node.status)?.into(),
        node.join_token_id.into(),
        node.joined_at.into(),
        node.removed_at.into(),
        node.public_key.as_slice().into(),
    ];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists(format!("a node with the name {:?}, the address {} or that key", node.name, node.address)));
    }
    tx.note(Change::Nodes(node.cluster_id));
    add_key(tx, node.id, &node.public_key, node.joined_at).await
}

/// The one of that id, one whose removal was asked for included.
pub async fn find(sql: &mut dyn Sql, id: NodeId) -> Result<Option<Node>> {
    let mut rows = sql.query(select!("where id = $1"), vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The member of that name (one whose removal was asked for included).
pub async fn find_by_name(sql: &mut dyn Sql, cluster: ClusterId, name: &str) -> Result<Option<Node>> {
    let mut rows = sql.query(select!("where cluster_id = $1 and name = $2"), vec![cluster.into(), name.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The member with that key (DER of the SubjectPublicKeyInfo), be it that of its join or of a renewal.
pub async fn find_by_key(sql: &mut dyn Sql, cluster: ClusterId, public_key: &[u8]) -> Result<Option<Node>> {
    let select = select!("where cluster_id = $1 and id in (select node_id from node_keys where public_key = $2)");
    let mut rows = sql.query(select, vec![cluster.into(), public_key.into()]).await?;
    rows.pop().map(read).transpose()
}

/// Whether an address is taken in a cluster.
pub async fn address_taken(sql: &mut dyn Sql, cluster: ClusterId, address: IpAddr) -> Result<bool> {
    let select = "select 1 from nodes where cluster_id = $1 and address = $2";
    Ok(!sql.query(select, vec![cluster.into(), address.into()]).await?.is_empty())
}

/// The address that a node of a cluster gets, and whether it is assigned: the one that its machine reported where it can be that and
/// no other node has it, else the first that is free of those for it.
///
/// # Errors
/// None is free.
pub async fn choose_address(sql: &mut dyn Sql, cluster: &Cluster, id: NodeId, reported: IpAddr) -> Result<(IpAddr, bool)> {
    let reported = reported.to_canonical();
    let own = address::usable(&cluster.spec, reported).then_some(reported);
    for (wanted, assigned) in own.map(|own| (own, false)).into_iter().chain(address::candidates(&cluster.spec, id).map(|one| (one, true))) {
        let select = "select 1 from nodes where cluster_id = $1 and address = $2 and id <> $3";
        if sql.query(select, vec![cluster.id.into(), wanted.into(), id.into()]).await?.is_empty() {
            return Ok((wanted, assigned));
        }
    }
    Err(anyhow!("no address is free for node {id} of cluster {}", cluster.name).into())
}

/// The nodes of a cluster by name.
pub async fn list(sql: &mut dyn Sql, cluster: ClusterId) -> Result<Vec<Node>> {
    let rows = sql.query(select!("where cluster_id = $1 order by name"), vec![cluster.into()]).await?;
    rows.into_iter().map(read).collect()
}

/// How many nodes the clusters have: (all, Ready, verified); those without nodes are left out.
pub async fn counts(sql: &mut dyn Sql, clusters: &[ClusterId]) -> Result<BTreeMap<ClusterId, (u32, u32, u32)>> {
    let (Some(first), Some(last)) = (clusters.iter().min(), clusters.iter().max()) else { return Ok(BTreeMap::new()) };
    let select = "select distinct cluster_id from nodes where cluster_id >= $1 and cluster_id <= $2";
    let with_nodes = sql.query(select, vec![(*first).into(), (*last).into()]).await?;
    let with_nodes = with_nodes.into_iter().map(|mut row| row.take(0)).collect::<Result<Vec<ClusterId>>>()?;
    let wanted: BTreeSet<&ClusterId> = clusters.iter().collect();
    let mut counts = BTreeMap::new();
    for cluster in with_nodes.into_iter().filter(|id| wanted.contains(id)) {
        let count = counts.entry(cluster).or_insert((0, 0, 0));
        for mut row in sql.query("select status from nodes where cluster_id = $1", vec![cluster.into()]).await? {
            let status: NodeStatus = row.take_json(0)?;
            *count = (count.0 + 1, count.1 + u32::from(status.ready), count.2 + u32::from(status.is_verified()));
        }
    }
    Ok(counts)
}

/// Writes what is known of a node at present; nothing, and notes no change, when it is the same.
pub async fn set_status(tx: &mut Tx, id: NodeId, status: &NodeStatus) -> Result<()> {
    let update = "update nodes set status = $2 where id = $1 and status <> $2 returning cluster_id";
    let values = vec![id.into(), to_json(status)?.into()];
    change(tx, update, values).await.map(drop)
}

/// Writes what a machine says of itself; nothing, and notes no change, when it is the same.
pub async fn set_machine(tx: &mut Tx, id: NodeId, machine: &Machine) -> Result<()> {
    let update = "update nodes set machine = $2 where id = $1 and machine <> $2 returning cluster_id";
    let values = vec![id.into(), to_json(machine)?.into()];
    change(tx, update, values).await.map(drop)
}

/// Writes the labels and taints that a machine asked for when it joined anew with the same key.
pub async fn set_asked(tx: &mut Tx, id: NodeId, labels: &BTreeMap<String, String>, taints: &[Taint]) -> Result<()> {
    let update = "update nodes set labels = $2, taints = $3 where id = $1 and (labels <> $2 or taints <> $3) returning cluster_id";
    let values = vec![id.into(), to_json(labels)?.into(), to_json(&taints)?.into()];
    change(tx, update, values).await.map(drop)
}

/// Gives a node another address; `false` where another node of its cluster has it, or the node is gone.
pub async fn set_address(tx: &mut Tx, id: NodeId, address: IpAddr, assigned: bool) -> Result<bool> {
    let update = "update nodes set address = $2, address_assigned = $3 where id = $1 and not exists \
                  (select 1 from nodes other where other.cluster_id = nodes.cluster_id and other.address = $2 and other.id <> $1) \
                  returning cluster_id";
    change(tx, update, vec![id.into(), address.into(), assigned.into()]).await
}

/// Notes that a node's removal was asked for (once: later calls keep the first time); gives whether it exists.
pub async fn mark_removed(tx: &mut Tx, id: NodeId, at: Timestamp) -> Result<bool> {
    let update = "update nodes set removed_at = coalesce(removed_at, $2) where id = $1 returning cluster_id";
    change(tx, update, vec![id.into(), at.into()]).await
}

/// Runs an update of one node that gives its cluster; gives whether it changed a row.
async fn change(tx: &mut Tx, update: &'static str, values: Vec<Value>) -> Result<bool> {
    let mut rows = tx.sql().query(update, values).await?;
    let Some(mut row) = rows.pop() else { return Ok(false) };
    tx.note(Change::Nodes(row.take(0)?));
    Ok(true)
}

fn read(mut row: Row) -> Result<Node> {
    Ok(Node {
        id: row.take(0)?,
        cluster_id: row.take(1)?,
        name: row.take(2)?,
        address: row.take(3)?,
        address_assigned: row.take(4)?,
        machine: row.take_json(5)?,
        labels: row.take_json(6)?,
        taints: row.take_json(7)?,
        status: row.take_json(8)?,
        join_token_id: row.take(9)?,
        joined_at: row.take(10)?,
        removed_at: row.take(11)?,
        public_key: row.take(12)?,
    })
}
