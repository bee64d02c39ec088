//! Browser and command-line sessions; the secret is stored as its SHA-256.
use super::{Result, Sql, Tx};
use crate::domain::{Ambient, SessionId, Timestamp, UserId};

/// Begins a session.
pub async fn create(tx: &mut Tx, ambient: &Ambient, user: UserId, secret_hash: &[u8; 32], expires_at: Timestamp) -> Result<SessionId> {
    todo!()
}
/// The session and user whose secret has that hash, when it has not ended by `now`.
pub async fn find(sql: &mut dyn Sql, secret_hash: &[u8; 32], now: Timestamp) -> Result<Option<(SessionId, UserId)>> {
    todo!()
}
/// Ends a session.
pub async fn remove(tx: &mut Tx, id: SessionId) -> Result<bool> {
    todo!()
}
/// Removes sessions that ended before `now`.
pub async fn prune(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    todo!()
}
