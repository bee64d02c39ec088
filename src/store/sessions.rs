//! Browser and command-line sessions; the secret is stored as its SHA-256.

use super::{Change, PRUNE_BATCH, Result, Sql, Tx, Value};
use crate::domain::{Ambient, SessionId, Timestamp, UserId};

/// Begins a session.
pub async fn create(tx: &mut Tx, ambient: &Ambient, user: UserId, secret_hash: &[u8; 32], expires_at: Timestamp) -> Result<SessionId> {
    let id = SessionId::generate(ambient);
    let insert = "insert into sessions (id, user_id, secret_hash, created_at, expires_at) values ($1, $2, $3, $4, $5)";
    let values = vec![id.into(), user.into(), secret_hash.to_vec().into(), ambient.now().into(), expires_at.into()];
    tx.sql().execute(insert, values).await?;
    tx.note(Change::Access);
    Ok(id)
}

/// The session and user whose secret has that hash, when it has not ended by `now`.
pub async fn find(sql: &mut dyn Sql, secret_hash: &[u8; 32], now: Timestamp) -> Result<Option<(SessionId, UserId)>> {
    let select = "select id, user_id from sessions where secret_hash = $1 and expires_at > $2";
    let mut rows = sql.query(select, vec![secret_hash.to_vec().into(), now.into()]).await?;
    rows.pop().map(|mut row| Ok((row.take(0)?, row.take(1)?))).transpose()
}

/// Ends a session.
pub async fn remove(tx: &mut Tx, id: SessionId) -> Result<bool> {
    let removed = tx.sql().execute("delete from sessions where id = $1", vec![id.into()]).await?;
    if removed > 0 {
        tx.note(Change::Access);
    }
    Ok(removed > 0)
}

/// Ends every session of a user.
pub(super) async fn remove_of_user(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.sql().execute("delete from sessions where user_id = $1", vec![user.into()]).await?;
    tx.note(Change::Access);
    Ok(())
}

/// Removes sessions that ended before `now`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    let delete = "delete from sessions where id in (select id from sessions where expires_at < $1 order by expires_at limit $2)";
    tx.sql().execute(delete, vec![now.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}
