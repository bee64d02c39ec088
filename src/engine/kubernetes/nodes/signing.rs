//! Kubelets' requests for certificates, decided: approved, denied, and where the platform is the signer signed.
//!
//! Guarantees: a client certificate is in both ledgers before it is in Kubernetes, in one transaction that fails when the node's membership
//! has ended; a request that somebody else approved is judged all the same; one that cannot be read now is looked at again with the next
//! list. Cut anywhere, the next look goes on (a certificate that was recorded and not written is good for nobody: only the kubelet has its
//! key, and it never saw it).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{EngineError, FIELD_MANAGER, failed, is_not_found};
use super::requests::{Asker, Verdict, concerns, has_condition, judge};
use super::watch::Seen;
use super::{Scope, watch};
use crate::domain::event::Severity;
use crate::domain::node::{KUBELET_CLIENT_TTL, KUBELET_GROUP, KUBELET_PURPOSE, kubelet_user};
use crate::domain::{Node, Timestamp};
use crate::pki::csr::public_key_der;
use crate::pki::{Authority, Issued, LeafProfile};
use crate::store;
use crate::store::certificates::CertificateRecord;
use crate::store::nodes::NodeCertificate;

/// The shortest that may be asked for, as Kubernetes has it.
const SHORTEST: Duration = Duration::from_secs(600);
/// How often a request is tried that could not be decided, and the pause between.
const TRIES: (u32, Duration) = (5, Duration::from_secs(1));

/// Denials are told at most this often; those between are counted: whoever can make requests must not fill the platform's events.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// The longest name of a node that is told, in characters.
const MAX_NAME: usize = 80;

/// When a denial was told last, and how many since then were not.
#[derive(Default)]
pub struct Denials(Mutex<(Option<Instant>, u64)>);

impl Denials {
    /// Whether this one is to be told, and then how many before it were not.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_some_and(|last| now.duration_since(last) < TELL_EVERY) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }

    async fn tell(&self, scope: &Scope, name: &str, why: &str) {
        let Some(unsaid) = self.due(Instant::now()) else { return };
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        let more = if unsaid == 0 { String::new() } else { format!(" ({unsaid} more since the last)") };
        scope
            .tell(Severity::Warning, "CertificateDenied", format!("a request for a certificate of node {name} was denied: {why}{more}"))
            .await;
    }
}

/// Decides requests as they come, for ever.
pub async fn follow(scope: &Scope) {
    let denials = &Denials::default();
    watch::follow::<CertificateSigningRequest, _>(scope, |seen| async move {
        let Seen::There(request) = seen else { return };
        if concerns(&request).is_none() {
            return;
        }
        let name = request.name_any();
        for nth in 1..=TRIES.0 {
            let Err(error) = decide(scope, &name, denials).await else { return };
            tracing::warn!(
                cluster = %scope.cluster, request = name, error = format!("{error:#}"),
                "a kubelet's request for a certificate could not be decided"
            );
            if matches!(error, EngineError::Fatal(_)) {
                return;
            }
            tokio::time::sleep(TRIES.1 * nth).await;
        }
    })
    .await;
}

/// Does the next thing with a request, as it is at this moment: approves or denies it, or signs what is approved. (That it was approved is a
/// change, with which it comes again.)
pub async fn decide(scope: &Scope, request: &str, denials: &Denials) -> Result<(), EngineError> {
    let api = Api::<CertificateSigningRequest>::all(scope.control_plane.client().await?);
    let found = api.get_opt(request).await.map_err(|e| failed(format!("CertificateSigningRequest {request}"), e))?;
    let Some(request) = &found else { return Ok(()) };
    let Some(name) = concerns(request) else { return Ok(()) };
    let known = asker(scope, name).await.map_err(anyhow::Error::from)?;
    let verdict = judge(request, known.as_ref().map(|(_, asker)| asker));
    let approved = has_condition(request, "Approved");
    match (verdict, known) {
        (Verdict::Approve, _) => conclude(scope, request, "Approved", "KubeletVerified", "a node of this cluster asks for itself").await,
        (Verdict::Sign, Some(_)) if !approved => {
            conclude(scope, request, "Approved", "KubeletVerified", "a node of this cluster renews its certificate").await
        }
        (Verdict::Sign, Some((node, _))) => sign(scope, request, &node).await,
        (Verdict::Deny(why), _) => {
            // Approved and denied exclude each other; whoever approved it does not make it right.
            let kind = if approved { "Failed" } else { "Denied" };
            conclude(scope, request, kind, "KubeletNotVerified", &why).await?;
            denials.tell(scope, name, &why).await;
            Ok(())
        }
        (Verdict::Leave | Verdict::Sign, _) => Ok(()),
    }
}

/// The member of that name, and what is asked about it.
async fn asker(scope: &Scope, name: &str) -> store::Result<Option<(Node, Asker)>> {
    let mut sql = scope.store.read().await?;
    let Some(node) = store::nodes::find_by_name(&mut *sql, scope.cluster, name).await? else { return Ok(None) };
    if store::nodes::tombstone(&mut *sql, node.id).await?.is_some() {
        return Ok(None);
    }
    let good = store::nodes::certificates(&mut *sql, scope.cluster, scope.ambient.now()).await?;
    let fingerprints = good.into_iter().filter(|c| c.node_id == node.id).map(|c| c.fingerprint).collect();
    let asker = Asker { name: node.name.clone(), address: node.address, fingerprints };
    Ok(Some((node, asker)))
}

