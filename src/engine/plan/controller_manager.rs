//! kube-controller-manager: one replica, the kubelet-serving signer and no other.

use super::{Flags, Layout, Program, ports};
use crate::domain::Cluster;
use crate::domain::cluster::Addon;
use crate::pki::cluster::files as pki;

/// Percentage of growth at which the controller-manager's collector starts.
const GOGC: u32 = 30;

/// All controllers but those of joining as kubeadm does it: there are no bootstrap tokens, and requests of kubelets are approved by the
/// platform after its own checks.
const CONTROLLERS: &str = "*,-bootstrap-signer-controller,-token-cleaner-controller,-certificatesigningrequest-approving-controller";

pub(super) fn program(cluster: &Cluster, layout: &Layout) -> Program {
    let flags = Flags::of("kube-controller-manager", GOGC)
        .set("kubeconfig", layout.run("controller-manager.kubeconfig"))
        .set("leader-elect", false)
        // At its start every controller makes its ServiceAccount and asks for a token, all through one client: at upstream's 20 a second a new
        // cluster waits 5 s for its default roles and the first pods.
        .set("kube-api-qps", 200)
        .set("kube-api-burst", 400)
        .set("use-service-account-credentials", true)
        .set("controllers", CONTROLLERS)
        .serving(layout, ports::CONTROLLER_MANAGER, (pki::CONTROLLER_MANAGER_SERVING_CERT, pki::CONTROLLER_MANAGER_SERVING_KEY))
        // Without a kubeconfig for these, only /healthz, /readyz and /livez are served; all else is forbidden.
        .set("authentication-skip-lookup", true)
        .set("root-ca-file", layout.run(pki::SERVER_CA))
        .set("service-account-private-key-file", layout.run(pki::SERVICE_ACCOUNT_KEY))
        // With one signer named by its own files, all others are off; `--cluster-signing-cert-file` beside them is refused.
        .set("cluster-signing-kubelet-serving-cert-file", layout.run(pki::KUBELET_SERVING_CA))
        .set("cluster-signing-kubelet-serving-key-file", layout.run(pki::KUBELET_SERVING_CA_KEY))
        .set("cluster-signing-duration", "8760h0m0s")
        // Programs that lie in this folder are run: it must not be one of the machine's.
        .set("flex-volume-plugin-dir", format!("{}/volume-plugins", layout.data_dir));
    match cluster.spec.cni {
        Addon::Default => flags
            .set("allocate-node-cidrs", true)
            .set("cluster-cidr", cluster.spec.pod_cidr)
            .set("service-cluster-ip-range", cluster.spec.service_cidr)
            .program(),
        Addon::None => flags.set("allocate-node-cidrs", false).program(),
    }
}
