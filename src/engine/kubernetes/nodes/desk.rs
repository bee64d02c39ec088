//! The desk that a terminator tells of nodes, and that answers what they ask.
//!
//! What a node reports is its own word: it is bounded here, and nothing follows from it but what is shown and where its peers look for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::presence::{PATIENCE, Presence};
use super::{Scope, set_condition, tokens, verify};
use crate::domain::node::{Fate, Machine};
use crate::domain::{Node, NodeId};
use crate::queue::{Outcome, wait};
use crate::store;
use crate::tunnel::protocol::{Answer, Ask, Aspect, Hello, Report};
use crate::tunnel::terminator::nodes::{NodeDesk, Steps};

/// The conditions that a node may report.
const REPORTED: [&str; 4] = ["KubeletHealthy", "ContainerRuntimeHealthy", "KubeProxyHealthy", "PodNetwork"];
/// The longest text that is kept of a node's own words, in characters.
const MAX_TEXT: usize = 500;
/// The most addresses that are kept of a node.
const MAX_UNDERLAY: usize = 8;
/// The longest time that a node may ask its pods to be given.
const MAX_DRAIN: Duration = Duration::from_secs(3600);
/// How long a removal may take beyond its drain.
const REMOVED_WITHIN: Duration = Duration::from_secs(120);

/// The desk of one cluster.
pub struct Desk {
    scope: Scope,
    presence: Arc<Presence>,
    /// One verification of a node at a time.
    verifying: verify::Turns,
}

impl Desk {
    /// Opens it.
    pub fn open(scope: Scope) -> Arc<Self> {
        let presence = Presence::new(scope.clone(), PATIENCE);
        Arc::new(Self { scope, presence, verifying: verify::Turns::default() })
    }

    /// Gives nodes that were connected when the platform ended the time to come back.
    pub async fn resume(&self) {
        self.presence.resume().await;
    }

    async fn member(&self, id: NodeId) -> Result<Node, String> {
        match self.scope.node(id).await {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Err("this machine is no node of the cluster any more".to_owned()),
            Err(error) => {
                tracing::warn!(cluster = %self.scope.cluster, node = %id, %error, "a node cannot be read");
                Err("the platform cannot read its database now; ask again".to_owned())
            }
        }
    }

    async fn leave(&self, node: &Node, drain: Duration, steps: Steps) -> Result<Answer, String> {
        let after = {
            let mut sql = self.scope.store.read().await.map_err(|e| unwell(&e))?;
            store::events::newest(&mut *sql).await.map_err(|e| unwell(&e))?
        };
        let asked = async {
            let mut tx = self.scope.store.begin().await?;
            let job = store::nodes::ask_removal(&mut tx, &self.scope.ambient, node, Fate::Left, drain).await?;
            tx.commit().await?;
            Ok::<_, store::Error>(job)
        };
        let job = match asked.await {
            Ok(job) => job,
            Err(store::Error::Gone(_)) => return Ok(Answer::Done),
            Err(error) => return Err(unwell(&error)),
        };
        let ended = wait(&self.scope.store, job, drain + REMOVED_WITHIN);
        let ended = tokio::select! {
            ended = ended => ended.map_err(|e| unwell(&e))?,
            () = self.relay(after, &node.name, &steps) => Outcome::TimedOut,
        };
        match ended {
            Outcome::Succeeded(_) => Ok(Answer::Done),
            Outcome::Dead(why) => Err(format!("the platform could not take this node out: {why}")),
            Outcome::TimedOut => Err("the platform has not taken this node out yet; it goes on trying".to_owned()),
        }
    }

    /// Shows a cluster's events about a node as steps, for ever.
    async fn relay(&self, mut after: i64, name: &str, steps: &Steps) {
        use tokio::sync::broadcast::error::RecvError;
        let mut changes = self.scope.store.changes();
        let filter = store::events::Filter { projects: None, cluster: Some(self.scope.cluster) };
        let about = format!("node {name} ");
        loop {
            if let Ok(mut sql) = self.scope.store.read().await
                && let Ok(events) = store::events::after(&mut *sql, &filter, after, 100).await
            {
                for event in events {
                    after = event.id;
                    if format!("{} ", event.message).contains(&about) {
                        steps(&event.reason, &event.message);
                    }
                }
            }
            loop {
                match changes.recv().await {
                    Ok(store::Change::Event) | Err(RecvError::Lagged(_)) => break,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }
}

#[async_trait]
impl NodeDesk for Desk {
    async fn connected(&self, node: NodeId, hello: Hello) {
        self.presence.connected(node, |node| say(node, &hello.machine, &hello.underlay)).await;
    }

    async fn disconnected(&self, node: NodeId) {
        self.presence.disconnected(node).await;
    }

    async fn reported(&self, node: NodeId, report: Report) {
        let now = self.scope.ambient.now();
        let changed = self.scope.change(node, |node| {
            say(node, &report.machine, &report.underlay);
            for Aspect { kind, status, reason, message } in report.aspects.iter().filter(|a| REPORTED.contains(&a.kind.as_str())) {
                set_condition(&mut node.status, now, kind, *status, &cut(reason, 40), &cut(message, MAX_TEXT));
            }
        });
        if let Err(error) = changed.await {
            tracing::warn!(cluster = %self.scope.cluster, %node, %error, "what a node reports could not be written");
        }
    }

    async fn ask(&self, node: NodeId, ask: Ask, steps: Steps) -> Result<Answer, String> {
        let node = self.member(node).await?;
        match ask {
            Ask::KubeProxyToken => tokens::kube_proxy(&self.scope, &node).await.map_err(|e| format!("{e:#}")),
            Ask::Verify => {
                let steps = self.verifying.verify(&self.scope, &node, &steps).await?;
                Ok(Answer::Verified { steps })
            }
            Ask::Leave { drain_seconds } => self.leave(&node, Duration::from_secs(drain_seconds).min(MAX_DRAIN), steps).await,
        }
    }
}

fn unwell(error: &store::Error) -> String {
    tracing::warn!(%error, "a node's question could not be answered");
    "the platform cannot use its database now; ask again".to_owned()
}

/// Takes over what a machine says of itself. The version of its kubelet is Kubernetes' word.
fn say(node: &mut Node, machine: &Machine, underlay: &[std::net::IpAddr]) {
    let kubelet_version = std::mem::take(&mut node.machine.kubelet_version);
    let short = |text: &str| cut(text, 120);
    node.machine = Machine {
        operating_system: short(&machine.operating_system),
        architecture: short(&machine.architecture),
        kernel: short(&machine.kernel),
        kubebyon_version: short(&machine.kubebyon_version),
        kubelet_version: if kubelet_version.is_empty() { short(&machine.kubelet_version) } else { kubelet_version },
        container_runtime: short(&machine.container_runtime),
    };
    node.status.underlay = underlay.iter().copied().take(MAX_UNDERLAY).collect();
}

/// A text without control characters, of at most so many characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

#[cfg(test)]
pub(super) mod tests;
