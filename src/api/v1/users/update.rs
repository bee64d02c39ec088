//! Users changed: barred, given another password or other roles.

use axum::Json;
use axum::extract::{Extension, State};
use zeroize::Zeroizing;

use super::{UpdateUser, apply_roles, keep_an_admin, tell, visible};
use crate::api::auth::{Caller, MAX_PASSWORD, Peer, check_strength};
use crate::api::extract::{JsonBody, Path};
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::api::v1::sessions;
use crate::domain::UserId;
use crate::domain::user::User;
use crate::store::{self, Tx};

/// Change a user
///
/// For platform administrators. Users change their own password with `current_password`, in a session.
#[utoipa::path(patch, path = "/api/v1/users/{id}", tag = "users", operation_id = "update_user", request_body = UpdateUser,
    params(("id" = UserId, Path, description = "The user's id")),
    responses((status = 200, description = "The user as it is from now on", body = User)),
    extensions(("x-problems" = json!([429]))))]
pub async fn update(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<UserId>,
    peer: Option<Extension<Peer>>,
    body: JsonBody<UpdateUser>,
) -> Result<Json<User>, Problem> {
    let change = body.value;
    let user = visible(&mut *state.store.read().await?, &caller, id).await?;
    let more_than_password = change.disabled.is_some() || change.platform_admin.is_some() || !change.roles.is_empty();
    if more_than_password || caller.user_id() != Some(id) {
        caller.require_platform_admin("changing a user")?;
    }
    if change.current_password.as_ref().is_some_and(|current| current.chars().count() > MAX_PASSWORD) {
        return Err(Problem::invalid("current_password", format!("no password has more than {MAX_PASSWORD} characters")));
    }
    if let Some(password) = &change.password {
        check_strength("password", password)?;
        if caller.user_id() == Some(id) {
            let source = sessions::source(peer.as_deref());
            prove_own(&state, &caller, &user, change.current_password.clone(), &source).await?;
        }
    }
    let hash = match change.password.clone() {
        Some(password) => Some(state.passwords.hash(Zeroizing::new(password)).await?),
        None => None,
    };
    let mut tx = state.store.begin().await?;
    let user = visible(tx.sql(), &caller, id).await?;
    let said = apply(&mut tx, &caller, &user, &change, hash).await?;
    if !said.is_empty() {
        tell(&mut tx, &state.ambient, &caller, "UserChanged", format!("user {}: {}", user.name, said.join(", "))).await?;
    }
    let user = visible(tx.sql(), &caller, id).await?;
    tx.commit().await?;
    Ok(Json(user))
}

/// Who changes their own password shows that they know the present one: a session alone may be somebody else's hands.
async fn prove_own(state: &ApiState, caller: &Caller, user: &User, current: Option<String>, source: &str) -> Result<(), Problem> {
    if caller.session.is_none() {
        return Err(Problem::forbidden("an API token cannot change its user's password; sign in"));
    }
    let current = current.ok_or_else(|| Problem::invalid("current_password", "give the password as it is to set a new one"))?;
    sessions::not_too_often(state, &user.name, source)?;
    let stored = store::users::find_by_name(&mut *state.store.read().await?, &user.name).await?.map(|(_, hash)| hash);
    if state.passwords.verify(Zeroizing::new(current), stored).await? {
        return Ok(());
    }
    state.throttle.failed(&user.name, source, state.ambient.now());
    let mut problem = Problem::new(Kind::Forbidden, "current_password is not the password of this user");
    problem.errors.push(crate::api::problem::FieldError { field: "current_password".into(), message: "is wrong".into() });
    Err(problem)
}

async fn apply(tx: &mut Tx, caller: &Caller, user: &User, change: &UpdateUser, hash: Option<String>) -> Result<Vec<String>, Problem> {
    let mut said = Vec::new();
    if change.disabled == Some(true) || change.platform_admin == Some(false) {
        keep_an_admin(tx, user).await?;
    }
    if let Some(disabled) = change.disabled.filter(|disabled| *disabled != user.disabled) {
        store::users::set_disabled(tx, user.id, disabled).await?;
        said.push(if disabled { "barred" } else { "admitted" }.to_owned());
    }
    if let Some(admin) = change.platform_admin.filter(|admin| *admin != user.platform_admin) {
        store::users::set_platform_admin(tx, user.id, admin).await?;
        said.push(if admin { "made a platform administrator" } else { "no platform administrator any more" }.to_owned());
    }
    if let Some(hash) = hash {
        store::users::set_password_hash(tx, user.id, &hash).await?;
        said.push("new password".to_owned());
    }
    apply_roles(tx, caller, user.id, &change.roles).await?;
    for role in &change.roles {
        said.push(format!("{} in {}", role.role.map_or("no role", crate::domain::user::Role::as_str), role.project));
    }
    Ok(said)
}
