//! Clusters changed: labels, version, host.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::{UpdateCluster, administered, enqueue_reconcile, tell};
use crate::api::auth::Caller;
use crate::api::conditional::{IfMatch, etag};
use crate::api::extract::{JsonBody, Path, parse};
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::api::v1::versions;
use crate::domain::{Cluster, ClusterId, ClusterSpec, KubernetesVersion, access, label};
use crate::store;

/// Fields of a cluster that are fixed when it is created.
const FIXED: [&str; 10] =
    ["name", "project", "engine", "pod_cidr", "service_cidr", "cni", "kube_proxy", "api_local_address", "public_access_mode", "label"];

/// Change a cluster
///
/// For administrators of the project. A JSON merge patch (RFC 7396) of labels, `kubernetes_version` and
/// `control_plane_host`; other fields are fixed when a cluster is created. With `If-Match` only when nobody changed it
/// meanwhile. Until a new version runs, `kubernetes_version` can be set back to the one that does, and to no version that
/// is more than one step from it (409).
#[utoipa::path(patch, path = "/api/v1/clusters/{id}", tag = "clusters", operation_id = "update_cluster", request_body = UpdateCluster,
    params(("id" = ClusterId, Path, description = "The cluster's id"),
        ("If-Match" = Option<String>, Header, min_length = 1, pattern = "^(\\*|\"[0-9]{1,18}\")$", description = "The ETag of the version that was read")),
    responses((status = 200, description = "The cluster as it is asked for from now on", body = Cluster,
        headers(("etag" = String, description = "For If-Match")))),
    extensions(("x-problems" = json!([412]))))]
pub async fn update(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    IfMatch(expected): IfMatch,
    body: JsonBody<serde_json::Value>,
) -> Result<Response, Problem> {
    administered(&mut *state.store.read().await?, &caller, id, "changing a cluster").await?;
    if let Some(fixed) = FIXED.iter().find(|field| body.value.get(field).is_some()) {
        return Err(Problem::invalid(*fixed, "this is fixed when a cluster is created; make a new cluster for another value"));
    }
    let change: UpdateCluster = parse(&body.bytes)?;
    let version = match &change.kubernetes_version {
        Some(version) => Some(versions::known(&state, version).await?),
        None => None,
    };
    let mut tx = state.store.begin().await?;
    let cluster = administered(tx.sql(), &caller, id, "changing a cluster").await?;
    if cluster.deleted_at.is_some() {
        return Err(Problem::new(Kind::Conflict, "the cluster is being deleted"));
    }
    let (spec, labels) = changed(&cluster, change, version.map(|entry| entry.version))?;
    if spec == cluster.spec && labels == cluster.labels && expected.is_none_or(|version| version == cluster.resource_version) {
        return Ok((etag(cluster.resource_version), Json(cluster)).into_response());
    }
    let updated = store::clusters::update(&mut tx, id, expected, &spec, &labels).await?;
    let updated = updated.ok_or_else(|| Problem::new(Kind::Conflict, "the cluster is being deleted"))?;
    let fetched = version.filter(|entry| entry.version != cluster.spec.kubernetes_version);
    let fetched = fetched.map_or("", versions::fetched_first);
    let message = format!("{}{fetched}", difference(&cluster, &updated));
    tell(&mut tx, &state.ambient, &caller, &updated, "ClusterChanged", message).await?;
    if updated.generation != cluster.generation {
        enqueue_reconcile(&mut tx, &state.ambient, &updated).await?;
    }
    tx.commit().await?;
    Ok((etag(updated.resource_version), Json(updated)).into_response())
}

type Labels = std::collections::BTreeMap<String, String>;

fn changed(cluster: &Cluster, change: UpdateCluster, version: Option<KubernetesVersion>) -> Result<(ClusterSpec, Labels), Problem> {
    let (mut spec, mut labels) = (cluster.spec.clone(), cluster.labels.clone());
    for (key, value) in change.labels.unwrap_or_default() {
        match value {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    label::validate_all(&labels)?;
    if let Some(version) = version {
        check_version(cluster, version)?;
        spec.kubernetes_version = version;
    }
    if let Some(host) = change.control_plane_host {
        if let Some(host) = &host {
            access::validate_host("control_plane_host", host)?;
        }
        spec.control_plane_host = host;
    }
    Ok((spec, labels))
}

/// Whether the cluster may go to a version: one step from what is asked for already, and from what runs. While a change is
/// under way what runs alone counts, so that a version that cannot be had can be taken back.
fn check_version(cluster: &Cluster, to: KubernetesVersion) -> Result<(), Problem> {
    let asked = cluster.spec.kubernetes_version;
    let Some(running) = cluster.status.kubernetes_version.filter(|running| *running != asked) else {
        return Ok(asked.check_upgrade(to)?);
    };
    running.check_upgrade(to).map_err(|_| {
        let name = &cluster.name;
        let way_out = if asked < running {
            format!("a control plane cannot go back to {asked}; set it to {running} first")
        } else {
            format!("wait for {asked} or set it back")
        };
        Problem::new(Kind::Conflict, format!("{name} still runs {running}; {way_out}"))
    })
}

fn difference(before: &Cluster, after: &Cluster) -> String {
    let mut changes = Vec::new();
    if before.spec.kubernetes_version != after.spec.kubernetes_version {
        changes.push(format!("Kubernetes {} to {}", before.spec.kubernetes_version, after.spec.kubernetes_version));
    }
    if before.spec.control_plane_host != after.spec.control_plane_host {
        let host = after.spec.control_plane_host.as_deref().unwrap_or("the platform's choice");
        changes.push(format!("control plane host: {host}"));
    }
    if before.labels != after.labels {
        changes.push("labels".into());
    }
    format!("a change was asked for: {}", changes.join(", "))
}
