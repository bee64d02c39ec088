//! The pod that verifies a node, its namespace and its ServiceAccount. It satisfies the Pod Security Standard `restricted`.

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use serde_json::json;

use super::super::super::EngineError;
use super::super::super::addons::Manifest;
use super::NAMESPACE;
use crate::domain::{Node, NodeId};

/// The label of such a pod; its value is the node's id.
pub const LABEL: &str = "kubebyon.app/verifies";
/// The name of its container.
pub const CONTAINER: &str = "check";
/// Where the program is in its image.
pub const PROGRAM: &str = "/kubebyon";

const ACCOUNT: &str = "verify";
/// Seconds after which the kubelet ends a pod that nobody took away.
const DEADLINE: u32 = 600;

/// What must be there before the pod.
pub fn surroundings() -> [Manifest; 2] {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    [
        Manifest::new::<Namespace>(None, NAMESPACE, json!({"metadata": {"labels": labels}})),
        Manifest::new::<ServiceAccount>(Some(NAMESPACE), ACCOUNT, json!({})),
    ]
}

/// The selector of a node's pods.
pub fn selector(node: NodeId) -> String {
    format!("{LABEL}={node}")
}

/// The pod for a node, which no scheduler is asked for.
pub fn manifest(node: &Node, image: &str) -> Result<Pod, EngineError> {
    let pod = json!({
        "metadata": {
            "generateName": "verify-",
            "namespace": NAMESPACE,
            "labels": {LABEL: node.id.to_string(), "app.kubernetes.io/managed-by": super::super::super::FIELD_MANAGER},
        },
        "spec": {
            "nodeName": node.name,
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "terminationGracePeriodSeconds": 1,
            "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "Never",
                "command": [PROGRAM, "pod-check"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    serde_json::from_value(pod).map_err(|error| EngineError::Fatal(error.into()))
}