/// Adds a condition. A request that is gone or was changed meanwhile comes again by the watch.
async fn conclude(scope: &Scope, request: &CertificateSigningRequest, kind: &str, reason: &str, message: &str) -> Result<(), EngineError> {
    let mut conditions: Vec<Value> = Vec::new();
    for known in request.status.iter().flat_map(|s| s.conditions.iter().flatten()) {
        conditions.push(serde_json::to_value(known).context("a condition cannot be written")?);
    }
    let message: String = message.chars().take(1000).collect();
    conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message}));
    let patch = json!({"metadata": {"resourceVersion": request.resource_version()}, "status": {"conditions": conditions}});
    let subresource = if kind == "Failed" { "status" } else { "approval" };
    write(scope, request, subresource, &patch).await
}

/// Signs for a node, records, and writes the certificate.
async fn sign(scope: &Scope, request: &CertificateSigningRequest, node: &Node) -> Result<(), EngineError> {
    let pki = scope.control_plane.pki().await?;
    let csr_pem = std::str::from_utf8(&request.spec.request.0).context("the request is no PEM")?;
    let asked = request.spec.expiration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(KUBELET_CLIENT_TTL, Duration::from_secs);
    let profile = LeafProfile {
        common_name: kubelet_user(&node.name),
        organizations: vec![KUBELET_GROUP.to_owned()],
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl: asked.clamp(SHORTEST, KUBELET_CLIENT_TTL),
    };
    let issued = pki.authority(Authority::Client).sign_csr(&scope.ambient, csr_pem, &profile)?;
    match record(scope, node, &issued, &public_key_der(csr_pem)?).await {
        Ok(()) => {}
        // Its membership ended just now.
        Err(store::Error::Gone(_)) => return Ok(()),
        Err(error) => return Err(anyhow::Error::from(error).into()),
    }
    let certificate = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &issued.cert_pem);
    let patch = json!({"metadata": {"resourceVersion": request.resource_version()}, "status": {"certificate": certificate}});
    write(scope, request, "status", &patch).await?;
    let message = format!("node {} has a new client certificate until {}", node.name, issued.not_after);
    scope.tell(Severity::Normal, "NodeCertificateRenewed", message).await;
    Ok(())
}

async fn record(scope: &Scope, node: &Node, issued: &Issued, public_key: &[u8]) -> store::Result<()> {
    let mut tx = scope.store.begin().await?;
    let ledger = CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: Some(scope.cluster),
        authority: issued.authority.as_str().to_owned(),
        purpose: KUBELET_PURPOSE.to_owned(),
        common_name: issued.common_name.clone(),
        not_before: issued.not_before,
        not_after: issued.not_after,
    };
    store::certificates::record(&mut tx, &[ledger]).await?;
    store::nodes::add_certificate(&mut tx, &node_certificate(node, &issued.fingerprint, issued.not_after)).await?;
    store::nodes::add_key(&mut tx, node.id, public_key, scope.ambient.now()).await?;
    tx.commit().await
}

fn node_certificate(node: &Node, fingerprint: &str, not_after: Timestamp) -> NodeCertificate {
    NodeCertificate { fingerprint: fingerprint.to_owned(), node_id: node.id, cluster_id: node.cluster_id, not_after, revoked_at: None }
}

async fn write(scope: &Scope, request: &CertificateSigningRequest, subresource: &str, patch: &Value) -> Result<(), EngineError> {
    let api = Api::<CertificateSigningRequest>::all(scope.control_plane.client().await?);
    let name = request.name_any();
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    let written = match subresource {
        "status" => api.patch_status(&name, &params, &patch).await,
        _ => api.patch_approval(&name, &params, &patch).await,
    };
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) || conflict(&error) => Ok(()),
        Err(error) => Err(failed(format!("the {subresource} of CertificateSigningRequest {name}"), error)),
    }
}

fn conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
pub(in crate::engine::kubernetes) mod tests {
    use crate::domain::cluster::{Addon, ClusterSpec, EngineKind, PublicAccessMode};
    use crate::domain::node::{Machine, NodeStatus};
    use crate::domain::{Ambient, ClusterId, Node, NodeId};

    #[test]
    fn many_denials_are_told_as_one() {
        let (denials, begin) = (super::Denials::default(), tokio::time::Instant::now());
        assert_eq!(denials.due(begin), Some(0));
        for _ in 0..5 {
            assert_eq!(denials.due(begin + super::TELL_EVERY / 2), None);
        }
        assert_eq!(denials.due(begin + super::TELL_EVERY), Some(5));
    }

    /// A spec with the usual ranges.
    pub fn spec() -> ClusterSpec {
        ClusterSpec {
            kubernetes_version: crate::domain::KubernetesVersion::new(1, 34, 4),
            engine: EngineKind::Local,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            api_local_address: "198.51.100.1".parse().unwrap(),
            public_access_mode: PublicAccessMode::Nodeport,
            control_plane_host: None,
        }
    }

    /// A member of a cluster.
    pub fn node(ambient: &Ambient, cluster: ClusterId, name: &str, address: &str) -> Node {
        Node {
            id: NodeId::generate(ambient),
            cluster_id: cluster,
            name: name.to_owned(),
            address: address.parse().unwrap(),
            address_assigned: false,
            machine: Machine::default(),
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            taints: Vec::new(),
            status: NodeStatus::default(),
            join_token_id: None,
            joined_at: ambient.now(),
            removed_at: None,
            public_key: name.as_bytes().to_vec(),
        }
    }
}
