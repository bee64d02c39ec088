//! Makes a machine a node: uses its token once, takes its name and an address, signs its kubelet's certificate.
//!
//! Everything that makes it a member is one transaction. A machine that asks again with its key, because an answer was lost or its join
//! was cut, is the same node still and uses nothing up. A node that is replaced is out of Kubernetes, and its certificates are refused,
//! before the other machine gets its own. What cannot be is an answer with a reason, and no failure.

mod place;

use anyhow::anyhow;
use async_trait::async_trait;

use super::Tools;
use super::support::{answer, cluster_event, cluster_of, payload, retry};
use crate::domain::event::Severity;
use crate::domain::node::{KUBELET_CLIENT_TTL, KUBELET_GROUP, KUBELET_PURPOSE, NodeStatus, asked, kubelet_user};
use crate::domain::work::{Answer, Refusal, SIGN_NODE, SignNodeRequest, SignNodeResult};
use crate::domain::{Cluster, Node, NodeId, Timestamp};
use crate::pki::cluster::ClusterPki;
use crate::pki::{Authority, Issued, LeafProfile, csr};
use crate::queue::{Context, Handler, JobError};
use crate::store::certificates::CertificateRecord;
use crate::store::nodes::NodeCertificate;
use crate::store::{self, Sql, Tx, jobs::Leased};

/// See the module.
pub struct SignNode(pub Tools);

/// Why there is no membership.
#[derive(Debug)]
enum Stop {
    /// It cannot be.
    Refused(Refusal, String),
    /// Something failed.
    Failed(JobError),
}

impl Stop {
    fn refused(kind: Refusal, why: impl Into<String>) -> Self {
        Self::Refused(kind, why.into())
    }
}

impl<E: Into<JobError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What a machine asks for, checked, with the certificate that it gets if it becomes a node.
struct Wish<'a> {
    cluster: &'a Cluster,
    request: &'a SignNodeRequest,
    public_key: &'a [u8],
    issued: &'a Issued,
}

