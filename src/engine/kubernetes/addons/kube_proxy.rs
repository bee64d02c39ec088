//! kube-proxy's rights: the program is one of the node's own, its ServiceAccount the cluster's.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use serde_json::json;

use super::Manifest;

/// The namespace of its ServiceAccount.
pub const NAMESPACE: &str = "kube-system";
/// The name of its ServiceAccount.
pub const NAME: &str = "kube-proxy";

/// The objects that it needs.
pub fn manifests() -> Vec<Manifest> {
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    vec![
        Manifest::new::<ServiceAccount>(Some(NAMESPACE), NAME, json!({"automountServiceAccountToken": false})),
        Manifest::new::<ClusterRoleBinding>(None, "kubebyon:node-proxier", binding),
    ]
}
