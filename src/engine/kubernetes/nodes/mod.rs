//! A cluster's nodes as the platform looks after them: who may connect, what they ask, their requests for certificates, whether they work.
//!
//! | file | what is in it |
//! | --- | --- |
//! | [`table`] | what a terminator is to know of the nodes, and its feed |
//! | [`desk`] | what nodes report and ask |
//! | [`presence`] | when a tunnel that went down is worth a warning |
//! | [`watch`] | a list that is followed |
//! | [`registered`] | Node objects: readiness, pod ranges, labels and taints asked for at join |
//! | [`requests`], [`signing`] | which requests of kubelets are good (pure), and what is done with them |
//! | [`tokens`] | kube-proxy's token, bound to its node |
//! | [`removal`] | drain and deletion |
//! | [`verify`] | a pod that proves that pods work on a node |
//!
//! Guarantees: nothing here depends on where the control plane runs: an engine gives a
//! [`ControlPlane`] and passes the table on.
//! Nothing that a tenant writes into its cluster moves a node's address or certificate to another; ranges of pods are taken from Node
//! objects within the cluster's own range and only where they overlap no other's.
//! May import: `domain`, `store`, `queue`, `pki`, `tunnel`, and `engine`'s own types.

pub mod desk;
pub mod presence;
pub mod registered;
pub mod removal;
pub mod requests;
pub mod signing;
pub mod table;
pub mod tokens;
pub mod verify;
pub mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use kube::Client;

use super::EngineError;
use crate::domain::cluster::ClusterSpec;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::node::NodeStatus;
use crate::domain::{Ambient, Cluster, ClusterId, Node, NodeId, ProjectId};
use crate::pki::cluster::ClusterPki;
use crate::store::{self, Store};

/// How an engine lets a cluster's nodes be looked after.
#[async_trait]
pub trait ControlPlane: Send + Sync + 'static {
    /// A client for requests that are answered at once.
    async fn client(&self) -> Result<Client, EngineError>;
    /// A client for watches, logs and `exec`, which may be silent for minutes.
    async fn patient_client(&self) -> Result<Client, EngineError>;
    /// The cluster's authorities.
    async fn pki(&self) -> anyhow::Result<ClusterPki>;
    /// Returns once the API server answers that it is well.
    async fn well(&self);
}

/// A cluster whose nodes are looked after, and what is needed for that.
#[derive(Clone)]
pub struct Scope {
    /// Where nodes are kept.
    pub store: Store,
    /// Clock and random source.
    pub ambient: Ambient,
    /// The cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// What was asked for; read only for what is fixed at creation.
    pub spec: ClusterSpec,
    /// The image of the pod that verifies a node, as nodes import it.
    pub verify_image: String,
    /// The way to its API server.
    pub control_plane: Arc<dyn ControlPlane>,
}

impl Scope {
    /// For a cluster.
    pub fn of(cluster: &Cluster, store: Store, ambient: Ambient, verify_image: String, control_plane: Arc<dyn ControlPlane>) -> Self {
        let (id, name, project, spec) = (cluster.id, cluster.name.clone(), cluster.project_id, cluster.spec.clone());
        Self { store, ambient, cluster: id, name, project, spec, verify_image, control_plane }
    }

    /// An event of the cluster.
    fn event(&self, severity: Severity, reason: &str, message: impl Into<String>) -> NewEvent {
        NewEvent {
            project_id: Some(self.project),
            cluster: Some((self.cluster, self.name.clone())),
            severity,
            reason: reason.to_owned(),
            message: message.into(),
            actor: None,
        }
    }

    /// Appends an event of the cluster; that it cannot be is told in the log.
    async fn tell(&self, severity: Severity, reason: &str, message: impl Into<String>) {
        let event = self.event(severity, reason, message);
        let append = async {
            let mut tx = self.store.begin().await?;
            store::events::append(&mut tx, self.ambient.now(), event).await?;
            tx.commit().await
        };
        if let Err(error) = append.await {
            tracing::warn!(cluster = %self.cluster, %error, "an event could not be recorded");
        }
    }

    /// The members by name, those that are being drained included; those whose membership ended are not.
    async fn members(&self) -> store::Result<Vec<Node>> {
        let mut sql = self.store.read().await?;
        let ended = store::nodes::tombstones(&mut *sql, self.cluster).await?;
        let mut nodes = store::nodes::list(&mut *sql, self.cluster).await?;
        nodes.retain(|node| !ended.iter().any(|end| end.node_id == node.id));
        Ok(nodes)
    }

    /// A node of this cluster; `None` when it is gone.
    async fn node(&self, id: NodeId) -> store::Result<Option<Node>> {
        let found = store::nodes::find(&mut *self.store.read().await?, id).await?;
        Ok(found.filter(|node| node.cluster_id == self.cluster))
    }

    /// Changes what is known of a node. Where the change makes no difference nothing is written. Gives the node before and after, or
    /// `None` when it is gone.
    async fn change(&self, id: NodeId, change: impl Fn(&mut Node) + Send) -> store::Result<Option<(Node, Node)>> {
        let applied = |before: &Node| {
            let mut after = before.clone();
            change(&mut after);
            after
        };
        let Some(before) = self.node(id).await? else { return Ok(None) };
        let after = applied(&before);
        if before == after {
            return Ok(Some((before, after)));
        }
        // Read again where nobody else writes.
        let mut tx = self.store.begin().await?;
        let Some(before) = store::nodes::find(tx.sql(), id).await?.filter(|node| node.cluster_id == self.cluster) else { return Ok(None) };
        let after = applied(&before);
        store::nodes::set_status(&mut tx, id, &after.status).await?;
        store::nodes::set_machine(&mut tx, id, &after.machine).await?;
        tx.commit().await?;
        Ok(Some((before, after)))
    }
}

/// Sets a node's condition; its transition time moves only when its status changes.
fn set_condition(status: &mut NodeStatus, now: crate::domain::Timestamp, kind: &str, holds: bool, reason: &str, message: &str) {
    if let Some(known) = status.conditions.iter_mut().find(|c| c.kind == kind) {
        if known.status != holds {
            known.last_transition_at = now;
        }
        known.status = holds;
        reason.clone_into(&mut known.reason);
        message.clone_into(&mut known.message);
    } else {
        status.conditions.push(crate::domain::Condition {
            kind: kind.to_owned(),
            status: holds,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_at: now,
        });
    }
}
