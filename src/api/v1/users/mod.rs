//! Users: local ones, with a role in each project.

mod create;
mod update;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};

pub use create::*;
pub use update::*;

use crate::api::auth::Caller;
use crate::api::extract::{Path, Query, name_parameter, page};
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::page::Page;
use crate::domain::user::{Role, User};
use crate::domain::{Ambient, Invalid, UserId};
use crate::store::{self, Sql, Tx};

/// The longest name of a user.
pub const USER_NAME_MAX: usize = 64;
/// So many roles can be given and taken away with one request.
const ROLES_AT_ONCE: usize = 100;
/// Names that mean somebody or something else.
const RESERVED: [&str; 4] = ["root", "self", "current", "kubebyon"];

/// A user that is to be created.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUser {
    /// Its name for sign-in: lower-case letters, digits, `-`, `.`, `_` and `@`.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9]([-._@a-z0-9]*[a-z0-9])?$", example = "ada")]
    pub name: String,
    /// Its password, of at least 12 characters; absent: one is made, and the answer shows it this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 12, max_length = 256)]
    pub password: Option<String>,
    /// Whether it is to administer the platform itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_admin: Option<bool>,
    /// Its roles in projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    #[schema(max_items = 100)]
    pub roles: Vec<RoleChange>,
}

/// A user that was created.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedUser {
    /// The user.
    pub user: User,
    /// The password that was made for it, shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// A role in a project that is given or taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleChange {
    /// The project's name or id.
    #[schema(min_length = 1, max_length = 64)]
    pub project: String,
    /// The role; `null` takes it away.
    pub role: Option<Role>,
}

/// What is to change in a user; what is absent stays. Users may change their own password; all else is for platform
/// administrators.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateUser {
    /// Whether it is barred from signing in; barring ends its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// A new password; ends its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 12, max_length = 256)]
    pub password: Option<String>,
    /// The password as it is; needed by who changes their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub current_password: Option<String>,
    /// Whether it is to administer the platform itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_admin: Option<bool>,
    /// Roles to give and to take away; others stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    #[schema(max_items = 100)]
    pub roles: Vec<RoleChange>,
}

/// Which users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListUsers {
    /// Only the one of this name.
    #[param(min_length = 1, max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Reads objects only: the derived reading takes arrays of their values too.
fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RoleChange>, D::Error> {
    use serde::de::Error as _;
    let objects = Vec::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    objects.into_iter().map(|object| serde_json::from_value(object.into()).map_err(D::Error::custom)).collect()
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    let fits = (1..=USER_NAME_MAX).contains(&bytes.len())
        && edge(bytes[0])
        && edge(bytes[bytes.len() - 1])
        && bytes.iter().all(|b| edge(*b) || matches!(b, b'-' | b'.' | b'_' | b'@'));
    if !fits {
        return Err(Invalid::new(
            "name",
            format!(
                "{name:?} is no user name: 1 to {USER_NAME_MAX} lower-case letters, digits, '-', '.', '_' and '@', with a letter or digit at both ends"
            ),
        ));
    }
    if RESERVED.contains(&name) {
        return Err(Invalid::new("name", format!("{name:?} is reserved; choose another name")));
    }
    Ok(())
}

/// A user that the caller may see: itself, or to platform administrators everybody.
async fn visible(sql: &mut dyn Sql, caller: &Caller, id: UserId) -> Result<User, Problem> {
    let may = caller.platform_admin() || caller.user_id() == Some(id);
    let found = if may { store::users::find(sql, id).await? } else { None };
    found.ok_or_else(|| Problem::not_found("user"))
}

