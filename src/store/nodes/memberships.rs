//! How memberships end, and for how long that is known.

use super::super::{Change, PRUNE_BATCH, Result, Row, Sql, Tx, Value};
use super::certificates::revoke_certificates;
use super::keys::keys;
use crate::domain::node::Fate;
use crate::domain::{ClusterId, NodeId, Timestamp};

/// The end of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The node.
    pub node_id: NodeId,
    /// The cluster, which may be gone.
    pub cluster_id: ClusterId,
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub name: String,
    /// How it ended.
    pub fate: Fate,
    /// The key that the machine proves itself with (DER of the SubjectPublicKeyInfo).
    pub public_key: Vec<u8>,
    /// When.
    pub at: Timestamp,
}

/// What is known of a machine's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The node.
    pub node_id: NodeId,
    /// The cluster, which may be gone.
    pub cluster_id: ClusterId,
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub name: String,
    /// What became of it; a node that is being drained is a member.
    pub fate: Fate,
    /// The keys by any of which the machine proves itself (DER of the SubjectPublicKeyInfo), the newest first.
    pub public_keys: Vec<Vec<u8>>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!("select node_id, cluster_id, cluster, name, fate, public_key, at from node_tombstones ", $rest)
    };
}

/// What became of a node: its tombstone's word, that of its cluster's deletion, or that it is a member. `None`: nothing is
/// known of it (any more).
pub async fn membership(sql: &mut dyn Sql, id: NodeId) -> Result<Option<Membership>> {
    if let Some(end) = tombstone(sql, id).await? {
        let Tombstone { node_id, cluster_id, cluster, name, fate, .. } = end;
        let public_keys = keys(sql, id).await?;
        return Ok(Some(Membership { node_id, cluster_id, cluster, name, fate, public_keys }));
    }
    let select = "select n.id, n.cluster_id, c.name, n.name, c.deleted_at \
                  from nodes n join clusters c on c.id = n.cluster_id where n.id = $1";
    let mut rows = sql.query(select, vec![id.into()]).await?;
    let Some(mut row) = rows.pop() else { return Ok(None) };
    let deleted_at: Option<Timestamp> = row.take(4)?;
    Ok(Some(Membership {
        node_id: row.take(0)?,
        cluster_id: row.take(1)?,
        cluster: row.take(2)?,
        name: row.take(3)?,
        fate: if deleted_at.is_some() { Fate::ClusterDeleted } else { Fate::Member },
        public_keys: keys(sql, id).await?,
    }))
}

/// Ends a membership: revokes the node's certificates and remembers how it ended (the first end stays). Its row, and so its name,
/// are kept until [`remove`].
pub async fn end(tx: &mut Tx, id: NodeId, fate: Fate, at: Timestamp) -> Result<()> {
    revoke_certificates(tx, id, at).await?;
    let insert = "insert into node_tombstones (node_id, cluster_id, cluster, name, fate, public_key, at) \
                  select n.id, n.cluster_id, c.name, n.name, $2, n.public_key, $3 \
                  from nodes n join clusters c on c.id = n.cluster_id where n.id = $1 \
                  on conflict (node_id) do nothing returning cluster_id";
    super::change(tx, insert, vec![id.into(), fate.as_str().into(), at.into()]).await.map(drop)
}

/// Removes a node's row and remembers how its membership ended; its certificates stay in the ledger, revoked.
pub async fn remove(tx: &mut Tx, id: NodeId, fate: Fate, at: Timestamp) -> Result<()> {
    end(tx, id, fate, at).await?;
    super::change(tx, "delete from nodes where id = $1 returning cluster_id", vec![id.into()]).await.map(drop)
}

/// The end of that membership, if it is remembered.
pub async fn tombstone(sql: &mut dyn Sql, id: NodeId) -> Result<Option<Tombstone>> {
    let mut rows = sql.query(select!("where node_id = $1"), vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The ends of memberships in a cluster that are remembered.
pub async fn tombstones(sql: &mut dyn Sql, cluster: ClusterId) -> Result<Vec<Tombstone>> {
    let rows = sql.query(select!("where cluster_id = $1 order by node_id"), vec![cluster.into()]).await?;
    rows.into_iter().map(read).collect()
}

/// When a cluster is deleted: removes its nodes, their certificates and its join tokens, and remembers each node as
/// `ClusterDeleted`. The rows of a cluster that is gone are not there, and then it does nothing.
pub async fn bury_cluster(tx: &mut Tx, cluster: ClusterId, at: Timestamp) -> Result<()> {
    let insert = "insert into node_tombstones (node_id, cluster_id, cluster, name, fate, public_key, at) \
                  select n.id, n.cluster_id, c.name, n.name, $2, n.public_key, $3 \
                  from nodes n join clusters c on c.id = n.cluster_id where n.cluster_id = $1 \
                  on conflict (node_id) do nothing";
    tx.sql().execute(insert, vec![cluster.into(), Fate::ClusterDeleted.as_str().into(), at.into()]).await?;
    for delete in [
        "delete from node_certificates where cluster_id = $1",
        "delete from nodes where cluster_id = $1",
        "delete from join_tokens where cluster_id = $1",
    ] {
        tx.sql().execute(delete, vec![cluster.into()]).await?;
    }
    tx.note(Change::Nodes(cluster));
    Ok(())
}

/// Forgets ends before `before` with the keys of those nodes, and certificates that ended before it; at most [`PRUNE_BATCH`] ends and
/// certificates each; gives how many of these.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let keys = "delete from node_keys where node_id in \
                (select node_id from node_tombstones where at < $1 order by at, node_id limit $2) \
                and node_id not in (select id from nodes)";
    tx.sql().execute(keys, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await?;
    let mut removed = 0;
    for delete in [
        "delete from node_tombstones where node_id in (select node_id from node_tombstones where at < $1 order by at, node_id limit $2)",
        "delete from node_certificates where fingerprint in \
         (select fingerprint from node_certificates where not_after < $1 order by not_after limit $2)",
    ] {
        removed += tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await?;
    }
    Ok(removed)
}

fn read(mut row: Row) -> Result<Tombstone> {
    Ok(Tombstone {
        node_id: row.take(0)?,
        cluster_id: row.take(1)?,
        cluster: row.take(2)?,
        name: row.take(3)?,
        fate: row.take(4)?,
        public_key: row.take(5)?,
        at: row.take(6)?,
    })
}
