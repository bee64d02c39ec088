//! The ledger of every certificate that was signed, recorded before it is handed out or written.

use super::{PRUNE_BATCH, Result, Row, Sql, Tx, Value};
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

/// Records certificates; one that stands already is left as it is.
pub async fn record(tx: &mut Tx, records: &[CertificateRecord]) -> Result<()> {
    for record in records {
        let insert = "insert into certificates (fingerprint, cluster_id, authority, purpose, common_name, not_before, not_after) \
                      values ($1, $2, $3, $4, $5, $6, $7) on conflict (fingerprint) do nothing";
        let values = vec![
            (&record.fingerprint).into(),
            record.cluster_id.into(),
            (&record.authority).into(),
            (&record.purpose).into(),
            (&record.common_name).into(),
            record.not_before.into(),
            record.not_after.into(),
        ];
        tx.sql().execute(insert, values).await?;
    }
    Ok(())
}

/// The certificates of a cluster (`None`: the platform's), latest end first.
pub async fn list(sql: &mut dyn Sql, cluster: Option<ClusterId>) -> Result<Vec<CertificateRecord>> {
    let rows = if cluster.is_some() {
        let select = "select fingerprint, cluster_id, authority, purpose, common_name, not_before, not_after from certificates \
                      where cluster_id = $1 order by not_after desc, fingerprint";
        sql.query(select, vec![cluster.into()]).await?
    } else {
        let select = "select fingerprint, cluster_id, authority, purpose, common_name, not_before, not_after from certificates \
                      where cluster_id is null order by not_after desc, fingerprint";
        sql.query(select, Vec::new()).await?
    };
    rows.into_iter().map(read).collect()
}

/// Removes records that ended before `before`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let delete = "delete from certificates where fingerprint in \
                  (select fingerprint from certificates where not_after < $1 order by not_after limit $2)";
    tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}

fn read(mut row: Row) -> Result<CertificateRecord> {
    Ok(CertificateRecord {
        fingerprint: row.take(0)?,
        cluster_id: row.take(1)?,
        authority: row.take(2)?,
        purpose: row.take(3)?,
        common_name: row.take(4)?,
        not_before: row.take(5)?,
        not_after: row.take(6)?,
    })
}
