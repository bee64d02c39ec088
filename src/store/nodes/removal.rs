//! Asking for a node's removal: its row says so, and the job that takes it out is enqueued, in one transaction.

use std::time::Duration;

use anyhow::anyhow;

use super::super::jobs::{NewJob, enqueue};
use super::super::{Error, Result, Tx, clusters};
use crate::domain::node::Fate;
use crate::domain::work::{REMOVE_NODE, RemoveNodeRequest};
use crate::domain::{Ambient, Cluster, JobId, Node, NodeId};

/// How often a removal is tried before it waits for somebody to ask again.
const ATTEMPTS: i64 = 20;

/// Marks a node as being removed and enqueues the job that takes it out; `drain` is how long its pods may take to go (zero: they
/// are not evicted). Asked again it enqueues again, which does no harm and serves where an earlier job ended badly.
///
/// # Errors
/// [`Error::Gone`] when the node or its cluster is gone.
pub async fn ask_removal(tx: &mut Tx, ambient: &Ambient, node: &Node, fate: Fate, drain: Duration) -> Result<JobId> {
    let gone = || Error::Gone(format!("node {}", node.name));
    let cluster = clusters::find(tx.sql(), node.cluster_id).await?.ok_or_else(gone)?;
    if !super::mark_removed(tx, node.id, ambient.now()).await? {
        return Err(gone());
    }
    enqueue(tx, ambient, job(&cluster, node.id, fate, drain)?).await
}

/// Enqueues the removal of a node that is out already: the job finds nothing to do, and whoever waits for the ends of removals (front
/// doors, which then cut the cluster's open flows) hears of this one.
pub async fn announce_removal(tx: &mut Tx, ambient: &Ambient, cluster: &Cluster, node: NodeId, fate: Fate) -> Result<JobId> {
    enqueue(tx, ambient, job(cluster, node, fate, Duration::ZERO)?).await
}

fn job(cluster: &Cluster, node: NodeId, fate: Fate, drain: Duration) -> Result<NewJob> {
    let request = RemoveNodeRequest { node, fate, drain_seconds: drain.as_secs() };
    Ok(NewJob {
        kind: REMOVE_NODE,
        project_id: Some(cluster.project_id),
        cluster_id: Some(cluster.id),
        host: cluster.host.clone(),
        payload: serde_json::to_value(request).map_err(|error| Error::Database(anyhow!("a removal cannot be written: {error}")))?,
        max_attempts: ATTEMPTS,
        coalesce: false,
    })
}
