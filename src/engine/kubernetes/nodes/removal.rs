//! Taking a node out of Kubernetes: cordon, eviction of its pods, deletion of its object.
//!
//! Evictions respect PodDisruptionBudgets (the API server says 429, and it is tried again until the time is up). Pods of DaemonSets and mirror
//! pods stay: they would come back at once. Run again, it goes on where it was; a node that is not there is well.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubernetesNode, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::super::{EngineError, FIELD_MANAGER, failed, is_not_found};
use crate::engine::Progress;

/// How often pods that are still there are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many pods are read at a time.
const PAGE: u32 = 250;
/// How many pods a step names.
const NAMED: usize = 5;

/// Takes a node out; see the module.
pub async fn remove(client: &Client, name: &str, drain: Duration, progress: &dyn Progress) -> Result<(), EngineError> {
    let api = Api::<KubernetesNode>::all(client.clone());
    let Some(object) = api.get_opt(name).await.map_err(|e| failed(format!("node {name}"), e))? else { return Ok(()) };
    if !drain.is_zero() {
        if !object.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false) {
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
            match api.patch(name, &params, &cordon).await {
                Ok(_) => progress.step("NodeCordoned", &format!("node {name} takes no new pods")).await,
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) => return Err(failed(format!("node {name}"), error)),
            }
        }
        let conditions = object.status.and_then(|s| s.conditions).unwrap_or_default();
        let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        evict(client, name, drain, ready, progress).await?;
    }
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => progress.step("NodeDeleted", &format!("node {name} is out of Kubernetes")).await,
        Err(error) if is_not_found(&error) => {}
        Err(error) => return Err(failed(format!("deleting node {name}"), error)),
    }
    Ok(())
}

/// Evicts the pods of a node and waits until they are gone, at most for `drain`. Of a node that is not Ready nothing is waited for: nobody is
/// there to end its pods.
async fn evict(client: &Client, name: &str, drain: Duration, ready: bool, progress: &dyn Progress) -> Result<(), EngineError> {
    let end = Instant::now() + drain;
    let mut told = false;
    loop {
        let pods: Vec<Pod> = pods_on(client, name).await?.into_iter().filter(is_to_go).collect();
        let waited_for = pods.iter().filter(|pod| ready || pod.metadata.deletion_timestamp.is_none()).count();
        if waited_for == 0 {
            progress.step("NodeDrained", &format!("node {name} has no pods left that are to go")).await;
            return Ok(());
        }
        if !told {
            progress.step("NodeDraining", &format!("node {name} is drained: {waited_for} pods are evicted ({})", names(&pods))).await;
            told = true;
        }
        let mut blocked = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            if let Some(why) = evict_one(client, pod).await? {
                blocked.insert(title(pod), why);
            }
        }
        if Instant::now() + LOOK_EVERY >= end {
            let left = if blocked.is_empty() {
                format!("these still end: {}", names(&pods))
            } else {
                blocked.iter().take(NAMED).map(|(pod, why)| format!("{pod}: {why}")).collect::<Vec<_>>().join("; ")
            };
            let message = format!("node {name} is not drained after {} s and is taken out all the same; {left}", drain.as_secs());
            progress.step("DrainTimedOut", &message).await;
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Evicts a pod; gives why it may not go yet.
async fn evict_one(client: &Client, pod: &Pod) -> Result<Option<String>, EngineError> {
    let api = Api::<Pod>::namespaced(client.clone(), pod.namespace().as_deref().unwrap_or("default"));
    match api.evict(&pod.name_any(), &EvictParams::default()).await {
        Ok(_) => Ok(None),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(Some(status.message.clone())),
        // A webhook that does not answer, say: the drain's time decides.
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(failed(format!("the eviction of {}", title(pod)), error)),
    }
}

async fn pods_on(client: &Client, name: &str) -> Result<Vec<Pod>, EngineError> {
    let api = Api::<Pod>::all(client.clone());
    let mut list = ListParams::default().fields(&format!("spec.nodeName={name}")).limit(PAGE);
    let mut pods = Vec::new();
    loop {
        let page = api.list(&list).await.map_err(|e| failed(format!("the pods of node {name}"), e))?;
        pods.extend(page.items);
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => list.continue_token = Some(more),
            None => return Ok(pods),
        }
    }
}

/// Whether a pod is evicted: not one that a DaemonSet would make again, not a kubelet's own, not one that has ended.
fn is_to_go(pod: &Pod) -> bool {
    let of_daemon_set = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
    let mirror = pod.annotations().contains_key("kubernetes.io/config.mirror");
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    !of_daemon_set && !mirror && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn title(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn names(pods: &[Pod]) -> String {
    let more = pods.len().saturating_sub(NAMED);
    let named = pods.iter().take(NAMED).map(title).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn pods_that_would_come_back_or_have_ended_are_not_evicted() {
        let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true}]);
        for (meta, phase, goes) in [
            (json!({"name": "a"}), "Running", true),
            (json!({"name": "a", "ownerReferences": owner("ReplicaSet")}), "Pending", true),
            (json!({"name": "a", "ownerReferences": owner("DaemonSet")}), "Running", false),
            (json!({"name": "a", "annotations": {"kubernetes.io/config.mirror": "h"}}), "Running", false),
            (json!({"name": "a"}), "Succeeded", false),
            (json!({"name": "a"}), "Failed", false),
        ] {
            assert_eq!(is_to_go(&pod(json!({"metadata": meta, "status": {"phase": phase}}))), goes, "{meta} {phase}");
        }
    }

    #[test]
    fn a_step_names_some_pods_and_counts_the_rest() {
        let pods: Vec<_> = (0..7).map(|n| pod(json!({"metadata": {"namespace": "d", "name": format!("p{n}")}}))).collect();
        assert_eq!(names(&pods), "d/p0, d/p1, d/p2, d/p3, d/p4 and 2 more");
    }
}
