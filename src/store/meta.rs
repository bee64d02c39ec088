//! Facts of the installation: its id, the ids of its sealing keys.

use super::{Result, Sql, Tx};

/// The value of a fact.
pub async fn get(sql: &mut dyn Sql, key: &str) -> Result<Option<String>> {
    let mut rows = sql.query("select value from meta where key = $1", vec![key.into()]).await?;
    rows.pop().map(|mut row| row.take(0)).transpose()
}

/// Sets a fact to a value, whatever it was.
pub async fn put(tx: &mut Tx, key: &str, value: &str) -> Result<()> {
    let upsert = "insert into meta (key, value) values ($1, $2) on conflict (key) do update set value = excluded.value";
    tx.sql().execute(upsert, vec![key.into(), value.into()]).await.map(drop)
}

/// Sets a fact where it is absent; gives what stands.
pub async fn put_if_absent(tx: &mut Tx, key: &str, value: &str) -> Result<String> {
    let insert = "insert into meta (key, value) values ($1, $2) on conflict (key) do nothing";
    tx.sql().execute(insert, vec![key.into(), value.into()]).await?;
    Ok(get(tx.sql(), key).await?.unwrap_or_else(|| value.to_owned()))
}
