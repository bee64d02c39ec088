//! Settings by key.
use super::{Result, Sql, Tx};
use std::collections::BTreeMap;

/// Every setting that has a value.
pub async fn all(sql: &mut dyn Sql) -> Result<BTreeMap<String, String>> {
    todo!()
}
/// Sets a value; an empty one removes it.
pub async fn set(tx: &mut Tx, key: &str, value: &str) -> Result<()> {
    todo!()
}
