//! kube-apiserver: who may come in, what is written down, where it may dial.

use super::{Flags, Layout, Limits, Program, ports};
use crate::domain::Cluster;
use crate::pki::cluster::files as pki;

/// Percentage of growth at which the API server's collector starts. Never with a memory limit near the live heap: that collects without end.
const GOGC: u32 = 25;

/// The longest life of a ServiceAccount token: a year, as of a kubeconfig (`domain::kubeconfig::MAX_TTL`).
const MAX_TOKEN_LIFE: &str = "8760h0m0s";

pub(super) fn program(cluster: &Cluster, layout: &Layout, limits: &Limits) -> Program {
    let flags = Flags::of("kube-apiserver", GOGC)
        // What is reached on every node under `api_local_address`: the `kubernetes` EndpointSlice says this address and `--secure-port`.
        .set("advertise-address", cluster.spec.api_local_address)
        .set("endpoint-reconciler-type", "lease")
        .set("service-cluster-ip-range", cluster.spec.service_cidr)
        .set("allow-privileged", true)
        .set("enable-logs-handler", false)
        .serving(layout, ports::API_SERVER, (pki::API_SERVER_CERT, pki::API_SERVER_KEY));
    let flags = storage(flags, layout);
    let flags = identity(flags, layout);
    let flags = outgoing(flags, layout);
    flags
        .set("authorization-config", layout.run("authorization.yaml"))
        .set("enable-admission-plugins", "NodeRestriction,EventRateLimit")
        .set("admission-control-config-file", layout.run("admission.yaml"))
        .set("max-requests-inflight", limits.max_requests_inflight)
        .set("max-mutating-requests-inflight", limits.max_mutating_requests_inflight)
        .set("request-timeout", "1m0s")
        .set("event-ttl", "1h0m0s")
        .set("audit-policy-file", layout.run("audit-policy.yaml"))
        .set("audit-log-path", format!("{}/audit/audit.log", layout.data_dir))
        .set("audit-log-maxsize", limits.audit_max_size_mb.max(1))
        // Old files beside the one that is written; 0 would mean any number of them.
        .set("audit-log-maxbackup", limits.audit_max_files.saturating_sub(1).max(1))
        .set("audit-log-maxage", 30)
        .program()
}

/// etcd, and what lies in it encrypted.
fn storage(flags: Flags, layout: &Layout) -> Flags {
    flags
        .set("etcd-servers", layout.url(ports::ETCD_CLIENT))
        .set("etcd-cafile", layout.run(pki::ETCD_CA))
        .set("etcd-certfile", layout.run(pki::API_SERVER_ETCD_CLIENT_CERT))
        .set("etcd-keyfile", layout.run(pki::API_SERVER_ETCD_CLIENT_KEY))
        .set("etcd-compaction-interval", "5m0s")
        .set("encryption-provider-config", layout.run("encryption.yaml"))
}

/// How callers prove who they are.
fn identity(flags: Flags, layout: &Layout) -> Flags {
    flags
        .set("authentication-config", layout.run("authentication.yaml"))
        .set("client-ca-file", layout.run(pki::CLIENT_CA))
        .set("requestheader-client-ca-file", layout.run(pki::FRONT_PROXY_CA))
        .set("requestheader-allowed-names", "front-proxy-client")
        .set("requestheader-username-headers", "X-Remote-User")
        .set("requestheader-group-headers", "X-Remote-Group")
        .set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .set("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
        .set("service-account-key-file", layout.run(pki::SERVICE_ACCOUNT_PUB))
        .set("service-account-signing-key-file", layout.run(pki::SERVICE_ACCOUNT_KEY))
        .set("service-account-lookup", true)
        // A pod's token is good for the hour it says, not for the year that the extension would make of it.
        .set("service-account-extend-token-expiration", false)
        .set("service-account-max-token-expiration", MAX_TOKEN_LIFE)
}

/// Where it dials: nodes, pods, webhooks and aggregated APIs, all through the tunnel.
fn outgoing(flags: Flags, layout: &Layout) -> Flags {
    flags
        .set("egress-selector-config-file", layout.run("egress.yaml"))
        .set("enable-aggregator-routing", true)
        .set("proxy-client-cert-file", layout.run(pki::FRONT_PROXY_CLIENT_CERT))
        .set("proxy-client-key-file", layout.run(pki::FRONT_PROXY_CLIENT_KEY))
        .set("kubelet-preferred-address-types", "InternalIP")
        .set("kubelet-certificate-authority", layout.run(pki::KUBELET_SERVING_CA))
        .set("kubelet-client-certificate", layout.run(pki::API_SERVER_KUBELET_CLIENT_CERT))
        .set("kubelet-client-key", layout.run(pki::API_SERVER_KUBELET_CLIENT_KEY))
}
