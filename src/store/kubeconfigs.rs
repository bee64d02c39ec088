//! The ledger of kubeconfigs that were handed out.

use super::{Change, PRUNE_BATCH, Result, Row, Sql, Tx, Value};
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::{ClusterId, KubeconfigId, Timestamp};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, cluster_id, owner, role, namespace, service_account, credential_id, created_at, expires_at, revoked_at ",
            "from kubeconfigs ",
            $rest
        )
    };
}

/// Records one.
pub async fn insert(tx: &mut Tx, kubeconfig: &Kubeconfig) -> Result<()> {
    let insert = "insert into kubeconfigs (id, cluster_id, owner, role, namespace, service_account, credential_id, created_at, \
                  expires_at, revoked_at) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let values = vec![
        kubeconfig.id.into(),
        kubeconfig.cluster_id.into(),
        (&kubeconfig.owner).into(),
        kubeconfig.role.as_str().into(),
        kubeconfig.namespace.as_deref().into(),
        kubeconfig.service_account.as_deref().into(),
        (&kubeconfig.credential_id).into(),
        kubeconfig.created_at.into(),
        kubeconfig.expires_at.into(),
        kubeconfig.revoked_at.into(),
    ];
    tx.sql().execute(insert, values).await?;
    tx.note(Change::Kubeconfigs(kubeconfig.cluster_id));
    Ok(())
}

/// The one of that id.
pub async fn find(sql: &mut dyn Sql, id: KubeconfigId) -> Result<Option<Kubeconfig>> {
    let mut rows = sql.query(select!("where id = $1"), vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// Those of a cluster, newest first.
pub async fn list(sql: &mut dyn Sql, cluster: ClusterId) -> Result<Vec<Kubeconfig>> {
    let rows = sql.query(select!("where cluster_id = $1 order by id desc"), vec![cluster.into()]).await?;
    rows.into_iter().map(read).collect()
}

/// Marks one as revoked (once); gives whether it exists.
pub async fn revoke(tx: &mut Tx, id: KubeconfigId, at: Timestamp) -> Result<bool> {
    let update = "update kubeconfigs set revoked_at = coalesce(revoked_at, $2) where id = $1 returning cluster_id";
    let mut rows = tx.sql().query(update, vec![id.into(), at.into()]).await?;
    let Some(mut row) = rows.pop() else { return Ok(false) };
    tx.note(Change::Kubeconfigs(row.take(0)?));
    Ok(true)
}

/// The credential ids of a cluster that are revoked and would still be valid at `now`.
pub async fn revoked_credential_ids(sql: &mut dyn Sql, cluster: ClusterId, now: Timestamp) -> Result<Vec<String>> {
    let select = "select credential_id from kubeconfigs where cluster_id = $1 and revoked_at is not null and expires_at > $2 \
                  order by expires_at, credential_id";
    let rows = sql.query(select, vec![cluster.into(), now.into()]).await?;
    rows.into_iter().map(|mut row| row.take(0)).collect()
}

/// Removes records that ended before `before`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let delete = "delete from kubeconfigs where id in (select id from kubeconfigs where expires_at < $1 order by expires_at limit $2)";
    tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}

fn read(mut row: Row) -> Result<Kubeconfig> {
    Ok(Kubeconfig {
        id: row.take(0)?,
        cluster_id: row.take(1)?,
        owner: row.take(2)?,
        role: row.take(3)?,
        namespace: row.take(4)?,
        service_account: row.take(5)?,
        credential_id: row.take(6)?,
        created_at: row.take(7)?,
        expires_at: row.take(8)?,
        revoked_at: row.take(9)?,
    })
}
