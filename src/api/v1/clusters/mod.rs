//! Clusters: created, listed, changed, deleted.
//!
//! Each change writes the row, an event and the job `reconcile-cluster` in one transaction; the answer tells what was
//! accepted, not what is done: `status` and the events tell that.

mod create;
mod delete;
mod labels;
mod read;
mod update;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use create::*;
pub use delete::*;
pub use read::*;
pub use update::*;

use crate::api::auth::Caller;
use crate::api::problem::Problem;
use crate::domain::cluster::{Addon, PublicAccessMode};
use crate::domain::event::{NewEvent, Severity};
use crate::domain::user::Role;
use crate::domain::{Ambient, Cluster, ClusterId, EngineKind, JobId, work};
use crate::store::jobs::NewJob;
use crate::store::{self, Sql, Tx};

/// A cluster that is to be created; what is absent gets its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCluster {
    /// The project's name or id; `default` when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub project: Option<String>,
    /// Its name: an RFC 1123 label, unique in the project, and none of the reserved words.
    #[schema(min_length = 1, max_length = 40, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", example = "demo")]
    pub name: String,
    /// Its labels, as Kubernetes has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = labels::labels)]
    pub labels: BTreeMap<String, String>,
    /// One of `/api/v1/versions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^v?[0-9]{1,4}\\.[0-9]{1,4}\\.[0-9]{1,4}$", example = "1.34.4")]
    pub kubernetes_version: Option<String>,
    /// What runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineKind>,
    /// The pods' range (IPv4, /8 to /24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 18, pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2}$", example = "10.244.0.0/16")]
    pub pod_cidr: Option<String>,
    /// The Services' range (IPv4, /12 to /28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 18, pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2}$", example = "10.96.0.0/16")]
    pub service_cidr: Option<String>,
    /// The pod network: the platform's, or the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<Addon>,
    /// kube-proxy: the platform's, or the owner's replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_proxy: Option<Addon>,
    /// The address on every node that leads to the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 15, pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}$", example = "198.51.100.1")]
    pub api_local_address: Option<String>,
    /// The host that kubeconfigs name in `nodeport` mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253, pattern = "^[-.:A-Za-z0-9]+$", example = "203.0.113.7")]
    pub control_plane_host: Option<String>,
    /// How it is reached from outside; the setting of that name when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_access_mode: Option<PublicAccessMode>,
    /// Check everything and answer with what would be, and create nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What is to change in a cluster (JSON merge patch, RFC 7396); what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateCluster {
    /// Labels to set, and with `null` to remove; others stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = labels::label_changes)]
    pub labels: Option<BTreeMap<String, Option<String>>>,
    /// The version to go to: forwards, by one minor at most; back only to the version that still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^v?[0-9]{1,4}\\.[0-9]{1,4}\\.[0-9]{1,4}$", example = "1.35.1")]
    pub kubernetes_version: Option<String>,
    /// The host that kubeconfigs name in `nodeport` mode; `null`: the platform's choice.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 253, pattern = "^[-.:A-Za-z0-9]+$", example = "203.0.113.7")]
    #[allow(clippy::option_option, reason = "a merge patch has three: absent, null, a value")]
    pub control_plane_host: Option<Option<String>>,
}

/// Tells a `null` (`Some(None)`) from what is absent (`None`).
#[allow(clippy::option_option, reason = "a merge patch has three: absent, null, a value")]
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Which clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListClusters {
    /// Only of this project: its name or id.
    #[param(min_length = 1, max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Only those of this name; in every project unless `project` is given.
    #[param(min_length = 1, max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only those with these labels, such as `team=web,env in (a,b),!old`.
    #[param(max_length = 1024)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// At most so many on one page; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `continue` of the page before.
    #[param(max_length = 256)]
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteCluster {
    /// Tell what would go, and delete nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// What goes with a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeletionPlan {
    /// The cluster.
    pub cluster: Cluster,
    /// What goes with it.
    pub removes: Vec<Removal>,
}

/// One thing that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Removal {
    /// What it is, one word: `control-plane`, `data`, `authorities`, `kubeconfigs`, `nodes`, `port`, `name`.
    pub kind: String,
    /// The same for people.
    pub description: String,
}

/// A cluster that the caller may see.
pub(crate) async fn visible(sql: &mut dyn Sql, caller: &Caller, id: ClusterId) -> Result<Cluster, Problem> {
    let found = store::clusters::find(sql, id).await?;
    found.filter(|cluster| caller.role_in(cluster.project_id).is_some()).ok_or_else(|| Problem::not_found("cluster"))
}

/// A cluster that the caller may administer.
async fn administered(sql: &mut dyn Sql, caller: &Caller, id: ClusterId, doing: &str) -> Result<Cluster, Problem> {
    let cluster = visible(sql, caller, id).await?;
    caller.require(cluster.project_id, Role::Admin, "cluster", doing)?;
    Ok(cluster)
}

/// Enqueues the job that brings a cluster to what is asked of it; one that waits already is enough.
pub(crate) async fn enqueue_reconcile(tx: &mut Tx, ambient: &Ambient, cluster: &Cluster) -> store::Result<JobId> {
    let job = NewJob {
        kind: work::RECONCILE_CLUSTER,
        project_id: Some(cluster.project_id),
        cluster_id: Some(cluster.id),
        host: cluster.host.clone(),
        payload: serde_json::json!({}),
        max_attempts: 20,
        coalesce: true,
    };
    store::jobs::enqueue(tx, ambient, job).await
}

/// Appends an event about what somebody asked of a cluster.
pub(crate) async fn tell(
    tx: &mut Tx,
    ambient: &Ambient,
    caller: &Caller,
    cluster: &Cluster,
    reason: &str,
    message: String,
) -> store::Result<i64> {
    let event = NewEvent {
        project_id: Some(cluster.project_id),
        cluster: Some((cluster.id, cluster.name.clone())),
        severity: Severity::Normal,
        reason: reason.to_owned(),
        message,
        actor: Some(caller.name().to_owned()),
    };
    store::events::append(tx, ambient.now(), event).await
}
