//! Join tokens.

use super::{Result, Sql, Tx};
use crate::domain::join::JoinToken;
use crate::domain::{ClusterId, JoinTokenId, Timestamp};

/// Adds one, with the hash of its secret.
pub async fn insert(_tx: &mut Tx, _token: &JoinToken, _secret_hash: &[u8; 32]) -> Result<()> {
    todo!()
}
/// The one of that id, with the hash of its secret.
pub async fn find(_sql: &mut dyn Sql, _id: JoinTokenId) -> Result<Option<(JoinToken, Vec<u8>)>> {
    todo!()
}
/// Those of a cluster, newest first.
pub async fn list(_sql: &mut dyn Sql, _cluster: ClusterId) -> Result<Vec<JoinToken>> {
    todo!()
}
/// Uses one up by one, if it is neither revoked nor ended at `now` nor used up; gives whether it was.
pub async fn use_once(_tx: &mut Tx, _id: JoinTokenId, _now: Timestamp) -> Result<bool> {
    todo!()
}
/// Revokes one (once); gives whether it exists.
pub async fn revoke(_tx: &mut Tx, _id: JoinTokenId, _at: Timestamp) -> Result<bool> {
    todo!()
}
/// Removes those that ended before `before`, at most a batch; gives how many.
pub async fn prune(_tx: &mut Tx, _before: Timestamp) -> Result<u64> {
    todo!()
}
