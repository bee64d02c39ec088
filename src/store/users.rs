//! Local users and their roles.

use std::collections::BTreeMap;

use super::{Change, Error, Result, Row, Sql, Tx, Value, continuation, sessions};
use crate::domain::page::{Page, PageRequest};
use crate::domain::user::{ProjectRole, Role, User};
use crate::domain::{Ambient, ProjectId, UserId};

const LIST: &str = "users";

/// Creates a user; `password_hash` is an argon2 PHC string. [`super::Error::Exists`] when the name is taken.
pub async fn create(tx: &mut Tx, ambient: &Ambient, name: &str, password_hash: &str, platform_admin: bool) -> Result<User> {
    let user = User {
        id: UserId::generate(ambient),
        name: name.to_owned(),
        platform_admin,
        disabled: false,
        roles: Vec::new(),
        created_at: ambient.now(),
    };
    let insert = "insert into users (id, name, password_hash, platform_admin, disabled, created_at) values ($1, $2, $3, $4, $5, $6) \
                  on conflict (name) do nothing";
    let values = vec![user.id.into(), name.into(), password_hash.into(), platform_admin.into(), false.into(), user.created_at.into()];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists(format!("user {name:?}")));
    }
    tx.note(Change::Access);
    Ok(user)
}

/// The user of that id.
pub async fn find(sql: &mut dyn Sql, id: UserId) -> Result<Option<User>> {
    let select = "select id, name, platform_admin, disabled, created_at, password_hash from users where id = $1";
    let rows = sql.query(select, vec![id.into()]).await?;
    Ok(with_roles_of_one(sql, rows).await?.map(|(user, _)| user))
}

/// The user of that name, with the hash of the password.
pub async fn find_by_name(sql: &mut dyn Sql, name: &str) -> Result<Option<(User, String)>> {
    let select = "select id, name, platform_admin, disabled, created_at, password_hash from users where name = $1";
    let rows = sql.query(select, vec![name.into()]).await?;
    with_roles_of_one(sql, rows).await
}

/// Users by name.
pub async fn list(sql: &mut dyn Sql, page: &PageRequest) -> Result<Page<User>> {
    let after = continuation::decode(LIST, page)?.unwrap_or_default();
    let select = "select id, name, platform_admin, disabled, created_at from users where name > $1 order by name limit $2";
    let rows = sql.query(select, vec![after.as_str().into(), continuation::surplus(page).into()]).await?;
    let mut users = rows.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    if let Some(last) = users.last() {
        let select = "select r.user_id, r.project_id, p.name, r.role from users u join user_roles r on r.user_id = u.id \
                      join projects p on p.id = r.project_id where u.name > $1 and u.name <= $2 order by u.name, p.name";
        let rows = sql.query(select, vec![after.into(), (&last.name).into()]).await?;
        let mut roles: BTreeMap<UserId, Vec<ProjectRole>> = BTreeMap::new();
        for mut row in rows {
            roles.entry(row.take(0)?).or_default().push(read_role(row)?);
        }
        for user in &mut users {
            user.roles = roles.remove(&user.id).unwrap_or_default();
        }
    }
    Ok(Page::from_surplus(users, continuation::limit(page), |u| continuation::encode(LIST, &u.name)))
}

/// Sets the hash of the password, and ends the user's sessions.
pub async fn set_password_hash(tx: &mut Tx, id: UserId, password_hash: &str) -> Result<bool> {
    let changed = change(tx, "update users set password_hash = $2 where id = $1", vec![id.into(), password_hash.into()]).await?;
    if changed {
        sessions::remove_of_user(tx, id).await?;
    }
    Ok(changed)
}

/// Sets the role in a project; `None` takes it away. Gives whether that changed anything.
pub async fn set_role(tx: &mut Tx, id: UserId, project: ProjectId, role: Option<Role>) -> Result<bool> {
    match role {
        Some(role) => {
            let upsert = "insert into user_roles (user_id, project_id, role) values ($1, $2, $3) \
                          on conflict (user_id, project_id) do update set role = excluded.role where user_roles.role <> excluded.role";
            change(tx, upsert, vec![id.into(), project.into(), role.as_str().into()]).await
        }
        None => change(tx, "delete from user_roles where user_id = $1 and project_id = $2", vec![id.into(), project.into()]).await,
    }
}

/// Bars or admits the user; barring ends sessions.
pub async fn set_disabled(tx: &mut Tx, id: UserId, disabled: bool) -> Result<bool> {
    let changed = change(tx, "update users set disabled = $2 where id = $1", vec![id.into(), disabled.into()]).await?;
    if changed && disabled {
        sessions::remove_of_user(tx, id).await?;
    }
    Ok(changed)
}

/// Makes the user an administrator of the platform, or no longer.
pub async fn set_platform_admin(tx: &mut Tx, id: UserId, platform_admin: bool) -> Result<bool> {
    change(tx, "update users set platform_admin = $2 where id = $1", vec![id.into(), platform_admin.into()]).await
}

/// Removes the user with sessions and tokens.
pub async fn remove(tx: &mut Tx, id: UserId) -> Result<bool> {
    sessions::remove_of_user(tx, id).await?;
    tx.sql().execute("delete from api_tokens where user_id = $1", vec![id.into()]).await?;
    tx.sql().execute("delete from user_roles where user_id = $1", vec![id.into()]).await?;
    change(tx, "delete from users where id = $1", vec![id.into()]).await
}

/// How many platform administrators may sign in.
pub async fn count_platform_admins(sql: &mut dyn Sql) -> Result<u64> {
    let mut rows = sql.query("select count(*) from users where platform_admin and not disabled", Vec::new()).await?;
    rows.pop().map_or(Ok(0), |mut row| row.take(0))
}

async fn change(tx: &mut Tx, sql: &'static str, values: Vec<Value>) -> Result<bool> {
    let changed = tx.sql().execute(sql, values).await?;
    if changed > 0 {
        tx.note(Change::Access);
    }
    Ok(changed > 0)
}

async fn with_roles_of_one(sql: &mut dyn Sql, mut rows: Vec<Row>) -> Result<Option<(User, String)>> {
    let Some(mut row) = rows.pop() else { return Ok(None) };
    let password_hash = row.take(5)?;
    let mut user = read(row)?;
    let select = "select r.user_id, r.project_id, p.name, r.role from user_roles r join projects p on p.id = r.project_id \
                  where r.user_id = $1 order by p.name";
    user.roles = sql.query(select, vec![user.id.into()]).await?.into_iter().map(read_role).collect::<Result<_>>()?;
    Ok(Some((user, password_hash)))
}

fn read(mut row: Row) -> Result<User> {
    Ok(User {
        id: row.take(0)?,
        name: row.take(1)?,
        platform_admin: row.take(2)?,
        disabled: row.take(3)?,
        roles: Vec::new(),
        created_at: row.take(4)?,
    })
}

fn read_role(mut row: Row) -> Result<ProjectRole> {
    Ok(ProjectRole { project_id: row.take(1)?, project: row.take(2)?, role: row.take(3)? })
}
