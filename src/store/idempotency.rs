//! Answers to creates that carried an `Idempotency-Key`, kept for a day.
use super::{Result, Sql, Tx};
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
    todo!()
}
/// Keeps an answer, in the transaction of what it tells of.
pub async fn insert(tx: &mut Tx, caller: &str, key: &str, answer: &Answer, at: Timestamp) -> Result<()> {
    todo!()
}
/// Removes answers older than `before`.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    todo!()
}