#[async_trait]
impl Handler for SignNode {
    fn kind(&self) -> &'static str {
        SIGN_NODE
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let request: SignNodeRequest = payload(leased)?;
        let Some(cluster) = cluster_of(context, leased).await? else {
            return answer(Answer::<()>::refused(Refusal::ClusterDeleting, "the cluster is gone"));
        };
        match self.admit(context, &cluster, &request).await {
            Ok(result) => answer(Answer::Done(result)),
            Err(Stop::Refused(kind, why)) => answer(Answer::<()>::refused(kind, why)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

impl SignNode {
    async fn admit(&self, context: &Context, cluster: &Cluster, request: &SignNodeRequest) -> Result<SignNodeResult, Stop> {
        check(cluster, request)?;
        let public_key = csr::public_key_der(&request.csr_pem).map_err(|why| Stop::refused(Refusal::RequestInvalid, format!("{why:#}")))?;
        let pki = self.0.cluster_pki(&context.store, cluster).await?;
        let issued = sign(context, &pki, request)?;
        let wish = Wish { cluster, request, public_key: &public_key, issued: &issued };
        let node = if let Some(node) = again(context, &wish).await? {
            node
        } else {
            self.make_place(context, &wish).await?;
            join(context, &wish).await?
        };
        Ok(SignNodeResult {
            node,
            certificate_pem: issued.cert_pem,
            server_ca_pem: pki.authority(Authority::Server).cert_pem.clone(),
            client_ca_pem: pki.authority(Authority::Client).cert_pem.clone(),
        })
    }
}

/// What is wrong whatever else there is.
fn check(cluster: &Cluster, request: &SignNodeRequest) -> Result<(), Stop> {
    if cluster.deleted_at.is_some() {
        return Err(Stop::refused(
            Refusal::ClusterDeleting,
            format!("cluster {} is being deleted: nothing joins it any more", cluster.name),
        ));
    }
    if !cluster.spec.engine.takes_nodes() {
        let engine = cluster.spec.engine.as_str();
        return Err(Stop::refused(
            Refusal::TakesNoNodes,
            format!("machines cannot join cluster {} of engine {engine}: create one with --engine local or hosted", cluster.name),
        ));
    }
    asked::validate_name(&request.name).map_err(|why| Stop::refused(Refusal::NameInvalid, why.message))?;
    asked::validate_labels(&request.labels)
        .and_then(|()| asked::validate_taints(&request.taints))
        .map_err(|why| Stop::refused(Refusal::RequestInvalid, why.message))
}

fn sign(context: &Context, pki: &ClusterPki, request: &SignNodeRequest) -> anyhow::Result<Issued> {
    let profile = LeafProfile {
        common_name: kubelet_user(&request.name),
        organizations: vec![KUBELET_GROUP.to_owned()],
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl: KUBELET_CLIENT_TTL,
    };
    pki.authority(Authority::Client).sign_csr(&context.ambient, &request.csr_pem, &profile)
}

/// Records the new certificate of a machine that is a node already; `None` when it is none yet.
async fn again(context: &Context, wish: &Wish<'_>) -> Result<Option<NodeId>, Stop> {
    let Wish { cluster, request, public_key, .. } = *wish;
    let mut tx = context.store.begin().await.map_err(retry)?;
    let Some(node) = store::nodes::find_by_key(tx.sql(), cluster.id, public_key).await.map_err(retry)? else { return Ok(None) };
    if node.name != request.name {
        let why =
            format!("this machine is node {} of cluster {} already: run `kubebyon leave` there, then join again", node.name, cluster.name);
        return Err(Stop::refused(Refusal::OtherName, why));
    }
    if node.removed_at.is_some() {
        return Err(leaving(cluster, &node));
    }
    check_token(tx.sql(), wish, context.ambient.now(), node.join_token_id == Some(request.token)).await?;
    store::nodes::set_machine(&mut tx, node.id, &request.machine).await.map_err(retry)?;
    store::nodes::set_asked(&mut tx, node.id, &request.labels, &request.taints).await.map_err(retry)?;
    record(&mut tx, context, wish, node.id).await?;
    tx.commit().await.map_err(retry)?;
    Ok(Some(node.id))
}

/// Whether the token lets the machine in. That it joined with it is enough where only uses or the time have run out since.
async fn check_token(sql: &mut dyn Sql, wish: &Wish<'_>, now: Timestamp, joined_with_it: bool) -> Result<(), Stop> {
    let unknown = || Stop::refused(Refusal::TokenUnknown, "this join token is not known: make another with `kubebyon join-token create`");
    let found = store::join_tokens::find(sql, wish.request.token).await.map_err(retry)?;
    let (token, _) = found.ok_or_else(unknown)?;
    match token.check(wish.cluster.id, now) {
        Err((Refusal::TokenExpired | Refusal::TokenUsedUp, _)) if joined_with_it => Ok(()),
        Err((kind, why)) => Err(Stop::refused(kind, why)),
        Ok(()) => Ok(()),
    }
}

/// The transaction in which a machine becomes a node. Whom it replaces is out of Kubernetes by now.
async fn join(context: &Context, wish: &Wish<'_>) -> Result<NodeId, Stop> {
    let Wish { cluster, request, public_key, .. } = *wish;
    let now = context.ambient.now();
    let mut tx = context.store.begin().await.map_err(retry)?;
    let current = store::clusters::find(tx.sql(), cluster.id).await.map_err(retry)?;
    if current.is_none_or(|current| current.deleted_at.is_some()) {
        return Err(Stop::refused(Refusal::ClusterDeleting, format!("cluster {} is being deleted", cluster.name)));
    }
    place::clear(&mut tx, context, wish).await?;
    if !store::join_tokens::use_once(&mut tx, request.token, now).await.map_err(retry)? {
        let why = check_token(tx.sql(), wish, now, false).await;
        // Whom it was to replace is gone all the same: that was true before.
        tx.commit().await.map_err(retry)?;
        why?;
        return Err(JobError::Retry(anyhow!("a join token could not be used")).into());
    }
    let id = NodeId::generate(&context.ambient);
    let (address, address_assigned) = store::nodes::choose_address(tx.sql(), cluster, id, request.address).await.map_err(retry)?;
    let node = Node {
        id,
        cluster_id: cluster.id,
        name: request.name.clone(),
        address,
        address_assigned,
        machine: request.machine.clone(),
        labels: request.labels.clone(),
        taints: request.taints.clone(),
        status: NodeStatus::default(),
        join_token_id: Some(request.token),
        joined_at: now,
        removed_at: None,
        public_key: public_key.to_owned(),
    };
    store::nodes::insert(&mut tx, &node).await.map_err(retry)?;
    record(&mut tx, context, wish, id).await?;
    let assigned =
        if address_assigned { format!(" (assigned: {} is not its own in this cluster)", request.address) } else { String::new() };
    let message = format!("node {} joined with the address {address}{assigned}", node.name);
    let event = cluster_event(cluster, Severity::Normal, "NodeJoined", message);
    store::events::append(&mut tx, now, event).await.map_err(retry)?;
    tx.commit().await.map_err(retry)?;
    Ok(id)
}

/// Puts the certificate into the ledgers.
async fn record(tx: &mut Tx, context: &Context, wish: &Wish<'_>, node: NodeId) -> Result<(), Stop> {
    let Wish { cluster, public_key, issued, .. } = *wish;
    let ledger = CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: Some(cluster.id),
        authority: issued.authority.as_str().to_owned(),
        purpose: KUBELET_PURPOSE.to_owned(),
        common_name: issued.common_name.clone(),
        not_before: issued.not_before,
        not_after: issued.not_after,
    };
    store::certificates::record(tx, &[ledger]).await.map_err(retry)?;
    let certificate = NodeCertificate {
        fingerprint: issued.fingerprint.clone(),
        node_id: node,
        cluster_id: cluster.id,
        not_after: issued.not_after,
        revoked_at: None,
    };
    match store::nodes::add_certificate(tx, &certificate).await {
        Ok(()) => {}
        Err(store::Error::Gone(_)) => {
            return Err(Stop::refused(Refusal::NodeLeaving, "this machine's membership ended just now: join again"));
        }
        Err(error) => return Err(retry(error).into()),
    }
    store::nodes::add_key(tx, node, public_key, context.ambient.now()).await.map_err(retry)?;
    Ok(())
}

fn leaving(cluster: &Cluster, node: &Node) -> Stop {
    let why = format!("node {} of cluster {} is being removed: join again once it is gone", node.name, cluster.name);
    Stop::refused(Refusal::NodeLeaving, why)
}
