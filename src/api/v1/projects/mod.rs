//! Projects: created and listed.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::extract::{JsonBody, Path, Query, page};
use crate::api::idempotency::IdempotencyKey;
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::domain::ProjectId;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::name::{self, PROJECT_NAME_MAX};
use crate::domain::page::Page;
use crate::domain::project::Project;
use crate::store::{self, Sql};

/// A project that is to be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Its name: an RFC 1123 label, unique in the installation, and none of the reserved words.
    #[schema(min_length = 1, max_length = 40, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", example = "team-a")]
    pub name: String,
}

/// Which projects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListProjects {
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A project by its name or id; what the caller may not see is not there.
pub(crate) async fn visible(sql: &mut dyn Sql, caller: &Caller, name_or_id: &str) -> Result<Project, Problem> {
    let found = match name_or_id.parse::<ProjectId>() {
        Ok(id) => store::projects::find(sql, id).await?,
        Err(_) => store::projects::find_by_name(sql, name_or_id).await?,
    };
    found.filter(|project| caller.role_in(project.id).is_some()).ok_or_else(|| Problem::not_found("project"))
}

/// List projects
///
/// Those in which the caller has a role, by name.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", operation_id = "list_projects", params(ListProjects),
    responses((status = 200, description = "A page of projects", body = Page<Project>)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Query(query): Query<ListProjects>,
) -> Result<Json<Page<Project>>, Problem> {
    let page = page(query.limit, query.next)?;
    let mut sql = state.store.read().await?;
    Ok(Json(store::projects::list(&mut *sql, caller.visible().as_deref(), &page).await?))
}

/// Get a project
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects", operation_id = "get_project",
    params(("project" = String, Path, description = "The project's name or id", min_length = 1, max_length = 64)),
    responses((status = 200, description = "The project", body = Project)))]
pub async fn get(State(state): State<ApiState>, caller: Caller, Path(project): Path<String>) -> Result<Json<Project>, Problem> {
    let mut sql = state.store.read().await?;
    Ok(Json(visible(&mut *sql, &caller, &project).await?))
}

/// Create a project
///
/// For platform administrators.
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", operation_id = "create_project", request_body = CreateProject,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = "^[!-~]+$",
        description = "The same key with the same request gives the same answer for a day")),
    responses((status = 201, description = "The project", body = Project)),
    extensions(("x-problems" = json!([409]))))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    key: IdempotencyKey,
    body: JsonBody<CreateProject>,
) -> Result<Response, Problem> {
    caller.require_platform_admin("creating a project")?;
    name::validate("name", &body.value.name, PROJECT_NAME_MAX)?;
    let mut tx = state.store.begin().await?;
    if let Some(answer) = key.earlier(&mut tx, &caller, &body.bytes).await? {
        return Ok(answer);
    }
    let project = store::projects::create(&mut tx, &state.ambient, &body.value.name).await?;
    let event = NewEvent {
        project_id: Some(project.id),
        cluster: None,
        severity: Severity::Normal,
        reason: "ProjectCreated".into(),
        message: format!("project {} was created", project.name),
        actor: Some(caller.name().to_owned()),
    };
    store::events::append(&mut tx, state.ambient.now(), event).await?;
    let answer = key.keep(&mut tx, &state, &caller, &body.bytes, (StatusCode::CREATED, &project)).await?;
    tx.commit().await?;
    Ok(answer)
}
