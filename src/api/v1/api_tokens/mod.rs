//! API tokens: for programs, narrower than their user and of limited life.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::api::auth::{Caller, Secret, SecretKind};
use crate::api::extract::{JsonBody, Path, Query, page};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::{projects, slice};
use crate::domain::ApiTokenId;
use crate::domain::page::Page;
use crate::domain::user::{ApiToken, Role, User};
use crate::store::api_tokens::NewApiToken;
use crate::store::{self, Sql};

/// How long a token is good for when nothing is said: 30 days.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest life: a year.
pub const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest life: a minute.
pub const MIN_TTL: Duration = Duration::from_secs(60);
/// A user has no more tokens than this at once.
const TOKENS_EACH: usize = 200;

/// A token that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// What it is for.
    #[schema(min_length = 1, max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub name: String,
    /// The most it may do, and no more than its user may; `viewer` when nothing is said. With `admin`, and good for all
    /// projects, the token of a platform administrator administers the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The one project it is to be good for, by name or id; all of its user's when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub project: Option<String>,
    /// How long it is good for, in seconds: a minute to a year; 30 days when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::api::extract::whole")]
    #[schema(minimum = 60, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
    /// The name of the user it acts for; needed on the Unix socket, where nobody has signed in, and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub user: Option<String>,
}

/// A token, with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedApiToken {
    /// The token as it is listed.
    pub api_token: ApiToken,
    /// The secret (`kbt_…`), for `Authorization: Bearer`; shown this once.
    pub secret: String,
}

/// Which tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListApiTokens {
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// List API tokens
///
/// The caller's own; platform administrators see everybody's. An API token sees itself alone. Newest first.
#[utoipa::path(get, path = "/api/v1/api-tokens", tag = "api-tokens", operation_id = "list_api_tokens", params(ListApiTokens),
    responses((status = 200, description = "A page of tokens, without their secrets", body = Page<ApiToken>)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Query(query): Query<ListApiTokens>,
) -> Result<Json<Page<ApiToken>>, Problem> {
    let page = page(query.limit, query.next)?;
    let whose = caller.user_id().filter(|_| !caller.platform_admin());
    let mut tokens = store::api_tokens::list(&mut *state.store.read().await?, whose).await?;
    tokens.retain(|token| caller.token.is_none_or(|own| own == token.id));
    Ok(Json(slice(tokens, &page, |token| token.id.to_string())?))
}

/// Make an API token
///
/// In a session, for oneself; or on the Unix socket, for the user that is named. The secret is shown this once.
#[utoipa::path(post, path = "/api/v1/api-tokens", tag = "api-tokens", operation_id = "create_api_token", request_body = CreateApiToken,
    responses((status = 201, description = "The token, with its secret", body = CreatedApiToken)),
    extensions(("x-problems" = json!([404]))))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    body: JsonBody<CreateApiToken>,
) -> Result<(StatusCode, Json<CreatedApiToken>), Problem> {
    let request = body.value;
    caller.refuse_token("an API token makes no API tokens, or it would never end; sign in")?;
    if request.name.is_empty() || request.name.chars().count() > 100 || request.name.chars().any(char::is_control) {
        return Err(Problem::invalid("name", "say in 1 to 100 characters what the token is for"));
    }
    let ttl = request.ttl_seconds.map_or(DEFAULT_TTL, Duration::from_secs);
    if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
        let (least, most) = (MIN_TTL.as_secs(), MAX_TTL.as_secs());
        return Err(Problem::invalid("ttl_seconds", format!("{} is out of range; give {least} to {most} seconds", ttl.as_secs())));
    }
    let mut tx = state.store.begin().await?;
    let user = owner(tx.sql(), &caller, request.user.as_deref()).await?;
    let role = request.role.unwrap_or(Role::Viewer);
    let project = match &request.project {
        Some(project) => Some(projects::visible(tx.sql(), &caller, project).await?.id),
        None => None,
    };
    if let Some(project) = project {
        caller.require(project, role, "project", "such a token")?;
    }
    let held = store::api_tokens::list(tx.sql(), Some(user.id)).await?;
    if held.iter().filter(|token| token.expires_at > state.ambient.now()).count() >= TOKENS_EACH {
        let detail = format!("{} has {TOKENS_EACH} tokens; remove one first", user.name);
        return Err(Problem::new(crate::api::problem::Kind::Conflict, detail));
    }
    let secret = Secret::generate(&state.ambient, SecretKind::ApiToken);
    let expires_at = state.ambient.now().plus(ttl);
    let new = NewApiToken { user_id: user.id, name: request.name, role, project_id: project, expires_at };
    let api_token = store::api_tokens::create(&mut tx, &state.ambient, new, &secret.hash()).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(CreatedApiToken { api_token, secret: secret.reveal().to_owned() })))
}

/// The user that a token is to act for.
async fn owner(sql: &mut dyn Sql, caller: &Caller, named: Option<&str>) -> Result<User, Problem> {
    match (&caller.user, named) {
        (Some(user), None) => Ok(user.clone()),
        (Some(user), Some(name)) if user.name == name => Ok(user.clone()),
        (Some(_), Some(_)) => {
            Err(Problem::forbidden("a token for another user can be made on the platform's host alone, over the Unix socket"))
        }
        (None, Some(name)) => {
            let found = store::users::find_by_name(sql, name).await?.map(|(user, _)| user);
            found.ok_or_else(|| Problem::invalid("user", format!("there is no user {name:?}")))
        }
        (None, None) => {
            Err(Problem::invalid("user", "nobody has signed in on the Unix socket: name the user that the token is to act for"))
        }
    }
}

/// Remove an API token
///
/// In a session, one's own; platform administrators everybody's. It is refused from now on, and its streams end.
#[utoipa::path(delete, path = "/api/v1/api-tokens/{id}", tag = "api-tokens", operation_id = "delete_api_token",
    params(("id" = ApiTokenId, Path, description = "The token's id")),
    responses((status = 204, description = "The token is gone")))]
pub async fn delete(State(state): State<ApiState>, caller: Caller, Path(id): Path<ApiTokenId>) -> Result<StatusCode, Problem> {
    caller.refuse_token("an API token removes no API tokens; sign in")?;
    let mut tx = state.store.begin().await?;
    let token = store::api_tokens::find_by_id(tx.sql(), id).await?;
    let may = |token: &ApiToken| caller.platform_admin() || caller.user_id() == Some(token.user_id);
    token.filter(may).ok_or_else(|| Problem::not_found("API token"))?;
    store::api_tokens::remove(&mut tx, id).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
