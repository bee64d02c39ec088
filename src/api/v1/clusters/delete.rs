//! Clusters deleted.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{DeleteCluster, DeletionPlan, Removal, administered, enqueue_reconcile, tell};
use crate::api::auth::Caller;
use crate::api::conditional::{IfMatch, etag};
use crate::api::extract::{Path, Query};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::domain::{Cluster, ClusterId, Timestamp};
use crate::store::{self, Sql};

/// Delete a cluster
///
/// For administrators of the project. The answer comes as soon as the deletion is accepted; the cluster is gone once
/// everything of it is. Asked twice, it is the same deletion. With `dry_run` 200 tells what would go.
#[utoipa::path(delete, path = "/api/v1/clusters/{id}", tag = "clusters", operation_id = "delete_cluster",
    params(("id" = ClusterId, Path, description = "The cluster's id"), DeleteCluster,
        ("If-Match" = Option<String>, Header, min_length = 1, pattern = "^(\\*|\"[0-9]{1,18}\")$", description = "The ETag of the version that was read")),
    responses(
        (status = 202, description = "The cluster, being deleted", body = Cluster, headers(("etag" = String, description = "For If-Match"))),
        (status = 200, description = "What would go (dry_run)", body = DeletionPlan)),
    extensions(("x-problems" = json!([412]))))]
pub async fn delete(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    Query(query): Query<DeleteCluster>,
    IfMatch(expected): IfMatch,
) -> Result<Response, Problem> {
    if query.dry_run == Some(true) {
        let mut sql = state.store.read().await?;
        let cluster = administered(&mut *sql, &caller, id, "deleting a cluster").await?;
        let removes = removals(&mut *sql, &cluster, state.ambient.now()).await?;
        return Ok(Json(DeletionPlan { cluster, removes }).into_response());
    }
    let mut tx = state.store.begin().await?;
    let before = administered(tx.sql(), &caller, id, "deleting a cluster").await?;
    let cluster = store::clusters::mark_deleted(&mut tx, &state.ambient, id, expected).await?;
    let cluster = cluster.ok_or_else(|| Problem::not_found("cluster"))?;
    if before.deleted_at.is_none() {
        let message = format!("the deletion of cluster {} was asked for", cluster.name);
        tell(&mut tx, &state.ambient, &caller, &cluster, "ClusterDeletionRequested", message).await?;
    }
    enqueue_reconcile(&mut tx, &state.ambient, &cluster).await?;
    tx.commit().await?;
    Ok((StatusCode::ACCEPTED, etag(cluster.resource_version), Json(cluster)).into_response())
}

async fn removals(sql: &mut dyn Sql, cluster: &Cluster, now: Timestamp) -> Result<Vec<Removal>, Problem> {
    let handed_out = store::kubeconfigs::list(sql, cluster.id).await?;
    let good = handed_out.iter().filter(|k| k.revoked_at.is_none() && k.expires_at > now).count();
    let mut removes = vec![
        ("control-plane", "the API server, the controller-manager, the scheduler and etcd".to_owned()),
        ("data", "everything that was stored in the cluster: workloads, configuration, Secrets".to_owned()),
        ("authorities", "its certificate authorities; whatever they signed proves nothing any more".to_owned()),
        ("kubeconfigs", format!("{good} kubeconfigs that are still good")),
        ("name", format!("its label {}, which is not given out again", cluster.label)),
    ];
    let nodes = store::nodes::list(sql, cluster.id).await?.len();
    if nodes > 0 {
        removes.push(("nodes", format!("{nodes} nodes; their machines stop its pods, and `kubebyon leave` there cleans them")));
    }
    removes.extend(cluster.node_port.map(|port| ("port", format!("port {port} of the front door"))));
    Ok(removes.into_iter().map(|(kind, description)| Removal { kind: kind.to_owned(), description }).collect())
}
