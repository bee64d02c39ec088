//! How a join goes, told for the cluster's events.

use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::StatusCode;

use super::{plain, proof};
use crate::api::auth::Peer;
use crate::api::extract::JsonBody;
use crate::api::problem::Problem;
use crate::api::state::ApiState;
use crate::api::v1::sessions::source;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::join::StepReport;
use crate::domain::node::asked;
use crate::domain::work::Refusal;
use crate::store;

/// A join that began by a token may go on for so long behind its end.
const AFTER: Duration = Duration::from_secs(3600);
/// The longest step, in characters.
const STEP: usize = 40;
/// The longest message, in characters.
const MESSAGE: usize = 500;

/// Tell how a join goes
///
/// The step becomes an event of the cluster, named `Join` and the step. Not signed in: the token is the proof, used up or not.
#[utoipa::path(post, path = "/join/v1/steps", tag = "join", operation_id = "report_join_step", request_body = StepReport, security(()),
    responses((status = 204, description = "It was noted")),
    extensions(("x-problems" = json!([403, 429]))))]
pub async fn step(State(state): State<ApiState>, peer: Option<Extension<Peer>>, body: JsonBody<StepReport>) -> Result<StatusCode, Problem> {
    let report = body.value;
    let token = proof::token(&state, report.token, &report.secret, &source(peer.as_deref())).await?;
    let now = state.ambient.now();
    if token.revoked_at.is_some() {
        return Err(Problem::refused(Refusal::TokenRevoked, "the join token was revoked"));
    }
    if token.expires_at.plus(AFTER) <= now {
        return Err(Problem::refused(Refusal::TokenExpired, format!("the join token ended at {}", token.expires_at)));
    }
    asked::validate_name(&report.name)?;
    // The reason of an event is one word, and no word of the platform's own.
    if !(1..=STEP).contains(&report.step.len()) || !report.step.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Problem::invalid("step", format!("a step is one word of at most {STEP} letters and digits")));
    }
    state.joins.step(token.id, now)?;
    let mut tx = state.store.begin().await?;
    let cluster = store::clusters::find(tx.sql(), token.cluster_id).await?.ok_or_else(proof::unknown)?;
    let event = NewEvent {
        project_id: Some(cluster.project_id),
        cluster: Some((cluster.id, cluster.name)),
        severity: if report.failed { Severity::Warning } else { Severity::Normal },
        reason: format!("Join{}", report.step),
        message: format!("node {}: {}", report.name, plain(&report.message, MESSAGE)),
        actor: Some(format!("join token {}", token.id)),
    };
    store::events::append(&mut tx, now, event).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
