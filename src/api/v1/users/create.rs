//! Users created.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use zeroize::Zeroizing;

use super::{CreateUser, CreatedUser, apply_roles, check_name, tell};
use crate::api::auth::{Caller, check_strength};
use crate::api::extract::JsonBody;
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::store;

/// Create a user
///
/// For platform administrators. Where no password is given one is made, and the answer shows it this once.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", operation_id = "create_user", request_body = CreateUser,
    responses((status = 201, description = "The user", body = CreatedUser)),
    extensions(("x-problems" = json!([429]))))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    body: JsonBody<CreateUser>,
) -> Result<(StatusCode, Json<CreatedUser>), Problem> {
    caller.require_platform_admin("creating a user")?;
    let CreateUser { name, password, platform_admin, roles } = body.value;
    check_name(&name)?;
    let made = password.is_none();
    let password = password.map_or_else(|| state.passwords.generate(), Zeroizing::new);
    check_strength("password", &password)?;
    if store::users::find_by_name(&mut *state.store.read().await?, &name).await?.is_some() {
        return Err(taken(&name));
    }
    let hash = state.passwords.hash(password.clone()).await?;
    let mut tx = state.store.begin().await?;
    let user = match store::users::create(&mut tx, &state.ambient, &name, &hash, platform_admin.unwrap_or(false)).await {
        Err(store::Error::Exists(_)) => return Err(taken(&name)),
        other => other?,
    };
    apply_roles(&mut tx, &caller, user.id, &roles).await?;
    tell(&mut tx, &state.ambient, &caller, "UserCreated", format!("user {name} was created")).await?;
    let user = store::users::find(tx.sql(), user.id).await?.ok_or_else(|| Problem::not_found("user"))?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(CreatedUser { user, password: made.then(|| password.to_string()) })))
}

fn taken(name: &str) -> Problem {
    Problem::new(Kind::NameTaken, format!("there is a user {name:?} already; choose another name"))
}
