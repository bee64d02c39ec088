//! Kubeconfigs handed out.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CreateKubeconfig, CreatedKubeconfig};
use crate::api::auth::{Caller, cluster_role_of};
use crate::api::extract::{JsonBody, Path};
use crate::api::problem::{Kind, Problem};
use crate::api::state::{ApiState, KubeconfigParts, Proof};
use crate::api::v1::clusters;
use crate::api::wait;
use crate::domain::cluster::{Endpoint, Phase};
use crate::domain::kubeconfig::{ClusterRole, DEFAULT_TTL, MAX_TTL, MIN_TOKEN_TTL, MIN_TTL};
use crate::domain::user::Role;
use crate::domain::work::{
    SERVICE_ACCOUNT_TOKEN, SIGN, ServiceAccountTokenRequest, ServiceAccountTokenResult, SignRequest, SignResult, token_context,
};
use crate::domain::{Cluster, ClusterId, JobId, KubeconfigId};
use crate::store;
use crate::store::jobs::NewJob;

/// After so many attempts it is given up: somebody waits.
const ATTEMPTS: i64 = 3;

/// Hand out a kubeconfig
///
/// viewers get `view`, members `edit`, administrators `admin`; nobody gets more than they have. It holds a client
/// certificate, or the token of a ServiceAccount. It is recorded before it is handed out, and can be revoked.
#[utoipa::path(post, path = "/api/v1/clusters/{id}/kubeconfigs", tag = "kubeconfigs", operation_id = "create_kubeconfig",
    request_body = CreateKubeconfig,
    params(("id" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 201, description = "The kubeconfig, shown this once", body = CreatedKubeconfig)))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<ClusterId>,
    body: JsonBody<CreateKubeconfig>,
) -> Result<(StatusCode, Json<CreatedKubeconfig>), Problem> {
    let cluster = clusters::visible(&mut *state.store.read().await?, &caller, id).await?;
    let asked = Asked::check(&caller, &cluster, body.value)?;
    let endpoint = ready(&state, &cluster)?;
    let (record, ca_pem, proof) = match &asked.service_account {
        None => by_certificate(&state, &caller, &cluster, &asked).await?,
        Some(account) => by_token(&state, &caller, &cluster, &asked, account).await?,
    };
    let parts = KubeconfigParts {
        name: asked.entry_name(&cluster.label),
        server: endpoint.server,
        tls_server_name: endpoint.tls_server_name,
        ca_pem,
        namespace: asked.namespace.clone(),
        proof,
    };
    let record = store::kubeconfigs::find(&mut *state.store.read().await?, record).await?;
    let record = record.ok_or_else(|| Problem::internal("handing out a kubeconfig", &anyhow::anyhow!("its record is not there")))?;
    let kubeconfig = state.ports.credentials.kubeconfig(&parts);
    Ok((StatusCode::CREATED, Json(CreatedKubeconfig { kubeconfig, record })))
}

/// What is asked for, checked and with its defaults.
struct Asked {
    role: ClusterRole,
    namespace: Option<String>,
    service_account: Option<(String, String)>,
    ttl_seconds: u64,
}

impl Asked {
    fn check(caller: &Caller, cluster: &Cluster, request: CreateKubeconfig) -> Result<Self, Problem> {
        let has = caller.role_in(cluster.project_id).ok_or_else(|| Problem::not_found("cluster"))?;
        let most = cluster_role_of(has);
        let role = request.role.unwrap_or(most);
        if role > most {
            let (role, has, most) = (role.as_str(), has.as_str(), most.as_str());
            return Err(Problem::forbidden(format!(
                "a kubeconfig with role {role} is more than you have: as {has} you get {most} at most"
            )));
        }
        let ttl_seconds = request.ttl_seconds.unwrap_or(DEFAULT_TTL.as_secs());
        let least = if request.service_account.is_some() { MIN_TOKEN_TTL } else { MIN_TTL };
        let (least, longest) = (least.as_secs(), MAX_TTL.as_secs());
        if !(least..=longest).contains(&ttl_seconds) {
            let days = longest / 86_400;
            let shortest = if least % 60 == 0 { format!("{}m", least / 60) } else { format!("{least}s") };
            let message = format!("{ttl_seconds} seconds are out of range; give {shortest} to {days}d ({least} to {longest} seconds)");
            return Err(Problem::invalid("ttl_seconds", message));
        }
        if let Some(namespace) = &request.namespace {
            check_label("namespace", namespace)?;
        }
        let service_account = request.service_account.as_deref().map(|text| account(text, request.namespace.as_deref())).transpose()?;
        if service_account.is_some() {
            // A ServiceAccount that is there may have rights of its own, whatever role is asked for.
            caller.require(cluster.project_id, Role::Admin, "cluster", "a kubeconfig of a ServiceAccount")?;
        }
        Ok(Self { role, namespace: request.namespace, service_account, ttl_seconds })
    }

    /// The name of the file's entries: kubeconfigs that may do different things stand side by side in a merged file.
    fn entry_name(&self, label: &str) -> String {
        let mut name = label.to_owned();
        if self.role != ClusterRole::Admin {
            name = format!("{name}-{}", self.role.as_str());
        }
        if let Some(namespace) = &self.namespace {
            name = format!("{name}-{namespace}");
        }
        name
    }
}

