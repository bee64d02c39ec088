//! The leaves of a control plane: which program proves what to whom.
//!
//! Each leaf comes with what the ledger records of it; the caller records it before it writes the files.
//! May import: `domain`.
use std::net::IpAddr;
use std::time::Duration;

use super::cluster::{ClusterPki, Files, files};
use super::{Authority, Issued, LeafProfile};
use crate::domain::Ambient;

/// How long a control plane's leaves are good for; they are renewed when a third of it is left.
pub const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long the daemon's own credential is good for.
pub const PLATFORM_CLIENT_LIFE: Duration = Duration::from_secs(3600);
/// The user of the daemon's own credential.
pub const PLATFORM_USER: &str = "kubebyon:platform";
/// The user by which the API server calls kubelets; it needs the ClusterRole `system:kubelet-api-admin`.
pub const KUBELET_CLIENT_USER: &str = "kubebyon:kube-apiserver-kubelet-client";
/// The name by which the aggregator proves itself (`--requestheader-allowed-names`).
pub const FRONT_PROXY_USER: &str = "front-proxy-client";
/// The name under which the terminator answers the revocation webhook; `.invalid` resolves nowhere (RFC 2606).
pub const REVOCATION_HOST: &str = "revocation.invalid";

/// What differs from one control plane to the next.
#[derive(Debug, Clone)]
pub struct LeafOptions {
    /// The address that the control plane's programs listen on.
    pub address: IpAddr,
    /// Whatever else the API server is reached by: its public names and addresses and the first address of the Service CIDR.
    /// The names of the Service `kubernetes` and `address` are always in.
    pub api_server_sans: Vec<String>,
    /// The name that nodes send and verify when they open their tunnel: `<label>-node.<base domain>`.
    pub tunnel_name: String,
    /// The life of a leaf: [`LEAF_LIFE`] unless renewal is to be seen.
    pub ttl: Duration,
}

/// A leaf and where it belongs.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Path of the certificate below the run directory.
    pub cert_path: &'static str,
    /// Path of its key below the run directory.
    pub key_path: &'static str,
    /// What it is for, as in the ledger.
    pub purpose: &'static str,
    /// The certificate, its key, and what is recorded of it.
    pub issued: Issued,
}

/// The files of these leaves.
pub fn leaf_files(leaves: &[Leaf]) -> Files {
    leaves
        .iter()
        .flat_map(|leaf| {
            [(leaf.cert_path.to_owned(), leaf.issued.cert_pem.clone()), (leaf.key_path.to_owned(), leaf.issued.key_pem.clone())]
        })
        .collect()
}

/// Fresh leaves for everything in a control plane that proves itself.
pub fn control_plane_leaves(pki: &ClusterPki, ambient: &Ambient, options: &LeafOptions) -> anyhow::Result<Vec<Leaf>> {
    plan(options)
        .into_iter()
        .map(|wanted| {
            let issued = pki.authority(wanted.authority).issue(ambient, &wanted.profile)?;
            Ok(Leaf { cert_path: wanted.cert_path, key_path: wanted.key_path, purpose: wanted.purpose, issued })
        })
        .collect()
}

/// The daemon's own credential: `system:masters`, one hour, held in memory alone.
///
/// A new cluster has no binding that lets anybody make bindings, so its first administrator must be one whom no authorizer
/// judges: kube-apiserver allows `system:masters` before it asks any. The same property makes such a certificate
/// impossible to revoke: it is therefore never written to a disk, never given to a user, and short-lived enough to be forgotten.
pub fn platform_client(pki: &ClusterPki, ambient: &Ambient) -> anyhow::Result<Issued> {
    let profile = client(PLATFORM_USER, &["system:masters"], PLATFORM_CLIENT_LIFE);
    pki.authority(Authority::Client).issue(ambient, &profile)
}

struct Wanted {
    cert_path: &'static str,
    key_path: &'static str,
    purpose: &'static str,
    authority: Authority,
    profile: LeafProfile,
}

