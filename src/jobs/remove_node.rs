//! Takes a node out of its cluster.
//!
//! While its pods are evicted the kubelet must work, so its certificates are good until that is over, and it is over in the time that
//! was asked for. Then the membership ends, whatever else goes wrong: its certificates are revoked and the tunnel is refused. Only then
//! is the object deleted (once more), since no kubelet can make it again. What remains is tried until it went well.

use std::time::Duration;

use async_trait::async_trait;

use super::Tools;
use super::support::{EventProgress, cluster_event, cluster_of, payload, retry, tell};
use crate::domain::event::Severity;
use crate::domain::node::Fate;
use crate::domain::work::{REMOVE_NODE, RemoveNodeRequest};
use crate::domain::{Cluster, Node};
use crate::queue::{Context, Handler, JobError};
use crate::store::{self, jobs::Leased};

/// See the module.
pub struct RemoveNode(pub Tools);

#[async_trait]
impl Handler for RemoveNode {
    fn kind(&self) -> &'static str {
        REMOVE_NODE
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let request: RemoveNodeRequest = payload(leased)?;
        let Some(cluster) = cluster_of(context, leased).await? else { return Ok(serde_json::Value::Null) };
        let (node, has_ended) = {
            let mut sql = context.store.read().await.map_err(retry)?;
            let Some(node) = store::nodes::find(&mut *sql, request.node).await.map_err(retry)? else { return Ok(serde_json::Value::Null) };
            (node, store::nodes::tombstone(&mut *sql, request.node).await.map_err(retry)?.is_some())
        };
        if cluster.deleted_at.is_none() {
            if !has_ended {
                self.drain(context, &cluster, &node, Duration::from_secs(request.drain_seconds)).await?;
                end(context, &node, request.fate).await?;
            }
            let engine = self.0.engine(&cluster)?;
            engine.apply_revocations(&cluster).await?;
            engine.remove_node(&cluster, &node, Duration::ZERO, &EventProgress::new(context, &cluster)).await?;
        }
        remove(context, &cluster, &node, request.fate).await?;
        Ok(serde_json::Value::Null)
    }
}

impl RemoveNode {
    /// Evicts the pods. That this fails does not keep the membership from ending.
    async fn drain(&self, context: &Context, cluster: &Cluster, node: &Node, within: Duration) -> Result<(), JobError> {
        if within.is_zero() {
            return Ok(());
        }
        let progress = EventProgress::new(context, cluster);
        if let Err(error) = self.0.engine(cluster)?.remove_node(cluster, node, within, &progress).await {
            let message = format!("node {} was not drained and is taken out all the same: {error}", node.name);
            let event = cluster_event(cluster, Severity::Warning, "DrainFailed", message);
            tell(&context.store, &context.ambient, event).await.map_err(retry)?;
        }
        Ok(())
    }
}

async fn end(context: &Context, node: &Node, fate: Fate) -> Result<(), JobError> {
    let mut tx = context.store.begin().await.map_err(retry)?;
    store::nodes::end(&mut tx, node.id, fate, context.ambient.now()).await.map_err(retry)?;
    tx.commit().await.map_err(retry)
}

async fn remove(context: &Context, cluster: &Cluster, node: &Node, fate: Fate) -> Result<(), JobError> {
    let now = context.ambient.now();
    let mut tx = context.store.begin().await.map_err(retry)?;
    if store::nodes::find(tx.sql(), node.id).await.map_err(retry)?.is_none() {
        return Ok(());
    }
    store::nodes::remove(&mut tx, node.id, fate, now).await.map_err(retry)?;
    let how = match store::nodes::tombstone(tx.sql(), node.id).await.map_err(retry)?.map(|end| end.fate) {
        Some(Fate::Left) => "has left the cluster",
        Some(Fate::Replaced) => "gave its place to another machine",
        _ => "was removed from the cluster",
    };
    let message = format!("node {} {how}; its certificates are refused", node.name);
    store::events::append(&mut tx, now, cluster_event(cluster, Severity::Normal, "NodeRemoved", message)).await.map_err(retry)?;
    tx.commit().await.map_err(retry)
}
