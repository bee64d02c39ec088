//! From a cluster's spec to programs, flags and files: one pure function that every engine of ours shares.
//!
//! Guarantees: the same arguments give the same plan, byte for byte, so that an engine can tell by comparing whether a running program is
//! the one that is wanted; nothing of a plan is secret (keys stand in files that it names by path); no text of a tenant reaches a flag but
//! what `domain` has parsed (addresses and ranges). May import: `domain`, `pki` (paths of its files).

mod api_server;
mod controller_manager;
mod etcd;
pub mod files;
mod scheduler;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use crate::domain::Cluster;
use crate::pki::cluster::files as pki;

/// The programs of a control plane, in the order in which they start.
pub const COMPONENTS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The order in which they stop: an API server whose etcd went first ignores SIGTERM for over a minute.
pub const STOP_ORDER: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd"];

/// Fixed ports on the cluster's own address.
pub mod ports {
    /// kube-apiserver.
    pub const API_SERVER: u16 = 6443;
    /// etcd's clients.
    pub const ETCD_CLIENT: u16 = 2379;
    /// etcd's peers.
    pub const ETCD_PEER: u16 = 2380;
    /// kube-controller-manager.
    pub const CONTROLLER_MANAGER: u16 = 10257;
    /// kube-scheduler.
    pub const SCHEDULER: u16 = 10259;
    /// The tunnel's terminator.
    pub const TERMINATOR: u16 = 9443;
}

/// Where things are on the machine (or in the pod) that runs the control plane.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The cluster's own address.
    pub address: IpAddr,
    /// The folder of materialised keys, configurations and sockets (tmpfs): `pki/…`, `*.yaml`, `cluster.sock`, `controlplane.sock`.
    pub run_dir: String,
    /// The folder that lasts: `etcd/`, `audit/`.
    pub data_dir: String,
}

impl Layout {
    /// The path of a file of the run folder, such as `authorization.yaml` or those of `pki::cluster::files`.
    fn run(&self, file: &str) -> String {
        format!("{}/{file}", self.run_dir)
    }

    /// The `https` URL of one of the cluster's ports; IPv6 addresses get their brackets.
    fn url(&self, port: u16) -> String {
        format!("https://{}", SocketAddr::new(self.address, port))
    }
}

/// What may be spent on one cluster.
#[derive(Debug, Clone)]
pub struct Limits {
    /// etcd's `--quota-backend-bytes`.
    pub etcd_quota_bytes: u64,
    /// The API server's `--max-requests-inflight`.
    pub max_requests_inflight: u32,
    /// The API server's `--max-mutating-requests-inflight`.
    pub max_mutating_requests_inflight: u32,
    /// Audit log: size of a file in MB.
    pub audit_max_size_mb: u32,
    /// How many audit log files are kept, the one that is written included; at least 2.
    pub audit_max_files: u32,
}

/// One program to run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Program {
    /// Its name, one of [`COMPONENTS`].
    pub name: &'static str,
    /// Its arguments, each `--flag=value`.
    pub args: Vec<String>,
    /// Its environment, whole: nothing is inherited, so no proxy of the daemon's and no credential of it reaches a tenant's programs.
    pub env: BTreeMap<String, String>,
}

/// A control plane: programs in the order of their start, and the files they read, by path below `run_dir`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ControlPlane {
    /// The programs.
    pub programs: Vec<Program>,
    /// Files that are the same on every materialisation (configurations, kubeconfigs that name certificate files). The programs also read
    /// `encryption.yaml` ([`files::encryption`], which holds the key), and the tunnel's `authorization.yaml` and `egress.yaml`.
    pub files: BTreeMap<String, String>,
}

/// The control plane for a cluster's spec. Every flag exists in Kubernetes 1.34 to 1.36 and etcd 3.6; one that some minor lacks is to be chosen
/// by `spec.kubernetes_version`.
pub fn control_plane(cluster: &Cluster, layout: &Layout, limits: &Limits) -> ControlPlane {
    ControlPlane {
        programs: vec![
            etcd::program(cluster, layout, limits),
            api_server::program(cluster, layout, limits),
            controller_manager::program(cluster, layout),
            scheduler::program(layout),
        ],
        files: BTreeMap::from([
            ("authentication.yaml".to_owned(), files::AUTHENTICATION.to_owned()),
            ("admission.yaml".to_owned(), files::ADMISSION.to_owned()),
            ("audit-policy.yaml".to_owned(), files::AUDIT_POLICY.to_owned()),
            (
                "controller-manager.kubeconfig".to_owned(),
                files::kubeconfig(layout, "controller-manager", pki::CONTROLLER_MANAGER_CERT, pki::CONTROLLER_MANAGER_KEY),
            ),
            ("scheduler.kubeconfig".to_owned(), files::kubeconfig(layout, "scheduler", pki::SCHEDULER_CERT, pki::SCHEDULER_KEY)),
        ]),
    }
}

/// Cipher suites of TLS 1.2 with forward secrecy and authenticated encryption, for keys of ours (all ECDSA) and of add-ons (some RSA); those
/// of TLS 1.3 are always on. The AES-128 suites are what HTTP/2 asks for (RFC 9113, section 9.2.2).
const CIPHER_SUITES: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,\
TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

/// A program that is being described.
///
/// Each names how early its collector starts. With Go's default of 100 the four programs of an idle cluster hold 260 MB that nobody shares
/// (API server 179), with 25 and 30 it is 197 MB (API server 130); below that little is left to gain. The price is a third to a half more CPU
/// of the API server while it writes hundreds of objects a second, and none that can be measured while it is idle.
struct Flags(Program);

impl Flags {
    /// A program of that name, whose collector starts when the heap has grown by `gogc` percent.
    fn of(name: &'static str, gogc: u32) -> Self {
        Self(Program { name, args: Vec::new(), env: BTreeMap::from([("GOGC".to_owned(), gogc.to_string())]) })
    }

    /// Adds `--name=value`.
    fn set(mut self, name: &str, value: impl Display) -> Self {
        self.0.args.push(format!("--{name}={value}"));
        self
    }

    /// Where a Kubernetes program serves, and with what.
    fn serving(self, layout: &Layout, port: u16, (cert, key): (&str, &str)) -> Self {
        self.set("bind-address", layout.address)
            .set("secure-port", port)
            .set("tls-cert-file", layout.run(cert))
            .set("tls-private-key-file", layout.run(key))
            .set("tls-min-version", "VersionTLS12")
            .set("tls-cipher-suites", CIPHER_SUITES)
            .set("profiling", false)
    }

    fn program(self) -> Program {
        self.0
    }
}
