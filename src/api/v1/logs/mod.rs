//! Logs of a cluster's control plane, as lines.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::events;
use crate::api::extract::{Path, Query};
use crate::api::problem::{Kind, Problem};
use crate::api::state::{ApiState, LogRequest};
use crate::domain::ClusterId;
use crate::domain::user::Role;

/// The most lines that can be asked for at once.
pub const MAX_TAIL: usize = 100_000;
/// Components that have a log.
pub const COMPONENTS: [&str; 5] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "audit"];

/// A component that has a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogComponent {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    #[default]
    KubeApiserver,
    /// kube-controller-manager.
    KubeControllerManager,
    /// kube-scheduler.
    KubeScheduler,
    /// The API server's audit log; for administrators of the project.
    Audit,
}

impl LogComponent {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        COMPONENTS[self as usize]
    }
}

/// Which lines of which log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadLogs {
    /// The component; `kube-apiserver` when nothing is said.
    #[param(inline)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<LogComponent>,
    /// Only so many of the last lines; 100 when nothing is said.
    #[param(minimum = 0, maximum = 100_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// Go on as lines come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<bool>,
}

/// Read a log
///
/// Lines of one component of the control plane. With `follow` the answer ends when the client closes it, when the caller
/// may read it no longer, or when the platform drains.
#[utoipa::path(get, path = "/api/v1/clusters/{id}/logs", tag = "clusters", operation_id = "read_logs",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ReadLogs),
    responses((status = 200, description = "The lines", body = String, content_type = "text/plain")),
    extensions(("x-problems" = json!([409, 429]))))]
pub async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    Query(query): Query<ReadLogs>,
) -> Result<Response, Problem> {
    let cluster = super::clusters::visible(&mut *state.store.read().await?, &caller, id).await?;
    let component = query.component.unwrap_or_default();
    let needed = if component == LogComponent::Audit { Role::Admin } else { Role::Viewer };
    caller.require(cluster.project_id, needed, "cluster", "reading this log")?;
    let tail = query.tail.unwrap_or(100);
    if tail > MAX_TAIL {
        return Err(Problem::bad_parameter("tail", format!("{tail} is too many; at most {MAX_TAIL} lines")));
    }
    let slot = state.slots.take(&caller)?;
    let follow = query.follow.unwrap_or(false);
    let request = LogRequest { cluster: id, component: component.as_str().to_owned(), tail: Some(tail), follow };
    let lines = state.ports.logs.logs(&request).await.map_err(|cause| Problem::internal("reading a log", &cause))?;
    let Some(lines) = lines else {
        let message = format!("{} of this cluster has no log yet: it has not been started", component.as_str());
        return Err(Problem::new(Kind::Conflict, message));
    };
    let until = events::until_refused(state.clone(), caller, cluster.project_id, needed);
    let lines = lines.take_until(Box::pin(until)).map(move |chunk| {
        let _held = &slot;
        chunk
    });
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(lines)).into_response())
}
