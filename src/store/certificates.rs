//! The ledger of every certificate that was signed, recorded before it is handed out or written.
use super::{Result, Sql, Tx};
use crate::domain::{ClusterId, Timestamp};

/// A certificate that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRecord {
    /// SHA-256 of the DER, in hex.
    pub fingerprint: String,
    /// The cluster; absent: the platform's own.
    pub cluster_id: Option<ClusterId>,
    /// Which authority signed it: `server`, `client`, `kubelet-serving`, `front-proxy`, `etcd`, `platform`.
    pub authority: String,
    /// What it is for: `kube-apiserver`, `kubeconfig`, ….
    pub purpose: String,
    /// Its subject's common name.
    pub common_name: String,
    /// When it begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}
/// Records certificates.
pub async fn record(tx: &mut Tx, records: &[CertificateRecord]) -> Result<()> {
    todo!()
}
/// The certificates of a cluster (`None`: the platform's), latest end first.
pub async fn list(sql: &mut dyn Sql, cluster: Option<ClusterId>) -> Result<Vec<CertificateRecord>> {
    todo!()
}
/// Removes records that ended before `before`.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    todo!()
}
