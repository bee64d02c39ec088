//! Sealed bytes: keys and authorities, encrypted before they come here.
use super::{Result, Sql, Tx};
use crate::domain::ClusterId;

/// Stores sealed bytes under a name of a cluster (`None`: the platform's) where there are none. Gives what stands: of two
/// who race, both get the first one's.
pub async fn put_if_absent(tx: &mut Tx, cluster: Option<ClusterId>, name: &str, key_id: &str, sealed: &[u8]) -> Result<Vec<u8>> {
    todo!()
}
/// Stores sealed bytes in the place of what stands.
pub async fn put(tx: &mut Tx, cluster: Option<ClusterId>, name: &str, key_id: &str, sealed: &[u8]) -> Result<()> {
    todo!()
}
/// The sealed bytes of that name.
pub async fn get(sql: &mut dyn Sql, cluster: Option<ClusterId>, name: &str) -> Result<Option<Vec<u8>>> {
    todo!()
}
