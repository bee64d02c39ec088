//! API tokens; the secret is stored as its SHA-256.
use super::{Result, Sql, Tx};
use crate::domain::user::{ApiToken, Role};
use crate::domain::{Ambient, ApiTokenId, ProjectId, Timestamp, UserId};

/// A token that is to be made.
#[derive(Debug, Clone)]
pub struct NewApiToken {
    /// The user it acts for.
    pub user_id: UserId,
    /// What it is for.
    pub name: String,
    /// The most it may do.
    pub role: Role,
    /// The one project it is good for.
    pub project_id: Option<ProjectId>,
    /// When it ends.
    pub expires_at: Timestamp,
}
/// Records a token.
pub async fn create(tx: &mut Tx, ambient: &Ambient, new: NewApiToken, secret_hash: &[u8; 32]) -> Result<ApiToken> {
    todo!()
}
/// The token whose secret has that hash, when it has not ended by `now`.
pub async fn find(sql: &mut dyn Sql, secret_hash: &[u8; 32], now: Timestamp) -> Result<Option<ApiToken>> {
    todo!()
}
/// The tokens of a user (`None`: of everybody), newest first.
pub async fn list(sql: &mut dyn Sql, user: Option<UserId>) -> Result<Vec<ApiToken>> {
    todo!()
}
/// The token of that id.
pub async fn find_by_id(sql: &mut dyn Sql, id: ApiTokenId) -> Result<Option<ApiToken>> {
    todo!()
}
/// Notes a use; at most one write a minute.
pub async fn touch(tx: &mut Tx, id: ApiTokenId, now: Timestamp) -> Result<()> {
    todo!()
}
/// Removes a token.
pub async fn remove(tx: &mut Tx, id: ApiTokenId) -> Result<bool> {
    todo!()
}
