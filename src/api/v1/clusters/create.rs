//! Clusters created.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{CreateCluster, enqueue_reconcile, tell};
use crate::api::auth::Caller;
use crate::api::extract::JsonBody;
use crate::api::idempotency::IdempotencyKey;
use crate::api::problem::{Kind, Problem};
use crate::api::state::ApiState;
use crate::api::v1::settings::Effective;
use crate::api::v1::{nodes, projects, versions};
use crate::domain::cluster::PublicAccessMode;
use crate::domain::name::{self, CLUSTER_NAME_MAX};
use crate::domain::project::DEFAULT_PROJECT;
use crate::domain::user::Role;
use crate::domain::{Cluster, ClusterSpec, EngineKind, KubernetesVersion, access, label, network};
use crate::store::clusters::NewCluster;
use crate::store::{self, Tx};

/// Create a cluster
///
/// For administrators of the project. The answer comes as soon as the cluster is accepted; its `status` and its events
/// tell how it comes up. With `dry_run` everything is checked, 200 tells what would be, and nothing is created.
#[utoipa::path(post, path = "/api/v1/clusters", tag = "clusters", operation_id = "create_cluster", request_body = CreateCluster,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = "^[!-~]+$",
        description = "The same key with the same request gives the same answer for a day")),
    responses(
        (status = 201, description = "The cluster, accepted", body = Cluster),
        (status = 200, description = "What would be (dry_run)", body = Cluster)),
    extensions(("x-problems" = json!([404]))))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    key: IdempotencyKey,
    body: JsonBody<CreateCluster>,
) -> Result<Response, Problem> {
    let request = body.value;
    let (effective, project) = {
        let mut sql = state.store.read().await?;
        let name = request.project.as_deref().unwrap_or(DEFAULT_PROJECT);
        (Effective::read(&state, &mut *sql).await?, projects::visible(&mut *sql, &caller, name).await?)
    };
    caller.require(project.id, Role::Admin, "project", "creating a cluster")?;
    name::validate("name", &request.name, CLUSTER_NAME_MAX)?;
    label::validate_all(&request.labels)?;
    let version = match &request.kubernetes_version {
        Some(text) => versions::known(&state, text).await?,
        None => versions::known(&state, &effective.kubernetes_version()?.to_string()).await?,
    };
    let spec = spec(&state, &effective, &request, version.version)?;
    let new = NewCluster {
        project_id: project.id,
        name: request.name.clone(),
        labels: request.labels.clone(),
        host: (spec.engine == EngineKind::Local).then(|| state.options.host.clone()),
        spec,
    };
    let mut tx = state.store.begin().await?;
    if let Some(answer) = key.earlier(&mut tx, &caller, &body.bytes).await? {
        return Ok(answer);
    }
    if let Err(short) = state.ports.capacity.admit().await {
        return Err(Problem::new(Kind::NoCapacity, short));
    }
    let mut cluster = insert(&state, &mut tx, new).await?;
    nodes::count(tx.sql(), std::slice::from_mut(&mut cluster)).await?;
    if request.dry_run {
        // Dropping the transaction takes it all back.
        return Ok(Json(cluster).into_response());
    }
    let fetched = versions::fetched_first(version);
    let message = format!("cluster {} with Kubernetes {} was asked for{fetched}", cluster.name, version.version);
    tell(&mut tx, &state.ambient, &caller, &cluster, "ClusterCreated", message).await?;
    enqueue_reconcile(&mut tx, &state.ambient, &cluster).await?;
    let answer = key.keep(&mut tx, &state, &caller, &body.bytes, (StatusCode::CREATED, &cluster)).await?;
    tx.commit().await?;
    Ok(answer)
}

/// The row, with its port in `nodeport` mode.
async fn insert(state: &ApiState, tx: &mut Tx, new: NewCluster) -> Result<Cluster, Problem> {
    let needs_port = new.spec.engine == EngineKind::Local && new.spec.public_access_mode == PublicAccessMode::Nodeport;
    let name = new.name.clone();
    let cluster = match store::clusters::create(tx, &state.ambient, new).await {
        Err(store::Error::Exists(_)) => {
            let detail = format!("the project has a cluster {name:?} already (one being deleted keeps its name until it is gone)");
            return Err(Problem::new(Kind::NameTaken, detail));
        }
        other => other?,
    };
    if !needs_port {
        return Ok(cluster);
    }
    let range = state.options.nodeport_range.clone();
    if store::clusters::allot_node_port(tx, cluster.id, range.clone()).await?.is_none() {
        let (first, last) = (range.start(), range.end());
        return Err(Problem::new(
            Kind::NoCapacity,
            format!("every port of nodeport_range ({first}-{last}) is allotted; widen it, or use public_access_mode domain"),
        ));
    }
    store::clusters::find(tx.sql(), cluster.id).await?.ok_or_else(|| Problem::not_found("cluster"))
}

/// The spec that a request asks for, checked.
fn spec(
    state: &ApiState,
    effective: &Effective,
    request: &CreateCluster,
    kubernetes_version: KubernetesVersion,
) -> Result<ClusterSpec, Problem> {
    let engine = request.engine.unwrap_or(state.options.default_engine);
    if engine != EngineKind::Local {
        let engine = engine.as_str();
        return Err(Problem::invalid(
            "engine",
            format!("the engine {engine:?} needs a host cluster and this platform has none; use local"),
        ));
    }
    let text = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    let pod_cidr = network::parse_cidr("pod_cidr", &text(&request.pod_cidr, network::DEFAULT_POD_CIDR))?;
    let service_cidr = network::parse_cidr("service_cidr", &text(&request.service_cidr, network::DEFAULT_SERVICE_CIDR))?;
    let api_local_address = local_address(&text(&request.api_local_address, network::DEFAULT_API_LOCAL_ADDRESS))?;
    network::validate(pod_cidr, service_cidr, api_local_address)?;
    if let Some(host) = &request.control_plane_host {
        access::validate_host("control_plane_host", host)?;
    }
    Ok(ClusterSpec {
        kubernetes_version,
        engine,
        pod_cidr,
        service_cidr,
        cni: request.cni.unwrap_or_default(),
        kube_proxy: request.kube_proxy.unwrap_or_default(),
        api_local_address,
        public_access_mode: request.public_access_mode.unwrap_or_else(|| effective.public_access_mode()),
        control_plane_host: request.control_plane_host.clone(),
    })
}

fn local_address(text: &str) -> Result<IpAddr, Problem> {
    let refuse =
        |why: &str| Problem::invalid("api_local_address", format!("{text:?} {why}; it looks like {}", network::DEFAULT_API_LOCAL_ADDRESS));
    let address: std::net::Ipv4Addr = text.parse().map_err(|_| refuse("is no IPv4 address"))?;
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast() || address.is_link_local() {
        return Err(refuse("means something of its own on every machine"));
    }
    Ok(address.into())
}
