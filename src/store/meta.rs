//! Facts of the installation: its id, the ids of its sealing keys.
use super::{Result, Sql, Tx};

/// The value of a fact.
pub async fn get(sql: &mut dyn Sql, key: &str) -> Result<Option<String>> {
    todo!()
}
/// Sets a fact where it is absent; gives what stands.
pub async fn put_if_absent(tx: &mut Tx, key: &str, value: &str) -> Result<String> {
    todo!()
}