fn account(text: &str, namespace: Option<&str>) -> Result<(String, String), Problem> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace.unwrap_or("default"), text));
    check_label("service_account", namespace)?;
    if name.len() > 253 {
        return Err(Problem::invalid("service_account", "the name of a ServiceAccount has at most 253 characters"));
    }
    name.split('.').try_for_each(|part| check_label("service_account", part))?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// A label as Kubernetes has them (RFC 1123); its names may be words that are reserved here.
fn check_label(field: &str, text: &str) -> Result<(), Problem> {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let fits =
        (1..=63).contains(&bytes.len()) && edge(bytes[0]) && edge(bytes[bytes.len() - 1]) && bytes.iter().all(|b| edge(*b) || *b == b'-');
    if fits {
        return Ok(());
    }
    Err(Problem::invalid(field, format!("{text:?} is no RFC 1123 label: at most 63 lower-case letters, digits and '-'")))
}

/// The endpoint of a cluster that can hand out credentials.
fn ready(state: &ApiState, cluster: &Cluster) -> Result<Endpoint, Problem> {
    let wait_for = |what: &str| {
        let detail = format!("the cluster is {}; {what}", cluster.status.phase.as_str());
        Err(Problem::new(Kind::NotReady, detail).retry_after(5))
    };
    match cluster.status.phase {
        _ if cluster.deleted_at.is_some() => wait_for("it is going away"),
        Phase::Ready | Phase::Degraded | Phase::Updating => match &cluster.status.endpoint {
            Some(endpoint) => Ok(endpoint.clone()),
            None => state.ports.addresses.current().endpoint(cluster).map_or_else(|| wait_for("wait until it has an address"), Ok),
        },
        Phase::Failed => wait_for("its events and its Ready condition say why; mend that first"),
        Phase::Pending | Phase::Provisioning | Phase::Deleting => {
            wait_for("wait until its phase is ready (its events tell how it comes up)")
        }
    }
}

async fn by_certificate(
    state: &ApiState,
    caller: &Caller,
    cluster: &Cluster,
    asked: &Asked,
) -> Result<(KubeconfigId, String, Proof), Problem> {
    let (key_pem, csr_pem) =
        state.ports.credentials.key_and_csr(caller.name()).map_err(|cause| Problem::internal("making a key", &cause))?;
    let request = SignRequest {
        csr_pem,
        owner: caller.name().to_owned(),
        role: asked.role,
        namespace: asked.namespace.clone(),
        ttl_seconds: asked.ttl_seconds,
    };
    let (_, signed): (_, SignResult) = ask(state, cluster, SIGN, &request).await?;
    Ok((signed.kubeconfig_id, signed.ca_pem, Proof::Certificate { cert_pem: signed.cert_pem, key_pem }))
}

async fn by_token(
    state: &ApiState,
    caller: &Caller,
    cluster: &Cluster,
    asked: &Asked,
    (namespace, name): &(String, String),
) -> Result<(KubeconfigId, String, Proof), Problem> {
    let request = ServiceAccountTokenRequest {
        owner: caller.name().to_owned(),
        service_account_namespace: namespace.clone(),
        service_account_name: name.clone(),
        role: asked.role,
        namespace: asked.namespace.clone(),
        ttl_seconds: asked.ttl_seconds,
    };
    let (job, made): (JobId, ServiceAccountTokenResult) = ask(state, cluster, SERVICE_ACCOUNT_TOKEN, &request).await?;
    let opened = base64::engine::general_purpose::STANDARD
        .decode(&made.sealed_token)
        .map_err(anyhow::Error::from)
        .and_then(|sealed| state.ports.credentials.open_sealed(&token_context(job), &sealed))
        .and_then(|token| Ok(std::str::from_utf8(&token)?.to_owned()));
    let token = opened.map_err(|cause| Problem::internal("opening a token", &cause))?;
    // Sealed as it is, it has done its service.
    let mut tx = state.store.begin().await?;
    store::jobs::clear_result(&mut tx, job).await?;
    tx.commit().await?;
    Ok((made.kubeconfig_id, made.ca_pem, Proof::Token(token)))
}

/// Enqueues a job for the cluster's worker and waits for its result.
async fn ask<T: DeserializeOwned>(
    state: &ApiState,
    cluster: &Cluster,
    kind: &'static str,
    request: &impl Serialize,
) -> Result<(JobId, T), Problem> {
    let payload = serde_json::to_value(request).map_err(|cause| Problem::internal("writing a job", &cause.into()))?;
    let job = NewJob {
        kind,
        project_id: Some(cluster.project_id),
        cluster_id: Some(cluster.id),
        host: cluster.host.clone(),
        payload,
        max_attempts: ATTEMPTS,
        coalesce: false,
    };
    let mut tx = state.store.begin().await?;
    let id = store::jobs::enqueue(&mut tx, &state.ambient, job).await?;
    tx.commit().await?;
    Ok((id, wait::for_result(state, id).await?))
}
