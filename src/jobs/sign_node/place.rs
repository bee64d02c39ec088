//! The name that a machine wants: free, or to be had from a node that is not well (`--replace`).

use std::time::Duration;

use super::{SignNode, Stop, Wish, leaving};
use crate::domain::event::Severity;
use crate::domain::node::{Fate, NodeStatus};
use crate::domain::work::Refusal;
use crate::domain::{Node, NodeId};
use crate::jobs::support::{EventProgress, cluster_event, retry};
use crate::queue::Context;
use crate::store::{self, Tx};

/// Who has the name.
enum Holder {
    /// Nobody.
    Nobody,
    /// A node whose membership may end for this.
    Member(Box<Node>),
    /// An object in Kubernetes alone, which somebody made.
    Object,
}

impl SignNode {
    /// Sees to it that the name is free in Kubernetes and that who had it is refused there. The token is looked at first, so that
    /// nobody ends a membership, or learns of one, who could not join.
    pub(super) async fn make_place(&self, context: &Context, wish: &Wish<'_>) -> Result<(), Stop> {
        let Wish { cluster, request, .. } = *wish;
        let engine = self.0.engine(cluster)?;
        {
            let mut sql = context.store.read().await.map_err(retry)?;
            super::check_token(&mut *sql, wish, context.ambient.now(), false).await?;
        }
        let ready = engine.node_ready(cluster, &request.name).await?;
        let progress = EventProgress::new(context, cluster);
        let (node, is_member) = match take(context, wish, ready).await? {
            Holder::Nobody => return Ok(()),
            Holder::Member(node) => (*node, true),
            Holder::Object => (stand_in(context, wish), false),
        };
        if is_member {
            engine.apply_revocations(cluster).await?;
        }
        Ok(engine.remove_node(cluster, &node, Duration::ZERO, &progress).await?)
    }
}

/// Finds who has the name, and ends the membership that is to be replaced; its row stays until the place is taken.
async fn take(context: &Context, wish: &Wish<'_>, ready: Option<bool>) -> Result<Holder, Stop> {
    let Wish { cluster, request, .. } = *wish;
    let now = context.ambient.now();
    let mut tx = context.store.begin().await.map_err(retry)?;
    let Some(node) = store::nodes::find_by_name(tx.sql(), cluster.id, &request.name).await.map_err(retry)? else {
        return match ready {
            None => Ok(Holder::Nobody),
            Some(false) if request.replace => Ok(Holder::Object),
            Some(ready) => Err(taken(wish, ready, "is in Kubernetes though it never joined")),
        };
    };
    if let Some(end) = store::nodes::tombstone(tx.sql(), node.id).await.map_err(retry)? {
        // Cut on the way before: it goes on.
        return if end.fate == Fate::Replaced && request.replace {
            Ok(Holder::Member(Box::new(node)))
        } else {
            Err(leaving(cluster, &node))
        };
    }
    if node.removed_at.is_some() {
        return Err(leaving(cluster, &node));
    }
    let lives = ready == Some(true) || node.status.connected;
    if lives || !request.replace {
        let how = if ready == Some(true) {
            "is Ready"
        } else if lives {
            "is connected"
        } else {
            "exists and is not Ready"
        };
        return Err(taken(wish, lives, how));
    }
    store::nodes::mark_removed(&mut tx, node.id, now).await.map_err(retry)?;
    store::nodes::end(&mut tx, node.id, Fate::Replaced, now).await.map_err(retry)?;
    let message = format!("node {} is replaced by another machine; the certificates of the one before are refused", node.name);
    store::events::append(&mut tx, now, cluster_event(cluster, Severity::Normal, "NodeReplaced", message)).await.map_err(retry)?;
    tx.commit().await.map_err(retry)?;
    Ok(Holder::Member(Box::new(node)))
}

fn taken(wish: &Wish<'_>, lives: bool, how: &str) -> Stop {
    let Wish { cluster, request, .. } = *wish;
    let (name, cluster) = (&request.name, &cluster.name);
    let replace = if lives { "" } else { ", or take its place with --replace" };
    let why = format!(
        "a node named {name} {how} in cluster {cluster}: choose another name with --name, remove that node with \
         `kubebyon node remove {cluster} {name}`{replace}"
    );
    Stop::refused(Refusal::NameTaken, why)
}

/// Takes away the row of the node that was replaced. Whoever took the name meanwhile keeps it.
pub(super) async fn clear(tx: &mut Tx, context: &Context, wish: &Wish<'_>) -> Result<(), Stop> {
    let Wish { cluster, request, .. } = *wish;
    let now = context.ambient.now();
    let Some(before) = store::nodes::find_by_name(tx.sql(), cluster.id, &request.name).await.map_err(retry)? else { return Ok(()) };
    let end = store::nodes::tombstone(tx.sql(), before.id).await.map_err(retry)?;
    if end.is_none_or(|end| end.fate != Fate::Replaced) {
        return Err(taken(wish, true, "joined just now"));
    }
    store::nodes::remove(tx, before.id, Fate::Replaced, now).await.map_err(retry)?;
    // It finds nothing to do, and its end tells front doors to cut what the machine before may still hold open.
    store::nodes::announce_removal(tx, &context.ambient, cluster, before.id, Fate::Replaced).await.map_err(retry)?;
    Ok(())
}

/// A node as the engine wants one, for an object that no row stands for.
fn stand_in(context: &Context, wish: &Wish<'_>) -> Node {
    Node {
        id: NodeId::generate(&context.ambient),
        cluster_id: wish.cluster.id,
        name: wish.request.name.clone(),
        address: wish.request.address,
        address_assigned: false,
        machine: wish.request.machine.clone(),
        labels: wish.request.labels.clone(),
        taints: Vec::new(),
        status: NodeStatus::default(),
        join_token_id: None,
        joined_at: context.ambient.now(),
        removed_at: None,
        public_key: Vec::new(),
    }
}
