//! The client certificates of nodes: recorded before they are handed out, and refused once revoked.

use super::super::{Change, Error, Result, Row, Sql, Tx};
use crate::domain::{ClusterId, NodeId, Timestamp};

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

macro_rules! select {
    ($rest:literal) => {
        concat!("select fingerprint, node_id, cluster_id, not_after, revoked_at from node_certificates ", $rest)
    };
}

/// Records a certificate before it is handed out; one that stands is left as it is.
///
/// # Errors
/// [`Error::Gone`] when the node is no member (any more): then it must not get the certificate.
pub async fn add_certificate(tx: &mut Tx, certificate: &NodeCertificate) -> Result<()> {
    let member = "select 1 from nodes where id = $1 and cluster_id = $2 and not exists (select 1 from node_tombstones where node_id = $1)";
    if tx.sql().query(member, vec![certificate.node_id.into(), certificate.cluster_id.into()]).await?.is_empty() {
        return Err(Error::Gone(format!("node {}", certificate.node_id)));
    }
    let insert = "insert into node_certificates (fingerprint, node_id, cluster_id, not_after, revoked_at) values ($1, $2, $3, $4, $5) \
                  on conflict (fingerprint) do nothing";
    let values = vec![
        (&certificate.fingerprint).into(),
        certificate.node_id.into(),
        certificate.cluster_id.into(),
        certificate.not_after.into(),
        certificate.revoked_at.into(),
    ];
    tx.sql().execute(insert, values).await?;
    tx.note(Change::Nodes(certificate.cluster_id));
    Ok(())
}

/// The certificates of a cluster's nodes that are good at `now`: neither ended nor revoked.
pub async fn certificates(sql: &mut dyn Sql, cluster: ClusterId, now: Timestamp) -> Result<Vec<NodeCertificate>> {
    let select = select!("where cluster_id = $1 and not_after > $2 and revoked_at is null order by not_after, fingerprint");
    sql.query(select, vec![cluster.into(), now.into()]).await?.into_iter().map(read).collect()
}

/// Every certificate of one node that is recorded, the one that ends last first.
pub async fn issued_certificates(sql: &mut dyn Sql, node: NodeId) -> Result<Vec<NodeCertificate>> {
    let select = select!("where node_id = $1 order by not_after desc, fingerprint");
    sql.query(select, vec![node.into()]).await?.into_iter().map(read).collect()
}

/// Revokes all certificates of a node (once: later calls keep the first time).
pub async fn revoke_certificates(tx: &mut Tx, id: NodeId, at: Timestamp) -> Result<()> {
    let update = "update node_certificates set revoked_at = $2 where node_id = $1 and revoked_at is null returning cluster_id";
    super::change(tx, update, vec![id.into(), at.into()]).await.map(drop)
}

/// Credential ids (`X509SHA256=…`) of a cluster's nodes that are revoked and would still be valid at `now`.
pub async fn revoked_credential_ids(sql: &mut dyn Sql, cluster: ClusterId, now: Timestamp) -> Result<Vec<String>> {
    let select = "select 'X509SHA256=' || fingerprint from node_certificates \
                  where cluster_id = $1 and not_after > $2 and revoked_at is not null order by not_after, fingerprint";
    let rows = sql.query(select, vec![cluster.into(), now.into()]).await?;
    rows.into_iter().map(|mut row| row.take(0)).collect()
}

fn read(mut row: Row) -> Result<NodeCertificate> {
    Ok(NodeCertificate {
        fingerprint: row.take(0)?,
        node_id: row.take(1)?,
        cluster_id: row.take(2)?,
        not_after: row.take(3)?,
        revoked_at: row.take(4)?,
    })
}
