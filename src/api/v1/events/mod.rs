//! Events, as a list or as a stream; both of everything that the caller may see, or of one cluster.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::events;
use crate::api::extract::{Path, Query, page};
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::domain::ClusterId;
use crate::domain::event::Event;
use crate::domain::page::Page;
use crate::store;

/// Which events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListEvents {
    /// Only those about this cluster; it may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// At most so many on one page; 100 when nothing is said. Streams have no pages.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which events of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListClusterEvents {
    /// At most so many on one page; 100 when nothing is said. Streams have no pages.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// List events, or stream them
///
/// With `Accept: text/event-stream` a stream: it begins after `Last-Event-ID`, else with what happens from now on; each
/// event's `data` is an Event. Otherwise a page, newest first. The platform's own events are for platform administrators.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", operation_id = "list_events",
    params(ListEvents, ("Last-Event-ID" = Option<i64>, Header, description = "The stream begins after this event", minimum = 0)),
    responses((status = 200, description = "A page of events, or the stream",
        content((Page<Event> = "application/json"), (String = "text/event-stream")))),
    extensions(("x-problems" = json!([429]))))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<ListEvents>,
) -> Result<Response, Problem> {
    let page = page(query.limit, query.next)?;
    let after = events::last_event_id(&headers)?;
    if events::wants_stream(&headers) {
        return events::stream(&state, caller, query.cluster.map(|id| (id, None)), after).await;
    }
    let mut sql = state.store.read().await?;
    let filter = events::filter(&mut *sql, &caller, query.cluster).await?;
    let found = store::events::list(&mut *sql, &filter, &page).await?;
    Ok(Json(found).into_response())
}

/// List a cluster's events, or stream them
///
/// As `/api/v1/events`, of one cluster that is there. A stream goes on until the cluster is gone and beyond.
#[utoipa::path(get, path = "/api/v1/clusters/{id}/events", tag = "events", operation_id = "list_cluster_events",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ListClusterEvents,
        ("Last-Event-ID" = Option<i64>, Header, description = "The stream begins after this event", minimum = 0)),
    responses((status = 200, description = "A page of events, or the stream",
        content((Page<Event> = "application/json"), (String = "text/event-stream")))),
    extensions(("x-problems" = json!([429]))))]
pub async fn of_cluster(
    State(state): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<ClusterId>,
    Query(query): Query<ListClusterEvents>,
) -> Result<Response, Problem> {
    let page = page(query.limit, query.next)?;
    let after = events::last_event_id(&headers)?;
    let mut sql = state.store.read().await?;
    let cluster = super::clusters::visible(&mut *sql, &caller, id).await?;
    if events::wants_stream(&headers) {
        drop(sql);
        return events::stream(&state, caller, Some((id, Some(cluster.project_id))), after).await;
    }
    let filter = events::filter(&mut *sql, &caller, Some(id)).await?;
    let found = store::events::list(&mut *sql, &filter, &page).await?;
    Ok(Json(found).into_response())
}
