//! Whether pods work on a node: one is made there, and what people would do with it is done.
//!
//! Steps, each with a remedy where it fails: the kubelet is Ready, the pod is made, runs, its log is read (API server → tunnel → kubelet), it
//! reached the API server by its Service and resolved a name (as its log says), and a command is run in it. The first that fails is the
//! last. The pod goes in every case, and what an earlier verification left goes first. A node that only lacks a pod network which its
//! owner brings ends well as `WaitingForCni`, and is not verified.
//!
//! The pod runs this very program (`kubebyon pod-check`), from an image that nodes import when they join.

mod checks;
mod pod;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Scope, set_condition};
use crate::domain::event::Severity;
use crate::domain::{Node, NodeId};
use crate::tunnel::protocol::Aspect;
use crate::tunnel::terminator::nodes::Steps;

/// The namespace of the pods that verify nodes.
pub const NAMESPACE: &str = "kubebyon-system";
/// The reason of a node that waits for the pod network that its owner brings.
pub const WAITING_FOR_CNI: &str = "WaitingForCni";
/// The step that the pod's log tells of: it reached the API server by its Service.
pub const API_SERVER_REACHED: &str = "ApiServerReached";
/// The step that the pod's log tells of: it resolved a name.
pub const NAME_RESOLVED: &str = "NameResolved";
/// How long all of it may take.
const WITHIN: Duration = Duration::from_secs(420);

/// Sees to it that a node is verified once at a time.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<HashSet<NodeId>>>);

impl Turns {
    /// Verifies a node, writes what was found, and gives the steps; `shown` takes them as they come. It comes to its end, and takes its pod
    /// away, though the caller is dropped.
    ///
    /// # Errors
    /// It is being verified already: a sentence.
    pub async fn verify(&self, scope: &Scope, node: &Node, shown: &Steps) -> Result<Vec<Aspect>, String> {
        let turn = self.take(node.id).ok_or_else(|| "this node is being verified already; ask again when that has ended".to_owned())?;
        let (scope, node, shown) = (scope.clone(), node.clone(), Arc::clone(shown));
        let whole = tokio::spawn(async move {
            let _turn = turn;
            let mut found = Found { steps: Vec::new(), shown };
            if tokio::time::timeout(WITHIN, checks::run(&scope, &node, &mut found)).await.is_err() {
                if let Ok(client) = scope.control_plane.client().await {
                    checks::clean(&client, &node).await;
                }
                found.fail("Verified", "TookTooLong", format!("the verification did not end within {} s; ask again", WITHIN.as_secs()));
            }
            record(&scope, &node, &found.steps).await;
            found.steps
        });
        whole.await.map_err(|_| "the platform ended while it verified this node; ask again".to_owned())
    }

    fn take(&self, id: NodeId) -> Option<Turn> {
        self.running().insert(id).then(|| Turn(self.clone(), id))
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashSet<NodeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Turn(Turns, NodeId);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.running().remove(&self.1);
    }
}

/// The steps so far.
struct Found {
    steps: Vec<Aspect>,
    shown: Steps,
}

impl Found {
    fn add(&mut self, aspect: Aspect) {
        (self.shown)(&aspect.kind, &aspect.message);
        self.steps.push(aspect);
    }

    fn well(&mut self, kind: &str, message: impl Into<String>) {
        self.add(Aspect { kind: kind.to_owned(), status: true, reason: kind.to_owned(), message: message.into() });
    }

    fn fail(&mut self, kind: &str, reason: &str, message: impl Into<String>) {
        self.add(Aspect { kind: kind.to_owned(), status: false, reason: reason.to_owned(), message: message.into() });
    }
}

/// Writes what was found: the condition `Verified`, and an event.
async fn record(scope: &Scope, node: &Node, steps: &[Aspect]) {
    let now = scope.ambient.now();
    let Some(last) = steps.last() else { return };
    let waiting = last.reason == WAITING_FOR_CNI;
    let verified = last.status && !waiting;
    let message = if verified { "a pod ran here; logs, exec, DNS and Services work".to_owned() } else { last.message.clone() };
    let reason = if verified { "Verified" } else { &last.reason };
    let changed = scope.change(node.id, |node| {
        set_condition(&mut node.status, now, "Verified", verified, reason, &message);
        if verified {
            node.status.verified_at = Some(now);
        }
    });
    if let Err(error) = changed.await {
        tracing::warn!(cluster = %scope.cluster, node = %node.id, %error, "the outcome of a verification could not be written");
    }
    let name = &node.name;
    match (verified, waiting) {
        (true, _) => scope.tell(Severity::Normal, "NodeVerified", format!("node {name} is verified: {message}")).await,
        (false, true) => scope.tell(Severity::Normal, WAITING_FOR_CNI, format!("node {name} has joined and waits: {message}")).await,
        (false, false) => {
            scope.tell(Severity::Warning, "NodeVerificationFailed", format!("node {name} fails at {}: {message}", last.kind)).await;
        }
    }
}
