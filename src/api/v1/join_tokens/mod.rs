//! Join tokens: made, listed, revoked.
//!
//! A token's secret is shown once, inside of its text and of the command that is to be pasted; only a hash of it is kept. Whoever may
//! change what is in a cluster may let machines into it.

mod create;
mod revoke;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

pub use create::*;
pub use revoke::*;

use crate::api::auth::Caller;
use crate::api::extract::{Path, Query, page};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::{clusters, slice};
use crate::domain::ClusterId;
use crate::domain::join::JoinToken;
use crate::domain::page::Page;
use crate::store;

/// A join token that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// How long machines may join with it, in seconds: 60 to 30 days; an hour when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::api::extract::whole")]
    #[schema(minimum = 60, maximum = 2_592_000)]
    pub ttl_seconds: Option<u64>,
    /// How many machines may join with it; 10 when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::api::extract::whole")]
    #[schema(minimum = 1, maximum = 1000)]
    pub uses: Option<u64>,
}

/// A join token, and what is done with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedJoinToken {
    /// The record.
    pub record: JoinToken,
    /// The token; it is shown this once.
    pub token: String,
    /// The one line that makes a machine a node, to be run there.
    pub command: String,
    /// The same as user data of a machine that cloud-init sets up (`#cloud-config`).
    pub cloud_init: String,
    /// What keeps machines from joining as things stand, each with what to do.
    pub warnings: Vec<String>,
}

/// Which join tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListJoinTokens {
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// List join tokens
///
/// Those of a cluster, newest first, ended ones for some days; without what they prove themselves by.
#[utoipa::path(get, path = "/api/v1/clusters/{id}/join-tokens", tag = "nodes", operation_id = "list_join_tokens",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ListJoinTokens),
    responses((status = 200, description = "A page of join tokens", body = Page<JoinToken>)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    Query(query): Query<ListJoinTokens>,
) -> Result<Json<Page<JoinToken>>, Problem> {
    let page = page(query.limit, query.next)?;
    let mut sql = state.store.read().await?;
    clusters::visible(&mut *sql, &caller, id).await?;
    let tokens = store::join_tokens::list(&mut *sql, id).await?;
    Ok(Json(slice(tokens, &page, |token| token.id.to_string())?))
}
