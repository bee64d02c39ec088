//! Local users and their roles.
use super::{Result, Sql, Tx};
use crate::domain::page::{Page, PageRequest};
use crate::domain::user::{Role, User};
use crate::domain::{Ambient, ProjectId, UserId};

/// Creates a user; `password_hash` is an argon2 PHC string. [`super::Error::Exists`] when the name is taken.
pub async fn create(tx: &mut Tx, ambient: &Ambient, name: &str, password_hash: &str, platform_admin: bool) -> Result<User> {
    todo!()
}
/// The user of that id.
pub async fn find(sql: &mut dyn Sql, id: UserId) -> Result<Option<User>> {
    todo!()
}
/// The user of that name, with the hash of the password.
pub async fn find_by_name(sql: &mut dyn Sql, name: &str) -> Result<Option<(User, String)>> {
    todo!()
}
/// Users by name.
pub async fn list(sql: &mut dyn Sql, page: &PageRequest) -> Result<Page<User>> {
    todo!()
}
/// Sets the hash of the password, and ends the user's sessions.
pub async fn set_password_hash(tx: &mut Tx, id: UserId, password_hash: &str) -> Result<bool> {
    todo!()
}
/// Sets the role in a project; `None` takes it away.
pub async fn set_role(tx: &mut Tx, id: UserId, project: ProjectId, role: Option<Role>) -> Result<bool> {
    todo!()
}
/// Bars or admits the user; barring ends sessions.
pub async fn set_disabled(tx: &mut Tx, id: UserId, disabled: bool) -> Result<bool> {
    todo!()
}
/// Makes the user an administrator of the platform, or no longer.
pub async fn set_platform_admin(tx: &mut Tx, id: UserId, platform_admin: bool) -> Result<bool> {
    todo!()
}
/// Removes the user with sessions and tokens.
pub async fn remove(tx: &mut Tx, id: UserId) -> Result<bool> {
    todo!()
}
/// How many platform administrators may sign in.
pub async fn count_platform_admins(sql: &mut dyn Sql) -> Result<u64> {
    todo!()
}
