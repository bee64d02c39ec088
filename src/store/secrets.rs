//! Sealed bytes: keys and authorities, encrypted before they come here.

use super::{Result, Sql, Tx, Value};
use crate::domain::ClusterId;

/// Stores sealed bytes under a name of a cluster (`None`: the platform's) where there are none. Gives what stands: of two
/// who race, both get the first one's.
pub async fn put_if_absent(tx: &mut Tx, cluster: Option<ClusterId>, name: &str, key_id: &str, sealed: &[u8]) -> Result<Vec<u8>> {
    let insert = "insert into secrets (scope, name, cluster_id, key_id, sealed) values ($1, $2, $3, $4, $5) \
                  on conflict (scope, name) do nothing";
    tx.sql().execute(insert, values(cluster, name, key_id, sealed)).await?;
    Ok(get(tx.sql(), cluster, name).await?.unwrap_or_else(|| sealed.to_owned()))
}

/// Stores sealed bytes in the place of what stands.
pub async fn put(tx: &mut Tx, cluster: Option<ClusterId>, name: &str, key_id: &str, sealed: &[u8]) -> Result<()> {
    let upsert = "insert into secrets (scope, name, cluster_id, key_id, sealed) values ($1, $2, $3, $4, $5) \
                  on conflict (scope, name) do update set key_id = excluded.key_id, sealed = excluded.sealed";
    tx.sql().execute(upsert, values(cluster, name, key_id, sealed)).await?;
    Ok(())
}

/// The sealed bytes of that name.
pub async fn get(sql: &mut dyn Sql, cluster: Option<ClusterId>, name: &str) -> Result<Option<Vec<u8>>> {
    let select = "select sealed from secrets where scope = $1 and name = $2";
    let mut rows = sql.query(select, vec![scope(cluster), name.into()]).await?;
    rows.pop().map(|mut row| row.take(0)).transpose()
}

fn values(cluster: Option<ClusterId>, name: &str, key_id: &str, sealed: &[u8]) -> Vec<Value> {
    vec![scope(cluster), name.into(), cluster.into(), key_id.into(), sealed.to_owned().into()]
}

fn scope(cluster: Option<ClusterId>) -> Value {
    cluster.map_or_else(|| "platform".into(), Value::from)
}
