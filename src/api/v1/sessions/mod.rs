//! Sessions: signing in with name and password, for a browser (cookie) or the command line (bearer token).

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::api::auth::{Caller, MAX_PASSWORD, Peer, Secret, SecretKind, cookie_name, refuse_cross_site};
use crate::api::extract::JsonBody;
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::domain::user::{Role, User};
use crate::domain::{ProjectId, Timestamp};
use crate::store;

/// How the session's secret is handed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// As a cookie that pages cannot read.
    #[default]
    Cookie,
    /// In the answer, for programs: `Authorization: Bearer`.
    Token,
}

/// A sign-in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// The user's name.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// The user's password.
    #[schema(min_length = 1, max_length = 256)]
    pub password: String,
    /// How the secret is handed over; as a cookie when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<SessionKind>,
}

/// A session that began.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedSession {
    /// Who signed in.
    pub user: User,
    /// When the session ends.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// The secret, with kind `token`; shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What a caller proved itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The Unix socket.
    Socket,
    /// A session.
    Session,
    /// An API token.
    ApiToken,
}

/// Who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Identity {
    /// The name that events and records carry.
    pub name: String,
    /// The user; absent on the Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// What the caller proved itself with.
    pub via: Via,
    /// Whether the platform itself may be administered with it.
    pub platform_admin: bool,
    /// The most that may be done with it in any project.
    pub most: Role,
    /// The one project it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
}

/// What throttling knows the other side by.
pub(crate) fn source(peer: Option<&Peer>) -> String {
    peer.map_or_else(|| "unknown".to_owned(), |peer| peer.source())
}

/// Refuses a name at a source that failed too often of late.
pub(crate) fn not_too_often(state: &ApiState, name: &str, source: &str) -> Result<(), Problem> {
    let Some(wait) = state.throttle.wait(name, source, state.ambient.now()) else { return Ok(()) };
    let seconds = wait.as_secs() + 1;
    Err(Problem::new(Kind::Throttled, format!("too many failed attempts; try again in {seconds} s")).retry_after(seconds))
}

/// Sign in
///
/// A wrong name and a wrong password get the same answer in the same time. After some failures each further one doubles a
/// wait.
#[utoipa::path(post, path = "/api/v1/sessions", tag = "sessions", operation_id = "create_session", request_body = CreateSession,
    security(()),
    responses((status = 201, description = "The session; with kind `cookie` it is in Set-Cookie", body = CreatedSession)),
    extensions(("x-problems" = json!([401, 403, 429]))))]
pub async fn create(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: JsonBody<CreateSession>,
) -> Result<Response, Problem> {
    refuse_cross_site(&headers, false)?;
    let CreateSession { name, password, kind } = body.value;
    let password = Zeroizing::new(password);
    let user = authenticate(&state, &name, password, &source(peer.as_deref())).await?;
    let secret = Secret::generate(&state.ambient, SecretKind::Session);
    let expires_at = state.ambient.now().plus(state.options.session_ttl);
    let mut tx = state.store.begin().await?;
    store::sessions::create(&mut tx, &state.ambient, user.id, &secret.hash(), expires_at).await?;
    tx.commit().await?;
    let created = |token| Json(CreatedSession { user, expires_at, token });
    Ok(match kind.unwrap_or_default() {
        SessionKind::Token => (StatusCode::CREATED, created(Some(secret.reveal().to_owned()))).into_response(),
        SessionKind::Cookie => {
            let cookie = cookie(&state, secret.reveal(), state.options.session_ttl.as_secs());
            (StatusCode::CREATED, [(header::SET_COOKIE, cookie)], created(None)).into_response()
        }
    })
}

async fn authenticate(state: &ApiState, name: &str, password: Zeroizing<String>, source: &str) -> Result<User, Problem> {
    let wrong = || Problem::new(Kind::BadCredentials, "the name or the password is wrong, or the user is barred");
    if name.len() > super::users::USER_NAME_MAX || password.chars().count() > MAX_PASSWORD {
        return Err(wrong());
    }
    not_too_often(state, name, source)?;
    let known = store::users::find_by_name(&mut *state.store.read().await?, name).await?;
    let (user, stored) = known.map_or((None, None), |(user, hash)| (Some(user), Some(hash)));
    let matches = state.passwords.verify(password, stored).await?;
    let Some(user) = user.filter(|user| matches && !user.disabled) else {
        state.throttle.failed(name, source, state.ambient.now());
        tracing::info!(source, "a sign-in failed");
        return Err(wrong());
    };
    state.throttle.succeeded(name, source);
    Ok(user)
}

fn cookie(state: &ApiState, value: &str, max_age: u64) -> HeaderValue {
    let (name, secure) = (cookie_name(state.options.cookie_secure), if state.options.cookie_secure { "; Secure" } else { "" });
    let text = format!("{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}");
    let mut value = HeaderValue::from_str(&text).expect("secrets are letters, digits, '-' and '_'");
    value.set_sensitive(true);
    value
}

/// Who am I
#[utoipa::path(get, path = "/api/v1/sessions/current", tag = "sessions", operation_id = "get_current_session",
    responses((status = 200, description = "Who the caller is, and by what", body = Identity)))]
pub async fn current(caller: Caller) -> Json<Identity> {
    let via = match (&caller.session, &caller.token) {
        (Some(_), _) => Via::Session,
        (None, Some(_)) => Via::ApiToken,
        (None, None) => Via::Socket,
    };
    Json(Identity {
        name: caller.name().to_owned(),
        via,
        platform_admin: caller.platform_admin(),
        most: caller.most(),
        project_id: caller.only(),
        user: caller.user,
    })
}

/// Sign out
///
/// Ends the session that the request came with, and its streams.
#[utoipa::path(delete, path = "/api/v1/sessions/current", tag = "sessions", operation_id = "delete_current_session",
    responses((status = 204, description = "The session has ended")))]
pub async fn end(State(state): State<ApiState>, caller: Caller) -> Result<Response, Problem> {
    let Some(session) = caller.session else {
        return Err(Problem::new(Kind::Conflict, "this request came without a session; an API token is removed under /api/v1/api-tokens"));
    };
    let mut tx = state.store.begin().await?;
    store::sessions::remove(&mut tx, session).await?;
    tx.commit().await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie(&state, "", 0))]).into_response())
}
