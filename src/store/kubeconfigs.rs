//! The ledger of kubeconfigs that were handed out.
use super::{Result, Sql, Tx};
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::{ClusterId, KubeconfigId, Timestamp};

/// Records one.
pub async fn insert(tx: &mut Tx, kubeconfig: &Kubeconfig) -> Result<()> {
    todo!()
}
/// The one of that id.
pub async fn find(sql: &mut dyn Sql, id: KubeconfigId) -> Result<Option<Kubeconfig>> {
    todo!()
}
/// Those of a cluster, newest first.
pub async fn list(sql: &mut dyn Sql, cluster: ClusterId) -> Result<Vec<Kubeconfig>> {
    todo!()
}
/// Marks one as revoked (once); gives whether it exists.
pub async fn revoke(tx: &mut Tx, id: KubeconfigId, at: Timestamp) -> Result<bool> {
    todo!()
}
/// The credential ids of a cluster that are revoked and would still be valid at `now`.
pub async fn revoked_credential_ids(sql: &mut dyn Sql, cluster: ClusterId, now: Timestamp) -> Result<Vec<String>> {
    todo!()
}
/// Removes records that ended before `before`.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    todo!()
}
