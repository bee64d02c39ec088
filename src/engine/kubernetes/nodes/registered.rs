//! Node objects as Kubernetes has them: readiness, pod range and kubelet's version go to the store; labels and taints that were asked for at
//! join are put on once.
//!
//! Once: when the kubelet has registered the node, marked by an annotation with the node's id. From then on they are the cluster's own, for
//! its people to change; a node that is deleted from Kubernetes and registers again, or joins anew, gets them again. The kubelet may not
//! set reserved labels (`node-role.kubernetes.io/…`) on itself; the platform may.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as KubernetesNode, Taint as KubernetesTaint};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::{EngineError, FIELD_MANAGER, failed, is_not_found};
use super::watch::Seen;
use super::{Scope, watch};
use crate::domain::cluster::{Addon, ClusterSpec};
use crate::domain::network::overlap;
use crate::domain::{Node, NodeId};
use crate::store;

/// Marks the Node object that has got what was asked for at join; its value is the node's id.
pub const JOINED: &str = "kubebyon.app/joined";
/// The longest version that is taken over, in characters.
const MAX_VERSION: usize = 40;

/// Follows Node objects, for ever.
pub async fn follow(scope: &Scope) {
    watch::follow::<KubernetesNode, _>(scope, |seen| async move {
        if let Err(error) = take_up(scope, &seen).await {
            tracing::warn!(cluster = %scope.cluster, error = format!("{error:#}"), "what Kubernetes says of a node could not be taken up");
        }
    })
    .await;
}

/// Takes up what was seen.
pub async fn take_up(scope: &Scope, seen: &Seen<KubernetesNode>) -> Result<(), EngineError> {
    let members = scope.members().await.map_err(anyhow::Error::from)?;
    match seen {
        Seen::There(object) => {
            let Some(node) = members.iter().find(|node| node.name == object.name_any()) else { return Ok(()) };
            let observed = Observed::of(object, &scope.spec, &members, node.id);
            scope.change(node.id, |node| observed.apply(node)).await.map_err(anyhow::Error::from)?;
            if node.removed_at.is_none() {
                introduce(scope, node, object).await?;
            }
        }
        Seen::Gone(object) => {
            let name = object.name_any();
            for node in members.iter().filter(|node| node.name == name) {
                scope.change(node.id, |node| Observed::default().apply(node)).await.map_err(anyhow::Error::from)?;
            }
        }
        Seen::Whole(names) => {
            for node in members.iter().filter(|node| !names.contains(&node.name)) {
                scope.change(node.id, |node| Observed::default().apply(node)).await.map_err(anyhow::Error::from)?;
            }
        }
    }
    Ok(())
}

/// What Kubernetes says of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    ready: bool,
    pod_cidr: Option<IpNet>,
    kubelet_version: Option<String>,
}

impl Observed {
    /// Reads a Node object. Its range of pods counts where it lies in the cluster's and overlaps no other member's: who may write Node
    /// objects must not draw others' traffic.
    pub fn of(object: &KubernetesNode, spec: &ClusterSpec, members: &[Node], own: NodeId) -> Self {
        let status = object.status.as_ref();
        let ready = status.and_then(|s| s.conditions.as_ref()).into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let others: Vec<IpNet> = members.iter().filter(|node| node.id != own).filter_map(|node| node.status.pod_cidr).collect();
        let inside = |net: &IpNet| spec.pod_cidr.contains(net) && net.prefix_len() > spec.pod_cidr.prefix_len();
        let pod_cidr = object.spec.as_ref().and_then(|s| s.pod_cidr.as_deref()).and_then(|text| text.parse::<IpNet>().ok());
        let pod_cidr =
            pod_cidr.filter(|net| spec.cni == Addon::Default && inside(net) && !others.iter().any(|other| overlap(*net, *other)));
        let version = status.and_then(|s| s.node_info.as_ref()).map(|info| info.kubelet_version.chars().take(MAX_VERSION).collect());
        Self { ready, pod_cidr, kubelet_version: version }
    }

    fn apply(&self, node: &mut Node) {
        node.status.ready = self.ready;
        node.status.pod_cidr = self.pod_cidr;
        if let Some(version) = &self.kubelet_version {
            version.trim_start_matches('v').clone_into(&mut node.machine.kubelet_version);
        }
    }
}

