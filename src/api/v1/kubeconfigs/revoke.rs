//! Kubeconfigs revoked, with effect at the cluster's API server.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::concerns;
use crate::api::auth::{Caller, cluster_role_of};
use crate::api::extract::Path;
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::api::v1::clusters;
use crate::api::wait;
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::work::{REVOKE, RevokeRequest};
use crate::domain::{ClusterId, KubeconfigId};
use crate::queue::Outcome;
use crate::store;
use crate::store::jobs::NewJob;

/// Revoke a kubeconfig
///
/// For its owner and for administrators of the project; an API token revokes no more than it could do itself. 200: the cluster's API server refuses it from now on. 202: it is
/// revoked, and the API server (which may be down) has yet to learn of it. Asked twice, it is the same revocation.
#[utoipa::path(delete, path = "/api/v1/clusters/{id}/kubeconfigs/{kubeconfig}", tag = "kubeconfigs", operation_id = "revoke_kubeconfig",
    params(("id" = ClusterId, Path, description = "The cluster's id"), ("kubeconfig" = KubeconfigId, Path, description = "The kubeconfig's id")),
    responses(
        (status = 200, description = "It is refused from now on", body = Kubeconfig),
        (status = 202, description = "It is revoked; the API server has yet to learn of it", body = Kubeconfig)))]
pub async fn revoke(
    State(state): State<ApiState>,
    caller: Caller,
    Path((id, kubeconfig)): Path<(ClusterId, KubeconfigId)>,
) -> Result<(StatusCode, Json<Kubeconfig>), Problem> {
    let mut tx = state.store.begin().await?;
    let cluster = clusters::visible(tx.sql(), &caller, id).await?;
    let role = caller.role_in(cluster.project_id);
    let record = store::kubeconfigs::find(tx.sql(), kubeconfig).await?;
    let record = record
        .filter(|record| record.cluster_id == id && concerns(&caller, role, record))
        .ok_or_else(|| Problem::not_found("kubeconfig"))?;
    let most = cluster_role_of(caller.most());
    if record.role > most {
        let (role, most) = (record.role.as_str(), most.as_str());
        return Err(Problem::forbidden(format!(
            "this API token is good for kubeconfigs with the role {most} at most; this one has {role}: sign in to revoke it"
        )));
    }
    if record.revoked_at.is_none() {
        store::kubeconfigs::revoke(&mut tx, kubeconfig, state.ambient.now()).await?;
        let message = format!("the revocation of a kubeconfig of {} was asked for", record.owner);
        clusters::tell(&mut tx, &state.ambient, &caller, &cluster, "KubeconfigRevocationRequested", message).await?;
    }
    let payload = serde_json::to_value(RevokeRequest { kubeconfig_id: kubeconfig })
        .map_err(|cause| Problem::internal("writing a job", &cause.into()))?;
    let job = NewJob {
        kind: REVOKE,
        project_id: Some(cluster.project_id),
        cluster_id: Some(id),
        host: cluster.host.clone(),
        payload,
        max_attempts: 20,
        coalesce: false,
    };
    let job = store::jobs::enqueue(&mut tx, &state.ambient, job).await?;
    tx.commit().await?;
    let status = match wait::for_job(&state, job).await? {
        Outcome::Succeeded(_) => StatusCode::OK,
        Outcome::TimedOut => StatusCode::ACCEPTED,
        Outcome::Dead(reason) => {
            let detail = format!("it is marked as revoked, but its API server could not be told: {reason}; job {job} can be begun anew");
            return Err(Problem::new(Kind::JobFailed, detail));
        }
    };
    let record = store::kubeconfigs::find(&mut *state.store.read().await?, kubeconfig).await?.unwrap_or(record);
    Ok((status, Json(record)))
}
