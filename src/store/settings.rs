//! Settings by key.

use std::collections::BTreeMap;

use super::{Change, Result, Sql, Tx};

/// Every setting that has a value.
pub async fn all(sql: &mut dyn Sql) -> Result<BTreeMap<String, String>> {
    let rows = sql.query("select key, value from settings", Vec::new()).await?;
    rows.into_iter().map(|mut row| Ok((row.take(0)?, row.take(1)?))).collect()
}

/// Sets a value; an empty one removes it.
pub async fn set(tx: &mut Tx, key: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        tx.sql().execute("delete from settings where key = $1", vec![key.into()]).await?;
    } else {
        let upsert = "insert into settings (key, value) values ($1, $2) on conflict (key) do update set value = excluded.value";
        tx.sql().execute(upsert, vec![key.into(), value.into()]).await?;
    }
    tx.note(Change::Settings);
    Ok(())
}
