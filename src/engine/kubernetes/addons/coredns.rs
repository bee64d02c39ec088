//! CoreDNS: one pod on every node, asked by the pods of that node alone.
//!
//! A Service whose endpoints are on nodes that are not reached would fail at random: hence the DaemonSet, and `internalTrafficPolicy: Local`.
//! The Corefile is made once and is then the owner's to edit (ConfigMap `kube-system/coredns`); CoreDNS reads it again by itself.

use std::net::IpAddr;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use serde_json::{Value, json};

use super::super::EngineError;
use super::manifest::{Manifest, is_the_owners as taken_over};
use crate::domain::cluster::ClusterSpec;
use crate::domain::network::nth_address;

/// The namespace of all of it.
pub const NAMESPACE: &str = "kube-system";
/// The label of its pods, by which tools find a cluster's DNS.
pub const POD_LABEL: (&str, &str) = ("k8s-app", "kube-dns");
/// Where in the Services' range DNS is.
pub const NTH_ADDRESS: u32 = 10;
/// The domain of a cluster.
pub const DOMAIN: &str = "cluster.local";

const NAME: &str = "coredns";
const ROLE: &str = "system:coredns";
/// Nobody in particular; the image needs no user of its own.
const USER: i64 = 65532;

/// The address of DNS in a Services' range.
pub fn address(spec: &ClusterSpec) -> Option<IpAddr> {
    nth_address(spec.service_cidr, NTH_ADDRESS)
}

/// What CoreDNS does when nobody says otherwise: the cluster's names itself, all others by the node's resolvers.
fn corefile() -> String {
    format!(
        "\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    prometheus :9153
    forward . /etc/resolv.conf {{
        max_concurrent 1000
    }}
    cache 30
    loop
    reload
    loadbalance
}}
"
    )
}

/// The Corefile's ConfigMap; made where it is absent and never changed.
pub fn configuration() -> Manifest {
    Manifest::new::<ConfigMap>(Some(NAMESPACE), NAME, json!({"data": {"Corefile": corefile()}}))
}

/// Whether the cluster's owner runs CoreDNS themselves.
pub async fn is_the_owners(client: &Client) -> Result<bool, EngineError> {
    Ok(configuration().find(client).await?.is_some_and(|there| taken_over(&there.metadata)))
}

/// All of it but the Corefile.
pub fn manifests(spec: &ClusterSpec, image: &str) -> Vec<Manifest> {
    let role = json!({"rules": [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]});
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    let mut manifests = vec![
        Manifest::new::<ServiceAccount>(Some(NAMESPACE), NAME, json!({})),
        Manifest::new::<ClusterRole>(None, ROLE, role),
        Manifest::new::<ClusterRoleBinding>(None, ROLE, binding),
        Manifest::new::<DaemonSet>(Some(NAMESPACE), NAME, daemon_set(image)),
    ];
    if let Some(address) = address(spec) {
        manifests.push(Manifest::new::<Service>(Some(NAMESPACE), "kube-dns", service(address)));
    }
    manifests
}

fn labels() -> Value {
    json!({POD_LABEL.0: POD_LABEL.1})
}

fn service(address: IpAddr) -> Value {
    json!({
        "metadata": {
            "labels": {POD_LABEL.0: POD_LABEL.1, "kubernetes.io/name": "CoreDNS"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9153"},
        },
        "spec": {
            "clusterIP": address,
            "internalTrafficPolicy": "Local",
            "selector": labels(),
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"},
                {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": "metrics"},
            ],
        },
    })
}

fn daemon_set(image: &str) -> Value {
    json!({
        "metadata": {"labels": labels()},
        "spec": {
            "selector": {"matchLabels": labels()},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "priorityClassName": "system-node-critical",
                    // It answers for the node's pods, and asks the node's own resolvers.
                    "dnsPolicy": "Default",
                    "enableServiceLinks": false,
                    "tolerations": [{"operator": "Exists"}],
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                        // Port 53 without root; a capability of the file would not work under allowPrivilegeEscalation: false.
                        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
                    },
                    "containers": [container(image)],
                    "volumes": [{"name": "config", "configMap": {"name": NAME, "items": [{"key": "Corefile", "path": "Corefile"}]}}],
                },
            },
        },
    })
}

fn container(image: &str) -> Value {
    json!({
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "170Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 30, "failureThreshold": 5, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2, "failureThreshold": 3},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kubernetes::nodes::signing::tests::spec;

    #[test]
    fn dns_is_where_kubelets_are_told_that_it_is_and_answers_its_own_node() {
        let manifests = manifests(&spec(), "registry.example/coredns:1");
        let of = |kind: &str| manifests.iter().map(Manifest::value).find(|v| v["kind"] == kind).unwrap();
        assert_eq!(of("Service")["spec"]["clusterIP"], "10.96.0.10");
        assert_eq!(of("Service")["spec"]["internalTrafficPolicy"], "Local");
        let pod = &of("DaemonSet")["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example/coredns:1");
        assert_eq!(pod["dnsPolicy"], "Default");
        assert_eq!(of("DaemonSet")["metadata"]["labels"]["app.kubernetes.io/managed-by"], "kubebyon");
        assert_eq!(of("Service")["spec"]["selector"], of("DaemonSet")["spec"]["template"]["metadata"]["labels"]);
        assert!(corefile().contains("kubernetes cluster.local"));
    }
}
