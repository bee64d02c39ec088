//! A machine asks for membership.

use axum::Json;
use axum::extract::{Extension, State};

use super::{plain, proof};
use crate::api::auth::Peer;
use crate::api::extract::JsonBody;
use crate::api::problem::{Kind, Problem};
use crate::api::state::{ApiState, NodeSet};
use crate::api::v1::sessions::source;
use crate::api::wait;
use crate::domain::cluster::Addon;
use crate::domain::join::{ARCHITECTURES, CLUSTER_DOMAIN, JoinRequest, Joined, JoinedCluster};
use crate::domain::node::{Machine, asked};
use crate::domain::work::{Refusal, SIGN_NODE, SignNodeRequest, SignNodeResult};
use crate::domain::{Cluster, network};
use crate::store;
use crate::store::jobs::NewJob;

/// After so many attempts signing is given up: a machine waits.
const ATTEMPTS: i64 = 3;
/// The longest word that a machine says of itself, in characters.
const WORD: usize = 128;

/// Join a cluster
///
/// Makes the machine that shows a join token a node. Sent again with the same key it is the same node, and uses nothing up. Not signed
/// in: the token is the proof.
#[utoipa::path(post, path = "/join/v1/nodes", tag = "join", operation_id = "join_cluster", request_body = JoinRequest, security(()),
    responses((status = 200, description = "The machine is a node", body = Joined)),
    extensions(("x-problems" = json!([403, 429]))))]
pub async fn join(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    body: JsonBody<JoinRequest>,
) -> Result<Json<Joined>, Problem> {
    let request = body.value;
    let token = proof::token(&state, request.token, &request.secret, &source(peer.as_deref())).await?;
    let _place = state.joins.ask(token.id)?;
    let cluster = store::clusters::find(&mut *state.store.read().await?, token.cluster_id).await?.ok_or_else(proof::unknown)?;
    check(&cluster, &request)?;
    let version = cluster.status.kubernetes_version.unwrap_or(cluster.spec.kubernetes_version);
    let files = state.ports.node_files.set(version, &request.machine.architecture).await;
    let files = files.map_err(|cause| Problem::internal("looking for the programs of nodes", &cause))?;
    // Before a use is consumed: a machine that cannot go on is no node.
    let files = files.map_err(|missing| Problem::new(Kind::ProgramsMissing, missing))?;
    let signed = sign(&state, &cluster, request).await?;
    joined(&state, &cluster, signed, files).await.map(Json)
}

/// What is wrong whatever else there is; the job checks it again.
fn check(cluster: &Cluster, request: &JoinRequest) -> Result<(), Problem> {
    if cluster.deleted_at.is_some() {
        let why = format!("cluster {} is being deleted: nothing joins it any more", cluster.name);
        return Err(Problem::refused(Refusal::ClusterDeleting, why));
    }
    asked::validate_name(&request.name)?;
    asked::validate_labels(&request.labels)?;
    asked::validate_taints(&request.taints)?;
    let architecture = plain(&request.machine.architecture, WORD);
    if !ARCHITECTURES.contains(&request.machine.architecture.as_str()) {
        let known = ARCHITECTURES.join(" and ");
        return Err(Problem::invalid("machine.architecture", format!("nodes have the architecture {known}, and not {architecture:?}")));
    }
    Ok(())
}

async fn sign(state: &ApiState, cluster: &Cluster, request: JoinRequest) -> Result<SignNodeResult, Problem> {
    let Machine { operating_system, architecture, kernel, kubebyon_version, kubelet_version, container_runtime } = request.machine;
    let machine = Machine {
        operating_system: plain(&operating_system, WORD),
        architecture,
        kernel: plain(&kernel, WORD),
        kubebyon_version: plain(&kubebyon_version, WORD),
        kubelet_version: plain(&kubelet_version, WORD),
        container_runtime: plain(&container_runtime, WORD),
    };
    let work = SignNodeRequest {
        token: request.token,
        csr_pem: request.csr_pem,
        name: request.name,
        address: request.address,
        machine,
        labels: request.labels,
        taints: request.taints,
        replace: request.replace,
    };
    let job = NewJob {
        kind: SIGN_NODE,
        project_id: Some(cluster.project_id),
        cluster_id: Some(cluster.id),
        host: cluster.host.clone(),
        payload: serde_json::to_value(work).map_err(|cause| Problem::internal("writing a job", &cause.into()))?,
        max_attempts: ATTEMPTS,
        coalesce: false,
    };
    let mut tx = state.store.begin().await?;
    let id = store::jobs::enqueue(&mut tx, &state.ambient, job).await?;
    tx.commit().await?;
    wait::for_result(state, id).await.map_err(|problem| {
        if problem.is(Kind::JobFailed) {
            // What a worker could not do at this moment it may do at the next: the machine asks again by itself.
            tracing::warn!(job = %id, why = problem.detail, "a machine could not be made a node");
            return Problem::new(Kind::Unavailable, format!("the platform could not sign at this moment: {}", problem.detail))
                .retry_after(5);
        }
        problem
    })
}

/// Tells the machine what it needs.
async fn joined(state: &ApiState, cluster: &Cluster, signed: SignNodeResult, files: NodeSet) -> Result<Joined, Problem> {
    let node = store::nodes::find(&mut *state.store.read().await?, signed.node).await?;
    let node = node.ok_or_else(|| Problem::refused(Refusal::NodeLeaving, "this machine's membership ended just now: join again"))?;
    let spec = &cluster.spec;
    let dns_address = network::nth_address(spec.service_cidr, network::DNS_ADDRESS_INDEX)
        .ok_or_else(|| Problem::internal("joining", &anyhow::anyhow!("{} has no address for DNS", spec.service_cidr)))?;
    let addressing = state.ports.addresses.current();
    let NodeSet { mut programs, images } = files;
    programs.retain(|file| spec.kube_proxy == Addon::Default || file.name != "kube-proxy");
    Ok(Joined {
        node_id: node.id,
        name: node.name,
        address: node.address,
        address_assigned: node.address_assigned,
        certificate_pem: signed.certificate_pem,
        cluster: JoinedCluster {
            id: cluster.id,
            name: cluster.name.clone(),
            label: cluster.label.clone(),
            kubernetes_version: cluster.status.kubernetes_version.unwrap_or(spec.kubernetes_version),
            server_ca_pem: signed.server_ca_pem,
            client_ca_pem: signed.client_ca_pem,
            tunnel_name: addressing.tunnel_sni(&cluster.label),
            tunnel_endpoints: addressing.tunnel_endpoints(),
            api_local_address: spec.api_local_address,
            api_port: network::API_LOCAL_PORT,
            pod_cidr: spec.pod_cidr,
            service_cidr: spec.service_cidr,
            dns_address,
            dns_domain: CLUSTER_DOMAIN.to_owned(),
            cni: spec.cni,
            kube_proxy: spec.kube_proxy,
            pause_image: state.options.pause_image.clone(),
        },
        programs,
        images,
    })
}