/// Puts on a node what was asked for at join, once.
async fn introduce(scope: &Scope, node: &Node, object: &KubernetesNode) -> Result<(), EngineError> {
    let id = node.id.to_string();
    if object.annotations().get(JOINED) == Some(&id) {
        return Ok(());
    }
    let api = Api::<KubernetesNode>::all(scope.control_plane.client().await?);
    let patch = json!({
        // Against a change in between: taints are one list, and others put theirs on while a node comes up.
        "metadata": {"resourceVersion": object.resource_version(), "labels": node.labels, "annotations": {JOINED: id}},
        "spec": {"taints": taints(object, node)},
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&node.name, &params, &Patch::Merge(&patch)).await {
        Ok(_) => {
            let message = format!("node {} is registered in Kubernetes", node.name);
            scope.tell(crate::domain::event::Severity::Normal, "NodeRegistered", message).await;
            Ok(())
        }
        // The change in between comes by the watch, and then it is tried again.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(failed(format!("labels and taints of node {}", node.name), error)),
    }
}

/// The taints that stand, and those asked for that do not.
fn taints(object: &KubernetesNode, node: &Node) -> Vec<KubernetesTaint> {
    let mut taints: Vec<KubernetesTaint> = object.spec.iter().flat_map(|s| s.taints.iter().flatten()).cloned().collect();
    for asked in &node.taints {
        if !taints.iter().any(|t| t.key == asked.key && t.effect == asked.effect) {
            let value = (!asked.value.is_empty()).then(|| asked.value.clone());
            taints.push(KubernetesTaint { key: asked.key.clone(), value, effect: asked.effect.clone(), time_added: None });
        }
    }
    taints
}

/// Whether Kubernetes has a node of that name: `None` when not, else whether it is Ready.
pub async fn ready(client: &kube::Client, name: &str) -> Result<Option<bool>, EngineError> {
    let object = Api::<KubernetesNode>::all(client.clone()).get_opt(name).await.map_err(|e| failed(format!("node {name}"), e))?;
    let ready = |object: KubernetesNode| {
        let conditions = object.status.and_then(|s| s.conditions).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    Ok(object.map(ready))
}

/// Whether the cluster has nodes.
pub async fn any(scope: &Scope) -> store::Result<bool> {
    Ok(!store::nodes::list(&mut *scope.store.read().await?, scope.cluster).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::signing::tests::{node, spec};
    use super::*;
    use crate::domain::{Ambient, ClusterId, node::Taint};

    fn object(pod_cidr: &str, ready: &str) -> KubernetesNode {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"podCIDR": pod_cidr, "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.34.4", "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_range_of_pods_counts_within_the_clusters_and_where_no_other_has_it() {
        let ambient = Ambient::system();
        let cluster = ClusterId::generate(&ambient);
        let (a, mut b) = (node(&ambient, cluster, "a", "10.0.0.1"), node(&ambient, cluster, "b", "10.0.0.2"));
        b.status.pod_cidr = Some("10.244.1.0/24".parse().unwrap());
        let members = [a.clone(), b];
        let cidr = |text: &str| Observed::of(&object(text, "True"), &spec(), &members, a.id).pod_cidr;
        assert_eq!(cidr("10.244.0.0/24"), Some("10.244.0.0/24".parse().unwrap()));
        for forged in ["0.0.0.0/0", "10.244.0.0/16", "10.244.1.0/25", "10.244.0.0/23", "127.0.0.0/8", "10.96.0.0/24", "", "x"] {
            assert_eq!(cidr(forged), None, "{forged}");
        }
        let own_network = ClusterSpec { cni: Addon::None, ..spec() };
        assert_eq!(Observed::of(&object("10.244.0.0/24", "True"), &own_network, &members, a.id).pod_cidr, None);
    }

    #[test]
    fn readiness_and_version_are_kubernetes_word() {
        let ambient = Ambient::system();
        let mut a = node(&ambient, ClusterId::generate(&ambient), "a", "10.0.0.1");
        let members = [a.clone()];
        Observed::of(&object("", "True"), &spec(), &members, a.id).apply(&mut a);
        assert!(a.status.ready);
        assert_eq!(a.machine.kubelet_version, "1.34.4");
        Observed::of(&object("", "Unknown"), &spec(), &members, a.id).apply(&mut a);
        assert!(!a.status.ready);
    }

    #[test]
    fn taints_of_others_stay() {
        let ambient = Ambient::system();
        let mut a = node(&ambient, ClusterId::generate(&ambient), "a", "10.0.0.1");
        a.taints = vec![
            Taint { key: "dedicated".into(), value: "gpu".into(), effect: "NoSchedule".into() },
            Taint { key: "node.kubernetes.io/not-ready".into(), value: String::new(), effect: "NoSchedule".into() },
        ];
        let made = taints(&object("", "True"), &a);
        let keys: Vec<_> = made.iter().map(|t| t.key.as_str()).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "dedicated"]);
    }
}
