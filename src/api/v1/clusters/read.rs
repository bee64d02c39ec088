//! Clusters read: one, or a page.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::{ListClusters, visible};
use crate::api::auth::Caller;
use crate::api::conditional::etag;
use crate::api::extract::{Path, Query, name_parameter, page};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::{nodes, projects, slice};
use crate::domain::label::Selector;
use crate::domain::page::{MAX_LIMIT, Page, PageRequest};
use crate::domain::{Cluster, ClusterId, ProjectId};
use crate::store::{self, Sql};

/// List clusters
///
/// Those that the caller may see, oldest first.
#[utoipa::path(get, path = "/api/v1/clusters", tag = "clusters", operation_id = "list_clusters", params(ListClusters),
    responses((status = 200, description = "A page of clusters", body = Page<Cluster>)),
    extensions(("x-problems" = json!([404, 422]))))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Query(query): Query<ListClusters>,
) -> Result<Json<Page<Cluster>>, Problem> {
    let page = page(query.limit, query.next)?;
    name_parameter(query.name.as_deref())?;
    let selector: Selector = query.label_selector.as_deref().unwrap_or_default().parse()?;
    let mut sql = state.store.read().await?;
    let projects = match &query.project {
        Some(project) => Some(vec![projects::visible(&mut *sql, &caller, project).await?.id]),
        None => caller.visible(),
    };
    let mut found = match &query.name {
        Some(name) => {
            let mut named = by_name(&mut *sql, projects, name).await?;
            named.retain(|cluster| selector.matches(&cluster.labels));
            slice(named, &page, |cluster| cluster.id.to_string())?
        }
        None => store::clusters::list(&mut *sql, projects.as_deref(), &selector, &page).await?,
    };
    nodes::count(&mut *sql, &mut found.items).await?;
    Ok(Json(found))
}

/// The clusters of a name: at most one in each project.
async fn by_name(sql: &mut dyn Sql, projects: Option<Vec<ProjectId>>, name: &str) -> Result<Vec<Cluster>, Problem> {
    let projects = match projects {
        Some(projects) => projects,
        None => every_project(sql).await?,
    };
    let mut found = Vec::new();
    for project in projects {
        found.extend(store::clusters::find_by_name(sql, project, name).await?);
    }
    found.sort_by_key(|cluster| cluster.id);
    Ok(found)
}

async fn every_project(sql: &mut dyn Sql) -> Result<Vec<ProjectId>, Problem> {
    let mut request = PageRequest { limit: MAX_LIMIT, after: None };
    let mut ids = Vec::new();
    loop {
        let page = store::projects::list(sql, None, &request).await?;
        ids.extend(page.items.iter().map(|project| project.id));
        request.after = page.next;
        if request.after.is_none() {
            return Ok(ids);
        }
    }
}

/// Get a cluster
///
/// One that is being deleted is still there, with `deleted_at`.
#[utoipa::path(get, path = "/api/v1/clusters/{id}", tag = "clusters", operation_id = "get_cluster",
    params(("id" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 200, description = "The cluster", body = Cluster, headers(("etag" = String, description = "For If-Match")))))]
pub async fn get(State(state): State<ApiState>, caller: Caller, Path(id): Path<ClusterId>) -> Result<Response, Problem> {
    let mut sql = state.store.read().await?;
    let mut cluster = visible(&mut *sql, &caller, id).await?;
    nodes::count(&mut *sql, std::slice::from_mut(&mut cluster)).await?;
    Ok((etag(cluster.resource_version), Json(cluster)).into_response())
}
