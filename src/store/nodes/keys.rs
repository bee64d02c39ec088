//! The keys that kubelets have had certificates for.

use super::super::{Result, Sql, Tx, Value};
use crate::domain::{NodeId, Timestamp};

/// How many keys of a node are kept, the newest: a machine holds the last one, or the one before it where the answer to a renewal
/// was lost.
const KEPT: i64 = 4;

/// Notes a key (DER of the SubjectPublicKeyInfo) that a node's certificate was signed for.
pub async fn add_key(tx: &mut Tx, node: NodeId, public_key: &[u8], at: Timestamp) -> Result<()> {
    let insert = "insert into node_keys (node_id, public_key, at) values ($1, $2, $3) \
                  on conflict (node_id, public_key) do update set at = excluded.at";
    tx.sql().execute(insert, vec![node.into(), public_key.into(), at.into()]).await?;
    let delete = "delete from node_keys where node_id = $1 and public_key not in \
                  (select public_key from node_keys where node_id = $1 order by at desc, public_key limit $2)";
    tx.sql().execute(delete, vec![node.into(), Value::Int(KEPT)]).await.map(drop)
}

/// The keys of a node, a member or one that is remembered: the newest first.
pub async fn keys(sql: &mut dyn Sql, node: NodeId) -> Result<Vec<Vec<u8>>> {
    let select = "select public_key from node_keys where node_id = $1 order by at desc, public_key";
    let rows = sql.query(select, vec![node.into()]).await?;
    rows.into_iter().map(|mut row| row.take(0)).collect()
}