fn plan(options: &LeafOptions) -> Vec<Wanted> {
    let LeafOptions { address, api_server_sans, tunnel_name, ttl } = options;
    let own = || vec![address.to_string()];
    let clients = |name: &str| client(name, &[], *ttl);
    let mut plan = Vec::new();
    let mut want =
        |(cert_path, key_path), purpose, authority, profile| plan.push(Wanted { cert_path, key_path, purpose, authority, profile });

    want(
        (files::API_SERVER_CERT, files::API_SERVER_KEY),
        "kube-apiserver",
        Authority::Server,
        server("kube-apiserver", api_server_names(*address, api_server_sans), *ttl),
    );
    want(
        (files::API_SERVER_ETCD_CLIENT_CERT, files::API_SERVER_ETCD_CLIENT_KEY),
        "kube-apiserver-etcd-client",
        Authority::Etcd,
        clients("kube-apiserver"),
    );
    want(
        (files::API_SERVER_KUBELET_CLIENT_CERT, files::API_SERVER_KUBELET_CLIENT_KEY),
        "kube-apiserver-kubelet-client",
        Authority::Client,
        clients(KUBELET_CLIENT_USER),
    );
    want(
        (files::FRONT_PROXY_CLIENT_CERT, files::FRONT_PROXY_CLIENT_KEY),
        "front-proxy-client",
        Authority::FrontProxy,
        clients(FRONT_PROXY_USER),
    );
    want(
        (files::API_SERVER_TERMINATOR_CLIENT_CERT, files::API_SERVER_TERMINATOR_CLIENT_KEY),
        "kube-apiserver-terminator-client",
        Authority::Terminator,
        clients("kube-apiserver"),
    );
    // etcd's gateway to itself presents the server certificate as a client, hence both uses.
    want((files::ETCD_SERVER_CERT, files::ETCD_SERVER_KEY), "etcd-server", Authority::Etcd, both("etcd-server", own(), *ttl));
    want((files::ETCD_PEER_CERT, files::ETCD_PEER_KEY), "etcd-peer", Authority::Etcd, both("etcd-peer", own(), *ttl));
    want(
        (files::CONTROLLER_MANAGER_CERT, files::CONTROLLER_MANAGER_KEY),
        "kube-controller-manager",
        Authority::Client,
        clients("system:kube-controller-manager"),
    );
    want(
        (files::CONTROLLER_MANAGER_SERVING_CERT, files::CONTROLLER_MANAGER_SERVING_KEY),
        "kube-controller-manager-serving",
        Authority::Server,
        server("kube-controller-manager", own(), *ttl),
    );
    want((files::SCHEDULER_CERT, files::SCHEDULER_KEY), "kube-scheduler", Authority::Client, clients("system:kube-scheduler"));
    want(
        (files::SCHEDULER_SERVING_CERT, files::SCHEDULER_SERVING_KEY),
        "kube-scheduler-serving",
        Authority::Server,
        server("kube-scheduler", own(), *ttl),
    );
    want(
        (files::TERMINATOR_CERT, files::TERMINATOR_KEY),
        "terminator",
        Authority::Terminator,
        server("terminator", vec![REVOCATION_HOST.to_owned()], *ttl),
    );
    want((files::TUNNEL_CERT, files::TUNNEL_KEY), "tunnel", Authority::Server, server("tunnel", vec![tunnel_name.clone()], *ttl));
    plan
}

/// All names of an API server, each once.
fn api_server_names(address: IpAddr, given: &[String]) -> Vec<String> {
    let fixed = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"].map(str::to_owned);
    let mut names: Vec<String> = Vec::new();
    for name in fixed.into_iter().chain([address.to_string()]).chain(given.iter().cloned()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn client(name: &str, groups: &[&str], ttl: Duration) -> LeafProfile {
    LeafProfile {
        common_name: name.to_owned(),
        organizations: groups.iter().map(|&group| group.to_owned()).collect(),
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl,
    }
}

fn server(name: &str, sans: Vec<String>, ttl: Duration) -> LeafProfile {
    LeafProfile { sans, server_auth: true, client_auth: false, ..client(name, &[], ttl) }
}

fn both(name: &str, sans: Vec<String>, ttl: Duration) -> LeafProfile {
    LeafProfile { client_auth: true, ..server(name, sans, ttl) }
}
