//! Kubeconfigs: handed out, listed, revoked.
//!
//! The key of a client certificate is made here and stays here: a worker gets the request for the certificate, signs it and
//! records it. A ServiceAccount's token comes back sealed. Neither the key nor the token is kept.

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
use crate::domain::kubeconfig::{ClusterRole, Kubeconfig};
use crate::domain::page::Page;
use crate::domain::user::{Role, User};
use crate::store;

/// A kubeconfig that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKubeconfig {
    /// How long it is good for, in seconds: 10 (with a ServiceAccount's token 600) to a year; 8 hours when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::api::extract::whole")]
    #[schema(minimum = 10, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
    /// What it may do: no more than the caller's role allows, which it is when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ClusterRole>,
    /// The one namespace it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    pub namespace: Option<String>,
    /// The ServiceAccount, `[namespace/]name`, whose token it is to hold instead of a client certificate; made where it is
    /// not there. For administrators of the project. Its namespace is `namespace` when nothing is said, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 317, pattern = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]
    pub service_account: Option<String>,
}

/// A kubeconfig, and the record of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedKubeconfig {
    /// The kubeconfig, YAML; it is shown this once.
    pub kubeconfig: String,
    /// The record.
    pub record: Kubeconfig,
}

/// Which kubeconfigs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListKubeconfigs {
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Whether the caller may see and revoke the kubeconfig: its owner, and administrators of the project.
fn concerns(caller: &Caller, role: Option<Role>, kubeconfig: &Kubeconfig) -> bool {
    // A record names its owner; what is older than the user was handed out to an earlier one of that name.
    let owns = |user: &User| kubeconfig.owner == user.name && kubeconfig.created_at >= user.created_at;
    role == Some(Role::Admin) || caller.user.as_ref().is_some_and(owns)
}

/// List kubeconfigs
///
/// Those that were handed out for a cluster, newest first: the caller's own, and to administrators of the project all.
#[utoipa::path(get, path = "/api/v1/clusters/{id}/kubeconfigs", tag = "kubeconfigs", operation_id = "list_kubeconfigs",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ListKubeconfigs),
    responses((status = 200, description = "A page of records", body = Page<Kubeconfig>)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    Query(query): Query<ListKubeconfigs>,
) -> Result<Json<Page<Kubeconfig>>, Problem> {
    let page = page(query.limit, query.next)?;
    let mut sql = state.store.read().await?;
    let cluster = clusters::visible(&mut *sql, &caller, id).await?;
    let role = caller.role_in(cluster.project_id);
    let mut records = store::kubeconfigs::list(&mut *sql, id).await?;
    records.retain(|record| concerns(&caller, role, record));
    Ok(Json(slice(records, &page, |record| record.id.to_string())?))
}
