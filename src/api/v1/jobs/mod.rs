//! Jobs: seen, begun anew when they were given up, and hurried while they wait.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::extract::{Path, Query, page};
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::job::{Job, JobState};
use crate::domain::page::Page;
use crate::domain::user::Role;
use crate::domain::{ClusterId, JobId};
use crate::store::{self, Sql};

/// Which jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListJobs {
    /// Only those in this state.
    #[param(inline)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Only those about this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

fn sees(caller: &Caller, job: &Job) -> bool {
    job.project_id.map_or_else(|| caller.sees_platform(), |project| caller.role_in(project).is_some())
}

async fn visible(sql: &mut dyn Sql, caller: &Caller, id: JobId) -> Result<Job, Problem> {
    store::jobs::find(sql, id).await?.filter(|job| sees(caller, job)).ok_or_else(|| Problem::not_found("job"))
}

/// List jobs
///
/// Newest first. The platform's own are for platform administrators.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", operation_id = "list_jobs", params(ListJobs),
    responses((status = 200, description = "A page of jobs", body = Page<Job>)))]
pub async fn list(State(state): State<ApiState>, caller: Caller, Query(query): Query<ListJobs>) -> Result<Json<Page<Job>>, Problem> {
    let page = page(query.limit, query.next)?;
    let mut sql = state.store.read().await?;
    let projects = caller.sees_of_projects(&mut *sql).await?;
    let filter = store::jobs::Filter { projects, cluster: query.cluster, state: query.state };
    Ok(Json(store::jobs::list(&mut *sql, &filter, &page).await?))
}

/// Get a job
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(("id" = JobId, Path, description = "The job's id")),
    responses((status = 200, description = "The job", body = Job)))]
pub async fn get(State(state): State<ApiState>, caller: Caller, Path(id): Path<JobId>) -> Result<Json<Job>, Problem> {
    let mut sql = state.store.read().await?;
    Ok(Json(visible(&mut *sql, &caller, id).await?))
}

/// Begin a dead job anew, or hurry one that waits
///
/// For administrators of its project. A dead job, and one that waits for its next attempt, is due at once and has all its
/// attempts again; one that is due already stays as it is. A job that runs or ended well answers 409.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "jobs", operation_id = "retry_job",
    params(("id" = JobId, Path, description = "The job's id")),
    responses((status = 200, description = "The job, due", body = Job)))]
pub async fn retry(State(state): State<ApiState>, caller: Caller, Path(id): Path<JobId>) -> Result<Json<Job>, Problem> {
    let mut tx = state.store.begin().await?;
    let job = visible(tx.sql(), &caller, id).await?;
    match job.project_id {
        Some(project) => caller.require(project, Role::Admin, "job", "retrying a job").map(drop)?,
        None => caller.require_platform_admin("retrying a job of the platform")?,
    }
    let now = state.ambient.now();
    if !store::jobs::retry(&mut tx, now, id).await? {
        if job.state == JobState::Pending {
            return Ok(Json(job));
        }
        let detail = format!("the job is {}; only one that is dead or waits can be begun anew", job.state.as_str());
        return Err(Problem::new(Kind::Conflict, detail));
    }
    let cluster = match job.cluster_id {
        Some(id) => store::clusters::find(tx.sql(), id).await?.map(|cluster| (cluster.id, cluster.name)),
        None => None,
    };
    let event = NewEvent {
        project_id: job.project_id,
        cluster,
        severity: Severity::Normal,
        reason: "JobRetried".into(),
        message: format!("job {id} ({}) was {}", job.kind, if job.state == JobState::Dead { "begun anew" } else { "hurried" }),
        actor: Some(caller.name().to_owned()),
    };
    store::events::append(&mut tx, now, event).await?;
    let job = visible(tx.sql(), &caller, id).await?;
    tx.commit().await?;
    Ok(Json(job))
}
