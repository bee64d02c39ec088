//! Nodes removed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::{RemoveNode, RemovedNode};
use crate::api::auth::Caller;
use crate::api::extract::{Path, Query};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::clusters;
use crate::domain::ClusterId;
use crate::domain::node::Fate;
use crate::domain::user::Role;
use crate::store;

/// How long pods may take to go when nothing is said.
const DRAIN: u64 = 120;
/// The longest that they may take.
const MAX_DRAIN: u64 = 3600;

/// Remove a node
///
/// For members and administrators of the project. Its pods are evicted, it is taken out of the cluster, and its certificates are refused;
/// the machine itself is cleaned by `kubebyon leave` there. Asked again it is tried again. With `dry_run` 200 tells which node it would be.
#[utoipa::path(delete, path = "/api/v1/clusters/{id}/nodes/{name}", tag = "nodes", operation_id = "remove_node",
    params(("id" = ClusterId, Path, description = "The cluster's id"),
        ("name" = String, Path, description = "The node's name", min_length = 1, max_length = 63), RemoveNode),
    responses(
        (status = 202, description = "It is being removed", body = RemovedNode),
        (status = 200, description = "Which it would be (dry_run)", body = RemovedNode)))]
pub async fn remove(
    State(state): State<ApiState>,
    caller: Caller,
    Path((id, name)): Path<(ClusterId, String)>,
    Query(query): Query<RemoveNode>,
) -> Result<(StatusCode, Json<RemovedNode>), Problem> {
    let drain = query.drain_seconds.unwrap_or(DRAIN);
    if drain > MAX_DRAIN {
        return Err(Problem::bad_parameter("drain_seconds", format!("{drain} seconds are too long; at most {MAX_DRAIN}")));
    }
    let absent = || Problem::not_found("node");
    let mut tx = state.store.begin().await?;
    let cluster = clusters::visible(tx.sql(), &caller, id).await?;
    caller.require(cluster.project_id, Role::Member, "cluster", "removing a node")?;
    let node = store::nodes::find_by_name(tx.sql(), id, &name).await?.ok_or_else(absent)?;
    if query.dry_run == Some(true) {
        return Ok((StatusCode::OK, Json(RemovedNode { node, job_id: None })));
    }
    let job = store::nodes::ask_removal(&mut tx, &state.ambient, &node, Fate::Removed, Duration::from_secs(drain)).await?;
    if node.removed_at.is_none() {
        let message = format!("the removal of node {name} was asked for");
        clusters::tell(&mut tx, &state.ambient, &caller, &cluster, "NodeRemovalRequested", message).await?;
    }
    let node = store::nodes::find(tx.sql(), node.id).await?.ok_or_else(absent)?;
    tx.commit().await?;
    Ok((StatusCode::ACCEPTED, Json(RemovedNode { node, job_id: Some(job) })))
}
