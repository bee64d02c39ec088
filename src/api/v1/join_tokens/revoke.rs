//! Join tokens revoked.

use axum::Json;
use axum::extract::State;

use crate::api::auth::Caller;
use crate::api::extract::Path;
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::clusters;
use crate::domain::join::JoinToken;
use crate::domain::user::Role;
use crate::domain::{ClusterId, JoinTokenId};
use crate::store;

/// Revoke a join token
///
/// For members and administrators of the project. Nothing joins with it from now on; nodes that did stay. Asked twice, it is the same
/// revocation.
#[utoipa::path(delete, path = "/api/v1/clusters/{id}/join-tokens/{token}", tag = "nodes", operation_id = "revoke_join_token",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ("token" = JoinTokenId, Path, description = "The token's id")),
    responses((status = 200, description = "It is revoked", body = JoinToken)))]
pub async fn revoke(
    State(state): State<ApiState>,
    caller: Caller,
    Path((id, token)): Path<(ClusterId, JoinTokenId)>,
) -> Result<Json<JoinToken>, Problem> {
    let absent = || Problem::not_found("join token");
    let mut tx = state.store.begin().await?;
    let cluster = clusters::visible(tx.sql(), &caller, id).await?;
    caller.require(cluster.project_id, Role::Member, "cluster", "revoking a join token")?;
    let found = store::join_tokens::find(tx.sql(), token).await?;
    let (before, _) = found.filter(|(token, _)| token.cluster_id == id).ok_or_else(absent)?;
    if before.revoked_at.is_some() {
        return Ok(Json(before));
    }
    store::join_tokens::revoke(&mut tx, token, state.ambient.now()).await?;
    let message = format!(
        "the join token of {} from {} was revoked; {} of its {} uses were made",
        before.owner, before.created_at, before.used, before.uses
    );
    clusters::tell(&mut tx, &state.ambient, &caller, &cluster, "JoinTokenRevoked", message).await?;
    let (revoked, _) = store::join_tokens::find(tx.sql(), token).await?.ok_or_else(absent)?;
    tx.commit().await?;
    Ok(Json(revoked))
}
