//! Nodes of a cluster: listed, read, removed.

mod remove;

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

pub use remove::*;

use crate::api::auth::Caller;
use crate::api::extract::{Path, Query, page};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::{clusters, slice};
use crate::domain::cluster::ClusterNodes;
use crate::domain::page::Page;
use crate::domain::{Cluster, ClusterId, JobId, Node, network};
use crate::store::{self, Sql};

/// Which nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListNodes {
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How to remove a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveNode {
    /// How long its pods may take to go, in seconds; 120 when nothing is said, 0: they are not evicted.
    #[param(minimum = 0, maximum = 3600)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u64>,
    /// Tell which node it would be, and remove nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// A node that is being removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RemovedNode {
    /// The node.
    pub node: Node,
    /// The job that takes it out of the cluster; absent with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
}

/// Fills in what the clusters' nodes are, taken together.
pub(crate) async fn count(sql: &mut dyn Sql, clusters: &mut [Cluster]) -> store::Result<()> {
    let ids: Vec<ClusterId> = clusters.iter().map(|cluster| cluster.id).collect();
    let counts = store::nodes::counts(sql, &ids).await?;
    for cluster in clusters {
        let (total, ready, verified) = counts.get(&cluster.id).copied().unwrap_or_default();
        let api_address = SocketAddr::new(cluster.spec.api_local_address, network::API_LOCAL_PORT);
        cluster.nodes = Some(ClusterNodes { total, ready, verified, api_address });
    }
    Ok(())
}

/// List nodes
///
/// Those of a cluster by name, those that are being removed included.
#[utoipa::path(get, path = "/api/v1/clusters/{id}/nodes", tag = "nodes", operation_id = "list_nodes",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ListNodes),
    responses((status = 200, description = "A page of nodes", body = Page<Node>)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    Query(query): Query<ListNodes>,
) -> Result<Json<Page<Node>>, Problem> {
    let page = page(query.limit, query.next)?;
    let mut sql = state.store.read().await?;
    clusters::visible(&mut *sql, &caller, id).await?;
    let nodes = store::nodes::list(&mut *sql, id).await?;
    Ok(Json(slice(nodes, &page, |node| node.name.clone())?))
}

/// Get a node
#[utoipa::path(get, path = "/api/v1/clusters/{id}/nodes/{name}", tag = "nodes", operation_id = "get_node",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ("name" = String, Path, description = "The node's name", min_length = 1, max_length = 63)),
    responses((status = 200, description = "The node", body = Node)))]
pub async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Path((id, name)): Path<(ClusterId, String)>,
) -> Result<Json<Node>, Problem> {
    let mut sql = state.store.read().await?;
    clusters::visible(&mut *sql, &caller, id).await?;
    store::nodes::find_by_name(&mut *sql, id, &name).await?.map(Json).ok_or_else(|| Problem::not_found("node"))
}
