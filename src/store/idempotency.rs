//! Answers to creates that carried an `Idempotency-Key`, kept for a day.

use super::{Error, PRUNE_BATCH, Result, Sql, Tx, Value};
use crate::domain::Timestamp;

/// An answer that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// SHA-256 of method, path and body: the same key for another request is an error.
    pub request_hash: Vec<u8>,
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// The answer that a caller's key got.
pub async fn find(sql: &mut dyn Sql, caller: &str, key: &str) -> Result<Option<Answer>> {
    let select = "select request_hash, status, body from idempotency where caller = $1 and key = $2";
    let mut rows = sql.query(select, vec![caller.into(), key.into()]).await?;
    rows.pop().map(|mut row| Ok(Answer { request_hash: row.take(0)?, status: row.take(1)?, body: row.take(2)? })).transpose()
}

/// Keeps an answer, in the transaction of what it tells of; [`Error::Exists`] when the key got one meanwhile: roll back,
/// and give that one.
pub async fn insert(tx: &mut Tx, caller: &str, key: &str, answer: &Answer, at: Timestamp) -> Result<()> {
    let insert = "insert into idempotency (caller, key, request_hash, status, body, at) values ($1, $2, $3, $4, $5, $6) \
                  on conflict (caller, key) do nothing";
    let values =
        vec![caller.into(), key.into(), answer.request_hash.clone().into(), answer.status.into(), (&answer.body).into(), at.into()];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists("an answer to this idempotency key".to_owned()));
    }
    Ok(())
}

/// Removes answers older than `before`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let delete = "delete from idempotency where (caller, key) in \
                  (select caller, key from idempotency where at < $1 order by at limit $2)";
    tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}
