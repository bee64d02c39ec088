//! When a node's tunnel came up or went down, and when that is worth telling.
//!
//! A machine that sleeps, a network that changes, a platform that is restarted: all cut a tunnel for moments, and nobody wants to read of
//! that. What is written is what is; what is told is a tunnel that stayed down for [`PATIENCE`], and its return.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::Scope;
use crate::domain::event::Severity;
use crate::domain::{Node, NodeId, Timestamp};

/// A tunnel that is back within this is not told of.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Follows the tunnels of a cluster's nodes. Dropping it ends what waits.
pub struct Presence {
    scope: Scope,
    patience: Duration,
    /// Those whose tunnel is up, and those that are waited for.
    here: Mutex<HashMap<NodeId, Option<AbortOnDropHandle<()>>>>,
}

impl Presence {
    /// Begins to follow; nodes that the store calls connected have `patience` to come back.
    pub fn new(scope: Scope, patience: Duration) -> Arc<Self> {
        Arc::new(Self { scope, patience, here: Mutex::default() })
    }

    /// Gives those nodes their time whose tunnels were up when the platform ended.
    pub async fn resume(self: &Arc<Self>) {
        let members = self.scope.members().await.unwrap_or_default();
        for node in members.into_iter().filter(|node| node.status.connected) {
            self.here().entry(node.id).or_insert_with(|| Some(self.wait_for(node.id)));
        }
    }

    /// A node's tunnel is up; `say` adds what it said.
    pub async fn connected(&self, id: NodeId, say: impl Fn(&mut Node) + Send + Sync) {
        self.here().insert(id, None);
        let now = self.scope.ambient.now();
        let changed = self.scope.change(id, |node| {
            if !node.status.connected {
                node.status.connected = true;
                node.status.connection_changed_at = Some(now);
            }
            say(node);
        });
        match changed.await {
            Ok(Some((before, after))) if was_missed(&before, now, self.patience) => {
                let message = format!("node {} is connected ({})", after.name, after.machine.operating_system);
                self.scope.tell(Severity::Normal, "NodeConnected", message).await;
            }
            Ok(_) => {}
            Err(error) => self.unwritten(id, &error),
        }
    }

    /// A node's tunnel is down.
    pub async fn disconnected(self: &Arc<Self>, id: NodeId) {
        let waiting = self.wait_for(id);
        self.here().insert(id, Some(waiting));
        self.write_down(id).await;
    }

    /// Whether a node's tunnel is up.
    pub fn is_up(&self, id: NodeId) -> bool {
        matches!(self.here().get(&id), Some(None))
    }

    async fn write_down(&self, id: NodeId) -> Option<Node> {
        let now = self.scope.ambient.now();
        let changed = self.scope.change(id, |node| {
            if node.status.connected && !self.is_up(id) {
                node.status.connected = false;
                node.status.connection_changed_at = Some(now);
            }
        });
        match changed.await {
            Ok(changed) => changed.map(|(_, after)| after),
            Err(error) => {
                self.unwritten(id, &error);
                None
            }
        }
    }

    /// Tells of a node whose tunnel is still down after a while.
    fn wait_for(self: &Arc<Self>, id: NodeId) -> AbortOnDropHandle<()> {
        let (presence, patience) = (Arc::downgrade(self), self.patience);
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let Some(presence) = presence.upgrade() else { return };
            let Some(node) = presence.write_down(id).await.filter(|node| !node.status.connected && node.removed_at.is_none()) else {
                return;
            };
            let message = format!(
                "node {} is not connected: is the machine up, and does it reach the platform's port? `kubebyon status` there says what it sees",
                node.name
            );
            presence.scope.tell(Severity::Warning, "NodeDisconnected", message).await;
        }))
    }

    fn here(&self) -> std::sync::MutexGuard<'_, HashMap<NodeId, Option<AbortOnDropHandle<()>>>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unwritten(&self, id: NodeId, error: &crate::store::Error) {
        tracing::warn!(cluster = %self.scope.cluster, node = %id, %error, "the state of a node's tunnel could not be written");
    }
}

/// Whether a node that is back was away for so long that its absence was told, or was never here.
fn was_missed(before: &Node, now: Timestamp, patience: Duration) -> bool {
    match before.status.connection_changed_at {
        None => true,
        Some(changed) => !before.status.connected && now.since(changed) >= patience,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kubernetes::nodes::desk::tests::{Stand, stand};
    use crate::store;

    /// The reasons of a cluster's events, oldest first.
    async fn told(stand: &Stand) -> Vec<String> {
        let mut sql = stand.scope.store.read().await.unwrap();
        let filter = store::events::Filter { projects: None, cluster: Some(stand.scope.cluster) };
        store::events::after(&mut *sql, &filter, 0, 100).await.unwrap().into_iter().map(|e| e.reason).collect()
    }

    async fn connected(stand: &Stand) -> bool {
        stand.scope.node(stand.node.id).await.unwrap().unwrap().status.connected
    }

    async fn until_told(stand: &Stand, reasons: &[&str]) {
        let mut changes = stand.scope.store.changes();
        while told(stand).await != reasons {
            tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.expect("nothing more is told").unwrap();
        }
    }

    #[tokio::test]
    async fn a_short_absence_is_written_and_not_told() {
        let stand = stand().await;
        let presence = Presence::new(stand.scope.clone(), Duration::from_secs(60));
        presence.connected(stand.node.id, |_| {}).await;
        assert!(connected(&stand).await && presence.is_up(stand.node.id));
        assert_eq!(told(&stand).await, ["NodeConnected"]);
        presence.disconnected(stand.node.id).await;
        assert!(!connected(&stand).await && !presence.is_up(stand.node.id));
        stand.clock.advance(Duration::from_secs(59));
        presence.connected(stand.node.id, |_| {}).await;
        assert!(connected(&stand).await);
        assert_eq!(told(&stand).await, ["NodeConnected"]);
    }

    #[tokio::test]
    async fn a_long_one_is_told_and_so_is_the_return() {
        let stand = stand().await;
        let presence = Presence::new(stand.scope.clone(), Duration::from_millis(50));
        presence.connected(stand.node.id, |_| {}).await;
        presence.disconnected(stand.node.id).await;
        until_told(&stand, &["NodeConnected", "NodeDisconnected"]).await;
        stand.clock.advance(Duration::from_secs(90));
        presence.connected(stand.node.id, |_| {}).await;
        assert_eq!(told(&stand).await, ["NodeConnected", "NodeDisconnected", "NodeConnected"]);
    }

    #[tokio::test]
    async fn a_node_that_does_not_come_back_after_a_restart_of_the_platform_is_missed() {
        let stand = stand().await;
        Presence::new(stand.scope.clone(), Duration::from_secs(60)).connected(stand.node.id, |_| {}).await;
        let next = Presence::new(stand.scope.clone(), Duration::from_millis(50));
        next.resume().await;
        assert!(connected(&stand).await, "it has its time");
        until_told(&stand, &["NodeConnected", "NodeDisconnected"]).await;
        assert!(!connected(&stand).await);
    }
}