async fn apply_roles(tx: &mut Tx, caller: &Caller, user: UserId, changes: &[RoleChange]) -> Result<(), Problem> {
    if changes.len() > ROLES_AT_ONCE {
        return Err(Problem::invalid("roles", format!("{} roles are too many at once; at most {ROLES_AT_ONCE}", changes.len())));
    }
    for (index, change) in changes.iter().enumerate() {
        let project = crate::api::v1::projects::visible(tx.sql(), caller, &change.project)
            .await
            .map_err(|_| Problem::invalid(format!("roles[{index}].project"), format!("there is no project {:?}", change.project)))?;
        store::users::set_role(tx, user, project.id, change.role).await?;
    }
    Ok(())
}

async fn tell(tx: &mut Tx, ambient: &Ambient, caller: &Caller, reason: &str, message: String) -> store::Result<i64> {
    let event = NewEvent {
        project_id: None,
        cluster: None,
        severity: Severity::Normal,
        reason: reason.to_owned(),
        message,
        actor: Some(caller.name().to_owned()),
    };
    store::events::append(tx, ambient.now(), event).await
}

/// Refuses what would leave nobody to administer the platform.
async fn keep_an_admin(tx: &mut Tx, user: &User) -> Result<(), Problem> {
    if user.platform_admin && !user.disabled && store::users::count_platform_admins(tx.sql()).await? <= 1 {
        let detail = format!("{} is the last platform administrator; make another one first", user.name);
        return Err(Problem::new(Kind::Conflict, detail));
    }
    Ok(())
}

/// List users
///
/// For platform administrators; others get themselves.
#[utoipa::path(get, path = "/api/v1/users", tag = "users", operation_id = "list_users", params(ListUsers),
    responses((status = 200, description = "A page of users, by name", body = Page<User>)))]
pub async fn list(State(state): State<ApiState>, caller: Caller, Query(query): Query<ListUsers>) -> Result<Json<Page<User>>, Problem> {
    let page = page(query.limit, query.next)?;
    name_parameter(query.name.as_deref())?;
    if !caller.platform_admin() {
        let own = caller.user.filter(|user| query.name.as_ref().is_none_or(|name| *name == user.name));
        return Ok(Json(Page { items: own.into_iter().collect(), next: None }));
    }
    let mut sql = state.store.read().await?;
    Ok(Json(match query.name {
        Some(name) => {
            Page { items: store::users::find_by_name(&mut *sql, &name).await?.map(|(user, _)| user).into_iter().collect(), next: None }
        }
        None => store::users::list(&mut *sql, &page).await?,
    }))
}

/// Get a user
///
/// Oneself; platform administrators everybody.
#[utoipa::path(get, path = "/api/v1/users/{id}", tag = "users", operation_id = "get_user",
    params(("id" = UserId, Path, description = "The user's id")),
    responses((status = 200, description = "The user", body = User)))]
pub async fn get(State(state): State<ApiState>, caller: Caller, Path(id): Path<UserId>) -> Result<Json<User>, Problem> {
    Ok(Json(visible(&mut *state.store.read().await?, &caller, id).await?))
}

/// Delete a user
///
/// For platform administrators. Its sessions and API tokens end; kubeconfigs that it got stay until they are revoked or end.
/// The last platform administrator stays.
#[utoipa::path(delete, path = "/api/v1/users/{id}", tag = "users", operation_id = "delete_user",
    params(("id" = UserId, Path, description = "The user's id")),
    responses((status = 204, description = "The user is gone")))]
pub async fn delete(State(state): State<ApiState>, caller: Caller, Path(id): Path<UserId>) -> Result<StatusCode, Problem> {
    let mut tx = state.store.begin().await?;
    let user = visible(tx.sql(), &caller, id).await?;
    caller.require_platform_admin("deleting a user")?;
    keep_an_admin(&mut tx, &user).await?;
    store::users::remove(&mut tx, id).await?;
    tell(&mut tx, &state.ambient, &caller, "UserDeleted", format!("user {} was deleted", user.name)).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_certificates_and_logs_can_carry() {
        for good in ["a", "ada", "ada.lovelace@example.com", "ci-1"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "root", "-a", "a-", "Ada", "system:admin", "a b", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
