//! A whole join against a platform that speaks TLS, in a folder that stands for a machine; cut after each step and gone on with.

use crate::domain::cluster::Addon;
use crate::domain::join::{Joined, JoinedCluster, ProgramFile, TunnelEndpoint};
use crate::domain::{Ambient, ClusterId, KubernetesVersion, NodeId};

/// A platform's answer.
pub(in crate::node) fn joined(programs: Vec<ProgramFile>) -> Joined {
    let ambient = Ambient::system();
    Joined {
        node_id: NodeId::generate(&ambient),
        name: "node-1".into(),
        address: "192.168.1.10".parse().unwrap(),
        address_assigned: false,
        certificate_pem: String::new(),
        cluster: JoinedCluster {
            id: ClusterId::generate(&ambient),
            name: "demo".into(),
            label: "demo-abc234".into(),
            kubernetes_version: KubernetesVersion::new(1, 36, 3),
            server_ca_pem: "server".into(),
            client_ca_pem: "client".into(),
            tunnel_name: "demo-abc234-node.kubebyon.internal".into(),
            tunnel_endpoints: vec![TunnelEndpoint { host: "203.0.113.7".into(), port: 443 }],
            api_local_address: "198.51.100.1".parse().unwrap(),
            api_port: 6443,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            dns_address: "10.96.0.10".parse().unwrap(),
            dns_domain: "cluster.local".into(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            pause_image: "registry.k8s.io/pause:3.10".into(),
        },
        programs,
        images: Vec::new(),
    }
}
