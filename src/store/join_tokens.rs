//! Join tokens: their secrets are here as hashes alone, and each use is counted in the transaction that it belongs to.

use super::{Change, Error, PRUNE_BATCH, Result, Row, Sql, Tx, Value};
use crate::domain::join::JoinToken;
use crate::domain::{ClusterId, JoinTokenId, Timestamp};

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, cluster_id, owner, created_at, expires_at, uses, used, revoked_at, secret_hash from join_tokens ", $rest)
    };
}

/// Adds one, with the hash of its secret.
pub async fn insert(tx: &mut Tx, token: &JoinToken, secret_hash: &[u8; 32]) -> Result<()> {
    let insert = "insert into join_tokens (id, cluster_id, owner, secret_hash, created_at, expires_at, uses, used, revoked_at) \
                  values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing";
    let values = vec![
        token.id.into(),
        token.cluster_id.into(),
        (&token.owner).into(),
        secret_hash.as_slice().into(),
        token.created_at.into(),
        token.expires_at.into(),
        token.uses.into(),
        token.used.into(),
        token.revoked_at.into(),
    ];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists(format!("join token {}", token.id)));
    }
    tx.note(Change::Nodes(token.cluster_id));
    Ok(())
}

/// The one of that id, with the hash of its secret.
pub async fn find(sql: &mut dyn Sql, id: JoinTokenId) -> Result<Option<(JoinToken, Vec<u8>)>> {
    let mut rows = sql.query(select!("where id = $1"), vec![id.into()]).await?;
    let Some(mut row) = rows.pop() else { return Ok(None) };
    let hash = row.take(8)?;
    read(row).map(|token| Some((token, hash)))
}

/// Those of a cluster, newest first.
pub async fn list(sql: &mut dyn Sql, cluster: ClusterId) -> Result<Vec<JoinToken>> {
    let rows = sql.query(select!("where cluster_id = $1 order by id desc"), vec![cluster.into()]).await?;
    rows.into_iter().map(read).collect()
}

/// Uses one up by one, if it is neither revoked nor ended at `now` nor used up; gives whether it was.
pub async fn use_once(tx: &mut Tx, id: JoinTokenId, now: Timestamp) -> Result<bool> {
    let update = "update join_tokens set used = used + 1 \
                  where id = $1 and used < uses and revoked_at is null and expires_at > $2 returning cluster_id";
    let mut rows = tx.sql().query(update, vec![id.into(), now.into()]).await?;
    let Some(mut row) = rows.pop() else { return Ok(false) };
    tx.note(Change::Nodes(row.take(0)?));
    Ok(true)
}

/// Revokes one (once: later calls keep the first time); gives whether it exists.
pub async fn revoke(tx: &mut Tx, id: JoinTokenId, at: Timestamp) -> Result<bool> {
    let update = "update join_tokens set revoked_at = coalesce(revoked_at, $2) where id = $1 returning cluster_id";
    let mut rows = tx.sql().query(update, vec![id.into(), at.into()]).await?;
    let Some(mut row) = rows.pop() else { return Ok(false) };
    tx.note(Change::Nodes(row.take(0)?));
    Ok(true)
}

/// Removes those that ended or were revoked before `before`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let delete = "delete from join_tokens where id in \
                  (select id from join_tokens where expires_at < $1 or revoked_at < $1 order by id limit $2)";
    tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}

fn read(mut row: Row) -> Result<JoinToken> {
    Ok(JoinToken {
        id: row.take(0)?,
        cluster_id: row.take(1)?,
        owner: row.take(2)?,
        created_at: row.take(3)?,
        expires_at: row.take(4)?,
        uses: row.take(5)?,
        used: row.take(6)?,
        revoked_at: row.take(7)?,
    })
}
